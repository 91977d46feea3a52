"""Instructions that lanes execute which have not met: part by part, or together."""

from __future__ import annotations

from collections.abc import Callable

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, constant
from tilesim.ir.op import Computation, Op
from tilesim.sim.expression import Evaluate
from tilesim.sim.machine.assembly import assemble
from tilesim.sim.machine.clock import join
from tilesim.sim.machine.errors import NotUniform
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.race_parts import is_weak_store

#: what lanes execute together, besides what says so; none of it orders their accesses
_TOGETHER = ("activemask",)


def by_parts(step: Step, op: Op, value: Callable[[Expr], Evaluate]) -> Step:
    """``step`` of an instruction for a warp of several parts; ``value``: what an operand says."""
    mask = _lanes_of(op, value)
    taken = _taken(step, op)
    if mask is None:
        return taken

    joins = any(isinstance(e, fx.JoinsBarrier | fx.JoinsCluster) for e in op.effects())

    def together(w: Warp) -> bool | None:
        # barriers count lanes that go apart for themselves
        if w.mask == FULL or (joins and w.machine.plan.places):
            return taken(w)
        try:
            lanes = mask(w)
        except NotUniform:
            return taken(w)
        return assemble(w, op, lanes, taken)

    return together


def _lanes_of(op: Op, value: Callable[[Expr], Evaluate]) -> Callable[[Warp], int] | None:
    """The lanes that an instruction waits for; None if each goes on by itself."""
    for effect in op.effects():
        match effect:
            case fx.Gathers(mask=Expr() as mask):
                known = constant(mask)
                if known is not None:
                    return lambda w: known & FULL
                named = value(mask)
                return lambda w: uniform(named(w), w) & FULL
            case fx.JoinsBarrier(aligned=True) | fx.JoinsCluster(aligned=True) | fx.Registers():
                return lambda w: FULL
            case fx.Gathers(mask=None) | fx.GathersWarps() | fx.UsesFragment(partly=False):
                return lambda w: FULL
            case _:
                pass
    return None


def _taken(step: Step, op: Op) -> Step:
    """What lanes do that execute an instruction, of several parts or one."""
    effects = op.effects()
    if op.mnemonic == "mov" or isinstance(op, Computation) or any(map(_sees_to_parts, effects)):
        return step
    if any(map(_is_together, effects)) or op.mnemonic.startswith(_TOGETHER):
        return _together(step)
    return _in_turn(step, stores=is_weak_store(op))


def _sees_to_parts(effect: fx.Effect) -> bool:
    """Whether the executor of an effect sees to the parts itself, or does not depend on them."""
    match effect:
        case fx.JoinsBarrier() | fx.JoinsCluster() | fx.Registers() | fx.Elects() | fx.Exits():
            return True
        case fx.Gathers(orders=orders):
            return orders
        case _:
            return False


def _is_together(effect: fx.Effect) -> bool:
    """Whether lanes that have not met execute an effect together all the same."""
    match effect:
        case fx.Gathers() | fx.GathersWarps() | fx.Shuffles():
            return True
        case fx.UsesFragment(partly=partly):
            return not partly
        case _:
            return False


def _in_turn(step: Step, *, stores: bool) -> Step:
    """Each part by itself: with its clock, publishing what it knows, learning what it learns.

    ``stores``: all it does is a weak store, which lanes that only predicates have divided make as
    one (H23).
    """

    def turns(w: Warp) -> bool | None:
        if w.spread is None:
            return step(w)
        # no move of the machine shows what is between the parts
        w.machine.outcome.explorable = False
        active, parts, left = w.mask, w.spread, w.left or w.mask
        if stores and not w.diverged:
            w.turns += 1
            w.turn = w.turns
        try:
            for part in parts:
                if part.mask & left:
                    w.mask, w.spread = part.mask & left, None
                    w.act_as(part)
                    w.machine.by_parts += 1
                    if step(w):
                        w.left = left
                        return True
                    left &= ~part.mask
        finally:
            w.mask, w.spread, w.turn = active, parts, 0
        w.left = 0
        w.regroup()
        return None

    return turns


def _together(step: Step) -> Step:
    """All parts at once: they come after what each of them knows, and learn the same."""

    def at_once(w: Warp) -> bool | None:
        if w.spread is None or w.parts is None:
            return step(w)
        w.clock = learned = w.parts.common(w.mask)
        w.turns += 1
        w.turn = w.turns
        try:
            return step(w)
        finally:
            for part in w.spread:
                join(part.clock, learned)
            w.turn = 0
            w.act_as(w.spread[0])

    return at_once
