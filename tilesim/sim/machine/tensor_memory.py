"""Tensor memory: cells, allocations, and the order of tcgen05 operations (SEMANTICS G.2-G.6).

Clock components of a warp, all counts: completed mma/cp/shift (group ``tcgen05``), completed loads
(``tcgen05.ld``) and stores (``tcgen05.st``), and operations issued (``tcgen05.order``). Where
several lanes issue mma, cp or shift, each has two of its own for those (`Issued`). Row G holds what
a release and an acquire hand over. Row S holds what the tcgen05 fences hand over, for which a
relaxed hand-off is enough (G24): completions of loads and stores and the issue count get there by
``fence::before_thread_sync``, completions of the others by ``tcgen05.commit``; what a thread may
rely on is row S at its last ``fence::after_thread_sync`` (`Issuer.seen`).

Which of the columns that are free an alloc gets is chance. So the addresses it returns here name
the allocation and no place: a kernel that makes one up, goes on using one of columns that were
freed, or steps from one allocation into another is found out wherever the columns lie. Only an
allocation of all columns has an address that is certain, 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import DType, numpy_dtype
from tilesim.ir.tensor_memory import COLUMNS, LANES
from tilesim.records import dataclass, field
from tilesim.sim.machine.clock import GENERIC
from tilesim.sim.machine.errors import BarrierError, Side
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.warp import Agent, Awaited, Positions

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.labels import Place

AccessKind = Literal["mma", "cp", "shift", "ld", "st", "dealloc"]
#: the group whose component counts the completions of a kind
GROUP: dict[AccessKind, str] = {
    "mma": "tcgen05", "cp": "tcgen05", "shift": "tcgen05", "ld": "tcgen05.ld", "st": "tcgen05.st",
    "dealloc": "tcgen05",
}  # fmt: skip
#: an address is lane << 16 | tag << 10 | column of the allocation, which has less than half of 1024
_TAG, _MIDDLE, _TAGS = 10, 512, 62


@dataclass(eq=False, slots=True)
class TmemAccess:
    """One access of an operation to a box of cells.

    ``order`` counts the warp's operations, ``component`` and ``sequence`` tell its completion;
    ``name`` is the operand's; ``accumulator`` identifies D and the shape of an mma; ``followers``
    are operations that execute after it in the same pipeline, the first of every thread, with the
    switches of `practice` which that needs. ``lanes`` issued it at ``tick`` of the component
    ``issuer``; ``queue`` publishes that it has been issued.
    """

    warp: Agent
    op: Op
    kind: AccessKind
    write: bool
    tick: int
    order: int
    component: int
    sequence: int
    name: str = "tmem"
    accumulator: object = None
    followers: list[tuple[TmemAccess, tuple[str, ...]]] = field(default_factory=list)
    issuer: int = 0
    lanes: int = FULL
    queue: int = -1


class Cells:
    """A box of lanes and columns, with the accesses that are still relevant to it.

    ``columns`` are counted from the beginning of ``allocation``, the one that the address names.
    """

    __slots__ = (
        "allocation", "columns", "covers", "initialised", "lanes", "name", "overlaps", "reads",
        "writes",
    )  # fmt: skip

    def __init__(
        self, lanes: tuple[int, int], columns: tuple[int, int], allocation: Allocation | None
    ) -> None:
        self.lanes = lanes
        self.columns = columns
        self.allocation = allocation
        first = 0 if allocation is None else allocation.first
        last = first + columns[1] - 1
        self.name = f"lanes {lanes[0]}..{lanes[1] - 1} columns {first + columns[0]}..{last}"
        self.overlaps: list[Cells] = []
        self.covers: list[Cells] = []
        self.writes: list[TmemAccess] = []
        self.reads: dict[tuple[int, int, AccessKind], TmemAccess] = {}
        self.initialised = False

    @property
    def place(self) -> tuple[slice, slice]:
        """The lanes and columns of the tensor memory."""
        first = 0 if self.allocation is None else self.allocation.first
        return slice(*self.lanes), slice(first + self.columns[0], first + self.columns[1])

    def meets(self, other: Cells) -> bool:
        """True if the two share a cell."""
        (a, b), (c, d) = self.lanes, other.lanes
        (e, f), (g, h) = self.columns, other.columns
        return a < d and c < b and e < h and g < f

    def contains(self, other: Cells) -> bool:
        """True if ``other`` lies inside."""
        (a, b), (c, d) = self.lanes, other.lanes
        (e, f), (g, h) = self.columns, other.columns
        return a <= c and d <= b and e <= g and h <= f


@dataclass(eq=False, slots=True)
class Allocation:
    """Columns of one alloc; ``visible_to`` are warps that are known to come after it.

    ``first`` is where they lie, ``tag`` what addresses of them carry (0: all columns). ``partner``
    is the warp that made the other half of a pair's alloc, which is one act of both (G9).
    """

    first: int
    columns: int
    tag: int
    warp: Agent
    op: Op
    at: Positions
    visible_to: set[int] = field(default_factory=set)
    partner: tuple[Agent, Positions] | None = None
    freed: Side | None = None

    @property
    def address(self) -> int:
        """What tcgen05.alloc returns."""
        return self.tag << _TAG


class TmemPool(Awaited):
    """Which columns of an SM's tensor memory are free; shared by resident CTAs (G6)."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self._taken = bytearray(COLUMNS)
        #: sizes of the live allocations
        self._sizes: list[int] = []
        #: the last alloc or dealloc, whose order the result of the next one depends on
        self.last: Positions | None = None

    @property
    def free(self) -> int:
        """Number of free columns."""
        return COLUMNS - sum(self._taken)

    def fits(self, first: int, columns: int) -> bool:
        """True if these columns are free."""
        return not any(self._taken[first : first + columns])

    def mark(self, first: int, columns: int, *, taken: bool) -> None:
        """Takes columns or gives them back."""
        self._taken[first : first + columns] = bytes([taken]) * columns
        (self._sizes.append if taken else self._sizes.remove)(columns)

    def always_fits(self, columns: int) -> bool:
        """True if an alloc is granted wherever the columns in use lie, each at a multiple of its
        own size: then one of them is in the way of more than one such range if it is larger."""
        return sum(max(columns, size) for size in self._sizes) + columns <= COLUMNS


