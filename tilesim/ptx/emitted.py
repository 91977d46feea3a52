"""The launch description of a kernel that tilesim has emitted."""

from __future__ import annotations

from collections.abc import Collection

from tilesim.gpu.emit.source import Param, Source
from tilesim.ir.dataflow import flow_of
from tilesim.ir.expr import ScalarParam
from tilesim.ir.flowgraph import graph_of
from tilesim.ir.lower import lower
from tilesim.ir.memory import GlobalTensor, TensorMap
from tilesim.ptx.errors import LaunchError
from tilesim.ptx.launch import MAP_TYPES, Contents, Im2col, Launch, Map, Parameter, Pointer, Scalar

#: bytes of a tensor of which no zeros are listed
_LARGE = 1 << 16


def describe(source: Source) -> Launch:
    """What the launch of an emitted kernel is.

    Raises:
        LaunchError: it has parameters of the watchdog or of a trace.
    """
    program = source.program
    zero = flow_of(graph_of(lower(program))).steering_state
    return Launch(
        source.entry, source.grid, (source.block, 1, 1), program.cluster, source.smem_bytes,
        program.registers, program.cooperative,
        params=tuple(_parameter(source, param, zero) for param in source.params),
    )  # fmt: skip


def _parameter(source: Source, param: Param, zero: Collection[str]) -> Parameter:
    """``zero``: the tensors that a check of the program takes to begin with zeros."""
    program = source.program
    if param.kind == "map":
        return _map(next(m for m in program.maps if m.name == param.name))
    for item in program.params:
        if item.name == param.name:
            match item:
                case GlobalTensor():
                    return Pointer(item.name, item.nbytes, contents=_contents(item, zero))
                case ScalarParam(name, value, dtype):
                    return Scalar(name, dtype.name, value)
    raise LaunchError(f"{source.entry}: parameter {param.name} belongs to {param.kind}")


def _contents(tensor: GlobalTensor, zero: Collection[str]) -> Contents | None:
    """What a tensor begins with; None where nothing depends on it, or it is large."""
    if tensor.name not in zero or tensor.nbytes > _LARGE:
        return None
    if tensor.dtype.kind not in ("int", "uint"):
        return Contents("u8", (0,) * tensor.nbytes)
    return Contents(tensor.dtype.name, (0,) * (tensor.nbytes // tensor.dtype.bytes))


def _map(value: TensorMap) -> Map:
    tensor, im2col = value.tensor, None
    if value.lower is not None and value.upper is not None:
        pixels, channels = value.box
        im2col = Im2col(value.lower[::-1], value.upper[::-1], channels, pixels, value.wide or "")
    extent = tensor.shape[-1] * tensor.dtype.bits // value.element_bits
    # types that the driver has no name for are encoded as unsigned integers of their width
    name = tensor.dtype.name if tensor.dtype.name in MAP_TYPES else f"u{tensor.dtype.bits}"
    return Map(
        tensor.name, value.packing or name, (extent, *tensor.shape[-2::-1]),
        tuple(reversed(tensor.byte_strides[:-1])), () if im2col else value.box[::-1],
        tuple(reversed(value.element_strides or ())), value.swizzle, 0, value.fill, im2col,
    )  # fmt: skip
