"""What tensors hold that a script makes of integers, while tensors have shapes and no storage.

Tables of sizes, strides and addresses steer kernels: what ``torch.tensor`` was given is known, and
goes with copies of whole tensors, until something else writes there. (Torch's mode does so for the
host alone, where it has numbers of every type.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

#: tensors with more bytes are data
_LARGEST = 16 << 10


class Values:
    """The known tensors, by storage."""

    def __init__(self) -> None:
        #: a tensor of the storage, its version when it was written, and what it holds
        self._known: dict[int, tuple[Any, int, Any]] = {}

    def note(self, tensor: Any, values: Any) -> None:
        """``tensor`` holds ``values``, a tensor of the same shape with storage; None: not known."""
        storage = tensor.untyped_storage()
        self._known.pop(storage._cdata, None)
        whole = tensor.is_contiguous() and tensor.nbytes == storage.nbytes() <= _LARGEST
        if values is not None and whole:
            self._known[storage._cdata] = tensor, tensor._version, values

    def of(self, tensor: Any) -> Any:
        """What a tensor is known to hold; None: not known."""
        found = self._of_storage(tensor.untyped_storage())
        return None if found is None or found.shape != tensor.shape else found

    def _of_storage(self, storage: Any) -> Any:
        tensor, version, values = self._known.get(storage._cdata, (None, 0, None))
        return values if tensor is not None and tensor._version == version else None

    def copied(self, source: Any, target: Any) -> None:
        """All of ``source`` is what ``target`` holds now, in its own type."""
        values = self.of(source) if source.shape == target.shape else None
        self.note(target, None if values is None else _real(lambda: values.to(target.dtype)))

    def bytes_of(self, storage: Any) -> bytes | None:
        """What a storage holds."""
        values = self._of_storage(storage)
        if values is None:
            return None
        return bytes(_real(lambda: values.contiguous().reshape(-1).numpy().tobytes()))

    def forget(self, storages: Iterable[Any]) -> None:
        """A kernel may have written there."""
        for storage in storages:
            self._known.pop(storage._cdata, None)

    def clear(self) -> None:
        """Nothing is known."""
        self._known.clear()


def _real(make: Callable[[], Any]) -> Any:
    """What is made with storage."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return make()


#: those of this process
VALUES = Values()
