"""Accesses to memory: records of them, and the sets of bytes that they touch, interned per memory
so that overlap is computed once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tilesim.arith.byte_set import ByteSet, Integers
from tilesim.findings.finding import Named
from tilesim.ir.effects import Reads
from tilesim.ir.frozen import cached
from tilesim.records import dataclass, field
from tilesim.sim.machine.clock import NEVER, Clock
from tilesim.sim.machine.moving_boxes import Box, BoxIndex, Corners, Family, corners

if TYPE_CHECKING:
    from tilesim.ir.declarations import Unsaid
    from tilesim.ir.fragments import Held
    from tilesim.ir.mir import Mir
    from tilesim.ir.op import Op
    from tilesim.ir.ops.fence import FenceScope
    from tilesim.sim.machine.unknown import Unknown
    from tilesim.sim.machine.warp import Agent

#: see `Access.among`
EVERY = -1
#: `Access.stored` of lanes that store different numbers in one place: one of them stays
ONE_OF_SEVERAL = "one of several numbers"

#: records of one set of bytes from which on not all are looked at one by one
MANY = 16
#: footprints of a memory from which on those without records are looked for
_MANY = 1024
#: footprints of a memory up to which each new one is compared with all of them
_FEW = 96
#: runs of bytes that are looked for one by one: any, and those far apart (each lane in its row)
_PIECES, _APART = 4, 32
#: how much longer than its bytes the stretch is on which they lie far apart
_SPARSE = 16
#: bytes of memory of which is known whether footprints have them, in one number
_PAGE = 1 << 16
_ALL = (1 << _PAGE) - 1


@dataclass(frozen=True, eq=False, slots=True)
class Left:
    """What lanes leave in memory: by the address where each piece begins, a name of what is there.
    Pieces are of one size and lie at multiples of it."""

    pieces: Mapping[int, bytes]


def leave_the_same(one: Hashable, other: Hashable) -> bool:
    """Whether two of `Access.stored`, by one instruction, are the same wherever they overlap."""
    if isinstance(one, Left) and isinstance(other, Left):
        return all(other.pieces.get(at, name) == name for at, name in one.pieces.items())
    return one == other and one != ONE_OF_SEVERAL


@dataclass(eq=False, slots=True)
class Access:
    """An access by ``warp`` (or an asynchronous operation it issued).

    It happens before an observer whose clock has ``component`` at ``tick`` or later. For an
    asynchronous operation (``in_flight`` until then) the component is the barrier phase or group
    whose completion publishes it. ``scope``: of a relaxed or stronger scalar access, an atomic or a
    reduction; two of them do not race if their scopes include each other's thread (H2, H6). None
    for a weak access.
    """

    warp: Agent
    op: Op
    component: int
    tick: int
    asynchronous: bool
    write: bool
    scope: FenceScope | None = None
    engine: bool = False
    #: those that make it
    lanes: int = 0xFFFFFFFF
    #: lanes of which each touches its own share of the footprint's addresses, in their order;
    #: `EVERY`: each of ``lanes`` touches all of them; 0: it is not known which touches what
    among: int = 0
    #: if not 0, these lanes take so many bytes of the footprint at a time, in turn, or what they
    #: hold of a fragment; each what is not known
    piece: int | Held | Unsaid = 0
    #: which collective instruction of a warp of several parts it belongs to, 0 for others
    iteration: int = 0
    #: by component and bytes the first access that came after it and does not stand in for it: of a
    #: write an asynchronous read, and any write (`tilesim.sim.observers.races`)
    later: dict[tuple[int, Footprint], Access] | None = None
    #: of a weak store, to which others by the same instruction need not be ordered (H23): accesses
    #: that it has superseded, which they have to come after all the same, with their footprints
    over: tuple[tuple[Any, Access], ...] = ()
    #: another component that publishes it, and the tick: of a map that a copy reads, and of an
    #: element of a vector that releases
    also: tuple[int, int] | None = None
    #: the number that a weak store leaves in each element, or a name of what it leaves where; None:
    #: that is not known
    stored: Hashable = None
    #: what says whether it is made, if that is not known
    may_access: Unknown | None = None
    #: of a strong write: which one of its machine (`tilesim.sim.machine.word_order`)
    number: int | None = None

    @property
    def wide(self) -> bool:
        """Whether it is strong for all threads of the device, and of the generic proxy."""
        return self.scope in ("gpu", "sys") and not self.asynchronous

    def precedes(self, access: Access, footprint: Footprint) -> None:
        """An access to these bytes came after this one."""
        if self.later is None:
            self.later = {}
        self.later.setdefault((access.component, footprint), access)

    @property
    def bridged(self) -> bool:
        """True for a copy of the generic proxy (cp.async) that once complete is taken to be visible
        to the async proxy: a switch of `practice` (U14)."""
        return self.engine and self.asynchronous

    @property
    def in_flight(self) -> bool:
        """True until the operation's completion is assigned to a phase or group."""
        return self.tick == NEVER


