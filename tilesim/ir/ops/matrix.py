"""Matrix products of a warp, and matrices between its registers and shared memory (E23, E24)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tilesim.ir.effects import Defines, Effect, Gathers, Reads, Writes
from tilesim.ir.expr import Expr, Var
from tilesim.ir.memory import View
from tilesim.ir.op import Inputs, Op
from tilesim.ir.types import DTYPES, f32, numpy_dtype, s32, u32

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
        return (Gathers(None, "E23"), Reads(self.row, lanes=_SIDE * self.count), *results)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        rows = np.ascontiguousarray(inputs.memory(self.row)).view(np.uint16).astype(np.int64)
        r0, c0, r1, c1 = _places(transposed=self.trans)
        matrices = (rows[_SIDE * i : _SIDE * (i + 1)] for i in range(self.count))
        return tuple(m[r0, c0] | m[r1, c1] << 16 for m in matrices)


@dataclass(frozen=True, kw_only=True)
class Stmatrix(Op):
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
        return (Gathers(None, "E23"), Writes(self.row, lanes=_SIDE * self.count))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        rows = np.zeros((32, _SIDE), dtype=np.uint16)
        r0, c0, r1, c1 = _places(transposed=self.trans)
        for i, value in enumerate(self.values):
            words = inputs.lanes(value).astype(np.int64)
            matrix = rows[_SIDE * i : _SIDE * (i + 1)]
            matrix[r0, c0], matrix[r1, c1] = words & 0xFFFF, words >> 16 & 0xFFFF
        return (rows.view(numpy_dtype(self.row.dtype)),)


@dataclass(frozen=True, kw_only=True)
class MmaSync(Op):
    """``mma.sync``: ``d = a b + c`` with a of 16 rows and b of 8 columns, by the whole warp.

    A register of ``a`` (4 per lane) or ``b`` (2) has 32 bits, that is p = 1, 2 or 4 elements of
    ``kind``; k is 8 p. With g = lane / 4 and t = lane % 4, register i of a holds row g + 8 (i % 2)
    from column p t + 4 p (i / 2) on, register i of b column g from row p t + 4 p i on, and ``c``,
    ``d`` (4) hold row g + 8 (i / 2), column 2 t + i % 2. Sums are rounded once (E24).
    """

    mnemonic = "mma.sync"
    call = "matrix.mma(d, a, b, c, kind)"
    ptx = "mma.sync.aligned.m16n8k{k}.row.col.{sum}.{kind}.{kind}.{sum} {d}, {a:r}, {b:r}, {c};"
    cycles = 16
    data = frozenset({"a", "b", "c"})

    d: tuple[Var, ...]
    a: tuple[Expr, ...]
    b: tuple[Expr, ...]
    c: tuple[Expr, ...]
    kind: Literal["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"] = "f16"

    @property
    def k(self) -> int:
        """Columns of a."""
        return 256 // (32 if self.kind == "tf32" else DTYPES[self.kind].bits)

    @property
    def sum(self) -> str:
        """The type of c and d."""
        return "s32" if self.kind in ("s8", "u8") else "f32"

    def verify(self) -> Iterator[str]:
        counts = (len(self.d), len(self.a), len(self.b), len(self.c))
        if counts != (4, 4, 2, 4):
            yield f"d, a, b and c have 4, 4, 2 and 4 registers per lane, not {counts} (E24)"
        wanted = s32 if self.sum == "s32" else f32
        if any(r.dtype is not wanted for r in self.d):
            yield f"the results of mma.sync of {self.kind} are of type {wanted} (E24)"

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(None, "E24"), *(Defines(result, divergent=True) for result in self.d))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        exact = np.int64 if self.sum == "s32" else np.float64
        kind = numpy_dtype(DTYPES[self.kind])
        lane, i = np.arange(32)[:, None], np.arange(4)[None, :]
        g, t = lane // 4, lane % 4

        def elements(registers: tuple[Expr, ...]) -> PerLane:
            words = np.stack([inputs.lanes(r).astype(np.int64) for r in registers], axis=1)
            packed = np.ascontiguousarray(words.astype(np.uint32)).view(kind)
            return packed.reshape(32, len(registers), -1).astype(exact)

        p = self.k // 8
        e = np.arange(p)
        a, b = np.zeros((16, self.k), exact), np.zeros((self.k, 8), exact)
        for n in range(4):
            a[g + n % 2 * 8, p * t + n // 2 * 4 * p + e] = elements(self.a)[:, n]
        for n in range(2):
            b[p * t + n * 4 * p + e, g] = elements(self.b)[:, n]
        rows, columns = g + i // 2 * 8, 2 * t + i % 2
        c = np.stack([inputs.lanes(x).astype(exact) for x in self.c], axis=1)
        d = (a @ b)[rows, columns] + c
        return tuple(d[:, n] for n in range(4))
