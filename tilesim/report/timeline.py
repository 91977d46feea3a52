"""Timelines: as Chrome JSON, and as rows of text for a terminal.

What repeats itself in a timeline is shown once, with how often.

Found by comparison of what was recorded: slices, samples and arrows in the order of their times,
each with the time since the one before. Where that goes on as it did so many of them earlier, these
are one repetition.

Timelines as Chrome JSON, which ui.perfetto.dev and chrome://tracing open.

One process per CTA; in it a thread per warp (roles together), then one per engine, then a counter
per mbarrier. One simulated cycle is written as one microsecond, the unit of the format; times of a
GPU are what they are. The same run gives the same bytes.

A timeline for a terminal: a row per warp and engine, a column per stretch of time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.layout import PLAIN, Style
from tilesim.records import dataclass, field, replace
from tilesim.sim.observers.timeline import Flow, Sample, Slice, Timeline, Track, Unit
from tilesim.wording import printable

#: how often something is repeated at least, and which part of the time that is left out saves
_TIMES, _PART = 3, 0.1
#: places at which a repetition is looked for, as parts of a stretch, and how many lengths there
_PLACES, _LENGTHS = (0.5, 0.25, 0.75), 64
#: times are compared in these parts of a unit
_TICK = 1e-3


@dataclass(frozen=True)
class Repeats:
    """From ``start`` to ``end`` a timeline shows what was recorded ``times`` times in a row, and
    leaves out ``left_out`` after it; times are those of the recording."""

    start: float
    end: float
    times: int

    @property
    def left_out(self) -> float:
        """How long what is not shown takes."""
        return (self.times - 1) * (self.end - self.start)


@dataclass(frozen=True)
class Folded:
    """A timeline in which repetitions are left out, and what follows them begins earlier."""

    timeline: Timeline
    repeats: tuple[Repeats, ...] = ()

    def shown(self, time: float) -> float:
        """When something is shown that was recorded at a time; what is left out, at its end."""
        return time - sum(min(max(time - r.end, 0.0), r.left_out) for r in self.repeats)

    def recorded(self, time: float) -> float:
        """When that was recorded which is shown at a time."""
        for repeats in self.repeats:
            if time > repeats.end:
                time += repeats.left_out
        return time


@dataclass(frozen=True)
class _Event:
    """Something that was recorded; ``looks`` is what is compared."""

    time: float
    what: Slice | Sample | Flow
    looks: object


@dataclass(frozen=True)
class _Stretch:
    """``times`` repetitions of ``length`` events each, from number ``first`` on."""

    first: int
    length: int
    times: int

    @property
    def shown(self) -> range:
        """The events that are shown."""
        return range(self.first, self.first + self.length)

    @property
    def hidden(self) -> range:
        """The events that are left out."""
        return range(self.first + self.length, self.first + self.times * self.length)


def fold(timeline: Timeline) -> Folded:
    """The timeline with what repeats itself once."""
    events = sorted(_events(timeline), key=lambda e: e.time)
    looks: dict[object, int] = {}
    gaps = [0, *(round((b.time - a.time) / _TICK) for a, b in pairwise(events))][: len(events)]
    keys = ((event.looks, gap) for event, gap in zip(events, gaps, strict=True))
    numbers = np.array([looks.setdefault(key, len(looks)) for key in keys], dtype=np.int64)
    found = sorted(_stretches(numbers, events, timeline.end * _PART), key=lambda s: s.first)
    if not found:
        return Folded(timeline)
    repeats = tuple(_repeats(events, stretch) for stretch in found)
    return _without(Folded(timeline, repeats), events, found)


def _repeats(events: list[_Event], stretch: _Stretch) -> Repeats:
    """When a stretch happens; arrows begin a little before an instruction ends."""
    first, last = (events[n].time for n in (stretch.first, stretch.first + stretch.length))
    start = round(first, 2)
    return Repeats(start, start + round(last - first, 2), stretch.times)


def _events(timeline: Timeline) -> Iterator[_Event]:
    for s in timeline.slices:
        looks = (s.track, s.kind, s.name, s.loc, round((s.end - s.start) / _TICK), s.stuck)
        yield _Event(s.start, s, looks)
    phases: dict[tuple[int, str], int] = {}
    for b in timeline.samples:
        before = phases.get((b.cta, b.barrier), 0)
        phases[b.cta, b.barrier] = b.phase
        yield _Event(b.time, b, (b.cta, b.barrier, b.phase - before, b.pending, b.bytes))
    for f in timeline.flows:
        took = round((f.end_time - f.start_time) / _TICK)
        yield _Event(f.start_time, f, (f.kind, f.start, f.end, took, f.woke))


def _stretches(
    numbers: NDArray[np.int64], events: list[_Event], least: float, first: int = 0
) -> Iterator[_Stretch]:
    """What repeats itself, the longest, and what does before and after it; each takes at least so
    much time."""
    best = max(_candidates(numbers), key=lambda s: (len(s.hidden), -s.length), default=None)
    if best is None:
        return
    start, end = first + best.hidden.start, first + best.hidden.stop
    if end >= len(events) or events[end].time - events[start].time < least:
        return
    yield _Stretch(first + best.first, best.length, best.times)
    yield from _stretches(numbers[: best.first], events, least, first)
    yield from _stretches(numbers[best.hidden.stop :], events, least, end)


def _candidates(numbers: NDArray[np.int64]) -> Iterator[_Stretch]:
    for part in _PLACES if len(numbers) else ():
        at = int(len(numbers) * part)
        again = np.flatnonzero(numbers[at + 1 :] == numbers[at]) + 1
        for length in map(int, again[:_LENGTHS]):
            differs = np.flatnonzero(numbers[length:] != numbers[:-length])
            bounds = np.concatenate(([-1], differs, [len(numbers) - length]))
            longest = int(np.argmax(np.diff(bounds)))
            same = int(bounds[longest + 1] - bounds[longest] - 1)
            times = same // length + 1
            if times >= _TIMES:
                yield _Stretch(int(bounds[longest]) + 1, length, times)


def _without(folded: Folded, events: list[_Event], found: list[_Stretch]) -> Folded:
    """What is left out is removed, and the rest moved."""
    timeline = folded.timeline
    hidden = {n for stretch in found for n in stretch.hidden}
    inside = {n for stretch in found for n in stretch.shown}
    slices: list[Slice] = []
    samples: list[Sample] = []
    flows: list[Flow] = []
    by, coming = 0.0, list(zip(found, folded.repeats, strict=True))
    for number, event in enumerate(events):
        while coming and number >= coming[0][0].hidden.stop:
            by += coming.pop(0)[1].left_out
        if number in hidden:
            continue
        start, what = event.time - by, event.what
        match what:
            case Slice(end=end):
                until = end - by if number in inside else max(start, folded.shown(end))
                slices.append(replace(what, start=start, end=until))
            case Sample():
                samples.append(replace(what, time=start))
            case Flow(end_time=end):
                until = end - by if number in inside else max(start, folded.shown(end))
                flows.append(replace(what, start_time=start, end_time=until))
    kept = replace(
        timeline, slices=tuple(slices), samples=tuple(samples), flows=tuple(flows),
        end=folded.shown(timeline.end),
    )  # fmt: skip
    return replace(folded, timeline=kept)


#: trace event of one phase, see the Trace Event Format
Event = dict[str, Any]

_COLOURS = {"wait": "thread_state_uninterruptible", "stuck": "terrible"}
_FLOWS = {"arrive": "arrive to wait", "issue": "issue to start", "complete": "completion to wait"}


@dataclass(frozen=True)
class TraceSource:
    """The timelines of one backend in a trace.

    ``scale``: how many of the trace's microseconds one unit of the timelines takes. ``about`` goes
    into the trace's metadata beside the unit; ``title`` is added to the names of the CTAs.
    ``once``: what repeats itself is written once, with a mark that says how often.
    """

    timelines: tuple[Timeline, ...]
    scale: float = 1.0
    about: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    once: bool = False


def parts_json(parts: Sequence[TraceSource], name: str) -> str:
    """One trace of several backends: their CTAs are processes of their own, side by side."""
    writers = [_Writer(part, number, len(parts)) for number, part in enumerate(parts)]
    meta = [event for writer in writers for event in writer.names(name)]
    timed: list[tuple[float, int, Event]] = []
    flow_id = 0
    for writer in writers:
        for timeline in writer.part.timelines:
            timed += ((e["ts"], 0, e) for e in map(writer.slice, timeline.slices))
            timed += ((e["ts"], 1, e) for e in writer.counters(timeline))
            for flow in timeline.flows:
                flow_id += 1
                timed += ((e["ts"], 2, e) for e in writer.flow(flow, flow_id))
            timed += ((e["ts"], 3, e) for e in writer.cut(timeline))
        timed += ((e["ts"], 3, e) for e in writer.repeats())
    timed.sort(key=lambda item: item[:2])
    lines = [json.dumps(e, separators=(",", ":")) for e in (*meta, *(e for _, _, e in timed))]
    about = [{"kernel": name, "unit": w.unit, **w.part.about} for w in writers]
    other = about[0] if len(about) == 1 else {"kernel": name, "sources": about}
    return (
        '{"displayTimeUnit":"ns","otherData":'
        + json.dumps(other, separators=(",", ":"))
        + ',"traceEvents":[\n'
        + ",\n".join(lines)
        + "\n]}\n"
    )


class _Writer:
    """The events of part ``number`` of ``parts`` in one trace."""

    def __init__(self, part: TraceSource, number: int, parts: int) -> None:
        folded = [fold(t) if part.once else Folded(t) for t in part.timelines]
        self.part = replace(part, timelines=tuple(f.timeline for f in folded))
        self._folded = folded
        self._number, self._parts = number, parts
        self._threads = {
            track: number
            for timeline in self.part.timelines
            for number, track in enumerate(timeline.tracks, 1)
        }  # fmt: skip

    @property
    def unit(self) -> Unit:
        """What the times of the timelines count."""
        return self.part.timelines[0].unit if self.part.timelines else "cycle"

    def _pid(self, cta: int) -> int:
        """A CTA is next to itself in the other parts. Process 0 is special to Perfetto."""
        return cta * self._parts + self._number + 1

    def _time(self, value: float) -> int | float:
        """A time in microseconds of the trace, without a needless fraction."""
        return _shortened(value * self.part.scale)

    def names(self, kernel: str) -> Iterator[Event]:
        """Names and order of processes and threads."""
        for timeline in self.part.timelines:
            for cta in timeline.ctas:
                title = f"{kernel} CTA {cta}{self.part.title}"
                pid = self._pid(cta)
                yield from _named("process", pid - 1, {"pid": pid}, title)
            for track in timeline.tracks:
                tid = self._threads[track]
                place = {"pid": self._pid(track.cta), "tid": tid}
                yield from _named("thread", tid, place, str(track))

    def slice(self, s: Slice) -> Event:
        """A complete event."""
        start, end = self._time(s.start), self._time(s.end)
        event: Event = {
            "ph": "X", "name": s.name, "cat": s.kind, "pid": self._pid(s.track.cta),
            "tid": self._threads[s.track], "ts": start, "dur": _shortened(end - start),
            "args": {"line": str(s.loc)},
        }  # fmt: skip
        colour = _COLOURS.get("stuck" if s.stuck else s.kind)
        if colour is not None:
            event["cname"] = colour
        if s.stuck:
            event["args"]["ends"] = "never"
        return event

    def counters(self, timeline: Timeline) -> Iterator[Event]:
        """One counter per mbarrier: completed phases, pending arrivals and, where used, bytes."""
        counts_bytes = {(s.cta, s.barrier) for s in timeline.samples if s.bytes}
        for s in timeline.samples:
            values = {"phase": s.phase, "pending": s.pending}
            if (s.cta, s.barrier) in counts_bytes:
                values["bytes"] = s.bytes
            yield {
                "ph": "C", "name": s.barrier, "cat": "mbarrier", "pid": self._pid(s.cta),
                "ts": self._time(s.time), "args": values,
            }  # fmt: skip

    def flow(self, flow: Flow, number: int) -> Iterator[Event]:
        """The two ends of an arrow."""
        for ph, track, time in (("s", flow.start, flow.start_time), ("f", flow.end, flow.end_time)):
            event: Event = {
                "ph": ph, "name": _FLOWS[flow.kind], "cat": "flow", "id": number,
                "pid": self._pid(track.cta), "tid": self._threads[track], "ts": self._time(time),
            }  # fmt: skip
            yield event | {"bp": "e"} if ph == "f" else event

    def repeats(self) -> Iterator[Event]:
        """A mark where something begins that is written once."""
        for folded in self._folded:
            unit = folded.timeline.unit
            for r in folded.repeats:
                what = f"{unit}s {r.start:g} to {r.end:g} repeat {r.times} times, shown once"
                yield {
                    "ph": "i", "s": "g", "name": what, "cat": "repeats",
                    "pid": self._pid(folded.timeline.ctas[0]), "tid": 1,
                    "ts": self._time(folded.shown(r.start)),
                }  # fmt: skip

    def cut(self, timeline: Timeline) -> Iterator[Event]:
        """A mark that the limit was reached: recording stopped, or (on a GPU) some of it did."""
        if timeline.truncated:
            what = "some records are missing" if timeline.unit == "ns" else "recording ends here"
            yield {
                "ph": "i", "s": "g", "name": f"{what}: limit reached", "cat": "limit",
                "pid": self._pid(timeline.ctas[0]), "tid": 1, "ts": self._time(timeline.end),
            }  # fmt: skip


def _named(what: str, order: int, place: dict[str, int], name: str) -> Iterator[Event]:
    """The name of a process or thread, and where it stands among the others."""
    yield {"ph": "M", "name": f"{what}_name", **place, "args": {"name": name}}
    yield {"ph": "M", "name": f"{what}_sort_index", **place, "args": {"sort_index": order}}


def _shortened(value: float) -> int | float:
    """``value`` to three decimals, as an integer if it is one."""
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded


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
