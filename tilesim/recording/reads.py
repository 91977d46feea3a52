"""Numbers that a script reads from tensors, or writes there, where these have none.

Most are printed: ``.item()`` of a floating-point tensor is a nan. What it decides is another
matter: comparing such a number, or making an integer of it, is an error that names the line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from tilesim.recording.left_out import LeftOut, Unavailable, caller, is_torch
from tilesim.recording.values import VALUES

Note = Callable[[LeftOut], None]


class Unread(float):
    """A number that was read of a tensor without values: a nan that decides nothing."""

    def __new__(cls, where: str) -> Unread:
        """``where`` it was read, as ``file:line``."""
        number = super().__new__(cls, "nan")
        number.where = where
        return number

    where: str
    __hash__ = float.__hash__


def _decides(number: Unread, *_: object) -> Any:
    raise Unavailable(f"this depends on a number that was read at {number.where}")


def _stays(number: Unread, *_: object) -> Unread:
    return number


for _name in ("lt", "le", "gt", "ge", "eq", "ne", "bool", "int", "float", "trunc", "floor", "ceil"):
    setattr(Unread, f"__{_name}__", _decides)
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Unread, f"__{_name}__", _stays)
    setattr(Unread, f"__r{_name}__", _stays)
for _name in ("neg", "pos", "abs", "round"):
    setattr(Unread, f"__{_name}__", _stays)


def readers(note: Note) -> Mapping[str, Callable[..., Any]]:
    """Methods of `torch.Tensor` that read or copy numbers, for tensors that may have none; ``note``
    is called with each read of the script."""
    original = {
        name: getattr(Tensor, name)
        for name in (
            "item", "tolist", "numpy", "__array__", "__format__", "copy_", "__deepcopy__",
        )
    }  # fmt: skip

    def read(tensor: Any, function: str) -> Unread:
        where = caller()
        if not tensor.is_floating_point():
            raise Unavailable(f"{function} of a tensor of {tensor.dtype}")
        if not is_torch(2):
            note(LeftOut(f"torch.Tensor.{function}", where))
        return Unread(where)

    def item(tensor: Any) -> Any:
        if not _without_values(tensor) or tensor.numel() != 1:
            return original["item"](tensor)
        return read(tensor, "item")

    def tolist(tensor: Any) -> Any:
        values = _values(tensor)
        if values is not None:
            return values.tolist()
        if not isinstance(tensor, FakeTensor):
            return original["tolist"](tensor)
        number = read(tensor, "tolist")

        def nested(shape: Any) -> Any:
            return [nested(shape[1:]) for _ in range(shape[0])] if shape else number

        return nested(tuple(tensor.shape))

    def numpy(tensor: Any, **options: Any) -> Any:
        values = _values(tensor)
        if values is not None:
            return values.numpy(**options)
        return tensor if isinstance(tensor, FakeTensor) else original["numpy"](tensor, **options)

    def array(tensor: Any, *args: Any, **options: Any) -> Any:
        values = _values(tensor)
        if values is not None:
            return values.__array__(*args, **options)
        if isinstance(tensor, FakeTensor):
            raise Unavailable("an array of NumPy is made of a tensor")
        return original["__array__"](tensor, *args, **options)

    def formatted(tensor: Any, spec: str) -> str:
        if not spec or not isinstance(tensor, FakeTensor) or tensor.dim():
            return str(original["__format__"](tensor, spec))
        values = _values(tensor)
        if values is not None:
            return format(values.item(), spec)
        return format(read(tensor, "format"), spec)

    def copied(tensor: Any, source: Any, *args: Any, **options: Any) -> Any:
        found = original["copy_"](tensor, source, *args, **options)
        VALUES.copied(source, tensor)
        return found

    def deep_copied(tensor: Any, memo: dict[int, Any]) -> Any:
        if id(tensor) in memo or not isinstance(tensor, FakeTensor) or tensor.constant is None:
            return original["__deepcopy__"](tensor, memo)
        # torch copies the constant as an attribute, too: while tensors are made without storage,
        # that fails
        with unset_fake_temporarily():
            memo[id(tensor.constant)] = tensor.constant.clone()
        made = original["__deepcopy__"](tensor, memo)
        made.fake_mode.fake_tensor_converter.add_constant_storage_mapping(made)
        return made

    return {
        "__deepcopy__": deep_copied, "copy_": copied, "item": item, "tolist": tolist,
        "numpy": numpy, "__array__": array, "__format__": formatted,
    }  # fmt: skip


def _without_values(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor) and _values(tensor) is None


def _values(tensor: Any) -> Any:
    """A tensor with storage that holds what this one is known to hold; None: not known."""
    if not isinstance(tensor, FakeTensor):
        return None
    return tensor.constant if tensor.constant is not None else VALUES.of(tensor)
