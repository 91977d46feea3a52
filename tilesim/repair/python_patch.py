"""Repairs as patches of the user's Python source, where a line can be changed mechanically."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tilesim.dsl.builder import Builder
from tilesim.dsl.methods import Namespace, call_of, recorded
from tilesim.files import source_lines
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.expr import Const, Expr, Special, Var, constant, walk
from tilesim.ir.loc import Loc, is_python
from tilesim.ir.mir import Control
from tilesim.ir.op import ANNOTATIONS, OPS, Op
from tilesim.ir.ops.bar import BarSync
from tilesim.ir.program import For, If, Role, Stmt, While
from tilesim.mistakes.context import flipped
from tilesim.mistakes.edits import differ
from tilesim.records import dataclass, fields
from tilesim.transforms.rewrite import Instead, Patch

#: by kind of region, the methods of the builder that begin with one
_REGIONS: dict[type[object], tuple[str, ...]] = {
    Role: ("role", "warpgroup", "one_thread"), For: ("loop",), If: ("if_",), While: ("while_",),
}  # fmt: skip


@dataclass(frozen=True)
class _Method:
    """How the DSL calls an instruction: ``mbarrier.init`` and its parameters."""

    name: str
    parameters: tuple[inspect.Parameter, ...]


_WORD = re.compile(r"%?[A-Za-z_]\w*")
#: by counter of a loop: the loop's line, and which of the loops made at that line it is
Counters = Mapping[str, tuple[int, int]]


def counters_of(program: Iterable[object]) -> Counters:
    """The counters of the loops among these statements, which are in order."""
    made: Counter[int] = Counter()
    found: dict[str, tuple[int, int]] = {}
    for what in program:
        if isinstance(what, For):
            line = what.loc.line
            found[what.var.name] = (line, made[line])
            made[line] += 1
    return found


def patched(old: Stmt | Control, new: Instead, counters: Counters) -> Patch | None:
    """The source line that makes a statement, changed so that it makes ``new`` in its place; None
    if that takes more than another literal or name in the line, or further lines."""
    source = _Source.of(old.loc, counters)
    if source is None:
        return None
    first = old
    if isinstance(first, For) and len(new) == 1 and isinstance(new[0], For):
        return source.loop(first, new[0])
    here = [n for n, what in enumerate(new) if what is first]
    beside = [what for what in new if what is not first]
    if len(here) == 1 and beside and all(isinstance(what, Op) for what in beside):
        if here[0] not in (0, len(beside)):
            return None
        if isinstance(first, Op):
            return source.inserted(first, beside, late=not here[0])
        return source.around(first, beside, late=not here[0])
    if not isinstance(first, Op):
        return None
    if not new:
        return source.without(first)
    if len(new) == 1 and isinstance(new[0], Op):
        return source.exchanged(first, new[0])
    return source.instead(first, new) if all(isinstance(what, Op) for what in new) else None


@dataclass(frozen=True)
class _Source:
    """A file, and the line of it that a statement was made at."""

    loc: Loc
    lines: tuple[str, ...]
    tree: ast.Module
    counters: Counters

    @classmethod
    def of(cls, loc: Loc, counters: Counters) -> _Source | None:
        """None if the file cannot be read, or is no Python."""
        if not is_python(loc.file):
            return None
        lines = tuple(f"{line}\n" for line in source_lines(loc.file))
        try:
            return cls(loc, lines, ast.parse("".join(lines)), counters) if lines else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    # ------------------------------------------------------------------ finding

    def _call(self, names: Sequence[str]) -> ast.Call | None:
        """The one call of a method with such a name at the line, of one line."""
        found = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call)
            and node.lineno == self.loc.line == node.end_lineno
            and any(_ends(node.func, name) for name in names)
        ]
        return found[0] if len(found) == 1 else None

    def _statement(self, call: ast.Call) -> tuple[ast.Expr, int] | None:
        """The statement that is nothing but a call, and how many its block has."""
        for node in ast.walk(self.tree):
            for name in ("body", "orelse"):
                own = getattr(node, name, None)
                block: list[object] = own if isinstance(own, list) else []
                for stmt in block:
                    if isinstance(stmt, ast.Expr) and stmt.value is call:
                        return stmt, len(block)
        return None

    def _counter(self, name: str) -> str | None:
        """What the line calls the counter of a loop that is around it."""
        line, which = self.counters.get(name, (0, 0))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.With) and node.lineno <= self.loc.line <= (
                node.end_lineno or 0
            ):
                loops = [
                    item.optional_vars for item in node.items
                    if item.context_expr.lineno == line and isinstance(item.context_expr, ast.Call)
                    and (_ends(item.context_expr.func, "loop") or len(node.items) == 1)
                ]  # fmt: skip
                bound = loops[which % len(loops)] if loops else None
                if isinstance(bound, ast.Name):
                    return bound.id
        return None

    def _text(self, node: ast.expr) -> str:
        return ast.get_source_segment("".join(self.lines), node) or ""

    # ------------------------------------------------------------------ patches

    def _with(self, node: ast.expr, text: str) -> Patch | None:
        """A part of the line replaced."""
        assert node.end_col_offset is not None
        old = self.lines[node.lineno - 1].encode()
        new = old[: node.col_offset] + text.encode() + old[node.end_col_offset :]
        return self._patch(node.lineno, node.lineno, (new.decode().rstrip("\n"),))

    def _patch(self, first: int, last: int, new: tuple[str, ...]) -> Patch | None:
        """None if it is no Python any longer."""
        changed = [*self.lines[: first - 1], *(f"{n}\n" for n in new), *self.lines[last:]]
        try:
            ast.parse("".join(changed))
        except SyntaxError:
            return None
        old = tuple(line.rstrip("\n") for line in self.lines[first - 1 : last])
        return Patch(self.loc.file, first, last, old, new)

    def loop(self, old: For, new: For) -> Patch | None:
        """Another bound of ``k.loop(n)``."""
        call = self._call(["loop"])
        if call is None or len(call.args) != 1 or new.start != old.start or new.step != old.step:
            return None
        text = self._expression(new.stop)
        return None if text is None else self._with(call.args[0], text)

    def without(self, op: Op) -> Patch | None:
        """The line taken out."""
        call = self._call(_names(op))
        found = None if call is None else self._statement(call)
        if found is None:
            return None
        stmt, beside = found
        indent = " " * stmt.col_offset
        return self._patch(stmt.lineno, stmt.lineno, () if beside > 1 else (f"{indent}pass",))

    def inserted(self, op: Op, new: Sequence[object], *, late: bool) -> Patch | None:
        """Further lines before or after the one that makes ``op``."""
        call = self._call(_names(op))
        found = None if call is None else self._statement(call)
        if found is None or call is None:
            return None
        return self._further(found[0], new, self._builder(call), (call, op), late=late)

    def instead(self, op: Op, new: Sequence[object]) -> Patch | None:
        """Several lines in the place of the one that makes ``op``."""
        call = self._call(_names(op))
        found = None if call is None else self._statement(call)
        if found is None or call is None:
            return None
        lines = [self._spelled(what, self._builder(call), (call, op)) for what in new]
        known = tuple(f"{' ' * found[0].col_offset}{line}" for line in lines if line is not None)
        at = found[0].lineno
        return self._patch(at, at, known) if len(known) == len(lines) else None

    def around(self, region: object, new: Sequence[object], *, late: bool) -> Patch | None:
        """Further lines before or after the ``with`` statement whose first region this one is."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.With) and node.lineno == self.loc.line:
                call = node.items[0].context_expr
                names = _REGIONS.get(type(region), ())
                if isinstance(call, ast.Call) and any(_ends(call.func, name) for name in names):
                    return self._further(node, new, self._builder(call), None, late=late)
        return None

    def _further(
        self, stmt: ast.stmt, new: Sequence[object], builder: str,
        like: tuple[ast.Call, Op] | None, *, late: bool,
    ) -> Patch | None:  # fmt: skip
        """Lines that make instructions, before or after a statement."""
        indent = " " * stmt.col_offset
        lines = [self._spelled(what, builder, like) for what in new]
        further = [f"{indent}{line}" for line in lines if line is not None]
        if len(further) < len(lines):
            return None
        at = (stmt.end_lineno or stmt.lineno) if late else stmt.lineno
        own = self.lines[at - 1].rstrip("\n")
        return self._patch(at, at, tuple([own, *further] if late else [*further, own]))

    def exchanged(self, old: Op, new: Op) -> Patch | None:
        """Other arguments, or another method with those that both have."""
        call = self._call(_names(old))
        text = None if call is None else self._spelled(new, self._builder(call), like=(call, old))
        return None if call is None or text is None else self._with(call, text)

    def _turned(self, node: ast.expr) -> str:
        """The other parity."""
        match node:
            case ast.BinOp(left=left, op=ast.BitXor(), right=ast.Constant(value=1)):
                return self._text(left)
        if isinstance(node, ast.Constant):
            return "0" if node.value else "1"
        simple = isinstance(node, ast.Name | ast.Attribute | ast.Call)
        return f"{self._text(node)} ^ 1" if simple else f"({self._text(node)}) ^ 1"

    # ------------------------------------------------------------------ text

    def _literal(self, value: object) -> str | None:
        match value:
            case Const(value=number):
                return repr(number)
            case bool() | int() | None:
                return repr(value)
            case str():
                return f'"{value}"'
            case _:
                return None

    def _expression(self, expr: Expr) -> str | None:
        """An expression of literals, special registers, and counters of loops around the line."""
        names: dict[str, str] = {}
        for part in walk(expr):
            if isinstance(part, Var):
                name = self._counter(part.name)
                if name is None:
                    return None
                names[str(part)] = name
            elif isinstance(part, Special) and self._holder:
                names[str(part)] = f"{self._holder}.{part.name}"
            elif not isinstance(part, Const) and not list(walk(part))[1:]:
                return None
        text = _WORD.sub(lambda found: names.get(found[0], found[0]), str(expr))
        return text[1:-1] if text.startswith("(") else text

    @property
    def _holder(self) -> str:
        """What the line calls the builder; empty if it calls none."""
        calls = (
            node for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and node.lineno == self.loc.line
            and isinstance(node.func, ast.Attribute)
        )  # fmt: skip
        return next(map(self._builder, calls), "")

    def _builder(self, call: ast.Call) -> str:
        """What the line calls the builder: what its method's name begins with."""
        node: ast.expr = call.func
        while isinstance(node, ast.Attribute):
            node = node.value
        return self._text(node)

    def _spelled(
        self, what: object, builder: str, like: tuple[ast.Call, Op] | None = None
    ) -> str | None:
        """The call that makes an instruction; with the texts of ``like``, a call that makes another
        one, for operands that both have."""
        if not isinstance(what, Op):
            return None
        known = {} if like is None else _arguments(*like)
        methods = [m for m in _methods(type(what)) if _says(m, what)]
        if like is not None:
            methods.sort(key=lambda m: not _ends(like[0].func, m.name))
        if not methods or known is None:
            return None
        given: list[str] = []
        for p in methods[0].parameters:
            value = getattr(what, _operand(p.name), p.default)
            node = known.get(p.name)
            if node is None and not differ(value, p.default):
                continue
            was: Any = None if like is None else getattr(like[1], _operand(p.name), None)
            text = self._argument(value, was, node)
            if _operand(p.name) == "phase" and node is not None and value == flipped(was):
                text = self._turned(node)
            if text is None:
                return None
            after = len(given) < methods[0].parameters.index(p)
            by_name = like is not None and any(k.value is node for k in like[0].keywords)
            named = p.kind is p.KEYWORD_ONLY or after or by_name
            given.append(f"{p.name}={text}" if named else text)
        return f"{builder}.{methods[0].name}({', '.join(given)})"

    def _argument(self, value: Any, was: Any, node: ast.expr | None) -> str | None:
        """The text of an operand, made of that of another one, ``was``, if there is one."""
        if node is not None and not differ(value, was):
            return self._text(node)
        match value:
            case Mbar():
                made = node and isinstance(was, Mbar) and self._barrier(node, was, value)
                return made or self._named(value)
            case View():
                return self._whole(value)
            case Expr():
                return self._expression(value)
            case _:
                return self._literal(value)

    def _barrier(self, node: ast.expr, was: Mbar, worth: Mbar) -> str | None:
        """The text of a barrier, ``a[i].at(0)``, with the parts of it changed that are others."""
        base, slot, cta = _parts(node)
        named = isinstance(base, ast.Name) and base.id == was.array.name
        if isinstance(base, ast.Name) and not named and worth != was:
            return None  # it is the name of one barrier
        array: str | None = self._text(base)
        if worth.array != was.array:
            known = {was.array.name, worth.array.name} <= self._assigned()
            array = worth.array.name if named and known else None
        index: str | None = "" if slot is None else self._text(slot)
        if worth.index != was.index:
            index = self._expression(worth.index) if named or slot is not None else None
        rank = "" if cta is None else f".at({self._text(cta)})"
        other = rank if worth.cta == was.cta else self._at(worth.cta)
        if array is None or index is None or other is None:
            return None
        return f"{array}[{index}]{other}" if index else f"{array}{other}"

    def _at(self, cta: Expr | None) -> str | None:
        rank = "" if cta is None else self._expression(cta)
        return f".at({rank})" if rank else rank

    def _named(self, mbar: Mbar) -> str | None:
        """A barrier whose array goes by its own name at the line."""
        name, index, rank = mbar.array.name, self._expression(mbar.index), self._at(mbar.cta)
        if name not in self._assigned() or index is None or rank is None:
            return None
        return f"{name}[{index}]{rank}"

    def _whole(self, view: View) -> str | None:
        """A tensor that goes by its own name at the line, if a view is all of it."""
        name = view.tensor.name
        begins = all(constant(offset) == 0 for offset in view.offsets)
        whole = begins and tuple(view.extents) == tuple(view.tensor.shape)
        return name if whole and view.cta is None and name in self._assigned() else None

    def _assigned(self) -> frozenset[str]:
        """The names that the functions around the line assign."""
        around = [
            node for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef)
            and node.lineno <= self.loc.line <= (node.end_lineno or 0)
        ]  # fmt: skip
        return frozenset(
            name.id for node in around for name in ast.walk(node)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        )  # fmt: skip


