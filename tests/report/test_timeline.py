"""Timelines: what a recorded run says, and its Chrome JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import tilesim as ts
from tilesim.kernels.hopper import matmul_v5
from tilesim.report.timeline import TraceSource, parts_json
from tilesim.sim.machine.simulate import simulate
from tilesim.sim.observers.timeline import Recording, Timeline, record

from .programs import checked, line, lonely, pipeline
from .trace_format import problems


def chrome_json(timelines: Iterable[Timeline], name: str) -> str:
    """The trace of one simulated run."""
    return parts_json([TraceSource(tuple(timelines), about={"source": "simulator"})], name)


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    """The pipeline that works."""
    (recorded,) = record(pipeline.build()).timelines
    return recorded


@pytest.fixture(scope="module")
def gemm() -> Recording:
    """Two CTAs of a Hopper GEMM."""
    return record(matmul_v5.matmul.build(), clusters=2)


def events(recording: Recording, name: str = "kernel") -> list[dict[str, Any]]:
    """The events of the trace."""
    document = json.loads(chrome_json(recording.timelines, name))
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def test_recording_changes_nothing(gemm: Recording) -> None:
    plain = simulate(matmul_v5.matmul.build(), numbers=False)
    assert gemm.findings == plain.findings == ()
    assert gemm.stats == plain.stats


def test_tracks_are_warps_by_role_then_engines(timeline: Timeline) -> None:
    names = [str(track) for track in timeline.tracks]
    assert names == [
        "consumer warp 0", "consumer warp 1", "consumer warp 2", "consumer warp 3",
        "producer warp 4", "TMA", "TMA 2",
    ]  # fmt: skip


def test_waits_are_slices_with_their_place(timeline: Timeline) -> None:
    waits = [s for s in timeline.slices if s.kind == "wait" and s.track.role == "producer"]
    own = [s for s in waits if s.name == "waits on empty[0] parity 0"]
    assert len(own) == 1
    assert own[0].loc.line == line("k.mbarrier.wait(empty[s]")
    assert own[0].end > own[0].start
    assert not any(s.stuck for s in timeline.slices)


def test_slices_of_a_track_do_not_overlap(gemm: Recording) -> None:
    for timeline in gemm.timelines:
        ends: dict[object, float] = {}
        for s in timeline.slices:
            assert s.start >= ends.get(s.track, 0.0), s
            ends[s.track] = s.end


def test_copies_are_on_the_engine_and_follow_their_issue(timeline: Timeline) -> None:
    copies = [s for s in timeline.slices if s.kind == "engine"]
    assert len(copies) == 4
    issued = [f for f in timeline.flows if f.kind == "issue"]
    assert [(f.end, f.end_time) for f in issued] == [(s.track, s.start) for s in copies]
    assert {f.start.role for f in issued} == {"producer"}


def test_arrows_lead_from_the_last_arrival_to_the_waits_it_ends(timeline: Timeline) -> None:
    woken = [f for f in timeline.flows if f.kind == "arrive" and f.woke]
    by_copy = [f for f in woken if f.start.role == "TMA"]
    assert {str(f.end) for f in by_copy} == {f"consumer warp {n}" for n in range(4)}
    to_producer = [f for f in woken if f.end.role == "producer" and f.start.role == "consumer"]
    assert len(to_producer) == 2 + 1  # empty[0], empty[1], and __syncthreads
    for f in woken:
        assert any(
            s.track == f.end and s.kind == "wait" and s.end == f.end_time for s in timeline.slices
        ), f


def test_counters_follow_the_barrier(timeline: Timeline) -> None:
    full = [s for s in timeline.samples if s.barrier == "full[0]"]
    states = [(s.phase, s.pending, s.bytes) for s in full]
    assert states == [(0, 1, 0), (0, 0, 8192), (1, 1, 0), (1, 0, 8192), (2, 1, 0)]
    empty = [(s.phase, s.pending) for s in timeline.samples if s.barrier == "empty[0]"]
    assert empty[:5] == [(0, 4), (0, 3), (0, 2), (0, 1), (1, 4)]


def test_tensor_core_and_stores_have_tracks(gemm: Recording) -> None:
    roles = {t.role for t in gemm.timelines[0].tracks if t.warp is None}
    assert roles == {"TMA", "tensor core"}
    kinds = {s.name for s in gemm.timelines[0].slices if s.kind == "engine"}
    assert {"wgmma.mma_async", "cp.async.bulk.tensor.store"} <= kinds
    finished = [f for f in gemm.timelines[0].flows if f.kind == "complete"]
    assert {f.start.role for f in finished} == {"TMA", "tensor core"}


def test_a_deadlock_ends_in_waits_that_never_end() -> None:
    recording = checked("pipeline", parity=0).recording
    assert recording is not None
    (timeline,) = recording.timelines
    stuck = [s for s in timeline.slices if s.stuck]
    assert {str(s.track) for s in stuck} == {str(t) for t in timeline.tracks}
    assert {s.end for s in stuck} == {timeline.end}
    by_role = {w.role: w for w in timeline.waiters}
    assert by_role["producer"].name == "producer (warp 4)"
    assert [r.name for r in by_role["producer"].releasers] == ["consumer (warps 0-3)"]
    assert by_role["consumer"].on == "full[0]"


def test_a_chosen_schedule_counts_steps() -> None:
    recording = checked("rare").recording
    assert recording is not None
    (timeline,) = recording.timelines
    assert timeline.unit == "step"
    runs = [s for s in timeline.slices if s.kind == "run"]
    starts = [s.start for s in runs]
    assert starts == sorted(set(starts)), "one instruction per step"


def test_limit_bounds_the_recording() -> None:
    whole = record(pipeline.build()).timelines[0]
    cut = record(pipeline.build(), limit=40)
    assert not whole.truncated
    assert cut.timelines[0].truncated
    assert len(cut.timelines[0].slices) + len(cut.timelines[0].points) < 60
    assert any(e["ph"] == "i" and "limit" in e["name"] for e in events(cut))
    assert cut.stats == record(pipeline.build()).stats


def test_a_cluster_that_waits_for_itself_only_is_recorded_alone() -> None:
    recording = record(lonely.build(), clusters=2)
    assert [t.ctas for t in recording.timelines] == [(0,), (1,)]
    assert recording.of_cta(1) is recording.timelines[1]
    assert recording.of_cta(2) is None


# ------------------------------------------------------------------ Chrome JSON


def test_chrome_json_is_the_same_each_time(gemm: Recording) -> None:
    again = record(matmul_v5.matmul.build(), clusters=2)
    assert chrome_json(gemm.timelines, "gemm") == chrome_json(again.timelines, "gemm")


def test_chrome_json_is_well_formed(gemm: Recording) -> None:
    found = events(gemm, "gemm")
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert len(names) == len({(e["pid"], e["args"]["name"]) for e in found
                              if e["name"] == "thread_name"})  # fmt: skip
    processes = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    assert processes == {1: "gemm CTA 0", 2: "gemm CTA 1"}
    times = [e["ts"] for e in found if e["ph"] != "M"]
    assert times == sorted(times)
    for e in found:
        if e["ph"] in "Xsf":
            assert (e["pid"], e["tid"]) in names
        if e["ph"] == "X":
            assert e["dur"] >= 0


def test_traces_follow_the_format(gemm: Recording) -> None:
    """Those of a run that ends, of one that does not, and of one that is cut."""
    stuck = checked("pipeline", parity=0).recording
    assert stuck is not None
    for recording in (gemm, stuck, record(pipeline.build(), limit=40)):
        assert problems(json.loads(chrome_json(recording.timelines, "kernel"))) == []


def test_what_the_format_forbids_is_found(gemm: Recording) -> None:
    def broken(ph: str, change: Callable[[dict[str, Any]], object]) -> list[str]:
        document = json.loads(chrome_json(gemm.timelines, "kernel"))
        change([e for e in document["traceEvents"] if e["ph"] == ph][3])
        return problems(document)

    assert any("overlaps" in p for p in broken("X", lambda e: e.update(dur=e["dur"] + 3)))
    assert any("negative duration" in p for p in broken("X", lambda e: e.update(dur=-1)))
    assert any("not in order" in p for p in broken("C", lambda e: e.update(ts=1e9)))
    assert any("arrow" in p for p in broken("f", lambda e: e.update(id=0)))
    assert any("no slice under" in p for p in broken("s", lambda e: e.update(tid=99)))
    assert any("before" in p for p in broken("X", lambda e: e.update(pid=99)))
    assert any("other series" in p for p in broken("C", lambda e: e.update(args={"x": 1})))


def test_parts_of_a_trace_are_beside_each_other(timeline: Timeline) -> None:
    parts = [
        TraceSource((timeline,), 0.5, {"source": "a"}, " (a)"),
        TraceSource((timeline,), title=" (b)"),
    ]
    document = json.loads(parts_json(parts, "k"))
    assert problems(document) == []
    found = document["traceEvents"]
    titles = [e["args"]["name"] for e in found if e["name"] == "process_name"]
    assert titles == ["k CTA 0 (a)", "k CTA 0 (b)"]
    ends = {pid: max(e["ts"] + e["dur"] for e in found if e["ph"] == "X" and e["pid"] == pid)
            for pid in (1, 2)}  # fmt: skip
    assert ends == {1: timeline.end / 2, 2: timeline.end}


def test_every_flow_starts_and_ends_inside_a_slice(gemm: Recording) -> None:
    slices = defaultdict(list)
    ends = defaultdict(list)
    for e in events(gemm):
        if e["ph"] == "X":
            slices[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
        elif e["ph"] in "sf":
            ends[e["id"]].append(e)
    assert len(ends) > 50
    for pair in ends.values():
        assert [e["ph"] for e in pair] == ["s", "f"]
        for e in pair:
            inside = slices[e["pid"], e["tid"]]
            assert any(start <= e["ts"] <= end for start, end in inside), e


def test_counters_have_phase_pending_and_bytes() -> None:
    counters = [e for e in events(record(pipeline.build())) if e["ph"] == "C"]
    keys = {e["name"]: set(e["args"]) for e in counters}
    assert keys["full[0]"] == {"phase", "pending", "bytes"}
    assert keys["empty[1]"] == {"phase", "pending"}


def test_names_from_programs_are_escaped() -> None:
    @ts.kernel(warps=1, name='quote " and \\')
    def odd(k: ts.Builder) -> None:
        with k.role('a "role"', 0):
            k.sync_warp()

    titles = {e["args"]["name"] for e in events(record(odd.build()), odd.name) if e["ph"] == "M"
              if "name" in e["args"]}  # fmt: skip
    assert titles == {'quote " and \\ CTA 0', 'a "role" warp 0'}
