"""Stores of unknown data, told apart by what it is made of (SEMANTICS H23).

What the lanes of a warp hold has a name where its number is not known. A name is a number, and two
that are equal stand for equal data: each is made of what an instruction does and of the names of
what it does that with. 0 is the name of what cannot be told.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.effects import Gathers
from tilesim.ir.op import Rearranges
from tilesim.sim.machine.access import EVERY, ONE_OF_SEVERAL, Left
from tilesim.sim.machine.errors import FAULTS
from tilesim.sim.machine.lanes import FULL, Lanes, mask_array, mask_bits, shuffled_from
from tilesim.sim.machine.unknown import Open, Unknown
from tilesim.sim.observers.races import RaceDetector

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.executable import Leaf, Making, Operand
    from tilesim.sim.machine.footprint import Footprint
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.memory import GlobalMemory, Memory
    from tilesim.sim.machine.tickets import Tickets
    from tilesim.sim.machine.warp import Agent


class Told:
    """The names of what the 32 lanes of a warp hold; of equal names there is one, so that its
    identity tells them."""

    __slots__ = ("lanes",)

    def __init__(self, lanes: NDArray[np.int64]) -> None:
        self.lanes = lanes


class Telling:
    """Gives names."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._told: dict[bytes, Told] = {}
        self._made: dict[Hashable, Told] = {}
        #: what cannot be told, in any lane
        self.nothing = self.of([0] * 32)

    def number(self, what: Hashable) -> int:
        """A number for that alone, from 1 on."""
        return self._numbers.setdefault(what, len(self._numbers) + 1)

    def of(self, lanes: Sequence[int] | NDArray[np.int64]) -> Told:
        """These names."""
        array = np.asarray(lanes, dtype=np.int64)
        name = array.tobytes()
        known = self._told.get(name)
        if known is None:
            known = self._told[name] = Told(array)
        return known

    def each(self, lanes: Sequence[Hashable]) -> Told:
        """The names of what is told in each lane by one of these."""
        return self.of([self.number(lane) for lane in lanes])

    def value(self, value: Any) -> Told:
        """The names of a register's value that is known: a number, or one per lane."""
        if type(value) is int:
            found = self._made.get(value)
            if found is None:
                found = self._made[value] = self.each([_named(value)] * 32)
            return found
        if type(value) is Unknown:
            return self.nothing
        held = mask_array(value.bits) if type(value) is Lanes else np.asarray(value)
        return self.each([_named(one) for one in np.broadcast_to(held, 32)])

    def computed(self, what: Hashable, parts: Sequence[Told], *, symmetric: bool = False) -> Told:
        """The names of what each lane computes of ``parts`` by itself; ``symmetric``: of two,
        whichever comes first."""
        key = (what, *map(id, parts))
        found = self._made.get(key)
        if found is None:
            rows = np.sort(rows_of(parts)) if symmetric and len(parts) == 2 else rows_of(parts)
            each = [self.number((what, r.tobytes())) if r.all() else 0 for r in rows]
            found = self._made[key] = self.of(each)
        return found

    def gathered(self, what: Hashable, parts: Sequence[Told], mask: int) -> Told:
        """The names of what each lane of a mask gets of what all of them have."""
        key = (what, mask, *map(id, parts))
        found = self._made.get(key)
        if found is None:
            rows = rows_of(parts)[mask_array(mask)]
            whole = self.number((what, mask, rows.tobytes())) if rows.all() else 0
            each = [self.number((what, whole, lane)) if whole else 0 for lane in range(32)]
            found = self._made[key] = self.of(each)
        return found

    def merged(self, mask: int, one: Told, other: Told) -> Told:
        """The first in the lanes of a mask, the other in the rest."""
        if mask == FULL or one is other:
            return one
        return self.of(np.where(mask_array(mask), one.lanes, other.lanes))


def rows_of(parts: Sequence[Told]) -> NDArray[np.int64]:
    """A row of names for each lane."""
    if not parts:
        return np.ones((32, 1), dtype=np.int64)  # nothing that could be something else
    return np.stack([part.lanes for part in parts], axis=1)


def _named(value: Any) -> Hashable:
    """A number, told apart from any other: zero has two signs, and no number is its own."""
    if isinstance(value, float | np.floating):
        return "float", np.float64(value).tobytes()
    if isinstance(value, np.generic) and value.dtype.kind == "V":
        return str(value.dtype), value.tobytes()
    return "integer", int(value)


# ------------------------------------------------------------------ names of what lanes hold


