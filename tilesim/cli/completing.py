"""What a shell completes: files, kernels in them, rules. Nothing is run for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tilesim.errors import TilesimError
from tilesim.files import read_regular
from tilesim.findings.rules import RULE_DOCS
from tilesim.loader.code_kind import kind_of

_MAX_BYTES = 4 << 20
#: bytes of a file of machine code, which a shell waits for
_MAX_CODE = 64 << 20
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
    try:
        if read is not None:
            return tuple(read(read_regular(path, _MAX_BYTES).decode()))
        return _of_machine_code(path)
    except (OSError, ValueError, SyntaxError, RecursionError, TilesimError):
        return ()


def _of_machine_code(path: Path) -> tuple[str, ...]:
    """The kernels of which there is PTX in machine code; of what is none, or a dump, none."""
    if kind_of(path) in (None, "dump") or path.stat().st_size > _MAX_CODE:
        return ()
    from tilesim.loader.machine_code import read  # other targets are completed without

    return read(path).with_ptx


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
