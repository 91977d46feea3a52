"""The wait-for chain in words: who waits for what, what it has, and who could still release it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from tilesim.analysis.executing_warps import executing
from tilesim.ir import effects as fx
from tilesim.ir.barrier_operands import may_name
from tilesim.ir.op import Op
from tilesim.ir.tmem import COLUMNS
from tilesim.sim.findings import NOTHING_STATED, Named, Stated
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.names import names_of
from tilesim.sim.machine.registers import RegisterPool
from tilesim.sim.machine.tmem import TmemPool
from tilesim.sim.machine.warpgroup import Warpgroup
from tilesim.sim.waiting import WaitFor, state_of
from tilesim.words import ranges


class Line(NamedTuple):
    """A line of the chain, and what it states."""

    text: str
    facts: Stated = NOTHING_STATED


def chain(blocked: Sequence[Warp], graph: WaitFor) -> Iterator[Line]:
    """Per role and place: what it waits for, the barrier's state, and who is missing.

    What several CTAs say in the same words is said once.
    """
    together: dict[tuple[object, ...], list[Warp]] = {}
    for warp in blocked:
        assert warp.blocked is not None
        role = _region(warp, warp.blocked.op)
        key = (role, warp.cta.number, warp.blocked.text, warp.blocked.loc)
        together.setdefault(key, []).append(warp)
    said: dict[tuple[str, ...], tuple[list[Warp], list[int]]] = {}
    for warps in together.values():
        cta = warps[0].cta.number
        own = tuple(line.text for line in _links(warps, graph, cta))
        said.setdefault(own, (warps, []))[1].append(cta)
    for warps, ctas in said.values():
        first, *rest = _links(warps, graph)
        also = f"; so in CTA {ranges(ctas[1:])}" if len(ctas) > 1 else ""
        yield Line(f"{first.text}{also}", first.facts)
        yield from rest


def cycle_note(cycle: Sequence[Agent]) -> Iterator[str]:
    """The cycle, if there is one."""
    if len(cycle) > 1:
        yield "cycle: " + " -> ".join(w.at(_waits_at(w)) for w in [*cycle, cycle[0]])


def _waits_at(warp: Agent) -> Op | None:
    return warp.blocked.op if warp.blocked else None


def _region(warp: Agent, op: Op | None) -> str:
    """The role of what a warp executes, the same for all warps outside of roles."""
    role = warp.machine.role_at(warp, op)
    return "" if role == f"warp {warp.number}" else role


def _links(warps: Sequence[Warp], graph: WaitFor, cta: int | None = None) -> Iterator[Line]:
    """What some warps say that wait at one place, in a text that speaks of one ``cta``."""
    first = warps[0]
    assert first.blocked is not None
    where = f"{names_of(warps, first.blocked.op, cta)} {state_of(first, cta)}"
    on = first.blocked.on
    yield Line(where, Stated(_named(on), (first.blocked.loc,)))
    if isinstance(on, (Mbarrier, NamedBarrier, Warpgroup)):
        yield from _state(on, cta)
        yield from _made(first, on, cta)
        yield from _arrived(on, cta)
    if isinstance(on, RegisterPool):
        yield Line(f"  the register pool holds {on.free} registers")
    if isinstance(on, TmemPool):
        yield Line(f"  {on.free} of {COLUMNS} columns of its SM are free")
    yield from _missing(first, on, graph, cta)


def _named(on: object) -> tuple[Named, ...]:
    return (on.named,) if isinstance(on, Mbarrier | NamedBarrier | Warpgroup) else ()


def _state(on: Mbarrier | NamedBarrier | Warpgroup, cta: int | None) -> Iterator[Line]:
    """How far a barrier is."""
    if isinstance(on, Mbarrier):
        yield Line(f"  {on.state(cta)}", on.facts)
    else:
        yield Line(f"  {on.state(cta)}")


def _made(warp: Warp, on: Mbarrier | NamedBarrier | Warpgroup, cta: int | None) -> Iterator[Line]:
    """Where an mbarrier of PTX was initialised, which has no name but an address."""
    if not isinstance(on, Mbarrier) or on.init is None or on.init.op.loc.behind is None:
        return
    loc = on.init.op.loc
    others = [b for b in warp.cta.mbarriers.values() if b.init and b.init.op.loc == loc]
    number = sum(b.address < on.address for b in others)
    which = f"number {number} of {len(others)}, counted from 0, " if len(others) > 1 else ""
    yield Line(f"  {on.named.seen_from(cta)} is {which}initialised at {loc}", Stated(lines=(loc,)))


def _arrived(on: Mbarrier | NamedBarrier | Warpgroup, cta: int | None) -> Iterator[Line]:
    """Who has contributed to the open phase or round."""
    match on:
        case NamedBarrier():
            together: dict[tuple[str, str], tuple[list[Agent], Op]] = {}
            for join in on.current.joins:
                key = (_region(join.warp, join.op), str(join.op.loc))
                together.setdefault(key, ([], join.op))[0].append(join.warp)
            for warps, op in together.values():
                text = f"  joined by {names_of(warps, op, cta)} at {op.loc}"
                yield Line(text, Stated(lines=(op.loc,)))
        case Mbarrier():
            yield from (Line(f"  {line}") for line in on.contributions(cta))
        case _:
            pass


def _missing(warp: Agent, on: object, graph: WaitFor, cta: int | None) -> Iterator[Line]:
    """Who could still release ``warp``, and where they are; if nobody, why not."""
    together: dict[tuple[object, ...], tuple[list[Agent], Op]] = {}
    for other, op in graph.suppliers(warp):
        key = (_region(other, op), op.loc, state_of(other, other.cta.number))
        together.setdefault(key, ([], op))[0].append(other)
    for warps, op in together.values():
        where = f"  {names_of(warps, op, cta)} could release it at {op.loc}"
        waits = warps[0].blocked
        lines = (op.loc,) if waits is None else (op.loc, waits.loc)
        text = f"{where}; it {state_of(warps[0], cta)}"
        yield Line(text, Stated(() if waits is None else _named(waits.on), lines))
    if isinstance(on, Mbarrier) and not together:
        yield Line("  no warp that is still alive executes an instruction that arrives on it")
        yield from _why_not(warp, on, graph, cta)


def _why_not(warp: Agent, on: Mbarrier, graph: WaitFor, cta: int | None) -> Iterator[Line]:
    """Of the warps whose code can arrive on this barrier: why they do not any more."""
    together: dict[tuple[str, ...], tuple[list[Agent], Op, _Reason]] = {}
    for other in graph.near(warp):
        for op in _arriving(other, on):
            reason = _reason(other, op, on, graph)
            key = (_region(other, op), str(op.loc), reason.text(other.cta.number))
            together.setdefault(key, ([], op, reason))[0].append(other)
    for warps, op, reason in together.values():
        text = f"  {names_of(warps, op, cta)} would arrive at {op.loc}, but {reason.text(cta)}"
        yield Line(text, Stated(reason.named, (op.loc,)))


def _arriving(warp: Agent, on: Mbarrier) -> Iterator[Op]:
    """Instructions of a warp that can arrive on a barrier, or another one of its array."""
    plan = warp.machine.plan
    for number, warps in enumerate(executing(plan.mir)):
        what = plan.mir.code[number].what
        if isinstance(what, Op) and warp.number in warps:
            for effect in plan.mir.effects[number]:
                match effect:
                    case fx.Arrives(mbar=mbar, multicast=mask):
                        far = mask is None and warp.cta.index != on.cta.index
                        if may_name(plan.mir, mbar, on.address, far=far):
                            yield what
                    case _:
                        pass


class _Reason(NamedTuple):
    """Why an instruction does not count for a phase: ``named`` stand between the two clauses."""

    clause: str
    named: tuple[Named, ...] = ()
    rest: str = ""

    def text(self, cta: int | None) -> str:
        """The reason in a text that speaks of one ``cta``, or of none."""
        labels = ", ".join(n.seen_from(cta) for n in self.named)
        return f"{self.clause}{labels}{self.rest}"


def _reason(other: Agent, op: Op, on: Mbarrier, graph: WaitFor) -> _Reason:
    """Why an instruction of ``other`` does not count for the phase that is waited for."""
    counted = [
        phase
        for phase, record in ((on.phase, on.current), (on.phase - 1, on.previous),
                              (on.phase - 2, on.older))
        if any(c.warp is other and c.op.number == op.number for c in record.credits)
    ]  # fmt: skip
    used = f"; its last arrival counted for phase {counted[0]}" if counted else ""
    if other.exited:
        return _Reason(f"has exited{used}")
    elsewhere = {
        target
        for coming in graph.prospects.of(other) if coming.op.number == op.number
        for target in coming.on if isinstance(target, Mbarrier)
    }  # fmt: skip
    now = [c for c in on.current.credits if c.warp is other and c.op.number == op.number]
    if any(c.arrivals < 0 for c in now):
        return _Reason("makes this phase expect what it arrives with, without .noinc")
    if now:
        return _Reason("has arrived in this phase")
    if elsewhere:
        named = tuple(sorted((b.named for b in elsewhere), key=attrgetter("label")))
        return _Reason("from where it stands that names ", named, f" only{used}")
    if used:
        return _Reason(f"does not come to it any more{used}")
    return _Reason("does not come to it from where it stands")
