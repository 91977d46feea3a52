"""Programs that were proved once although a schedule fails, each with its fixed twin."""

from __future__ import annotations

import pytest

from tests.sim.comparison import opinion
from tests.sim.reference import explore
from tests.sim.small import translate
from tests.sim.steps import (
    Arrive,
    ArriveExpect,
    Complete,
    Copy,
    Expect,
    Fence,
    Inval,
    Join,
    Later,
    Loop,
    Peek,
    Read,
    Small,
    Step,
    Wait,
    WaitUnless,
    Write,
)
from tilesim import Builder, Program, u32
from tilesim.checker import check

_MEET = Join(0, 2)


def late(*steps: Step, by: int = 60) -> tuple[Step, ...]:
    """Steps that come late under the timed policy."""
    return (Loop(by, (Fence(),)), *steps)


#: what is wrong: (buggy, the rule it breaks, the roles of the finding, fixed)
CASES: dict[str, tuple[Small, str, set[str], Small]] = {
    "an expectation comes last and ends the phase by itself": (
        Small(
            ((ArriveExpect(0), Copy(0, 0, 2), Wait(0, 0), Read(0)), (Expect(0),)), (1,), words=2
        ),
        "tx-mismatch", {"w1"},
        Small(((ArriveExpect(0, 2), Copy(0, 0, 2), Wait(0, 0), Read(0)), ()), (1,), words=2),
    ),
    "a phase ends without an expectation of no bytes, and with it a wait misses the one before": (
        Small(((Arrive(0),), (Wait(0, 0), Expect(0, 0)), late(Wait(0, 0), Arrive(0))), (1,)),
        "deadlock", {"w1"},
        Small(((Arrive(0),), (Wait(0, 0), Expect(0, 0), Arrive(0)), ()), (1,)),
    ),
    "a phase ends without a completion of no bytes": (
        Small(((Arrive(0),), (Wait(0, 0), Complete(0, 0)), late(Wait(0, 0), Arrive(0))), (1,)),
        "deadlock", {"w1"},
        Small(((Arrive(0),), (Wait(0, 0), Complete(0, 0), Arrive(0)), ()), (1,)),
    ),
    "bytes too many: the order decides whether the phase ends": (
        Small(((Complete(0), Complete(0)), late(ArriveExpect(0)), (Wait(0, 1),)), (1,)),
        "deadlock", {"w2"},
        Small(((Complete(0),), late(ArriveExpect(0)), (Wait(0, 0),)), (1,)),
    ),
    "the phase that inval cuts short could have ended": (
        Small(
            (
                (Expect(0), Join(0, 3), Inval(0)),
                late(Arrive(0), Join(0, 3)),
                (Wait(0, 1), Join(0, 3)),
            ),
            (1,),
        ),
        "deadlock", {"w0", "w1", "w2"},
        Small(
            (
                (ArriveExpect(0), Join(0, 3), Inval(0)),
                (Join(0, 3),),
                (Wait(0, 1), Join(0, 3)),
            ),
            (2,),
        ),
    ),
    "an arrival that comes later lands after inval": (
        Small(((Later(0), *late(Inval(0), by=600)),), (2,)),
        "barrier-lifetime", {"w0"},
        Small(((Later(0), Wait(0, 0), Inval(0)),), (1,)),
    ),
    "a phase is made to expect one more arrival after it has ended": (
        Small(((Later(0, inc=True), Wait(0, 0), Inval(0)), late(Arrive(0))), (1,)),
        "barrier-lifetime", {"w0"},
        Small(((Later(0, inc=True), Arrive(0), Wait(0, 0), Inval(0)),), (1,)),
    ),
    "the bytes of a phase leave the range in another order": (
        Small(
            (
                (Expect(0, 40_000), *late(Expect(0, 40_000), by=100), Arrive(0)),
                late(Complete(0, 40_000), *late(Complete(0, 40_000), by=200)),
            ),
            (1,),
        ),
        "tx-mismatch", {"w1"},
        Small(((Expect(0, 30_000), Expect(0, 30_000), Arrive(0)), (Complete(0, 60_000),)), (1,)),
    ),
    "an arrival that must not end its phase comes last": (
        Small(((Arrive(0, partial=True),), late(Arrive(0))), (2,)),
        "over-arrival", {"w0"},
        Small(((Arrive(0, partial=True), Join(0, 2, False)), (Join(0, 2), Arrive(0))), (2,)),
    ),
    "a peek at one barrier lets the wait on another out": (
        Small(
            ((Arrive(0), *late(Write(0), Arrive(1))), (Peek(0, 0), WaitUnless(1, 0), Read(0))),
            (1, 1),
        ),
        "race", {"w0", "w1"},
        Small(
            ((Arrive(0), *late(Write(0), Arrive(1))), (Peek(1, 0), WaitUnless(1, 0), Read(0))),
            (1, 1),
        ),
    ),
    "a peek sees the phase two before": (
        Small(
            (
                (Arrive(0), Arrive(0), Arrive(1), Write(0), Arrive(0)),
                (Peek(0, 0), Wait(1, 0), WaitUnless(0, 0), Read(0)),
            ),
            (1, 1),
        ),
        "race", {"w0", "w1"},
        Small(
            (
                (Arrive(0), Arrive(0), Arrive(1), Write(0), Arrive(0)),
                (Wait(1, 0), Peek(0, 0), WaitUnless(0, 0), Read(0)),
            ),
            (1, 1),
        ),
    ),
    "an arrival on a barrier that everybody has left": (
        Small(((Arrive(0, drop=True), Expect(0), Complete(0)),), (1,)),
        "over-arrival", {"w0"},
        Small(((Expect(0), Complete(0), Arrive(0, drop=True)),), (1,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_was_proved_is_found_and_its_twin_is_proved(name: str) -> None:
    buggy, rule, roles, fixed = CASES[name]
    truth = explore(buggy)
    assert rule in truth.failures
    report = check(translate(buggy))
    assert report.verdict == "failed"
    assert report.findings[0].rule == rule
    assert set(report.findings[0].roles) == roles
    assert explore(fixed).clean, explore(fixed)
    assert opinion(fixed, full=False).verdict == "proved", opinion(fixed)


def test_a_look_that_answers_what_is_known_is_made() -> None:
    """A false alarm once: the peek was left out, and its wait came when the phase was gone."""
    small = Small(((Peek(0, 1), Arrive(0), WaitUnless(0, 1)),), (1,))
    assert explore(small).clean
    assert opinion(small).verdict == "proved"


def _spinning(*, reset: bool) -> Program:
    """A consumer that spins on try_wait with one flag for all iterations."""
    k = Builder("spins", warps=2)
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    word, done, value = k.shared("word", u32, (4,)), k.var("done", 0), k.var("value", dtype=u32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 1)
    k.sync_threads()
    with k.role("producer", 0), k.loop(2) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        with k.elected():
            k.mem.store(word[0], 1)
            k.mbarrier.arrive(full)
    with k.role("consumer", 1), k.loop(2) as i:
        if reset:
            k.assign(done, 0)
        with k.while_(done.eq(0)):
            k.mbarrier.try_wait(done, full, i & 1)
        with k.elected():
            k.mem.load(value, word[0])
            k.mbarrier.arrive(empty)
    return k.finish()


def test_flag_that_is_still_set_ends_the_next_spin_at_once() -> None:
    report = check(_spinning(reset=False))
    assert report.verdict == "failed"
    assert report.findings[0].rule == "race"
    assert set(report.findings[0].roles) == {"producer", "consumer"}
    assert check(_spinning(reset=True)).verdict == "proved"


def _registers(*, enough: bool) -> Program:
    """Two warpgroups want registers; one of them is waited for before more are given back."""
    k = Builder("pool", warps=16)
    told = k.mbarriers("told")
    with k.one_thread():
        k.mbarrier.init(told, 4)
    k.sync_threads()
    with k.role("gives", range(4)):
        k.setmaxnreg("dec", 24)
    with k.role("tells", range(4, 8)):
        k.setmaxnreg("inc", 176 if enough else 232)
        with k.elected():
            k.mbarrier.arrive(told)
    with k.role("takes", range(8, 12)):
        with k.loop(100):
            k.fence.proxy_async()
        k.setmaxnreg("inc", 176 if enough else 232)
    with k.role("waits", range(12, 16)):
        k.mbarrier.wait(told, 0)
        k.setmaxnreg("dec", 24)
    return k.finish()


def test_registers_that_the_wrong_warps_may_take_first() -> None:
    report = check(_registers(enough=False))
    assert report.verdict == "failed"
    assert report.findings[0].rule == "deadlock"
    assert set(report.findings[0].roles) >= {"tells", "waits"}
    assert check(_registers(enough=True)).verdict == "proved"


def _permit(*, ordered: bool) -> Program:
    """The permit to allocate is given up by another warp, or after the allocation."""
    k = Builder("permit", "sm_100a", warps=2)
    at, columns = k.shared("at", u32, (1,)), k.var("columns", dtype=u32)
    with k.role("allocates", 0):
        k.tcgen05.alloc(at[0], 32)
        if ordered:
            k.tcgen05.relinquish_alloc_permit()
        k.mem.load(columns, at[0])
        k.tcgen05.dealloc(columns, 32)
    if not ordered:
        with k.role("gives up", 1):
            k.tcgen05.relinquish_alloc_permit()
    return k.finish()


def test_permit_that_may_be_given_up_before_the_alloc() -> None:
    report = check(_permit(ordered=False))
    assert report.verdict == "failed"
    assert report.findings[0].rule == "tmem-lifetime"
    assert set(report.findings[0].roles) == {"allocates", "gives up"}
    assert check(_permit(ordered=True)).verdict == "proved"