# ------------------- loads through a cache that is not coherent with what the grid writes (H25)

# ``ld.global.nc`` is for memory that is read-only for the duration of the kernel (PTX 9.7.9.9), and
# so are constants and parameters. A store reaches that cache at the end of the kernel only:
# barriers, fences, and acquires order nothing there.


@cached
def reads_noncoherently(op: Op) -> bool:
    """Whether what an instruction reads goes through that cache."""
    return any(isinstance(effect, Reads) and effect.noncoherent for effect in op.effects())


@cached
def has_noncoherent_loads(mir: Mir) -> bool:
    """Whether a program has such loads."""
    return any(effect.noncoherent for _, effect in mir.all_of(Reads))


def noncoherent(access: Access, record: Access) -> bool:
    """Whether one of two accesses to the same bytes is such a load and the other a write."""
    return any(
        not one.write and other.write and reads_noncoherently(one.op)
        for one, other in ((access, record), (record, access))
    )


# ------------------------------------------------------------------ records


#: what records are kept under
K = TypeVar("K", bound=Hashable)


class Records(dict[K, Access]):
    """The accesses to a set of bytes that are still relevant to it, in the order in which they, or
    others of their keys, were made: see `Indexed`."""

    __slots__ = ()

    def keep(self, wanted: Callable[[Access], bool]) -> None:
        """Forgets those that are not ``wanted``."""
        for key in [key for key, record in self.items() if not wanted(record)]:
            del self[key]

    def indexed(self) -> Records[K]:
        """The same as `Indexed`, as there are `MANY`."""
        return Indexed(self)

    def at(self, components: Iterable[int]) -> Iterable[Access]:
        """All at some components, and maybe others."""
        return self.values()

    @property
    def narrow(self) -> Collection[Access]:
        """Those that are not `Access.wide`."""
        return [record for record in self.values() if not record.wide]

    @property
    def numbers(self) -> list[int]:
        """The numbers of those that have one, which grow from record to record."""
        return [record.number for record in self.values() if record.number is not None]

    @property
    def numbered(self) -> tuple[Integers, Integers, Integers]:
        """The same with their components and ticks, of writes that no longer change."""
        found = [(r.number, r.component, r.tick) for r in self.values() if r.number is not None]
        numbers, components, ticks = np.array(found, dtype=np.int64).reshape(-1, 3).T
        return numbers, components, ticks


