"""A wait acquires one phase: what came with an earlier one takes an acquire of its own (U7)."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import tilesim as ts
from tests.kernels.mutate import line
from tilesim import Builder
from tilesim.arith.types import u32
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.program import Strict

Sem = Literal["acquire", "relaxed"]
Reader = Literal["loader", "other"]
Scope = Literal["cta", "cluster"]


@ts.kernel(warps=2)
def two_loads(k: Builder, *, reads: int = 0) -> None:
    """One thread loads two words in two phases of a barrier, of which it acquires the second one;
    then another thread, which it tells, reads one of them."""
    source, words = k.tensor("source", u32, (2, 4)), k.shared("words", u32, (2, 4))
    full, ready, value = k.mbarriers("full"), k.mbarriers("ready"), k.var("value")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(ready, 1)
    k.sync_threads()
    with k.role("loader", 0), k.one_thread(0):
        for phase in range(2):
            k.mbarrier.arrive_expect_tx(full, 16)
            k.bulk.load(words[phase], source[phase], full)
            k.mbarrier.wait(full, phase, sem="acquire" if phase else "relaxed")
        k.mbarrier.arrive(ready)
    with k.role("other", 1), k.one_thread(1):
        k.mbarrier.wait(ready, 0)
        k.mem.load(value, words[reads, 0])


def test_what_others_learn_is_not_decided() -> None:
    report = ts.check(two_loads.build(reads=1))
    assert report.verdict == "bounded"
    assert "through a wait that skipped a phase" in report.reasons[0]
    report = ts.check(two_loads.build())
    assert report.verdict == "failed"


@ts.kernel(warps=3)
def in_turn(k: Builder, *, trips: int = 3, sem: Sem = "acquire") -> None:
    """Two consumers take the phases of one barrier in turn; each acquires every other phase.

    ``sem``: how a consumer learns that it is its turn, and so of the phases of the other one.
    """
    source = k.tensor("source", u32, (2 * trips, 4))
    words = k.shared("words", u32, (2 * trips, 4))
    full, empty, turn = k.mbarriers("full"), k.mbarriers("empty"), k.mbarriers("turn", 2)
    with k.one_thread():
        for barrier in (full, empty, turn[0], turn[1]):
            k.mbarrier.init(barrier, 1)
    k.sync_threads()
    with k.role("producer", 0), k.one_thread(0), k.loop(2 * trips) as i:
        k.mbarrier.wait(empty, (i + 1) % 2)
        k.mbarrier.arrive_expect_tx(full, 16, sem="release" if sem == "acquire" else sem)
        k.bulk.load(words[i], source[i], full)
    value = k.var("value")
    for me in range(2):
        with k.role(f"consumer{me}", 1 + me), k.one_thread(1 + me), k.loop(trips) as i:
            k.mbarrier.wait(turn[me], (i + 1 + me) % 2, sem=sem)
            k.mbarrier.wait(full, me)
            k.mem.load(value, words[2 * i + me, 0])
            k.mbarrier.arrive(turn[1 - me])
            k.mbarrier.arrive(empty)


@pytest.mark.parametrize("sem", ["acquire", "relaxed"])
def test_consumers_in_turn(sem: Sem) -> None:
    assert ts.check(in_turn.build(sem=sem)).verdict == "proved"


@ts.kernel(warps=2)
def two_lives(k: Builder, *, uses: int = 2) -> None:
    """A barrier is used some times, invalidated, initialised again, and used as often."""
    source = k.tensor("source", u32, (2 * uses, 4))
    words = k.shared("words", u32, (2 * uses, 4))
    full, value = k.mbarriers("full"), k.var("value")
    for life in range(2):
        with k.one_thread():
            k.mbarrier.init(full, 1)
        k.sync_threads()
        for use in range(uses):
            with k.role("producer", 0), k.elected():
                k.mbarrier.arrive_expect_tx(full, 16)
                k.bulk.load(words[life * uses + use], source[life * uses + use], full)
            k.mbarrier.wait(full, use % 2)
            k.mem.load(value, words[life * uses + use, 0])
            k.sync_threads()
        with k.one_thread():
            k.mbarrier.inval(full)


@pytest.mark.parametrize("uses", [1, 2, 3])
def test_a_second_life_has_no_phases_to_skip(uses: int) -> None:
    assert ts.check(two_lives.build(uses=uses)).verdict == "proved"


@ts.kernel(warps=2)
def fenced(k: Builder, *, looks: int = 2, sem: Sem = "relaxed") -> None:
    """The reader waits relaxed for the last ``looks`` of two phases, and then fences."""
    source = k.tensor("source", u32, (2, 4))
    words = k.shared("words", u32, (2, 4))
    full, ready, value = k.mbarriers("full"), k.mbarriers("ready"), k.var("value")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(ready, 1)
    k.sync_threads()
    with k.role("loader", 0), k.one_thread(0):
        for phase in range(2):
            k.mbarrier.arrive_expect_tx(full, 16)
            k.bulk.load(words[phase], source[phase], full)
            if phase == 0:
                if looks == 2:
                    k.mbarrier.wait(ready, 0, sem=sem)
                k.mbarrier.wait(full, 0, sem=sem)
                if looks == 1:
                    k.mbarrier.arrive(ready, sem="release" if sem == "acquire" else sem)
    with k.role("reader", 1), k.one_thread(1):
        if looks == 2:
            k.mbarrier.wait(full, 0, sem="relaxed")
            k.mbarrier.arrive(ready)
        else:
            k.mbarrier.wait(ready, 0, sem=sem)
        k.mbarrier.wait(full, 1, sem="relaxed")
        k.fence.memory("acquire", scope="cta")
        k.mem.load(value, words[0, 0])


def test_a_fence_gives_what_relaxed_waits_have_seen() -> None:
    assert ts.check(fenced.build()).verdict == "proved"
    assert ts.check(fenced.build(looks=1, sem="acquire")).verdict == "proved"


def test_a_fence_does_not_give_a_phase_that_was_skipped() -> None:
    report = ts.check(fenced.build(looks=1))
    assert report.verdict == "bounded"
    assert "a relaxed wait that skipped a phase of full[0]" in report.reasons[0]


@ts.kernel(warps=2)
def across(
    k: Builder,
    *,
    arrive: tuple[Literal["release", "relaxed"], Scope] = ("relaxed", "cluster"),
    fence: FenceScope | None = "cluster",
    wait: tuple[Sem, Scope] = ("acquire", "cluster"),
    after: FenceScope | None = None,
    reads: int = 0,
) -> None:
    """Each of two CTAs stores a word and arrives on a barrier of CTA 1, which reads one of them."""
    k.launch(grid=2, cluster=2)
    data, value = k.tensor("data", u32, (2,)), k.var("value")
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 2)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role("stores", 1), k.one_thread(1):
        k.mem.store(data[k.cluster_rank], 1)
        if fence:
            k.fence.memory("acq_rel", fence)
        k.mbarrier.arrive(full[0].at(1), sem=arrive[0], scope=arrive[1])
    with k.role("reads", 0), k.one_thread(0), k.if_(k.cluster_rank.eq(1)):
        k.mbarrier.wait(full, 0, sem=wait[0], scope=wait[1])
        if after:
            k.fence.memory("acq_rel", after)
        k.mem.load(value, data[reads])
    k.cluster.sync()


_Params = dict[str, Any]
_OBSERVES = ("relaxed", "cluster")
#: what makes the barrier's CTA come after a word of the other one, and what falls short of it
_ACROSS: dict[str, tuple[_Params, _Params, tuple[Strict, ...]]] = {
    "a fence before a relaxed arrival reaches as far as its scope": (
        {"fence": "cluster"}, {"fence": "cta"}, ("practice", "ptx"),
    ),
    "and to waits that include its thread": (
        {"fence": "cluster"}, {"fence": "gpu", "wait": ("acquire", "cta")}, ("ptx",),
    ),
    "a fence behind a relaxed wait acquires of its scope": (
        {"wait": _OBSERVES, "after": "cluster"}, {"wait": _OBSERVES, "after": "cta"},
        ("practice", "ptx"),
    ),
    "and of that of the wait": (
        {"wait": _OBSERVES, "after": "gpu"}, {"wait": ("relaxed", "cta"), "after": "gpu"},
        ("ptx",),
    ),
    "also of arrivals that release themselves": (
        {"arrive": ("release", "cluster"), "fence": None, "wait": _OBSERVES, "after": "cluster"},
        {"arrive": ("release", "cluster"), "fence": None, "wait": _OBSERVES, "after": "cta"},
        ("practice", "ptx"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize("name", _ACROSS)
def test_the_scopes_of_fences_around_barriers(name: str, strict: Strict) -> None:
    right, wrong, fails = _ACROSS[name]
    assert ts.check(across.build(**right), strict=strict).verdict == "proved"
    report = ts.check(across.build(**wrong), strict=strict)
    if strict not in fails:
        assert report.verdict == "proved"
        assert "U4" in {leaning.name for leaning in report.leanings}
        return
    assert report.rules == {"race"}
    lines = {line(across, "k.mem.store(data"), line(across, "k.mem.load(value, data[reads]")}
    (finding,) = report.findings
    assert lines <= {loc.line for loc in finding.locations}
    assert "CTA 0 warp 1" in finding.message
    assert "CTA 1 warp 0" in finding.message
    # what threads of its own CTA have stored is acquired
    own = ts.check(across.build(**wrong, reads=1), strict=strict)
    assert own.verdict == "proved"
