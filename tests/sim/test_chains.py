"""Who could release a waiter: who still comes to an instruction that counts for its barrier."""

from __future__ import annotations

import re

import pytest

from tilesim import Builder, check, kernel
from tilesim.checker import Report


def notes(report: Report) -> list[str]:
    """The notes of the only finding, a deadlock; lines of this file as ``:N``."""
    (finding,) = report.findings
    assert finding.rule == "deadlock"
    return [re.sub(r"\S+/test_chains.py", "", note.strip()) for note in finding.notes]


def line(text: str) -> int:
    """The line of this file that ends with the comment ``text``."""
    with open(__file__, encoding="utf-8") as file:
        return next(n for n, row in enumerate(file, 1) if row.rstrip().endswith(f"  # {text}"))


@kernel(warps=2)
def other_slot(k: Builder, *, slot: int = 1, gone: bool = False) -> None:
    """A warp waits for slot 0 of an array; the other one still arrives on slot ``slot``."""
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty")
    with k.one_thread():
        for n in range(2):
            k.mbarrier.init(full[n], 1)
        k.mbarrier.init(empty, 1)
    k.sync_threads()
    with k.role("waiter", 0):
        k.mbarrier.wait(full[0], 0)
        with k.elected():
            k.mbarrier.arrive(empty)
    with k.role("other", 1), k.elected():
        if not gone:
            k.mbarrier.wait(empty, 0)
        k.mbarrier.arrive(full[slot])  # of a slot


def test_an_arrival_on_another_barrier_of_the_array_releases_nobody() -> None:
    said = notes(check(other_slot.build()))
    assert (
        f"other (warp 1) cannot release it at :{line('of a slot')}: from where it stands, "
        "that instruction names only full[1]"
    ) in said
    assert not [note for note in said if note.startswith("cycle")]
    said = notes(check(other_slot.build(slot=0)))
    assert "cycle: waiter (warp 0) -> other (warp 1) -> waiter (warp 0)" in said
    assert [note for note in said if note.startswith("other (warp 1) could release it at")]
    assert check(other_slot.build(slot=0, gone=True)).verdict == "proved"


@kernel(warps=2)
def last_trip(k: Builder, *, waits: int = 4) -> None:
    """The waiter wants a phase more than the other warp arrives for in its loop."""
    full, done = k.mbarriers("full"), k.mbarriers("done")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(done, 1)
    k.sync_threads()
    with k.role("source", 0), k.elected():
        with k.loop(3) as i:
            k.mbarrier.arrive(full)  # in the loop
            k.mbarrier.wait(done, i & 1)
        if waits > 3:
            k.mbarrier.wait(done, 1)
    with k.role("sink", 1), k.loop(waits) as i:
        k.mbarrier.wait(full, i & 1)
        with k.elected():
            k.mbarrier.arrive(done)


def test_a_loop_that_is_over_releases_no_warp() -> None:
    said = notes(check(last_trip.build()))
    assert (
        f"source (warp 0) cannot release it at :{line('in the loop')}: it does not execute "
        "that instruction again; its last arrival counted for phase 2"
    ) in said
    assert not [note for note in said if "source (warp 0) could" in note]
    assert check(last_trip.build(waits=3)).verdict == "proved"


@kernel(warps=1)
def foreign(k: Builder, *, rank: int = 0) -> None:
    """Each CTA of a pair waits for an arrival by rank 1, on the barrier of CTA ``rank``."""
    k.launch(grid=2, cluster=2)
    full, go = k.mbarriers("full"), k.mbarriers("go")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(go, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(0)):
        k.mbarrier.wait(full, 0)
        with k.elected():
            k.mbarrier.arrive(go.at(1), scope="cluster")
    with k.if_(k.cluster_rank.eq(1)):
        k.mbarrier.wait(go, 0)
        with k.elected():
            k.mbarrier.arrive(full.at(rank), scope="cluster")
    k.cluster.sync()


@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_of_an_arrival_says_whom_it_releases(rank: int) -> None:
    said = notes(check(foreign.build(rank=rank)))
    cycle = [note for note in said if note.startswith("cycle")]
    released = [note for note in said if note.startswith("CTA 1 warp 0 could release it")]
    assert bool(cycle) == bool(released) == (rank == 0)
    if rank:
        assert [note for note in said if note.endswith("names only CTA 1 full[0]")]
