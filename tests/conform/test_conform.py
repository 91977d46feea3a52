"""Recorded launches against the machine: what conforms, what does not, and why."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.fake_gpu import write_area
from tests.gpu.test_watchdog import NONE, SCRIPT
from tilesim import Builder, Program, s32, u32
from tilesim.conform.compare import compare
from tilesim.conform.order import Order, order_of
from tilesim.conform.recorded import About, Recorded, load
from tilesim.errors import UsageError
from tilesim.gpu import conform as gpu
from tilesim.gpu.compile import Binary
from tilesim.gpu.emit import emit
from tilesim.gpu.emit.trace import is_traced
from tilesim.gpu.errors import DeviceError
from tilesim.gpu.trace import buffer
from tilesim.gpu.watchdog import Executor
from tilesim.kernels.hopper.matmul_v5 import matmul
from tilesim.sim.observers.timeline import Instance
from tilesim.transforms.lower import lower

#: 6 launches of matmul_v5 on an H200
FILE = Path(__file__).with_name("matmul_v5.npz")


def test_a_device_is_no_recording() -> None:
    with pytest.raises(UsageError, match="/dev/zero cannot be read: it is not a regular file"):
        load(Path("/dev/zero"))


def transfer(*, ctas: int = 1, trips: int = 3) -> Program:
    """A producer and a consumer of one stage; the CTAs of a cluster meet before and after."""
    k = Builder("transfer", warps=2)
    k.launch(grid=ctas, cluster=ctas)
    full, empty, tile = k.mbarriers("full"), k.mbarriers("empty"), k.shared("tile", s32, (32,))
    g, seen = k.tensor("g", s32, (32,)), k.var("seen")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 1)
        k.fence.mbarrier_init()
    k.sync_threads()
    if ctas > 1:
        k.cluster.sync()
    with k.role("producer", 0), k.elected(), k.loop(trips) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full, tile.nbytes)
        k.bulk.load(tile, g, full)
    with k.role("consumer", 1), k.elected(), k.loop(trips) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(seen, tile[0])
        k.mbarrier.arrive(empty)
    if ctas > 1:
        k.cluster.sync()
    return k.finish()


def as_it_runs(order: Order, *, launches: int = 2, off: float = 0.0) -> Recorded:
    """Launches in which everything happens in the order of the machine, one thing each 10 ns."""
    entered: dict[Instance, float] = {}
    left: dict[Instance, float] = {}
    for number, (what, instance, _) in enumerate(order.happenings):
        if what == "enters":
            entered[instance] = left[instance] = 10.0 * number
        elif what == "takes":
            left[instance] = 10.0 * number
    instances = sorted(entered)
    times = np.array([[[entered[i]] * launches, [left[i]] * launches] for i in instances])
    ctas = sorted({i[0] for i in instances})
    about = About("transfer", "", "none", "0", 0)
    offs = np.full((len(ctas), launches), off)
    none = np.array([], dtype=np.int64)
    return Recorded(about, np.array(instances), times, np.array(ctas), offs, none)


def moved(recorded: Recorded, launch: int, instance: Instance, *, left: float) -> Recorded:
    """``instance`` is left at another time."""
    times = recorded.times.copy()
    times[recorded.instances.tolist().index([*instance]), 1, launch] = left
    return replace(recorded, times=times)


def the(order: Order, mnemonic: str, *, warp: int, nth: int, cta: int = 0) -> Instance:
    """The only instruction of that name that the warp executes, or the first."""
    number = min(n for c, w, n in order.counts() if (c, w) == (cta, warp)
                 and order.ops[n].mnemonic.startswith(mnemonic))  # fmt: skip
    return cta, warp, number, nth


def entered(recorded: Recorded, instance: Instance) -> float:
    return float(recorded.times[recorded.instances.tolist().index([*instance]), 0, 0])


# ------------------------------------------------------------------ the order


def test_a_wait_comes_after_arrivals_and_copies_of_its_phase() -> None:
    order = order_of(transfer())
    wait = the(order, "mbarrier.wait", warp=1, nth=1)
    (group,) = [g for what, i, g in order.happenings if what == "takes" and i == wait]
    gives = [(what, i) for what, i, g in order.happenings if g == group and what != "takes"]
    assert str(group) == "full[0] phase 1"
    assert gives == [
        ("gives", the(order, "mbarrier.arrive", warp=0, nth=1)),
        ("issues", the(order, "cp.async.bulk", warp=0, nth=1)),
    ]


def test_everything_in_the_order_of_the_machine_conforms() -> None:
    order = order_of(transfer(ctas=2))
    result = compare(order, as_it_runs(order))
    assert result.conforms
    assert result.launches == 2
    assert result.orders > 10


def test_a_wait_that_ends_before_the_copy_is_issued() -> None:
    order = order_of(transfer())
    recorded = as_it_runs(order)
    wait, copy = the(order, "mbarrier.wait", warp=1, nth=1), the(order, "cp.async", warp=0, nth=1)
    just = moved(recorded, 1, wait, left=entered(recorded, copy))
    assert compare(order, just).conforms
    early = moved(recorded, 1, wait, left=entered(recorded, copy) - 3)
    (violation,) = compare(order, early).violations
    assert (violation.kind, violation.launch, violation.later, violation.first) == (
        "order", 1, wait, copy
    )  # fmt: skip
    assert violation.early == 3
    assert "mbarrier.wait" in str(violation)
    assert "in the machine it waits for full[0] phase 1" in str(violation)


def test_what_comes_before_counts_through_others() -> None:
    """The producer's second wait comes after the consumer's first arrival, so after the first
    copy; the consumer's wait in between is not recorded as late."""
    order = order_of(transfer())
    recorded = as_it_runs(order)
    wait, copy = the(order, "mbarrier.wait", warp=0, nth=1), the(order, "cp.async", warp=0, nth=0)
    early = moved(recorded, 0, wait, left=entered(recorded, copy) - 1)
    assert [v.later for v in compare(order, early).violations] == [wait]


