"""Asynchronous accesses to global memory (D14) beside what leaves out, forgets and observes."""

from __future__ import annotations

from tests.sim.timed import timed
from tilesim import Builder, u32
from tilesim.checker import check
from tilesim.ir.program import Program


def observed(least: int) -> Program:
    """CTA 0 stores 4, CTA 1 adds 1 to it, and CTA 2 reads the word weakly behind ``least``."""
    k = Builder("observed", target="sm_100a", warps=1)
    k.launch(grid=3, cooperative=True)
    word, out = k.tensor("word", u32, (1,)), k.tensor("out", u32, (1,))
    seen, value = k.var("seen", 0, u32), k.var("value", 0, u32)

    def wait(number: int) -> None:
        with k.while_(seen < number):
            k.mem.load(seen, word[0], sem="relaxed", scope="gpu")

    with k.if_(k.cta_x.eq(0)), k.elected():
        k.mem.store(word[0], 4, sem="relaxed", scope="gpu")
    with k.if_(k.cta_x.eq(1)), k.elected():
        wait(4)
        k.mem.reduce_async(word[0], 1)
    with k.if_(k.cta_x.eq(2)), k.elected():
        wait(least)
        k.mem.load(value, word[0])
        k.mem.store(out[0], value)
    return k.finish()


def test_what_is_added_goes_on_from_the_store_before_it() -> None:
    """A read of the sum observes both: the store comes before what follows the read as well."""
    assert check(observed(5)).verdict in ("proved", "exhausted")
    report = check(observed(4))
    assert report.verdict == "failed"
    assert report.rules == {"race"}
    assert {p.cta for f in report.findings for p in f.participants} == {1, 2}


def added(trips: int, *, late: int = 0) -> Program:
    """One thread adds 1 so often to a word, and to another one in the turn ``late``, which another
    warp stores to as well."""
    k = Builder("added", target="sm_100a", warps=2)
    k.launch(grid=1)
    word = k.tensor("word", u32, (2,))
    with k.role("adds", 0), k.elected(), k.loop(trips) as i:
        k.mem.reduce_async(word[0], 1)
        if late:
            with k.if_(i.eq(late)):
                k.mem.reduce_async(word[1], 1)
    with k.role("stores", 1), k.elected():
        k.mem.store(word[1], 1)
    return k.finish()


def test_no_turn_with_one_is_left_out() -> None:
    right, wrong = timed(added(400)), timed(added(400, late=390))
    assert not right.findings
    assert not right.stats.skipped
    assert {finding.rule for finding in wrong.findings} == {"race"}


def test_nothing_is_said_of_every_value() -> None:
    report = check(lambda n: added(n), for_all={"n": None})
    assert report.for_all is not None
    assert not report.for_all.proved
    assert "asynchronous accesses to global memory" in str(report.for_all.obstacle)