def fitting(pools: list[TmemPool], columns: int) -> int | None:
    """The first of the aligned ranges that are free in all ``pools``, of those in the largest free
    one: what is left fits less."""
    size = COLUMNS
    while size >= columns:
        for first in range(0, COLUMNS, size):
            if all(p.fits(first, size) for p in pools):
                return first
        size //= 2
    return None


def free_tag(places: list[Tmem], columns: int) -> int:
    """What addresses of a new allocation carry: nothing that those in use do."""
    if columns == COLUMNS:
        return 0
    last = max(place.last_tag for place in places)
    used = {a.tag for place in places for a in place.live}
    return next(t for i in range(_TAGS) if (t := (last + i) % _TAGS + 1) not in used)


@dataclass(frozen=True, slots=True)
class Request:
    """A warp of a CTA pair that waits for its partner's alloc, dealloc or relinquish (G9).

    ``first`` is the address that dealloc frees.
    """

    warp: Agent
    op: Op
    first: int = 0
    columns: int = 0


class Relinquished(NamedTuple):
    """A ``tcgen05.relinquish_alloc_permit``: where its warp was in time, and how many allocs and
    deallocs its CTA had made."""

    warp: Agent
    op: Op
    component: int
    tick: int
    made: tuple[int, int]


class Tmem:
    """The tensor memory of one CTA."""

    def __init__(self, cta: Place, pool: TmemPool) -> None:
        self.cta = cta
        self.pool = pool
        self.cells = np.zeros((LANES, COLUMNS), dtype=np.uint32)
        self.written = np.zeros((LANES, COLUMNS), dtype=np.bool_)
        self.live: list[Allocation] = []
        self.dead: list[Allocation] = []
        self.latest: Allocation | None = None
        self.relinquished: Relinquished | None = None
        self.request: Request | None = None
        #: the latest allocation with a tag, and the boxes that were addressed with it
        self._tagged: dict[int, Allocation] = {}
        self._boxes: dict[int, dict[tuple[int, int, int, int], Cells]] = {}

    @property
    def last_tag(self) -> int:
        """The latest tag; CTAs of a cluster begin apart, as one's address is none of another's."""
        return self.cta.rank * 17 % _TAGS if self.latest is None else self.latest.tag

    def box(self, lane: int, lanes: int, column: int, columns: int) -> Cells:
        """The cells at the ``column`` of an address, related to all others on first use."""
        tag = column + _MIDDLE >> _TAG
        boxes = self._boxes.setdefault(tag, {})
        key = (lane, lanes, column, columns)
        known = boxes.get(key)
        if known is None:
            first = column - (tag << _TAG)
            if lane < 0 or lane + lanes > LANES or first + columns > COLUMNS:
                raise BarrierError(
                    "out-of-bounds",
                    f"lanes {lane}..{lane + lanes - 1}, columns {first}..{first + columns - 1} "
                    f"of tensor memory, which has {LANES} lanes and {COLUMNS} columns (G3)",
                    "compute the address from the one that tcgen05.alloc wrote",
                )
            allocation = self._tagged.get(tag)
            known = Cells((lane, lane + lanes), (first, first + columns), allocation)
            boxes[key] = known
            self._relate(known, boxes.values())
        return known

    @staticmethod
    def _relate(new: Cells, boxes: Iterable[Cells]) -> None:
        for other in boxes:
            if new.meets(other):
                new.overlaps.append(other)
                if new.contains(other):
                    new.covers.append(other)
                if other is not new:
                    other.overlaps.append(new)
                    if other.contains(new):
                        other.covers.append(new)

    def read(self, box: Cells, dtype: DType, *, packed: bool = True) -> NDArray[Any]:
        """The elements of a box, a row per lane; not ``packed``: one in the low bits of a cell."""
        part = np.ascontiguousarray(self.cells[box.place])
        values = part.view(numpy_dtype(dtype))
        return values if packed else values[:, :: values.shape[1] // part.shape[1]]

    def write(self, box: Cells, values: NDArray[Any], *, packed: bool = True) -> None:
        """Stores elements of any type, a row per lane; not ``packed``: the low bits of cells."""
        part = self.cells[box.place]
        if packed:
            part[...] = np.ascontiguousarray(values).view(np.uint32)
            return
        cells = np.ascontiguousarray(part).view(values.dtype)
        cells[:, :: cells.shape[1] // part.shape[1]] = values
        part[...] = cells.view(np.uint32)

    def initialise(self, box: Cells) -> None:
        """Records that the cells now hold something."""
        if not box.initialised:
            box.initialised = True
            self.written[box.place] = True

    def is_initialised(self, box: Cells) -> bool:
        """True if every cell has been written since it was allocated."""
        if not box.initialised:
            box.initialised = bool(self.written[box.place].all())
        return box.initialised

    # ------------------------------------------------------------------ allocations

    def take(
        self, first: int, columns: int, tag: int, warp: Agent, op: Op, partner: Agent | None = None
    ) -> Allocation:
        """Makes columns an allocation of ``warp``; their contents are undefined."""
        self.pool.mark(first, columns, taken=True)
        new = Allocation(first, columns, tag, warp, op, warp.positions, {warp.index})
        if partner is not None:
            new.partner = (partner, partner.positions)
        self.latest = self._tagged[tag] = new
        self.live.append(new)
        self.written[:, first : first + columns] = False
        self._boxes.pop(tag, None)
        return new

    def give_back(self, allocation: Allocation, side: Side) -> None:
        """Ends an allocation."""
        allocation.freed = side
        self.live.remove(allocation)
        self.dead.append(allocation)
        self.pool.mark(allocation.first, allocation.columns, taken=False)

    def require_allocated(self, warp: Agent, op: Op, box: Cells) -> None:
        """`BarrierError` unless ``warp`` may use the allocation the box lies in (G4, G8)."""
        allocation = box.allocation
        first, end = box.columns
        if (
            allocation is None
            or allocation.freed is not None
            or first < 0
            or end > allocation.columns
        ):
            raise self._not_allocated(warp, op, box)
        if warp.index not in allocation.visible_to:
            self._check_visible(warp, op, allocation)

    def _check_visible(self, warp: Agent, op: Op, allocation: Allocation) -> None:
        if not self._comes_after(warp, op, allocation):
            raise BarrierError(
                "tmem-lifetime",
                f"{op.mnemonic} of {warp} uses columns whose tcgen05.alloc at {allocation.op.loc} "
                "is not ordered before it (G4)",
                "put a __syncthreads (or another hand-over) between the alloc and the first use, "
                "and read the address from shared memory after it",
                Side(allocation.warp, allocation.op),
            )
        allocation.visible_to.add(warp.index)

    def _comes_after(self, warp: Agent, op: Op, allocation: Allocation) -> bool:
        """Whether the alloc is handed on to ``warp``: with what is in memory, or as operations are
        that its warp issues later, whose completion a commit tells (G23)."""
        at, made = allocation.at, allocation.warp
        if allocation.partner is not None:
            at += allocation.partner[1]
        if any(warp.rows(component)[GENERIC] >= tick for component, tick in at):
            return True
        assert warp.tcgen05 is not None
        if warp.tcgen05.saw(
            warp.mask, lambda clock: any(clock[c] >= tick for c, tick in at), each=True
        ):
            return True
        known = any(warp.clock[c] >= tick for c, tick in at)
        return known and made.machine.accepts("U20", op, allocation.op)

    def _not_allocated(self, warp: Agent, op: Op, box: Cells) -> BarrierError:
        allocation = box.allocation
        text, other = f"{op.mnemonic} of {warp} uses {box.name} of tensor memory, ", None
        fix = "use only columns of a live tcgen05.alloc, by its address"
        if allocation is None and self.live:
            text += "an address that no tcgen05.alloc returned: which columns it gives is not "
            text += "defined, but where it gives all of them (G4)"
            fix = "compute the address from the one that tcgen05.alloc wrote"
            other = Side(self.live[-1].warp, self.live[-1].op)
        elif allocation is None:
            text += "which no tcgen05.alloc has given (G4)"
        elif allocation.freed is not None:
            text += f"which were freed at {allocation.freed.op.loc} (G8)"
            other = allocation.freed
        else:
            last = allocation.first + allocation.columns - 1
            text += f"but the allocation is columns {allocation.first}..{last} (G4)"
            other = Side(allocation.warp, allocation.op)
        return BarrierError("tmem-lifetime", text, fix, other)

    def named(self, address: int, columns: int, warp: Agent, op: Op) -> Allocation:
        """The allocation a dealloc names; `BarrierError` if there is none (G8)."""
        for allocation in self.live:
            if (allocation.address, allocation.columns) == (address, columns):
                if warp.index not in allocation.visible_to:
                    self._check_visible(warp, op, allocation)
                return allocation
        gone = [a for a in self.dead if (a.address, a.columns) == (address, columns)]
        held = ", ".join(f"{a.columns} columns" for a in self.live) or "none"
        raise BarrierError(
            "tmem-lifetime",
            f"tcgen05.dealloc of {columns} columns at {address:#x} by {warp}, "
            + (
                f"which were freed before, at {gone[-1].freed.op.loc} (G8)"
                if gone and gone[-1].freed
                else f"which tcgen05.alloc did not return (the CTA holds {held}) (G8)"
            ),
            "free what tcgen05.alloc returned, with the same number of columns, once",
            gone[-1].freed if gone else None,
        )
