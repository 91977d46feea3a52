"""Matrices between the registers of a warp and shared memory (SEMANTICS E23, E25)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from tilesim.arith.types import CHUNK, PACKINGS, numpy_dtype, s32, u32
from tilesim.ir.declarations import View
from tilesim.ir.effects import Defines, Effect, Gathers, Reads, Writes
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Inputs, Op, Rearranges
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane


#: rows of a matrix of 16-bit elements, and elements of a row
_SIDE = 8


def _wrong_row(row: View, count: int) -> Iterator[str]:
    if count not in (1, 2, 4):
        yield f"1, 2 or 4 matrices are moved at once, not {count} (E23)"
    if row.space != "shared" or row.remote:
        yield f"a matrix must be in the executing CTA's shared memory, not in {row} (E23)"
    if row.dtype.bits != 16 or row.size != _SIDE:
        yield f"each lane names a row of 8 elements of 16 bits, not {row} (E23)"


def _places(*, transposed: bool) -> tuple[PerLane, PerLane, PerLane, PerLane]:
    """Row and column, in a matrix, of the low and of the high half of each lane's register."""
    import numpy as np

    lane = np.arange(32)
    outer, inner = lane // 4, lane % 4 * 2
    if transposed:
        return inner, outer, inner + 1, outer
    return outer, inner, outer, inner + 1


@dataclass(frozen=True, kw_only=True)
class Ldmatrix(Op):
    """``ldmatrix``: 1, 2 or 4 matrices of 8 by 8 elements of 16 bits, one per result register.

    Lanes 8 i to 8 i + 7 name the rows of matrix i: ``row`` is a row of 16 bytes. Lane t gets the
    elements 2 (t % 4) and the next one of row t / 4; with ``trans`` rows and columns are exchanged.
    The whole warp executes it; it reads through the generic proxy (E23).
    """

    mnemonic = "ldmatrix"
    call = "matrix.load(results, row, *, trans)"
    ptx = "ldmatrix.sync.aligned.m8n8.x{count}{.trans}{row.space}.b16 {results}, [{row:8*b16}];"
    cycles = 30

    results: tuple[Var, ...]
    row: View
    trans: bool = False

    @property
    def count(self) -> int:
        """Matrices."""
        return len(self.results)

    def verify(self) -> Iterator[str]:
        yield from _wrong_row(self.row, self.count)
        if any(r.dtype not in (s32, u32) for r in self.results):
            yield "a register of the result is s32 or u32: it holds two elements (E23)"

    def effects(self) -> tuple[Effect, ...]:
        results = (Defines(result, divergent=True) for result in self.results)
        return (
            Gathers(None, "E23", whole=True),
            Reads(self.row, lanes=_SIDE * self.count),
            *results,
        )

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        rows = np.ascontiguousarray(inputs.memory(self.row)).view(np.uint16).astype(np.int64)
        r0, c0, r1, c1 = _places(transposed=self.trans)
        matrices = (rows[_SIDE * i : _SIDE * (i + 1)] for i in range(self.count))
        return tuple(m[r0, c0] | m[r1, c1] << 16 for m in matrices)


