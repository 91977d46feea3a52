"""What a check takes grows no faster than what the kernel does."""

from __future__ import annotations

import pytest

from tests.sim.growth import steps
from tests.sim.test_counters import grid_barrier
from tests.sim.test_residency import barrier
from tests.sim.test_tickets import split_k
from tilesim import Builder, Program, f32
from tilesim.arith.sums import Sums
from tilesim.checker import Report, check
from tilesim.sim.machine import word_order
from tilesim.sim.machine.clock import ROWS, Clock, join
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.simulate import Simulation


def turns(count: int) -> Program:
    """A ring of copies; in the last turn the reader does not wait for its copy."""
    k = Builder("late", warps=2)
    source, data = k.tensor("source", f32, (64,)), k.shared("data", f32, (2, 64))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    x = k.var("x", 0.0, dtype=f32)
    with k.one_thread():
        for i in range(2):
            k.mbarrier.init(full[i], 1)
            k.mbarrier.init(empty[i], 1)
    k.fence.mbarrier_init()
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(count) as turn:
        k.mbarrier.wait(empty[turn % 2], ((turn // 2) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[turn % 2], 256)
        k.bulk.load(data[turn % 2], source[0:64], full[turn % 2])
    with k.role("consumer", 1), k.loop(count) as turn:
        with k.if_(turn < count - 1):
            k.mbarrier.wait(full[turn % 2], (turn // 2) & 1)
        k.mem.load(x, data[turn % 2, k.lane_id])
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(empty[turn % 2])
    return k.finish()


def test_the_cause_of_a_failure_in_a_late_turn() -> None:
    def cost(count: int) -> int:
        program, reports = turns(count), list[Report]()
        taken = steps(lambda: reports.append(check(program)), "tilesim/mistakes/")
        assert "race" in reports[0].rules
        return taken

    few, many = cost(50), cost(200)
    assert many < 5 * few


@pytest.mark.parametrize("part", ["tilesim/sim/machine/word_order.py", "tilesim/sim/observers/"])
@pytest.mark.parametrize("kernel", ["last block", "grid barrier"])
def test_a_word_at_which_all_ctas_count(kernel: str, part: str) -> None:
    """None of them looks at what all others have done there."""

    def cost(ctas: int) -> int:
        last = split_k.build(splits=ctas) if kernel == "last block" else None
        program, reports = last or grid_barrier.build(ctas=ctas), list[Report]()
        taken = steps(lambda: reports.append(check(program)), part)
        assert reports[0].verdict == "proved"
        return taken

    few, many = cost(20), cost(80)
    assert many < 5 * few


def test_what_a_grid_barrier_hands_over_is_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = 0

    def counting(clock: Clock, other: Clock) -> None:
        nonlocal joined
        joined += 1
        join(clock, other)

    def cost(ctas: int) -> int:
        nonlocal joined
        joined = 0
        assert check(barrier(ctas, 1)).verdict == "proved"
        return joined

    monkeypatch.setattr(word_order, "join", counting)
    few, many = cost(8), cost(32)
    assert 0 < many < 5 * few


def test_offsets_of_many_ctas_take_one_number_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all lie inside of the tensor is told without a number for each lane of each CTA."""
    k = Builder("copy", warps=1)
    k.launch(grid=4096)
    source, copy = k.tensor("source", f32, (4096 * 32,)), k.tensor("copy", f32, (4096 * 32,))
    x, at = k.var("x", 0.0, dtype=f32), k.cta_x * 32 + k.lane_id
    k.mem.load(x, source[at])
    k.mem.store(copy[at], x)
    dense: list[Sums] = []
    monkeypatch.setattr(Sums, "dense", property(dense.append))
    assert check(k.finish()).verdict == "proved"
    assert not dense


def test_clocks_have_rows_of_the_async_proxy_only_where_something_is_of_it() -> None:
    """Each CTA of a grid barrier has clocks of all others."""

    def rows(program: Program) -> float:
        machines: list[Machine] = []
        simulation = Simulation(program, numbers=False, strict="practice")
        simulation.watches = machines.append
        simulation.run({}, lambda cluster: None)
        components = machines[0].components
        return len(components.clock()) / components.size

    assert rows(barrier(4, 1)) == 2
    assert rows(turns(4)) == ROWS
