"""What barriers did in a launch, from its records and the machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilesim import Builder, Program, s32
from tilesim.conform.barriers import Times, with_barriers
from tilesim.conform.order import Order, order_of
from tilesim.conform.recorded import load
from tilesim.errors import UsageError
from tilesim.kernels.hopper.matmul_v5 import matmul
from tilesim.sim.observers.timeline import Flow, Instance, Sample, Slice, Timeline, Track

from .test_conform import the, transfer

FILE = Path(__file__).with_name("matmul_v5.npz")


def drawn(program: Program, times: Times, *engines: tuple[Slice, Flow]) -> tuple[Timeline, ...]:
    """The timelines of a launch, whose warps have tracks, and what engines did."""
    plain = [
        Timeline(
            "ns", (cta,), tuple(Track(cta, program.role_of(w), w) for w in range(program.warps)),
            tuple(s for s, _ in engines), (), tuple(f for _, f in engines), (), (), 1000.0,
        )
        for cta in sorted({instance[0] for instance in times})
    ]  # fmt: skip
    return with_barriers(plain, program, {}, times)


def states(timeline: Timeline, barrier: str) -> list[tuple[float, int, int, int]]:
    """The samples of a barrier as (time, phase, pending, bytes)."""
    return [(s.time, s.phase, s.pending, s.bytes) for s in timeline.samples if s.barrier == barrier]


def one_after_another(order: Order) -> dict[Instance, tuple[float, float]]:
    """In the order of the machine: a thing begins every 10 ns, waits end at such a time as well,
    whatever else takes 5 ns."""
    times: dict[Instance, tuple[float, float]] = {}
    for number, (what, instance, _) in enumerate(order.happenings):
        if what == "enters":
            times[instance] = 10.0 * number, 10.0 * number + 5
        elif what == "takes":
            times[instance] = times[instance][0], 10.0 * number
    return times


def test_counters_follow_the_records() -> None:
    order = order_of(transfer(trips=1))
    times = one_after_another(order)
    expect, wait = (
        the(order, name, warp=warp, nth=0)
        for name, warp in (("mbarrier.arrive.expect_tx", 0), ("mbarrier.wait", 1))
    )
    init = the(order, "mbarrier.init", warp=0, nth=0)
    (timeline,) = drawn(transfer(trips=1), times)
    expected, seen = times[expect][1], times[wait][1]
    assert states(timeline, "full[0]") == [
        (times[init][1], 0, 1, 0), (expected, 0, 0, 128), (seen, 1, 1, 0)
    ]  # fmt: skip
    arrive = the(order, "mbarrier.arrive", warp=1, nth=0)
    assert states(timeline, "empty[0]")[-1] == (times[arrive][1], 1, 1, 0)


def test_arrows_lead_from_what_completes_a_phase() -> None:
    order = order_of(transfer(trips=1))
    times = one_after_another(order)
    copy, wait = (
        the(order, "cp.async.bulk", warp=0, nth=0),
        the(order, "mbarrier.wait", warp=1, nth=0),
    )
    issued, seen = times[copy][0], times[wait][1]
    warp, engine = Track(0, "producer", 0), Track(0, "TMA", None)
    issue = Flow("issue", warp, issued, engine, issued)
    (plain,) = drawn(transfer(trips=1), times)
    assert Flow("arrive", warp, issued, Track(0, "consumer", 1), seen - 1, woke=True) in plain.flows
    (timeline,) = drawn(
        transfer(trips=1), times,
        (Slice(engine, "engine", "copy", issued, seen, order.ops[copy[2]].loc), issue),
    )  # fmt: skip
    assert timeline.flows[0] == issue
    arrow = Flow("arrive", engine, seen - 1, Track(0, "consumer", 1), seen - 1, woke=True)
    assert arrow in timeline.flows


def test_who_joins_last_ends_the_round_of_a_barrier() -> None:
    order = order_of(transfer())
    joins = [i for what, i, g in order.happenings if what == "gives" and str(g).endswith("round 0")]
    times = one_after_another(order)
    for late, early in (joins, joins[::-1]):
        (timeline,) = drawn(transfer(), {**times, late: (200.0, 210.0), early: (100.0, 211.0)})
        (arrow,) = [f for f in timeline.flows if f.end_time == 210.0]
        assert (arrow.start.warp, arrow.start_time, arrow.end.warp) == (late[1], 200.0, early[1])
        assert arrow.woke


def test_what_no_record_tells_has_no_counter() -> None:
    """A warp that has executed an arrival more often than it can have: nothing follows from it."""
    order = order_of(transfer(trips=2))
    times = one_after_another(order)
    cta, warp, number, _ = the(order, "mbarrier.arrive", warp=1, nth=0)
    (timeline,) = drawn(transfer(trips=2), {**times, (cta, warp, number, 2): (900.0, 905.0)})
    assert [s[1:] for s in states(timeline, "full[0]")][-1] == (2, 1, 0)
    assert [s[1:] for s in states(timeline, "empty[0]")] == [(0, 1, 0)]


def test_a_launch_on_an_h200() -> None:
    recorded = load(FILE)
    launch = {
        (int(cta), int(warp), int(number), int(nth)): (float(start), float(end))
        for (cta, warp, number, nth), (start, end) in zip(
            recorded.instances, recorded.times[:, :, 0], strict=True
        )
        if not np.isnan(end)
    }
    (timeline,) = drawn(matmul.build(), launch)
    last = {s.barrier: s for s in timeline.samples}
    assert {name: (s.phase, s.pending, s.bytes) for name, s in last.items()} == {
        **{f"full[{n}]": (2 - n // 2, 1, 0) for n in range(4)},
        **{f"empty[{n}]": (2 - n // 2, 8, 0) for n in range(4)},
    }
    full = [s for s in timeline.samples if s.barrier == "full[0]"]
    assert [(s.phase, s.pending, s.bytes) for s in full[:4]] == [
        (0, 1, 0), (0, 0, 32768), (0, 0, 16384), (1, 1, 0)
    ]  # fmt: skip
    assert [s.time for s in timeline.samples] == sorted(s.time for s in timeline.samples)
    assert {f.kind for f in timeline.flows} == {"arrive"}
    assert all(f.start_time <= f.end_time for f in timeline.flows)
    woken = {f.start.role for f in timeline.flows if f.end.role == "producer" and f.end_time > 600}
    assert woken <= {"consumer0", "consumer1"}


def test_where_schedules_differ_nothing_is_known() -> None:
    k = Builder("tickets", warps=1)
    k.launch(grid=2)
    counter, ticket = k.tensor("counter", s32, (1,)), k.var("ticket", -1)
    with k.elected():
        k.mem.atomic(counter[0], "add", 1, result=ticket)
    first = k.tensor("first", s32, (1,))
    with k.if_(ticket.eq(0)):
        k.mem.store(first[0], 1)
    times: Times = {(0, 0, 0, 0): (0.0, 1.0)}
    with pytest.raises(UsageError, match="depends on the schedule"):
        drawn(k.finish(), times)


def test_samples_are_those_of_the_simulator_where_times_are() -> None:
    """Each barrier goes through the states that it has in the simulator."""
    program = transfer(trips=3)
    (timeline,) = drawn(program, one_after_another(order_of(program)))
    assert {(s.cta, s.barrier) for s in timeline.samples} == {(0, "full[0]"), (0, "empty[0]")}
    assert isinstance(timeline.samples[0], Sample)
    assert [s[1:] for s in states(timeline, "full[0]")] == [
        state for n in range(3) for state in ((n, 1, 0), (n, 0, 128))
    ] + [(3, 1, 0)]
