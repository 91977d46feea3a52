"""What cannot be said in the language of another tool."""

from __future__ import annotations

from tilesim.errors import TilesimError
from tilesim.ir.loc import Loc


class NotExportable(TilesimError, ValueError):
    """An instruction or statement has no counterpart in the model: which one, where, and why."""

    def __init__(self, what: str, loc: Loc, why: str) -> None:
        super().__init__(f"{loc}: {what} cannot be exported: {why}")
        self.what = what
        self.loc = loc
        self.why = why
