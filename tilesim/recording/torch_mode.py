"""Tensors with shapes and strides and no storage, and what operators do with them.

Numbers of tensors on the host that a script gives (``torch.tensor([3, 5])``) are known to
`FakeTensorMode`, as constants. Integers of them stay known on the GPU (`tilesim.recording.values`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch._library.triton import set_wrap_triton_enabled
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.ops import aten
from torch.utils._pytree import tree_leaves, tree_map_only

from tilesim.recording.left_out import OPERATORS, LeftOut, Unavailable, caller
from tilesim.recording.values import VALUES

#: tensors of the host with more elements have no values
_CONSTANT_ELEMENTS = 4096
#: operators that are torch's own
_TORCH = ("aten", "prims", "prim", "inductor", "higher_order", "profiler", "_c10d_functional")


class TorchMode(FakeTensorMode):
    """Torch's mode, with the rules that recording adds.

    Operators that are written in Python are run, so that kernels in them are launched; ``note`` is
    called with those of other libraries that are not.
    """

    #: torch would ask for the GPU that the script is told of
    avoid_device_init = True

    def __init__(self, note: Callable[[LeftOut], None]) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._note = note

    def __deepcopy__(self, memo: object) -> TorchMode:
        """Itself: a tensor's deep copy is of the same mode. Torch copies the mode with the tensor,
        and in it weak references to storages, which copy and original would both free."""
        return self

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """What ``func`` gives for tensors without storage.

        Raises:
            Unavailable: it needs the values.
        """
        given = kwargs or {}
        if getattr(func, "namespace", "aten") not in _TORCH:
            key = _device_key([*args, *given.values()])
            if _is_python(func, key):
                with self:
                    return func.redispatch(DispatchKeySet(key), *args, **given)
            if key is DispatchKey.CUDA:
                self._note(LeftOut(f"{OPERATORS}{func.namespace}.{func._opname}", caller()))
        if func is aten._local_scalar_dense.default:
            values = VALUES.of(args[0])
            if values is not None:
                return values.item()
        device = given.get("device")
        if device is not None and device.type != "cpu" and func is not aten._to_copy.default:
            args = tree_map_only(FakeTensor, self._of_same_layout, args)
        try:
            found = super().__torch_dispatch__(func, types, args, given)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise Unavailable(_wanted(func)) from None
        except UnsupportedOperatorException:
            raise Unavailable(
                f"{func} does not describe its result: give it a fake kernel with "
                "torch.library.register_fake"
            ) from None
        self._follow(func, args, found)
        return found

    def _of_same_layout(self, tensor: Any) -> Any:
        """A tensor without a value that torch would make one on the GPU like."""
        if tensor.constant is None:
            return tensor
        with self:
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )

    def _follow(self, func: Any, args: Sequence[Any], found: Any) -> None:
        """Values go with copies of whole tensors."""
        if func in (aten._to_copy.default, aten.clone.default):
            VALUES.copied(args[0], found)
            values = VALUES.of(found)
            if values is not None and found.device.type == "cpu" and found.constant is None:
                found.constant = values.clone()
                self.fake_tensor_converter.add_constant_storage_mapping(found)
        elif func in self.lift_fns and isinstance(found, FakeTensor):
            VALUES.note(found, None if found.is_floating_point() else found.constant)


def _wanted(func: Any) -> str:
    """What an operator needs the values for."""
    if func is aten._local_scalar_dense.default:
        return "the value of a tensor decides"
    return f"the shape of what {func.namespace}.{func._opname} gives depends on values"


def _device_key(values: Sequence[Any]) -> DispatchKey:
    """The kernels that a call with these would run: those of the GPU if a tensor lies there."""
    gpu = any(isinstance(v, FakeTensor) and v.device.type == "cuda" for v in tree_leaves(values))
    return DispatchKey.CUDA if gpu else DispatchKey.CPU


def _is_python(func: Any, key: DispatchKey) -> bool:
    """Whether an operator's kernel is a function of Python."""
    if not hasattr(func, "redispatch"):
        return False
    table = torch._C._dispatch_dump_table(func._schema.name).splitlines()
    line = next((line for line in table if line.startswith(f"{key.name}: ")), "")
    return ".py:" in line


@contextmanager
def without_storage(mode: TorchMode) -> Iterator[None]:
    """Within it, tensors have no storage."""
    elements = patch.object(fake_tensor, "CONSTANT_NUMEL_LIMIT", _CONSTANT_ELEMENTS)
    with elements, set_wrap_triton_enabled(False), mode:
        yield
