"""Running emitted kernels in this process, on arrays that are already on the GPU.

A kernel that hangs here hangs the process: `tilesim.gpu.watchdog.execute` runs kernels that are
not known to be good in a process of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import DType
from tilesim.errors import UsageError
from tilesim.gpu.compile import Binary, compile_cubin, package
from tilesim.gpu.driver import Gpu
from tilesim.gpu.emit import emit
from tilesim.gpu.emit.emitter import Param
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.expr import ScalarParam
from tilesim.ir.program import Program
from tilesim.records import dataclass, field

#: bulk copies need 16-byte aligned global addresses (SEMANTICS B6, B16)
_ALIGN = 16
_SCALAR = {"f64": "float64", "s64": "int64", "u64": "uint64", "u32": "uint32"}


@cache
def gpu(ordinal: int = 0) -> Gpu:
    """The GPU of this process."""
    return Gpu(ordinal)


@dataclass(frozen=True)
class Launch:
    """A kernel that is loaded and whose arguments are in place: calling it only enqueues it.

    ``arrays`` keeps the arrays alive that the arguments point to.
    """

    device: Gpu
    binary: Binary
    function: Any = field(repr=False)
    arguments: tuple[NDArray[Any], ...] = field(repr=False)
    arrays: tuple[Any, ...] = field(repr=False)

    def __call__(self, stream: Any = None) -> None:
        """Launches the kernel in a stream (see `launch`) without waiting for it."""
        source = self.binary.source
        self.device.launch(
            self.function, source.grid, source.block, source.smem_bytes, self.arguments,
            _stream(stream), cooperative=source.program.cooperative,
        )  # fmt: skip


def launch(
    kernel: Program | Binary,
    arrays: Mapping[str, Any],
    *,
    scalars: Mapping[str, int | float] | None = None,
    stream: Any = None,
) -> None:
    """Launches a kernel on GPU arrays, without waiting for it.

    Args:
        arrays: per global tensor an object with ``__cuda_array_interface__`` or ``__dlpack__``
            (CuPy arrays, torch tensors) of the tensor's shape, strides and element size.
        scalars: values of by-value parameters, where they differ from the program's.
        stream: a stream with ``__cuda_stream__``, ``.ptr`` or ``.cuda_stream``, or its handle;
            the default stream if there is none.

    Raises:
        UsageError: an array is missing or does not fit its tensor.
        DeviceError: there is no driver, no GPU, or a GPU of another architecture.
    """
    prepare(kernel, arrays, scalars=scalars)(stream)


def prepare(
    kernel: Program | Binary,
    arrays: Mapping[str, Any],
    *,
    scalars: Mapping[str, int | float] | None = None,
) -> Launch:
    """All of `launch` but the launch itself, for kernels that are launched more than once."""
    binary = kernel if isinstance(kernel, Binary) else compile_cubin(emit(kernel))
    device = gpu()
    device.require(binary.source.arch)
    program = binary.source.program
    addresses = {t.name: _address(t, arrays) for t in program.tensors}
    unknown = sorted(set(arrays) - set(addresses))
    if unknown:
        raise UsageError(f"{program.name} has no tensor {', '.join(unknown)}")
    values = kernel_arguments(device, binary, addresses, scalars or {}, {})
    return Launch(device, binary, loaded(device, binary), tuple(values), tuple(arrays.values()))


_LOADED: dict[tuple[int, int], tuple[Binary, Any]] = {}


def loaded(device: Gpu, binary: Binary) -> Any:
    """The binary's kernel, loaded once per process."""
    key = (id(device), hash(binary.cubin))
    if key not in _LOADED:
        source = binary.source
        function = device.load(binary.cubin, source.entry, source.smem_bytes)
        if source.program.cluster_size > source.program.target.portable_cluster:
            device.allow_large_cluster(function)
        _LOADED[key] = (binary, function)
    return _LOADED[key][1]


def require_one_device(program: Program) -> None:
    """Raises `UsageError` if parameters are multimem addresses."""
    far = [t.name for t in program.tensors if t.devices != 1]
    if far:
        raise UsageError(
            f"{', '.join(far)}: it is memory of several devices, and a launch on one device has "
            "no multimem addresses"
        )


