"""Timelines as Chrome JSON, which ui.perfetto.dev and chrome://tracing open.

One process per CTA; in it a thread per warp (roles together), then one per engine, then a counter
per mbarrier. One cycle is written as one microsecond, the unit of the format. The same run gives
the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tilesim.sim.timeline import Flow, Slice, Timeline, Track

#: trace event of one phase, see the Trace Event Format
Event = dict[str, Any]

_COLOURS = {"wait": "thread_state_uninterruptible", "stuck": "terrible"}
_FLOWS = {"arrive": "arrive to wait", "issue": "issue to start", "complete": "completion to wait"}


def chrome_json(timelines: Iterable[Timeline], name: str) -> str:
    """The trace of the recorded clusters, ending with a newline; ``name`` is the kernel's."""
    done = tuple(timelines)
    threads = {
        track: number
        for timeline in done
        for number, track in enumerate(timeline.tracks, 1)
    }  # fmt: skip
    meta = [event for timeline in done for event in _names(timeline, threads, name)]
    timed: list[tuple[float, int, Event]] = []
    flow_id = 0
    for timeline in done:
        timed += ((s.start, 0, _slice(s, threads)) for s in timeline.slices)
        timed += ((e["ts"], 1, e) for e in _counters(timeline))
        for flow in timeline.flows:
            flow_id += 1
            timed += ((e["ts"], 2, e) for e in _flow(flow, flow_id, threads))
        timed += ((e["ts"], 3, e) for e in _cut(timeline))
    timed.sort(key=lambda item: item[:2])
    lines = [json.dumps(e, separators=(",", ":")) for e in (*meta, *(e for _, _, e in timed))]
    about = {"kernel": name, "unit": done[0].unit if done else "cycle", "source": "simulator"}
    return (
        '{"displayTimeUnit":"ns","otherData":'
        + json.dumps(about, separators=(",", ":"))
        + ',"traceEvents":[\n'
        + ",\n".join(lines)
        + "\n]}\n"
    )


def _names(timeline: Timeline, threads: dict[Track, int], name: str) -> Iterator[Event]:
    for cta in timeline.ctas:
        yield from _named("process", cta, {"pid": _pid(cta)}, f"{name} CTA {cta}")
    for track in timeline.tracks:
        number = threads[track]
        yield from _named("thread", number, {"pid": _pid(track.cta), "tid": number}, str(track))


def _named(what: str, order: int, place: dict[str, int], name: str) -> Iterator[Event]:
    """The name of a process or thread, and where it stands among the others."""
    yield {"ph": "M", "name": f"{what}_name", **place, "args": {"name": name}}
    yield {"ph": "M", "name": f"{what}_sort_index", **place, "args": {"sort_index": order}}


def _slice(s: Slice, threads: dict[Track, int]) -> Event:
    event: Event = {
        "ph": "X", "name": s.name, "cat": s.kind, "pid": _pid(s.track.cta),
        "tid": threads[s.track], "ts": _time(s.start), "dur": _time(s.end - s.start),
        "args": {"line": str(s.loc)},
    }  # fmt: skip
    colour = _COLOURS.get("stuck" if s.stuck else s.kind)
    if colour is not None:
        event["cname"] = colour
    if s.stuck:
        event["args"]["ends"] = "never"
    return event


def _counters(timeline: Timeline) -> Iterator[Event]:
    """One counter per mbarrier: completed phases, pending arrivals and, where used, bytes."""
    counts_bytes = {(s.cta, s.barrier) for s in timeline.samples if s.bytes}
    for s in timeline.samples:
        values = {"phase": s.phase, "pending": s.pending}
        if (s.cta, s.barrier) in counts_bytes:
            values["bytes"] = s.bytes
        yield {
            "ph": "C", "name": s.barrier, "cat": "mbarrier", "pid": _pid(s.cta),
            "ts": _time(s.time), "args": values,
        }  # fmt: skip


def _flow(flow: Flow, number: int, threads: dict[Track, int]) -> Iterator[Event]:
    for ph, track, time in (("s", flow.start, flow.start_time), ("f", flow.end, flow.end_time)):
        event: Event = {
            "ph": ph, "name": _FLOWS[flow.kind], "cat": "flow", "id": number,
            "pid": _pid(track.cta), "tid": threads[track], "ts": _time(time),
        }  # fmt: skip
        yield event | {"bp": "e"} if ph == "f" else event


def _cut(timeline: Timeline) -> Iterator[Event]:
    """A mark where recording stopped because the limit was reached."""
    if timeline.truncated:
        yield {
            "ph": "i", "s": "g", "name": "recording ends here: limit reached", "cat": "limit",
            "pid": _pid(timeline.ctas[0]), "tid": 1, "ts": _time(timeline.end),
        }  # fmt: skip


def _pid(cta: int) -> int:
    """Process 0 is special to Perfetto."""
    return cta + 1


def _time(value: float) -> int | float:
    """A time without a needless fraction."""
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded
