"""Matrices of bytes between a warp's registers and shared memory (SEMANTICS E25)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tilesim.arith.types import CHUNK, PACKINGS, numpy_dtype, s32, u32
from tilesim.ir.effects import Defines, Effect, Gathers, Reads, Writes
from tilesim.ir.expr import Expr, Var
from tilesim.ir.memory import View
from tilesim.ir.op import Inputs, Op

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane

#: rows that a matrix of each shape has in memory, and registers of a lane that it fills
_SHAPES = {"m16n16": (16, 2), "m8n16": (8, 1)}
#: where a 4-bit element lies in its byte: in the middle
_MIDDLE = 2


def _wrong_row(row: View) -> Iterator[str]:
    if row.space != "shared" or row.remote:
        yield f"a matrix lies in shared memory of the own CTA, not in {row} (E25)"
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
    ptx = "ldmatrix.sync.aligned.{shape}.x{count}{.exchanged}.shared.{kind} {results}, [{row}];"
    also = (
        "ldmatrix.sync.aligned.{shape}.x{count}{.exchanged}.shared.b8x16.{source} "
        "{results}, [{row}];",
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
        yield from _wrong_row(self.row)
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
    ptx = "stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [{row}], {values:r};"
    cycles = 30
    data = frozenset({"values"})

    row: View
    values: tuple[Expr, ...]

    @property
    def count(self) -> int:
        """Matrices."""
        return len(self.values)

    def verify(self) -> Iterator[str]:
        yield from _wrong_row(self.row)
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
