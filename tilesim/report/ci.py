"""The formats that continuous integration reads, by name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from tilesim.report.result import Result

#: each is a module of this package, which is imported when it is asked for
FORMATS = ("sarif", "github", "junit")


def render(name: str, results: Iterable[Result]) -> str:
    """The report in the format ``name``, ending with a newline."""
    document: str = import_module(f"tilesim.report.{name}").render(tuple(results))
    return document
