"""Where code searches in the texts of findings, found in its syntax trees.

A text is an attribute `TEXTS`, or what is bound to one: by an assignment, a loop, a comprehension,
an argument of a function of the same code, whatever module that is in, or the result of a function
or a property in the same module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: attributes of findings, their participants and causes that are made to be read
TEXTS = frozenset({"message", "action", "notes", "cause", "fix"})
#: methods of strings that look for something, or take a part
_SEARCHES = frozenset({
    "startswith", "endswith", "find", "rfind", "index", "rindex", "count", "partition",
    "rpartition", "split", "rsplit", "replace", "removeprefix", "removesuffix",
})  # fmt: skip
#: functions of `re` and methods of its patterns
_PATTERNS = frozenset({
    "search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split",
})  # fmt: skip
#: calls whose result is as much a text as what they are given
_KEEPS = frozenset({"join", "strip", "lower", "tuple", "list", "set", "sorted", "str", "getattr"})


@dataclass
class _Function:
    """A function, the file it is in, and the names in it that are bound to texts."""

    file: str
    node: ast.FunctionDef
    bound: set[str] = field(default_factory=set)
    #: functions and properties of its file whose results are texts
    results: set[str] = field(default_factory=set)

    @property
    def parameters(self) -> list[str]:
        args = self.node.args
        names = [a.arg for a in (*args.posonlyargs, *args.args)]
        return names[1:] if names[:1] in (["self"], ["cls"]) else names


def searches(files: Iterable[Path], root: Path) -> Iterator[str]:
    """``file:function:line`` of each search in a text."""
    functions: dict[str, list[_Function]] = {}
    for file in files:
        results: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                own = _Function(file.relative_to(root).as_posix(), node, results=results)
                functions.setdefault(node.name, []).append(own)
    every = [function for group in functions.values() for function in group]
    while sum(_bind(function, functions) for function in every):
        pass
    for function in every:
        for line in sorted({n.lineno for n in _found(function)}):
            yield f"{function.file}:{function.node.name}:{line}"


def _bind(function: _Function, functions: dict[str, list[_Function]]) -> bool:
    """Binds names to texts, also in functions that are called; whether there are new ones."""
    before = len(function.bound), len(function.results)
    grown = False
    for node in ast.walk(function.node):
        match node:
            case ast.Assign(targets=targets, value=value) if _is_text(value, function):
                for target in targets:
                    _add(target, function)
            case (
                ast.For(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
                | ast.NamedExpr(target=target, value=value)
            ) if _is_text(value, function):
                _add(target, function)
            case ast.Return(value=ast.expr() as value) if _is_text(value, function):
                function.results.add(function.node.name)
            case ast.Call(
                func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name)
            ):
                for called in functions.get(name, ()):
                    if not name.startswith("_") or called.file == function.file:
                        grown |= _pass(node, function, called)
            case _:
                pass
    return grown or (len(function.bound), len(function.results)) != before


def _pass(call: ast.Call, caller: _Function, called: _Function) -> bool:
    """Binds the parameters that are given texts; whether there are new ones."""
    before = len(called.bound)
    for name, value in zip(called.parameters, call.args, strict=False):
        if _is_text(value, caller):
            called.bound.add(name)
    for keyword in call.keywords:
        if keyword.arg and _is_text(keyword.value, caller):
            called.bound.add(keyword.arg)
    return len(called.bound) > before


def _add(target: ast.expr, function: _Function) -> None:
    function.bound |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}


def _is_text(node: ast.expr, function: _Function) -> bool:
    """Whether a value is a text, or is made of some."""
    match node:
        case (
            ast.Attribute(value=ast.Name(id="self"), attr=name)
            | ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name))
            | ast.Call(func=ast.Name(id=name))
        ) if name in function.results:
            return True
        case ast.Attribute(attr=attr):
            return attr in TEXTS
        case ast.Name(id=name):
            return name in function.bound
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
            return name in _KEEPS and any(_is_text(a, function) for a in args)
        case ast.GeneratorExp(elt=made) | ast.ListComp(elt=made) | ast.SetComp(elt=made):
            return _is_text(made, function)
        case ast.Subscript(value=made) | ast.Starred(value=made) | ast.FormattedValue(value=made):
            return _is_text(made, function)
        case ast.IfExp(body=made, orelse=other) | ast.BinOp(left=made, right=other):
            return _is_text(made, function) or _is_text(other, function)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(_is_text(n, function) for n in parts)
        case ast.JoinedStr(values=parts) | ast.BoolOp(values=parts):
            return any(_is_text(n, function) for n in parts)
        case _:
            return False


def _found(function: _Function) -> Iterator[ast.expr]:
    for node in ast.walk(function.node):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                is_in = any(isinstance(op, ast.In | ast.NotIn) for op in ops)
                if is_in and any(_is_text(n, function) for n in (left, *others)):
                    yield node
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
                own = attr in _SEARCHES and _is_text(value, function)
                if own or (attr in _PATTERNS and any(_is_text(a, function) for a in args)):
                    yield node
            case ast.Subscript(value=value, slice=ast.Slice()) if _is_text(value, function):
                if not isinstance(value, ast.Attribute) or value.attr != "notes":
                    yield node
            case _:
                pass
