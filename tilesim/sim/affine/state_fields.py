"""What of the state of a machine may differ between repetitions, and what need not be looked at.

A field that is not named here is written as it is: see `tilesim.sim.affine.snapshot`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilesim.findings.finding import Finding, Named
from tilesim.ir import effects as fx
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir
from tilesim.sim.affine.cluster_classes import Follower
from tilesim.sim.affine.snapshot import (
    Fields,
    FieldWriter,
    Glance,
    NotPlain,
    Objects,
    Snapshot,
    Writer,
)
from tilesim.sim.machine.async_groups import (
    DRAINED,
    Groups,
    Issuer,
    LaneGroups,
    Promise,
    Stream,
    _Threads,
)
from tilesim.sim.machine.cta import Cta
from tilesim.sim.machine.events import InFlight
from tilesim.sim.machine.execute.copies import _Selected
from tilesim.sim.machine.execute.mbarrier import Landing
from tilesim.sim.machine.execute.tensor_memory import Completed
from tilesim.sim.machine.footprint import Access, Footprint, FootprintTable
from tilesim.sim.machine.interface import Options
from tilesim.sim.machine.lanes import Lanes
from tilesim.sim.machine.machine import Code, Machine, Warp
from tilesim.sim.machine.mbarrier import Mbarrier, Published
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.named_barrier import Generation, Join, NamedBarrier
from tilesim.sim.machine.release import Fences
from tilesim.sim.machine.schedule import TimedEnvironment
from tilesim.sim.machine.tensor_memory import TmemAccess
from tilesim.sim.machine.unknown import plain
from tilesim.sim.machine.warp import Agent, Lap, Part, Parting, Parts
from tilesim.sim.machine.warpgroup import Round, Warpgroup
from tilesim.sim.machine.word_order import Look, Observations, Word
from tilesim.sim.observers.lane_races import LaneExchange
from tilesim.sim.observers.phase_conditions import Credit, Wait
from tilesim.sim.observers.races import RaceDetector
from tilesim.sim.observers.tmem_order import TmemOrder


def left_out(out: Writer, owner: Any, value: Any) -> None:
    """Follows from the rest, or decides nothing."""


def clock(out: Writer, owner: Any, value: Any) -> None:
    out.clock(value)


def clocks(out: Writer, owner: Any, value: dict[Any, Any]) -> None:
    """Clocks by key."""
    out.token(len(value))
    for key, clock in value.items():
        out.write(key)
        out.clock(clock)


def time(out: Writer, owner: Any, value: float) -> None:
    out.time(value)


def at_component(out: Writer, owner: Any, value: int) -> None:
    """A position of the owner's ``component``."""
    out.position(owner.component, value)


def positions(out: Writer, owner: Any, value: dict[int, int]) -> None:
    """Positions by component."""
    out.token(tuple(value))
    for component, tick in value.items():
        out.position(component, tick)


# ------------------------------------------------ groups of asynchronous operations, and warpgroups


def _open_groups(out: Writer, group: Groups, committed: list[int]) -> None:
    """The committed groups, the last of them: of more than any wait lets remain it does not matter
    how many there are."""
    last = committed[-out.most_pending - 1 :]
    out.token(len(last))
    for number in last:
        out.position(group.component, number)


def _runs(out: Writer, group: LaneGroups | Promise, value: Sequence[tuple[int, int]]) -> None:
    out.token(tuple([mask for mask, _ in value]))
    for _, number in value:
        out.position(group.component, number)


def _threads(out: Writer, group: LaneGroups, value: list[_Threads]) -> None:
    out.token(len(value))
    for threads in value:
        out.token(threads.mask)
        _open_groups(out, group, threads.committed)
        for number in (threads.done, threads.tracked):
            out.position(group.component, number)


def _streams(out: Writer, group: LaneGroups, value: dict[int, Stream]) -> None:
    out.token(tuple(value))
    for stream in value.values():
        for first, before in zip(stream.firsts, stream.before, strict=True):
            out.position(group.component, first)
            out.position(stream.component, before)
        out.position(stream.component, stream.issued)
        out.position(stream.component, stream.done)


def _promised(out: Writer, group: LaneGroups, value: dict[int, tuple[int, Promise]]) -> None:
    for barrier, (phase, promise) in value.items():
        out.token(barrier)
        out.position(barrier, phase)
        out.fields(promise)