@dataclass(frozen=True, kw_only=True)
class Stmatrix(Op, Rearranges):
    """``stmatrix``: stores 1, 2 or 4 matrices of 8 by 8 elements of 16 bits; see `Ldmatrix`.

    Lanes 8 i to 8 i + 7 name the rows of matrix i; registers hold the elements as ``ldmatrix``
    gives them (E23).
    """

    mnemonic = "stmatrix"
    features = frozenset({"mbarrier"})
    call = "matrix.store(row, values, *, trans)"
    ptx = "stmatrix.sync.aligned.m8n8.x{count}{.trans}{row.space}.b16 [{row:8*b16}], {values:r};"
    cycles = 30
    data = frozenset({"values"})

    row: View
    values: tuple[Expr, ...]
    trans: bool = False

    @property
    def count(self) -> int:
        """Matrices."""
        return len(self.values)

    def verify(self) -> Iterator[str]:
        yield from _wrong_row(self.row, self.count)

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(None, "E23", whole=True), Writes(self.row, lanes=_SIDE * self.count))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        rows = self.rows([inputs.lanes(value).astype(np.int64) for value in self.values])
        return (rows.view(numpy_dtype(self.row.dtype)),)

    def rows(self, registers: Sequence[PerLane]) -> PerLane:
        """The rows that the lanes store, (32, 8) of 16 bits, of what the registers hold in each."""
        import numpy as np

        rows = np.zeros((32, _SIDE), dtype=np.uint16)
        r0, c0, r1, c1 = _places(transposed=self.trans)
        for i, words in enumerate(registers):
            matrix = rows[_SIDE * i : _SIDE * (i + 1)]
            matrix[r0, c0], matrix[r1, c1] = words & 0xFFFF, words >> 16 & 0xFFFF
        return rows


# ------------------------------------------------------------------ matrices of bytes (E25)


#: rows that a matrix of each shape has in memory, and registers of a lane that it fills
_SHAPES = {"m16n16": (16, 2), "m8n16": (8, 1)}
#: where a 4-bit element lies in its byte: in the middle
_MIDDLE = 2


def _wrong_row_of_bytes(row: View) -> Iterator[str]:
    if row.space != "shared" or row.remote:
        yield f"a matrix must be in the executing CTA's shared memory, not in {row} (E25)"
    if row.dtype.bits != 8 or row.size != CHUNK:
        yield f"each lane names a row of 16 bytes, not {row} (E25)"


def _elements(rows: PerLane, source: str) -> PerLane:
    """Rows of 16 bytes as 16 elements of a byte each."""
    import numpy as np

    if source == "b8":
        return rows
    packing = PACKINGS[source]
    bits = np.unpackbits(rows[:, : packing.payload], axis=1, bitorder="little")
    packed = bits.reshape(len(rows), CHUNK, packing.bits)
    elements = np.packbits(packed, axis=2, bitorder="little")[:, :, 0]
    return elements << _MIDDLE if packing.bits == 4 else elements


def _halves(lane: PerLane, byte: PerLane) -> tuple[PerLane, PerLane]:
    """Row (of two) and column of a byte of a register of a matrix that is exchanged."""
    return byte % 2, lane // 4 + byte // 2 * 8


