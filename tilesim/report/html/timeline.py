"""A stretch of a timeline as SVG: a row per warp, engine and mbarrier."""

from __future__ import annotations

from collections.abc import Iterable

from tilesim.report.html.svg import CHARACTER, Svg, cut
from tilesim.report.timeline import Folded, Repeats, fold
from tilesim.sim.observers.timeline import Sample, Slice, Timeline, Track
from tilesim.wording import count

_ROW, _BAR = 20.0, 14.0
_WIDTH = 880.0
#: rows, slices and arrows that are drawn at most
_TRACKS, _SLICES, _FLOWS, _BARRIERS = 28, 1500, 400, 12
_STEPS = 60


def draw(
    timeline: Timeline,
    *,
    barriers: Iterable[str] = (),
    title: str = "Timeline",
    whole: bool = False,
) -> Svg | None:
    """The last stretch of the run (``whole``: all of it); None if nothing was recorded.

    ``barriers`` are drawn first; others while there is room. What repeats itself is drawn once,
    with how often it does.
    """
    if not timeline.slices:
        return None
    folded = fold(timeline)
    timeline = folded.timeline
    start, end = (0.0, timeline.end) if whole else window(timeline)
    tracks = _tracks(timeline, start)
    names = _barriers(timeline, tuple(barriers))
    left = max(len(t) for t in (*(_label(t, timeline) for t in tracks), *names)) * CHARACTER + 16
    scale = _WIDTH / max(1.0, end - start)
    svg = Svg(title)
    rows = {track: 24 + number * _ROW for number, track in enumerate(tracks)}
    bottom = 24 + (len(tracks) + len(names)) * _ROW
    _axis(svg, folded, left, start, end, scale, bottom)
    for track, y in rows.items():
        svg.text(4, y + 13, _label(track, timeline), "dim")
    shown = [s for s in timeline.slices if s.end >= start and s.track in rows]
    for s in shown[-_SLICES:]:
        _bar(svg, s, left, rows[s.track], start, scale)
    _arrows(svg, timeline, rows, left, start, scale)
    for number, name in enumerate(names, len(tracks)):
        y = 24 + number * _ROW
        svg.text(4, y + 13, name, "dim")
        _phases(svg, timeline, name, left, y, start, end, scale)
    for repeats in folded.repeats:
        _repeats(svg, folded, repeats, left, start, scale, bottom)
    hidden = len(timeline.tracks) - len(tracks)
    if hidden > 0:
        svg.text(4, svg.height + 16, f"{count(hidden, 'more track')} left out", "small dim")
    return svg


def window(timeline: Timeline) -> tuple[float, float]:
    """The stretch at the end that has as many slices as can be told apart."""
    starts = [s.start for s in timeline.slices if s.kind != "wait" and not s.stuck]
    if timeline.unit == "step":
        return max(0.0, timeline.end - _STEPS), timeline.end
    per_track = 40 * max(1, len(timeline.tracks))
    return (starts[-per_track] if len(starts) > per_track else 0.0), timeline.end


def _tracks(timeline: Timeline, start: float) -> list[Track]:
    """Those with something to see, in order."""
    busy = {s.track for s in timeline.slices if s.end >= start}
    return [t for t in timeline.tracks if t in busy][:_TRACKS]


def _barriers(timeline: Timeline, first: tuple[str, ...]) -> list[str]:
    """Names of mbarriers, with their CTA if there are several; ``first`` before the others."""
    names = dict.fromkeys(_name(s, timeline) for s in timeline.samples)
    own = [n for n in names if n in first]
    return [*own, *(n for n in names if n not in own)][:_BARRIERS]


def _name(s: Sample, timeline: Timeline) -> str:
    return f"CTA {s.cta} {s.barrier}" if len(timeline.ctas) > 1 else s.barrier


def _label(track: Track, timeline: Timeline) -> str:
    return f"CTA {track.cta} {track}" if len(timeline.ctas) > 1 else str(track)


