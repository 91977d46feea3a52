"""A wait acquires one phase: what came with an earlier one takes an acquire of its own (U7)."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import tilesim as ts
from tests.kernels.evidence import at, found, sites
from tests.kernels.mutate import line
from tilesim import Builder
from tilesim.arith.types import u32
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.program import Strict

Sem = Literal["acquire", "relaxed"]
Reader = Literal["loader", "other"]
Scope = Literal["cta", "cluster"]


@ts.kernel(warps=2)
def two_loads(
    k: Builder, *, first: Sem = "acquire", reads: int = 0, reader: Reader = "loader"
) -> None:
    """One thread loads two words in two phases of a barrier; then one of them is read."""
    source = k.tensor("source", u32, (2, 4))
    words = k.shared("words", u32, (2, 4))
    full, ready = k.mbarriers("full"), k.mbarriers("ready")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(ready, 1)
    k.sync_threads()
    value = k.var("value")
    with k.role("loader", 0), k.one_thread(0):
        for phase in range(2):
            k.mbarrier.arrive_expect_tx(full, 16)
            k.bulk.load(words[phase], source[phase], full)  # copy
            k.mbarrier.wait(full, phase, sem="acquire" if phase else first)
        if reader == "loader":
            k.mem.load(value, words[reads, 0])  # read
        k.mbarrier.arrive(ready)
    with k.role("other", 1), k.one_thread(1):
        k.mbarrier.wait(ready, 0)
        if reader == "other":
            k.mem.load(value, words[reads, 0])


@pytest.mark.parametrize("reads", [0, 1])
@pytest.mark.parametrize("reader", ["loader", "other"])
def test_both_phases_are_acquired(reads: int, reader: Reader) -> None:
    assert ts.check(two_loads.build(reads=reads, reader=reader)).verdict == "proved"


def test_the_later_phase_does_not_bring_the_earlier_one() -> None:
    report = ts.check(two_loads.build(first="relaxed", reads=0))
    assert report.verdict == "failed"
    assert [f.rule for f in report.findings] == ["race"]
    assert [p.role for p in report.findings[0].participants] == ["loader", "loader"]


def test_the_later_phase_itself_is_acquired() -> None:
    assert ts.check(two_loads.build(first="relaxed", reads=1)).verdict == "proved"


def test_what_others_learn_is_not_decided() -> None:
    report = ts.check(two_loads.build(first="relaxed", reads=1, reader="other"))
    assert report.verdict == "bounded"
    assert "through a wait that skipped a phase" in report.reasons[0]
    report = ts.check(two_loads.build(first="relaxed", reads=0, reader="other"))
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
def former_life(k: Builder, *, sem: Sem = "acquire") -> None:
    """A reader that acquires a phase of the second life reads what came in the first one."""
    source = k.tensor("source", u32, (2, 4))
    words = k.shared("words", u32, (2, 4))
    full, value = k.mbarriers("full"), k.var("value")
    for life in range(2):
        with k.one_thread():
            k.mbarrier.init(full, 1)
        k.sync_threads()
        with k.role("loader", 0):
            with k.elected():
                k.mbarrier.arrive_expect_tx(full, 16)
                k.bulk.load(words[life], source[life], full)  # copy
            k.mbarrier.wait(full, 0, sem="acquire" if life else sem)
        if life:
            with k.role("reader", 1):
                k.mbarrier.wait(full, 0)
                k.mem.load(value, words[0, 0])
        k.sync_threads()
        with k.one_thread():
            k.mbarrier.inval(full)


def test_a_second_life_does_not_bring_what_nobody_acquired_in_the_first() -> None:
    assert ts.check(former_life.build()).verdict == "proved"
    report = ts.check(former_life.build(sem="relaxed"))
    assert report.verdict == "failed"
    assert [f.rule for f in report.findings] == ["race"]
    assert {p.role for p in report.findings[0].participants} == {"reader", "loader"}


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


@ts.kernel(warps=1)
def from_a_peer(
    k: Builder, *, scopes: tuple[Scope, Scope] = ("cluster", "cluster"), reads: int = 0,
    how: Literal["copy", "store", "arrival"] = "copy",
) -> None:  # fmt: skip
    """CTA 0 fills two places of CTA 1, one in each phase of a barrier there."""
    k.launch(grid=2, cluster=2)
    source = k.tensor("source", u32, (2, 4))
    words = k.shared("words", u32, (2, 4))
    full, ready, value = k.mbarriers("full"), k.mbarriers("ready"), k.var("value", 0, u32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(ready, 1)
    k.cluster.sync()
    with k.one_thread(), k.if_(k.cluster_rank.eq(0)):
        for phase in range(2):
            if phase:
                k.mbarrier.wait(ready, 0, scope="cluster")
            if how == "copy":
                k.bulk.load(words[phase], source[phase], full, multicast=2)
            elif how == "store":
                k.cluster.st_async(words[phase, 0].at(1), 7, full.at(1))
            else:
                k.mem.store(words[phase, 0].at(1), 7)
                k.mbarrier.arrive(full.at(1), scope="cluster")
    with k.one_thread(), k.if_(k.cluster_rank.eq(1)):
        for phase in range(2):
            if how != "arrival":
                k.mbarrier.arrive_expect_tx(full, 16 if how == "copy" else 4)
            k.mbarrier.wait(full, phase, scope=scopes[phase])
            if not phase:
                k.mbarrier.arrive(ready.at(0), scope="cluster")
        k.mem.load(value, words[reads, 0])
    k.cluster.sync()


@pytest.mark.parametrize("how", ["copy", "store"])
def test_a_wait_of_cluster_scope_does_not_bring_what_one_of_cta_scope_has_not(
    how: Literal["copy", "store"],
) -> None:
    """At ptx, what a peer's operation has left takes a wait of cluster scope (U4), in its phase."""
    for reads in range(2):
        right = ts.check(from_a_peer.build(how=how, reads=reads), strict="ptx")
        assert right.verdict == "proved"
    later = ts.check(from_a_peer.build(how=how, reads=1, scopes=("cta", "cluster")), strict="ptx")
    assert later.verdict == "proved"
    program = from_a_peer.build(how=how, scopes=("cta", "cluster"))
    assert ts.check(program).verdict == "proved"
    finding = found(ts.check(program, strict="ptx"), "race")
    writes = "k.bulk.load(" if how == "copy" else "k.cluster.st_async("
    assert {line for _, line in sites(finding)} == {
        at(from_a_peer, writes), at(from_a_peer, "k.mem.load(value")
    }  # fmt: skip


