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
_FFI = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
)
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


def unpacked(place: int) -> Any:
    """A function of TVM FFI: ``f(handle, arguments, count, result)``, of which there is a form at
    an address that takes the addresses of these and of what it returns."""
    packed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(place)

    def call(handle: int | None, arguments: int | None, number: int, result: int | None) -> int:
        code = ctypes.c_int32(0)
        given = (
            ctypes.c_void_p(handle), ctypes.c_void_p(arguments), ctypes.c_int32(number),
            ctypes.c_void_p(result), code,
        )  # fmt: skip
        addresses = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
        packed(ctypes.addressof(addresses))
        return code.value

    return _FFI(call)


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
            "cuda_dialect_init_library_once": _init_once,
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
    "CuteDSLRT_TVMFFISetRaisedCudaError", "CuteDSLRT_TVMFFISetRaisedCudaLaunchError",
    "cuda_dialect_unload_library_once",
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


def _init_once(state: int, initialise: int, load: int, *_: int) -> int:
    """What host code with TVM FFI calls first: ``initialise(library)``, ``load(library, device)``
    if ``state`` is none."""
    if not ctypes.c_uint64.from_address(state).value:
        library = ctypes.c_uint64(0)
        _FUNCTION(initialise)(ctypes.addressof(library), *[None] * (_ARGUMENTS - 1))
        _FUNCTION(load)(ctypes.addressof(library), *[None] * (_ARGUMENTS - 1))
        _write(state, library.value or _LIBRARY)
    return _SUCCESS


def _attribute(result: int, kind: int, *_: int) -> int:
    return _write32(result, _SHARED_BYTES) if kind == _OPTIN else _NOT_SUPPORTED
