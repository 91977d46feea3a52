"""Torch on a machine without a GPU: tensors on "cuda" have shapes and strides and no storage."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tilesim.recording import Launched, Recording, autograd
from tilesim.recording.device_guard import ensure_cuda_guard
from tilesim.recording.left_out import LeftOut, caller, left_out
from tilesim.recording.values import VALUES

Note = Callable[[LeftOut], None]


@contextmanager
def torch_without_gpu(target: str, note: Note = lambda _: None) -> Iterator[None]:
    """Tensors on "cuda" are described only; what asks for the GPU is told of ``target``'s.

    ``note`` is called with what is left out of the script. The environment has TILESIM_CAPTURE.

    Raises:
        UsageError: torch is not built for it.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

    from tilesim.recording.gpu import answers
    from tilesim.recording.reads import readers
    from tilesim.recording.torch_mode import TorchMode, without_storage

    ensure_cuda_guard()
    # torch looks at its functions here: none may be ours yet
    mode = TorchMode(note)
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, TILESIM_CAPTURE=target))
        for owner, functions in answers(target).items():
            for name, ours in functions.items():
                if hasattr(owner, name):
                    stack.enter_context(patch.object(owner, name, ours))
        for name, reader in readers(note).items():
            for owner in (torch.Tensor, FakeTensor):
                if name in vars(owner) or owner is torch.Tensor:
                    stack.enter_context(patch.object(owner, name, reader))
        for name in ("backward", "grad"):
            stack.enter_context(patch.object(torch.autograd, name, getattr(autograd, name)))
        stack.enter_context(_modules())
        stack.enter_context(patch.object(torch, "save", _saving(note)))
        stack.enter_context(_as_written(note))
        stack.enter_context(
            left_out(note, lambda of: not isinstance(of, FakeTensor), unset_fake_temporarily)
        )
        # that a tensor has no storage is no mistake of the script
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        stack.callback(VALUES.clear)
        stack.enter_context(without_storage(mode))
        yield


@contextmanager
def _modules() -> Iterator[None]:
    """Within it, modules move by a ``torch.nn.Module._apply`` of ours. Torch's exchanges what two
    tensors are, which fails where one is referred to weakly. Modules that had tensors with storage
    get these back at the end."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    before: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}

    def applied(module: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
        for child in module.children() if recurse else ():
            child._apply(function)
        for tensors, convert in ((module._parameters, _converted), (module._buffers, _made)):
            for name, tensor in tensors.items():
                if tensor is not None:
                    if not isinstance(tensor, FakeTensor):
                        before.setdefault((id(tensors), name), (tensors, tensor))
                    tensors[name] = convert(tensor, function)
        return module

    with patch.object(torch.nn.Module, "_apply", applied):
        try:
            yield
        finally:
            for (_, name), (tensors, tensor) in before.items():
                tensors[name] = tensor


def _made(buffer: Any, function: Callable[[Any], Any]) -> Any:
    return function(buffer)


def _converted(parameter: Any, function: Callable[[Any], Any]) -> Any:
    """A parameter with what ``function`` makes of it and of its gradient: the same object, unless
    it had storage."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    with torch.no_grad():
        made, gradient = function(parameter), parameter.grad
        if made is parameter:
            return parameter
        if isinstance(parameter, FakeTensor) and isinstance(made, FakeTensor):
            parameter.grad = None
            parameter.data = made
            parameter.fake_device, parameter.constant = made.fake_device, None
        else:
            parameter = torch.nn.Parameter(made, parameter.requires_grad)
        parameter.grad = None if gradient is None else function(gradient)
    return parameter


def _saving(note: Note) -> Callable[..., None]:
    """``torch.save``, which writes no tensors without values."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._pytree import tree_leaves

    save = torch.save

    def saved(of: Any, *args: Any, **options: Any) -> None:
        if any(isinstance(leaf, FakeTensor | torch.nn.Module) for leaf in tree_leaves(of)):
            note(LeftOut("torch.save", caller()))
        else:
            save(of, *args, **options)

    return saved


@contextmanager
def _as_written(note: Note) -> Iterator[None]:
    """Within it, ``torch.compile`` gives back what it is given, and functions that were compiled
    before are run as they were written; both are noted."""
    import torch
    from torch._dynamo import eval_frame

    def compiled(function: Any = None, **options: Any) -> Any:
        note(LeftOut("torch.compile", caller()))
        return function if function is not None else lambda given: given

    private = "_callback_from_stance"
    choose = getattr(eval_frame, private, None)

    def chosen(callback: Any) -> Any:
        answer = None if choose is None else choose(callback)
        if callable(callback) and answer is not callback:
            note(LeftOut("torch.compile", caller()))
        return answer

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch, "compile", compiled))
        if choose is not None:
            stack.enter_context(patch.object(eval_frame, private, chosen))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def without_gpu(recording: Recording) -> Recording:
    """A recording on a machine where torch is told of a GPU."""

    @contextmanager
    def recording_without_gpu(
        target: str, record: Callable[[Launched], None], **options: Any
    ) -> Iterator[None]:
        with torch_without_gpu(target), recording(target, record, **options):
            yield

    return recording_without_gpu