class _Registers(list[Any]):
    """The registers of a warp, with names of what some of them hold.

    An instruction that sets a register takes its name away, so that none outlives what it stands
    for; the instructions that are followed give it another one.
    """

    def __init__(self, registers: Sequence[Any]) -> None:
        super().__init__(registers)
        self.names: dict[int, Told] = {}

    def __setitem__(self, slot: Any, value: Any) -> None:
        if type(slot) is int:
            self.names.pop(slot, None)
        else:
            self.names.clear()
        super().__setitem__(slot, value)


class NamingDetector(RaceDetector):
    """Knows besides what the stores in `Facts.named` leave.

    The instructions in `Facts.makings` are followed: what they set is named by what they do and by
    the names of what they do it with, and what they load by where from, and how often that has been
    written. So equal names are of equal data, however often a loop has turned.
    """

    def __init__(
        self,
        machine: Core,
        warps: Sequence[Agent],
        shared: Sequence[Memory],
        global_: GlobalMemory,
        tickets: Tickets,
    ) -> None:
        super().__init__(machine, warps, shared, global_, tickets)
        self._telling = Telling()
        #: of registers that nothing has set
        self._unset = self._telling.each(["unset"] * 32)
        #: by bytes: how often some of them have been written
        self._versions: dict[Footprint, int] = {}
        self._written: set[Memory] = set()
        #: what the instruction that is followed has read so far
        self._seen: list[_Seen] | None = None
        #: whether a part of a store is looked at
        self._inside = False
        for warp in warps:
            warp.registers = _Registers(warp.registers)

    # ------------------------------------------------------------------ what is accessed

    def read(
        self, memory: Memory, footprint: Footprint, access: Access, clock: Clock,
        *, again: bool = False,
    ) -> None:  # fmt: skip
        """See `RaceDetector.read`."""
        seen, self._seen = self._seen, None  # parts of it are no reads of their own
        if seen is not None:
            seen.append(_Seen(self._contents(memory, footprint, access), footprint, access))
        super().read(memory, footprint, access, clock, again=again)
        self._seen = seen

    def knows_writes(self, near: Sequence[Footprint], clock: Clock) -> bool:
        """See `RaceDetector.knows_writes`; here each warp is asked what it reads."""
        return self._seen is None and super().knows_writes(near, clock)

    def write(self, memory: Memory, footprint: Footprint, access: Access, clock: Clock) -> None:
        """See `RaceDetector.write`."""
        data = self.machine.plan.named.get(access.op.number)
        if data is not None and access.stored is None and not self._inside:
            access.stored = self._name(data, footprint, access)
        self._written.add(memory)
        for other in footprint.overlaps:
            self._versions[other] = self._versions.get(other, 0) + 1
        inside, self._inside = self._inside, True
        super().write(memory, footprint, access, clock)
        self._inside = inside

    def _contents(self, memory: Memory, footprint: Footprint, access: Access) -> int:
        """A number for what memory holds there now; 0 if that cannot be told."""
        # once addresses stand for any in a tensor, one does not tell what is read there
        if self.machine.outcome.in_bounds or access.among == EVERY:
            return 0
        if memory.mbarriers is None and memory.tracked:
            return 0
        of: Hashable = memory
        if memory in self._written or memory.mbarriers is not None:
            of = footprint, self._versions.get(footprint, 0)
        return self._telling.number(of)

    # ------------------------------------------------------------------ instructions

    def execute(self, making: Making, step: Callable[[Any], bool | None], w: Agent) -> bool | None:
        """An instruction that is followed: ``step``, and what the registers hold that it sets."""
        registers = w.registers
        if (
            not isinstance(registers, _Registers)
            or w.may_access is not None
            or w.havoc_region is not None
        ):
            stopped = step(w)
            if isinstance(w.registers, _Registers):
                for slot in making.slots:
                    w.registers.names.pop(slot, None)
            return stopped
        mask, may_access = self._executes(making, w) if making.known else (0, None)
        parts, places = self._parts(making.operands, w), self._places(making, w)
        before = [self._now(registers, slot) for slot in making.slots]
        unset = [registers[slot] is None for slot in making.slots]
        keeps = making.keeps is None or self._keeps(making.keeps, w)
        source = self._source(making, w)
        self._seen = [] if making.loads else None
        try:
            stopped = step(w)
        finally:
            seen, self._seen = self._seen or [], None
        for place, slot in enumerate(() if stopped else making.slots):
            new, old = self._telling.nothing, before[place]
            if making.known and may_access is not None and places is not None:
                kept = making.partly or (making.product and keeps)
                sources = [*parts, *places, *[self._unset if unset[place] else old] * kept]
                new = self._made(making, place, sources, seen, mask, source, w.number)
                if may_access:
                    new = self._telling.computed(
                        (making.number, "perhaps"), [*may_access, new, old]
                    )
                new = self._telling.merged(mask, new, old)
            registers.names[slot] = new
        return stopped

    def _made(
        self, making: Making, place: int, parts: list[Told], seen: list[_Seen], mask: int,
        source: NDArray[np.int64] | None, warp: int,
    ) -> Told:  # fmt: skip
        """What a lane gets in one of the registers that an instruction sets."""
        telling, what = self._telling, (making.number, place)
        if making.product:
            if not all(s.contents for s in seen):
                return telling.nothing
            read = tuple((s.contents, s.footprint) for s in seen)
            return telling.gathered((what, warp % 4, read), parts, FULL)
        if making.loads:
            where, there = self._loaded(seen, mask)
            if making.gathers:
                return telling.gathered(what, [*parts, where, there], mask)
            return telling.computed(what, [*parts, where, there])
        if making.moves and len(parts) == 1:
            return parts[0]
        if making.shuffles is not None:
            return self._shuffled(making, parts, mask, source)
        if making.gathers:
            return telling.gathered(what, parts, mask)
        return telling.computed(what, parts, symmetric=making.symmetric)

    def _source(self, making: Making, w: Agent) -> NDArray[np.int64] | None:
        """The lane from which each lane gets an operand; None if that is not known."""
        if making.shuffles is None or making.lane is None or making.lane.evaluate is None:
            return None
        by = None if self._differs(making.lane, w) else self._evaluated(making.lane, w)
        return None if by is None or type(by) is Unknown else shuffled_from(making.shuffles, by)

    def _shuffled(
        self, making: Making, parts: list[Told], mask: int, source: NDArray[np.int64] | None
    ) -> Told:
        """What each lane gets of another one that executes the shuffle."""
        if source is None:
            return self._telling.nothing
        (value,) = parts if len(parts) == 1 else [self._telling.computed(making.number, parts)]
        there = mask_array(mask)[source]
        return self._telling.of(np.where(there, value.lanes[source], 0))

    def _loaded(self, seen: list[_Seen], mask: int) -> tuple[Told, Told]:
        """Where from each lane has loaded, and what was there."""
        addresses, contents = np.zeros(32, dtype=np.int64), np.zeros(32, dtype=np.int64)
        for one in seen:
            starts = _starts(one.footprint, one.access)
            # lanes that load for each other: the bytes that all of them name, in their order
            together = starts is None and len(seen) == 1
            lanes = mask_array(FULL if together else one.access.lanes)
            addresses[lanes] = self._telling.number(one.footprint) if starts is None else starts + 1
            contents[lanes] = one.contents
        contents[~mask_array(mask)] = 0
        return self._telling.of(addresses), self._telling.of(contents)

    def _executes(self, making: Making, w: Agent) -> tuple[int, list[Told] | None]:
        """The lanes that may execute an instruction, and what tells whether they do, if that is not
        known; None if it cannot be told either."""
        guard = making.guard
        if guard is None:
            return w.mask, []
        if guard.evaluate is not None:
            if self._differs(guard, w) is not None:
                return w.mask, None
            held = self._evaluated(guard, w)
            if type(held) is Lanes:
                return w.mask & held.bits, []
            if held is not None and type(held) is not Unknown:
                return w.mask & mask_bits(np.broadcast_to(np.asarray(held) != 0, 32)), []
        if making.loads or making.gathers:
            return w.mask, None
        return w.mask, [self._leaf(leaf, w) for leaf in guard.leaves]

    def _keeps(self, operand: Operand, w: Agent) -> bool:
        """Whether a product may add to what is there."""
        if operand.evaluate is None or self._differs(operand, w) is not None:
            return True
        value = self._evaluated(operand, w)
        return value is None or type(value) is not int or bool(value)

    def _places(self, making: Making, w: Agent) -> list[Told] | None:
        """What differs between clusters of where an instruction reads: the addresses in this one
        are told by themselves."""
        found = []
        for operand in making.places:
            if operand.evaluate is None:
                return None
            differing = self._differs(operand, w)
            if differing is not None:
                found.append(self._telling.each(differing))
        return found

    # ------------------------------------------------------------------ operands

    def _parts(self, operands: Sequence[Operand], w: Agent) -> list[Told]:
        """What tells what operands are."""
        return [told for operand in operands for told in self._operand(operand, w)]

    def _operand(self, operand: Operand, w: Agent) -> list[Told]:
        if operand.evaluate is not None:
            told = self._value(operand, w)
            if told is not None:
                return [told]
        return [self._leaf(leaf, w) for leaf in operand.leaves]

    def _leaf(self, leaf: Leaf, w: Agent) -> Told:
        if leaf.special:
            return self._telling.nothing
        if leaf.held is not None:
            told = self._value(leaf.held, w)
            if told is not None:
                return told
        return self._now(w.registers, leaf.slot)

    def _now(self, registers: Any, slot: int) -> Told:
        """The name of what a register holds."""
        found: Told | None = registers.names.get(slot)
        return self._telling.nothing if found is None else found

    def _value(self, operand: Operand, w: Agent) -> Told | None:
        """The names of a value that is known, in all clusters that take the same steps."""
        differing = self._differs(operand, w)
        if differing is not None:
            return self._telling.each(differing)
        value = self._evaluated(operand, w)
        return None if value is None or type(value) is Unknown else self._telling.value(value)

    def _evaluated(self, operand: Operand, w: Agent) -> Any:
        assert operand.evaluate is not None
        try:
            value = operand.evaluate(w)
        except FAULTS:  # of the instruction, which is about to raise it
            return None
        return None if type(value) is Open else value

    def _differs(self, operand: Operand, w: Agent) -> Sequence[Hashable] | None:
        """What tells the values of an operand in all clusters, for each lane; None if all have
        what the one that runs has."""
        return None if w.elsewhere is None else w.elsewhere.value_names(operand)

    # ------------------------------------------------------------------ stores

    def _name(self, data: Sequence[Operand], footprint: Footprint, access: Access) -> Hashable:
        """What a store leaves; None if that is not known."""
        w = access.warp
        if (
            not isinstance(w.registers, _Registers)
            or w.may_access is not None
            or w.havoc_region is not None
        ):
            return None
        gathers = _gathers(access)
        lanes = mask_array(FULL if gathers else access.lanes)
        of = rows_of(self._parts(data, w))[lanes]
        if not of.all():
            return None
        starts = _starts(footprint, access)
        if starts is not None:
            return _by_place(footprint, starts, of)
        if footprint.common and not _agree(footprint, access, of):
            return ONE_OF_SEVERAL
        return footprint, of.shape, of.tobytes()


