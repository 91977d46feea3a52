"""What repeats itself in a timeline is shown once, with how often."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tilesim.kernels.hopper import matmul_v3
from tilesim.report.html.timeline import draw
from tilesim.report.repeats import Repeats, fold
from tilesim.report.strips import strips
from tilesim.report.timeline import Part, parts_json
from tilesim.sim.record import record
from tilesim.sim.timeline import Timeline


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    """A GEMM of forty turns with three buffers."""
    (recorded,) = record(matmul_v3.matmul.build(m=64, n=64, depth=64 * 40)).timelines
    return recorded


def test_turns_are_shown_once(timeline: Timeline) -> None:
    folded = fold(timeline)
    assert folded.repeats == (Repeats(start=1018.0, end=2726.0, times=5),)
    assert folded.timeline.end == timeline.end - 4 * 1708
    hidden = len(timeline.slices) - len(folded.timeline.slices)
    inside = [s for s in timeline.slices if 1018 <= s.start < 2726]
    assert hidden == 4 * len(inside)
    assert fold(folded.timeline).repeats == ()


def test_times_are_those_of_the_recording(timeline: Timeline) -> None:
    folded = fold(timeline)
    for time, shown in ((0, 0), (1018, 1018), (2726, 2726), (5000, 2726), (12000, 5168)):
        assert folded.shown(time) == shown
    for shown, time in ((1500, 1500), (5168, 12000)):
        assert folded.recorded(shown) == time


def test_what_differs_is_no_repetition(timeline: Timeline) -> None:
    """Something that takes longer once is in no repetition."""
    number = next(n for n, s in enumerate(timeline.slices) if s.start > 4000)
    slices = list(timeline.slices)
    slices[number] = replace(slices[number], end=slices[number].end + 1)
    (repeats,) = fold(replace(timeline, slices=tuple(slices))).repeats
    assert repeats.start >= slices[number].start
    assert (repeats.end - repeats.start, repeats.times) == (1708, 4)


def test_a_short_run_is_shown_as_it_is() -> None:
    (short,) = record(matmul_v3.matmul.build(m=64, n=64, depth=64 * 6)).timelines
    folded = fold(short)
    assert folded.timeline is short
    assert not folded.repeats


def test_strips_have_a_bracket(timeline: Timeline) -> None:
    lines = list(strips(timeline))
    assert lines[0].split() == ["0", "12056", "cycles"]
    assert lines[1] == " " * 33 + "[-------- 5 times ---------]"
    assert lines[-1] == " " * 17 + "cycles 1018 to 2726 repeat 5 times, shown once"


def test_pictures_say_how_often(timeline: Timeline) -> None:
    picture = draw(timeline, whole=True)
    assert picture is not None
    text = picture.element()
    assert re.findall(r">(repeats[^<]*)<", text) == ["repeats 5 times"]
    axis = [int(n) for n in re.findall(r'text-anchor="middle">(\d+)<', text)]
    assert axis == [0, 1000, 2000, 9832, 10832, 11832]


def test_a_trace_is_whole_unless_asked(timeline: Timeline) -> None:
    whole = json.loads(parts_json([Part((timeline,))], "k"))["traceEvents"]
    once = json.loads(parts_json([Part((timeline,), once=True)], "k"))["traceEvents"]
    assert not [e for e in whole if e.get("cat") == "repeats"]
    (mark,) = [e for e in once if e.get("cat") == "repeats"]
    assert mark == {
        "ph": "i", "s": "g", "name": "cycles 1018 to 2726 repeat 5 times, shown once",
        "cat": "repeats", "pid": 1, "tid": 1, "ts": 1018,
    }  # fmt: skip
    assert len(once) < len(whole) / 2
