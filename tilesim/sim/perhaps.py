"""Accesses to memory of which nobody knows whether they are made, or where: data decides it.

They are made, for the sake of what they may race with, and nobody knows what they leave. What such
an access does wrong is no finding, as it may not happen: then the value that decides has to be
known (docs/soundness.md, "Accesses that data decides").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.uses_defs import computed, operand_expressions
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.memory import View
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.op import Op
from tilesim.ir.scalars import word_access
from tilesim.sim.machine.core import Stop
from tilesim.sim.machine.errors import Fault, OutOfBounds
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.unknown import Unknown, UnknownSteers


def somebody_looks(mir: Mir) -> bool:
    """Whether a strong load, or a result of an atomic, says what threads leave in memory for each
    other: where nobody looks, reductions order nothing."""
    words = filter(None, map(word_access, mir.effects))
    return any(word.result is not None and word.sem != "weak" for word in words)


def accessing(effects: tuple[fx.Effect, ...]) -> frozenset[str] | None:
    """The registers that an instruction sets which accesses memory, each lane for itself and
    weakly, or in one relaxed step that reads and writes, and does nothing else; None if it does."""
    word = word_access(effects)
    if word is not None and word.combine is not None:
        if word.sem not in ("weak", "relaxed") or not _own(word.view):
            return None
        return frozenset() if word.result is None else frozenset({word.result.name})
    found: set[str] = set()
    for effect in effects:
        match effect:
            case fx.Defines(chance=""):
                found.add(effect.var.name)
            case fx.Reads() | fx.Writes() if _plain(effect):
                pass
            case _:
                return None
    return None if len(found) == len(effects) else frozenset(found)


def _plain(effect: fx.Reads | fx.Writes) -> bool:
    by_lanes = effect.lanes and effect.proxy == "generic" and not effect.asynchronous
    weak = effect.sem == "weak" and not effect.elsewhere
    combines = isinstance(effect, fx.Writes) and effect.combine is not None
    return bool(by_lanes and weak and not combines and _own(effect.view))


def _own(view: View) -> bool:
    """Whether a view is into no other CTA's shared memory, as far as the text says."""
    space = view.tensor.space if isinstance(view.tensor, AddressedTensor) else ""
    return view.cta is None and space != "shared::cluster"


@dataclass(frozen=True)
class _Arm:
    """One way from a branch to where its lanes meet: registers that it sets, and that it needs from
    before."""

    sets: frozenset[str]
    needs: frozenset[str]


def arms(graph: FlowGraph, number: int, target: int, meet: int) -> frozenset[str] | None:
    """The registers that lanes which a branch splits may set before they meet; None if its arms are
    not straight, do anything but compute and access memory, or see what the other one sets."""
    if meet == len(graph.mir.code):
        return None
    first, second = (_arm(graph, start, meet) for start in (number + 1, target))
    if first is None or second is None or first.sets & second.needs:
        return None
    return first.sets | second.sets


def _arm(graph: FlowGraph, start: int, meet: int) -> _Arm | None:
    sets: set[str] = set()
    known: set[str] = set()
    needs: set[str] = set()
    number, passed = start, set[int]()
    while number != meet:
        if number in passed or number >= len(graph.mir.code):
            return None
        passed.add(number)
        instruction = graph.mir.code[number]
        number += 1
        match instruction.what:
            case Op() as op:
                effects = graph.mir.effects[op.number]
                more = computed(effects)
                more = accessing(effects) if more is None else more
                if more is None:
                    return None
                guard = () if instruction.guard is None else (instruction.guard,)
                needs |= _names((*operand_expressions(op), *guard)) - known
                sets |= more
                known |= more if instruction.guard is None else set()
            case Branch(cond=None, target=on):
                number = on
            case _:
                return None  # at a join, others may wait
    return _Arm(frozenset(sets), frozenset(needs))


def _names(expressions: tuple[Expr, ...]) -> set[str]:
    return {part.name for e in expressions for part in walk(e) if isinstance(part, Var)}


def may_be_made(w: Warp, value: Unknown, act: Callable[[], object]) -> None:
    """``act``, of which ``value`` says whether it is done.

    Raises:
        UnknownSteers: that has to be known.
    """
    before, w.perhaps = w.perhaps, value
    released, parts = len(w.machine.released), 0 if w.parts is None else len(w.parts.leaves)
    findings = w.machine.outcome.findings
    found = len(findings)
    try:
        act()
    except (Fault, Stop) as fault:
        steers = UnknownSteers(value, next(iter(findings[found:]), None))
        del findings[found:]
        raise steers from fault
    finally:
        w.perhaps = before
    if len(findings) != found:
        finding = findings[found]
        del findings[found:]
        raise UnknownSteers(value, finding)
    if w.machine.plan.somebody_looks and len(w.machine.released) != released:
        raise UnknownSteers(value)  # it would end what others learn from there
    if w.parts is not None and len(w.parts.leaves) != parts:
        raise UnknownSteers(value)  # its lanes would know less of each other
    forget_written(w, value)


def forget_written(w: Warp, value: Unknown) -> None:
    """Nobody knows whether what has been stored is there."""
    for footprint, forget in w.perhaps_written:
        forget(value)
        if w.ways is not None:
            w.ways.stored.add(footprint)
    w.perhaps_written.clear()


def may_be_made_inside(w: Warp, value: Unknown, step: Step) -> None:
    """The same of one instruction: lanes that would leave their buffer do not execute it, which
    ``value`` is taken to see to (`covers` says so)."""
    active = w.mask

    def act() -> None:
        try:
            step(w)
        except OutOfBounds as fault:
            if not fault.lanes:
                raise
            w.machine.outcome.in_bounds[value.source] = None
            w.mask &= ~fault.lanes
            if w.mask:
                step(w)

    try:
        may_be_made(w, value, act)
    finally:
        w.mask = active


def both_ways(w: Warp, value: Unknown, starts: tuple[int, int], meet: int) -> None:
    """All lanes go both ways of a branch, one after the other, up to where they meet."""

    def go() -> None:
        code = w.machine.code
        for start in starts:
            w.pc = start
            while w.pc != meet:
                step: Step = code[w.pc][0]
                w.pc += 1
                step(w)
            forget_written(w, value)  # lanes that go the other way have not stored it

    may_be_made(w, value, go)
