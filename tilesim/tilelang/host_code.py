"""The host function that tilelang compiles beside a kernel, interpreted.

It checks what it was called with, makes tensor maps, and launches kernels. Tensors are Python's
objects, pointers say which tensor they point into; what it calls is handed to the caller.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tvm import DataType, tirx

from tilesim.errors import UsageError
from tilesim.records import dataclass, replace

#: what a packed function gets: its name and its arguments
Called = Callable[[str, list[Any]], None]

#: kinds of ``tvm_struct_get``
_DATA, _SHAPE, _STRIDES, _NDIM, _TYPE_CODE, _TYPE_BITS, _TYPE_LANES = 1, 2, 3, 4, 5, 6, 7
_BYTE_OFFSET, _DEVICE_ID, _DEVICE_TYPE, _KIND, _VALUE = 8, 9, 10, 13, 15
#: what an argument may be, and the type of a GPU
_NONE, _INT, _FLOAT, _TENSOR, _CUDA = 0, 1, 3, 7, 2

_BINARY: Mapping[Any, Callable[[Any, Any], Any]] = {
    tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv, tirx.FloorMod: operator.mod,
    tirx.Min: min, tirx.Max: max, tirx.EQ: operator.eq, tirx.NE: operator.ne,
    tirx.LT: operator.lt, tirx.LE: operator.le, tirx.GT: operator.gt, tirx.GE: operator.ge,
}  # fmt: skip
_CALLS: Mapping[str, Callable[[Any, Any], Any]] = {
    "tirx.shift_left": operator.lshift, "tirx.shift_right": operator.rshift,
    "tirx.bitwise_and": operator.and_, "tirx.bitwise_or": operator.or_,
    "tirx.bitwise_xor": operator.xor,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Address:
    """A byte of a tensor."""

    tensor: Any
    offset: int = 0


@dataclass(eq=False)
class Descriptor:
    """Room for a tensor map; ``made`` is what the host function has put there."""

    made: Any = None


class _Returned(Exception):
    """The host function has returned."""


class HostCode:
    """Runs a host function for ``arguments``; ``called`` takes its calls of packed functions.

    Raises:
        UsageError: the function refuses the arguments, or does what is not read here.
    """

    def __init__(self, function: Any, arguments: Sequence[Any], called: Called) -> None:
        _, args, count, _ = function.params
        self._values: dict[Any, Any] = {args: tuple(arguments), count: len(arguments)}
        self._called = called
        with suppress(_Returned):
            self._run(function.body)

    def _run(self, statement: Any) -> None:
        match type(statement):
            case tirx.SeqStmt:
                for one in statement.seq:
                    self._run(one)
            case tirx.AttrStmt:
                self._run(statement.body)
            case tirx.Bind:
                self._values[statement.var] = self._value(statement.value)
            case tirx.IfThenElse:
                chosen = statement.then_case
                if not self._value(statement.condition):
                    chosen = statement.else_case
                if chosen is not None:
                    self._run(chosen)
            case tirx.AssertStmt:
                if not self._value(statement.condition):
                    raise UsageError("".join(str(part.value) for part in statement.message_parts))
            case tirx.Evaluate:
                self._value(statement.value)
            case tirx.DeclBuffer:
                pass
            case other:
                raise UsageError(f"the host code of the kernel has {other.__name__}: not read")

    def _value(self, e: Any) -> Any:
        kind = type(e)
        if kind in (tirx.IntImm, tirx.FloatImm, tirx.StringImm):
            return e.value
        if kind is tirx.Var:
            return self._values[e]
        if kind in _BINARY:
            return _BINARY[kind](self._value(e.a), self._value(e.b))
        match kind:
            case tirx.And:
                return self._value(e.a) and self._value(e.b)
            case tirx.Or:
                return self._value(e.a) or self._value(e.b)
            case tirx.Not:
                return not self._value(e.a)
            case tirx.Select:
                return self._value(e.true_value if self._value(e.condition) else e.false_value)
            case tirx.Cast:
                return _cast(str(e.dtype), self._value(e.value))
            case tirx.BufferLoad:
                return self._values[e.buffer.data][self._value(e.indices[0])]
            case tirx.Call:
                return self._call(e.op.name, e.args)
        raise UsageError(f"the host code of the kernel has {kind.__name__}: not read")

    def _call(self, name: str, args: Any) -> Any:
        match name:
            case "tirx.tvm_call_packed":
                function, *values = (self._value(a) for a in args)
                return self._called(function, values)
            case "tirx.if_then_else":
                return self._value(args[1 if self._value(args[0]) else 2])
            case "tirx.isnullptr":
                return self._value(args[0]) is None
            case "tirx.tvm_struct_get":
                of, index, field = (self._value(a) for a in args)
                return _argument(of[index], field) if field >= _KIND else _field(of, field)
            case "tirx.handle_add_byte_offset":
                address, offset = (self._value(a) for a in args)
                return replace(address, offset=address.offset + offset)
            case "tirx.tvm_stack_alloca":
                return Descriptor()
            case "tirx.ret":
                raise _Returned
        if name in _CALLS:
            return _CALLS[name](*(self._value(a) for a in args))
        raise UsageError(f"the host code of the kernel calls {name}: not read")


def _cast(kind: str, value: Any) -> Any:
    if kind == "bool":
        return bool(value)
    if kind.startswith(("float", "bfloat")):
        return float(value)
    return int(value) if isinstance(value, (int, float)) else value


def _argument(value: Any, field: int) -> Any:
    """What kind of argument it is, or the argument."""
    if field == _VALUE:
        return value
    if value is None:
        return _NONE
    if isinstance(value, int):
        return _INT
    return _FLOAT if isinstance(value, float) else _TENSOR


def _field(tensor: Any, field: int) -> Any:
    """A field of the description of a tensor."""
    match field:
        case 1:
            return Address(tensor)
        case 2:
            return tuple(tensor.shape)
        case 3:
            return tuple(tensor.stride())
        case 4:
            return len(tensor.shape)
        case 8 | 9:
            return 0
        case 10:
            return _CUDA
    kind = DataType(str(tensor.dtype).removeprefix("torch."))
    return {_TYPE_CODE: kind.type_code, _TYPE_BITS: kind.bits, _TYPE_LANES: kind.lanes}[field]
