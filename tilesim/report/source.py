"""Lines of the user's files, for excerpts."""

from __future__ import annotations

import linecache
import os

from tilesim.ir.loc import Loc


def line_of(loc: Loc) -> str:
    """The line, stripped; empty if the file cannot be read."""
    return excerpt(loc, 0)[0][1].strip()


def excerpt(loc: Loc, around: int) -> list[tuple[int, str]]:
    """The line and ``around`` lines on each side, with their numbers; at least the line itself."""
    path = os.path.abspath(loc.file)
    linecache.checkcache(path)
    numbers = range(max(1, loc.line - around), loc.line + around + 1)
    lines = [(n, linecache.getline(path, n).rstrip("\n")) for n in numbers]
    while len(lines) > 1 and lines[-1][0] != loc.line and not lines[-1][1].strip():
        lines.pop()
    return lines or [(loc.line, "")]
