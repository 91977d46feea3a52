"""A timeline for a terminal: a row per warp and engine, a column per stretch of time."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.report.repeats import Folded, fold
from tilesim.report.text import PLAIN, Style
from tilesim.sim.timeline import Slice, Timeline, Track
from tilesim.words import printable

_MARKS = {"run": "#", "wait": ".", "engine": "="}
_STUCK = "!"
_LEAST = 20
LEGEND = "# instructions   . waits   = copies and tensor core   ! a wait that never ends"


def strips(timeline: Timeline, style: Style = PLAIN) -> Iterator[str]:
    """The lines of one cluster: what each warp and engine does most in each stretch of time.

    What repeats itself is drawn once, below a bracket that says how often it does.
    """
    last, folded = timeline.end, fold(timeline)
    timeline = folded.timeline
    rows: dict[Track, list[Slice]] = {track: [] for track in timeline.tracks}
    for piece in timeline.slices:
        rows.setdefault(piece.track, []).append(piece)
    several = len(timeline.ctas) > 1
    names = {t: printable(f"CTA {t.cta} {t}" if several else str(t), "") for t in rows}
    column = max(map(len, names.values()), default=0) + 2
    width = max(style.width - column, _LEAST)
    end = max(timeline.end, 1)
    yield f"{'':{column}}0{f'{max(last, 1):g} {timeline.unit}s':>{width - 1}}"
    if folded.repeats:
        yield f"{'':{column}}{_brackets(folded, end, width)}".rstrip()
    for track, pieces in rows.items():
        yield f"{names[track]:{column}}{_row(pieces, end, width)}".rstrip()
    yield f"{'':{column}}{LEGEND}"
    for repeats in folded.repeats:
        stretch = f"{repeats.start:g} to {repeats.end:g}"
        yield f"{'':{column}}{timeline.unit}s {stretch} repeat {repeats.times} times, shown once"


def _brackets(folded: Folded, end: float, width: int) -> str:
    """What is drawn once, with how often it happens."""
    line = [" "] * width
    for repeats in folded.repeats:
        first = min(int(folded.shown(repeats.start) * width / end), width - 1)
        last = min(int(folded.shown(repeats.end) * width / end), width - 1)
        text = f" {repeats.times} times ".center(max(last - first - 1, 0), "-")
        whole = f"[{text}]" if len(text) < last - first else f"[{repeats.times}x]"
        line[first : first + len(whole)] = whole
    return "".join(line)


def _row(pieces: list[Slice], end: float, width: int) -> str:
    """Per stretch the mark of what takes longest in it; a wait that never ends hides the rest."""
    times: list[dict[str, float]] = [{} for _ in range(width)]
    for piece in pieces:
        mark = _STUCK if piece.stuck else _MARKS[piece.kind]
        first = min(int(piece.start * width / end), width - 1)
        last = min(int(piece.end * width / end), width - 1)
        for n in range(first, last + 1):
            low, high = max(piece.start, n * end / width), min(piece.end, (n + 1) * end / width)
            times[n][mark] = times[n].get(mark, 0.0) + max(high - low, end / width / 1000)
    return "".join(
        _STUCK if _STUCK in spent else max(spent, key=lambda mark: spent[mark]) if spent else " "
        for spent in times
    )
