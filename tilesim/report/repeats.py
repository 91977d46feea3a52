"""What repeats itself in a timeline is shown once, with how often.

Found by comparison of what was recorded: slices, samples and arrows in the order of their times,
each with the time since the one before. Where that goes on as it did so many of them earlier, these
are one repetition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.timeline import Flow, Sample, Slice, Timeline

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
