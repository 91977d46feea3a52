"""What a check says of a kernel, and for which values of its parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tilesim.checker.assumptions import Leaning
from tilesim.errors import UsageError
from tilesim.findings.finding import Finding
from tilesim.ir import display
from tilesim.ir.display import Shown
from tilesim.ir.program import Verdict
from tilesim.records import dataclass, field

if TYPE_CHECKING:
    from tilesim.proof.certificate import Certificate
    from tilesim.proof.rules import Answer
    from tilesim.repair import Repairs
    from tilesim.sim.affine.free_parameter import Obstacle

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)?(?::(\d+))?")
#: values as `tilesim.check` takes them: all from 1 on (None), a range, or as `Values.parse` has it
Given: TypeAlias = "Mapping[str, Values | range | str | None]"


@dataclass(frozen=True)
class Values:
    """The values ``first``, ``first + step``... up to ``last``, all of them if that is None."""

    first: int = 1
    last: int | None = None
    step: int = 1

    @classmethod
    def parse(cls, text: str) -> Values:
        """``1..``, ``1..4096``, ``64..:64``, ``64..4096:64``.

        Raises:
            UsageError: it is none of these.
        """
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"{text!r} is not a range of values: write 1.., 1..4096 or 64..:64")
        first, last, step = match.groups()
        return cls(int(first), None if last is None else int(last), int(step or 1)).checked()

    @classmethod
    def of(cls, given: Values | range | str | None) -> Values:
        """Values as `tilesim.check` takes them."""
        match given:
            case None:
                return cls()
            case Values():
                return given.checked()
            case str():
                return cls.parse(given)
            case range() if len(given) and given.step > 0:
                return cls(given.start, given[-1], given.step)
            case _:
                raise UsageError(f"{given!r} is not a range of values that grow")

    def checked(self) -> Values:
        """Itself.

        Raises:
            UsageError: there are none.
        """
        if self.step < 1 or (self.last is not None and self.last < self.first):
            steps = f" in steps of {self.step}" if self.step != 1 else ""
            raise UsageError(f"there are no values in {self.first}..{self.last}{steps}")
        return self

    def at(self, number: int) -> int:
        """The value of this number, from 0 on."""
        return self.first + self.step * number

    @property
    def count(self) -> int | None:
        """How many there are; None: no end."""
        return None if self.last is None else (self.last - self.first) // self.step + 1

    def upto(self, name: str, last: int) -> str:
        """``n in 1..612``: those up to one of them."""
        if last == self.first:
            return f"{name} = {last}"
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{name} in {self.first}..{last}{steps}"

    def says(self, name: str) -> str:
        """``every iterations >= 1``."""
        where = f">= {self.first}" if self.last is None else f"in {self.first}..{self.last}"
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"every {name} {where}{steps}"


@dataclass(frozen=True)
class Claim:
    """What has been found out about all values of a parameter.

    ``wanted`` says of which. ``proved``: all of them are, up to ``limit``, the last value that a
    kernel can be given or that its types hold, and why; else ``obstacle`` says why not. ``runs``:
    how many values were run; ``refused`` are some that the kernel refuses; ``at`` the value for
    which a check says something else. If that is not so for all, those up to ``upto`` are.
    ``parts``: what is said of which values, in words: ``("proved", "n in 1..612")``,
    ``("failed", "n = 613: deadlock")``; ``where``: the values of which a report that fails is.
    ``period``: how many values apart those are of which one run stands for the others.
    """

    wanted: str
    proved: bool
    obstacle: Obstacle | None = None
    limit: tuple[int, Obstacle] | None = None
    runs: int = 0
    refused: tuple[int, ...] = ()
    at: int | None = None
    upto: int | None = None
    parts: tuple[tuple[str, str], ...] = ()
    where: tuple[tuple[str, int], ...] = ()
    period: int = 1

    @property
    def said(self) -> str:
        """``proved for n in 1..612; failed for n = 613: deadlock``."""
        return "; ".join(f"{verdict} for {values}" for verdict, values in self.parts)

    @property
    def covers(self) -> str:
        """What a verdict that is proved extends to."""
        text = self.wanted
        if self.limit is not None:
            text += f" up to {self.limit[0]} (then: {self.limit[1]})"
        if self.refused:
            text += f" (but {', '.join(map(str, self.refused))}..., which the kernel refuses)"
        return text


#: the reason of a verdict that would be stronger had the user waited
INTERRUPTED = "interrupted by the user"


@dataclass(frozen=True)
class Stats:
    """What a check cost: warp instructions executed, schedules run, CTAs simulated in the first."""

    instructions: int = 0
    schedules: int = 0
    ctas: int = 0


@dataclass(frozen=True)
class Report(Shown):
    """The result of `check`.

    ``covers`` says what the verdict extends to (schedules, CTAs, strictness, assumptions),
    ``reasons`` why it is not stronger. ``witness`` replays the failing schedule (see `replay`), an
    exploration continues from ``frontier``; both are JSON objects. ``leanings`` are what a proof
    leans on. With ``for_all``, ``verdict`` is about one value and ``overall`` about all. The proof
    kernel's answer on ``certificate`` is ``rechecked``; it trusts ``recheck_trusts`` besides what
    every recheck trusts (docs/trust.md). ``print`` shows a report as ``tilesim check`` does.
    """

    kernel: str
    verdict: Verdict
    covers: str
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    witness: dict[str, Any] | None = None
    stats: Stats = field(default_factory=Stats)
    frontier: dict[str, Any] | None = field(default=None, repr=False)
    repairs: Repairs | None = None
    leanings: tuple[Leaning, ...] = ()
    for_all: Claim | None = None
    certificate: Certificate | None = field(default=None, repr=False)
    rechecked: Answer | None = None
    recheck_trusts: str = ""

    def __str__(self) -> str:
        return repr(self) if display.maker is None else display.maker().text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """IPython's console shows the text; notebooks show the page."""
        printer.text(str(self))

    @property
    def rules(self) -> frozenset[str]:
        """The rules of the findings."""
        return frozenset(f.rule for f in self.findings)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The names of what makes a proof conditional."""
        return tuple(one.name for one in self.leanings if one.conditional)

    @property
    def said(self) -> str:
        """The verdict; of a conditional proof, what it leans on as well; and for which values of
        parameters, if more than one was asked for."""
        said = self.verdict if self.for_all is None else self.for_all.said
        given = ", ".join(self.conditions)
        return f"{said}, leaning on {given}" if given else said

    @property
    def is_whole(self) -> bool:
        """Whether the verdict is about all values of parameters that were asked for."""
        return self.for_all is None or self.for_all.proved

    @property
    def overall(self) -> Verdict:
        """The verdict on all values of parameters that were asked for: ``bounded`` if it is one on
        some of them only."""
        right = self.verdict in ("proved", "exhausted")
        return "bounded" if right and not self.is_whole else self.verdict


def not_run(kernel: str, reason: str) -> Report:
    """The report on a kernel of which nothing was run before its time was up."""
    return Report(kernel, "bounded", "no instruction; not a proof", reasons=(reason,))


def whole(report: Report) -> Report:
    """A report that is a part of something: nothing, if the user has interrupted its check.

    Raises:
        KeyboardInterrupt: that is so; the caller that asked for all of it shows what there is.
    """
    if INTERRUPTED in report.reasons:
        raise KeyboardInterrupt
    return report