def test_clocks_of_two_ctas_agree_within_a_bound() -> None:
    order = order_of(transfer(ctas=2))
    wait = the(order, "barrier.cluster.wait", warp=0, nth=0)
    (group,) = [g for what, i, g in order.happenings if what == "takes" and i == wait]
    last = max(
        (i for what, i, g in order.happenings if g == group and what == "gives" and i[0] == 1),
        key=lambda i: entered(as_it_runs(order), i),
    )
    for off, conforms in ((0.0, False), (1.0, False), (1.5, True)):
        recorded = as_it_runs(order, off=off)
        early = moved(recorded, 0, wait, left=entered(recorded, last) - 3)
        assert compare(order, early).conforms == conforms


def test_an_instruction_that_is_executed_more_often() -> None:
    order = order_of(transfer(trips=3))
    (violation,) = [
        v for v in compare(order, as_it_runs(order_of(transfer(trips=4)))).violations
        if v.first[1] == 1 and "wait" in v.text
    ]  # fmt: skip
    assert violation.kind == "count"
    assert "warp 1 of CTA 0 executes mbarrier.wait" in str(violation)
    assert str(violation).endswith("4 times, 3 times in the machine")


def test_instructions_that_lanes_execute_apart_are_left_out() -> None:
    order = order_of(transfer())
    wait = the(order, "mbarrier.wait", warp=1, nth=1)
    recorded = as_it_runs(order)
    others = [n for n, i in enumerate(recorded.instances.tolist()) if i[2] != wait[2]]
    less = replace(recorded, instances=recorded.instances[others], times=recorded.times[others])
    assert {v.kind for v in compare(order, less).violations} == {"count"}
    assert compare(order, replace(less, apart=np.array([wait[2]]))).conforms


def test_there_is_no_order_where_schedules_differ() -> None:
    k = Builder("drawn", warps=2)
    counter, number = k.tensor("counter", u32, (1,)), k.var("number")
    out = k.tensor("out", u32, (2,))
    with k.elected():
        k.mem.atomic(counter[0], "add", 1, result=number)
        k.mem.store(out[number], 1)
    with pytest.raises(UsageError, match=r"depends on the schedule: the ticket order of counter"):
        order_of(k.finish())


# ------------------------------------------------------------------ files


def test_launches_of_an_h200_conform() -> None:
    recorded = load(FILE)
    assert (recorded.about.device, recorded.launches) == ("NVIDIA H200", 6)
    result = compare(order_of(matmul.build()), recorded)
    assert result.conforms
    assert (result.instances, result.orders) == (262, 70)


