"""What a compiler's host code calls in C to launch a kernel: CUDA's functions for it, which record.

The driver's ``CUlaunchConfig`` and the runtime's ``cudaLaunchConfig_t`` lie in memory alike.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from tilesim.ptx.launch import Triple
from tilesim.ptx.syntax import Variable
from tilesim.records import dataclass

#: most arguments of a function
ARGUMENTS = 11
#: a function of CUDA that takes at most so many; those that it is not given are of no meaning
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * ARGUMENTS)
#: ``CUDA_SUCCESS``, ``CUDA_ERROR_NOT_SUPPORTED``
SUCCESS, NOT_SUPPORTED = 0, 801
#: ``CU_LAUNCH_ATTRIBUTE_COOPERATIVE``, ``..._CLUSTER_DIMENSION``,
#: ``..._PROGRAMMATIC_STREAM_SERIALIZATION``
_COOPERATIVE, _CLUSTER, _DEPENDENT = 2, 4, 6
_WORD = 8


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute``"""

    _fields_ = (
        ("kind", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16),
    )  # fmt: skip


class _Configuration(ctypes.Structure):
    """``CUlaunchConfig``; the runtime's has 64 bits for ``shared``, of which the upper are zero"""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint32),
    )  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A launch as host code asks for it: the library that it loaded, and the kernel in it;
    ``arguments`` is the address of their addresses. ``grid``, as host code gives it."""

    library: int
    kernel: str
    grid: Triple
    block: Triple
    cluster: Triple
    shared: int
    cooperative: bool
    dependent: bool
    arguments: int

    def passed(self, formals: Sequence[Variable]) -> list[bytes]:
        """The bytes that are passed for these parameters, which come first."""
        places = (
            ctypes.c_uint64.from_address(self.arguments + _WORD * number).value
            for number in range(len(formals))
        )
        return [ctypes.string_at(p, one.size) for p, one in zip(places, formals, strict=True)]


class Launches:
    """The kernels that host code asks for, and its launches of them, which ``launched`` takes.

    What ``launched`` raises is kept for `finish`: host code cannot pass it on.
    """

    def __init__(self) -> None:
        self.launched: Callable[[Call], None] | None = None
        self._failed: Exception | None = None
        self._kernels: dict[int, tuple[int, str]] = {}

    def kernel(self, found: int, library: int | None, name: int, *_: int) -> int:
        """``cuLibraryGetKernel``"""
        handle = len(self._kernels) + 1
        self._kernels[handle] = library or 0, ctypes.string_at(name).decode()
        return put(found, handle)

    def launch(self, configuration: int, kernel: int, arguments: int, *_: int) -> int:
        """``cuLaunchKernelEx``"""
        if self.launched is None:
            return NOT_SUPPORTED
        config = _Configuration.from_address(configuration)
        said = {
            config.attributes[i].kind: tuple(config.attributes[i].value)
            for i in range(config.count)
        }
        library, name = self._kernels[kernel]
        call = Call(
            library, name, _triple(config.grid), _triple(config.block),
            _triple(said.get(_CLUSTER, (1, 1, 1))), int(config.shared),
            bool(said.get(_COOPERATIVE, (0,))[0]), bool(said.get(_DEPENDENT, (0,))[0]), arguments,
        )  # fmt: skip
        try:
            self.launched(call)
        except Exception as error:
            self._failed = error
        return SUCCESS

    def finish(self) -> None:
        """To be called after host code: raises what the last launch that failed has raised."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


def put(place: int, value: int | None) -> int:
    """Answers a handle or an address, at a place."""
    ctypes.c_uint64.from_address(place).value = value or 0
    return SUCCESS


def put32(place: int, value: int) -> int:
    """Answers a number of 32 bits, at a place."""
    ctypes.c_int32.from_address(place).value = value
    return SUCCESS


def _triple(numbers: Any) -> Triple:
    x, y, z, *_rest = numbers
    return x, y, z