class Indexed(Records[K]):
    """Records that are found without a look at all others.

    At a word at which all CTAs of a grid count there is one of each of them, as none comes after
    the others in every schedule. All of these are `Access.wide`. So each record is either
    ``narrow`` or among the wide ones at its component, which never changes for a wide one.
    """

    __slots__ = ("_narrow", "_numbered", "_numbers", "_wide")

    def __init__(self, records: Records[K]) -> None:
        super().__init__()
        self._narrow: dict[Access, None] = {}
        self._wide: dict[int, dict[Access, None]] = {}
        self._numbers: list[int] = []
        #: what `numbered` has answered, until a record comes or goes
        self._numbered: tuple[Integers, Integers, Integers] | None = None
        for key, record in records.items():
            self[key] = record

    def _place(self, record: Access) -> dict[Access, None]:
        return self._wide.setdefault(record.component, {}) if record.wide else self._narrow

    def __setitem__(self, key: K, record: Access) -> None:
        if key in self:
            self._drop(self[key])
        super().__setitem__(key, record)
        self._place(record)[record] = None
        self._numbered = None
        if record.number is not None:
            self._numbers.append(record.number)

    def __delitem__(self, key: K) -> None:
        self._drop(self[key])
        super().__delitem__(key)

    def _drop(self, record: Access) -> None:
        del self._place(record)[record]
        self._numbered = None
        if record.number is not None:
            del self._numbers[bisect_left(self._numbers, record.number)]

    def clear(self) -> None:
        """Forgets all."""
        super().clear()
        self._narrow.clear()
        self._wide.clear()
        self._numbers.clear()
        self._numbered = None

    def indexed(self) -> Records[K]:
        """These records."""
        return self

    def at(self, components: Iterable[int]) -> Iterable[Access]:
        """The wide ones at some components, and all that are narrow."""
        own = (record for component in components for record in self._wide.get(component, ()))
        return chain(self._narrow, own)

    @property
    def narrow(self) -> Collection[Access]:
        """Those that are not `Access.wide`."""
        return self._narrow

    @property
    def numbers(self) -> list[int]:
        """The numbers of those that have one, which grow from record to record."""
        return self._numbers

    @property
    def numbered(self) -> tuple[Integers, Integers, Integers]:
        """The same with their components and ticks, of writes that no longer change."""
        if self._numbered is None:
            self._numbered = super().numbered
        return self._numbered


# ------------------------------------------------------------------ sets of bytes


@dataclass(eq=False, slots=True)
class Footprint:
    """A set of bytes of one memory, with the accesses that are still relevant to it.

    ``name`` and ``place`` are for reports: the array that it is in, and the first index of all its
    elements, if that is one. ``addresses`` are element byte addresses in the shape of a box, given
    or computed on first use; ``start`` is that of the first one before swizzling, which is what
    alignment rules are about. ``points``: the indices of single elements, for a memory that goes by
    elements. ``folded``: some of its elements share bytes with others. ``common``: of some bytes,
    that several lanes access them. ``vector``: each lane accesses one piece of so many bytes, at a
    multiple of that; 0: it is not known. ``grain``: how many bytes a strong access takes at a time,
    of which each element may be a piece. ``overlaps`` are all footprints sharing a byte (itself
    included), in the order in which they were made; ``covers`` those of them that lie inside this
    one.
    """

    name: str
    tensor: str
    bytes: ByteSet
    _addresses: Integers | Callable[[], Integers]
    itemsize: int
    start: int = -1
    points: list[Box] | None = None
    folded: bool = False
    common: bool = False
    grain: int = 0
    place: tuple[str, int | None] = ("", None)
    vector: int = 0
    number: int = 0
    overlaps: list[Footprint] = field(default_factory=list)
    covers: list[Footprint] = field(default_factory=list)
    #: writes each under itself, reads under what makes one stand in for an earlier one
    writes: Records[Access] = field(default_factory=Records)
    reads: Records[Hashable] = field(default_factory=Records)
    barriers: tuple[int, ...] = ()
    initialised: bool = False
    _cells: tuple[int, Integers] | None = None

    def __post_init__(self) -> None:
        if self.start < 0:
            self.start = self.bytes.low
        self.grain = self.grain or self.itemsize
        if not self.place[0]:
            self.place = self.tensor, None

    @property
    def addresses(self) -> Integers:
        """Byte address of every element, in the shape of the box."""
        if not isinstance(self._addresses, np.ndarray):
            self._addresses = self._addresses()
        return self._addresses

    def cells(self, size: int) -> Integers:
        """The addresses, counted in elements of ``size`` bytes."""
        if self._cells is None or self._cells[0] != size:
            self._cells = size, self.addresses // size
        return self._cells[1]

    @property
    def named(self) -> Named:
        """It, as findings name it."""
        return Named(self.name, *self.place)

    def same_elements(self, other: Footprint) -> bool:
        """True if wherever the two share a byte, strong accesses share all that either takes at a
        time there (H2)."""
        apart = self.bytes.low - other.bytes.low
        same = self.itemsize == other.itemsize and apart % self.itemsize == 0
        return same and self.grain == other.grain

    def boxes(self, *, by_element: bool) -> list[Box]:
        """Boxes that together hold the footprint: of element indices, or of byte addresses.

        Where bytes are in many pieces, one box around them has to do: that is cheaper, but where
        the pieces of many footprints lie between each other.
        """
        held = self.bytes
        if not by_element:
            apart = held.high - held.low > _SPARSE * held.nbytes
            if len(held.form.lows) > (_APART if apart else _PIECES):
                return [((held.low, held.high),)]
            return [(pair,) for pair in held.pairs]
        if held.indices is None:
            assert self.points is not None
            return self.points
        return [tuple((span.start, span[-1] + 1) for span in held.indices)]


