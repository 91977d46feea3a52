"""Waits for a word that counts, at each edge of what they wait for: right, and one step too early.

A warp counts a word up, and stores a number before the step that makes it ``REACHED``. The other
one polls while a condition holds, and reads the number. In a wrong twin the condition ends one step
before, and the read races; or the last steps are left out, and the wait never ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pytest

from tests.sim.counting import Add, Meet, Set, Spin, Touch, Warps, translate
from tilesim import Builder, Program, checker, s32, s64, u32, u64
from tilesim.arith.types import DType
from tilesim.checker.report import Report
from tilesim.ir.expr import Expr, Var

#: how often the word has been increased when the number has been stored, and when all is done
REACHED, LAST = 4, 5
Condition = Callable[[Var], Expr]


def check(program: Program) -> Report:
    """What one run says."""
    return checker.check(program, schedules=0, budget=0)


@dataclass(frozen=True)
class Wait:
    """While which condition a loop polls, the condition that ends one step too early, the type of
    the word, and where it begins. ``plain``: one run proves the right one."""

    right: Condition
    early: Condition
    dtype: DType = u32
    first: int = 0
    plain: bool = True


def _from(where: Callable[[Var, int], Expr], dtype: DType = u32, first: int = 0) -> Wait:
    """A condition with the value in it from which on it does not hold."""
    return Wait(lambda v: where(v, REACHED), lambda v: where(v, REACHED - 1), dtype, first)


def _not_plain(right: Condition, early: Condition) -> Wait:
    return Wait(right, early, plain=False)


#: by how a loop asks whether it goes on
WAITS: dict[str, Wait] = {
    "less": _from(lambda v, n: v < n),
    "at most": _from(lambda v, n: v <= n - 1),
    "not greater": _from(lambda v, n: (v > n - 1).eq(0)),
    "not at least": _from(lambda v, n: (v >= n).eq(0)),
    "more": _from(lambda v, n: v + 10 < n + 10),
    "fewer": _from(lambda v, n: v - n < 0, s32),
    "taken from": _from(lambda v, n: n - v > 0, s32),
    "negative": _from(lambda v, n: -v > -n, s32),
    "complement": _from(lambda v, n: ~v > -n - 1, s32),
    "shifted": Wait(lambda v: (v >> 2).eq(0), lambda v: ((v + 1) >> 2).eq(0)),
    "quotient": Wait(lambda v: v // 4 < 1, lambda v: v // 3 < 1),
    "flipped": Wait(lambda v: (v ^ 4) > 1, lambda v: ((v + 1) ^ 4) > 1),
    "flipped low": Wait(lambda v: (v ^ 3) < 4, lambda v: ((v + 1) ^ 3) < 4),
    "below zero": _from(lambda v, n: v < n - 4, s32, -4),
    "below zero and more": _from(lambda v, n: v + 3 < n - 1, s32, -4),
    "64 bits": _from(lambda v, n: v < n + (1 << 40), u64, 1 << 40),
    "64 bits with a sign": _from(lambda v, n: v + 5 < n, s64, -5),
    "one of two": _not_plain(
        lambda v: v.ne(4) & v.ne(5), lambda v: v.ne(4) & v.ne(5) & v.ne(3)
    ),
    "outside": _not_plain(lambda v: (v < 4) | (v > 5), lambda v: (v < 3) | (v > 5)),
    "high bits": _not_plain(lambda v: (v & 12).eq(0), lambda v: (v & 12).eq(0) & v.ne(3)),
    "low bits": _not_plain(lambda v: (v & 7) < 4, lambda v: (v & 7) < 3),
}  # fmt: skip


def counting(wait: Wait, goes_on: Condition, *, steps: int = LAST) -> Program:
    """The two warps; ``steps`` are as many as the first one makes."""
    k = Builder("counting", warps=2)
    word, number = k.shared("word", wait.dtype, (1,)), k.shared("number", u32, (1,))
    with k.one_thread():
        k.mem.store(word[0], wait.first)
    k.sync_threads()
    with k.role("counts", 0), k.if_(k.lane_id.eq(0)):
        for step in range(1, steps + 1):
            if step == REACHED:
                k.mem.store(number[0], 7)
            k.mem.atomic(word[0], "add", 1, sem="release", scope="cta")
    with k.role("waits", 1), k.if_(k.lane_id.eq(0)):
        v, seen = k.var("v", wait.first, wait.dtype), k.var("seen", 0, u32)
        k.mem.load(v, word[0], sem="acquire", scope="cta")
        with k.while_(goes_on(v)):
            k.mem.load(v, word[0], sem="acquire", scope="cta")
        k.mem.load(seen, number[0])
    return k.finish()


@pytest.mark.parametrize("name", WAITS)
def test_what_a_loop_waits_for(name: str) -> None:
    wait = WAITS[name]
    right = check(counting(wait, wait.right))
    assert right.verdict == ("proved" if wait.plain else "bounded")
    early = check(counting(wait, wait.early))
    assert early.rules == {"race"}
    assert {p.role for p in early.findings[0].participants} == {"counts", "waits"}
    endless = check(counting(wait, wait.right, steps=REACHED - 1))
    assert endless.rules == {"deadlock"}


KEPT = {"u32": (u32, 5), "s32": (s32, 0), "below zero": (s32, -3), "64 bits": (s64, -3)}


@pytest.mark.parametrize("name", KEPT)
def test_a_loop_that_is_entered_again_with_what_it_has_seen(name: str) -> None:
    """It polls only if that is not enough."""
    dtype, first = KEPT[name]

    def turns(early: int, counts: int = 3) -> Program:
        k = Builder("kept", warps=2)
        word, numbers = k.shared("word", dtype, (1,)), k.shared("numbers", u32, (3,))
        seen = k.var("seen", 0, u32)
        with k.one_thread():
            k.mem.store(word[0], first)
        k.sync_threads()
        with k.role("counts", 0), k.if_(k.lane_id.eq(0)), k.loop(counts) as i:
            k.mem.store(numbers[i], 7)
            k.mem.atomic(word[0], "add", 1, sem="release", scope="cta")
        with k.role("waits", 1), k.if_(k.lane_id.eq(0)):
            v = k.var("v", first, dtype)
            with k.loop(3) as i:
                with k.while_(v < i + (first + 1 - early)):
                    k.mem.load(v, word[0], sem="acquire", scope="cta")
                k.mem.load(seen, numbers[i])
        return k.finish()

    assert check(turns(0)).verdict == "proved"
    assert check(turns(1)).rules == {"race"}
    assert check(turns(0, counts=2)).rules == {"deadlock"}


W, R = Touch(0, write=True), Touch(0, write=False)
#: takes its time in the timed run
LATE = (Add(1, 1, release=False), *(Touch(1, write=False),) * 24)
#: right ones, and of each a twin that one run finds wrong
LEARNED: dict[str, tuple[Warps, Warps]] = {
    "what a later step hands over": (
        ((Add(0),), (Spin(0, 1), W, Add(0)), (*LATE, Spin(0, 2), R)),
        ((Add(0),), (Spin(0, 1), W, Add(0)), (*LATE, Spin(0, 1), R)),
    ),
    "what a later store hands over": (
        ((Add(0),), (Spin(0, 1), W, Set(0, 2)), (*LATE, Spin(0, 2), R)),
        ((Add(0),), (Spin(0, 1), W, Set(0, 2)), (*LATE, Spin(0, 1), R)),
    ),
    "what the first step hands over": (
        ((W, Add(0)), (Spin(0, 1), Add(0)), (*LATE, Spin(0, 1), R)),
        ((W, Add(0, 1, release=False)), (Spin(0, 1), Add(0)), (*LATE, Spin(0, 1), R)),
    ),
    "what another warp hands on": (
        ((W, Set(0, 1)), (Spin(0, 1), Set(0, 2)), (*LATE, Spin(0, 2), R)),
        ((W, Set(0, 1)), (Spin(0, 1, acquire=False), Set(0, 2)), (*LATE, Spin(0, 2), R)),
    ),
    "amounts": (
        ((Add(0, 2),), (W, Add(0, 3)), (*LATE, Spin(0, 5), R)),
        ((Add(0, 2),), (Add(0, 3), W), (*LATE, Spin(0, 5), R)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEARNED)
def test_what_a_wait_learns_in_every_schedule(name: str) -> None:
    right, wrong = map(translate, LEARNED[name])
    assert check(right).verdict == "proved"
    assert check(wrong).rules == {"race"}


#: right ones, and of each a twin that fails in some schedule, by its rule there
SOMETIMES: dict[str, tuple[Warps, Warps, str]] = {
    "either of two": (
        ((W, Add(0)), (Add(0),), (Spin(0, 2), R)),
        ((W, Add(0)), (Add(0),), (Spin(0, 1), R)),
        "race",
    ),
    "a part of three": (
        ((W, Add(0, 1)), (Add(0, 2),), (Add(0, 2),), (Spin(0, 5), R)),
        ((W, Add(0, 1)), (Add(0, 2),), (Add(0, 2),), (Spin(0, 4), R)),
        "race",
    ),
    "the greater of two": (
        ((Add(0, 2),), (W, Add(0, 3)), (Spin(0, 4), R)),
        ((Add(0, 2),), (W, Add(0, 3)), (Spin(0, 2), R)),
        "race",
    ),
    "a value that comes and goes": (
        ((Add(0), Spin(1, 1), Add(0)), (Spin(0, 1, "equal"), Add(1))),
        ((Add(0), Add(0)), (Spin(0, 1, "equal"),)),
        "deadlock",
    ),
    "set back": (
        ((Set(0, 1), Spin(1, 1), Set(0, 0)), (Spin(0, 1), Add(1))),
        ((Set(0, 1), Set(0, 0)), (Spin(0, 1),)),
        "deadlock",
    ),
    "set back by another": (
        ((Set(0, 1),), (Spin(0, 1), Set(0, 2)), (Spin(0, 1),)),
        ((Set(0, 1),), (Add(1), Touch(1, write=True), Set(0, 0)), (Spin(0, 1),)),
        "deadlock",
    ),
    "begun anew": (
        ((Set(0, 0), Meet()), (Meet(), W, Add(0)), (Meet(), Spin(0, 1), R)),
        ((Set(0, 0),), (W, Add(0)), (Spin(0, 1), R)),
        "deadlock",
    ),
    "a store that hands nothing on": (
        ((W, Set(0, 1)), (Spin(0, 1), Set(0, 2)), (Spin(0, 1), R)),
        ((W, Set(0, 1)), (Spin(0, 1, acquire=False), Set(0, 2, "relaxed")), (Spin(0, 1), R)),
        "race",
    ),
    "the same value again": (
        ((Set(0, 1),), (Spin(0, 1), W, Set(0, 2)), (Spin(0, 2), R)),
        ((Set(0, 1),), (Spin(0, 1), W, Set(0, 1)), (*LATE[:6], Spin(0, 1), R)),
        "race",
    ),
    "other than before": (
        ((Add(0), Spin(0, 1), W, Add(1)), (Spin(1, 0, "other"), R)),
        ((Add(0),), (W, Add(0)), (Spin(0, 0, "other"), R)),
        "race",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOMETIMES)
def test_a_wait_that_fails_in_some_schedule(name: str) -> None:
    right, wrong, rule = SOMETIMES[name]
    assert check(translate(right)).verdict == "proved"
    assert check(translate(wrong)).verdict in ("bounded", "failed")
    assert checker.check(translate(wrong)).rules == {rule}


#: numbers with which two warps begin to draw: rounds of two go beyond the ends of their types
ROUNDS = {"from zero": 0, "in the middle": 10, "to the end": (1 << 32) - 2, "half": (1 << 31) - 2}


@pytest.mark.parametrize("name", ROUNDS)
def test_numbers_that_are_drawn_in_rounds(name: str) -> None:
    def rounds(hurried: bool) -> Program:
        """The second warp of a ``hurried`` one does not wait in its first round."""
        k = Builder("rounds", warps=2)
        word, numbers = k.shared("word", u32, (1,)), k.shared("numbers", u32, (2, 2))
        with k.one_thread():
            k.mem.store(word[0], ROUNDS[name])
        k.sync_threads()
        got = k.var("got", 0, u32)
        for own in (0, 1):
            with k.role(f"warp{own}", own), k.if_(k.lane_id.eq(0)):
                drawn, seen = k.var(f"drawn{own}", 0, u32), k.var(f"seen{own}", 0, u32)
                for turn in range(2):
                    k.mem.store(numbers[own, turn], turn)
                    k.mem.atomic(word[0], "add", 1, result=drawn, sem="acq_rel", scope="cta")
                    if hurried and own and not turn:
                        continue
                    k.assign(seen, drawn)
                    with k.while_((seen >> 1).eq(drawn >> 1)):
                        k.mem.load(seen, word[0], sem="acquire", scope="cta")
                    k.mem.load(got, numbers[1 - own, turn])
        return k.finish()

    assert check(rounds(hurried=False)).verdict == ("proved" if ROUNDS[name] < 99 else "bounded")
    assert checker.check(rounds(hurried=True)).rules == {"deadlock"}


@pytest.mark.parametrize("first", [1, (1 << 31) - 1, (1 << 32) - 1])
def test_which_half_a_drawn_number_is_in(first: int) -> None:
    """The warp that draws second arrives; in the wrong twin, if it is the second warp."""

    def halves(either: bool) -> Program:
        k = Builder("halves", warps=2)
        word, done = k.shared("word", u32, (1,)), k.mbarriers("done")
        with k.one_thread():
            k.mem.store(word[0], first)
            k.mbarrier.init(done, 1)
        k.sync_threads()
        for own in (0, 1):
            with k.role(f"warp{own}", own), k.if_(k.lane_id.eq(0)):
                drawn, seen = k.var(f"drawn{own}", 0, u32), k.var(f"seen{own}", 0, u32)
                k.mem.atomic(word[0], "add", 1, result=drawn, sem="acq_rel", scope="cta")
                if own or either:
                    with k.if_(drawn.ne(first)):
                        k.mbarrier.arrive(done)
                k.mbarrier.wait(done, 0)
                k.assign(seen, first)
                with k.while_(seen.eq(first)):
                    k.mem.load(seen, word[0], sem="acquire", scope="cta")
        return k.finish()

    assert checker.check(halves(either=True)).verdict in ("proved", "exhausted")
    assert checker.check(halves(either=False)).rules == {"deadlock"}


Act = Literal["store", "exch", "add"]
ACTS: tuple[Act, ...] = ("store", "exch", "add")


def handed(act: Act, fenced: int, *, lanes: int = 1, sem: Literal["relaxed", "release"]) -> Program:
    """A lane stores a number and meets the others. So many of these have a fence each, and some
    write the same word, of which it is unknown which one comes first."""
    k = Builder("handed", warps=2)
    word, number = k.shared("word", u32, (1,)), k.shared("number", u32, (1,))
    seen, v = k.var("seen", 0, u32), k.var("v", 0, u32)
    with k.one_thread():
        k.mem.store(word[0], 0)
    k.sync_threads()
    with k.role("writes", 0):
        with k.if_(k.lane_id.eq(5)):
            k.mem.store(number[0], 1)
        k.sync_warp()
        if fenced:
            with k.if_(k.lane_id < fenced):
                k.fence.memory("acq_rel", scope="cta")
        with k.if_(k.lane_id < lanes):
            if act == "store":
                k.mem.store(word[0], 1, sem=sem, scope="cta")
            else:
                k.mem.atomic(word[0], act, 1, sem=sem, scope="cta")
    with k.role("waits", 1), k.if_(k.lane_id.eq(0)):
        with k.while_(v < 1):
            k.mem.load(v, word[0], sem="acquire", scope="cta")
        k.mem.load(seen, number[0])
    return k.finish()


@pytest.mark.parametrize("act", ACTS)
def test_what_lanes_hand_over_that_write_one_word(act: Act) -> None:
    """What they all know, if each of them releases; not what a fence of one of them would."""
    for lanes in (1, 2, 32):
        assert check(handed(act, 0, lanes=lanes, sem="release")).verdict == "proved"
        nothing = check(handed(act, 0, lanes=lanes, sem="relaxed"))
        assert nothing.rules == {"race"}
        assert {p.role for p in nothing.findings[0].participants} == {"writes", "waits"}
    assert check(handed(act, 1, sem="relaxed")).verdict == "proved"
    of_one = check(handed(act, 1, lanes=2, sem="relaxed"))
    assert of_one.verdict == "bounded"
    assert "unordered strong accesses to one location" in of_one.reasons[0]
