"""The functions of the CUDA runtime that the host code of CuTe DSL calls: they record launches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from tilesim.recording.host_calls import (
    ARGUMENTS,
    FUNCTION,
    NOT_SUPPORTED,
    SUCCESS,
    Launches,
    put,
    put32,
)

_FFI = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
)
_LIBRARY = 1
#: ``cudaDevAttrMaxSharedMemoryPerBlockOptin`` and its value
_OPTIN, _SHARED_BYTES = 97, 232448


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


class Runtime(Launches):
    """What host code is linked with."""

    def __init__(self) -> None:
        super().__init__()
        answers: Mapping[str, Callable[..., int]] = {
            "_cudaLibraryLoadData": lambda library, *_: put(library, _LIBRARY),
            "_cuLibraryLoadData": lambda library, *_: put(library, _LIBRARY),
            "_cudaLibraryGetKernel": self.kernel,
            "_cudaDeviceGetAttribute": _attribute,
            "_cuKernelGetAttribute": lambda value, *_: put32(value, 0),
            "_cudaGetDevice": lambda device, *_: put32(device, 0),
            "_cudaGetDeviceCount": lambda count, *_: put32(count, 1),
            "_cudaLaunchKernelEx": self.launch,
            "cuda_dialect_init_library_once": _init_once,
            **{name: lambda *_: SUCCESS for name in _NOTHING},
            **{name: lambda *_: NOT_SUPPORTED for name in _OTHERS},
        }
        #: by name, what C calls; they have to outlive the host code
        self.functions = {name: FUNCTION(answer) for name, answer in answers.items()}


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


def _init_once(state: int, initialise: int, load: int, *_: int) -> int:
    """What host code with TVM FFI calls first: ``initialise(library)``, ``load(library, device)``
    if ``state`` is none."""
    if not ctypes.c_uint64.from_address(state).value:
        library = ctypes.c_uint64(0)
        FUNCTION(initialise)(ctypes.addressof(library), *[None] * (ARGUMENTS - 1))
        FUNCTION(load)(ctypes.addressof(library), *[None] * (ARGUMENTS - 1))
        put(state, library.value or _LIBRARY)
    return SUCCESS


def _attribute(result: int, kind: int, *_: int) -> int:
    return put32(result, _SHARED_BYTES) if kind == _OPTIN else NOT_SUPPORTED