def _says(method: _Method, op: Op) -> bool:
    """Whether a method can make an instruction: by its parameters, its name, or as it always is."""
    named = {_operand(p.name) for p in method.parameters}
    return all(
        name in named
        or not differ(getattr(op, name), field.default)
        or (isinstance(getattr(op, name), str) and getattr(op, name) in method.name)
        or (method.name == "sync_threads" and op == BarSync(id=Const(0)))
        for name, field in ((f.name, f) for f in fields(op) if f.name not in ANNOTATIONS)
    )


def _parts(node: ast.expr) -> tuple[ast.expr, ast.expr | None, ast.expr | None]:
    """Of a barrier, ``a[i].at(0)``: its array, slot, and CTA."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="at"), args=[cta]):
            base, slot, _ = _parts(inner)
            return base, slot, cta
        case ast.Subscript(value=base, slice=slot):
            return base, slot, None
        case _:
            return node, None, None


def _operand(parameter: str) -> str:
    """The operand that a parameter of a method is."""
    return "phase" if parameter == "parity" else parameter


def _arguments(call: ast.Call, op: Op) -> dict[str, ast.expr] | None:
    """By parameter, the arguments of a call that makes an instruction; None if it cannot be told
    which is which."""
    method = next((m for m in _methods(type(op)) if _ends(call.func, m.name)), None)
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    if method is None or starred or any(k.arg is None for k in call.keywords):
        return None
    found = {p.name: a for p, a in zip(method.parameters, call.args, strict=False)}
    return found | {k.arg: k.value for k in call.keywords if k.arg is not None}


def _ends(function: ast.expr, name: str) -> bool:
    """Whether a function's name ends with these parts."""
    for part in reversed(name.split(".")):
        if not isinstance(function, ast.Attribute) or function.attr != part:
            return False
        function = function.value
    return True


