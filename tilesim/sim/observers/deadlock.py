"""What is wrong when nothing can move any more.

The wait-for chain is put in words: what each warp waits for, what has come, and which warps could
still release it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from tilesim.analysis.barrier_operands import may_name
from tilesim.analysis.executing_warps import executing
from tilesim.findings.finding import (
    NOTHING_STATED,
    Deed,
    Kind,
    Named,
    Participant,
    Rule,
    Stated,
    together,
)
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.tensor_memory import COLUMNS
from tilesim.records import replace
from tilesim.sim.machine.divergence import Arrival
from tilesim.sim.machine.interface import Stop
from tilesim.sim.machine.machine import COMES_BACK, Machine, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.register_pool import PARTITIONS, RegisterPool, partition_of
from tilesim.sim.machine.tensor_memory import Tmem, TmemPool
from tilesim.sim.machine.warp import Agent, Barrier, Frame, names_of
from tilesim.sim.machine.warpgroup import Warpgroup
from tilesim.sim.observers.iteration import iterations_now
from tilesim.sim.observers.wait_for import WaitFor, state_of
from tilesim.wording import ranges


class Line(NamedTuple):
    """A line of the chain, and what it states."""

    text: str
    facts: Stated = NOTHING_STATED


def chain(blocked: Sequence[Warp], graph: WaitFor) -> Iterator[Line]:
    """Per role and place: what it waits for, the barrier's state, and which warps are missing.

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
        around = [w.at(w.blocked.op if w.blocked else None) for w in (*cycle, cycle[0])]
        yield f"cycle: {' -> '.join(around)}"


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
    if isinstance(on, Barrier):
        facts = on.facts if isinstance(on, Mbarrier) else NOTHING_STATED
        yield Line(f"  {on.state(cta)}", facts)
        yield from _made(first, on, cta)
        yield from _arrived(on, cta)
    if isinstance(on, RegisterPool):
        of = f"warps whose number modulo {PARTITIONS} is {partition_of(first)}"
        yield Line(f"  the register pool holds {on.free(first)} registers for {of}")
    if isinstance(on, TmemPool):
        yield Line(f"  {on.free} of {COLUMNS} columns of its SM are free")
    yield from _missing(first, on, graph, cta)


def _named(on: object) -> tuple[Named, ...]:
    return (on.named,) if isinstance(on, Barrier) else ()


def _made(warp: Warp, on: Barrier, cta: int | None) -> Iterator[Line]:
    """Where an mbarrier of PTX was initialised, and where in memory it is."""
    if not isinstance(on, Mbarrier) or on.init is None or on.init.op.loc.behind is None:
        return
    loc = on.init.op.loc
    others = [b for b in warp.cta.mbarriers.values() if b.init and b.init.op.loc == loc]
    number = sum(b.address < on.address for b in others)
    where = f"at {on.bytes_label}, " if on.bytes_label else ""
    if len(others) > 1 and not on.is_named_by_source:
        where += f"number {number} of {len(others)}, counted from 0, "
    yield Line(f"  {on.named.seen_from(cta)} is {where}initialised at {loc}", Stated(lines=(loc,)))


def _arrived(on: Barrier, cta: int | None) -> Iterator[Line]:
    """The warps that have contributed to the open phase or round."""
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
    """Which warps could still release ``warp``, and where they are; if none, why not."""
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
        yield Line("  no live warp can still arrive on it")
        yield from _why_not(warp, on, graph, cta)


def _why_not(warp: Agent, on: Mbarrier, graph: WaitFor, cta: int | None) -> Iterator[Line]:
    """Of the warps whose code can arrive on this barrier: why they do not any more."""
    together: dict[tuple[str, ...], tuple[list[Agent], Op, _Reason]] = {}
    for other in graph.agents_of_cluster(warp):
        for op in _arriving(other, on):
            reason = _reason(other, op, on, graph)
            key = (_region(other, op), str(op.loc), reason.text(other.cta.number))
            together.setdefault(key, ([], op, reason))[0].append(other)
    for warps, op, reason in together.values():
        text = f"  {names_of(warps, op, cta)} cannot release it at {op.loc}: {reason.text(cta)}"
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
        return _Reason(f"it has exited{used}")
    elsewhere = {
        target
        for coming in graph.coming(other) if coming.op.number == op.number
        for target in coming.on if isinstance(target, Mbarrier)
    }  # fmt: skip
    now = [c for c in on.current.credits if c.warp is other and c.op.number == op.number]
    if any(c.arrivals < 0 for c in now):
        return _Reason("without .noinc, its arrival adds to the count that this phase expects")
    if now:
        return _Reason("it has arrived in this phase")
    if elsewhere:
        named = tuple(sorted((b.named for b in elsewhere), key=attrgetter("label")))
        return _Reason("from where it stands, that instruction names only ", named, used)
    if used:
        return _Reason(f"it does not execute that instruction again{used}")
    return _Reason("no path leads from where it stands to that instruction")


# ------------------------------------------------------------------ what is wrong


