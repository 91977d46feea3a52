"""Errors of cubins and of the tools that read them."""

from __future__ import annotations

from tilesim.errors import TilesimError


class CubinError(TilesimError, ValueError):
    """A cubin is damaged, or is of a kind that is not known; or nvdisasm cannot be run on it.

    The message names what was read, what is wrong in it, and what to do.
    """
