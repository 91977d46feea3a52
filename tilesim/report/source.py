"""Where a review or an editor can point."""

from __future__ import annotations

from tilesim.files import source_lines
from tilesim.ir.loc import Loc


def pointed(loc: Loc) -> Loc:
    """The line at which an editor or a review can point: of PTX whose source is not there, that of
    the PTX."""
    while loc.behind is not None and not source_lines(loc.file):
        loc = loc.behind
    return loc


def places(loc: Loc) -> str:
    """A line, and the line of PTX behind it."""
    return str(loc) if loc.behind is None else f"{loc}, {loc.innermost}"