def report_deadlock(machine: Machine) -> None:
    """Adds the finding for a state in which live warps are blocked for ever."""
    agents = [w for w in (*machine.warps, *machine.split_groups) if not w.exited]
    # what waits for its other lanes waits for what these wait for
    agents = [w for w in agents if not isinstance(w.blocked and w.blocked.on, Frame | Arrival)]
    blocked = [w for w in agents if w.blocked is not None]
    if not blocked:
        return
    try:
        _report(machine, blocked, WaitFor(machine))
    except Stop:
        return


def _report(machine: Machine, blocked: Sequence[Warp], graph: WaitFor) -> None:
    waiters = []
    for warp in blocked:
        assert warp.blocked is not None
        where = warp.blocked.op or warp.blocked.loc
        deed = Deed("waits", warp.blocked.named, warp.blocked.parity)
        side = machine.participant(warp, warp.blocked.text, where, deed)
        at = -1 if side.instruction is None else side.instruction
        waiters.append(replace(side, iterations=iterations_now(warp, at)))
    cycle = graph.cycle(blocked)
    roots = [w for w in blocked if not graph.suppliers(w)]
    first = next(iter(cycle or roots or blocked))
    waiters.sort(key=lambda p: p.warp != first.number or p.cta != first.cta.number)
    links = [*chain(blocked, graph)]
    notes = [*(link.text for link in links), *cycle_note(cycle)]
    rule: Rule = "deadlock"
    message, advice = _headline(machine, blocked, cycle), _advice(blocked, graph)
    fix = advice.text
    far = next(iter(machine.outcome.elsewhere), None)
    if far is not None and any(w.blocked and w.blocked.polling for w in blocked):
        rule, message = "unsupported", f"{message} unless {far} changes, which is not simulated"
        fix = "check what one device does without waiting for the others"
    pools = [w for w in blocked if isinstance(w.blocked and w.blocked.on, RegisterPool)]
    split = next((w for w in blocked if _warpgroup_incomplete(w)), None)
    if split is not None and split.blocked is not None:
        rule = "participation"
        notes.append(f"{split.blocked.on}")
        message = f"{split} waits for a wgmma that not all warps of its warpgroup execute (F1)"
        fix = "execute wgmma in all four warps of the warpgroup"
    starved = next(filter(None, map(_over_allocated, blocked)), None)
    if starved is not None:
        rule, message = "tmem-lifetime", starved
        fix = "free columns before allocating more, or allocate at most 512 of them in all"
    if pools and (len(pools) == len(blocked) or any(not graph.suppliers(w) for w in pools)):
        rule = "register-pool"
        fix = (
            "let the registers of all warps after setmaxnreg fit those at launch (E17); execute "
            "each setmaxnreg.dec before any wait for a warp that needs these registers (E18)"
        )
    if rule != "deadlock":
        advice = _Advice(fix)
    machine.report(
        rule, message, _merged(machine, waiters), tuple(notes), fix, kind=advice.kind,
        facts=Stated(advice.about), noted=together(link.facts for link in links),
    )  # fmt: skip


def _over_allocated(warp: Warp) -> str | None:
    """Why a tcgen05.alloc can never succeed: its own CTA holds what it waits for (G6)."""
    blocked, tmem = warp.blocked, warp.cta.tmem
    if blocked is None or blocked.op is None or tmem is None or blocked.on is not tmem.pool:
        return None
    columns = sum(e.columns for e in blocked.op.effects() if isinstance(e, fx.AllocatesTmem))
    held = sum(a.columns for a in tmem.live)
    if held + columns <= COLUMNS:
        return None
    return (
        f"tcgen05.alloc of {columns} columns by {warp} can never be satisfied: {held} of "
        f"{COLUMNS} columns are allocated; all warps that free them are blocked (G6)"
    )


def _warpgroup_incomplete(warp: Agent) -> bool:
    """Waits for a wgmma that a warp of its warpgroup, which has ended, never issued."""
    on = warp.blocked.on if warp.blocked else None
    return isinstance(on, Warpgroup) and any(w.exited for w in on.missing(warp, 0))


def _merged(machine: Machine, participants: list[Participant]) -> tuple[Participant, ...]:
    """Warps of one role that wait at one place in the same way are one participant."""
    seen: dict[tuple[object, ...], Participant] = {}
    for p in participants:
        seen.setdefault((machine.known_as(p), p.cta, p.action, p.loc), p)
    return tuple(seen.values())


def _headline(machine: Machine, blocked: Sequence[Agent], cycle: Sequence[Agent]) -> str:
    # lanes that go on alone are agents of their own
    live = len({(w.cta.number, w.number) for w in machine.warps if not w.exited})
    waiting = len({(w.cta.number, w.number) for w in blocked})
    live = max(live, waiting)
    subject = f"{waiting} of {live} live warps" if live != waiting else f"all {live} live warps"
    if live == 1:
        subject = "the only live warp"
    if len(cycle) > 1:
        return f"{subject} wait for each other"
    return f"{subject} can never proceed"


