"""Memory that a kernel reaches by two addresses, an ordinary one and one of multimem (H20).

Accesses through both need a ``fence.proxy.alias`` between them (PTX 8.6), also where threads wait
for each other. Which ordinary address names memory that a multimem address reaches, a launch does
not say. So a proof of a kernel that does both, and writes by one of them, names the places.
"""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.leaning import Leaning


def aliases(mir: Mir) -> Leaning | None:
    """What a proof takes for granted of memory with two addresses; None if there is none."""
    several: list[int] = []
    ordinary: list[int] = []
    for number, effects in enumerate(mir.effects):
        accesses = [e for e in effects if isinstance(e, fx.Reads | fx.Writes)]
        if any(e.view.space != "shared" for e in accesses):
            op = mir.code[number].what
            multimem = isinstance(op, Op) and "multimem" in op.mnemonic
            (several if multimem else ordinary).append(number)
    written = any(isinstance(e, fx.Writes) for n in (*several, *ordinary) for e in mir.effects[n])
    if not several or not ordinary or not written:
        return None
    locs = mir.code[several[0]].loc, mir.code[ordinary[0]].loc
    text = (
        f"if memory that multimem accesses reach ({locs[0]}) is accessed by ordinary addresses "
        f"({locs[1]}) only with a fence.proxy.alias between"
    )
    return Leaning("aliases", text, locs, "assumption")
