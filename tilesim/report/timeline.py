"""Timelines as Chrome JSON, which ui.perfetto.dev and chrome://tracing open.

One process per CTA; in it a thread per warp (roles together), then one per engine, then a counter
per mbarrier. One simulated cycle is written as one microsecond, the unit of the format; times of a
GPU are what they are. The same run gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilesim.report.repeats import Folded, fold
from tilesim.sim.timeline import Flow, Slice, Timeline, Unit

#: trace event of one phase, see the Trace Event Format
Event = dict[str, Any]

_COLOURS = {"wait": "thread_state_uninterruptible", "stuck": "terrible"}
_FLOWS = {"arrive": "arrive to wait", "issue": "issue to start", "complete": "completion to wait"}


@dataclass(frozen=True)
class Part:
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


def chrome_json(timelines: Iterable[Timeline], name: str) -> str:
    """The trace of the recorded clusters, ending with a newline; ``name`` is the kernel's."""
    return parts_json([Part(tuple(timelines), about={"source": "simulator"})], name)


def parts_json(parts: Sequence[Part], name: str) -> str:
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

    def __init__(self, part: Part, number: int, parts: int) -> None:
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
