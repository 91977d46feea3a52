"""What a hung GPU says: a core dump becomes a report on which warps wait, for what, and why.

`autopsy` reads a dump, `render` makes text of what it has found. Both load their modules when they
are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilesim.autopsy.errors import DumpError
    from tilesim.autopsy.pipeline import Autopsy, autopsy
    from tilesim.autopsy.text import render

__all__ = ["Autopsy", "DumpError", "autopsy", "render"]

_HOMES = {
    "Autopsy": "tilesim.autopsy.pipeline",
    "DumpError": "tilesim.autopsy.errors",
    "autopsy": "tilesim.autopsy.pipeline",
    "render": "tilesim.autopsy.text",
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tilesim.autopsy' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
