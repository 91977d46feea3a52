"""Which module imports which: every import counts, for type checkers only and in functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import tilesim

PACKAGE = Path(tilesim.__file__).parent


@dataclass(frozen=True)
class Import:
    """``from target import name``, or ``import target``; ``local``: in a function."""

    target: str
    name: str
    local: bool


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """The modules of a package by their full names."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> tuple[Import, ...]:
    """What a module imports; what it does when it is run as a script does not count."""
    return _read(path.read_text())


@cache
def _read(text: str) -> tuple[Import, ...]:
    return tuple(_imports(ast.parse(text), local=False))


def _imports(node: ast.AST, *, local: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (Import(module, alias.name, local) for alias in names)
            case ast.ImportFrom():
                raise AssertionError("relative imports are not followed")
            case ast.Import(names=names):
                yield from (Import(alias.name, "", local) for alias in names)
            case ast.expr() | ast.If(test=ast.Compare(left=ast.Name("__name__"))):
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _imports(child, local=True)
            case _:
                yield from _imports(child, local=local)


def graph(found: Mapping[str, Path]) -> dict[str, set[str]]:
    """By module, those that it imports from.

    ``from package import module`` leads to the module. That Python also runs the packages around a
    module that is imported does not count: these are empty, or list what they have.
    """
    result: dict[str, set[str]] = {}
    for module, path in found.items():
        targets = set()
        for use in imports(path):
            inner = f"{use.target}.{use.name}"
            targets.add(inner if inner in found else use.target)
        result[module] = (targets & found.keys()) - {module}
    return result


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in turn; empty if there are none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []
