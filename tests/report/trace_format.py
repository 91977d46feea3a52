"""What is wrong with a trace, by the Trace Event Format and by what Perfetto makes of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]

#: the type of every field
_TYPES: dict[str, tuple[type, ...]] = {
    "ph": (str,), "name": (str,), "cat": (str,), "pid": (int,), "tid": (int,), "id": (int,),
    "ts": (int, float), "dur": (int, float), "args": (dict,), "bp": (str,), "s": (str,),
}  # fmt: skip
#: fields that an event of each phase must have, beside phase and name
_FIELDS = {
    "M": ("pid", "args"),
    "X": ("cat", "pid", "tid", "ts", "dur", "args"),
    "C": ("cat", "pid", "ts", "args"),
    "s": ("cat", "pid", "tid", "ts", "id"),
    "f": ("cat", "pid", "tid", "ts", "id", "bp"),
    "i": ("cat", "pid", "tid", "ts", "s"),
}
_METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}
#: rounding to the thousandth of a microsecond that a time is written with
_EPSILON = 1e-6


def problems(document: dict[str, Any]) -> list[str]:
    """Everything that is wrong; empty for a good trace."""
    found = set(document) ^ {"displayTimeUnit", "otherData", "traceEvents"}
    events: list[Event] = document["traceEvents"]
    if document["displayTimeUnit"] not in ("ms", "ns"):
        found.add("displayTimeUnit")
    checks = (_fields, _names, _order, _nesting, _flows, _counters)
    return sorted(found) + [text for check in checks for text in check(events)]


def _fields(events: list[Event]) -> Iterator[str]:
    for e in events:
        fields = _FIELDS.get(e["ph"])
        if fields is None:
            yield f"unknown phase: {e}"
            continue
        wanted = ("ph", "name", *fields)
        if wrong := [k for k in wanted if not isinstance(e.get(k), _TYPES[k])]:
            yield f"{wrong} of {e}"
        if extra := set(e) - set(wanted) - {"tid", "cname", "args"}:
            yield f"{extra} in {e}"
        if e["ph"] == "X" and e["dur"] < 0:
            yield f"negative duration: {e}"
        if e["ph"] != "M" and e["ts"] < 0:
            yield f"negative time: {e}"
        if e["ph"] == "M" and e["name"] not in _METADATA:
            yield f"unknown metadata: {e}"


def _names(events: list[Event]) -> Iterator[str]:
    """Every process and thread has exactly one name and one place, before its first event."""
    named: set[tuple[str, int, int | None]] = set()
    titles: set[tuple[int | None, str]] = set()
    for e in events:
        if e["ph"] == "M":
            key = e["name"], e["pid"], e.get("tid")
            if key in named:
                yield f"named twice: {e}"
            named.add(key)
            if "name" in e["args"]:
                title = (e["pid"] if "tid" in e else None), e["args"]["name"]
                if title in titles:
                    yield f"name used twice: {e}"
                titles.add(title)
            continue
        wanted = [("process_name", e["pid"], None), ("process_sort_index", e["pid"], None)]
        if "tid" in e:
            wanted += [(f"thread_{x}", e["pid"], e["tid"]) for x in ("name", "sort_index")]
        if missing := [w for w in wanted if w not in named]:
            yield f"{missing} before {e}"


def _order(events: list[Event]) -> Iterator[str]:
    times = [e["ts"] for e in events if e["ph"] != "M"]
    if times != sorted(times):
        yield "times are not in order"


def _nesting(events: list[Event]) -> Iterator[str]:
    """Slices of a thread follow each other or lie within each other."""
    open_: dict[tuple[int, int], list[float]] = defaultdict(list)
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
        ends = open_[e["pid"], e["tid"]]
        while ends and ends[-1] <= e["ts"] + _EPSILON:
            ends.pop()
        end = e["ts"] + e["dur"]
        if ends and end > ends[-1] + _EPSILON:
            yield f"overlaps the slice before it: {e}"
        ends.append(end)


def _flows(events: list[Event]) -> Iterator[str]:
    """Every arrow has one start and one end, not before its start, each in a slice."""
    spans: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    arrows: dict[int, list[Event]] = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            spans[e["pid"], e["tid"]].append((e["ts"] - _EPSILON, e["ts"] + e["dur"] + _EPSILON))
        if e["ph"] in "sf":
            arrows[e["id"]].append(e)
    for number, ends in arrows.items():
        if [e["ph"] for e in ends] != ["s", "f"] or len({e["name"] for e in ends}) != 1:
            yield f"arrow {number}: {ends}"
        for e in ends:
            inside = spans[e["pid"], e["tid"]]
            if not any(start <= e["ts"] <= end for start, end in inside):
                yield f"no slice under the arrow's end: {e}"


def _counters(events: list[Event]) -> Iterator[str]:
    """A counter has the same series throughout, all of them numbers."""
    series: dict[tuple[int, str], set[str]] = {}
    for e in events:
        if e["ph"] == "C":
            keys = set(e["args"])
            if series.setdefault((e["pid"], e["name"]), keys) != keys:
                yield f"other series than before: {e}"
            if not all(isinstance(v, int) for v in e["args"].values()):
                yield f"not a number: {e}"