def _repeats(
    svg: Svg, folded: Folded, repeats: Repeats, left: float, start: float, scale: float,
    bottom: float,
) -> None:  # fmt: skip
    """Two lines around what is drawn once, and how often it happens."""
    first, last = (folded.shown(time) for time in (repeats.start, repeats.end))
    if last <= start:
        return
    x1, x2 = (left + max(time - start, 0.0) * scale for time in (first, last))
    svg.path(f"M{x1:.2f} 18V{bottom + 4:.1f}H{x2:.2f}V18", "flow")
    svg.text(x1 + 2, bottom + 16, f"repeats {repeats.times} times", "small dim")


def _axis(
    svg: Svg, folded: Folded, left: float, start: float, end: float, scale: float, bottom: float
) -> None:
    timeline = folded.timeline
    svg.text(4, 14, f"{timeline.unit}s", "small dim")
    step = _nice((end - start) / 8)
    at = -(-start // step) * step
    while at <= end:
        x = left + (at - start) * scale
        svg.path(f"M{x:.2f} 18V{bottom:.1f}", "rule")
        svg.text(x, 14, f"{folded.recorded(at):g}", "small dim", "middle")
        at += step
    svg.rect(left, bottom, _WIDTH, 0.5, "odd")


def _nice(value: float) -> float:
    """1, 2 or 5 times a power of ten, at least ``value`` and 1."""
    power = 1.0
    while True:
        for factor in (1, 2, 5):
            if factor * power >= value:
                return factor * power
        power *= 10


def _bar(svg: Svg, s: Slice, left: float, y: float, start: float, scale: float) -> None:
    begin = max(s.start, start)
    x, width = left + (begin - start) * scale, max(1.0, (s.end - begin) * scale)
    css = "stuck" if s.stuck else s.kind
    for_ever = ", never ends" if s.stuck else f" to {s.end:g}"
    tip = f"{s.track}: {s.name}, {s.start:g}{for_ever} ({s.loc})"
    svg.rect(x, y + 2, width, _BAR, css, tip=tip)
    label = cut(s.name, (width - 4) / (CHARACTER * 10 / 12))
    if len(label) >= min(4, len(s.name)):
        svg.text(x + 2, y + 12.5, label, "small dim" if css == "wait" else "small on")


def _arrows(
    svg: Svg, timeline: Timeline, rows: dict[Track, float], left: float, start: float, scale: float
) -> None:
    flows = [f for f in timeline.flows if f.start_time >= start and f.woke]
    for f in flows[-_FLOWS:]:
        if f.start not in rows or f.end not in rows:
            continue
        x1, x2 = left + (f.start_time - start) * scale, left + (f.end_time - start) * scale
        y1, y2 = rows[f.start] + 9, rows[f.end] + 9
        svg.path(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", "flow")


def _phases(
    svg: Svg, timeline: Timeline, name: str, left: float, y: float,
    start: float, end: float, scale: float,
) -> None:  # fmt: skip
    """Alternating bars, one per phase, with its number; the last state in words as a tip."""
    samples = [s for s in timeline.samples if _name(s, timeline) == name]
    changes = [s for n, s in enumerate(samples) if n == 0 or samples[n - 1].phase != s.phase]
    for number, s in enumerate(changes):
        until = changes[number + 1].time if number + 1 < len(changes) else end
        if until < start:
            continue
        begin = max(s.time, start)
        x, width = left + (begin - start) * scale, max(0.5, (until - begin) * scale)
        last = [p for p in samples if p.phase == s.phase][-1]
        tip = f"{name} phase {s.phase}: at its end {last.pending} arrivals pending"
        if last.bytes:
            tip += f", {last.bytes} bytes outstanding"
        svg.rect(x, y + 4, width, _BAR - 4, "odd" if s.phase % 2 else "even", tip=tip)
        if width > 12:
            svg.text(x + 3, y + 13, str(s.phase), "small dim")