def test_a_release_brings_what_its_thread_did_in_earlier_phases() -> None:
    program = from_a_peer.build(how="arrival", scopes=("cta", "cluster"))
    assert ts.check(program, strict="ptx").verdict == "proved"


@ts.kernel(warps=2)
def through_the_peer(k: Builder, *, waits: Scope = "cluster") -> None:
    """A warp of CTA 1 waits for the later of two phases, which CTA 0 ends after it has heard from
    another one, which has waited for the earlier one."""
    k.launch(grid=2, cluster=2)
    words, value = k.shared("words", u32, (2,)), k.var("value", 0, u32)
    full, ready, turn = k.mbarriers("full"), k.mbarriers("ready"), k.mbarriers("turn")
    with k.one_thread():
        for barrier in (full, ready, turn):
            k.mbarrier.init(barrier, 1)
    k.cluster.sync()
    with k.one_thread(), k.if_(k.cluster_rank.eq(0)):
        k.cluster.st_async(words[0].at(1), 7, full.at(1))
        k.mbarrier.arrive_expect_tx(full.at(1), 4, scope="cluster")
        k.mbarrier.wait(ready, 0, scope="cluster")
        k.cluster.st_async(words[1].at(1), 7, full.at(1))
        k.mbarrier.arrive_expect_tx(full.at(1), 4, scope="cluster")
    with k.if_(k.cluster_rank.eq(1)):
        with k.one_thread():
            k.mbarrier.wait(full, 0, scope=waits)
            k.mbarrier.arrive(ready.at(0), scope="cluster")
            k.mbarrier.arrive(turn, sem="relaxed")
        with k.one_thread(1):
            k.mbarrier.wait(turn, 0, sem="relaxed")
            k.mbarrier.wait(full, 1, scope="cluster")
            k.mem.load(value, words[0])
    k.cluster.sync()


def test_what_the_peer_has_heard_of_comes_with_its_arrival() -> None:
    assert ts.check(through_the_peer.build(), strict="ptx").verdict == "proved"
    finding = found(ts.check(through_the_peer.build(waits="cta"), strict="ptx"), "race")
    assert {line for _, line in sites(finding)} == {
        at(through_the_peer, "k.cluster.st_async(words[0]"),
        at(through_the_peer, "k.mem.load(value"),
    }


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
