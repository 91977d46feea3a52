"""Races between lanes of one warp: what only a warp barrier orders (E11).

Lanes that act as one are ordered with each other by a meeting only. Lanes that have not met race
with each other, and make some accesses together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.declarations import Unsaid
from tilesim.ir.effects import Gathers, ReleasesMaps, Writes
from tilesim.ir.fragments import Held
from tilesim.ir.frozen import cached
from tilesim.records import replace
from tilesim.sim.machine.clock import NEVER, limited
from tilesim.sim.machine.footprint import EVERY, Access, Footprint
from tilesim.sim.machine.lanes import mask_array, mask_bits, name_lanes
from tilesim.sim.machine.word_order import Overlap, same_value
from tilesim.sim.observers.race_text import in_no_order

if TYPE_CHECKING:
    from tilesim.findings.finding import Kind
    from tilesim.ir.op import Op
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.memory import Memory
    from tilesim.sim.machine.warp import Part
    from tilesim.sim.machine.word_order import WordOrder


class LaneExchange:
    """Checks accesses of lanes against what other lanes of their warp did since they last met.

    Lanes that act as one have one clock, which has what each of them did; a lane knows of the
    others what is settled (see `Part`). ``raced`` are footprints in races, which it extends.
    """

    def __init__(self, machine: Core, words: WordOrder, raced: set[Footprint]) -> None:
        self._machine = machine
        self._words = words
        self._raced = raced
        #: by both footprints and their lanes: two lanes that share a byte
        self._known: dict[tuple[object, ...], _Pair] = {}

    def check(self, memory: Memory, footprint: Footprint, access: Access, clock: Clock) -> None:
        """Reports the earlier accesses that other lanes made and no meeting orders, although the
        clock has them; ``access`` says which lanes touch what."""
        settled = access.warp.part.settled
        size = self._machine.components.size
        for other in footprint.overlaps:
            near = [*other.writes.at(settled)]
            if access.write:
                near += other.reads.at(settled)
            for record in near:
                tick = record.tick
                if settled.get(record.component, NEVER) < tick <= clock[size + record.component]:
                    self._exchange(Overlap(memory, footprint, access, other, record, clock))

    def check_split(self, pair: Overlap, row: int) -> None:
        """The same for an earlier access by lanes that have parted since, as far as they are those
        of the access: its clock has what it needs of them in the row that begins at ``row``."""
        access, record = pair.access, pair.record
        warp, part, parts = access.warp, access.warp.part, access.warp.parts
        if not warp.is_divided or record.warp.parts is not parts:
            return
        known = limited(part.clock, part.settled, self._machine.components.size)
        if parts.lanes_known(known, row, record.component, record.tick, record.lanes & part.mask):
            return
        if access.among and warp.exchanges:
            self._exchange(pair, part.mask)

    def check_waited(self, pair: Overlap) -> bool:
        """The same for a copy by lanes which have waited for it, each for its own: True if no clock
        has to know that."""
        access, record = pair.access, pair.record
        groups = access.warp.lane_groups.values()
        group = next((g for g in groups if record.component in g.components), None)
        both = access.lanes & record.lanes
        if group is None or access.asynchronous or not access.among or not both:
            return False
        if both & ~group.waited(record.component, record.tick):
            return False
        self._exchange(pair)
        return True

    def _exchange(self, pair: Overlap, lanes: int = EVERY) -> None:
        access, record, footprint, other = pair.access, pair.record, pair.footprint, pair.other
        strong = pair.strong
        if (strong and self._words.immaterial(pair)) or by_the_same(pair):
            return
        made = record.lanes & lanes
        now, before = (access.lanes, access.among, access.piece), (record.among, record.piece)
        key = (footprint, other, now, made, before)
        if key not in self._known:
            self._known[key] = _shared(by_lane(other, made, *before), by_lane(footprint, *now))
        found = self._known[key]
        if found is None:
            return
        if strong:
            self._words.note(pair)
            return
        if same_value(pair) and self._machine.accepts("H23", access.op):
            return
        if access.may_access is record.may_access is None:
            pair.memory.table.require_all()
        self._raced.update((footprint, other))
        in_no_order(
            pair, "race/lanes",
            f"lane {found[1]} accesses what lane {found[0]} accessed before: a bar.warp.sync is "
            f"missing between (E11)",
            "synchronise the lanes (bar.warp.sync) between the two",
        )  # fmt: skip


_Pair = tuple[int, int] | None
#: pieces that are compared at once with all others
_AT_ONCE = 256
_Extents = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def by_the_same(pair: Overlap) -> bool:
    """Whether each lane touches of a matrix what it touched before, whatever that is."""
    access, record, footprint, other = pair.access, pair.record, pair.footprint, pair.other
    if not isinstance(access.piece, Unsaid) or access.piece != record.piece:
        return False
    same = footprint is other or np.array_equal(footprint.addresses, other.addresses)
    return same and access.warp.origin is record.warp.origin


def by_lane(
    where: Footprint, lanes: int, among: int, piece: int | Held | Unsaid = 0
) -> _Extents | None:
    """Pieces of what the ``lanes`` of an access touch: the lane, the first byte, and the one after
    the last; None where it is not known which lane touches what (see `Access`)."""
    if among == EVERY or isinstance(piece, Unsaid):
        chosen = np.flatnonzero(mask_array(lanes))
        lows, highs = where.bytes.runs
        count, pieces = len(chosen), len(lows)
        return np.repeat(chosen, pieces), np.tile(lows, count), np.tile(highs, count)
    if not among:
        return None
    if isinstance(piece, Held):
        masks = np.array(piece.lanes(), dtype=np.int64) & lanes
        element, lane = np.nonzero(masks[:, None] >> np.arange(32) & 1)
        low = where.addresses.ravel()[element]
        return lane, low, low + where.itemsize
    active = np.flatnonzero(mask_array(among))
    addresses = where.addresses.ravel()
    each = max(1, piece // where.itemsize) if piece else addresses.size // active.size
    rows = addresses.reshape(-1, each)
    owners = active if len(rows) == active.size else np.resize(active, len(rows))
    taken = mask_array(lanes)[owners]
    rows = rows[taken]
    low, last = (rows[:, 0], rows[:, 0]) if each == 1 else (rows.min(axis=1), rows.max(axis=1))
    return owners[taken], low, last + where.itemsize


def _of_each_lane(access: Access) -> bool:
    """Whether each lane may touch all of the bytes."""
    return access.among == EVERY or isinstance(access.piece, Unsaid)


def _shared(earlier: _Extents | None, later: _Extents | None) -> _Pair:
    """Two different lanes of which the later one touches a byte that the earlier one touched."""
    if earlier is None or later is None:
        return None
    (before, low, high), (after, first, last) = earlier, later
    for start in range(0, len(after), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        shared = (low[:, None] < last[some]) & (first[some] < high[:, None])
        found = np.argwhere(shared & (before[:, None] != after[some]))
        if len(found):
            return int(before[found[0, 0]]), int(after[start + found[0, 1]])
    return None


# ------------------------------------------------------------------ lanes that have not met


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
    "synchronise the lanes (bar.warp.sync) before one of them releases for the others, and after "
    "one acquires for them"
)


def apart_note(pair: Overlap) -> tuple[Kind, str] | None:
    """How the lanes of a warp that have not met keep two accesses unordered, if they do."""
    access, record = pair.access, pair.record
    warp = access.warp
    makers, released = record.warp.parts.released(pair.clock, record.component, record.tick)
    if released:
        does = "writes" if record.write else "reads"
        return "race/released-by-lanes", (
            f"{record.warp} {does} in {name_lanes(makers & record.lanes)} and releases in "
            f"{name_lanes(released)}: a bar.warp.sync is missing between"
        )
    if warp.may_divide:
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


def same_instruction(access: Access, record: Access) -> bool:
    """Lanes that execute one collective instruction do not race with each other, nor do those that
    execute copies of one."""
    plan = access.warp.machine.plan
    if plan.places and record.warp.origin is access.warp.origin:
        return plan.twin(record.op.number) == plan.twin(access.op.number)
    return _together(access, record) and not is_weak_store(access.op)


def of_one_store(pair: Overlap) -> bool:
    """Whether lanes make both by one weak store, of which in practice one stays (H23), unless it
    decides something which."""
    access, plan = pair.access, pair.access.warp.machine.plan
    decides = plan.places or pair.footprint.tensor in plan.flow.steering
    return _together(access, pair.record) and is_weak_store(access.op) and not decides


def _together(access: Access, record: Access) -> bool:
    """Whether lanes of a warp make both as one instruction, of threads."""
    own = record.iteration and record.iteration == access.iteration and record.warp is access.warp
    return bool(own) and not (access.engine or access.asynchronous)


@cached
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
    known: what knows it of one of these lanes, or is that lane, knows it of all."""
    parts = record.warp.parts
    if not record.warp.may_divide or not _is_one(record.op, write=record.write):
        return False
    together = [record]
    if record.iteration:
        near = (where.writes if record.write else where.reads).values()
        together = [a for a in near if a.iteration == record.iteration and a.warp is record.warp]
    lanes = [1 << lane for lane in range(32)]
    return any(
        parts.lanes_known(clock, row, own.component, own.tick, lane & own.lanes)
        for own in together for lane in lanes if lane & own.lanes
    )  # fmt: skip


