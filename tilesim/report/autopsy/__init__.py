"""Autopsies as JSON, as SARIF and as a page: the formats by name."""

from __future__ import annotations

from importlib import import_module

from tilesim.autopsy.pipeline import Autopsy

#: each is a module of this package, which is imported when it is asked for
FORMATS = ("json", "html", "sarif")


def render(name: str, found: Autopsy) -> str:
    """The report in the format ``name``, ending with a newline."""
    document: str = import_module(f"tilesim.report.autopsy.{name}").render(found)
    return document
