"""What a shell completes: files, kernels in them, rules. Nothing is run for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tilesim.files import read_regular
from tilesim.findings.rules import RULE_DOCS

_MAX_BYTES = 4 << 20
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_KERNEL = re.compile(r"^kernel\s+([^\s:]+):", re.MULTILINE)


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What the name of a target can go on with: files, and kernels after ``::``."""
    place, colons, begun = incomplete.partition("::")
    if not colons:
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(f"{place}::{n}") for n in kernels(place) if n.startswith(begun)]


def rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of findings that begin like that."""
    return [
        CompletionItem(doc.name, help=doc.summary)
        for doc in RULE_DOCS.values()
        if doc.name.startswith(incomplete)
    ]


def kernels(place: str) -> tuple[str, ...]:
    """The kernels that the text of a file has; none if it cannot be read."""
    path = Path(place)
    read = _READERS.get(path.suffix)
    if read is None:
        return ()
    try:
        return tuple(read(read_regular(path, _MAX_BYTES).decode()))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return ()


def _of_python(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            decorators = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
            if any(ast.unparse(d).rpartition(".")[2] == "kernel" for d in decorators):
                yield node.name


_READERS: dict[str, Callable[[str], Iterator[str]]] = {
    ".py": _of_python,
    ".tile": lambda text: iter(_KERNEL.findall(text)),
    ".mir": lambda text: iter(_KERNEL.findall(text)),
    ".ptx": lambda text: iter(dict.fromkeys(_ENTRY.findall(text))),
}
