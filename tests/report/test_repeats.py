"""What repeats itself in a timeline is shown once, with how often."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.ptx.test_for_all import NEVER, TEXT
from tilesim import Builder, s32
from tilesim.cli import main
from tilesim.ir.program import Program
from tilesim.kernels.hopper import matmul_v3, matmul_v7
from tilesim.report.html.timeline import draw
from tilesim.report.timeline import Repeats, TraceSource, fold, parts_json, strips
from tilesim.sim.observers.timeline import Timeline, record


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
    whole = json.loads(parts_json([TraceSource((timeline,))], "k"))["traceEvents"]
    once = json.loads(parts_json([TraceSource((timeline,), once=True)], "k"))["traceEvents"]
    assert not [e for e in whole if e.get("cat") == "repeats"]
    (mark,) = [e for e in once if e.get("cat") == "repeats"]
    assert mark == {
        "ph": "i", "s": "g", "name": "cycles 1018 to 2726 repeat 5 times, shown once",
        "cat": "repeats", "pid": 1, "tid": 1, "ts": 1018,
    }  # fmt: skip
    assert len(once) < len(whole) / 2


def in_steps(trips: int) -> Program:
    """A ring of two stages whose turns are those of `while` loops, each with its own counter."""
    k = Builder("in_steps", warps=2)
    data = k.shared("data", s32, (2, 32))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    with k.one_thread():
        for bar in (*full, *empty):
            k.mbarrier.init(bar, 32)
    k.sync_threads()
    for warp, (waits, arrives) in enumerate(((empty, full), (full, empty))):
        i, value = k.var(f"i{warp}", 0), k.var(f"value{warp}", 0)
        with k.role(f"w{warp}", warp), k.while_(i < trips):
            k.mbarrier.wait(waits[i % 2], (i // 2 & 1) ^ (1 - warp))
            if warp:
                k.mem.load(value, data[i % 2, k.lane_id])
            else:
                k.mem.store(data[i % 2, k.lane_id], 7)
            k.mbarrier.arrive(arrives[i % 2])
            k.assign(i, i + 1)
    return k.finish()


@pytest.mark.parametrize(
    ("program", "times"),
    [
        (in_steps(60), 14),
        # a CTA that computes one tile after another
        (matmul_v7.matmul.build(stages=2, ctas=1, m=128 * 16, n=128, depth=64 * 2, band=1), 3),
    ],
    ids=["while", "persistent"],
)
def test_what_kinds_of_loops_are_shown_once(program: Program, times: int) -> None:
    (recorded,) = record(program).timelines
    folded = fold(recorded)
    (repeats,) = folded.repeats
    assert repeats.times >= times
    assert folded.timeline.end == recorded.end - repeats.left_out
    inside = [s for s in recorded.slices if repeats.start <= s.start < repeats.end]
    hidden = len(recorded.slices) - len(folded.timeline.slices)
    assert abs(hidden - (repeats.times - 1) * len(inside)) <= repeats.times


def test_turns_of_ptx_are_shown_once(tmp_path: Path) -> None:
    text = TEXT.format(late=NEVER, before="", type="u32")
    (tmp_path / "f.ptx").write_text(text)
    pointer = {"kind": "pointer", "name": "a", "bytes": 1 << 20}
    trips = {"kind": "scalar", "type": "u32", "value": 60, "name": "trips"}
    launch = {"schema": "tilesim.launch/1", "entry": "f", "grid": [1], "block": [64]}
    (tmp_path / "f.json").write_text(json.dumps({**launch, "params": [pointer, trips]}))
    given = "trace", str(tmp_path / "f.ptx"), "--text", "-o", str(tmp_path / "trace.json")
    told = CliRunner().invoke(main, given)
    assert re.findall(r"repeat (\d+) times", told.stdout) == ["59"]
