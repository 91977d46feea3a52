"""The launch description of a kernel that tilesim has emitted."""

from __future__ import annotations

from tilesim.gpu.emit.source import Param, Source
from tilesim.ir.expr import ScalarParam
from tilesim.ir.memory import GlobalTensor, TensorMap
from tilesim.ptx.errors import LaunchError
from tilesim.ptx.launch import Launch, Map, Parameter, Pointer, Scalar


def describe(source: Source) -> Launch:
    """What the launch of an emitted kernel is.

    Raises:
        LaunchError: it has parameters of the watchdog or of a trace.
    """
    program = source.program
    return Launch(
        source.entry, source.grid, (source.block, 1, 1), program.cluster, source.smem_bytes,
        program.registers, program.cooperative,
        params=tuple(_parameter(source, param) for param in source.params),
    )  # fmt: skip


def _parameter(source: Source, param: Param) -> Parameter:
    program = source.program
    if param.kind == "map":
        return _map(next(m for m in program.maps if m.name == param.name))
    for item in program.params:
        if item.name == param.name:
            match item:
                case GlobalTensor():
                    return Pointer(item.name, item.nbytes)
                case ScalarParam(name, value, dtype):
                    return Scalar(name, dtype.name, value)
    raise LaunchError(f"{source.entry}: parameter {param.name} belongs to {param.kind}")


def _map(value: TensorMap) -> Map:
    tensor = value.tensor
    return Map(
        tensor.name, tensor.dtype.name, tuple(reversed(tensor.shape)),
        tuple(reversed(tensor.byte_strides[:-1])), tuple(reversed(value.box)),
        tuple(reversed(value.element_strides or ())), value.swizzle, 0, value.fill,
    )  # fmt: skip
