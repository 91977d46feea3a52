"""A program as the Python code that builds it, ready to be pasted into a test or an issue."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from math import isfinite
from operator import attrgetter
from typing import Any

from tilesim.arith.types import DType, s32
from tilesim.dsl.builder import Builder
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.declarations import (
    Fragment,
    GlobalTensor,
    Mbar,
    Mbarriers,
    SharedTensor,
    TensorMap,
    View,
)
from tilesim.ir.expr import (
    Base,
    Binary,
    Const,
    Expr,
    ScalarParam,
    Select,
    Special,
    Unary,
    Var,
    as_expr,
)
from tilesim.ir.op import ANNOTATIONS, Op
from tilesim.ir.ops.bar import ElectSync
from tilesim.ir.ops.tcgen05 import Tcgen05Wait
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While, walk
from tilesim.ir.tensor_memory import TmemView

#: mnemonics whose method is not simply named like them
_METHODS: dict[str, str] = {
    "mov": "assign",
    "setmaxnreg": "setmaxnreg",
    "exit": "exit",
    "bar.warp.sync": "sync_warp",
    "barrier.arrive": "bar.arrive",
    "barrier.red": "bar.red",
    "barrier.sync": "bar.sync",
    "clusterlaunchcontrol.query_cancel.get_first_ctaid": "clc.query_first_ctaid",
    "clusterlaunchcontrol.query_cancel.is_canceled": "clc.query_is_canceled",
    "clusterlaunchcontrol.try_cancel": "clc.try_cancel",
    "cp.async.bulk.prefetch.tensor": "tma.prefetch",
    "cp.reduce.async.bulk.tensor": "tma.reduce",
}
_OPERATORS = {"min": "minimum", "max": "maximum"}
#: the function that joins conditions, and the value it starts with
_JOINS = {"and": ("all_of", True), "or": ("any_of", False)}
_COMPARISONS = {"==": "eq", "!=": "ne"}
_RESERVED = {"k", "program", "ds", "address_of", "mbar_at", "view_at", "select", "binary",
             "as_expr", "all_of", "any_of", *_OPERATORS.values()}  # fmt: skip


def builder_code(program: Program) -> str:
    """Python code that builds ``program`` and binds it to ``program``.

    Executing it gives an equal program, except for source locations and the order of variables.
    """
    return _Writer(program).text()


class _Writer:
    """The lines written so far, and what every declaration is called in the code."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.imports: set[str] = {"Builder"}
        self.helpers: set[str] = set()
        self.depth = 0
        self.names: dict[str, str] = {}
        self.claimed: set[str] = set()

    def text(self) -> str:
        """The whole code."""
        self._launch()
        self._declarations()
        self._block(self.program.body)
        self._line("program = k.finish()")
        header = f"from tilesim import {', '.join(sorted(self.imports))}\n"
        if self.helpers:
            header += f"from tilesim.ir.expr import {', '.join(sorted(self.helpers))}\n"
        return header + "\n" + "\n".join(self.lines) + "\n"

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # ------------------------------------------------------------------ declarations

    def _launch(self) -> None:
        p = self.program
        self._line(f"k = Builder({p.name!r}, {p.target.name!r}, warps={p.warps})")
        options = {
            "grid": (p.grid, (1, 1, 1)), "cluster": (p.cluster, (1, 1, 1)),
            "registers": (p.registers, None), "smem_bytes": (p.smem_bytes, None),
            "cooperative": (p.cooperative, False),
        }  # fmt: skip
        given = [f"{name}={value!r}" for name, (value, usual) in options.items() if value != usual]
        if given:
            self._line(f"k.launch({', '.join(given)})")

    def _declarations(self) -> None:
        p = self.program
        made = {s.var.name for s in walk(p.body) if isinstance(s, For)}
        made |= {s.result.name for s in walk(p.body) if isinstance(s, ElectSync)}
        for param in (*p.params, *p.maps, *p.shared, *p.fragments):
            self._declare(param)
        for var in p.variables:
            self.names[var.name] = self._identifier(var.name)
            if var.name not in made:
                self.claimed.add(var.name)
                self._line(f"{self.names[var.name]} = {self._call('var', var)}")

    def _declare(self, item: Any) -> None:
        method = {
            GlobalTensor: "tensor", ScalarParam: "scalar", TensorMap: "tensor_map",
            SharedTensor: "shared", Mbarriers: "mbarriers", Fragment: "fragment",
        }[type(item)]  # fmt: skip
        self.names[item.name] = self._identifier(item.name)
        self.claimed.add(item.name)
        self._line(f"{self.names[item.name]} = {self._call(method, item)}")

    def _identifier(self, name: str) -> str:
        taken = _RESERVED | self.imports | set(self.names.values())
        while not name.isidentifier() or keyword.iskeyword(name) or name in taken:
            name = "".join(c if c.isalnum() else "_" for c in name) + "_"
        return name

    # ------------------------------------------------------------------ statements

    def _block(self, body: tuple[Stmt, ...]) -> None:
        if not body:
            self._line("pass")
        place = 0
        while place < len(body):
            stmt = body[place]
            after = body[place + 1] if place + 1 < len(body) else None
            if isinstance(stmt, ElectSync) and self._is_elected(stmt, after):
                assert isinstance(after, If)
                self.claimed.add(stmt.result.name)
                form = "" if stmt.warp_sync else "sync=False"
                self._region(f"k.elected({form})", after.then)
                place += 1
            else:
                self._statement(stmt)
            place += 1

    def _is_elected(self, stmt: ElectSync, after: Stmt | None) -> bool:
        """Whether ``k.elected()`` would record this pair under these very names."""
        if not isinstance(after, If) or after.cond != stmt.result or after.orelse:
            return False
        name, n = "elected", 1
        while name in self.claimed:
            name, n = f"elected_{n}", n + 1
        return name == stmt.result.name and stmt == ElectSync(
            result=stmt.result, warp_sync=stmt.warp_sync
        )

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case For(var=var, start=start, stop=stop, step=step, body=body, sync=sync):
                bounds = [start, stop, step] if step != Const(1) else [start, stop]
                if bounds[0] == Const(0) and len(bounds) == 2:
                    del bounds[0]
                self.claimed.add(var.name)
                arguments = ", ".join([*map(self._value, bounds), f"name={var.name!r}"])
                self._region(f"k.loop({arguments}{_sync(sync)})", body, self.names[var.name])
            case While(cond=cond, body=body, sync=sync):
                self._region(f"k.while_({self._condition(cond)}{_sync(sync)})", body)
            case If(cond=cond, then=then, orelse=orelse, sync=sync):
                self._region(f"k.if_({self._condition(cond)}{_sync(sync)})", then)
                if orelse:
                    self._region("k.else_()", orelse)
            case Role(name=name, warps=warps, body=body):
                self._region(f"k.role({name!r}, {list(warps)})", body)
            case Break():
                self._line("k.break_()")
            case Op():
                self._line(self._op(stmt))

    def _region(self, head: str, body: tuple[Stmt, ...], bound: str = "") -> None:
        self._line(f"with {head}{f' as {bound}' if bound else ''}:")
        self.depth += 1
        self._block(body)
        self.depth -= 1

    def _op(self, op: Op) -> str:
        values = {f.name: getattr(op, f.name) for f in fields(op) if f.name not in ANNOTATIONS}
        if isinstance(op, ElectSync):
            name, target = op.result.name, self.names[op.result.name]
            self.claimed.add(name)
            return f"{target} = k.elect({name!r}, {op.mask:#x})"
        if "parity" in values:
            phase = values.pop("phase")
            values["parity" if values.pop("parity") else "token"] = phase
        return f"k.{self._call(_method(op), None, values)}"

    def _call(self, method: str, item: Any, values: dict[str, Any] | None = None) -> str:
        """``method(...)`` with the arguments that differ from the defaults."""
        given = values
        if given is None:
            given = {f.name: getattr(item, f.name) for f in fields(item)}
            given |= {"value": given.get("value")}
        arguments = []
        for parameter in _parameters(method):
            value = given.get(parameter.name)
            if parameter.default is parameter.empty:
                arguments.append(self._value(value))
            elif parameter.name in given and not _same(value, parameter.default):
                arguments.append(f"{parameter.name}={self._value(value)}")
        call = f"{method}({', '.join(arguments)})"
        return call if values is not None else f"k.{call}"

    # ------------------------------------------------------------------ operands

    def _condition(self, cond: Expr) -> str:
        return self._const(cond) if isinstance(cond, Const) else self._value(cond)

    def _const(self, value: Expr) -> str:
        """An operand that must be an expression even if it is a literal."""
        if not isinstance(value, Const):
            return self._value(value)
        self.helpers.add("as_expr")
        return f"as_expr({_literal(value.value)})"

    def _value(self, value: Any) -> str:
        match value:
            case Expr():
                return self._expression(value)
            case View():
                return self._view(value)
            case Mbar(array=AddressedMbarriers(address=address, space=space)):
                self.imports.add("mbar_at")
                return f"mbar_at({self._value(address)}, space={space!r})"
            case Mbar(array=array, index=index, cta=cta):
                return f"{self.names[array.name]}[{self._value(index)}]{self._at(cta)}"
            case TmemView(address=address, dtype=dtype, shape=shape, name=name, packed=packed):
                where = f"{self._value(address)}, {self._value(dtype)}, {shape}"
                layout = "" if packed else ", packed=False"
                return f"k.tcgen05.tensor({where}, name={name!r}{layout})"
            case DType(name=name):
                self.imports.add(name)
                return str(name)
            case GlobalTensor() | SharedTensor() | TensorMap() | Fragment() | Mbarriers():
                return self.names[value.name]
            case tuple():
                inside = ", ".join(map(self._value, value))
                return f"({inside},)" if len(value) == 1 else f"({inside})"
            case _:
                return _literal(value)

    def _expression(self, expr: Expr) -> str:
        match expr:
            case Const(value=value):
                return _literal(value)
            case Var(name=name) | ScalarParam(name=name):
                return self.names[name]
            case Special(name=name):
                return f"k.{name}"
            case Base(name=name):
                self.imports.add("address_of")
                return f"address_of({self.names[name]})"
            case Unary(op="not", operand=operand):
                return f"{self._const(operand)}.eq(0)"
            case Unary(op=op, operand=operand):
                return f"({op}{self._const(operand)})"
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _COMPARISONS:
                return f"({self._const(lhs)}).{_COMPARISONS[op]}({self._value(rhs)})"
            case Binary(op=op) if op in _JOINS:
                return self._join(expr)
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _OPERATORS:
                self.imports.add(_OPERATORS[op])
                return f"{_OPERATORS[op]}({self._value(lhs)}, {self._value(rhs)})"
            case Binary(op=op, lhs=lhs, rhs=rhs):
                return f"({self._value(lhs)} {op} {self._value(rhs)})"
            case Select(cond=cond, then=then, other=other):
                self.imports.add("select")
                return f"select({', '.join(map(self._value, (cond, then, other)))})"
            case _:
                raise TypeError(f"{type(expr).__name__} has no builder code")

    def _join(self, expr: Binary) -> str:
        """A conjunction or disjunction, as ``all_of`` or ``any_of`` where that records the same."""
        function, start = _JOINS[expr.op]
        parts: list[Expr] = []
        first: Expr = expr
        while isinstance(first, Binary) and first.op == expr.op:
            parts.insert(0, first.rhs)
            first = first.lhs
        if isinstance(first, Const) and first.value is start:
            self.imports.add(function)
            return f"{function}({', '.join(map(self._value, parts))})"
        self.helpers.add("binary")
        return f"binary({expr.op!r}, {self._value(expr.lhs)}, {self._value(expr.rhs)})"

    def _view(self, view: View) -> str:
        parts = []
        for dim, (offset, extent) in enumerate(zip(view.offsets, view.extents, strict=True)):
            if dim not in view.dims:
                parts.append(self._value(offset))
            elif offset == Const(0) and extent == view.tensor.shape[dim]:
                parts.append(":")
            elif isinstance(offset, Const):
                parts.append(f"{offset.value}:{int(offset.value) + extent}")
            else:
                self.imports.add("ds")
                parts.append(f"ds({self._value(offset)}, {extent})")
        if isinstance(view.tensor, AddressedTensor):
            at = self._at_address(view.tensor)
            return f"{at}[{', '.join(parts)}]" if parts else at
        return f"{self.names[view.tensor.name]}[{', '.join(parts)}]{self._at(view.cta)}"

    def _at_address(self, tensor: AddressedTensor) -> str:
        self.imports.add("view_at")
        what = f"{self._value(tensor.address)}, {self._value(tensor.dtype)}, {tensor.shape!r}"
        given = {"space": "shared::cta", "strides": None, "swizzle": 0}
        options = [
            f", {name}={getattr(tensor, name)!r}"
            for name, usual in given.items() if getattr(tensor, name) != usual
        ]  # fmt: skip
        return f"view_at({what}{''.join(options)})"

    def _at(self, cta: Expr | None) -> str:
        return "" if cta is None else f".at({self._value(cta)})"


