"""Views of tensor memory: 128 lanes x 512 columns of 32 bits per CTA (SEMANTICS G.2).

Tensor memory has no names: `tcgen05.alloc` returns an address (``lane << 16 | column``) and a
`TmemView` says what lies at an address. Two views of one address alias, as in the hardware.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.arith.types import DType
from tilesim.errors import reject
from tilesim.ir.expr import Expr, Operand, Subscript, as_expr, constant, expand, resolve
from tilesim.ir.loc import LABEL, caller
from tilesim.records import dataclass, field, replace

#: lanes and columns of a CTA's tensor memory (G3)
LANES, COLUMNS = 128, 512
#: bits of one cell: a column of a lane
CELL = 32


@dataclass(frozen=True)
class TmemView:
    """``shape`` = (rows, elements per row) of ``dtype`` at a tensor memory ``address``.

    A row is a lane; elements narrower than 32 bits are packed, so a row of 64 bf16 takes 32
    columns, unless ``packed`` is false: then each is alone in the low bits of a column, as an mma
    leaves D (PTX 9.7.16.10.4.1). ``name`` is what findings call it. ``view[rows, elements]`` is a
    part of it.
    """

    address: Expr
    dtype: DType
    shape: tuple[int, int]
    name: str = field(default="tmem", metadata=LABEL)
    packed: bool = True

    @property
    def columns(self) -> int:
        """Columns one row takes."""
        return self.shape[1] // self.per_column

    @property
    def per_column(self) -> int:
        """Elements in one column of a lane; wider ones, which no instruction takes, are one."""
        return max(1, CELL // self.dtype.bits) if self.packed else 1

    def __getitem__(self, index: Subscript) -> TmemView:
        items = expand(index if isinstance(index, tuple) else (index,), 2)
        if len(items) > 2:
            raise reject(f"{len(items)} indices for {self.name}, which has 2", caller())
        items += [slice(None)] * (2 - len(items))
        row, rows, _ = resolve(items[0], self.shape[0], self.name)
        first, count, _ = resolve(items[1], self.shape[1], self.name)
        known = constant(first)
        packed = self.per_column
        if count % packed or (known is not None and known % packed):
            raise reject(
                f"elements {first}:+{count} of {self.name} do not start and end at a column: "
                f"{packed} of them share one",
                caller(),
            )
        column = first if packed == 1 else first // packed
        return replace(self, address=self.address + row * 0x10000 + column, shape=(rows, count))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[TmemView]:
        return (self[i] for i in range(len(self)))

    def cast(self, dtype: DType, elements: int, *, name: str | None = None) -> TmemView:
        """The same lanes and first column as ``elements`` per row of another type, packed."""
        return TmemView(self.address, dtype, (self.shape[0], elements), name or self.name)

    def __str__(self) -> str:
        return f"{self.name}@{self.address}"


@dataclass(frozen=True, slots=True)
class TmemPart:
    """A box of cells: ``lanes`` lanes and ``columns`` columns, relative to an address."""

    lane: int
    lanes: int
    columns: int
    column: int = 0


@dataclass(frozen=True, slots=True)
class TmemLayout:
    """The cells of an operand in tensor memory, in the order of its rows.

    ``starts``: the lanes at which it can start, if not at any; ``beside``: the accumulator, if it
    starts at the lane of that; ``step``: its first column is a multiple. ``own``: it lies in the
    quarter of the lanes that the executing warp can access (G12). ``disabled``: a bit for each lane
    of the CTA that is left out.
    """

    parts: tuple[TmemPart, ...]
    starts: tuple[int, ...] = ()
    beside: TmemView | None = None
    step: int = 1
    own: bool = False
    disabled: int = 0

    def spans(self, view: TmemView) -> Iterator[TmemView]:
        """Views of consecutive lanes that have all cells, and maybe more."""
        columns = dict.fromkeys(part.column for part in self.parts)
        for column in columns:
            parts = [part for part in self.parts if part.column == column]
            alone = len(parts) == 1 and parts[0].lane == 0
            shape = (parts[0].lanes if alone else LANES, view.shape[1])
            address = view.address + column if column else view.address
            yield replace(view, address=address, shape=shape)


def in_lanes(view: TmemView) -> TmemLayout:
    """A row per lane, from the address on."""
    return TmemLayout((TmemPart(0, view.shape[0], view.columns),))


def tmem_view(
    address: Operand, dtype: DType, shape: tuple[int, int], name: str, *, packed: bool = True
) -> TmemView:
    """A `TmemView`, checked where it is written."""
    rows, elements = shape
    bits = elements * (dtype.bits if packed else CELL)
    if rows < 1 or elements < 1 or bits % CELL or dtype.bits > CELL:
        raise reject(
            f"{name}: {rows} x {elements} {dtype} is not a whole number of 32-bit columns per lane",
            caller(),
        )
    return TmemView(as_expr(address), dtype, shape, name, packed)
