"""Reports on kernels of PTX, and what became of kernels that could not be checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesim.checker import Report
from tilesim.errors import InvalidProgram, TilesimError
from tilesim.ir.loc import Loc
from tilesim.loader import Target
from tilesim.ptx.launch import Launch, Map, Scalar
from tilesim.ptx.lowering import Unsupported
from tilesim.ptx.names import short
from tilesim.repair import Mendable
from tilesim.report.result import Checked, Failure, Rejected, Result
from tilesim.sim.findings import Finding, Participant


def refused(target: Target, error: TilesimError) -> Result:
    """The result for ``target``, whose program could not be made, or not run, for ``error``."""
    match error:
        case InvalidProgram(diagnostics=diagnostics):
            arch = target.kernel.target if target.kernel is not None else None
            repairs = error.repairs if isinstance(error, Mendable) else None
            return Rejected(target.id, arch, diagnostics, repairs)
        case Unsupported() if target.ptx is not None:
            return Checked(
                target.id, target.ptx.target, unsupported(target.ptx.launch.entry, error)
            )
        case _:
            return Failure(target.id, str(error), places=error.places)


def covering(report: Report, launch: Launch) -> Report:
    """The report, which says what the launch is: the numbers that it passes, but for those of which
    the report has others, and what the launch says of itself."""
    named = [f"{n} = {v}" for n, v in _passed(launch) if f"{n} = " not in report.covers]
    said = (report.covers, f"launched with {', '.join(named)}" if named else "", launch.about)
    return replace(report, covers="; ".join(filter(None, said)))


def _passed(launch: Launch) -> Iterator[tuple[str, int | float]]:
    """The numbers that a launch passes: all but shapes and strides that go with a tensor map, which
    Triton passes as ``x.1``, ``x.2``, ..."""
    maps = {p.name for p in launch.params if isinstance(p, Map) and p.name}
    for number, p in enumerate(launch.params):
        if isinstance(p, Scalar) and p.value is not None and p.name.partition(".")[0] not in maps:
            yield p.name or f"param_{number}", p.value


def unsupported(name: str, error: Unsupported) -> Report:
    """The report on the kernel ``name``, with the line of the instruction that is not modelled."""
    place = Loc(error.file, error.line)
    who = Participant(f"kernel {short(name)}", 0, None, "has this instruction", place)
    finding = Finding("unsupported", error.what, (who,), fix=error.fix)
    return Report(name, "unsupported", "nothing: the kernel was not run", (finding,))
