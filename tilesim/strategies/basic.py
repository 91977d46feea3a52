"""Strategies for the parts of a program: dtypes, TMA boxes and tensor maps, schedules."""

from __future__ import annotations

import hypothesis.strategies as st

from tilesim.arith.types import DTYPES, DType
from tilesim.dsl.kernel import public
from tilesim.ir.declarations import GlobalTensor, TensorMap
from tilesim.ir.layout import Swizzle
from tilesim.sim.machine.schedule import Chooser, PctChooser, RandomChooser, ReplayChooser

#: B16: elements of a box per dimension, dimensions of a tensor
_MOST_ELEMENTS = 256
_MOST_DIMENSIONS = 5
#: bytes that the rows of a box, and the strides of its tensor, are a multiple of
_GRAIN = 16
#: dtypes that a tensor map cannot have
_NO_MAP = ("pred",)


@public
def dtypes(*, tensor_map: bool = False) -> st.SearchStrategy[DType]:
    """A dtype; with ``tensor_map`` one that TMA can copy."""
    every = [d for d in DTYPES.values() if not tensor_map or d.name not in _NO_MAP]
    whole = [d for d in every if not tensor_map or d.bits % 8 == 0]
    return st.sampled_from(whole)


@public
@st.composite
def boxes(
    draw: st.DrawFn, dtype: DType, *, swizzle: Swizzle = 0, most_bytes: int = 8192
) -> tuple[int, ...]:
    """A box that a tensor map over ``dtype`` may have with this swizzle (B15, B16).

    Slowest dimension first, at most ``most_bytes`` in all.
    """
    row = min(swizzle or _MOST_ELEMENTS * dtype.bytes, _MOST_ELEMENTS * dtype.bytes, most_bytes)
    inner = draw(st.integers(1, row // _GRAIN)) * _GRAIN
    shape = [inner // dtype.bytes]
    left = most_bytes // inner
    for _ in range(draw(st.integers(0, _MOST_DIMENSIONS - 1))):
        extent = draw(st.integers(1, max(1, min(left, _MOST_ELEMENTS))))
        shape.insert(0, extent)
        left //= extent
    return tuple(shape)


@public
@st.composite
def tensor_maps(
    draw: st.DrawFn, *, dtype: DType | None = None, name: str = "A", most_bytes: int = 8192
) -> TensorMap:
    """A tensor map that the hardware accepts: tensor, box and swizzle fit each other."""
    chosen = dtype or draw(dtypes(tensor_map=True))
    swizzle: Swizzle = draw(st.sampled_from((0, 32, 64, 128)))
    box = draw(boxes(chosen, swizzle=swizzle, most_bytes=most_bytes))
    grain = _GRAIN // chosen.bytes if chosen.bytes <= _GRAIN else 1
    shape = [extent * draw(st.integers(1, 3)) for extent in box]
    shape[-1] = -(-shape[-1] // grain) * grain
    tensor = GlobalTensor(name, chosen, tuple(shape))
    return TensorMap(f"{name}_map", tensor, box, swizzle)


@public
def schedules() -> st.SearchStrategy[Chooser]:
    """A schedule policy: picks that are spelled out (these shrink), random, or PCT."""
    seeds = st.integers(0, 1 << 32)
    return st.one_of(
        st.lists(st.integers(0, 7), max_size=64).map(ReplayChooser),
        seeds.map(RandomChooser),
        st.builds(PctChooser, seeds, depth=st.integers(1, 4)),
    )