GROUPS: dict[str, FieldWriter] = {
    "opened": at_component, "done": at_component, "committed": _open_groups, "finish": time,
}  # fmt: skip
LANE_GROUPS: dict[str, FieldWriter] = {
    "tracked": at_component, "runs": _runs, "threads": _threads, "promised": _promised,
    "streams": _streams,
}  # fmt: skip
PROMISE: dict[str, FieldWriter] = {
    "done": at_component, "runs": _runs, "covers": _runs, "own": _runs,
}  # fmt: skip


def _rounds(out: Writer, warpgroup: Warpgroup, value: dict[int, Round]) -> None:
    for number, round_ in value.items():
        out.number(("commits", id(warpgroup)), number)
        out.write((round_.commits, round_.waits))
        out.clock(round_.clock)


def _commits(out: Writer, warpgroup: Warpgroup, value: dict[Agent, int]) -> None:
    for warp, number in value.items():
        out.write(warp)
        out.number(("commits", id(warpgroup)), number)


def _first(out: Writer, warpgroup: Warpgroup, value: dict[int, Any] | None) -> None:
    out.token(value is None)
    for number, execution in (value or {}).items():
        out.number(("collective", id(warpgroup)), number)
        out.write((execution.warp, execution.warps, execution.operands, execution.accesses))
        out.identity(execution.ops)
        if execution.values:
            raise NotPlain("numbers")


WARPGROUP: dict[str, FieldWriter] = {"_rounds": _rounds, "_commits": _commits, "_first": _first}


# ---------------------------------------------------------------------- warps


def is_number(register: Any) -> bool:
    """Whether a register holds something that may move: a number, or those of all lanes."""
    return type(register) in (int, float) or isinstance(register, np.ndarray | np.generic)


def _registers(out: Writer, warp: Agent, value: list[Any]) -> None:
    found = out.snapshot.registers
    for slot, register in enumerate(value):
        if is_number(register):
            found.setdefault((id(warp), slot), []).append(register)
            out.identity(type(register))
        else:
            out.write(register)


def _laps(out: Writer, warp: Agent, value: dict[int, Lap]) -> None:
    out.token(tuple(value))
    for lap in value.values():
        out.write((lap.past is None, lap.again))
        out.clock(lap.past)
        # both only grow: a turn that differs from now in one of them differs for ever
        idle = (lap.effects, lap.version) == (warp.effects, out.machine.version)
        out.token(idle)
        if idle:  # what registers held matters to tell a turn that did nothing
            _registers(out, warp, lap.registers)


def _count(name: str) -> Any:
    """A count that is compared with those of the same name of this warp."""

    def write(out: Writer, warp: Agent, value: int) -> None:
        out.number((name, warp.index), value)

    return write


def _of_warpgroup(name: str) -> Any:
    """A count that the warps of a warpgroup compare."""

    def write(out: Writer, warp: Warp, value: int) -> None:
        out.number((name, id(warp.warpgroup)), value)

    return write


def _pending(out: Writer, warp: Agent, value: dict[str, Any]) -> None:
    """The last wgmma that uses a fragment."""
    for name, use in value.items():
        out.write((name, use.op, use.accumulator))
        out.position(warp.groups["wgmma"].component, use.sequence)
        out.number(("fenced", warp.index), use.fenced)


def _issuer(out: Writer, warp: Agent, value: Issuer | None) -> None:
    """What a warp has issued to tensor cores."""
    if value is None:
        return
    for lanes, seen in value.seen.items():
        out.token(lanes)
        out.clock(seen)
    for lane, own in value.own.items():
        out.token(lane)
        out.position(own.component, own.count)
        out.position(own.order, own.count)
    out.token(tuple(sorted(value.issuing)))
    out.write(value.answer)
    out.token((value.given, tuple(value.loaded)))
    for sequence in value.loaded.values():
        out.position(warp.groups["tcgen05.ld"].component, sequence)
    out.time(value.finish)
    out.token(tuple([lanes for _, lanes in value.runs]))
    for sequence, _ in value.runs:
        out.position(warp.groups["tcgen05"].component, sequence)


