"""Words that count, and waits, at the edges of what one run proves: right, and wrong twins.

Of draws it must not matter which number of a round one gets; of waits, which of the additions they
have seen. A wrong program goes wrong in an order of its accesses that the first run has not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.sim.counting import Model, sample, translate
from tests.sim.test_counters import NEEDED
from tilesim import Builder, all_of, any_of, kernel
from tilesim.arith.types import DType, s32, u32
from tilesim.checker import Report, check
from tilesim.ir.expr import Expr, unary

SOURCE = Path(__file__).read_text().splitlines()


def sides(report: Report) -> set[str]:
    """What is said at the lines of the participants of all findings."""
    return {
        SOURCE[p.loc.line - 1].rpartition("# ")[2] for f in report.findings for p in f.participants
    }


@kernel(warps=3)
def rounds(
    k: Builder, *, amounts: tuple[int, int] = (1, 1), acts: str = "least", ordered: bool = False,
    looks: bool = True, type: DType = u32,
) -> None:  # fmt: skip
    """Two warps add to a word, and act by what they find; the third one waits for both."""
    count, data = k.tensor("count", type, (1,)), k.tensor("data", s32, (1,))
    t, x = k.var("t", 0, dtype=type), k.var("x", 0, dtype=type)
    total = sum(amounts)
    total = total if type is u32 else (total + 2**31) % 2**32 - 2**31
    acting = {
        "least": lambda: t >= 2, "odd": lambda: (t & 1).eq(1), "second": lambda: (t // 2).eq(1),
        "below": lambda: t < 0, "third": lambda: t >= 3, "first": lambda: t >= 1,
    }  # fmt: skip
    with k.role("one", 0), k.elected():
        k.mem.atomic(count[0], "add", amounts[0], result=t, sem="acq_rel", scope="gpu")
        with k.if_(acting[acts]()):
            k.mem.store(data[0], 1)  # acts
    with k.role("other", 1), k.elected():
        if ordered:
            with k.while_(x < amounts[0]):
                k.mem.load(x, count[0], sem="acquire", scope="gpu")
        if looks:
            k.mem.atomic(count[0], "add", amounts[1], result=t, sem="acq_rel", scope="gpu")
            with k.if_(acting[acts]()):
                k.mem.store(data[0], 1)  # acts
        else:
            k.mem.atomic(count[0], "add", amounts[1], sem="release", scope="gpu")
    with k.role("waits", 2), k.elected():
        k.mem.store(data[0], 2)  # beside
        with k.while_(x.ne(total)):
            k.mem.load(x, count[0], sem="acquire", scope="gpu")


#: amounts, when a warp acts, and what else is so; which verdict it gets if it may not act
ROUNDS: dict[str, tuple[tuple[int, int], str, dict[str, object], str]] = {
    "less than two": ((1, 1), "least", {}, "proved"),
    "the second one": ((1, 1), "first", {}, "failed"),
    "a larger one that may come first": ((1, 2), "least", {}, "failed"),
    "more than both": ((1, 2), "third", {}, "proved"),
    "each of them less": ((2, 2), "third", {}, "proved"),
    "just so much": ((2, 2), "least", {}, "failed"),
    "a larger one behind": ((1, 2), "least", {"ordered": True}, "proved"),
    "a larger one behind it acts": ((2, 2), "least", {"ordered": True}, "failed"),
    "an addition that does not look": ((1, 1), "first", {"looks": False}, "failed"),
    "an addition that does not look, of less": ((1, 1), "least", {"looks": False}, "exhausted"),
    "the same half": ((1, 1), "second", {}, "proved"),
    "a larger one, and halves": ((1, 2), "second", {}, "failed"),
    "a large one in front": ((2, 1), "second", {}, "failed"),
    "odd ones": ((2, 1), "odd", {}, "failed"),
    "no odd ones": ((2, 2), "odd", {}, "proved"),
    "a sign": ((1, -(2**31)), "below", {"type": s32}, "failed"),
    "no sign": ((1, 5), "below", {"type": s32}, "proved"),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_numbers_that_decide_something(name: str) -> None:
    amounts, acts, more, verdict = ROUNDS[name]
    found = check(rounds.build(amounts=amounts, acts=acts, **more))
    assert found.verdict == verdict
    if verdict == "failed":
        assert found.rules == {"race"}
        assert sides(found) == {"acts", "beside"}


def _eq(one: Any, other: Any) -> Any:
    return one.eq(other) if isinstance(one, Expr) else one == other


def _ne(one: Any, other: Any) -> Any:
    return one.ne(other) if isinstance(one, Expr) else one != other


def _and(one: Any, other: Any) -> Any:
    return all_of(one, other) if isinstance(one, Expr) else one and other


def _not(one: Any) -> Any:
    return unary("not", one) if isinstance(one, Expr) else not one


def _or(one: Any, other: Any) -> Any:
    return any_of(one, other) if isinstance(one, Expr) else one or other


#: conditions of loops that wait: of what was loaded and of a register that holds 5, and with which
#: number that loop is entered
UNTIL: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "a bound": (lambda n, five: n < 2, 0),
    "a bound on the right": (lambda n, five: five > n, 0),
    "a number": (lambda n, five: _ne(n, 3), 0),
    "another number": (lambda n, five: _eq(n, 0), 0),
    "a number in a register": (lambda n, five: _ne(five - n, 2), 0),
    "a sum": (lambda n, five: n + five < 7, 0),
    "a difference": (lambda n, five: 6 - n > 3, 0),
    "a negative number": (lambda n, five: -n > -2, 0),
    "a half": (lambda n, five: n // 2 < 1, 0),
    "a shift": (lambda n, five: _ne(n >> 1, 2), 0),
    "low bits": (lambda n, five: (n & 15) < 4, 0),
    "a range": (lambda n, five: _or(n < 2, n > 4), 0),
    "a range, outside": (lambda n, five: _and(n > 1, n < 4), 2),
    "a range, and a register": (lambda n, five: _or(n < 2, five < 3), 0),
    "a range, or a register": (lambda n, five: _and(n < 2, five > 3), 0),
    "a flipped bit": (lambda n, five: (n ^ 1) > 1, 4),
    "complement": (lambda n, five: ~n > -3, 0),
    "none of two": (lambda n, five: _not(_or(n < 0, n > 3)), 0),
    "not both": (lambda n, five: _not(_and(n > 2, n < 5)), 0),
    "bits of both": (lambda n, five: (n < 2) | (n > 4), 0),
    "the word on both sides": (lambda n, five: _and(n < 3, _ne(n, 1)), 0),
}
#: what is added one by one, and before which of these the data is stored
ORDERS = tuple(
    (adds, data)
    for adds in ((2,), (4,), (2, 1), (1, 2), (2, 2), (1, 1, 1), (3, 1, 2), (1, 3, 5), (2, 6))
    for data in range(len(adds))
)


@kernel(warps=2)
def until(
    k: Builder, *, name: str = "a bound", adds: tuple[int, ...] = (2,), data: int = 0
) -> None:
    """A warp stores data between its additions to a word; the other one waits for the word."""
    word, x, other = (k.tensor(name, s32, (1,)) for name in ("word", "x", "other"))
    seen, five, got = k.var("seen", 0), k.var("five", 5), k.var("got", 0)
    goes_on, start = UNTIL[name]
    with k.role("adds", 0), k.elected():
        for number, amount in enumerate(adds):
            if number == data:
                k.mem.store(x[0], 1)  # stores
            k.mem.atomic(word[0], "add", amount, sem="release", scope="gpu")
    with k.role("waits", 1), k.elected():
        for _ in range(12):
            k.mem.load(got, other[0], sem="relaxed", scope="gpu")
        k.assign(seen, start)
        with k.while_(goes_on(seen, five)):  # waits
            k.mem.load(seen, word[0], sem="acquire", scope="gpu")
        k.mem.load(got, x[0])  # reads


def truth(name: str, adds: tuple[int, ...], data: int) -> set[str]:
    """What may go wrong: it reads before the data is stored, or misses what it waits for."""
    goes_on, _ = UNTIL[name]
    passes = [not goes_on(sum(adds[:n]), 5) for n in range(len(adds) + 1)]
    found = {"race": any(passes[: data + 1]), "deadlock": not passes[-1]}
    return {rule for rule, may in found.items() if may}


@pytest.mark.parametrize("name", UNTIL)
def test_a_wait_for_some_values_of_a_word(name: str) -> None:
    found = {frozenset(truth(name, *order)): order for order in reversed(ORDERS)}
    for rules, (adds, data) in found.items():
        report = check(until.build(name=name, adds=adds, data=data))
        assert report.verdict in (("failed",) if rules else ("proved", "exhausted"))
        assert report.rules & rules == report.rules
        if report.rules == {"race"}:
            assert sides(report) == {"stores", "reads"}


#: random programs of `tests.sim.counting` that fail in few schedules, by the seed of each
SEEDS = (1002, 1005, 1010, 1013, 1016, 1019)


@pytest.mark.parametrize("name", [*NEEDED, *map(str, SEEDS)])
def test_what_goes_wrong_in_an_order_that_the_first_run_has_not(name: str) -> None:
    warps = NEEDED[name] if name in NEEDED else sample(Random(int(name)))
    report = check(translate(warps))
    assert report.verdict == "failed"
    assert report.rules <= Model(warps).failures(50_000)


@kernel(warps=3)
def looks(k: Builder, *, form: str = "the same word before", wrong: bool = False) -> None:
    """Words that are looked at, or exchanged, beside a wait for them."""
    word, x, got = k.tensor("word", s32, (2,)), k.tensor("x", s32, (2,)), k.var("got", 0)
    other, seen, t = k.tensor("other", s32, (1,)), k.var("seen", 0), k.var("t", 0)
    with k.role("first", 0), k.elected():
        if wrong and form == "another word before":
            k.mem.atomic(word[1], "add", 1, sem="release", scope="gpu")
        if not wrong or form != "a maximum":
            k.mem.store(x[0], 1)  # stores
        match form:
            case "an exchange that is used":
                k.mem.atomic(word[0], "exch", 1, result=t, sem="acq_rel", scope="gpu")
                with k.if_(t.eq(3) if wrong else t.eq(7)):
                    k.mem.store(x[1], 1)  # acts
            case "a compare and swap that is used":
                k.mem.atomic(word[0], "cas", 1, compare=3, result=t, sem="acq_rel", scope="gpu")
                with k.if_(t.eq(3) if wrong else t.eq(7)):
                    k.mem.store(x[1], 1)  # acts
            case "a maximum":
                k.mem.atomic(word[0], "max", 1, sem="release", scope="gpu")
                if wrong:
                    k.mem.store(x[0], 1)  # stores
            case _:
                k.mem.atomic(word[0], "add", 1, sem="release", scope="gpu")
                k.mem.atomic(word[1], "add", 1, sem="release", scope="gpu")
    with k.role("second", 1), k.elected():
        if form in ("an exchange that is used", "a compare and swap that is used"):
            for _ in range(12):
                k.mem.load(got, other[0], sem="relaxed", scope="gpu")
            k.mem.store(word[0], 3, sem="release", scope="gpu")
    with k.role("third", 2), k.elected():
        k.mem.store(x[1], 2)  # beside
        match form:
            case "the same word before":
                k.mem.load(seen, word[0], sem="relaxed" if wrong else "acquire", scope="gpu")
            case "another word before":
                k.mem.load(seen, word[1], sem="acquire", scope="gpu")
            case _:
                pass
        with k.while_(seen < 1):
            k.mem.load(seen, word[0], sem="acquire", scope="gpu")
        if form not in ("an exchange that is used", "a compare and swap that is used"):
            k.mem.load(got, x[0])  # reads


@pytest.mark.parametrize(
    "form",
    [
        "the same word before", "another word before", "an exchange that is used",
        "a compare and swap that is used", "a maximum",
    ],
)  # fmt: skip
def test_words_that_do_not_only_count(form: str) -> None:
    assert check(looks.build(form=form)).verdict in ("proved", "exhausted")
    found = check(looks.build(form=form, wrong=True))
    assert found.rules == {"race"}
    assert sides(found) in ({"stores", "reads"}, {"acts", "beside"})


@kernel(warps=2)
def polls(k: Builder, *, more: bool = False, wrong: bool = False) -> None:
    """A loop of polls of an mbarrier, which does something else as well, or not."""
    bars, data = k.mbarriers("bars", 1), k.shared("data", s32, (2,))
    got, done = k.var("got", 0), k.var("done", 0)
    with k.if_(k.warp_id.eq(0)), k.elected():
        k.mbarrier.init(bars[0], 1)
        k.mem.store(data[1], 0)
    k.sync_threads()
    with k.role("stores", 0), k.elected():
        if not wrong or more:
            k.mem.store(data[0], 1)  # stores
        k.mbarrier.arrive(bars[0])
        if wrong:
            k.mem.store(data[1 if more else 0], 1)  # stores
    with k.role("reads", 1), k.elected():
        with k.while_(done.eq(0)):
            k.mbarrier.try_wait(done, bars[0], parity=0)
            if more:
                k.mem.load(got, data[1])  # reads
        if not more:
            k.mem.load(got, data[0])  # reads


@pytest.mark.parametrize("more", [False, True])
def test_a_loop_of_polls_that_does_more(more: bool) -> None:
    if not more:
        assert check(polls.build()).verdict == "proved"
    found = check(polls.build(more=more, wrong=True))
    assert found.rules == {"race"}
    assert sides(found) == {"stores", "reads"}
