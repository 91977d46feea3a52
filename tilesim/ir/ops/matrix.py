"""Matrices between the registers of a warp and shared memory (SEMANTICS E23)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilesim.arith.types import numpy_dtype, s32, u32
from tilesim.ir.effects import Defines, Effect, Gathers, Reads, Writes
from tilesim.ir.expr import Expr, Var
from tilesim.ir.memory import View
from tilesim.ir.op import Inputs, Op, Rearranges

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane

#: rows of a matrix of 16-bit elements, and elements of a row
_SIDE = 8


def _wrong_row(row: View, count: int) -> Iterator[str]:
    if count not in (1, 2, 4):
        yield f"1, 2 or 4 matrices are moved at once, not {count} (E23)"
    if row.space != "shared" or row.remote:
        yield f"a matrix lies in shared memory of the own CTA, not in {row} (E23)"
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