def test_a_machine_with_more_stages_is_refuted() -> None:
    """Its producer fills more stages before it waits for a consumer; the rest is the same."""
    recorded = load(FILE)
    other = compare(order_of(matmul.build(iterations=9)), recorded)
    assert {v.kind for v in other.violations} == {"count"}


def written(path: Path, **changes: Any) -> Path:
    recorded = load(FILE)
    arrays: dict[str, Any] = {
        "about": asdict(recorded.about), "instances": recorded.instances, "times": recorded.times,
        "ctas": recorded.ctas, "off": recorded.off, "apart": recorded.apart, **changes,
    }  # fmt: skip
    arrays["about"] = np.frombuffer(json.dumps(arrays["about"]).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return path


ABOUT = asdict(About("k", "f", "d", "0", 0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": np.zeros((3, 2, 6))}, r"times has shape \(3, 2, 6\) of float64"),
        ({"times": np.zeros((262, 2, 6), dtype=np.int32)}, "times has shape .* of int32"),
        ({"instances": np.zeros((262, 3), dtype=np.int64)}, r"instances has shape \(262, 3\)"),
        ({"ctas": np.array([7])}, "instructions of CTAs that were not recorded"),
        ({"off": np.array([{}, {}], dtype=object)}, "is not a recording of launches"),
        ({"apart": np.zeros(2)}, "apart has shape .* of float64"),
        ({"about": {**ABOUT, "version": 2}}, "version 2, not 1"),
        ({"about": {**ABOUT, "seed": "x"}}, "seed is not of type int"),
        ({"about": {"kernel": "k"}}, "is not a recording of launches"),
    ],
)
def test_a_file_that_is_no_recording(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(written(tmp_path / "x.npz", **changes))


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load(path)
    path.write_text("text")
    with pytest.raises(UsageError, match="is not a recording"):
        load(path)


# ------------------------------------------------------------------ from a GPU


def test_records_become_times_of_the_machines_instructions() -> None:
    """Two CTAs whose counters differ; the k-th record of a place is its k-th execution."""
    program = transfer()
    source = emit(program, trace=True)
    words = buffer(program, 1, 1000)
    (copy,) = [n for n, op in enumerate(source.traced) if op.mnemonic.startswith("cp.async.bulk")]
    write_area(words, 0, 0, 500, 10**9, [(100, 140, copy, 0), (300, 340, copy, 0)], 2000)
    write_area(words, 1, 0, 500, 10**9, [], 2000)
    launch = gpu._launch(source, words)
    numbers = [op.number for op in lower(program).ops() if is_traced(op)]
    assert launch.times == {
        (0, 0, numbers[copy], 0): (50.0, 70.0),
        (0, 0, numbers[copy], 1): (150.0, 170.0),
    }
    assert launch.off == {0: 0.0}


def test_every_launch_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a fake GPU, where every warp leaves as many records in every launch."""
    monkeypatch.setattr(gpu, "probe", lambda: None)
    monkeypatch.setattr(gpu, "compile_cubin", lambda source: Binary(source, b"right", NONE))
    done: list[int] = []
    with Executor(SCRIPT) as executor:
        recorded = gpu.record(transfer(), {}, 120, seed=7, executor=executor, after=done.append)
    assert done == [1, 51, 101, 120]
    assert recorded.launches == 120
    assert (recorded.about.kernel, recorded.about.device, recorded.about.seed) == (
        "transfer", "fake", 7
    )  # fmt: skip
    assert not np.isnan(recorded.times).any()
    assert recorded.off.tolist() == [[0.0] * 120]


def test_lanes_that_may_act_apart_leave_no_times() -> None:
    k = Builder("apart", warps=1)
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 16)
    k.sync_threads()
    with k.if_(k.lane_id < 16):
        k.mbarrier.arrive(full)
    k.mbarrier.wait(full, 0)
    source = emit(k.finish(), trace=True)
    (site,) = source.apart
    assert source.traced[site].mnemonic == "mbarrier.arrive"


def test_lost_records_are_an_error() -> None:
    program = transfer()
    words = buffer(program, 1, 8)
    write_area(words, 0, 0, 500, 10**9, [(n, n + 1, 0, 0) for n in range(1000)], 2000)
    with pytest.raises(DeviceError, match="executes too much to be recorded"):
        gpu._launch(emit(program, trace=True), words)
