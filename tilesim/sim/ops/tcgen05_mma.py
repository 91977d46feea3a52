"""The arithmetic of tcgen05.mma: where D, A and the scale factors lie, and the product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.ops.tcgen05 import Tcgen05Mma
from tilesim.ir.types import DType, numpy_dtype, tf32, u8
from tilesim.sim.latency import mma_cycles
from tilesim.sim.machine.tmem import Cells, Tmem

#: values of the 4-bit float e2m1, by its bits
E2M1 = np.array(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32
)
#: every kind takes as long for its 32 bytes of K as 16-bit inputs do
_DEPTH = 16


class Piece(NamedTuple):
    """Rows and columns of D that lie in ``rows`` lanes from ``lane`` on."""

    row: int
    rows: int
    column: int
    columns: int
    lane: int
    cells_wide: int

    def cells(self, at: tuple[int, int]) -> tuple[int, int, int, int]:
        """(lane, lanes, column, columns) for D at this address."""
        return at[0] + self.lane, self.rows, at[1], self.cells_wide


def d_pieces(op: Tcgen05Mma) -> list[Piece]:
    """How the part of D in one CTA lies in its lanes (G14)."""
    n, wide = op.shape[1], op.d.columns
    if op.rows == 128:
        return [Piece(0, 128, 0, n, 0, wide)]
    if op.cta_group == 1:
        return [Piece(16 * i, 16, 0, n, 32 * i, wide) for i in range(4)]
    half = n // 2
    return [Piece(0, 64, 0, half, 0, wide), Piece(0, 64, half, half, 64, wide)]


def scale_boxes(tmem: Tmem, op: Tcgen05Mma, at: tuple[int, int], rows: int) -> list[Cells]:
    """The scale factors of ``rows`` rows: a column per 32 rows, repeated in all four quarters."""
    columns = -(-rows // 32)
    return [tmem.box(at[0] + 32 * i, 32, at[1], columns) for i in range(4)]


def mma_cycles_of(op: Tcgen05Mma) -> int:
    """Cycles of the tensor core of one CTA."""
    m, n, _ = op.shape
    return mma_cycles(m // op.cta_group, n, _DEPTH)


#: per CTA: tensor memory, boxes of D, of A and of each scale operand
Inputs = tuple[Tmem, list[Cells], list[Cells], list[list[Cells]]]
#: per CTA: A (None if in tensor memory) and B, as stored
Shared = tuple[NDArray[Any] | None, NDArray[Any]]


class Multiply:
    """``D (+)= A @ B`` over the CTAs that take part."""

    def __init__(self, op: Tcgen05Mma) -> None:
        self._op = op
        self._wide: Any = np.int32 if op.kind == "i8" else np.float32

    def __call__(self, inputs: Sequence[Inputs], shared: Sequence[Shared], *, keep: bool) -> None:
        op = self._op
        b = np.concatenate([self._values(m, op.b_trans, op.b.dtype) for _, m in shared])
        if op.block_scaled:
            b = b * self._scales(inputs[0], 1, b.shape)
        for part, (a_shared, _) in zip(inputs, shared, strict=True):
            a = self._a(part, a_shared)
            if op.block_scaled:
                a = a * self._scales(part, 0, a.shape)
            self._store(part, a @ b.T, keep=keep)

    def _a(self, part: Inputs, shared: NDArray[Any] | None) -> NDArray[Any]:
        op = self._op
        if shared is not None:
            return self._values(shared, op.a_trans, op.a.dtype)
        tmem, _, boxes, _ = part
        rows = np.concatenate([tmem.read(box, op.a.dtype) for box in boxes])
        return self._values(rows, False, op.a.dtype)

    def _values(self, matrix: NDArray[Any], transposed: bool, dtype: DType) -> NDArray[Any]:
        """Stored elements as the numbers that are multiplied; tf32 drops 13 mantissa bits."""
        matrix = matrix.T if transposed else matrix
        if dtype is tf32:
            bits = np.ascontiguousarray(matrix).view(np.uint32) & np.uint32(0xFFFFE000)
            return bits.view(np.float32)
        if self._op.kind in ("mxf4", "mxf4nvf4"):
            pairs = np.stack([E2M1[matrix & 15], E2M1[matrix >> 4]], axis=-1)
            return pairs.reshape(matrix.shape[0], -1)
        wide: NDArray[Any] = matrix.astype(self._wide)
        return wide

    def _scales(self, part: Inputs, which: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """One factor per element: a byte per row and block of K (`Tcgen05Mma`)."""
        op = self._op
        tmem, _, _, boxes = part
        words = tmem.read(boxes[which][0], u8)
        rows, depth = shape
        row = np.arange(rows)
        vector = np.arange(op.scale_vec)
        where = (row // 32 * 4 + op.scale_id)[:, None] + vector
        factors = _decode(words[(row % 32)[:, None], where], nv=op.scale_vec == 4)
        scales: NDArray[Any] = np.repeat(factors, depth // op.scale_vec, axis=1)
        return scales

    def _store(self, part: Inputs, product: NDArray[Any], *, keep: bool) -> None:
        op = self._op
        tmem, boxes, _, _ = part
        for piece, box in zip(d_pieces(op), boxes, strict=True):
            rows = slice(piece.row, piece.row + piece.rows)
            value = product[rows, piece.column : piece.column + piece.columns]
            if keep:
                value = value + tmem.read(box, op.d.dtype).astype(self._wide)
            tmem.write(box, value.astype(numpy_dtype(op.d.dtype)))


def _decode(bytes_: NDArray[Any], *, nv: bool) -> NDArray[Any]:
    """Scale factors: ue8m0 (a power of two), or ue4m3 for 16-element blocks."""
    if not nv:
        return np.exp2(bytes_.astype(np.float32) - 127)
    import ml_dtypes

    factors: NDArray[Any] = (bytes_ & 0x7F).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    return factors.astype(np.float32)
