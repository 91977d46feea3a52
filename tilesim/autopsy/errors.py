"""Errors of dumps and of what is read out of them."""

from __future__ import annotations

from tilesim.errors import TilesimError


class DumpError(TilesimError, ValueError):
    """A file is no core dump of a GPU, is damaged, or is of a kind that is not known.

    The message names the file, the part of it that is wrong, and what to do.
    """
