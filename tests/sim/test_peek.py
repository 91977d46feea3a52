"""A try_wait that only decides whether to wait again is one wait that starts to look early."""

from __future__ import annotations

import pytest

from tilesim import Builder, Program, s32
from tilesim.checker import check
from tilesim.transforms.await_condition import peek_flags
from tilesim.transforms.lower import lower


def pipeline(*, ahead: bool, parity: int = 0, waits: bool = True, trips: int = 8) -> Program:
    """Two stages; the consumer peeks at its stage right before waiting, or an iteration ahead.

    ``parity`` 1 peeks and waits for the wrong phase; without ``waits`` the answer is ignored.
    """
    k = Builder("peek", warps=2)
    X, Y = k.tensor("X", s32, (trips, 32)), k.tensor("Y", s32, (trips, 32))
    stage, value = k.shared("stage", s32, (2, 32)), k.var("value")
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    ready = k.var("ready", 0)
    with k.one_thread():
        for s in range(2):
            k.mbarrier.init(full[s], 1)
            k.mbarrier.init(empty[s], 32)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(trips) as i:
        k.mbarrier.wait(empty[i % 2], ((i // 2) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[i % 2], 128)
        k.bulk.load(stage[i % 2], X[i], full[i % 2])
    with k.role("consumer", 1):
        if ahead:
            k.mbarrier.try_wait(ready, full[0], parity)
        with k.loop(trips) as i:
            phase = (i // 2) & 1 ^ parity
            if not ahead:
                k.mbarrier.try_wait(ready, full[i % 2], phase)
            if waits:
                with k.if_(ready.eq(0)):
                    k.mbarrier.wait(full[i % 2], phase)
            k.mem.load(value, stage[i % 2, k.lane_id])
            k.mem.store(Y[i, k.lane_id], value)
            k.mbarrier.arrive(empty[i % 2])
            if ahead:
                with k.if_(i + 1 < trips):
                    k.mbarrier.try_wait(ready, full[(i + 1) % 2], ((i + 1) // 2) & 1 ^ parity)
    return k.finish()


@pytest.mark.parametrize("ahead", [False, True])
def test_peek_and_wait_is_proved_like_the_wait_alone(ahead: bool) -> None:
    program = pipeline(ahead=ahead)
    assert peek_flags(lower(program)) == {"ready"}
    assert check(program).verdict == "proved"


@pytest.mark.parametrize("ahead", [False, True])
def test_peek_at_the_wrong_phase_is_found(ahead: bool) -> None:
    report = check(pipeline(ahead=ahead, parity=1))
    assert report.verdict == "failed"
    assert report.rules & {"race", "deadlock"}


@pytest.mark.parametrize("ahead", [False, True])
def test_peek_without_a_wait_is_found(ahead: bool) -> None:
    program = pipeline(ahead=ahead, waits=False)
    assert peek_flags(lower(program)) == frozenset()
    report = check(program)
    assert report.verdict == "failed"
    assert report.rules & {"race", "over-arrival", "deadlock"}


def test_flag_with_another_use_is_a_poll() -> None:
    k = Builder("poll", warps=1)
    b, out, ready = k.mbarriers("b"), k.tensor("out", s32, (1,)), k.var("ready", 0)
    with k.one_thread():
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b)
        k.mbarrier.try_wait(ready, b, 0)
        with k.if_(ready.eq(0)):
            k.mbarrier.wait(b, 0)
        k.mem.store(out[0], ready)
    assert peek_flags(lower(k.finish())) == frozenset()
