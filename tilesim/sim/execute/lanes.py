"""Lanes of a warp that execute an instruction together, are elected, end (SEMANTICS E8 to E12)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, constant
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import Act, Give, Operands, executor
from tilesim.sim.expression import Evaluate, plain
from tilesim.sim.machine.errors import NotUniform
from tilesim.sim.machine.forks import lanes_exit
from tilesim.sim.machine.lanes import FULL, Lanes, mask_array, mask_bits
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import agreed, uniform
from tilesim.sim.machine.misuse import BarrierError

#: where all 32 lanes of a warp are asked for
_WHOLE = "E15, F1, G4, G13"


def require_converged(w: Warp, op: Op) -> None:
    """Aligned barriers need every live lane of the warp (E2, E8)."""
    if w.mask == w.live_mask or w.machine.plan.places:
        return
    raise BarrierError(
        "participation",
        f"{op.mnemonic} by {w.lanes} of the {w.live_mask.bit_count()} live lanes of {w}: an "
        "aligned barrier is executed by all of them (E2, E8)",
        "execute it outside the divergent region",
    )


def gather_all(w: Warp, op: Op, rule: str = _WHOLE) -> None:
    """All 32 lanes of a warp execute an instruction together (F1, G4, G13): ``.sync`` makes each of
    them wait for the others."""
    if w.mask != FULL:
        require_whole_warp(w, op, rule)
    if w.parts is not None:
        w.gather()


def require_whole_warp(w: Warp, op: Op, rule: str = _WHOLE) -> None:
    """What all 32 lanes of a warp execute together, none of which has ended (F1, G4, G13)."""
    if w.mask == FULL:
        return
    if w.exited_lanes & ~w.mask:
        gone = w.exited_lanes.bit_count()
        why = f"{gone} of its lanes have exited: it needs all 32"
    else:
        why = f"only {w.lanes} of its 32 lanes execute it"
    raise BarrierError(
        "participation",
        f"{op.mnemonic} by {w}: {why} ({rule})",
        "execute it with the whole warp, outside the divergent region",
    )


def gather(w: Warp, op: Op, mask: int, rule: str) -> None:
    """Raises unless the lanes of ``mask`` that live, and no others, execute the instruction."""
    if w.mask & ~mask:
        raise BarrierError(
            "participation",
            f"{op.mnemonic} with mask {mask:#x} by lanes {w.mask & ~mask:#x} of {w}, which are "
            f"outside of it ({rule})",
            "the mask must name every lane that executes the instruction",
        )
    missing = mask & w.live_mask & ~w.mask
    if missing:
        raise BarrierError(
            "participation",
            f"{op.mnemonic} with mask {mask:#x} waits for lanes {missing:#x} of {w}, which do "
            f"not execute it ({rule})",
            "name only the lanes that execute it, or move it out of the branch",
        )


@executor(fx.Gathers)
def _gathers(c: Operands, op: Op, effect: fx.Gathers) -> Act:
    rule, mask_of = effect.rule, _mask(c, effect.mask)
    named = FULL if effect.mask is None else constant(effect.mask)
    if effect.whole:
        return Act(lambda w: gather_all(w, op, rule))
    if not effect.orders:

        def wait(w: Warp) -> None:
            if w.mask != named:
                gather(w, op, mask_of(w), rule)
            if _whole_parts(w):
                w.gather()

        return Act(wait)

    def meet(w: Warp) -> None:
        if w.mask != named:
            gather(w, op, mask_of(w), rule)
        if w.fences and w.machine.plan.fencing and not w.fences_by_lane:
            w.machine.lean("H3", op)
        w.meet()

    return Act(meet)


def by_masks(step: Step, op: Op, value: Callable[[Expr], Evaluate]) -> Step:
    """``step`` of all active lanes, or of those that name the same lanes, each group for itself, as
    the tiles of a warp do (E11, E19 to E21); ``value``: what an operand says."""
    named = [e for e in op.effects() if isinstance(e, fx.Gathers) and e.mask is not None]
    if not named or named[0].mask is None or constant(named[0].mask) is not None:
        return step
    mask, orders = value(named[0].mask), named[0].orders

    def groups(w: Warp) -> None:
        try:
            step(w)
        except NotUniform:
            active = w.mask
            own = np.where(mask_array(active), plain(mask(w)) & FULL, -1)
            different = dict.fromkeys(own[own >= 0].tolist())
            elsewhere = w.live_mask & ~active
            if any(number & elsewhere for number in different):
                raise BarrierError(
                    "unsupported",
                    f"{op.mnemonic} of {w} by lanes that name different lanes, some of which are "
                    "elsewhere",
                    "let lanes come together before it, or name one mask there",
                ) from None
            try:
                for number in different:
                    w.mask = mask_bits(own == number)
                    if orders:
                        w.regroup()
                    step(w)
            finally:
                w.mask = active
            if orders:
                w.met = -1
                w.regroup()

    return groups


def _whole_parts(w: Warp) -> bool:
    """Whether the active lanes are parts of their warp, and not some of one: only then may others
    come after what all of a part have done, as these lanes do that have waited for each other."""
    own = None if w.part is None else [w.part]
    parts = own if w.spread is None else w.spread
    lanes = FULL if parts is None else sum(part.mask for part in parts)
    return w.mask == lanes & w.live_mask


@executor(fx.Agrees)
def _agrees(c: Operands, op: Op, effect: fx.Agrees) -> Act:
    value = c.expr(effect.value)

    def step(w: Warp) -> None:
        agreed(value(w), w)

    return Act(step)


@executor(fx.GathersWarps)
def _gathers_warps(c: Operands, op: Op, effect: fx.GathersWarps) -> Act:
    ops = (op,)

    def step(w: Warp) -> None:
        if w.mask != FULL or w.parts is not None:
            gather_all(w, op)
        w.warpgroup.together(w, ops)

    return Act(step)


def _mask(c: Operands, mask: Expr | None) -> Callable[[Warp], int]:
    """The lanes that a mask names."""
    if mask is None:
        return lambda w: w.live_mask
    known = constant(mask)
    if known is not None:
        return lambda w: known & FULL
    value = c.expr(mask)
    return lambda w: uniform(value(w), w) & FULL


@executor(fx.Elects)
def _elects(c: Operands, op: Op, effect: fx.Elects) -> Give:
    def elect(w: Warp) -> Lanes:
        # which lane is unspecified; an H200 takes the first, and code that relies on that shows
        # with the last
        first, last = w.mask & -w.mask, 1 << w.mask.bit_length() - 1
        options = w.machine.options
        return Lanes(last if options.ptx and not options.first_lane else first)

    return Give(effect, elect)


@executor(fx.Exits)
def _exits(c: Operands, op: Op, effect: fx.Exits) -> Act:
    def step(w: Warp) -> bool | None:
        left, w.mask = w.mask, 0
        if lanes_exit(w, left):
            return True
        if w.live_mask:
            return None
        w.machine.exit(w.origin)
        return True

    return Act(step, blocks=True)
