"""How reports look as text: a column for names, lines that are wrapped, colour on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

import click

from tilesim.records import dataclass

WIDTH = 100
#: narrower terminals are written over
LEAST = 50
#: where texts begin that stand behind a name
COLUMN = 12
#: colours of verdicts, the best first
COLOURS = {
    "proved": "green", "exhausted": "green", "bounded": "yellow", "unsupported": "yellow",
    "failed": "red", "denied": "red", "rejected": "red", "error": "red",
}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How wide, and whether in colour."""

    width: int = WIDTH
    colour: bool = False
    #: show all of a report that is longer than a screen
    verbose: bool = False

    def paint(self, text: str, verdict: str) -> str:
        """``text`` in the colour of a verdict."""
        return click.style(text, fg=COLOURS[verdict], bold=True) if self.colour else text

    def bold(self, text: str) -> str:
        """``text`` set off from the rest."""
        return click.style(text, bold=True) if self.colour else text

    def dim(self, text: str) -> str:
        """``text`` that steps back."""
        return click.style(text, dim=True) if self.colour else text


PLAIN = Style()


def labelled(label: str, text: str, style: Style = PLAIN) -> Iterator[str]:
    """The lines of a part of a report that has a name, such as ``covers``."""
    return field(label, text, style, indent=2)


def field(label: str, text: str, style: Style, *, indent: int = 4, hang: int = 0) -> Iterator[str]:
    """``label   text``, wrapped, the text in a column; leading blanks of ``text`` are kept."""
    own = len(text) - len(text.lstrip())
    head = f"{' ' * indent}{label}".ljust(COLUMN) + " " * own
    first, *rest = _fill(text.lstrip(), head, " " * (COLUMN + own + hang), style)
    yield first.replace(label, style.dim(label), 1) if label else first
    yield from rest


def wrapped(text: str, first: int, rest: int, style: Style) -> Iterator[str]:
    """``text`` in lines that begin with so many blanks."""
    return _fill(text, " " * first, " " * rest, style)


def _fill(text: str, first: str, rest: str, style: Style) -> Iterator[str]:
    yield from wrap(
        text,
        max(style.width, LEAST),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]