@dataclass(frozen=True, kw_only=True)
class LdmatrixBytes(Op):
    """``ldmatrix`` of bytes: 1 or 2 matrices ``m16n16``, exchanged, or 1, 2 or 4 ``m8n16``.

    Lanes 16 i to 16 i + 15, or 8 i to 8 i + 7, name the rows of matrix i: 16 bytes, or (``source``)
    16 elements of 6 or 4 bits with padding, which get a byte each: 6 bits its low ones, 4 bits the
    middle. ``m8n16``: register i of lane t gets 4 elements from 4 (t % 4) on of row t / 4.
    ``m16n16``: byte b of register 2 i + r gets column t / 4 + 8 (b / 2) of row
    4 (t % 4) + 2 r + b % 2. The whole warp executes it (E25).
    """

    mnemonic = "ldmatrix.b8"
    features = frozenset({"ldmatrix.b8"})
    call = "matrix.load_bytes(results, row, shape, *, source)"
    ptx = (
        "ldmatrix.sync.aligned.{shape}.x{count}{.exchanged}.shared.{kind} {results}, [{row:16*b8}];"
    )
    also = (
        "ldmatrix.sync.aligned.{shape}.x{count}{.exchanged}.shared.b8x16.{source} "
        "{results}, [{row:16*b8}];",
    )
    cycles = 30

    results: tuple[Var, ...]
    row: View
    shape: Literal["m16n16", "m8n16"] = "m16n16"
    source: Literal["b8", "b6x16_p32", "b4x16_p64"] = "b8"

    @property
    def count(self) -> int:
        """Matrices."""
        return len(self.results) // _SHAPES[self.shape][1]

    @property
    def exchanged(self) -> Literal["trans", ""]:
        """Whether rows and columns are exchanged."""
        return "trans" if self.shape == "m16n16" else ""

    @property
    def kind(self) -> Literal["b8", "b8x16.b6x16_p32", "b8x16.b4x16_p64"]:
        """The type of the elements."""
        match self.source:
            case "b8":
                return "b8"
            case "b6x16_p32":
                return "b8x16.b6x16_p32"
            case "b4x16_p64":
                return "b8x16.b4x16_p64"

    def verify(self) -> Iterator[str]:
        yield from _wrong_row_of_bytes(self.row)
        counts = (2, 4) if self.shape == "m16n16" else (1, 2, 4)
        if len(self.results) not in counts:
            yield f"{self.shape} fills {counts} registers, not {len(self.results)} (E25)"
        if self.shape == "m8n16" and self.source == "b8":
            yield "m8n16 is for elements of 6 and 4 bits; 8 bits are m16n16 (E25)"
        if any(r.dtype not in (s32, u32) for r in self.results):
            yield "a register of the result is s32 or u32: it holds four elements (E25)"

    def effects(self) -> tuple[Effect, ...]:
        results = (Defines(result, divergent=True) for result in self.results)
        rows = _SHAPES[self.shape][0] * self.count
        return (Gathers(None, "E25", whole=True), Reads(self.row, lanes=rows), *results)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        rows = np.ascontiguousarray(inputs.memory(self.row)).view(np.uint8)
        elements = _elements(rows, self.source)
        height, each = _SHAPES[self.shape]
        lane, byte = np.arange(32)[:, None], np.arange(4)[None, :]
        found = []
        for number in range(len(self.results)):
            first, r = height * (number // each), number % each
            if self.shape == "m8n16":
                chosen = elements[first + lane // 4, lane % 4 * 4 + byte]
            else:
                half, column = _halves(lane, byte)
                chosen = elements[first + lane % 4 * 4 + 2 * r + half, column]
            found.append(np.ascontiguousarray(chosen).view("<u4")[:, 0].astype(np.int64))
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class StmatrixBytes(Op):
    """``stmatrix`` of bytes: 1, 2 or 4 matrices ``m16n8``, exchanged: 8 rows of 16 bytes in memory.

    Lanes 8 i to 8 i + 7 name the rows of matrix i. Byte b of register i of lane t goes to column
    t / 4 + 8 (b / 2) of row 2 (t % 4) + b % 2. The whole warp executes it (E25).
    """

    mnemonic = "stmatrix.b8"
    features = frozenset({"ldmatrix.b8"})
    call = "matrix.store_bytes(row, values)"
    ptx = "stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [{row:16*b8}], {values:r};"
    cycles = 30
    data = frozenset({"values"})

    row: View
    values: tuple[Expr, ...]

    @property
    def count(self) -> int:
        """Matrices."""
        return len(self.values)

    def verify(self) -> Iterator[str]:
        yield from _wrong_row_of_bytes(self.row)
        if self.count not in (1, 2, 4):
            yield f"1, 2 or 4 matrices are moved at once, not {self.count} (E25)"

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(None, "E25", whole=True), Writes(self.row, lanes=8 * self.count))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        rows = np.zeros((32, CHUNK), dtype=np.uint8)
        lane, byte = np.arange(32)[:, None], np.arange(4)[None, :]
        half, column = _halves(lane, byte)
        for number, value in enumerate(self.values):
            words = (inputs.lanes(value).astype(np.int64) & 0xFFFFFFFF).astype("<u4")
            rows[8 * number + lane % 4 * 2 + half, column] = words.view(np.uint8).reshape(32, 4)
        return (rows.view(numpy_dtype(self.row.dtype)),)
