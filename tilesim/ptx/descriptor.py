"""Matrix descriptors: 64 bits that say where the tile of an operand lies in shared memory.

Bits 0-13 start address, 16-29 leading byte offset, 32-45 stride byte offset (all divided by 16),
49-51 base offset; the swizzle is in bits 62-63 for wgmma, in bits 61-63 for tcgen05 (PTX ISA,
"Matrix descriptor format" of wgmma, "Shared memory descriptor" of tcgen05).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tilesim.records import dataclass

Swizzle = Literal[0, 32, 64, 128]
#: the bits of the leading byte offset
LEADING = 0x3FFF << 16
#: bytes of a row of a core matrix, and its rows
_CORE = 16
_ROWS = 8


@dataclass(frozen=True)
class Format:
    """How descriptors of a family of instructions say the swizzle: from bit ``first`` on.

    ``absolute``: the bit that makes the leading byte offset an address.
    """

    first: int
    swizzles: Mapping[int, Swizzle]
    absolute: int = 0

    @property
    def bits(self) -> int:
        """The bits that say how rows lie: stride, base offset, swizzle."""
        return 0x3FFF << 32 | 7 << 49 | -1 << self.first & (1 << 64) - 1 | self.absolute


WGMMA = Format(62, {0: 0, 1: 128, 2: 64, 3: 32})
TCGEN05 = Format(61, {0: 0, 2: 128, 4: 64, 6: 32}, absolute=1 << 52)


@dataclass(frozen=True)
class Descriptor:
    """A decoded descriptor; addresses and offsets in bytes."""

    start: int
    leading: int
    stride: int
    base: int
    swizzle: Swizzle

    @classmethod
    def of(cls, bits: int, format: Format) -> Descriptor | str:
        """The descriptor of 64 bits, or why it is not modelled."""
        swizzle = format.swizzles.get(bits >> format.first)
        if swizzle is None:
            return "a matrix descriptor of this swizzle mode is not modelled"
        if bits & format.absolute:
            return "a matrix descriptor whose leading offset is an address is not modelled"
        return cls(
            (bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4,
            bits >> 49 & 7, swizzle,
        )  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """A tile as a box of elements from the start address on: ``strides`` in elements; addresses are
    swizzled as they are everywhere in shared memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    swizzle: Swizzle


def layout_of(form: Descriptor, bits: int, rows: int, k: int, *, trans: bool) -> Layout | str:
    """The layout of a tile of ``rows`` (M or N) by ``k``, or why it is not modelled.

    K-major: (rows, k). With ``trans``: (k, rows), or (rows / w, k, w) where a row of w elements is
    as wide as the swizzle. Where groups of eight rows do not follow each other, or there is no
    swizzle, the same as (rows / 8, 8, columns / w, w).
    """
    if form.base and form.swizzle:  # without a swizzle it means nothing
        return "a matrix descriptor with a base offset is not modelled"
    size = bits // 8
    width = (form.swizzle or _CORE) // size
    if not form.swizzle or form.stride != _ROWS * form.swizzle:
        return _grouped(form, size, rows, k, width, trans=trans)
    if not trans:
        if k > width:
            return "a tile that is wider than its swizzle is not modelled"
        return Layout((rows, k), (width, 1), form.swizzle)
    if rows <= width:
        return Layout((k, rows), (width, 1), form.swizzle)
    if rows % width:
        return "a tile whose last block is not whole is not modelled"
    return Layout((rows // width, k, width), (form.leading // size, width, 1), form.swizzle)


def _grouped(
    form: Descriptor, size: int, rows: int, k: int, width: int, *, trans: bool
) -> Layout | str:
    """Groups of eight rows of memory, each of blocks of ``width`` elements."""
    down, across = (k, rows) if trans else (rows, k)
    inside = min(across, width)
    if across % inside or down % _ROWS:
        return "a tile whose last block is not whole is not modelled"
    if form.swizzle and not trans and across > width:
        return "a tile that is wider than its swizzle is not modelled"
    group, block = form.stride, form.leading
    if trans and not form.swizzle:
        group, block = block, group
    shape = (down // _ROWS, _ROWS, across // inside, inside)
    return Layout(shape, (group // size, width, block // size, 1), form.swizzle)
