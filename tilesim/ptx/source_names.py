"""What the source calls the parameters of a kernel, which compilers call ``NAME_param_0``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilesim.files import CUDA_ENDINGS, source_lines
from tilesim.ptx.demangle import readable
from tilesim.ptx.syntax import Function, Module

#: lines behind that of a kernel on which its parameters end, at most
_BELOW = 60
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"[\s*&>]([A-Za-z_]\w*)\s*(?:\[[^\[\]]*\]\s*)*(?:=.*)?$", re.DOTALL)
_TYPES = frozenset(("int", "unsigned", "long", "short", "char", "float", "double", "bool", "const"))
_OPEN, _CLOSE = "([{<", ")]}>"


def parameter_names(module: Module, entry: Function) -> tuple[str, ...]:
    """By number the names of a kernel's parameters as its CUDA source has them.

    Empty if that is not told: without line information, without the source, or if it has another
    number of parameters than the PTX. The name of one that has none is empty.
    """
    located = next((i.located for i in entry.body.code if i.located), None) if entry.body else None
    outer = None if located is None else located.outermost
    file = "" if outer is None else module.files.get(outer.file, "")
    if outer is None or not file.endswith(CUDA_ENDINGS):
        return ()
    lines = source_lines(file, silent=True)[: outer.line + _BELOW]
    text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), "\n".join(lines))
    name = re.escape(re.sub(r"<.*", "", readable(entry.name)).rpartition("::")[2])
    heads = re.finditer(rf"__global__\b[^;{{}}]*?\b{name}\s*\(", text)
    ends = [head.end() for head in heads if text.count("\n", 0, head.start()) < outer.line]
    parts = [*_parts(text, ends[-1])] if ends else []
    if len(parts) != len(entry.params):
        return ()
    found = [_NAME.search(part) for part in parts]
    names = ["" if one is None or one[1] in _TYPES else one[1] for one in found]
    return tuple(name if names.count(name) == 1 else "" for name in names)


def _parts(text: str, begin: int) -> Iterator[str]:
    """What stands between commas up to the closing bracket; nothing between brackets is nothing."""
    depth, start = 1, begin
    for at in range(begin, len(text)):
        depth += (text[at] in _OPEN) - (text[at] in _CLOSE)
        if depth == 0 or (depth == 1 and text[at] == ","):
            part = text[start:at].strip()
            if part not in ("", "void"):
                yield part
            start = at + 1
        if depth == 0:
            return
