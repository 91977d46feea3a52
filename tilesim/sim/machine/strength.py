"""Strong accesses: when two of them do not race, what one learns (SEMANTICS H2, H3, H6)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tilesim.ir import effects as fx
from tilesim.ir.ops.fence import FenceScope
from tilesim.sim.machine.access import EVERY, Access, leave_the_same
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.clock import Clock, join
from tilesim.sim.machine.reduction import alike, reduction_form
from tilesim.sim.machine.release import Released, mutual, narrower
from tilesim.sim.machine.storage import Memory
from tilesim.sim.machine.unknown import require_known

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilesim.ir.op import Op
    from tilesim.sim.machine.core import Core
    from tilesim.sim.machine.facts import Facts
    from tilesim.sim.machine.footprint import Footprint


def hides(access: Access, record: Access) -> bool:
    """Whether what conflicts with an earlier write conflicts with a strong one after it, too.

    What is strong can be unordered with the second and not race, and yet race with the first, if
    that is weak, of a narrower scope or of the other proxy (H2). And a reduction commutes with
    others, not with the store that comes before them.
    """
    assert access.scope is not None
    if record.scope is None or record.asynchronous != access.asynchronous:
        return False
    if record.warp.cta is not access.warp.cta:
        return False
    if narrower(access.scope, record.scope) != access.scope:
        return False
    return reduction_form(access.op) is None or alike(access.op, record.op)


def morally_strong(access: Access, record: Access) -> bool:
    """Whether both are strong, of one proxy, and each scope includes the other's thread (H2)."""
    if access.scope is None or record.scope is None:
        return False
    if access.asynchronous != record.asynchronous:
        return False
    return mutual(access.scope, access.warp.cta, record.scope, record.warp.cta)


def observe(
    released: Released, warp: Agent, scope: FenceScope, *, acquires: bool, near: bool = False,
    settles: bool = False,
) -> None:  # fmt: skip
    """A strong read of what is ``released`` at an address: an acquire learns of it.

    ``near``: the address lies in shared memory. ``settles``: each lane that reads has waited for
    all of that in every schedule, so of what its own lanes released, each of them knows.

    Whatever the scopes, the read comes after the write in time; data is ordered only where the
    two are morally strong.
    """
    size = warp.machine.components.size
    for (sent, cta), clock in released.items():
        warp.follows(clock)
        join(warp.clock[:size], clock[:size])
        if not mutual(scope, warp.cta, sent, cta):
            continue
        if acquires and settles:
            warp.learns(clock)
        elif acquires:
            join(warp.clock, clock)
        else:
            warp.fences.saw(cta, clock)
            if near and warp.machine.components.near:
                warp.fences.saw(cta, clock, near=True)


def same_value(memory: Memory, access: Access, record: Access) -> bool:
    """Whether both are one instruction, and it stores the same in shared memory (H23): one number,
    so that elements are the same wherever they overlap, or the same data to the same addresses.
    All warps of Triton's default partition say so what the others have to do; and where a layout
    replicates data over warps, all of them store it. Numbers that are addresses of several things
    are equal by where these lie only.

    Where nobody knows the data, it is noted that it would have to be looked at.
    """
    machine = access.warp.machine
    if access.op is not record.op and not _are_twins(access.op, record.op, machine.plan):
        return False
    if memory.mbarriers is None or machine.options.ptx or access.op.number in machine.plan.mixed:
        return False
    if access.stored is None or record.stored is None:
        if access.write and record.write and access.scope is None:
            machine.outcome.unnamed.add(access.op.number)
        return False
    if leave_the_same(access.stored, record.stored):
        machine.lean("H23", access.op)
        return True
    return False


def _are_twins(one: Op, other: Op, plan: Facts) -> bool:
    """Whether lanes that go their own way execute one instruction in another copy of it."""
    return bool(plan.places) and plan.twin(one.number) == plan.twin(other.number)


