"""The formats that continuous integration reads, by name."""

from __future__ import annotations

from collections.abc import Iterable

from tilesim.report import github, junit, sarif
from tilesim.report.result import Result

__all__ = ["FORMATS", "junit", "render", "sarif"]

_RENDERERS = {"sarif": sarif.render, "github": github.render, "junit": junit.render}
FORMATS = tuple(_RENDERERS)


def render(name: str, results: Iterable[Result]) -> str:
    """The report in the format ``name``, ending with a newline."""
    return _RENDERERS[name](tuple(results))