class _Seen:
    """What an instruction has read: a number for what was there, and where."""

    __slots__ = ("access", "contents", "footprint")

    def __init__(self, contents: int, footprint: Footprint, access: Access) -> None:
        self.contents = contents
        self.footprint = footprint
        self.access = access


def _gathers(access: Access) -> bool:
    return any(isinstance(effect, Gathers) for effect in access.op.effects())


def _starts(footprint: Footprint, access: Access) -> NDArray[np.int64] | None:
    """Where what each lane accesses begins; None if lanes do not access each its own."""
    count = access.lanes.bit_count()
    if _gathers(access) or footprint.addresses.size % count:
        return None
    return footprint.addresses.reshape(count, -1)[:, 0]


def _by_place(footprint: Footprint, starts: NDArray[np.int64], of: NDArray[np.int64]) -> Hashable:
    """What lanes leave, each at its place, if those at one place leave the same; None if pieces
    may overlap in part."""
    if (starts % (footprint.itemsize * (footprint.addresses.size // len(starts)))).any():
        return None
    left: dict[int, bytes] = {}
    for start, row in zip(starts.tolist(), of, strict=True):
        if left.setdefault(start, row.tobytes()) != row.tobytes():
            return ONE_OF_SEVERAL
    return Left(left)


def _agree(footprint: Footprint, access: Access, of: NDArray[np.int64]) -> bool:
    """Whether lanes of ``stmatrix`` that store rows to one place store the same there.

    The rows are of what all lanes have; here that is numbers which tell by their halves what they
    are made of, and in which matrix.
    """
    if not isinstance(access.op, Rearranges):
        return False
    _, alike = np.unique(of, axis=0, return_inverse=True)
    halves = [2 * (alike.reshape(32) + 32 * i) for i in range(access.op.count)]
    rows = access.op.rows([low | (low + 1) << 16 for low in halves])[mask_array(access.lanes)]
    first: dict[int, bytes] = {}
    starts = footprint.addresses.reshape(len(rows), -1)[:, 0]
    return all(
        first.setdefault(start, row.tobytes()) == row.tobytes()
        for start, row in zip(starts.tolist(), rows, strict=True)
    )
