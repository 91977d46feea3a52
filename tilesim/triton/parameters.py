"""From the arguments of a Triton kernel to the parameters of its PTX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import Any

from tilesim.capture.maps import SWIZZLES, TYPES
from tilesim.ptx.launch import MAP_TYPES, Im2col, Map, Parameter, Scalar
from tilesim.recording.tensors import Buffers

#: PTX types of Triton's scalars
_SCALARS: Mapping[str, str] = {
    "i1": "u8", "u1": "u8", "i8": "s8", "u8": "u8", "i16": "s16", "u16": "u16", "i32": "s32",
    "u32": "u32", "i64": "s64", "u64": "u64", "fp16": "f16", "bf16": "bf16", "fp32": "f32",
    "f32": "f32", "fp64": "f64",
}  # fmt: skip
#: the driver's number of a type of elements, where it is not that of the instruction
_ON_HOST: Mapping[int, int] = {8: 10, 9: 8, 10: 9}
_TF32 = 11


def tiled_map(
    base: int, swizzle: int, element_bytes: int, element_type: int, box: Sequence[int],
    shape: Sequence[int], strides: Sequence[int], padding: int,
) -> Map:  # fmt: skip
    """What the driver would encode; extents come outermost first, strides in elements."""
    kind = TYPES[element_type]
    assert MAP_TYPES[kind] == 8 * element_bytes or MAP_TYPES[kind] < 8
    return Map(
        "", kind, tuple(map(int, reversed(shape))),
        tuple(int(s) * element_bytes for s in reversed(strides[:-1])),
        tuple(map(int, reversed(box))), swizzle=SWIZZLES[swizzle][0],
        fill="nan" if padding else "zero",
    )  # fmt: skip


def im2col_map(
    base: int, swizzle: int, element_bytes: int, element_type: int, box: Sequence[int],
    shape: Sequence[int], strides: Sequence[int], padding: int, lower: Sequence[int],
    upper: Sequence[int], steps: Sequence[int],
) -> Map:  # fmt: skip
    """The same in mode im2col; ``box`` is pixels per column and channels per pixel."""
    tiled = tiled_map(base, swizzle, element_bytes, element_type, (), shape, strides, padding)
    pixels, channels = map(int, box)
    corners = tuple(map(int, reversed(lower))), tuple(map(int, reversed(upper)))
    return replace(
        tiled, element_strides=tuple(map(int, reversed(steps))),
        im2col=Im2col(*corners, channels, pixels),
    )  # fmt: skip


def parameters(
    signature: Mapping[str, Any], descriptors: Sequence[Mapping[str, Any]], values: Sequence[Any]
) -> Iterator[Parameter]:
    """The kernel's own parameters, in order.

    ``signature`` has Triton's type per argument (constants of the compilation are none of PTX's
    parameters), ``descriptors`` how the compiler wants each tensor descriptor encoded.
    """
    buffers, encodings = Buffers(), iter(descriptors)
    for (name, kind), value in zip(signature.items(), values, strict=True):
        yield from _parameter(name, kind, value, buffers, encodings)


def _parameter(
    name: str, kind: Any, value: Any, buffers: Buffers, encodings: Iterator[Mapping[str, Any]]
) -> Iterator[Parameter]:
    if isinstance(kind, tuple):
        for i, (inner, part) in enumerate(zip(kind, value, strict=True)):
            yield from _parameter(f"{name}.{i}", inner, part, buffers, encodings)
    elif kind == "constexpr":
        return
    elif kind.startswith("tensordesc"):
        yield from _descriptor(name, value, buffers, next(encodings, None))
    elif kind.startswith("*"):
        yield buffers.pointer(name, value)
    else:
        unknown = isinstance(value, float) and isnan(value)
        yield Scalar(name, _SCALARS[kind], None if unknown else value)


def _encoded(value: Any, encoding: Mapping[str, Any]) -> Map:
    """The map that Triton's launcher has the driver make of a tensor descriptor."""
    kind = _TF32 if getattr(value, "round_f32_to_tf32", False) else encoding["elem_type"]
    shape = [*value.shape]
    if encoding["fp4_padded"]:
        shape[-1] *= 2
    layout = (
        0, encoding["swizzle"], encoding["elem_size"], _ON_HOST.get(kind, kind),
        encoding["block_size"], shape, value.strides, int(value.padding == "nan"),
    )  # fmt: skip
    if not encoding.get("is_im2col", False):
        return tiled_map(*layout)
    steps = value.element_strides or [1] * len(shape)
    return im2col_map(*layout, value.pixel_box_lower_corner, value.pixel_box_upper_corner, steps)


def _descriptor(
    name: str, value: Any, buffers: Buffers, encoding: Mapping[str, Any] | None
) -> Iterator[Parameter]:
    """A host-side tensor descriptor: a map, or what it is made of, then shape and strides.

    Of what it is made of the kernel gets all (`decompose_descriptor` in Triton): since 3.7 that it
    rounds to TF32 is a part.
    """
    base = buffers.pointer(name, value.base)
    parts: list[tuple[str, Any]] = [*_typed("s32", value.shape), *_typed("s64", value.strides)]
    if encoding is not None:
        yield replace(_encoded(value, encoding), name=base.name, offset=base.offset)
    else:
        yield base
        flags = [value.padding == "nan"]
        if hasattr(value, "round_f32_to_tf32"):
            flags.append(value.round_f32_to_tf32)
        first = *_typed("s64", (*value.shape, *value.strides)), *_typed("u8", flags)
        parts = [*first, *parts]
    for i, (kind, part) in enumerate(parts, 1):
        yield Scalar(f"{name}.{i}", kind, int(part))


def _typed(kind: str, values: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(kind, value) for value in values]