_AGENT: dict[str, FieldWriter] = {
    "clock": clock, "registers": _registers, "laps": _laps, "marks": positions,
    "moments": positions, "followed": positions, "gathered": positions,
    "effects": _count("effects"), "issued": _count("issued"),
    "iteration": _count("iterations"), "iterations": _count("iterations"),
    "fenced": _count("fenced"),
    "collective": _of_warpgroup("collective"), "pending": _pending, "tcgen05": _issuer,
    # how many instructions it has executed; what a follower has of it, and writes
    "executed": left_out, "elsewhere": left_out,
}  # fmt: skip


def _top(out: Writer, parts: Parts, value: int) -> None:
    """The last tick of a warp's parts, from which that of any of its components goes on; it is read
    off the clock when the warp parts again."""
    if len(parts.leaves) == 1:
        return
    for component in parts.components:
        out.position(component, value)


def _partings(out: Writer, parts: Parts, value: dict[int, deque[Parting]]) -> None:
    """What the lanes of a warp did before they parted, as far as it can still be asked for: of
    ticks that something in the state has. Those to come are later than all partings so far."""
    out.at_the_end.append(partial(_asked_for, out, value))


def _asked_for(out: Writer, value: dict[int, deque[Parting]]) -> None:
    ticks = {component: set(out.positions_of(component)) for component in value}
    kept: dict[int, list[Parting]] = {}
    left = {component: list(partings) for component, partings in value.items()}
    found = True
    while found:
        found = False
        for component, partings in left.items():
            asked = ticks[component]
            for parting in list(partings):
                if not any(parting.since < tick <= parting.until[0] for tick in asked):
                    continue
                found = True
                partings.remove(parting)
                kept.setdefault(component, []).append(parting)
                for _, then, first in parting.parts:
                    ticks.setdefault(then, set()).update((first, first + 1))
    for component, partings in sorted(kept.items()):
        out.token((component, len(partings)))
        for parting in sorted(partings, key=lambda p: p.until):
            for tick in (parting.since, *parting.until):
                out.position(component, tick)
            for mask, then, first in parting.parts:
                out.token((mask, then))
                out.position(then, first)


# ---------------------------------------------------------------------- barriers


def _phase(out: Writer, barrier: Mbarrier, value: int) -> None:
    out.token(value & 1)
    out.position(barrier.component, barrier.base + value)


def _initialised(out: Writer, barrier: Mbarrier, value: tuple[int, int]) -> None:
    out.token(value[0])
    out.position(*value)


def _whether(out: Writer, owner: Any, value: object) -> None:
    """Whether there is one."""
    out.token(value is None)


def _generation(out: Writer, barrier: NamedBarrier, value: Generation | None) -> None:
    """A round: its number is a position of the barrier's component, less one."""
    if value is None:
        out.token(None)
        return
    out.position(barrier.component, value.number + 1)
    out.write(value)


# ---------------------------------------------------------------------- tensor memory


def _tick(out: Writer, access: TmemAccess, value: int) -> None:
    out.position(access.issuer, value)


def _sequence(out: Writer, access: TmemAccess, value: int) -> None:
    """The number of an operation: of a load, also among those of which all has been stored."""
    out.position(access.component, value)
    drained = access.warp.groups.get(DRAINED)
    if access.kind == "ld" and drained is not None:
        out.position(drained.component, value)


def _order(out: Writer, access: TmemAccess, value: int) -> None:
    if access.queue < 0:
        out.token(value)
    else:
        out.position(access.queue, value)


# ---------------------------------------------------------------------- memory


def _table(out: Writer, memory: Memory, value: FootprintTable) -> None:
    """The accesses that are recorded; what is remembered to be found fast follows from them, and
    which of the footprints that are ``initialised`` have been gathered up to now.

    In global memory, where each repetition may have places of its own, those matter only that are
    on bytes which are accessed again: see `snapshot`. Of what is a thread's own it matters which
    bytes have been written.
    """
    if memory.mbarriers is None:
        if memory.begins_empty:
            out.write((value.written, value._initialised))
            out.token(tuple([footprint.number for footprint in value._may_access]))
            own = [f.number for f in value._known.values() if f.initialised]
            out.token(tuple(own))
        return
    out.write((value.written, value.barrier_addresses, value._initialised))
    out.token(tuple([footprint.number for footprint in value._may_access]))
    for footprint in value._known.values():
        observed = out.machine.races.observations.of(footprint)
        if footprint.reads or footprint.writes or footprint.initialised or observed:
            _recorded(out, footprint)


