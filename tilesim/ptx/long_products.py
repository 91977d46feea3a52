"""Products of 4-bit elements with K = 96, of sm_103a: 48 bytes of every row of A and B.

Rows lie 128 bytes apart in the swizzle of 128 bytes, so those that begin at byte 96 go on somewhere
else: at the address which the descriptor has in place of a leading offset (PTX 9.7.16.3.1.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesim.arith.types import u8
from tilesim.ir.addresses import RANK_SHIFT, view_at
from tilesim.ir.expr import Expr, Special
from tilesim.ir.memory import View
from tilesim.ir.ops.tcgen05_k96 import LONG_ROW
from tilesim.ptx.constants import known_bits
from tilesim.ptx.descriptor import TCGEN05, Descriptor
from tilesim.ptx.flat import Flat
from tilesim.ptx.lowering import Lowering

if TYPE_CHECKING:
    pass

#: bytes of the row of a swizzle
_LINE = 128
_FIELD = 0x3FFF


def long_rows(low: Lowering, operand: Flat, rows: int) -> tuple[View, View | None]:
    """The operand that a descriptor names: what of its rows lies before the end of a row of the
    swizzle, and the rest of them.

    Raises:
        Unsupported: where in a row it begins is not known before it runs, or it has another form.
    """
    known, value = known_bits(low.constants, operand)
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
        raise low.unsupported("rows of K = 96 that go on behind a row of the swizzle")
    return view, _rows_at(low, bits >> 16 & _FIELD, rows, LONG_ROW - first)


def _rows_at(low: Lowering, place: Expr, rows: int, width: int) -> View:
    address = place << 4
    if low.launched.launch.cluster_size > 1:
        address = address + (Special("cluster_rank") << RANK_SHIFT)  # of the CTA's own memory
    return view_at(address, u8, (rows, width), space="shared::cta", strides=(_LINE, 1), swizzle=128)
