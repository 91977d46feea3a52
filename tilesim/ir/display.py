"""How kernels, programs and reports are shown where Python shows values: consoles, notebooks.

What shows them stands above them: the package sets `maker`, and nothing is loaded before it is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Maker(Protocol):
    """Makes texts and pages."""

    def text(self, thing: object) -> str:
        """What ``print`` shows."""
        ...

    def html(self, thing: object) -> str:
        """What a notebook shows."""
        ...


#: loads what shows; None: only parts of tilesim were imported
maker: Callable[[], Maker] | None = None


class Shown:
    """What a notebook shows as a page."""

    def _repr_html_(self) -> str | None:
        return None if maker is None else maker().html(self)