def _is_one(op: Op, *, write: bool) -> bool:
    """Whether what lanes execute together, and read or write, is not of one lane each: it could be
    one lane's. Of a matrix that a warp loads each lane names a row, or takes its own elements."""
    return _makes_one(op) if write else _copies_one(op)


@cached
def _makes_one(op: Op) -> bool:
    return not op.data and any(isinstance(effect, Gathers) for effect in op.effects())


@cached
def _copies_one(op: Op) -> bool:
    return _makes_one(op) and any(isinstance(effect, ReleasesMaps) for effect in op.effects())


def lanes_at(
    record: Access, where: Footprint, other: Footprint, access: Access | None = None
) -> int:
    """The lanes of a recorded access that touch bytes of ``other``, or those of them that the lanes
    of ``access`` touch, as far as that is known."""
    lows, highs = other.bytes.runs
    if access is not None and not _of_each_lane(access):
        own = by_lane(other, access.lanes, access.among, access.piece)
        lows, highs = (lows, highs) if own is None else own[1:]
    if _of_each_lane(record):
        return record.lanes if meet_some(*where.bytes.runs, lows, highs).any() else 0
    pieces = by_lane(where, record.lanes, record.among, record.piece)
    if pieces is None:
        return record.lanes
    lanes, low, high = pieces
    found = np.zeros(32, dtype=bool)
    found[lanes[meet_some(low, high, lows, highs)]] = True
    return mask_bits(found)


def meet_some(
    low: NDArray[np.int64], high: NDArray[np.int64],
    lows: NDArray[np.int64], highs: NDArray[np.int64],
) -> NDArray[np.bool_]:  # fmt: skip
    """Which of the ranges from ``low`` up to ``high`` share a byte with some of the others."""
    order = np.argsort(lows)
    # how far the first ones come, by their number: none, one, two...
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, highs[order]))
    met: NDArray[np.bool_] = reach[np.searchsorted(lows[order], high)] > low
    return met
