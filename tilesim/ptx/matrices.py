"""Operands of tensor cores in shared memory, which matrix descriptors name."""

from __future__ import annotations

from tilesim.ir.addresses import RANK_SHIFT, view_at
from tilesim.ir.expr import Special
from tilesim.ir.memory import View
from tilesim.ir.types import DType
from tilesim.ptx.constants import known_bits
from tilesim.ptx.descriptor import LEADING, Descriptor, Format, layout_of
from tilesim.ptx.flat import Flat
from tilesim.ptx.lowering import Lowering


def matrix(
    low: Lowering, operand: Flat, format: Format, dtype: DType, extents: tuple[int, int], *,
    trans: bool = False,
) -> View:  # fmt: skip
    """The tile that a descriptor names: (rows, K) elements, or the other way round.

    Raises:
        Unsupported: how its rows lie is not known before it runs, or not modelled.
    """
    mask, value = known_bits(low.constants, operand)
    form = Descriptor.of(value, format)
    if isinstance(form, str):
        raise low.unsupported(form)
    needed = format.bits | LEADING if trans or not form.swizzle else format.bits
    if mask & needed != needed:
        raise low.unsupported("the form of a matrix descriptor is not known before it runs")
    layout = layout_of(form, dtype.bits, *extents, trans=trans)
    if isinstance(layout, str):
        raise low.unsupported(layout)
    address = (low.value(operand) & 0x3FFF) << 4
    if low.launched.launch.cluster_size > 1:
        address = address + (Special("cluster_rank") << RANK_SHIFT)  # of the CTA's own memory
    return view_at(
        address, dtype, layout.shape, space="shared::cta", strides=layout.strides,
        swizzle=layout.swizzle,
    )  # fmt: skip
