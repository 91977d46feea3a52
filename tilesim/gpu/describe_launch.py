"""The launch description of a kernel that tilesim has emitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.taint import flow_of
from tilesim.arith.types import DType, numpy_dtype
from tilesim.gpu.emit.emitter import Param, Source
from tilesim.ir.declarations import GlobalTensor, TensorMap
from tilesim.ir.expr import ScalarParam
from tilesim.ptx.launch import MAP_TYPES, Contents, Im2col, Launch, Map, Parameter, Pointer, Scalar
from tilesim.ptx.syntax import LaunchError
from tilesim.transforms.lower import lower

#: bytes of a tensor of which no zeros are listed
_LARGE = 1 << 16


def describe(source: Source, inputs: Mapping[str, NDArray[Any]] | None = None) -> Launch:
    """What the launch of an emitted kernel is; what steers it has the values of ``inputs``.

    Raises:
        LaunchError: it has parameters of the watchdog or of a trace.
    """
    program = source.program
    flow = flow_of(graph_of(lower(program)))
    given = inputs or {}
    known = {n: given[n] for n in (*flow.steering_inputs, *flow.steering_state) if n in given}
    # a check of the program takes what it changes itself to begin with zeros
    zero = frozenset(flow.steering_state) - known.keys()
    contents = {
        item.name: _zeros(item) if item.name in zero else _values(item, known[item.name])
        for item in program.tensors
        if item.name in known or (item.name in zero and item.nbytes <= _LARGE)
    }
    return Launch(
        source.entry, source.grid, (source.block, 1, 1), program.cluster, source.smem_bytes,
        program.registers, program.cooperative,
        params=tuple(_parameter(source, param, contents) for param in source.params),
    )  # fmt: skip


def _parameter(source: Source, param: Param, contents: Mapping[str, Contents]) -> Parameter:
    """``contents``: by tensor, what is known of those that steer the program."""
    program = source.program
    if param.kind == "map":
        return _map(next(m for m in program.maps if m.name == param.name))
    for item in program.params:
        if item.name == param.name:
            match item:
                case GlobalTensor(name=name):
                    return Pointer(name, item.nbytes, contents=contents.get(name))
                case ScalarParam(name, value, dtype):
                    return Scalar(name, dtype.name, value)
    raise LaunchError(f"{source.entry}: parameter {param.name} belongs to {param.kind}")


def _zeros(tensor: GlobalTensor) -> Contents:
    kind, size = _listed(tensor.dtype)
    return Contents(kind, (0,) * (tensor.nbytes // size))


def _values(tensor: GlobalTensor, values: NDArray[Any]) -> Contents:
    """The elements of a tensor in the order in which they lie in memory, zeros in between."""
    dtype = numpy_dtype(tensor.dtype)
    data = np.zeros(tensor.nbytes // dtype.itemsize, dtype)
    np.lib.stride_tricks.as_strided(data, tensor.shape, tensor.byte_strides)[...] = values
    kind, size = _listed(tensor.dtype)
    listed = data if size == dtype.itemsize else data.view(np.uint8)
    return Contents(kind, tuple(map(int, listed)))


def _listed(dtype: DType) -> tuple[str, int]:
    """The type of the numbers as which elements are listed, and its bytes: integers are listed as
    such, others by their bytes."""
    return (dtype.name, dtype.bytes) if dtype.kind in ("int", "uint") else ("u8", 1)


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
