"""The functions of the CUDA runtime that the host code of CuTe DSL calls: they record launches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from tilesim.ptx.launch import Triple
from tilesim.records import dataclass

#: most arguments of a function of the runtime
_ARGUMENTS = 10
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * _ARGUMENTS)
_SUCCESS, _NOT_SUPPORTED = 0, 801
_LIBRARY = 1
#: ``cudaDevAttrMaxSharedMemoryPerBlockOptin`` and its value
_OPTIN, _SHARED_BYTES = 97, 232448
#: kinds of attributes of a launch
_COOPERATIVE, _CLUSTER, _DEPENDENT = 2, 4, 6


class _Attribute(ctypes.Structure):
    """``cudaLaunchAttribute``"""

    _fields_ = (
        ("kind", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16),
    )  # fmt: skip


class _Configuration(ctypes.Structure):
    """``cudaLaunchConfig_t``"""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_size_t), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint32),
    )  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A launch as the host code asks for it; ``arguments`` is the address of their addresses."""

    kernel: str
    grid: Triple
    block: Triple
    cluster: Triple
    shared: int
    cooperative: bool
    dependent: bool
    arguments: int


class Runtime:
    """What host code is linked with; ``launched`` takes the launches.

    What ``launched`` raises is kept in `failed`: host code cannot pass it on.
    """

    def __init__(self) -> None:
        self.launched: Callable[[Call], None] | None = None
        self.failed: Exception | None = None
        self._kernels: dict[int, str] = {}
        answers: Mapping[str, Callable[..., int]] = {
            "_cudaLibraryLoadData": lambda library, *_: _write(library, _LIBRARY),
            "_cuLibraryLoadData": lambda library, *_: _write(library, _LIBRARY),
            "_cudaLibraryGetKernel": self._kernel,
            "_cudaDeviceGetAttribute": _attribute,
            "_cuKernelGetAttribute": lambda value, *_: _write32(value, 0),
            "_cudaGetDevice": lambda device, *_: _write32(device, 0),
            "_cudaGetDeviceCount": lambda count, *_: _write32(count, 1),
            "_cudaLaunchKernelEx": self._launch,
            **{name: lambda *_: _SUCCESS for name in _NOTHING},
            **{name: lambda *_: _NOT_SUPPORTED for name in _OTHERS},
        }
        #: by name, what C calls; they have to outlive the host code
        self.functions = {name: _FUNCTION(answer) for name, answer in answers.items()}

    def _kernel(self, result: int, library: int, name: int, *_: int) -> int:
        handle = len(self._kernels) + 1
        self._kernels[handle] = ctypes.string_at(name).decode()
        return _write(result, handle)

    def _launch(self, configuration: int, kernel: int, arguments: int, *_: int) -> int:
        config = _Configuration.from_address(configuration)
        said = {
            config.attributes[i].kind: tuple(config.attributes[i].value)
            for i in range(config.count)
        }
        x, y, z, *_rest = said.get(_CLUSTER, (1, 1, 1))
        call = Call(
            self._kernels[kernel], _triple(config.grid), _triple(config.block), (x, y, z),
            int(config.shared), bool(said.get(_COOPERATIVE, (0,))[0]),
            bool(said.get(_DEPENDENT, (0,))[0]), arguments,
        )  # fmt: skip
        if self.launched is None:
            return _NOT_SUPPORTED
        try:
            self.launched(call)
        except Exception as error:
            self.failed = error
        return _SUCCESS


#: what has nothing to do here
_NOTHING = (
    "_cudaDeviceSynchronize", "_cudaFuncSetAttribute", "_cudaKernelSetAttributeForDevice",
    "_cudaLibraryUnload", "_cudaSetDevice", "_cudaStreamSynchronize",
)  # fmt: skip
#: what host code may be linked with and is not answered
_OTHERS = (
    "_cuDeviceGet", "_cuLibraryGetGlobal", "_cuLibraryGetKernel", "_cuTensorMapEncodeTiled",
    "_cudaFree", "_cudaLaunchKernel", "_cudaLibraryGetGlobal", "_cudaMalloc", "_cudaMemcpy",
    "_cudaMemcpyAsync", "_cudaMemset", "_cudaMemsetAsync", "_cudaStreamCreate",
    "_cudaStreamDestroy",
)  # fmt: skip


def _triple(numbers: Any) -> Triple:
    x, y, z = numbers
    return x, y, z


def _write(place: int, value: int) -> int:
    ctypes.c_uint64.from_address(place).value = value
    return _SUCCESS


def _write32(place: int, value: int) -> int:
    ctypes.c_int32.from_address(place).value = value
    return _SUCCESS


def _attribute(result: int, kind: int, *_: int) -> int:
    return _write32(result, _SHARED_BYTES) if kind == _OPTIN else _NOT_SUPPORTED