def kernel_arguments(
    device: Gpu,
    binary: Binary,
    addresses: Mapping[str, int],
    scalars: Mapping[str, int | float],
    extra: Mapping[str, int],
) -> list[NDArray[Any]]:
    """The memory of every kernel parameter; ``extra`` has mailbox, budget and seed."""
    program = binary.source.program
    require_one_device(program)
    maps = {m.name: m for m in program.maps}
    params = {p.name: p for p in program.params if isinstance(p, ScalarParam)}

    def value(param: Param) -> NDArray[Any]:
        match param.kind:
            case "tensor":
                return np.array([addresses[param.name]], dtype=np.uint64)
            case "scalar":
                scalar = params[param.name]
                return np.array(
                    [scalars.get(param.name, scalar.value)], dtype=_scalar_dtype(scalar.dtype)
                )
            case "map":
                tensor_map = maps[param.name]
                return device.tensor_map(tensor_map, addresses[tensor_map.tensor.name])
            case "seed":
                return np.array([extra["seed"]], dtype=np.uint32)
            case _:
                return np.array([extra[param.kind]], dtype=np.uint64)

    return [value(p) for p in binary.source.params]


def _scalar_dtype(dtype: DType) -> str:
    """What a by-value parameter is passed as: narrow integers as s32, narrow floats as f32."""
    narrow = "float32" if dtype.kind == "float" else "int32"
    return _SCALAR.get(dtype.name, narrow)


# ---------------------------------------------------------------------- arrays


def _address(tensor: GlobalTensor, arrays: Mapping[str, Any]) -> int:
    """Device address of the array for ``tensor``; `UsageError` if it does not fit."""
    if tensor.name not in arrays:
        raise UsageError(f"there is no array for tensor {tensor.name}")
    pointer, shape, strides, itemsize = _describe(tensor.name, arrays[tensor.name])
    if shape != tensor.shape:
        raise UsageError(f"array {tensor.name} has shape {shape}, not {tensor.shape}")
    if itemsize != tensor.dtype.bytes:
        raise UsageError(
            f"array {tensor.name} has elements of {itemsize} bytes, {tensor.dtype} has "
            f"{tensor.dtype.bytes}"
        )
    wanted = tensor.byte_strides
    if any(s != w for s, w, n in zip(strides, wanted, shape, strict=True) if n > 1):
        raise UsageError(f"array {tensor.name} has strides {strides} bytes, not {wanted}")
    if pointer % _ALIGN:
        raise UsageError(f"array {tensor.name} starts at {pointer:#x}, not {_ALIGN}-byte aligned")
    return pointer


_Described = tuple[int, tuple[int, ...], tuple[int, ...], int]


def _describe(name: str, array: Any) -> _Described:
    """(address, shape, strides in bytes, element size) of a GPU array."""
    for describe in (_from_interface, _from_dlpack):
        found = describe(array)
        if found is not None:
            return found
    raise UsageError(
        f"array {name} is a {type(array).__name__}: pass an array on the GPU that has "
        "__cuda_array_interface__ or __dlpack__ (CuPy, torch)"
    )


def _from_interface(array: Any) -> _Described | None:
    # torch raises for element types the interface has no name for, such as bf16 or fp8
    try:
        interface = array.__cuda_array_interface__
    except (AttributeError, KeyError, TypeError, RuntimeError):
        return None
    shape = tuple(int(n) for n in interface["shape"])
    itemsize = int(np.dtype(interface["typestr"]).itemsize)
    strides = interface.get("strides") or _packed(shape, itemsize)
    return int(interface["data"][0]), shape, tuple(int(s) for s in strides), itemsize


def _from_dlpack(array: Any) -> _Described | None:
    if not hasattr(array, "__dlpack__"):
        return None
    on_gpu = 2
    kind = int(array.__dlpack_device__()[0])
    if kind != on_gpu:
        return None
    pointer: Callable[[], int] | None = getattr(array, "data_ptr", None)
    if pointer is not None:
        itemsize = int(array.element_size())
        strides = tuple(int(s) * itemsize for s in array.stride())
        return int(pointer()), tuple(int(n) for n in array.shape), strides, itemsize
    view = package("cuda.core.utils").StridedMemoryView.from_dlpack(array, stream_ptr=-1)
    shape, itemsize = tuple(int(n) for n in view.shape), int(view.dtype.itemsize)
    steps = view.strides
    strides = _packed(shape, itemsize) if steps is None else tuple(s * itemsize for s in steps)
    return int(view.ptr), shape, strides, itemsize


def _packed(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * prod(shape[d + 1 :]) for d in range(len(shape)))


def _stream(stream: Any) -> int:
    """The handle of a stream."""
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)
