"""The functions of the CUDA driver that cuTile calls: they record launches.

cuTile asks for each by its name (``cuGetProcAddress``), which it gets from
``cuda.tile._load_libcuda``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import ModuleType

from tilesim.capture import devices
from tilesim.ptx.launch import Triple
from tilesim.records import dataclass

#: the module of cuTile that loads the driver
LOADER = "cuda.tile._load_libcuda"
#: most arguments of a function
_ARGUMENTS = 11
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * _ARGUMENTS)
_SUCCESS, _NOT_SUPPORTED = 0, 801
_VERSION = 13050
#: the one context
_CONTEXT = 1
#: ``CU_POINTER_ATTRIBUTE_CONTEXT``, ``..._MEMORY_TYPE``, ``..._DEVICE_ORDINAL``
_OF_CONTEXT, _OF_MEMORY, _OF_DEVICE = 1, 2, 9
_DEVICE_MEMORY = 2
#: kinds of attributes of a launch
_COOPERATIVE, _CLUSTER, _DEPENDENT = 2, 4, 6
_MASK = (1 << 32) - 1


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute``"""

    _fields_ = (
        ("kind", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16),
    )  # fmt: skip


class _Configuration(ctypes.Structure):
    """``CUlaunchConfig``"""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint32),
    )  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A launch as cuTile asks for it: the library that was loaded, and the kernel in it;
    ``arguments`` is the address of their addresses."""

    library: int
    kernel: str
    grid: Triple
    cluster: Triple
    shared: int
    cooperative: bool
    dependent: bool
    arguments: int


class Runtime:
    """The driver; ``launched`` takes the launches, for a GPU of ``target``.

    What ``launched`` raises is kept in `failed`: cuTile cannot pass it on.
    """

    def __init__(self) -> None:
        self.launched: Callable[[Call], None] | None = None
        self.loaded: Callable[[], int] = lambda: 0
        self.target = "sm_90a"
        self.failed: Exception | None = None
        self._kernels: dict[int, tuple[int, str]] = {}
        self._nothing = ctypes.create_string_buffer(b"it is not recorded by tilesim")
        answers: Mapping[str, Callable[..., int]] = {
            "cuDriverGetVersion": lambda found, *_: _put32(found, _VERSION),
            "cuDeviceGet": lambda found, *_: _put32(found, 0),
            "cuDeviceGetCount": lambda found, *_: _put32(found, 1),
            "cuDeviceGetAttribute": self._attribute,
            "cuCtxGetCurrent": lambda found, *_: _put(found, _CONTEXT),
            "cuCtxPopCurrent": lambda found, *_: _put(found, _CONTEXT),
            "cuCtxGetDevice": lambda found, *_: _put32(found, 0),
            "cuCtxGetId": lambda _, found, *__: _put(found, _CONTEXT),
            "cuDevicePrimaryCtxRetain": lambda found, *_: _put(found, _CONTEXT),
            "cuStreamGetCtx": lambda _, found, *__: _put(found, _CONTEXT),
            "cuStreamGetId": lambda _, found, *__: _put(found, 0),
            "cuStreamIsCapturing": lambda _, found, *__: _put32(found, 0),
            "cuPointerGetAttribute": _pointer,
            "cuGetErrorString": lambda _, found, *__: _put(found, ctypes.addressof(self._nothing)),
            "cuLibraryLoadData": lambda found, *_: _put(found, self.loaded()),
            "cuLibraryGetKernel": self._kernel,
            "cuKernelGetFunction": lambda found, kernel, *_: _put(found, kernel),
            "cuKernelGetAttribute": lambda found, *_: _put32(found, 0),
            "cuLaunchKernelEx": self._launch,
            **{name: lambda *_: _SUCCESS for name in _NOTHING},
        }
        #: by name, what C calls; they have to outlive whatever calls them
        self._functions = {name: _FUNCTION(answer) for name, answer in answers.items()}
        self._other = _FUNCTION(lambda *_: _NOT_SUPPORTED)
        self._found = _FUNCTION(self._address)
        self._slot = ctypes.c_void_p(ctypes.cast(self._found, ctypes.c_void_p).value)

    def module(self) -> ModuleType:
        """What takes the place of `LOADER`."""
        made = ModuleType(LOADER)
        made.__dict__["cuGetProcAddress_v2_ptrptr"] = ctypes.addressof(self._slot)
        return made

    def _address(self, name: int, found: int, *_: int) -> int:
        function = self._functions.get(ctypes.string_at(name).decode(), self._other)
        return _put(found, ctypes.cast(function, ctypes.c_void_p).value or 0)

    def _attribute(self, found: int, kind: int, *_: int) -> int:
        return _put32(found, devices.attribute(self.target, (kind or 0) & _MASK))

    def _kernel(self, found: int, library: int, name: int, *_: int) -> int:
        handle = len(self._kernels) + 1
        self._kernels[handle] = library, ctypes.string_at(name).decode()
        return _put(found, handle)

    def _launch(self, configuration: int, kernel: int, arguments: int, *_: int) -> int:
        config = _Configuration.from_address(configuration)
        said = {
            config.attributes[i].kind: tuple(config.attributes[i].value)
            for i in range(config.count)
        }
        x, y, z, *_rest = said.get(_CLUSTER, (1, 1, 1))
        library, name = self._kernels[kernel]
        a, b, c = config.grid
        call = Call(
            library, name, (a, b, c), (x, y, z), int(config.shared),
            bool(said.get(_COOPERATIVE, (0,))[0]), bool(said.get(_DEPENDENT, (0,))[0]), arguments,
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
    "cuCtxPushCurrent", "cuCtxSetCurrent", "cuCtxSynchronize", "cuEventCreate", "cuEventDestroy",
    "cuEventQuery", "cuEventRecord", "cuInit", "cuKernelSetAttribute", "cuLibraryUnload",
    "cuStreamSynchronize", "cuStreamWaitEvent",
)  # fmt: skip


def _pointer(found: int, kind: int, *_: int) -> int:
    if kind == _OF_CONTEXT:
        return _put(found, _CONTEXT)
    if kind in (_OF_MEMORY, _OF_DEVICE):
        return _put32(found, _DEVICE_MEMORY if kind == _OF_MEMORY else 0)
    return _NOT_SUPPORTED


def _put(place: int, value: int | None) -> int:
    ctypes.c_uint64.from_address(place).value = value or 0
    return _SUCCESS


def _put32(place: int, value: int) -> int:
    ctypes.c_int32.from_address(place).value = value
    return _SUCCESS
