"""The report on a kernel that was read, but has an instruction that is not modelled."""

from __future__ import annotations

from tilesim.checker import Report
from tilesim.ir.loc import Loc
from tilesim.ptx.lowering import Unsupported
from tilesim.sim.findings import Finding, Participant


def unsupported(name: str, error: Unsupported) -> Report:
    """The report on the kernel ``name``, with the line of the instruction."""
    place = Loc(error.file, error.line)
    who = Participant(f"kernel {name}", 0, None, "has this instruction", place)
    finding = Finding("unsupported", error.what, (who,), fix=error.fix)
    return Report(name, "unsupported", "nothing: the kernel was not run", (finding,))
