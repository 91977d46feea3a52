"""The functions of the CUDA driver that cuTile calls: they record launches.

cuTile asks for each by its name (``cuGetProcAddress``), which it gets from
``cuda.tile._load_libcuda``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import ModuleType

from tilesim.capture import devices
from tilesim.recording.host_calls import FUNCTION, NOT_SUPPORTED, SUCCESS, Launches, put, put32

#: the module of cuTile that loads the driver
LOADER = "cuda.tile._load_libcuda"
_VERSION = 13050
#: the one context
_CONTEXT = 1
#: ``CU_POINTER_ATTRIBUTE_CONTEXT``, ``..._MEMORY_TYPE``, ``..._DEVICE_ORDINAL``
_OF_CONTEXT, _OF_MEMORY, _OF_DEVICE = 1, 2, 9
_DEVICE_MEMORY = 2
_MASK = (1 << 32) - 1


class Runtime(Launches):
    """The driver of a GPU of ``target``; ``loaded`` says the number of what is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: Callable[[], int] = lambda: 0
        self.target = "sm_90a"
        self._nothing = ctypes.create_string_buffer(b"it is not recorded by tilesim")
        answers: Mapping[str, Callable[..., int]] = {
            "cuDriverGetVersion": lambda found, *_: put32(found, _VERSION),
            "cuDeviceGet": lambda found, *_: put32(found, 0),
            "cuDeviceGetCount": lambda found, *_: put32(found, 1),
            "cuDeviceGetAttribute": self._attribute,
            "cuCtxGetCurrent": lambda found, *_: put(found, _CONTEXT),
            "cuCtxPopCurrent": lambda found, *_: put(found, _CONTEXT),
            "cuCtxGetDevice": lambda found, *_: put32(found, 0),
            "cuCtxGetId": lambda _, found, *__: put(found, _CONTEXT),
            "cuDevicePrimaryCtxRetain": lambda found, *_: put(found, _CONTEXT),
            "cuStreamGetCtx": lambda _, found, *__: put(found, _CONTEXT),
            "cuStreamGetId": lambda _, found, *__: put(found, 0),
            "cuStreamIsCapturing": lambda _, found, *__: put32(found, 0),
            "cuPointerGetAttribute": _pointer,
            "cuGetErrorString": lambda _, found, *__: put(found, ctypes.addressof(self._nothing)),
            "cuLibraryLoadData": lambda found, *_: put(found, self.loaded()),
            "cuLibraryGetKernel": self.kernel,
            "cuKernelGetFunction": lambda found, kernel, *_: put(found, kernel),
            "cuKernelGetAttribute": lambda found, *_: put32(found, 0),
            "cuLaunchKernelEx": self.launch,
            **{name: lambda *_: SUCCESS for name in _NOTHING},
        }
        #: by name, what C calls; they have to outlive whatever calls them
        self._functions = {name: FUNCTION(answer) for name, answer in answers.items()}
        self._other = FUNCTION(lambda *_: NOT_SUPPORTED)
        self._found = FUNCTION(self._address)
        self._slot = ctypes.c_void_p(ctypes.cast(self._found, ctypes.c_void_p).value)

    def module(self) -> ModuleType:
        """What takes the place of `LOADER`."""
        made = ModuleType(LOADER)
        made.__dict__["cuGetProcAddress_v2_ptrptr"] = ctypes.addressof(self._slot)
        return made

    def _address(self, name: int, found: int, *_: int) -> int:
        function = self._functions.get(ctypes.string_at(name).decode(), self._other)
        return put(found, ctypes.cast(function, ctypes.c_void_p).value or 0)

    def _attribute(self, found: int, kind: int, *_: int) -> int:
        return put32(found, devices.attribute(self.target, (kind or 0) & _MASK))


#: what has nothing to do here
_NOTHING = (
    "cuCtxPushCurrent", "cuCtxSetCurrent", "cuCtxSynchronize", "cuEventCreate", "cuEventDestroy",
    "cuEventQuery", "cuEventRecord", "cuInit", "cuKernelSetAttribute", "cuLibraryUnload",
    "cuStreamSynchronize", "cuStreamWaitEvent",
)  # fmt: skip


def _pointer(found: int, kind: int, *_: int) -> int:
    if kind == _OF_CONTEXT:
        return put(found, _CONTEXT)
    if kind in (_OF_MEMORY, _OF_DEVICE):
        return put32(found, _DEVICE_MEMORY if kind == _OF_MEMORY else 0)
    return NOT_SUPPORTED
