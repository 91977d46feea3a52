"""Matrices in shared memory as tensor cores take them: boxes of two to four dimensions.

An operand is (rows, K), or (K, rows) where it is transposed; then also (rows / w, K, w): blocks of
w columns, as far apart as the tensor has them (the leading byte offset). Either may be in groups of
eight rows of memory and blocks of columns: (rows / 8, 8, columns / w, w) of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def extents(shape: tuple[int, ...], *, transposed: bool) -> tuple[int, ...]:
    """(rows, K) of an operand of this shape; the shape itself if it is no matrix's."""
    found = _grouped(shape)
    if transposed and len(found) == 3:
        return found[0] * found[2], found[1]
    return (found[1], found[0]) if transposed and len(found) == 2 else found


def rows_of(values: NDArray[Any], *, transposed: bool) -> NDArray[Any]:
    """An operand's elements as rows of K; its blocks of columns are one after the other."""
    values = values.reshape(_grouped(values.shape))
    if not transposed:
        return values
    return values.swapaxes(-1, -2).reshape(-1, values.shape[-2])


def _grouped(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The rows and columns of a matrix in groups of rows and blocks of columns."""
    return (shape[0] * shape[1], shape[2] * shape[3]) if len(shape) == 4 else shape
