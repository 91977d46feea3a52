"""How reports look as text: a column for names, lines that are wrapped, colour on a terminal, lines
of source files."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

import click

from tilesim.files import source_lines
from tilesim.ir.loc import Loc
from tilesim.records import dataclass
from tilesim.wording import printable

WIDTH = 100
#: narrower terminals are written over
LEAST = 50
#: characters of a line of source; longer ones are of no source that is written by hand
_LONGEST = 2000
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


def line_of(loc: Loc) -> str:
    """The line, stripped; empty if the file cannot be read or is not to be shown."""
    text = excerpt(loc, 0)[0][1].strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def excerpt(loc: Loc, around: int) -> list[tuple[int, str]]:
    """The line and ``around`` lines on each side, with their numbers; at least the line itself."""
    text = source_lines(loc.file)
    numbers = range(max(1, loc.line - around), loc.line + around + 1)
    lines = [(n, printable(text[n - 1]) if n <= len(text) else "") for n in numbers]
    while len(lines) > 1 and lines[-1][0] != loc.line and not lines[-1][1].strip():
        lines.pop()
    return lines or [(loc.line, "")]


def quoted(loc: Loc, indent: int, *, place: bool = True) -> Iterator[str]:
    """``file:line`` and the line itself, whole, if the file can be read: what is at its end may be
    what is wrong."""
    pad = " " * indent
    if place:
        yield f"{pad}{loc}"
    text = line_of(loc)
    if text:
        yield f"{pad}  {loc.line} | {text}"
    for call in loc.calls:
        yield f"{pad}  {_called(call)}"
    while (behind := loc.behind) is not None:
        said = " ".join(line_of(behind).split())
        # the last one is the line of PTX; one before it is in a function that is called at `loc`
        called = "" if behind.behind is None else f" (called at {loc.short})"
        loc, found = behind, f"{behind.short}{called} | {said}".removesuffix(" | ")
        yield f"{pad}  {found}"


def _called(call: Loc) -> str:
    return f"called at {call} | {' '.join(line_of(call).split())}".removesuffix(" | ")
