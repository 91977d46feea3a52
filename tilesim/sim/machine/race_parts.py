"""Races between lanes that have not met, and accesses that such lanes make together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tilesim.ir.effects import Gathers, ReleasesMaps, Writes
from tilesim.ir.kept import kept
from tilesim.sim.machine.exchange import by_lane
from tilesim.sim.machine.lanes import mask_bits, name_lanes

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.findings import Kind
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.footprint import Footprint
    from tilesim.sim.machine.parts import Part


def by_parts(access: Access, parts: list[Part]) -> list[tuple[Part, Access]]:
    """An access that lanes make together which have not met: that of each part."""
    result = []
    for part in parts:
        own = replace(access, component=part.component, tick=int(part.clock[part.component]))
        own.lanes = access.lanes & part.mask
        result.append((part, own))
    return result


#: what to do about lanes that have not met
MEET = (
    "let the lanes meet (bar.warp.sync) before one of them releases for the others, and after one "
    "has acquired for them"
)


def apart_note(access: Access, record: Access, clock: Clock) -> tuple[Kind, str] | None:
    """How the lanes of a warp that have not met keep two accesses unordered, if they do."""
    made, warp = record.warp.parts, access.warp
    if made is not None:
        who, released = made.released(clock, record.component, record.tick)
        if released:
            does = "writes" if record.write else "reads"
            return "race/released-by-lanes", (
                f"{record.warp} {does} in {name_lanes(who & record.lanes)} and releases in "
                f"{name_lanes(released)}: a bar.warp.sync is missing between"
            )
    if warp.parts is not None:
        row = warp.machine.components.size + record.component
        learned = warp.parts.acquired(row, record.tick)
        if learned or (record.warp is warp and not record.asynchronous):
            knows = f"is known to {name_lanes(learned)} of {warp}" if learned else "is its own"
            does = "writes" if access.write else "reads"
            return "race/lanes", (
                f"the earlier access {knows}, which {does} in {name_lanes(access.lanes)}: a "
                "bar.warp.sync is missing between"
            )
    return None


def same_instruction(footprint: Footprint, access: Access, record: Access) -> bool:
    """Lanes that execute one collective instruction do not race with each other, nor do those that
    execute copies of one; in practice neither do those of one weak store, of which one stays (H23),
    unless it decides something which."""
    machine = access.warp.machine
    plan = machine.plan
    if plan.places and record.warp.origin is access.warp.origin:
        return plan.twin(record.op.number) == plan.twin(access.op.number)
    own = record.turn and record.turn == access.turn and record.warp is access.warp
    if not own or access.engine or access.asynchronous:
        return False
    if not is_weak_store(access.op):
        return True
    if machine.options.ptx or footprint.tensor in plan.flow.steering:
        return False
    machine.lean("H23", access.op)
    return True


@kept
def is_weak_store(op: Op) -> bool:
    """Whether all that an instruction does is that each lane stores a number of its own."""
    return all(
        isinstance(e, Writes)
        and e.sem == "weak"
        and e.proxy == "generic"
        and e.combine is None
        and bool(e.lanes)
        and not e.asynchronous
        for e in op.effects()
    )


def published_also(record: Access, clock: Clock, row: int) -> bool:
    """Whether another component publishes an access, and that is known."""
    return record.also is not None and bool(clock[row + record.also[0]] >= record.also[1])


def known_as_one(record: Access, where: Footprint, clock: Clock, row: int) -> bool:
    """Whether an access that all lanes of a warp make as one (of a map that is published: B14) is
    known: who knows it of one of these lanes, or is that lane, knows it of all."""
    parts = record.warp.parts
    if parts is None or not _is_one(record.op, write=record.write):
        return False
    together = [record]
    if record.turn:
        near = where.writes if record.write else where.reads.values()
        together = [a for a in near if a.turn == record.turn and a.warp is record.warp]
    lanes = [1 << lane for lane in range(32)]
    return any(
        parts.lanes_known(clock, row, own.component, own.tick, lane & own.lanes)
        for own in together for lane in lanes if lane & own.lanes
    )  # fmt: skip


def _is_one(op: Op, *, write: bool) -> bool:
    """Whether what lanes execute together, and read or write, is not of one lane each: it could be
    one lane's. Of a matrix that a warp loads each lane names a row, or takes its own elements."""
    return _makes_one(op) if write else _copies_one(op)


@kept
def _makes_one(op: Op) -> bool:
    return not op.data and any(isinstance(effect, Gathers) for effect in op.effects())


@kept
def _copies_one(op: Op) -> bool:
    return _makes_one(op) and any(isinstance(effect, ReleasesMaps) for effect in op.effects())


def lanes_at(
    record: Access, where: Footprint, other: Footprint, access: Access | None = None
) -> int:
    """The lanes of a recorded access that touch bytes of ``other``, or those of them that the lanes
    of ``access`` touch, as far as that is known."""
    pieces = by_lane(where, record.lanes, record.among, record.piece)
    if pieces is None:
        return record.lanes
    lanes, low, high = pieces
    lows, highs = other.bytes.runs
    own = None if access is None else by_lane(other, access.lanes, access.among, access.piece)
    if own is not None:
        _, lows, highs = own
    touched = ((lows < high[:, None]) & (low[:, None] < highs)).any(axis=1)
    found = np.zeros(32, dtype=bool)
    found[lanes[touched]] = True
    return mask_bits(found)
