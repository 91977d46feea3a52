"""Where a review or an editor can point."""

from __future__ import annotations

import os

from tilesim.files import source_lines, source_path
from tilesim.ir.loc import Loc
from tilesim.records import replace


def pointed(loc: Loc) -> Loc:
    """The line at which an editor or a review can point: of PTX whose source is not there, that of
    the PTX. Of a source that was compiled on another machine, the file that is here."""
    while loc.behind is not None and not source_lines(loc.file):
        loc = loc.behind
    return loc if os.path.exists(loc.file) else replace(loc, file=source_path(loc.file))


def places(loc: Loc) -> str:
    """A line, and those behind it: of functions that are inlined, of PTX; or where the function is
    called that it is in."""
    text = str(loc) if loc.behind is None else ", ".join((*loc.written, str(loc.innermost)))
    return ", called at ".join((text, *map(str, loc.calls)))
