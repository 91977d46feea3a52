"""An autopsy as one HTML file that needs nothing else: what waits for what, and the lines."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tilesim.autopsy.pipeline import Autopsy, Launched, is_waiting
from tilesim.autopsy.text import (
    entry_notes,
    entry_text,
    facts,
    launch_text,
    name,
    room,
    waiting_text,
    where,
)
from tilesim.autopsy.wait_for import Entry
from tilesim.records import replace
from tilesim.report.autopsy.findings import loc, waiters
from tilesim.report.clean import clean
from tilesim.report.html import waitfor
from tilesim.report.html.page import code, document, figure, of_finding, of_repairs, table
from tilesim.report.text import fold
from tilesim.wording import printable

_COLOURS = {"pending": "warn", "open": "warn"}


def render(found: Autopsy) -> str:
    """The page, ending with a newline; the same bytes for the same autopsy."""
    body = "\n".join(
        part for n, launch in enumerate(found.launches) for part in _launch(found, launch, n)
    )
    rest = table([*facts(found)])
    nothing = "" if found.launches else "<p>No kernel was running.</p>\n"
    return printable(document("Autopsy of a GPU", f"{nothing}{body}\n{rest}"))


def _launch(found: Autopsy, launch: Launched, number: int) -> Iterator[str]:
    badge = f'<span class="badge {_COLOURS.get(launch.state, "")}">{launch.state}</span>'
    yield f'<section id="l{number}">'
    yield f"<h2>{badge}<code>{escape(name(launch))}</code></h2>"
    yield table([("launch", launch_text(launch)), *room(found, launch)])
    yield from _cause(launch)
    graph = waitfor.draw(clean(waiters(launch, found.path)))
    if graph is not None:
        yield from figure("What waits for what", graph.element())
    yield from _entries("Waits", [e for e in launch.entries if is_waiting(e)], launch, found.path)
    yield from _entries(
        "Others", [e for e in launch.entries if not is_waiting(e)], launch, found.path
    )
    yield "</section>"


def _cause(launch: Launched) -> Iterator[str]:
    """What check says of it."""
    match = launch.diagnosis and launch.diagnosis.match
    if not match:
        return
    if match.finding is not None:
        message = waiting_text(launch) if match.kind == "same" else match.finding.message
        finding = replace(match.finding, message=message, participants=(), notes=())
        yield from of_finding(clean(fold([finding])[0]))
    said = (*match.says, *match.differs, *match.contradicts)
    yield table([("" if n else "check", text) for n, text in enumerate(said)])
    if match.report is not None and match.report.repairs is not None:
        yield from of_repairs(clean(match.report.repairs))


def _entries(title: str, entries: list[Entry], launch: Launched, path: str) -> Iterator[str]:
    if entries:
        yield f"<h3>{title}</h3>"
    for entry in entries:
        instruction = entry.groups[0].wait.instruction
        yield f"<div><b>{escape(entry_text(entry, launch))}</b></div>"
        yield f'<div class="dim"><code>{escape(where(entry.groups[0], launch))}</code></div>'
        if instruction is not None and instruction.lines:
            yield code(loc(instruction, path))
        notes = escape("\n".join(entry_notes(entry, launch)))
        if notes:
            yield f"<pre>{notes}</pre>"
