"""Texts of documents, and ranges in them as the protocol has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from pathlib import Path

from lsprotocol.types import Position, Range, TextEdit

from tilesim.files import MAX_SOURCE, read_regular
from tilesim.records import dataclass
from tilesim.transforms.rewrite import Patch

_END = re.compile(r"\r\n|\r|\n")
#: how many units of the client's encoding a text has
Units = Callable[[str], int]


@dataclass(frozen=True)
class Text:
    """The text of a document, with its line ends."""

    source: str

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Its lines without their ends; the last one is empty if the text ends with a line end."""
        return tuple(_END.split(self.source.removeprefix("\ufeff")))

    @property
    def is_whole(self) -> bool:
        """Whether it was read without a loss: as UTF-8."""
        return "\ufffd" not in self.source

    @property
    def end(self) -> str:
        """How its lines end, by the first."""
        found = _END.search(self.source)
        return found[0] if found else "\n"

    def line(self, number: int) -> str:
        """A line, counted from 1; empty if there is none."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def span(self, number: int, units: Units) -> Range:
        """What a line says, without the blanks around it; of a line that is not there the last."""
        at = min(max(number, 1), len(self.lines))
        line = self.line(at)
        indent = line[: len(line) - len(line.lstrip())]
        return Range(
            Position(at - 1, units(indent)),
            Position(at - 1, max(units(indent), units(line.rstrip()))),
        )

    def edits(self, patches: Iterable[Patch], units: Units) -> list[TextEdit] | None:
        """The patches as edits of whole lines; None if the text is not the one that they are of."""
        found = []
        for patch in patches:
            old = self.lines[patch.first - 1 : patch.last]
            if old != tuple(patch.old) or not 0 < patch.first <= len(self.lines):
                return None
            new = "".join(f"{line}{self.end}" for line in patch.new)
            stop = Position(patch.last, 0)
            if patch.last >= len(self.lines):  # its last line, which has no end
                stop = Position(len(self.lines) - 1, units(self.lines[-1]))
                new = new.removesuffix(self.end)
            found.append(TextEdit(Range(Position(patch.first - 1, 0), stop), new))
        return found


def on_disk(path: Path) -> Text | None:
    """What a file holds; None if it cannot be read, or is too large for an editor's check."""
    try:
        about = path.stat()
        return _read(path, about.st_mtime_ns, about.st_size)
    except OSError:
        return None


@lru_cache(maxsize=64)
def _read(path: Path, _changed: int, _size: int) -> Text:
    return Text(read_regular(path, MAX_SOURCE).decode(errors="replace"))
