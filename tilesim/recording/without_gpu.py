"""Torch on a machine without a GPU: tensors on "cuda" have shapes and strides and no storage."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tilesim.recording import MULTIPROCESSORS, Launched, Recording, autograd
from tilesim.recording.comparisons import Comparison, left_out
from tilesim.recording.values import VALUES

_SHARED_BYTES, _L2_BYTES, _MEMORY_BYTES = 232448, 50 << 20, 80 << 30


@contextmanager
def torch_without_gpu(
    target: str, compared: Callable[[Comparison], None] = lambda _: None
) -> Iterator[None]:
    """Tensors on "cuda" are described only; what asks for the GPU is told of ``target``'s.

    ``compared`` is called with each comparison of numbers that is not made.
    """
    import torch
    from torch._subclasses.fake_tensor import (
        FakeTensor,
        FakeTensorMode,
        unset_fake_temporarily,
    )

    capability = int(target[3:-2]), int(target[-2])
    properties = SimpleNamespace(
        name=f"tilesim {target}", major=capability[0], minor=capability[1],
        multi_processor_count=MULTIPROCESSORS[target], total_memory=_MEMORY_BYTES,
        L2_cache_size=_L2_BYTES, shared_memory_per_block_optin=_SHARED_BYTES, warp_size=32,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "synchronize": None,
        "get_device_capability": capability, "get_device_properties": properties,
        "get_device_name": properties.name, "empty_cache": None, "set_device": None,
        "current_stream": _Nothing(), "default_stream": _Nothing(), "set_stream": None,
    }  # fmt: skip
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(patch.object(torch.cuda, name, always(answer)))
        for name in ("Stream", "Event", "stream", "device"):
            stack.enter_context(patch.object(torch.cuda, name, _Nothing))
        for name, ours in _moves().items():
            stack.enter_context(patch.object(torch.Tensor, name, ours))
        stack.enter_context(patch.object(torch, "tensor", _made(torch.tensor)))
        # nodes of its graph ask for the device's stream, and torch without CUDA ends there
        torch._C._ensureCUDADeviceGuardSet()
        if torch.version.cuda is None:
            stack.enter_context(torch.no_grad())
        for name in ("backward", "grad"):
            stack.enter_context(patch.object(torch.autograd, name, getattr(autograd, name)))
        stack.enter_context(
            left_out(compared, lambda of: not isinstance(of, FakeTensor), unset_fake_temporarily)
        )
        # that a tensor has no storage is no mistake of the script
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        stack.callback(VALUES.clear)
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield


def _moves() -> dict[str, Callable[..., Any]]:
    """Methods of tensors for which torch would ask the driver for the device."""
    import torch

    to, item, copy = torch.Tensor.to, torch.Tensor.__getitem__, torch.Tensor.copy_

    def moved(tensor: Any, *args: Any, **options: Any) -> Any:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **options)
        if device is None or device.type == tensor.device.type:
            same = to(tensor, *args, **options)
            if same is not tensor:
                VALUES.copied(tensor, same)
            return same
        # a copy keeps the strides, also of dimensions of one element, if it leaves no gaps
        shape, strides = tensor.shape, tensor.stride()
        reach = sum(stride * (n - 1) for n, stride in zip(shape, strides, strict=True))
        # of a single number FakeTensorMode knows the value, and would make the copy
        one = tensor.numel() == 1
        found = (
            torch.empty(shape, dtype=tensor.dtype, device=device)
            if one
            else torch.empty_like(tensor, device=device)
        )
        if reach + 1 == tensor.numel():
            found = found.as_strided(shape, strides)
        found = found if dtype is None else to(found, dtype)
        VALUES.copied(tensor, found)
        return found

    def copied(tensor: Any, source: Any, *args: Any, **options: Any) -> Any:
        if "cuda" in (tensor.device.type, source.device.type):
            VALUES.copied(source, tensor)
            return tensor
        return copy(tensor, source, *args, **options)

    def packed(tensor: Any, memory_format: Any = torch.contiguous_format) -> Any:
        same = tensor.is_contiguous(memory_format=memory_format)
        return tensor if same else tensor.clone(memory_format=memory_format)

    def taken(tensor: Any, index: Any) -> Any:
        if tensor.device.type != "cuda":
            return item(tensor, index)
        # of memory without storage all that matters is the shape: as on a tensor of the host
        of_host = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        parts = index if isinstance(index, tuple) else (index,)
        picked = [p.cpu() if isinstance(p, torch.Tensor) else p for p in parts]
        found = item(of_host, tuple(picked))
        if any(isinstance(part, torch.Tensor) for part in parts):
            return torch.empty_like(found, device=tensor.device)
        return tensor.as_strided(
            found.shape, found.stride(), tensor.storage_offset() + found.storage_offset()
        )

    return {
        "to": moved,
        "copy_": copied,
        "contiguous": packed,
        "__getitem__": taken,
        "cuda": lambda tensor, *args, **options: moved(tensor, "cuda"),
        "cpu": lambda tensor, *args, **options: moved(tensor, "cpu"),
    }


def _made(tensor: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.tensor``, which makes one on the host, and asks the driver where it should go."""

    def made(data: Any, *, device: Any = None, **options: Any) -> Any:
        found = tensor(data, **options)
        VALUES.made_of(found, data, tensor)
        return found if device is None else found.to(device)

    return made


def without_gpu(recording: Recording) -> Recording:
    """A recording on a machine where torch is told of a GPU."""

    @contextmanager
    def told(target: str, record: Callable[[Launched], None], **options: Any) -> Iterator[None]:
        with torch_without_gpu(target), recording(target, record, **options):
            yield

    return told


def always(answer: Any) -> Callable[..., Any]:
    """A function of anything that answers this."""

    def function(*args: object, **options: object) -> Any:
        return answer

    return function


class _Nothing:
    """A stream, an event or a device to work on: nothing runs there, and it takes no time."""

    def __init__(self, *args: object, **options: object) -> None:
        self.cuda_stream = 0

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def record(self, *args: object) -> None:
        """Nothing is waited for."""

    wait_stream = wait_event = wait = synchronize = record

    def elapsed_time(self, end: object) -> float:
        """Milliseconds since."""
        return 1.0
