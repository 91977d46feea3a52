"""Instructions that lanes of a warp execute together (SEMANTICS E11, E12)."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import Act, Operands, executor
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.warp import Warp


def gather(w: Warp, op: Op, mask: int, rule: str) -> None:
    """Raises unless the lanes of ``mask`` that live, and no others, execute the instruction."""
    if w.mask & ~mask:
        raise BarrierError(
            "participation",
            f"{op.mnemonic} with mask {mask:#x} by lanes {w.mask & ~mask:#x} of {w}, which are "
            f"outside of it ({rule})",
            "the mask must name every lane that executes the instruction",
        )
    if missing := mask & w.live_mask & ~w.mask:
        raise BarrierError(
            "participation",
            f"{op.mnemonic} with mask {mask:#x} waits for lanes {missing:#x} of {w}, which do "
            f"not execute it ({rule})",
            "name only the lanes that execute it, or move it out of the branch",
        )


@executor(fx.Gathers)
def _gathers(c: Operands, op: Op, effect: fx.Gathers) -> Act:
    rule = effect.rule
    if effect.mask is None:
        return Act(lambda w: gather(w, op, w.live_mask, rule))
    mask = c.expr(effect.mask)
    return Act(lambda w: gather(w, op, uniform(mask(w), w) & 0xFFFFFFFF, rule))
