"""The arithmetic of tensor cores: what stored elements are worth, scale factors, sparsity."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: values of the 4-bit float e2m1, by its bits
E2M1 = np.array(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32
)
#: sparsity metadata with a meaning: where two of four elements are, where one of two is
TWO_OF_FOUR = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110)
ONE_OF_TWO = (0b0100, 0b1110)


def pairs(packed: Array) -> Array:
    """Rows of e2m1, of which a byte holds two, as numbers."""
    values: Array = np.stack([E2M1[packed & 15], E2M1[packed >> 4]], axis=-1)
    return values.reshape(packed.shape[0], -1)


def sixteens(stored: Array, type_: str) -> Array:
    """Rows of e2m1, e2m3 or e3m2 as numbers: sixteen elements at the start of each 16 bytes."""
    width = 4 if type_ == "e2m1" else 6
    chunks = stored.reshape(stored.shape[0], -1, 16)[:, :, : 2 * width]
    bits = np.unpackbits(np.ascontiguousarray(chunks), axis=-1, bitorder="little")
    codes = np.packbits(
        bits.reshape(stored.shape[0], -1, width), axis=-1, bitorder="little"
    ).squeeze(-1)
    if type_ == "e2m1":
        return E2M1[codes]
    kind = ml_dtypes.float6_e2m3fn if type_ == "e2m3" else ml_dtypes.float6_e3m2fn
    values: Array = codes.view(kind).astype(np.float32)
    return values


def stacked(parts: list[Array]) -> Array:
    """Rows below each other."""
    return np.concatenate(parts)


def product(copies: list[Array], b: Array, folds: int) -> Array:
    """``a @ b.T``, its columns in ``folds`` groups below each other, each of a copy of A."""
    groups = np.split(b, folds)
    found: Array = np.concatenate(
        [copies[i % len(copies)] @ group.T for i, group in enumerate(groups)]
    )
    return found


def factors(stored: Array, rows: int, folds: int, first: int, count: int) -> Array:
    """``count`` factor bytes of each row from byte ``first`` on, from their 128 lanes
    (`tilesim.ir.ops.tcgen05_mma.scale_columns`)."""
    row = np.arange(rows // folds)
    where = (row // 32 * 4 + first)[:, None] + np.arange(count)
    parts = [stored[128 // folds * fold :][(row % 32)[:, None], where] for fold in range(folds)]
    return np.concatenate(parts)


def scaled(values: Array, scales: Array, *, nv: bool) -> Array:
    """Values times the factors of their blocks: ue8m0 (powers of two), or ue4m3 (``nv``)."""
    if nv:
        wide = (scales & 0x7F).astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    else:
        powers = np.exp2(scales.astype(np.float32) - 127)
        wide = np.where(scales == 0xFF, np.float32(np.nan), powers)
    result: Array = values * np.repeat(wide, values.shape[1] // scales.shape[1], axis=1)
    return result


def metadata_of_rows(words: Array, rows: int) -> Array:
    """The 4-bit fields of every row in the order of K, from (128, columns) words."""
    row = np.arange(rows)
    count = 8
    fields: Array = words[:rows]
    if words.shape[1] == 1:
        count, lane = 4, row // 16 * 16 + row % 8
        halves = np.stack([words[lane, 0], words[lane + 8, 0]], axis=1)
        fields = halves >> (row % 16 // 8 * 16)[:, None].astype(np.uint32) & np.uint32(0xFFFF)
    shifts = np.arange(count, dtype=np.uint32) * np.uint32(4)
    nibbles: Array = fields[:, :, None] >> shifts & np.uint32(15)
    return nibbles.reshape(rows, -1).astype(np.uint8)


def meaningless(fields: Array, meaningful: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The first field of metadata that has no meaning: row, group and what it says."""
    wrong = np.argwhere(~np.isin(fields, meaningful))
    if not len(wrong):
        return None
    row, group = (int(i) for i in wrong[0])
    return row, group, int(fields[row, group])


def dense(a: Array, fields: Array, *, two_of_four: bool) -> Array:
    """A with its zeros, from the elements that are not (PTX 9.7.16.10.8)."""
    result = np.zeros((a.shape[0], 2 * a.shape[1]), dtype=a.dtype)
    row = np.arange(a.shape[0])[:, None]
    group = (4 if two_of_four else 2) * np.arange(fields.shape[1])
    if two_of_four:
        result[row, group + (fields & 3)] = a[:, 0::2]
        result[row, group + (fields >> 2)] = a[:, 1::2]
    else:
        result[row, group + (fields >> 3)] = a
    return result