class _Advice(NamedTuple):
    """What to change about a deadlock; ``about``: the named barrier whose round is not full."""

    text: str
    kind: Kind | None = None
    about: tuple[Named, ...] = ()


def _advice(blocked: Sequence[Warp], graph: WaitFor) -> _Advice:
    for warp in blocked:
        on = warp.blocked.on if warp.blocked else None
        if isinstance(on, Mbarrier) and on.pending == 0 and on.tx:
            return _Advice(
                f"make the bytes expected on {on.label} equal to the bytes its copies complete "
                "(the full box, also when part of it is out of bounds)"
            )
    for warp in blocked:
        on = warp.blocked.on if warp.blocked else None
        if isinstance(on, TmemPool):
            return _Advice(
                "allocate so few columns that all CTAs that fit on an SM have room, or free them "
                "before waiting for another CTA"
            )
        if isinstance(on, Tmem):
            return _Advice(
                "execute the collective alloc and dealloc in one warp of both CTAs of the pair"
            )
        if isinstance(on, NamedBarrier):
            advice = _named_advice(warp, on, graph)
            if advice is not None:
                return advice
        if isinstance(on, Mbarrier) and not graph.suppliers(warp):
            if on.phase:
                return _Advice(
                    f"{on.label} lacks an arrival for phase {on.phase}: add one, or do not wait "
                    "for that phase"
                )
            return _Advice(f"add an arrival on {on.label}, or lower its init count")
    return _Advice(_loops(blocked))


def _loops(blocked: Sequence[Warp]) -> str:
    """What to do where nothing but loops and mbarriers of the wrong phase are waited for."""
    polls = [w for w in blocked if w.blocked and w.blocked.polling and w.blocked.on is None]
    if any(w.blocked and w.blocked.clause == COMES_BACK for w in polls):
        return f"let the loop of {polls[0]} end: an iteration leaves its values as they were"
    if polls and not any(isinstance(w.blocked and w.blocked.on, Mbarrier) for w in blocked):
        looks = _looks(polls[0])
        if looks and all(isinstance(one, fx.Waits) for one in looks):
            return f"let the answer of its waits decide whether the loop of {polls[0]} ends"
        if not looks:
            return (
                f"load what {polls[0]} waits for in each iteration (volatile, atomic or acquire): "
                f"compilers load a plain variable once"
            )
        return f"store the value with which {polls[0]} leaves its loop, or add up to it"
    return (
        "compare each waiter's parity with the phase of its barrier (a producer starts with "
        "parity 1, a consumer with 0); compare the init counts with the arrivals of one phase"
    )


def _looks(warp: Agent) -> list[fx.Reads | fx.Waits]:
    """What a loop, at the head of which a warp is, reads that others may change."""
    graph = warp.machine.plan.graph
    head = graph.block_of[warp.pc]
    blocks = {block for loop in graph.loops if loop.head == head for block in loop.blocks}
    effects = (e for b in blocks for n in graph.blocks[b] for e in graph.mir.effects[n])
    return [e for e in effects if isinstance(e, fx.Reads | fx.Waits)]


def _named_advice(warp: Warp, on: NamedBarrier, graph: WaitFor) -> _Advice | None:
    """What to do about a round that never completes; None if the missing warp is the victim of some
    other wait, which is what has to change."""
    threads, name = on.current.threads, _called(warp, on)
    about = (on.named,) if name == on.label else ()
    joined = {j.warp for j in on.current.joins}
    if threads is None:
        missing = [w for w in on.scope if not w.exited and w not in joined]
    else:
        missing = [w for w, op in graph.suppliers(warp)]
    late = [w for w in missing if w.blocked and not isinstance(w.blocked.on, NamedBarrier)]
    for other in late:
        for owner, op in graph.suppliers(other):
            if owner in joined:
                return _Advice(
                    f"{owner} waits at {name} for {other}, which waits for {op.loc}; {owner} "
                    f"executes that only after the barrier: execute it before, or let {other} "
                    f"wait after the barrier",
                    "deadlock/joins-too-early",
                    about,
                )
    if late:
        return None
    if threads is None:
        text = f"let {_listed(missing)} reach {name} too: it counts all warps that have not ended"
    else:
        joins = 32 * len(on.current.joins)
        text = (
            f"{name} counts {threads} threads and {joins} have joined this round: let every warp "
            "that it counts join the same round, exactly once"
        )
    return _Advice(text, "deadlock/round-not-full", about)


def _called(warp: Warp, on: NamedBarrier) -> str:
    """The barrier as a kernel writes it."""
    if on is warp.cta.cluster.barrier:
        return "cluster.sync (barrier.cluster)"
    if on is warp.cta.named.get(0) and on.current.threads is None:
        return "sync_threads (bar.sync 0)"
    return on.label


def _listed(warps: Sequence[Agent]) -> str:
    """``producer (warp 4) and consumer (warps 0-3)``."""
    together: dict[tuple[str, int], list[Agent]] = {}
    for warp in warps:
        together.setdefault((warp.role, warp.cta.number), []).append(warp)
    return " and ".join(names_of(group) for group in together.values())
