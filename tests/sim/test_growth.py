"""What a check takes grows no faster than what the kernel does."""

from __future__ import annotations

from tests.sim.growth import steps
from tilesim import Builder, Program, f32
from tilesim.checker import Report, check


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
