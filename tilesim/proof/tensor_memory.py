"""Tensor memory: which cells an operand is, which pairs of accesses are in order, and allocation.

Accesses are asynchronous and in no proxy; what orders them is in SEMANTICS G.5 and G.6. A cell is a
column of a lane, number ``512 * lane + column``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir import effects as fx
from tilesim.ir.tensor_memory import COLUMNS, LANES, TmemLayout
from tilesim.proof.memory import Memory, Record
from tilesim.proof.operands import Drawn, Operands, Warp, lane_of, need
from tilesim.proof.order import Order, Row
from tilesim.proof.rules import NotCovered, Refuted, rule
from tilesim.proof.state import State
from tilesim.records import dataclass, field

Cells = NDArray[np.int64]

#: kinds that are executed in the order in which one thread issues them (G19)
PIPELINED = {("cp", "mma"), ("shift", "mma"), ("mma", "shift")}
#: kinds that one thread issues
ISSUED_BY_ONE = ("mma", "cp", "shift")
#: lanes that one warp can access (G12)
_QUARTER = 32


@dataclass(frozen=True, eq=False)
class TmemAccess:
    """How an access of tensor memory was issued: by which lanes of the cluster, of which warp, the
    first of them at which position. ``form``: of a product, what identifies products of one form
    that accumulate in one place. ``other``: of an allocation by a pair, that of the other CTA.
    ``left``: of a load, the registers that have not been stored; ``stored``: by lane, at which
    position the last of them was (U33). ``products``: lanes and positions of those that have read
    what a copy had left."""

    kind: str
    warp: Any
    lanes: tuple[int, ...]
    position: int
    form: Hashable = None
    other: tuple[int, int] | None = None
    left: set[str] = field(default_factory=set)
    stored: dict[int, int] = field(default_factory=dict)
    products: set[tuple[tuple[int, ...], int]] = field(default_factory=set)

    def state(self, s: State) -> None:
        """Tells it."""
        s.same(self.kind, self.warp.rank, self.warp.number, self.lanes, repr(self.form),
               sorted(self.left))  # fmt: skip
        s.points([(self.lanes[0], self.position), *([self.other] if self.other else [])])
        s.points(sorted(self.stored.items()))
        s.points(sorted((lanes[0], position) for lanes, position in self.products))

    def stores(self, register: str, lanes: Sequence[int], positions: Sequence[int]) -> None:
        """All lanes store one of the registers that a load has set, or what is made of it."""
        if register in self.left:
            self.left.remove(register)
            self.stored.update(() if self.left else zip(lanes, positions, strict=True))


@dataclass
class Pool:
    """The allocations of a CTA; ``next``: the columns from there on have been given out."""

    memory: Memory
    live: dict[int, tuple[int, tuple[int, int]]] = field(default_factory=dict)
    every: list[tuple[int, tuple[int, int]]] = field(default_factory=list)
    next: int = COLUMNS
    relinquished: bool = False
    #: by instruction and warpgroup, the warps that are given an address in the first quarter
    quarters: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    #: of a pair: what a warp, by its first lane, has come to that both CTAs do, and whether the
    #: other one has come to it, too; the lane and position at which the last such one is over
    asked: tuple[Hashable, int] | None = None
    met: bool = False
    ended: tuple[int, int] = 0, 0

    @classmethod
    def of(cls, cta: int) -> Pool:
        """That of a CTA which has allocated nothing."""
        return cls(Memory(f"the tensor memory of CTA {cta}", LANES * COLUMNS))

    def state(self, s: State) -> None:
        """Tells all of it."""
        s.same([(n, self.live[n][0]) for n in sorted(self.live)], self.next, self.relinquished,
               [columns for columns, _ in self.every], sorted(self.quarters),
               [sorted(warps) for _, warps in sorted(self.quarters.items())], self.asked,
               self.met)  # fmt: skip
        s.points((*(at for _, at in self.every), self.ended))
        self.memory.state(s, ())

    @rule("G5", "allocations of tensor memory follow each other, and do not grow")
    def allocate(self, columns: int, at: tuple[int, int], order: Order) -> int:
        """The first column of an allocation, from the last columns down, so that a kernel that
        takes an address for certain finds nothing there.

        Raises: Refuted: it is larger than an earlier one; NotCovered: it may have to wait."""
        self.permitted(not self.relinquished)
        for others, (lane, position) in self.every:
            if order.past[at[0], lane] < position:
                raise NotCovered("allocations of tensor memory in no order")
            if others < columns:
                raise Refuted("G5", f"tcgen05.alloc of {columns} columns after one of {others}")
        first = self.next - columns
        if first < 0 or first % columns:
            raise NotCovered("allocations of tensor memory that may wait, or lie elsewhere")
        self.next = first
        self.every.append((columns, at))
        self.live[first] = columns, at
        self.memory.written[span(first, columns)] = False
        return first

    @rule("G8", "tcgen05.dealloc names a live allocation, by the text one of its own warp")
    def free(self, first: int, columns: int, warp: int | None) -> None:
        """``warp``: at the level ptx, that which frees.

        Raises: Refuted: it does not."""
        known, at = self.live.pop(first, (0, (-1, 0)))
        if known != columns or warp not in (None, at[0] // _QUARTER):
            raise Refuted("G8", f"tcgen05.dealloc of {columns} columns at {first}")

    def relinquish(self, lane: int, order: Order) -> None:
        """Raises: Refuted: an allocation need not come before it."""
        for _, (other, position) in self.every:
            self.permitted(bool(order.past[lane, other] >= position))
        self.relinquished = True

    @staticmethod
    @rule("G7", "no allocation comes behind relinquish_alloc_permit in any schedule")
    def permitted(holds: bool) -> None:
        """Raises: Refuted: one does, or may."""
        if not holds:
            raise Refuted("G7", "tcgen05.alloc may come after relinquish_alloc_permit")

    @rule("G9", "both CTAs of a pair execute the same allocations and frees, in one order")
    def comes_second(self, peer: Pool, what: Hashable, lane: int, order: Order) -> bool:
        """Whether a warp, by its first lane, comes to what both CTAs do behind the other one.

        Raises: Refuted: that does something else, or warps of this CTA come in no order."""
        other, position = self.ended
        if self.asked is None and order.past[lane, other] >= position:
            self.asked = what, lane
        theirs = None if self.met or peer.met else peer.asked
        if self.asked != (what, lane) or (theirs is not None and theirs[0] != what):
            raise Refuted("G9", f"{what} beside {self.asked} and, in the other CTA, {theirs}")
        if theirs is not None:
            self.met = peer.met = True
            self.ended, peer.ended = ((i, int(order.position[i]) + 1) for i in (lane, theirs[1]))
        return theirs is not None

    def goes_on(self) -> bool:
        """Whether both CTAs have come to it; then it is over in this one."""
        met, self.met = self.met, False
        self.asked = None if met else self.asked
        return met

    @rule("G8-exit", "all columns are deallocated when the CTA ends")
    def at_exit(self) -> None:
        """Raises: Refuted: some are not."""
        if self.live:
            raise Refuted("G8-exit", f"columns from {min(self.live)} on are not deallocated")

    @rule("U21", "an address that names no quarter is given to the first warp of a warpgroup, too")
    def quarters_named(self) -> None:
        """At `practice` it means the quarter of each warp of the warpgroup.

        Raises: Refuted: a warp is given the lanes of another one."""
        for (number, group), warps in self.quarters.items():
            if 4 * group not in warps:
                raise Refuted("U21", f"instruction {number}: warps {sorted(warps)} on lanes 0..31")

    @rule("G4", "tensor memory is accessed in the allocation in which its address counts")
    def owned(self, cells: Cells, address: int, where: object) -> None:
        """Raises: Refuted: some cell is not in there."""
        first = begins(address)
        columns, _ = self.live.get(first, (0, (-1, 0)))
        inside = (first <= cells % COLUMNS) & (cells % COLUMNS < first + columns)
        if not inside.all() or (columns < COLUMNS and not isinstance(address, Drawn)):
            raise Refuted("G4", f"{where}: columns that are not allocated")

    @staticmethod
    @rule("G8-address", "tcgen05.dealloc is given the address that tcgen05.alloc has returned")
    def returned(address: int) -> int:
        """The first column there.

        Raises: Refuted: it is another one."""
        if int(address) != begins(address):
            raise Refuted("G8-address", f"tcgen05.dealloc of an allocation at {address}")
        return int(address)


def span(first: int, columns: int) -> Cells:
    """All cells of some columns, without those that do not exist."""
    there = np.arange(first, min(first + columns, COLUMNS))
    return (np.arange(LANES)[:, None] * COLUMNS + there).reshape(-1)


@rule("G12", "an operand lies where its instruction can access it")
def lies_right(holds: bool, lane: int, column: int) -> None:
    """Raises: Refuted: it may not begin there."""
    if not holds:
        raise Refuted("G12", f"an operand at lane {lane}, column {column}")


def start_of(address: int, layout: TmemLayout, warp: int, beside: int | None) -> tuple[int, int]:
    """The lane and column at which an operand begins, for a warp of that number in the CTA;
    ``beside``: the address of the accumulator.

    Raises: Refuted: it may not begin there."""
    lane, column = address >> 16, address & 0xFFFF
    right = column % layout.step == 0
    if layout.own:
        quarter = _QUARTER * (warp % 4)
        right &= lane % 16 == 0 and lane % _QUARTER <= _QUARTER - layout.parts[0].lanes
        lane += quarter if lane < _QUARTER else 0  # U21
        right &= lane // _QUARTER * _QUARTER == quarter
    if layout.starts:
        right &= lane in layout.starts
        right &= beside is None or beside >> 16 == lane
    lies_right(right, lane, column)
    return lane, column


def cells_at(lane: int, column: int, layout: TmemLayout) -> Cells:
    """The cells of an operand.

    Raises: Refuted: some lie outside of tensor memory (G3)."""
    parts = []
    for p in layout.parts:
        rows = np.arange(lane + p.lane, lane + p.lane + p.lanes)
        columns = np.arange(column + p.column, column + p.column + p.columns)
        inside = rows[0] >= 0 and rows[-1] < LANES and columns[0] >= 0 and columns[-1] < COLUMNS
        lies_right(bool(inside), lane, column)
        rows = rows[[not layout.disabled >> int(r) & 1 for r in rows]]
        parts.append((rows[:, None] * COLUMNS + columns).reshape(-1))
    return np.concatenate(parts)


def places(
    e: fx.UsesTmem, v: Operands, w: Warp, number: int, lanes: Sequence[int]
) -> list[tuple[list[int], int, Cells]]:
    """By lanes that name the same, the address and the cells of an access."""
    layout = e.cells
    found: list[tuple[list[int], int, Cells]] = []
    address = v.decides(e.view.address, w)
    beside = None if layout.beside is None else v.decides(layout.beside.address, w)
    for lane in lanes:
        at = own_address(lane_of(address, lane), w.rank)
        other = None if beside is None else own_address(lane_of(beside, lane), w.rank)
        if found and found[-1][1] == at:
            found[-1][0].append(lane)
            continue
        start = start_of(at, layout, number, other)
        lies_right(start[0] == at >> 16 or not v.ptx, *start)  # U21
        found.append(([lane], at, cells_at(*start, layout)))
    return found


def own_address(x: Any, rank: int) -> int:
    """An address in the tensor memory of a CTA.

    Raises: NotCovered: data decides it, or it is none in an allocation of that CTA."""
    if not isinstance(x, int):
        raise NotCovered("data decides an address in tensor memory")
    if isinstance(x, Drawn) and (x.of is None or x.of[0] != rank):
        raise NotCovered(f"CTA {rank} uses an address that is in no tensor memory of its own: {x}")
    return x


def begins(address: int) -> int:
    """The first column of the allocation in which an address counts; a number, in that of all."""
    return address.of[1] if isinstance(address, Drawn) and address.of else 0


def keeps(e: fx.UsesTmem, v: Operands, w: Warp, lane: int) -> bool:
    """Whether what was there is read although the access writes."""
    if e.keeps is None:
        return False
    return bool(need(lane_of(v.decides(e.keeps, w), lane), "what a product keeps"))


class Ordered:
    """Whether an access of tensor memory comes after an earlier one, by `order`."""

    def __init__(self, order: Order) -> None:
        self.order = order
        #: accesses of other threads that are over when the later one is (G19)
        self.before: list[Record] = []

    def __call__(self, y: Record, x: Record, _own: Any, _theirs: Any) -> bool:
        a, b = x.tmem, y.tmem
        # an allocation is no asynchronous operation: memory is enough to hand it over
        rows = [Row.TMEM, Row.GENERIC] if a.kind == "alloc" else [Row.TMEM]
        halves = [(a.lanes, a.position)]
        if a.other is not None and b.kind != "free":  # it is one act of both CTAs (G9)
            halves.append((tuple(range(a.other[0], a.other[0] + _QUARTER)), a.other[1]))
        issued = self._issued(halves, b, rows)
        if a.kind == "alloc":
            return issued
        # by the text, tcgen05.fence is of its thread, and no lane's fence counts for its warp
        by_warp = a.warp is b.warp and b.kind not in ISSUED_BY_ONE and not self.order.ptx
        by_warp &= len(b.lanes) <= _QUARTER  # of a pair, each of both warps knows
        if self._over(x, b, together=by_warp) or (a.stored and self._behind_stores(a, b)):
            return True
        return issued and b.kind != "free" and self._in_issue_order(x, y)

    def _issued(
        self, some: Sequence[tuple[tuple[int, ...], int]], b: TmemAccess, rows: Sequence[Row]
    ) -> bool:
        """Whether each lane that makes the later access comes after one of some others, given as
        lanes and position, or is among its lanes."""
        known = self.order.rows
        return all(
            any(i in lanes or known[i, rows, lanes[0]].max() >= n for lanes, n in some)
            for i in b.lanes
        )

    def _over(self, x: Record, b: TmemAccess, *, together: bool) -> bool:
        """Whether an earlier access is known to be over; ``together``: to any lane of the warp, as
        its lanes meet for the later one."""
        asked = range(b.warp.first, b.warp.first + 32) if together else b.lanes
        known = [x.is_over(self.order.facts[i, Row.TMEM]) for i in asked]
        return any(known) if together else all(known)

    @rule("U33", "in practice, a load is over behind the stores of all its registers by all lanes")
    def _behind_stores(self, a: TmemAccess, b: TmemAccess) -> bool:
        """Whether each lane that makes the later access comes after them in memory."""
        lanes, positions = list(a.stored), np.array(list(a.stored.values()))
        rows = self.order.rows[np.ix_(b.lanes, (Row.GENERIC, Row.GENERIC_GLOBAL), lanes)]
        return bool((rows >= positions).all())

    @rule("G19", "products, and copies and shifts beside them, execute in the order of their issue")
    def _in_issue_order(self, x: Record, y: Record) -> bool:
        """By the text, what a product reads may not be overwritten in that order (U19)."""
        a, b = x.tmem, y.tmem
        if (a.lanes, a.position) == (b.lanes, b.position):
            return False  # operands of one product (G17)
        if a.kind == b.kind == "mma" and x.write and y.write:
            return bool(a.form == b.form)
        if (a.kind, b.kind) in (("mma", "mma"), ("mma", "cp")):
            return not x.write and not self.order.ptx
        if a.kind == b.kind == "cp" and not self.order.ptx:
            # a product executes behind the first and before the second
            return self._issued([*a.products], b, [Row.TMEM])
        if (a.kind, b.kind) not in PIPELINED:
            return False
        self.before += [x] * (a.lanes != b.lanes)
        if a.kind == "cp" and not y.write:
            a.products.add((b.lanes, b.position))
        return True
