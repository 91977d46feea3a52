"""What the waits of kernels waited for, in a process of its own: ``python -m tilesim.lsp.waits``.

Each target is run once, under the timed schedule, the one that a check runs first. Of each line
with a wait is said, as JSON, on which barrier it waited in which phases, what each phase took, and
which instruction released it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tilesim.errors import TilesimError
from tilesim.files import show_file
from tilesim.ir.loc import Loc
from tilesim.limits import patient
from tilesim.loader import Target, load
from tilesim.report.json import loc_json
from tilesim.sim.observers.timeline import Point, Timeline, Waiter, record
from tilesim.wording import count

#: events that are recorded, and scheduling points that are run
_EVENTS, _STEPS = 100_000, 100_000
#: barriers that are told of a line, and instructions that release one
_MOST = 8


def waits(timeline: Timeline) -> list[dict[str, Any]]:
    """Per line with a wait what it waited for: entries with ``lines`` of text, each with the place
    that it speaks of, if any."""
    found: dict[tuple[str, ...], tuple[Loc, list[dict[str, Any]]]] = {}
    for loc, said in (*_passed(timeline), *_stuck(timeline.waiters)):
        found.setdefault(loc.written, (loc, []))[1].extend(said)
    return [{**loc_json(loc), "lines": lines} for loc, lines in found.values()]


def _passed(timeline: Timeline) -> Iterator[tuple[Loc, list[dict[str, Any]]]]:
    credits: dict[tuple[object, int], list[Point]] = {}
    seen: dict[tuple[Loc, str], tuple[list[Point], Counter[tuple[Loc, str]]]] = {}
    for point in timeline.points:
        phase = point.named or point.on, point.phase
        if point.kind in ("credit", "join"):
            credits.setdefault(phase, []).append(point)
        elif point.kind in ("pass", "leave") and point.on:
            passed, released = seen.setdefault((point.loc, point.on), ([], Counter()))
            passed.append(point)
            if credits.get(phase):
                last = credits[phase][-1]
                released[last.loc, _what(last)] += 1
    arrivals = {(s.cta, s.barrier): s.pending for s in reversed(timeline.samples)}
    told: Counter[Loc] = Counter()
    for (loc, on), (passed, released) in seen.items():
        told[loc] += 1
        if told[loc] <= _MOST:
            yield loc, [*_of_barrier(on, passed, released, arrivals, credits)]


def _of_barrier(
    on: str,
    passed: list[Point],
    released: Counter[tuple[Loc, str]],
    arrivals: dict[tuple[int, str], int],
    credits: dict[tuple[object, int], list[Point]],
) -> Iterator[dict[str, Any]]:
    first = passed[0]
    numbers = sorted({p.phase for p in passed})
    waited = [n for n in numbers if n >= 0]
    named = first.named
    cta = first.track.cta if named is None or named.cta is None else named.cta
    expected = arrivals.get((cta, on if named is None else named.seen_from(cta)))
    parts = [] if expected is None else [count(expected, "arrival")]
    some = credits.get((named or on, waited[0]), []) if waited else []
    sent = sum(max(p.alike[1], 0) for p in some if p.alike)
    parts += [f"{sent} bytes"] * bool(sent)
    takes = ""
    if first.kind == "pass" and parts:
        takes = f" ({'each ' * (len(waited) > 1)}{' and '.join(parts)})"
    said = [_range("phase" if first.kind == "pass" else "round", waited) + takes] if waited else []
    said += ["one wait passes at once, as no phase is before it"] * (len(waited) < len(numbers))
    yield {"text": f"**{on}**: {'; '.join(said)}"}
    for (loc, what), times in released.most_common(_MOST):
        yield {"text": f"released by {what} ({count(times, 'wait')})", **loc_json(loc)}


def _range(word: str, numbers: list[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if first == last:
        return f"waits for {word} {first}"
    whole = len(numbers) == last - first + 1
    return f"waits for {'' if whole else f'{len(numbers)} of '}{word}s {first} to {last}"


def _what(point: Point) -> str:
    """The agent that acts, and what it does, without the number of the phase."""
    agent = f"{point.engine} for {point.track}" if point.engine else str(point.track)
    done = point.text.rpartition(", phase ")[0] or point.text.rpartition(" round ")[0] or point.text
    return f"{agent}, which {done.replace(' (0 left)', '')}"


def _stuck(waiters: Iterable[Waiter]) -> Iterator[tuple[Loc, list[dict[str, Any]]]]:
    for waiter in waiters:
        state = f" ({waiter.state})" if waiter.state else ""
        none = "" if waiter.releasers else "; no instruction that can still execute releases it"
        text = f"**{waiter.on or 'blocked'}**: {waiter.name} {waiter.text}, for ever{state}{none}"
        said: list[dict[str, Any]] = [{"text": text}]
        for one in waiter.releasers[:_MOST]:
            text = f"could be released by {one.instruction} of {one.name}, which {one.state}"
            said.append({"text": text, **loc_json(one.loc)})
        yield waiter.loc, said


def _of_target(target: Target) -> list[dict[str, Any]]:
    program = target.form()
    inputs = target.own_inputs(program, 0)
    recording = record(program, inputs, limit=_EVENTS, steps=_STEPS)
    return [entry for timeline in recording.timelines for entry in waits(timeline)]


def main(names: Iterable[str]) -> None:
    """Prints the document; a target that cannot be run has no waits."""
    found: dict[str, Any] = {}
    with patient():
        for name in names:
            try:
                for target in load(name):
                    show_file(target.file)
                    found[target.id] = _of_target(target)
            except TilesimError as error:
                print(f"{name}: {error}", file=sys.stderr)
    print(json.dumps({"waits": found}))


if __name__ == "__main__":
    main(sys.argv[1:])
