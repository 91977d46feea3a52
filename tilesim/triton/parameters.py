"""From the arguments of a Triton kernel to the parameters of its PTX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from triton.backends.driver import decompose_descriptor, expand_signature
from triton.backends.nvidia.driver import make_tensordesc_arg

from tilesim.ptx.launch import MAP_TYPES, Im2col, Map, Parameter, Pointer, Scalar, Swizzle

#: element types of tensor maps in the order of ``CUtensorMapDataType``
_MAP_TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32",
    "tf32.ftz", "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
_SWIZZLES: tuple[Swizzle, ...] = (0, 32, 64, 128)
#: PTX types of Triton's scalars
_SCALARS: Mapping[str, str] = {
    "i1": "u8", "u1": "u8", "i8": "s8", "u8": "u8", "i16": "s16", "u16": "u16", "i32": "s32",
    "u32": "u32", "i64": "s64", "u64": "u64", "fp16": "f16", "bf16": "bf16", "fp32": "f32",
    "f32": "f32", "fp64": "f64",
}  # fmt: skip
_MAP = "nvTmaDesc"


def tiled_map(
    base: int, swizzle: int, element_bytes: int, element_type: int, box: Sequence[int],
    shape: Sequence[int], strides: Sequence[int], padding: int,
) -> Map:  # fmt: skip
    """What the driver would encode; extents come outermost first, strides in elements."""
    kind = _MAP_TYPES[element_type]
    assert MAP_TYPES[kind] == 8 * element_bytes or MAP_TYPES[kind] < 8
    return Map(
        "", kind, tuple(map(int, reversed(shape))),
        tuple(int(s) * element_bytes for s in reversed(strides[:-1])),
        tuple(map(int, reversed(box))), swizzle=_SWIZZLES[swizzle],
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


class _Buffers:
    """Names of buffers: that of the first parameter which points into one."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}

    def pointer(self, name: str, tensor: Any) -> Pointer:
        """The parameter for a tensor, a number that is an address, or nothing."""
        if tensor is None:
            return Pointer(name, 0)
        if isinstance(tensor, int):
            return Pointer(self._names.setdefault(tensor, name))
        key, size, offset = _storage(getattr(tensor, "base", tensor))
        return Pointer(self._names.setdefault(key, name), size, offset)


def _storage(tensor: Any) -> tuple[object, int | None, int]:
    """What tells a tensor's buffer from others, its bytes, and where in it the tensor begins."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        return storage._cdata, storage.nbytes(), tensor.storage_offset() * tensor.element_size()
    size = tensor.nbytes if hasattr(tensor, "nbytes") else None
    return tensor.data_ptr(), size, 0


def parameters(
    signature: Mapping[str, Any], descriptors: Sequence[Mapping[str, Any]], values: Sequence[Any]
) -> Iterator[Parameter]:
    """The kernel's own parameters, in order.

    ``signature`` has Triton's type per argument (constants of the compilation are none of PTX's
    parameters), ``descriptors`` how the compiler wants each tensor descriptor encoded.
    """
    buffers, encodings = _Buffers(), iter(descriptors)
    for (name, kind), value in zip(signature.items(), values, strict=True):
        yield from _parameter(name, kind, value, buffers, encodings)


def _parameter(
    name: str, kind: Any, value: Any, buffers: _Buffers, encodings: Iterator[Mapping[str, Any]]
) -> Iterator[Parameter]:
    if isinstance(kind, tuple):
        for i, (inner, part) in enumerate(zip(kind, value, strict=True)):
            yield from _parameter(f"{name}.{i}", inner, part, buffers, encodings)
    elif kind == "constexpr":
        return
    elif kind.startswith("tensordesc"):
        yield from _descriptor(name, kind, value, buffers, next(encodings, None))
    elif kind.startswith("*"):
        yield buffers.pointer(name, value)
    else:
        yield Scalar(name, _SCALARS[kind], value)


def _descriptor(
    name: str, kind: str, value: Any, buffers: _Buffers, encoding: Mapping[str, Any] | None
) -> Iterator[Parameter]:
    """A host-side tensor descriptor: a map or a pointer, then shape and strides."""
    found = expand_signature((kind,), [encoding] if encoding else None, _MAP)
    parts = make_tensordesc_arg(value, encoding, None) if encoding else decompose_descriptor(value)
    for i, (inner, part) in enumerate(zip(found, parts, strict=True)):
        if inner == _MAP:
            base = buffers.pointer(name, value.base)
            yield replace(part, name=base.name, offset=base.offset)
        elif inner.startswith("*"):
            yield buffers.pointer(name, part)
        else:
            yield Scalar(f"{name}.{i}", _SCALARS[inner], int(part))
