"""Waits of lanes that part afterwards: each of them is held up by its own next arrival (C2)."""

from __future__ import annotations

import pytest

import tilesim as ts
from tilesim.arith.types import s32
from tilesim.lib.opening import open_cta


@ts.kernel(warps=2)
def rounds(k: ts.Builder, *, turns: int = 5, absent: str = "", barrier: bool = True) -> None:
    """In each turn another thread goes its own way, to store what all load behind a barrier, as
    with `cuda::barrier`: all arrive and wait, twice."""
    word, done, x = k.shared("word", s32, (1,)), k.mbarriers("done"), k.var("x", 0)
    open_cta(k, (done, {"one": 63, "half": 48}.get(absent, 64)))
    with k.loop(turns) as i:
        with k.if_(k.thread_id.eq(i), sync=False):
            k.mem.store(word[0], i)
        for half in range(2):
            if absent == "half":
                with k.if_(k.thread_id >= 16, sync=False):
                    k.mbarrier.arrive(done)
            elif absent == "one":
                with k.if_(k.thread_id.ne(3), sync=False):
                    k.mbarrier.arrive(done)
            else:
                k.mbarrier.arrive(done)
            if barrier or half:
                k.mbarrier.wait(done, half)
            if not half:
                k.mem.load(x, word[0])


@pytest.mark.parametrize("turns", [1, 5])
def test_every_lane_arrives_again(turns: int) -> None:
    """Those who arrived together before they parted do so one by one; each has waited."""
    assert ts.check(rounds.build(turns=turns), strict="ptx").verdict == "proved"


@ts.kernel(warps=1)
def parting(k: ts.Builder, *, absent: int = -1) -> None:
    """All lanes wait, part, and arrive for the next phase, but for one of them."""
    done = k.mbarriers("done")
    open_cta(k, (done, 31 if absent >= 0 else 32))
    with k.loop(4) as i:
        with k.if_(k.lane_id < 4 + i, sync=False), k.if_(k.lane_id.ne(absent), sync=False):
            k.mbarrier.arrive(done)
        with k.if_(k.lane_id >= 4 + i, sync=False), k.if_(k.lane_id.ne(absent), sync=False):
            k.mbarrier.arrive(done)
        k.mbarrier.wait(done, i & 1)


def test_who_does_not_arrive_may_be_late() -> None:
    """It has waited with others, and nothing of what these do later says that it has."""
    assert ts.check(parting.build()).verdict == "proved"
    found = ts.check(parting.build(absent=31), max_schedules=4)
    assert found.verdict in ("failed", "bounded")
    assert "phase-alias" in found.rules or "condition C2" in found.reasons[0]


@pytest.mark.parametrize(
    "fault", [{"absent": "one"}, {"absent": "half"}, {"barrier": False}], ids=str
)
def test_a_word_that_somebody_still_loads(fault: dict[str, str | bool]) -> None:
    assert "race" in ts.check(rounds.build(turns=2, **fault)).rules
