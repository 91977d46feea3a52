"""Lines of the user's files, for excerpts."""

from __future__ import annotations

from tilesim.files import source_lines
from tilesim.ir.loc import Loc
from tilesim.words import printable


def line_of(loc: Loc) -> str:
    """The line, stripped; empty if the file cannot be read or is not to be shown."""
    return excerpt(loc, 0)[0][1].strip()


def excerpt(loc: Loc, around: int) -> list[tuple[int, str]]:
    """The line and ``around`` lines on each side, with their numbers; at least the line itself."""
    text = source_lines(loc.file)
    numbers = range(max(1, loc.line - around), loc.line + around + 1)
    lines = [(n, printable(text[n - 1]) if n <= len(text) else "") for n in numbers]
    while len(lines) > 1 and lines[-1][0] != loc.line and not lines[-1][1].strip():
        lines.pop()
    return lines or [(loc.line, "")]
