"""The fix that a deadlock names: the wait that is to blame, in the words of the kernel."""

from __future__ import annotations

import re

from tilesim import Builder, Report, check, kernel


def deadlock(report: Report) -> str:
    """The fix of the only finding, with lines as ``:N``."""
    (finding,) = report.findings
    assert finding.rule == "deadlock"
    return re.sub(r"\S+/test_deadlock_fixes.py", "", finding.fix)


def line(text: str) -> int:
    """The line of this file that ends with the comment ``text``."""
    with open(__file__, encoding="utf-8") as file:
        return next(n for n, row in enumerate(file, 1) if row.rstrip().endswith(f"  # {text}"))


@kernel(warps=3)
def two_places(k: Builder, *, fixed: bool = False) -> None:
    """Two warps are at ``sync_threads``, the third waits for them at a barrier of its own."""
    with k.role("worker", range(2)):
        k.sync_threads()
    with k.role("boss", 2):
        if fixed:
            k.sync_threads()
        else:
            k.bar.sync(1, 64)


def test_who_has_not_come_to_sync_threads() -> None:
    assert deadlock(check(two_places())) == (
        "let boss (warp 2) reach sync_threads (bar.sync 0) too: it counts all warps that have not "
        "ended"
    )
    assert check(two_places(fixed=True)).verdict == "proved"


@kernel(warps=2)
def arrives_afterwards(k: Builder, *, fixed: bool = False) -> None:
    """One warp arrives behind a barrier that the other reaches after waiting for the arrival."""
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.role("early", 0):
        if fixed:
            with k.elected():
                k.mbarrier.arrive(full)
        k.sync_threads()
        if not fixed:
            with k.elected():
                k.mbarrier.arrive(full)  # the arrival
    with k.role("late", 1):
        k.mbarrier.wait(full, 0)
        k.sync_threads()


def test_an_arrival_behind_the_barrier() -> None:
    assert deadlock(check(arrives_afterwards())) == (
        "early (warp 0) waits at sync_threads (bar.sync 0) for late (warp 1), which waits for "
        f":{line('the arrival')}; early (warp 0) executes that only after the barrier: execute it "
        "before, or let late (warp 1) wait after the barrier"
    )
    assert check(arrives_afterwards(fixed=True)).verdict == "proved"


@kernel(warps=5)
def closing(k: Builder, *, fixed: bool = False) -> None:
    """Everybody meets in the end; the producer never comes, it waits for a phase too many."""
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 4)
    k.sync_threads()
    with k.role("producer", 4), k.elected():
        k.mbarrier.wait(empty, 1)
        k.mbarrier.arrive(full)
        k.mbarrier.wait(empty, 0)
        if not fixed:
            k.mbarrier.wait(empty, 1)
    with k.role("consumer", range(4)):
        k.mbarrier.wait(full, 0)
        with k.elected():
            k.mbarrier.arrive(empty)
    k.sync_threads()


def test_the_fix_is_not_about_the_barrier_at_which_the_others_wait() -> None:
    report = check(closing())
    assert deadlock(report) == (
        "empty[0] lacks an arrival for phase 1: add one, or do not wait for that phase"
    )
    actions = [p.action for p in report.findings[0].participants]
    assert actions[:2] == ["waits on empty[0] parity 1", "waits at named barrier 0"]
    assert check(closing(fixed=True)).verdict == "proved"


@kernel(warps=3)
def counted(k: Builder, *, threads: int = 96) -> None:
    """Two of three warps meet."""
    with k.role("pair", range(2)):
        k.bar.sync(1, threads)


def test_a_named_barrier_that_counts_too_many() -> None:
    assert deadlock(check(counted())) == (
        "named barrier 1 counts 96 threads and 64 have joined this round: let every warp that it "
        "counts join the same round, exactly once"
    )
    assert check(counted(threads=64)).verdict == "proved"


@kernel(warps=2)
def cluster(k: Builder, *, fixed: bool = False) -> None:
    """A warp of one CTA waits for its neighbour, which is at the cluster's barrier."""
    k.launch(grid=2, cluster=2)
    if not fixed:
        with k.role("slow", 1), k.if_(k.cluster_rank.eq(1)):
            k.bar.sync(1, 64)
    k.cluster.sync()


def test_who_has_not_come_to_the_barrier_of_the_cluster() -> None:
    assert deadlock(check(cluster())) == (
        "let slow (CTA 1 warp 1) reach cluster.sync (barrier.cluster) too: it counts all warps "
        "that have not ended"
    )
    assert check(cluster(fixed=True)).verdict == "proved"
