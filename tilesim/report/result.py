"""What became of each kernel named on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from tilesim.records import dataclass, field, replace

if TYPE_CHECKING:  # `tilesim --version` loads no checker
    from tilesim.checker import Report
    from tilesim.checker.assumptions import Leaning
    from tilesim.errors import Diagnostic
    from tilesim.ir.loc import Loc
    from tilesim.repair import Repairs
    from tilesim.report.machine_code import MachineCode
    from tilesim.sim.observers.timeline import Recording

OK, FINDINGS, USAGE, INCONCLUSIVE = 0, 1, 2, 3
#: exit codes of the shell for SIGINT and SIGPIPE, and sysexits' EX_SOFTWARE
INTERRUPTED, BROKEN_PIPE, INTERNAL = 130, 141, 70

#: warp instructions of a run that is drawn: a longer one takes a second and more to run again
DRAWN = 50_000
_VERDICTS = {
    "proved": OK,
    "exhausted": OK,
    "failed": FINDINGS,
    "bounded": INCONCLUSIVE,
    "unsupported": INCONCLUSIVE,
}
#: the worst first: an error may hide findings, findings outweigh an open question
_SEVERITY = (INTERNAL, USAGE, FINDINGS, INCONCLUSIVE, OK)

Accept = Literal["bounded"] | None


@dataclass(frozen=True)
class Checked:
    """A kernel that was checked. ``replay`` repeats its witness, if that was written to a file.

    ``diagram`` is one of its barriers (SVG) and ``recording`` of the failing schedule (else of the
    timed one), if a report will show them. ``denied``: what a proof leans on and was not to lean
    on, which makes it an error. ``configuration``: what tells the launch from others of the kernel.
    ``seconds``: how long the check took, if reports are to say so. ``machine_code``: what was found
    of it with ``--sass``: then the report is on both, and says on which of them.
    """

    kernel: str
    target: str
    report: Report
    replay: str = ""
    diagram: str = field(default="", repr=False)
    recording: Recording | None = field(default=None, repr=False)
    denied: tuple[Leaning, ...] = ()
    configuration: str = ""
    seconds: float | None = None
    machine_code: MachineCode | None = None

    @property
    def special(self) -> bool:
        """Whether it fails on a recorded schedule other than the timed one."""
        recorded = self.recording
        return recorded is not None and any(t.unit == "step" for t in recorded.timelines)

    def code(self, accept: Accept = None) -> int:
        """The exit code this result stands for."""
        if self.denied:
            return FINDINGS
        verdict = self.report.overall
        return OK if verdict == accept else _VERDICTS[verdict]


@dataclass(frozen=True)
class Rejected:
    """A program that the verifier or the builder refuses, with every reason, and the repairs that
    were looked for."""

    kernel: str
    target: str | None
    diagnostics: tuple[Diagnostic, ...]
    repairs: Repairs | None = None
    seconds: float | None = None

    def code(self, accept: Accept = None) -> int:
        """The exit code this result stands for."""
        return USAGE


@dataclass(frozen=True)
class Failure:
    """A target that could not be loaded, or whose arguments do not fit.

    ``internal``: the cause is a bug of tilesim, not the input. ``places``: lines of the user's code
    that were being run, the outermost first.
    """

    kernel: str
    message: str
    internal: bool = False
    places: tuple[Loc, ...] = ()
    seconds: float | None = None

    def code(self, accept: Accept = None) -> int:
        """The exit code this result stands for."""
        return INTERNAL if self.internal else USAGE


Result = Checked | Rejected | Failure


def as_data(result: Result) -> Result:
    """The result with what reports show of it, which is plain data: it goes to another process."""
    match result:
        case Checked(report=report) if report.repairs is not None:
            return replace(
                result, report=replace(report, repairs=report.repairs.without_programs())
            )
        case Rejected(repairs=repairs) if repairs is not None:
            return replace(result, repairs=repairs.without_programs())
        case _:
            return result


def exit_code(results: Iterable[Result], accept: Accept = None) -> int:
    """The worst exit code of several results."""
    return worst(result.code(accept) for result in results)


def worst(codes: Iterable[int]) -> int:
    """The exit code that counts among several."""
    given = set(codes)
    return next((code for code in _SEVERITY if code in given), OK)
