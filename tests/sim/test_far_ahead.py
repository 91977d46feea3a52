"""Deadlocks far from the end of a loop: the way ahead of a warp is followed for long."""

from __future__ import annotations

import pytest

import tilesim as ts
from tilesim import Builder, s32
from tilesim.sim.observers.wait_for import WaitFor


@ts.kernel(warps=2)
def stops_halfway(k: Builder, *, trips: int = 20) -> None:
    """The consumer releases the slot in the first half of its loop only."""
    full, empty, x = k.mbarriers("full"), k.mbarriers("empty"), k.shared("x", s32, (1,))
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 1)
    k.sync_threads()
    r = k.var("r", 0)
    with k.role("P", 0), k.elected(), k.loop(trips) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mem.store(x[0], i)
        k.mbarrier.arrive(full)
    with k.role("C", 1), k.elected(), k.loop(trips) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(r, x[0])
        with k.if_(i < trips // 2):
            k.mbarrier.arrive(empty)


def of_any_number(text: str, trips: int) -> str:
    return text.replace(f"{trips // 2:,}", "half")


@pytest.mark.parametrize("trips", [2_000])
def test_a_cause_is_the_same_for_many_iterations(trips: int) -> None:
    few, many = (ts.check(stops_halfway(trips=n)).findings[0] for n in (20, trips))
    assert of_any_number(many.cause, trips) == of_any_number(few.cause, 20)
    assert "has made all its half arrivals" in of_any_number(many.cause, trips)


@ts.kernel(warps=2)
def ended_by_data(k: Builder) -> None:
    """Each warp waits for the other one; a number from memory ends the loop of the second."""
    full, empty, x = k.mbarriers("full"), k.mbarriers("empty"), k.tensor("x", s32, (1,))
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 1)
    k.sync_threads()
    more, count = k.var("more", 1), k.var("count", 0)
    with k.role("P", 0), k.elected():
        k.mbarrier.wait(empty, 0)
        k.mbarrier.arrive(full)
    with k.role("C", 1), k.elected(), k.while_(more.ne(0)):
        k.mbarrier.wait(full, count & 1)
        k.mem.load(more, x[0])
        k.mbarrier.arrive(empty)
        k.assign(count, count + 1)


def test_a_loop_that_unknown_data_ends_is_not_followed_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on for as long as it is followed, 11 s for each deadlock."""
    asked = 0

    def farther(self: WaitFor) -> bool:
        nonlocal asked
        asked += 1
        return False

    monkeypatch.setattr(WaitFor, "look_farther", farther)
    assert ts.check(ended_by_data).rules == {"deadlock"}
    assert asked == 0
    assert ts.check(stops_halfway(trips=2_000)).rules == {"deadlock"}
    assert asked
