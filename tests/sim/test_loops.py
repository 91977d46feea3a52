"""Loops are registers and branches: nested polling loops, counters that the body changes."""

from __future__ import annotations

import numpy as np
import pytest

import tilesim as ts
from tilesim import Builder, s32, u32
from tilesim.gpu.emit import emit


def nested(k: Builder) -> None:
    """Two nested ``while_`` loops that end."""
    outer, inner = k.var("outer", 0), k.var("inner", 0)
    with k.while_(outer < 3):
        k.assign(inner, 0)
        with k.while_(inner < 2):
            k.assign(inner, inner + 1)
        k.assign(outer, outer + 1)


def endless(k: Builder) -> None:
    """The inner loop ends, the outer one never does."""
    outer, inner = k.var("outer", 0), k.var("inner", 0)
    with k.while_(outer < 3):
        k.assign(inner, 0)
        with k.while_(inner < 2):
            k.assign(inner, inner + 1)


def test_nested_polling_loops_that_end_are_no_deadlock() -> None:
    k = Builder("kernel", warps=1)
    nested(k)
    assert ts.check(k.finish()).verdict == "proved"


def test_an_outer_loop_that_never_ends_is_a_deadlock_at_its_line() -> None:
    k = Builder("kernel", warps=1)
    endless(k)
    report = ts.check(k.finish())
    (finding,) = report.findings
    assert (report.verdict, finding.rule) == ("failed", "deadlock")
    first = endless.__code__.co_firstlineno
    assert [p.loc.line for p in finding.participants] == [first + 3]


@pytest.mark.parametrize(("skip", "turns"), [(0, 8), (1, 4), (3, 2)])
def test_the_body_changes_the_counter(skip: int, turns: int) -> None:
    k = Builder("kernel", warps=1)
    y = k.tensor("y", s32, (2,))
    count = k.var("count", 0)
    with k.loop(8) as i:
        k.assign(count, count + 1)
        k.assign(i, i + skip)
    k.mem.store(y[0], count)
    program = k.finish()
    assert ts.check(program).verdict == "proved"
    assert ts.simulate(program).outputs["y"][0] == turns


def counted(k: Builder, arrivals: int) -> None:
    """A producer whose loop skips every other turn, and a consumer that waits for ``arrivals``."""
    done = k.mbarriers("done", 1)
    with k.one_thread():
        k.mbarrier.init(done, arrivals)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(8) as i:
        k.mbarrier.arrive(done)
        k.assign(i, i + 1)
    with k.role("consumer", 1):
        k.mbarrier.wait(done, 0)


def test_a_counter_that_the_body_changes_decides_how_many_arrive() -> None:
    k = Builder("kernel", warps=2)
    counted(k, 4)
    assert ts.check(k.finish()).verdict == "proved"
    k = Builder("kernel", warps=2)
    counted(k, 8)
    report = ts.check(k.finish())
    assert (report.verdict, report.findings[0].rule) == ("failed", "deadlock")
    assert report.findings[0].roles == ("consumer",)


def test_a_counter_keeps_the_value_of_its_last_turn_after_the_loop() -> None:
    k = Builder("kernel", warps=1)
    y = k.tensor("y", u32, (1,))
    with k.loop(5) as i:
        k.sync_warp()
    k.mem.store(y[0], i)
    assert ts.simulate(k.finish()).outputs["y"].tolist() == [4]


@pytest.mark.parametrize(("assigns", "after"), [(False, 4), (True, 6)])
def test_a_counter_after_its_loop_in_emitted_code(assigns: bool, after: int) -> None:
    """One that the body assigns is declared outside of the loop, the other one copied."""
    k = Builder("kernel", warps=1)
    y = k.tensor("y", s32, (1,))
    with k.loop(5) as i:
        if assigns:
            k.assign(i, i + 2)
        k.sync_warp()
    k.mem.store(y[0], i)
    program = k.finish()
    assert ts.simulate(program).outputs["y"].tolist() == [after]
    text = emit(program).text
    assert ("for (i = 0; i < 5; i = (s32)((u32)i + (u32)1))" in text) is assigns
    assert ("for (s32 i_ = 0; i_ < 5; ++i_)" in text) is not assigns


def test_lanes_that_break_do_not_count_on() -> None:
    k = Builder("kernel", warps=1)
    y = k.tensor("y", s32, (32,))
    turns = k.var("turns", 0)
    with k.loop(40) as i:
        with k.if_(i.eq(k.lane_id)):
            k.break_()
        k.assign(turns, turns + 1)
    k.mem.store(y[k.lane_id], turns)
    assert ts.simulate(k.finish()).outputs["y"].tolist() == np.arange(32).tolist()
