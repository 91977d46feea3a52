"""Results as one HTML file that needs nothing else: verdicts, findings, pictures."""

from __future__ import annotations

from collections.abc import Iterable

from tilesim.report.clean import clean
from tilesim.report.html.page import page
from tilesim.report.result import Result
from tilesim.wording import printable


def render(results: Iterable[Result]) -> str:
    """The document, ending with a newline; the same bytes for the same results."""
    return printable(page(tuple(map(clean, results))))
