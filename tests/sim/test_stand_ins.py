"""A strong write stands in for an earlier one where all that race with that race with it (H2)."""

from __future__ import annotations

from typing import Literal

from tests.kernels.evidence import at, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import Report, check


def _late(k: Builder) -> None:
    """What comes behind this comes last in the timed run."""
    pad, seen = k.shared("pad", u32, (1,)), k.var("seen", 0, dtype=u32)
    k.mem.store(pad[0], 0)
    with k.loop(30):
        k.mem.load(seen, pad[0])


def races(report: Report) -> list[set[int]]:
    """The lines of each race."""
    return [{line for _, line in sites(f)} for f in report.findings if f.rule == "race"]


@kernel(warps=2)
def wider(k: Builder, *, scope: Literal["cta", "gpu"] = "gpu") -> None:
    """A reduction, one of wider scope behind it, and one of another CTA in no order with them."""
    k.launch(grid=2, cooperative=True)
    word = k.tensor("word", u32, (1,))
    with k.if_(k.cta_x.eq(0)):
        with k.role("first", 0), k.elected():
            k.mem.atomic(word[0], "add", 1, scope=scope)  # first
        k.sync_threads()
        with k.role("second", 1), k.elected():
            k.mem.atomic(word[0], "add", 1, scope="gpu")
    with k.else_(), k.role("other", 0), k.elected():
        _late(k)
        k.mem.atomic(word[0], "add", 1, scope="gpu")  # other


def test_one_of_wider_scope_does_not_stand_in_for_one_of_narrower_scope() -> None:
    assert check(wider.build()).verdict == "proved"
    assert {at(wider, "# first"), at(wider, "# other")} in races(check(wider.build(scope="cta")))


@kernel(warps=2)
def elsewhere(k: Builder, *, rank: int = 1) -> None:
    """Reductions of CTA scope: the first may be of another CTA, the others are of CTA 1."""
    k.launch(grid=2, cluster=2)
    word, told = k.tensor("word", u32, (1,)), k.mbarriers("told")
    with k.one_thread():
        k.mbarrier.init(told, 1)
    k.cluster.sync()
    with k.role("first", 0), k.elected():
        with k.if_(k.cluster_rank.eq(rank)):
            k.mem.atomic(word[0], "add", 1, scope="cta")  # first
            k.mbarrier.arrive(told.at(1), scope="cluster")
        with k.if_(k.cluster_rank.eq(1)):
            k.mbarrier.wait(told, 0, scope="cluster")
            k.mem.atomic(word[0], "add", 1, scope="cta")
    with k.role("other", 1), k.elected(), k.if_(k.cluster_rank.eq(1)):
        _late(k)
        k.mem.atomic(word[0], "add", 1, scope="cta")  # other
    k.cluster.sync()


def test_one_of_this_cta_does_not_stand_in_for_one_of_another() -> None:
    assert check(elsewhere.build()).verdict == "proved"
    wrong = check(elsewhere.build(rank=0))
    assert {at(elsewhere, "# first"), at(elsewhere, "# other")} in races(wrong)


@kernel(warps=3)
def summed(k: Builder, *, stores: bool = False) -> None:
    """What is there before two additions, one of which comes in no order, decides who goes on."""
    word, done = k.shared("word", u32, (1,)), k.mbarriers("done")
    value = k.var("value", 0, dtype=u32)
    with k.one_thread():
        k.mem.store(word[0], 0)
        k.mbarrier.init(done, 1)
    k.sync_threads()
    with k.role("first", 0), k.elected():
        if stores:
            k.mem.store(word[0], 5, sem="relaxed")
        else:
            k.mem.atomic(word[0], "add", 5, scope="cta")
    with k.role("two", (0, 1)):
        k.bar.sync(1, 64, aligned=False)
    with k.role("second", 1), k.elected():
        k.mem.atomic(word[0], "add", 1, scope="cta")
    with k.role("other", 2), k.elected():
        _late(k)
        k.mem.atomic(word[0], "add", 1, scope="cta")
    k.sync_threads()
    k.mem.load(value, word[0])
    with k.if_(value.eq(7)), k.one_thread():
        k.mbarrier.arrive(done)
    k.mbarrier.wait(done, 0)


def test_a_reduction_does_not_stand_in_for_a_store() -> None:
    """An addition before the store is lost."""
    assert check(summed.build()).verdict == "proved"
    assert check(summed.build(stores=True)).rules == {"deadlock"}