def _names(op: Op) -> list[str]:
    return [m.name for m in _methods(type(op))]


def _methods(cls: type[Op]) -> tuple[_Method, ...]:
    """The methods of the builder that make one instruction of a class."""
    return tuple(m for made, m in _every() if made is cls)


@cache
def _every() -> tuple[tuple[type[Op], _Method], ...]:
    by_hand = _walk(Builder("kernel", "sm_100a", 1), "")
    generated = (
        (cls, _Method(f"{call.namespace}.{call.name}".lstrip("."), call.parameters))
        for cls in OPS.values()
        if (call := call_of(cls)) is not None
    )
    return tuple(dict.fromkeys((*by_hand, *generated)))


def _walk(holder: object, prefix: str) -> Iterator[tuple[type[Op], _Method]]:
    for name in sorted(n for n in dir(holder) if not n.startswith("_")):
        if isinstance(getattr(type(holder), name, None), property):
            continue
        member = getattr(holder, name)
        if isinstance(member, Namespace):
            yield from _walk(member, f"{prefix}{name}.")
        elif callable(member):
            made = recorded(getattr(member, "__func__", member))
            if len(made) == 1:
                parameters = tuple(inspect.signature(member).parameters.values())
                yield made[0], _Method(f"{prefix}{name}", parameters)