def _literal(value: Any) -> str:
    """A constant as Python reads it, infinities and NaN too."""
    return f'float("{value}")' if isinstance(value, float) and not isfinite(value) else repr(value)


def _same(value: Any, default: Any) -> bool:
    """Whether an operand is what the method would use anyway."""
    if isinstance(value, Expr) and isinstance(default, int | float):
        return value == as_expr(default)
    if isinstance(value, DType):
        return value is s32 and default is s32
    return bool(value == default)


@cache
def _parameters(method: str) -> tuple[inspect.Parameter, ...]:
    """What a method of the builder takes, ``self`` left out."""
    function: Callable[..., Any] = attrgetter(method)(_BUILDER)
    return tuple(inspect.signature(function).parameters.values())


_BUILDER = Builder("signatures")


def _method(op: Op) -> str:
    """The builder's method that records this kind of instruction."""
    mnemonic = op.mnemonic
    if op.call:
        return op.call.partition("(")[0]
    if mnemonic in _METHODS:
        return _METHODS[mnemonic]
    for pattern, space in (("cp.async.bulk.tensor.", "tma."), ("cp.async.bulk.", "bulk.")):
        if mnemonic.startswith(pattern):
            return space + mnemonic[len(pattern) :]
    head, _, rest = mnemonic.partition(".")
    variant = getattr(op, "side", "") or (op.kind if isinstance(op, Tcgen05Wait) else "")
    return f"{head}.{rest.replace('.', '_')}" + (f"_{variant}" if variant else "")


def _sync(sync: bool) -> str:
    return "" if sync else ", sync=False"
