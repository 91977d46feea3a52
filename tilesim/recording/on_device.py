"""Tensors of torch that a compiler's own runtime is to take for tensors on a GPU.

Each has memory on the host, which begins where memory on a GPU may and which nothing touches, so
that host code can tell buffers by their addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from tilesim.capture.memory import DEVICE, Allocation, Memory
from tilesim.ptx.launch import Parameter, Pointer
from tilesim.ptx.parameters import Described
from tilesim.ptx.syntax import LaunchError, Variable
from tilesim.ptx.tensormap import address, decode
from tilesim.recording.values import VALUES

#: how far a buffer may reach of which only the address is known
_UNKNOWN = 1 << 40
_WORD = 8
#: memory that torch allocates on a GPU begins at a multiple of
_ALIGNED = 512
#: ``kDLCUDA``, and where what a capsule holds lies
_DL_CUDA = 2
_ADDRESS_OF = ctypes.pythonapi.PyCapsule_GetPointer
_ADDRESS_OF.restype, _ADDRESS_OF.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class OnDevice:
    """A tensor on the CPU that is handed over as one on the GPU: its kernels use global memory."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        """A ``DLManagedTensor``, which begins with the address and then says the device."""
        capsule = self._tensor.__dlpack__()
        place = _ADDRESS_OF(capsule, b"dltensor")
        ctypes.c_int32.from_address(place + _WORD).value = _DL_CUDA
        return capsule


class Tensors:
    """The tensors that were handed over, and what parameters of launches are of them."""

    def __init__(self) -> None:
        self._memory = Memory()
        #: storages in use, by what they are asked for with, and where in them memory begins
        self._storages: dict[int, tuple[Any, Any, int]] = {}

    def handed(self, value: Any) -> Any:
        """What a compiler gets for a tensor: one whose memory nothing touches; else the value."""
        return OnDevice(self._on_host(value)) if hasattr(value, "untyped_storage") else value

    def _on_host(self, tensor: Any) -> Any:
        """A tensor with the same layout that has memory, which begins where one on a GPU may."""
        asked = tensor.untyped_storage()
        if asked._cdata not in self._storages:
            own, skipped = asked, 0
            if type(tensor) is FakeTensor:
                with unset_fake_temporarily():
                    own = torch.UntypedStorage(asked.nbytes() + _ALIGNED)
                skipped = -own.data_ptr() % _ALIGNED
            self._storages[asked._cdata] = asked, own, skipped
            self._memory.allocate(_base(own, skipped), asked.nbytes(), DEVICE)
        _, own, skipped = self._storages[asked._cdata]
        if own is asked:
            return tensor
        with unset_fake_temporarily():
            made = torch.empty(0, dtype=tensor.dtype)
            offset = tensor.storage_offset() + skipped // tensor.element_size()
            return made.set_(own, offset, tuple(tensor.shape), tensor.stride())

    def address(self, tensor: Any) -> int:
        """Where a tensor without memory lies, as compilers get it: host code may write there."""
        return int(self._on_host(tensor).data_ptr())

    def pointer(self, value: Any) -> Any:
        """The same for an address; zero, which functions are compiled with, is of nothing."""
        if int(value) and self._memory.at(int(value)) is None:
            self._memory.allocate(int(value), _UNKNOWN, DEVICE)
        return value

    def parameters(
        self, formals: Sequence[Variable], data: Iterable[bytes], names: Sequence[str] = ()
    ) -> tuple[tuple[Parameter, ...], tuple[Pointer, ...]]:
        """What parameters with these bytes are, and the buffers that only addresses in memory lead
        to. The kernel may have written to whatever it was given."""
        described = Described(self._memory, self._is_map, self._contents, names)
        params = tuple(
            _sized(described.parameter(number, formal, one))
            for number, (formal, one) in enumerate(zip(formals, data, strict=True))
        )
        buffers = described.buffers()
        given = {one.base for one in described.used}
        VALUES.forget(
            asked for asked, own, at in self._storages.values() if _base(own, at) in given
        )
        return params, buffers

    def _is_map(self, data: bytes) -> bool:
        """Whether bytes can be a tensor map, of memory that is known."""
        if self._memory.at(address(data)) is None:
            return False
        try:
            decode(data, "")
        except LaunchError:
            return False
        return True

    def _contents(self, allocation: Allocation) -> bytes | None:
        """What an allocation holds, if the script has made it of numbers."""
        own = (s for s, kept, at in self._storages.values() if _base(kept, at) == allocation.base)
        return next((VALUES.bytes_of(storage) for storage in own), None)


def _base(storage: Any, skipped: int) -> int:
    """Where the memory of a tensor begins in a storage."""
    return int(storage.data_ptr()) + skipped


def _sized(parameter: Parameter) -> Parameter:
    """Without a size that is not known."""
    if isinstance(parameter, Pointer) and parameter.bytes == _UNKNOWN:
        return replace(parameter, bytes=None)
    return parameter
