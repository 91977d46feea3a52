"""Operands of tensor cores in shared memory, which matrix descriptors name."""

from __future__ import annotations

from tilesim.arith.types import DType
from tilesim.ir.addresses import RANK_SHIFT, view_at
from tilesim.ir.expr import Const, Expr, Special
from tilesim.ir.memory import View
from tilesim.ir.ops.compute import Assumes
from tilesim.ptx.constants import assumed, known_bits
from tilesim.ptx.descriptor import LEADING, Descriptor, Format, layout_of
from tilesim.ptx.flat import Flat
from tilesim.ptx.lowering import Lowering


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
    mask, value = known_bits(low.constants, operand)
    known = mask & (format.bits | LEADING) == format.bits | LEADING
    if not known:
        value |= assumed(low.constants, operand) & ~mask
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