def _later(out: Writer, access: Access, value: dict[tuple[int, Any], Access] | None) -> None:
    """Accesses that came after one: of each counts when it is complete, and nothing of what came
    after it (`Completions.over`), so that no chain of all that ever came after one is followed."""
    out.token(None if value is None else len(value))
    for (component, place), after in (value or {}).items():
        out.write(place)
        out.token((component, after.component))
        if after.in_flight:
            out.write(after)
        else:
            out.token((after.asynchronous, after.write))
            out.position(component, after.tick)


def _recorded(out: Writer, footprint: Footprint) -> None:
    """The accesses to a set of bytes that are recorded."""
    out.token((footprint.number, footprint.initialised))
    out.write(dict(footprint.reads))
    out.write([*footprint.writes])
    out.write(out.machine.races.observations.of(footprint))


def _strong_write(out: Writer, owner: Any, value: int | None) -> None:
    """Which strong write of the machine it is."""
    if value is None:
        out.token(None)
    else:
        out.number("strong", value)


def _begin(out: Writer, owner: Any, value: tuple[int, int] | None) -> None:
    """Where the store was made with which strong writes begin."""
    if value is None:
        out.token(None)
    else:
        out.token(value[0])
        out.position(*value)


def _footprint(out: Writer, footprint: Footprint) -> None:
    """A set of bytes: it does not matter which, if they are of global memory that is the same
    everywhere. An access to them is made when the access was issued."""
    memory = out.machine.globals.memories.get(footprint.tensor)
    if memory is None or not memory.is_uniform:
        out.identity(footprint)
    else:
        out.token(memory.label)


def _data(out: Writer, memory: Memory, value: Any) -> None:
    out.token(value.tobytes() if memory.tracked else value.size)


def _selected(out: Writer, piece: _Selected) -> None:
    """One end of a copy through a tensor map; which elements matters where it may be seen."""
    if not piece.memory.is_uniform or piece.through is not None:
        out.fields(piece)
    else:
        out.write((piece.memory, piece.nbytes, piece.dtype))


# ---------------------------------------------------------------------- the machine


def _in_flight(out: Writer, machine: Machine, value: dict[int, InFlight]) -> None:
    for operation in value.values():
        out.write(operation)


def _queue(out: Writer, env: TimedEnvironment) -> None:
    """The moves that are due, and when."""
    due = [entry for entry in env.due if not isinstance(entry[3], Glance)]
    for due_at, priority, _, event in sorted(due, key=lambda entry: entry[:3]):
        out.token((due_at - out.now, priority))
        out.write(event.callbacks)


def _of_one_machine(out: Writer, value: Warp | Access) -> None:
    """A warp, or what it accesses: of a machine that has run before it is what it was."""
    warp = value.warp if isinstance(value, Access) else value
    if warp.machine is not out.machine:
        out.identity(value)
    elif out.is_new(value):
        out.fields(value)


def _follower(out: Writer, follower: Follower) -> None:
    """What is known of the other clusters: whatever differs between them does not move."""
    out.token((follower.same.tobytes(), follower.unseen, tuple(follower.departures)))
    for index, mirror in follower.mirrors.items():
        differing = mirror.registers.differing
        for slot in sorted(differing):
            array = plain(differing[slot])
            out.token((index, slot, array.shape, str(array.dtype)))
            out.snapshot.arrays[id(out.machine.warps[index]), slot] = array


def _observer(out: Writer, owner: Any, value: Any) -> None:
    """What follows the other clusters."""
    out.write(getattr(value, "follower", value))


def _lanes(out: Writer, value: Lanes) -> None:
    out.token(("lanes", value.bits))


def _growing(out: Writer, owner: Any, value: set[Any]) -> None:
    """What is never taken out again: as many are the same."""
    out.token(("growing", len(value)))


def _away_before(out: Writer, barrier: Any, value: dict[int, tuple[int, int]]) -> None:
    for place in range(2):
        positions(out, barrier, {component: pair[place] for component, pair in value.items()})


def _handed_on(out: Writer, barrier: Any, value: tuple[int, int]) -> None:
    for known in value:
        at_component(out, barrier, known)


