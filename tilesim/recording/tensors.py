"""Tensors that a kernel is launched with: which buffer each is in, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tilesim.ptx.launch import Pointer


class Buffers:
    """Names of buffers: that of the first parameter which points into one."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}

    def pointer(self, name: str, tensor: Any) -> Pointer:
        """The parameter for a tensor, a number that is an address, or nothing."""
        if tensor is None:
            return Pointer(name, 0)
        if isinstance(tensor, int):
            return Pointer(self._names.setdefault(tensor, name))
        key, size, offset = storage(getattr(tensor, "base", tensor))
        return Pointer(self._names.setdefault(key, name), size, offset)


def storage(tensor: Any) -> tuple[object, int | None, int]:
    """What tells a tensor's buffer from others, its bytes, and where in it the tensor begins."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        return storage._cdata, storage.nbytes(), tensor.storage_offset() * tensor.element_size()
    size = tensor.nbytes if hasattr(tensor, "nbytes") else None
    return tensor.data_ptr(), size, 0


def storages(values: Iterable[Any]) -> Iterator[Any]:
    """The storages of torch that arguments of a kernel lie in, also of descriptors and tuples."""
    for value in values:
        tensor = getattr(value, "base", value)
        if isinstance(value, tuple):
            yield from storages(value)
        elif hasattr(tensor, "untyped_storage"):
            yield tensor.untyped_storage()
