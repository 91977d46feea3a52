"""Repairs as text: what mends a kernel, and the lines that change."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.layout import COLUMN, Style, field, line_of
from tilesim.repair import Repairs
from tilesim.wording import printable


def of_repairs(repairs: Repairs, style: Style) -> Iterator[str]:
    """What mends it, each with the lines that change; and how many edits were tried."""
    for number, repair in enumerate(repairs.found, 1):
        yield from field("repair", f"{number}. {repair.what} ({repair.verdict})", style, indent=2)
        for change in repair.changes:
            words = "" if change.old or change.new else line_of(change.place)
            said = f"{' ' * COLUMN}{printable(str(change.place), '')}"
            yield f"{said}: {words}" if words else said
            room = max(style.width - COLUMN - 4, 20)
            for mark, text in change.lines:
                line = printable(text, "\t")
                shown = line if len(line) <= room else f"{line[: room - 3]}..."
                yield f"{' ' * COLUMN}  {mark} {shown}"
    found = "" if repairs.found else "no repair found: "
    yield from field("repairs", f"{found}{repairs}", style, indent=2)
    yield ""