class Unskippable(Exception):
    """What was skipped matters, after all: the run has to be made without skipping."""


@dataclass(frozen=True, eq=False)
class Past:
    """A family that has been skipped, with the accesses as they are in its last repetition."""

    family: Family
    accesses: tuple[Access, ...]

    def require_over(
        self, access: Access, clock: Clock, rows: dict[tuple[bool, bool], int]
    ) -> None:
        """Raises `Unskippable` unless an access to the same bytes is surely ordered after these."""
        for record in self.accesses:
            row = rows[record.asynchronous, record.write]
            foreign = record.warp.machine is not access.warp.machine or noncoherent(access, record)
            if foreign or access.warp.exchanges or clock[row + record.component] < record.tick:
                raise Unskippable


class FootprintTable:
    """The footprints of one memory: a CTA's shared memory, or a tensor in global memory.

    ``by_element``: they all belong to one tensor whose elements lie apart.
    """

    def __init__(self, label: str, *, by_element: bool = False) -> None:
        self.label = label
        #: in ascending order
        self.barrier_addresses: list[int] = []
        self._by_element = by_element
        self._initialised = ByteSet.interval(0, 0)
        self._written: list[Footprint] = []
        #: what may have been written, with what says so (`tilesim.sim.machine.havoc`)
        self._may_access: dict[Footprint, Unknown] = {}
        #: the tensors of which something has been written
        self.written: set[str] = set()
        #: shortcut from (view, run-time offset) to footprint, for views with one moving offset
        self.by_view: dict[tuple[int, int], Footprint] = {}
        #: the same for all operands of an instruction
        self.by_operands: dict[tuple[int, Hashable], tuple[Footprint, ...]] = {}
        self._overlapping: dict[tuple[Footprint, ...], list[Footprint]] = {}
        self._known: dict[Hashable, Footprint] = {}
        self._alone: dict[Hashable, Footprint] = {}
        #: of those that are related here, once they are many
        self._index: BoxIndex[Footprint] | None = None
        self._steps = 0
        #: by page, the bytes that footprints may have, a bit each; None from the first one on that
        #: is longer than a page
        self._taken: dict[int, int] | None = {}
        #: what repetitions that were skipped have accessed at places of their own, and whether the
        #: records show others as later than they were (`tilesim.sim.affine`)
        self.past: list[Past] = []
        self.skipped = False
        #: where tables are put that have so many footprints that `sweep` is worth its cost
        self.crowded: list[FootprintTable] | None = None
        self._made = 0
        self._limit = _MANY

    def __len__(self) -> int:
        """How many sets of bytes have been named."""
        return len(self._known)

    def get(self, key: Hashable, make: Callable[[], Footprint]) -> Footprint:
        """The footprint for ``key``, made and related to all others on first use."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = make()
            self._relate(known)
        return known

    def alone(self, key: Hashable, make: Callable[[], Footprint]) -> Footprint:
        """A footprint that nothing is recorded on: some of them are remembered."""
        known = self._alone.get(key)
        if known is None:
            if len(self._alone) >= _MANY:
                self._alone.clear()
            known = self._alone[key] = make()
        return known

    def overlapping(self, footprints: tuple[Footprint, ...]) -> list[Footprint]:
        """All footprints that share a byte with some of these."""
        known = self._overlapping.get(footprints)
        if known is None:
            known = [*dict.fromkeys(other for f in footprints for other in f.overlaps)]
            self._overlapping[footprints] = known
        return known

    def _relate(self, new: Footprint) -> None:
        self._overlapping.clear()
        new.number = self._made = self._made + 1
        new.overlaps.append(new)
        new.covers.append(new)
        for other in self._candidates(new):
            if new.bytes.meets(other.bytes):
                new.overlaps.append(other)
                other.overlaps.append(new)
                if new.bytes.contains(other.bytes):
                    new.covers.append(other)
                if other.bytes.contains(new.bytes):
                    other.covers.append(new)
        if self.crowded is not None and len(self._known) > self._limit:
            self._limit *= 2
            self.crowded.append(self)
        barriers = self.barrier_addresses
        near = barriers[bisect_right(barriers, new.bytes.low - 8) :
                        bisect_left(barriers, new.bytes.high)]  # fmt: skip
        if near:
            new.barriers = tuple(a for a in near if _object(a).meets(new.bytes))

    def _candidates(self, new: Footprint) -> list[Footprint]:
        """Those made before ``new`` that may share a byte with it, in their order."""
        alone = not self._by_element and not self._takes(new)
        if len(self._known) <= _FEW:
            if alone:
                return []
            return [f for f in self._known.values() if f is not new]
        if self._index is None:
            self._index = self._indexed(f for f in self._known.values() if f is not new)
        boxes = new.boxes(by_element=self._by_element)
        near = {} if alone else {other.number: other for other in self._index.candidates(boxes)}
        self._index.add(boxes, new)
        return [near[number] for number in sorted(near)]

    def _takes(self, new: Footprint) -> bool:
        """Whether others may have bytes of ``new``, which has them from now on: one that is
        longer than a page may have any."""
        held, met = new.bytes, 0
        if held.high - held.low > _PAGE:
            self._taken = None
        if self._taken is None:
            return True
        page, bits = held.low // _PAGE, held.form.bits << held.low % _PAGE
        while bits:
            known, here = self._taken.get(page, 0), bits & _ALL
            met |= known & here
            self._taken[page] = known | here
            page, bits = page + 1, bits >> _PAGE
        return met != 0

    def _indexed(self, footprints: Iterable[Footprint]) -> BoxIndex[Footprint]:
        index: BoxIndex[Footprint] = BoxIndex()
        for footprint in footprints:
            index.add(footprint.boxes(by_element=self._by_element), footprint)
        return index

    @property
    def steps(self) -> int:
        """Cells that have been looked at or filled to find footprints."""
        return self._steps + (0 if self._index is None else self._index.steps)

    @property
    def recorded(self) -> list[Footprint]:
        """The footprints with accesses."""
        return [f for f in self._known.values() if f.reads or f.writes]

    def corners(self, footprint: Footprint) -> tuple[Corners, Corners]:
        """The boxes that hold a footprint, of elements or bytes."""
        return corners(footprint.boxes(by_element=self._by_element))

    def require_past_over(
        self, footprint: Footprint, access: Access, clock: Clock,
        rows: dict[tuple[bool, bool], int],
    ) -> None:  # fmt: skip
        """Whether an access comes after all that was skipped and conflicts with it; ``rows`` are
        those of the accessor's clock by kind of access.

        Raises:
            Unskippable: that is not known.
        """
        own = Family.at_rest(*self.corners(footprint))
        for past in self.past:
            if (access.write or past.family.write) and past.family.meets(own):
                past.require_over(access, clock, rows)

    def meets_past(self, footprint: Footprint) -> bool:
        """Whether bytes have been accessed in repetitions that were skipped."""
        own = Family.at_rest(*self.corners(footprint)) if self.past else None
        return own is not None and any(past.family.meets(own) for past in self.past)

    def require_all(self) -> None:
        """Raises `Unskippable` if records show accesses as later than they were."""
        if self.skipped:
            raise Unskippable

    @property
    def by_element(self) -> bool:
        """Whether boxes are of elements."""
        return self._by_element

    def add_barrier(self, address: int) -> None:
        """From now on there may be an mbarrier at an address."""
        if address not in self.barrier_addresses:
            insort(self.barrier_addresses, address)
        for footprint in self._known.values():
            if _object(address).meets(footprint.bytes):
                footprint.barriers = tuple(sorted({*footprint.barriers, address}))

    # ------------------------------------------------------------------ what is over

    def sweep(self, settled: Callable[[Access], bool], keep: set[Footprint]) -> None:
        """Drops records that are ``settled``, and footprints that have no others.

        No instruction may be under way that has got a footprint and not used it.
        """
        for footprint in self._known.values():
            for records in (footprint.writes, footprint.reads):
                records.keep(lambda record: not settled(record))
        alive = {f for f in self._known.values() if f.writes or f.reads or f in keep}
        self._overlapping.clear()
        self._gather()
        self._known = {k: f for k, f in self._known.items() if f in alive}
        self.by_view = {k: f for k, f in self.by_view.items() if f in alive}
        self.by_operands = {k: fs for k, fs in self.by_operands.items() if alive.issuperset(fs)}
        for footprint in self._known.values():
            footprint.overlaps[:] = [f for f in footprint.overlaps if f in alive]
            footprint.covers[:] = [f for f in footprint.covers if f in alive]
        self._steps, self._index = self.steps, None
        self._limit = max(_MANY, 2 * len(self._known))

    # ------------------------------------------------------------------ initialised bytes

    def note_write(self, footprint: Footprint, may_access: Unknown | None) -> None:
        """Records that the bytes now hold something, if ``may_access`` does not say whether."""
        if may_access is not None:
            self._may_access.setdefault(footprint, may_access)
        elif not footprint.initialised:
            footprint.initialised = True
            self._written.append(footprint)
            self.written.add(footprint.tensor)

    def may_be_written(self, footprint: Footprint) -> Unknown | None:
        """What says whether some of the bytes have been written, if that is not known."""
        return next(
            (v for other, v in self._may_access.items() if other.bytes.meets(footprint.bytes)), None
        )

    def is_initialised(self, footprint: Footprint, also: Collection[Footprint] = ()) -> bool:
        """True if every byte has been written, or is in one of ``also``."""
        if also:
            held = ByteSet.union([self._gather(), *(other.bytes for other in also)])
            return held.contains(footprint.bytes)
        if any(o.initialised and footprint in o.covers for o in footprint.overlaps):
            footprint.initialised = True
        else:
            footprint.initialised = self._gather().contains(footprint.bytes)
        return footprint.initialised

    def _gather(self) -> ByteSet:
        """All bytes that have been written."""
        if self._written:
            written = (f.bytes for f in self._written)
            self._initialised = ByteSet.union([self._initialised, *written])
            self._written.clear()
        return self._initialised


def _object(address: int) -> ByteSet:
    """The bytes of the mbarrier at ``address``."""
    return ByteSet.interval(address, address + 8)