def accepted_unfenced(write: Access, record: Access, clock: Clock) -> bool:
    """Whether a write that is ordered after a record needs no proxy fence in practice: a copy over
    the word of tcgen05.alloc (H24), but no reduction, which reads the word."""
    machine = write.warp.machine
    if any(isinstance(e, fx.Writes) and e.combine for e in write.op.effects()):
        return False
    if machine.options.ptx or record.warp.machine is not machine:
        return False
    if clock[machine.components.size + record.component] < record.tick:
        return False
    if any(isinstance(effect, fx.AllocatesTmem) for effect in record.op.effects()):
        machine.lean("H24", write.op, record.op)
        return True
    return False


def known_to_all(
    machine: Core, least: Clock, rows: dict[tuple[bool, bool], int], fenced: int
) -> Callable[[Access], bool]:
    """Whether every warp knows of an access: ``least`` is what they all do, and whoever comes later
    looks at ``rows``; in ``fenced``, if not 0, a copy would know a proxy fence in practice."""
    size = machine.components.size

    def settled(record: Access) -> bool:
        known = min(
            least[size + record.component],
            least[rows[record.asynchronous, record.write] + record.component],
        )
        if known < record.tick:
            return False
        if (
            fenced
            and not (record.asynchronous or record.write)
            and least[fenced + record.component] < record.tick
        ):
            # a copy that overwrites it comes too late to see that no fence lies between
            machine.lean("U12", record.op)
        if fenced and record.bridged and least[fenced + record.component] < record.tick:
            machine.lean("U14", record.op)
        return True

    return settled


def note_perhaps(machine: Core, memory: Memory, footprint: Footprint, access: Access) -> None:
    """An access of which nobody knows whether it is made: to data, which orders nothing.

    Raises:
        UnknownSteers: it has to be known.
    """
    plan, warp = machine.plan, access.warp
    near = memory.mbarriers is not None
    names = {memory.label, footprint.tensor}
    if near and access.among == EVERY:
        names |= {tensor.name for tensor in machine.program.shared}
    tells = access.write and not names.isdisjoint(plan.counters | plan.map_tensors)
    if tells or (near and (memory is not warp.cta.memory or memory.overlaid is not None)):
        require_known(warp.perhaps)
    access.perhaps = warp.perhaps
    if access.write:
        warp.perhaps_written.append((footprint, partial(memory.forget, footprint)))


def supersede(
    footprint: Footprint, access: Access, unordered: list[Footprint], outlast: list[Access]
) -> None:
    """Drops what the write covers and is ordered after, but those that ``outlast`` it, and records
    the write."""
    excused = access.turn or access.stored is not None or access.warp.machine.plan.places
    if access.scope is None and excused:
        access.over = _over(footprint, access, unordered)
    for covered in footprint.covers:
        if covered not in unordered:
            if access.scope is None:
                covered.writes.clear()
                covered.reads.clear()
            else:
                same = covered.same_elements(footprint)
                covered.writes[:] = [
                    record
                    for record in covered.writes
                    if not (same and hides(access, record)) or record in outlast
                ]
        elif not access.asynchronous:
            # the same instruction of the same warp, once more: the earlier time adds nothing, but
            # what other parts of the warp do at this one, which only they make known
            covered.writes[:] = [
                record
                for record in covered.writes
                if record.op is not access.op
                or record.warp is not access.warp
                or (record.turn and record.turn == access.turn)
                or record in outlast
            ]
    footprint.writes.append(access)


def _over(
    footprint: Footprint, access: Access, unordered: list[Footprint]
) -> tuple[tuple[Footprint, Access], ...]:
    """What a weak store supersedes, and earlier ones by the same instruction did: the last access
    of each kind at each component, as who knows that knows the others."""
    last: dict[tuple[object, ...], tuple[Footprint, Access]] = {}
    for covered in footprint.covers:
        if covered in unordered:
            continue
        for record in (*covered.writes, *covered.reads.values()):
            before = record.over if record.op is access.op else ()
            record.over = ()
            for where, one in (*before, (covered, record)):
                key = where, one.component, one.asynchronous, one.write, one.lanes
                if key not in last or last[key][1].tick < one.tick:
                    last[key] = where, one
    return tuple(last.values())
