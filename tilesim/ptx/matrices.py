"""Operands of tensor cores in shared memory, which matrix descriptors name.

Of products of 4-bit elements with K = 96 (sm_103a) a row of A and B has 48 bytes. Rows lie 128
bytes apart in the swizzle of 128 bytes, so those that begin at byte 96 go on somewhere else: at the
address which the descriptor has in place of a leading offset (PTX 9.7.16.3.1.2).
"""

from __future__ import annotations

from tilesim.arith.types import DType, u8
from tilesim.ir.addresses import RANK_SHIFT, view_at
from tilesim.ir.declarations import View
from tilesim.ir.expr import Const, Expr, Special
from tilesim.ir.ops.compute import Assumes
from tilesim.ir.ops.tcgen05_k96 import LONG_ROW
from tilesim.ptx.descriptor import LEADING, TCGEN05, Descriptor, Format, layout_of
from tilesim.ptx.inline import Flat
from tilesim.ptx.lowering_context import Lowering


def matrix(
    low: Lowering, operand: Flat, format: Format, dtype: DType, extents: tuple[int, int], *,
    trans: bool = False,
) -> View:  # fmt: skip
    """The tile that a descriptor names: (rows, K) elements, or the other way round.

    How its rows lie may not be known before it runs, as where an address that is added could change
    it: then it is assumed to be what the code around makes of it, and looked at when it runs.

    Raises:
        Unsupported: how its rows lie is not modelled, or the code around says nothing of it.
    """
    form, holds = _form(low, operand, format, trans=trans)
    layout = layout_of(form, dtype.bits, *extents, trans=trans)
    if isinstance(layout, str):
        raise low.unsupported(layout)
    address = ((low.value(operand) & 0x3FFF) << 4) + holds
    if low.launched.launch.cluster_size > 1:
        address = address + (Special("cluster_rank") << RANK_SHIFT)  # of the CTA's own memory
    return view_at(
        address, dtype, layout.shape, space="shared::cta", strides=layout.strides,
        swizzle=layout.swizzle,
    )  # fmt: skip


def _form(low: Lowering, operand: Flat, format: Format, *, trans: bool) -> tuple[Descriptor, Expr]:
    """How a tile lies; a number that is 0, and not known where it lies otherwise when it runs."""
    mask, value = low.constants.bits(operand)
    known = mask & (format.bits | LEADING) == format.bits | LEADING
    if not known:
        value |= low.constants.bits(operand, zeros=True)[1] & ~mask
    form = Descriptor.of(value, format)
    if isinstance(form, str):
        raise low.unsupported(form)
    needed = format.bits | LEADING if trans or not form.swizzle else format.bits
    if known or mask & needed == needed:
        return form, Const(0)
    if not value & needed:
        raise low.unsupported("the form of a matrix descriptor is not known before it runs")
    holds = low.scratch("u64")
    found, what = low.value(operand) & needed, "the form of a matrix descriptor"
    low.before.append(
        Assumes(result=holds, value=found, expected=value & needed, what=what, loc=low.loc)
    )
    return form, holds


#: bytes of the row of a swizzle
_LINE = 128
_FIELD = 0x3FFF


def long_rows(low: Lowering, operand: Flat, rows: int) -> tuple[View, View | None]:
    """The operand that a descriptor names: what of its rows lies before the end of a row of the
    swizzle, and the rest of them.

    Raises:
        Unsupported: where in a row it begins is not known before it runs, or it has another form.
    """
    known, value = low.constants.bits(operand)
    needed = TCGEN05.bits | _LINE // 16 - 1
    if known & needed != needed:
        raise low.unsupported("the form of a matrix descriptor is not known before it runs")
    absolute = bool(value & TCGEN05.absolute)
    form = Descriptor.of(value & ~TCGEN05.absolute, TCGEN05)
    if isinstance(form, str):
        raise low.unsupported(form)
    if form.swizzle != _LINE or form.base or form.stride != 8 * _LINE:
        raise low.unsupported("rows of K = 96 in another layout are not modelled")
    first = min(LONG_ROW, _LINE - form.start % _LINE)
    bits = low.value(operand)
    view = _rows_at(low, bits & _FIELD, rows, first)
    if first == LONG_ROW:
        return view, None
    if not absolute:
        raise low.unsupported("rows of K = 96 that cross the end of a row of the swizzle")
    return view, _rows_at(low, bits >> 16 & _FIELD, rows, LONG_ROW - first)


def _rows_at(low: Lowering, place: Expr, rows: int, width: int) -> View:
    address = place << 4
    if low.launched.launch.cluster_size > 1:
        address = address + (Special("cluster_rank") << RANK_SHIFT)  # of the CTA's own memory
    return view_at(address, u8, (rows, width), space="shared::cta", strides=(_LINE, 1), swizzle=128)