FIELDS: Fields = {
    Agent: _AGENT,
    Part: {"clock": clock, "settled": positions},
    Parts: {"_partings": _partings, "_spares": positions, "_top": _top},
    Groups: GROUPS,
    LaneGroups: LANE_GROUPS,
    Promise: PROMISE,
    Warpgroup: WARPGROUP,
    Mbarrier: {
        "phase": _phase, "arrived": clock,
        "handed_on": _handed_on,
        "done": at_component, "done_before": at_component, "senders": positions,
        "last_arrival_over": at_component,
        "away": positions, "away_before": _away_before,
        "_initialised": _initialised,
        # counted in with the phase; statistics
        "base": left_out, "skipped": left_out,
    },
    # which one of the other CTAs of the cluster decides nothing
    Published: {"own": clock, "away": clock, "by": _whether},
    Credit: {
        "tick": at_component, "position": at_component, "moment": at_component,
        "common": at_component, "clock": clock,
    },
    Wait: {"tick": at_component},
    Landing: {"issued": clock},
    Completed: {"counts": lambda out, x, v: positions(out, x, dict(v))},
    Access: {
        "tick": at_component,
        "iteration": lambda out, a, v: out.number(("iterations", a.warp.index), v),
        "later": _later, "number": _strong_write,
    },
    Observations: {"count": _strong_write, "_words": left_out},
    Word: {"since": _strong_write, "begin": _begin},
    Look: {"tick": at_component, "since": _strong_write, "end": _strong_write},
    Join: {"tick": at_component},
    Generation: {
        "number": left_out, "components": left_out,
        "known": lambda out, generation, v: out.clock(generation.joined),
    },
    NamedBarrier: {
        "current": _generation, "previous": _generation, "skipped": left_out,
    },
    Fences: {
        "_released": clocks, "_acquirable": clocks, "_gathered": clock, "_of_one": clocks,
    },
    TmemAccess: {"tick": _tick, "order": _order, "sequence": _sequence},
    Memory: {"table": _table, "data": _data, "_typed": left_out},
    Cta: {"tensor_core_free": time},
    InFlight: {
        "index": lambda out, x, v: out.number("issued", v),
        "key": lambda out, x, v: out.number(("issued", v[0]), v[1]),
    },
    Machine: {
        "code": left_out, "loaded": left_out, "plan": left_out,
        "env": lambda out, m, v: _queue(out, v),
        "in_flight": _in_flight, "version": lambda out, m, v: out.number("version", v),
        "_issued": lambda out, m, v: out.number("issued", v + len(m.warps)),
        # how many moves there have been
        "steps": left_out, "skipped": left_out, "by_parts": left_out,
        # what the findings say
        "_reported": left_out,
    },
    RaceDetector: {
        "_over": left_out, "_after": left_out, "observer": _observer, "witness": left_out,
        "_raced": _growing,
        # which rows of clocks are looked at: made with the machine, and never changed
        "_rows": left_out, "_global_rows": left_out, "_unfenced": left_out, "_compared": left_out,
    },
    LaneExchange: {"_raced": left_out},
    TmemOrder: {"_raced": _growing},
}  # fmt: skip

OBJECTS: Objects = {
    Footprint: _footprint,
    FootprintTable: Writer.identity,
    _Selected: _selected,
    Warp: _of_one_machine,
    Access: _of_one_machine,
    Follower: _follower,
    Lanes: _lanes,
    Code: Writer.identity,
    Options: Writer.identity,
    Finding: Writer.identity,
    Named: Writer.token,
}


@cached
def most_pending(mir: Mir) -> int:
    """How many groups any wait lets remain at most."""
    waits = (e for effects in mir.effects for e in effects if isinstance(e, fx.WaitsGroup))
    return max((e.pending for e in waits), default=0)


def snapshot(machine: Machine, places: Iterable[Footprint] = ()) -> Snapshot:
    """The state of a machine between two moves; of accesses to global memory those that are
    recorded on ``places``.

    Raises:
        NotPlain: it holds something of which it is not known what counts.
    """
    out = Writer(machine, FIELDS, OBJECTS, most_pending(machine.plan.mir))
    try:
        out.fields(machine)
        for place in places:
            out.part(place, _recorded)
        for write in out.at_the_end:
            write()
    except RecursionError:
        raise NotPlain("a long chain") from None
    return out.snapshot
