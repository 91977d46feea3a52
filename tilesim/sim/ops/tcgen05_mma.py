"""The arithmetic of tcgen05.mma; where its operands lie: `tcgen05_layout`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.ops.tcgen05 import Tcgen05Mma, Tcgen05MmaSp, Tcgen05Product
from tilesim.ir.types import DType, numpy_dtype, tf32, u8, u32
from tilesim.sim.latency import mma_cycles
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.tmem import Cells, Tmem
from tilesim.sim.ops.tcgen05_layout import Piece, metadata_of_rows

#: values of the 4-bit float e2m1, by its bits
E2M1 = np.array(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32
)
#: every kind takes as long for its 32 bytes of K as 16-bit inputs do
_DEPTH = 16
#: sparsity metadata with a meaning: where two of four elements are, where one of two is
_TWO_OF_FOUR = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110)
_ONE_OF_TWO = (0b0100, 0b1110)


def mma_cycles_of(op: Tcgen05Product) -> int:
    """Cycles of the tensor core of one CTA."""
    m, n, _ = op.shape
    return mma_cycles(m // op.cta_group, n, _DEPTH)


class Inputs(NamedTuple):
    """What one CTA contributes: boxes of its tensor memory, and A and B as stored.

    ``a`` is None or the copies of A in tensor memory, one per fold of D's columns, each a list of
    boxes; ``scales`` are those of A and B.
    """

    tmem: Tmem
    d: list[tuple[Piece, Cells]]
    a: list[list[Cells]] | None
    scales: list[list[Cells]]
    metadata: Cells | None
    a_shared: NDArray[Any] | None
    b_shared: NDArray[Any]


class Multiply:
    """``D = A @ B + D`` over the CTAs that take part."""

    def __init__(self, op: Tcgen05Product) -> None:
        self._op = op
        self._wide: Any = np.int32 if op.kind == "i8" else np.float32
        self._scale_d = 0.5 ** getattr(op, "scale_input_d", 0)

    def __call__(self, parts: list[Inputs], *, keep: bool) -> None:
        op = self._op
        stored = [self._values(p.b_shared, op.b_trans, op.b.dtype) for p in parts]
        b = np.concatenate(stored)
        for part in parts:
            scaled = b
            if part.scales:
                scaled = b * self._scales(part, 1, b.shape, op.folds)
            copies = self._a(part)
            folds = np.split(scaled, len(copies))
            product = np.concatenate(
                [a @ columns.T for a, columns in zip(copies, folds, strict=True)], axis=1
            )
            self._store(part, product, keep=keep)

    def _a(self, part: Inputs) -> list[NDArray[Any]]:
        """A, as often as tensor memory holds it."""
        op = self._op
        if part.a is None:
            assert part.a_shared is not None
            copies = [self._values(part.a_shared, op.a_trans, op.a.dtype)]
        else:
            copies = [
                self._values(
                    np.concatenate([part.tmem.read(box, op.a.dtype) for box in boxes]),
                    False,
                    op.a.dtype,
                )
                for boxes in part.a
            ]
        if part.scales:
            copies = [a * self._scales(part, 0, a.shape, 1) for a in copies]
        if part.metadata is not None:
            copies = [self._spread(part, a) for a in copies]
        return copies

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

    def _scales(self, part: Inputs, which: int, shape: tuple[int, ...], folds: int) -> NDArray[Any]:
        """One factor per element: a byte per row and block of K (`Tcgen05Mma`)."""
        op = self._op
        assert isinstance(op, Tcgen05Mma)
        rows, depth = shape
        boxes = part.scales[which]
        row = np.arange(rows // folds)
        vector = np.arange(op.scale_vec)
        where = (row // 32 * 4 + op.scale_id)[:, None] + vector
        folded = []
        for fold in range(folds):
            words = part.tmem.read(boxes[fold * len(boxes) // folds], u8)
            folded.append(words[(row % 32)[:, None], where])
        factors = _decode(np.concatenate(folded), nv=op.scale_vec == 4)
        scales: NDArray[Any] = np.repeat(factors, depth // op.scale_vec, axis=1)
        return scales

    def _spread(self, part: Inputs, a: NDArray[Any]) -> NDArray[Any]:
        """A with its zeros, from the stored elements and the metadata (PTX 9.7.16.10.8)."""
        op = self._op
        assert isinstance(op, Tcgen05MmaSp)
        assert part.metadata is not None
        fields = metadata_of_rows(part.tmem.read(part.metadata, u32), op.rows)
        pairs = op.kind == "tf32"
        _check_metadata(op, fields, _ONE_OF_TWO if pairs else _TWO_OF_FOUR)
        dense = np.zeros((op.rows, 2 * a.shape[1]), dtype=a.dtype)
        row = np.arange(op.rows)[:, None]
        if pairs:
            group = 2 * np.arange(fields.shape[1])
            dense[row, group + (fields >> 3)] = a
            return dense
        group = 4 * np.arange(fields.shape[1])
        dense[row, group + (fields & 3)] = a[:, 0::2]
        dense[row, group + (fields >> 2)] = a[:, 1::2]
        return dense

    def _store(self, part: Inputs, product: NDArray[Any], *, keep: bool) -> None:
        d = self._op.d
        for piece, box in part.d:
            rows = slice(piece.row, piece.row + piece.rows)
            value = product[rows, piece.column : piece.column + piece.columns]
            if keep:
                old = part.tmem.read(box, d.dtype, packed=d.packed).astype(self._wide)
                value = value + (old if self._scale_d == 1 else old * np.float32(self._scale_d))
            part.tmem.write(box, value.astype(numpy_dtype(d.dtype)), packed=d.packed)


def _check_metadata(
    op: Tcgen05MmaSp, fields: NDArray[np.uint8], meaningful: tuple[int, ...]
) -> None:
    wrong = np.argwhere(~np.isin(fields, meaningful))
    if not len(wrong):
        return
    row, group = (int(i) for i in wrong[0])
    raise BarrierError(
        "out-of-bounds",
        f"the metadata {op.metadata.name} of {op.mnemonic} says {int(fields[row, group]):#06b} for "
        f"row {row}, group {group}; meaningful are "
        f"{', '.join(f'{value:#06b}' for value in meaningful)} (PTX 9.7.16.10.8)",
        "write the positions of the elements that are not zero, in increasing order",
    )


def _decode(bytes_: NDArray[Any], *, nv: bool) -> NDArray[Any]:
    """Scale factors: ue8m0 (a power of two), or ue4m3 for 16-element blocks."""
    if not nv:
        powers = np.exp2(bytes_.astype(np.float32) - 127)
        return np.where(bytes_ == 0xFF, np.float32(np.nan), powers)
    import ml_dtypes

    factors: NDArray[Any] = (bytes_ & 0x7F).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    return factors.astype(np.float32)
