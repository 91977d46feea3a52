"""Condition I at the end of a CTA: arrivals that are still to come on its own mbarriers (A8).

`tcgen05.commit` and `cp.async.mbarrier.arrive` arrive later than they are executed. By the text
their mbarrier must live then; at `practice` a proof leans on it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernels.evidence import at, found, sites
from tests.litmus.notation import begin, global_words, thread, words
from tests.litmus.tcgen05 import finish, setup
from tests.sim.test_steady import require_same
from tilesim import Builder, kernel
from tilesim.checker import check
from tilesim.dsl.kernel import Kernel
from tilesim.kernels.blackwell import matmul_v5
from tilesim.lib.pipeline import Cursor

COMMIT, ARRIVE = "k.tcgen05.commit(b)", "k.cp_async.mbarrier_arrive(b"


@kernel
def committed(k: Builder, *, waits: bool = False) -> None:
    """A product is over when ``done`` says so; the commit before it has another mbarrier."""
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    with thread(k, 4):
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        k.tcgen05.commit(b)
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    if waits:
        with thread(k, 3):
            k.mbarrier.wait(b, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@kernel
def copied(k: Builder, *, waits: bool = False, noinc: bool = True) -> None:
    """The copies are over by their group; their arrival is of all lanes, or half of a phase."""
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 0):
        k.cp_async.copy(d, g)
        k.cp_async.mbarrier_arrive(b, noinc=noinc)
        k.cp_async.wait_all()
        if not noinc:
            k.mbarrier.arrive(b)
        if waits:
            k.mbarrier.wait(b, 0)


@kernel
def ring(k: Builder, *, waits: bool = False, turns: int = 40) -> None:
    """A commit in each turn, of which the next but one waits; ``waits``: all are waited for."""
    b = k.mbarriers("b", 2)
    s = setup(k)
    with thread(k, 0):
        k.mbarrier.init(b[0], 1)
        k.mbarrier.init(b[1], 1)
    k.sync_threads()
    with thread(k, 4):
        with k.loop(turns) as i:
            with k.if_(i >= 2):
                k.mbarrier.wait(b[i & 1], ((i >> 1) & 1) ^ 1)
            k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
            k.tcgen05.commit(b[i & 1])
        k.mbarrier.wait(b[(turns - 1) & 1], ((turns - 1) >> 1) & 1)
        if waits:
            k.mbarrier.wait(b[turns & 1], ((turns - 2) >> 1) & 1)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@kernel
def second_life(k: Builder, *, waits: bool = False) -> None:
    """A commit in a life that ends by mbarrier.inval, and one in the life after it."""
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    with thread(k, 4):
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        k.tcgen05.commit(b)  # first life
        k.mbarrier.wait(b, 0)
        k.mbarrier.inval(b)
        k.mbarrier.init(b, 1)
        k.tcgen05.commit(b)  # second life
        if waits:
            k.mbarrier.wait(b, 0)
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


PROGRAMS = [
    pytest.param(committed, {}, COMMIT, "T4", id="commit"),
    pytest.param(copied, {}, ARRIVE, "T0", id="cp.async"),
    pytest.param(copied, {"noinc": False}, ARRIVE, "T0", id="cp.async that counts itself"),
    pytest.param(ring, {}, "k.tcgen05.commit(b[i & 1])", "T4", id="ring"),
    pytest.param(second_life, {}, "# second life", "T4", id="second life"),
]


@pytest.mark.parametrize(("kernel", "params", "line", "role"), PROGRAMS)
def test_an_arrival_that_is_still_to_come(
    kernel: Kernel, params: dict[str, Any], line: str, role: str
) -> None:
    program = kernel.build(waits=False, **params)
    report = check(program, strict="ptx")
    assert report.verdict == "failed"
    assert report.rules == {"barrier-lifetime"}
    finding = found(report, "barrier-lifetime")
    assert sites(finding) == {(role, at(kernel, line))}
    assert "can end before" in finding.message
    practice = check(program)
    assert practice.verdict == "proved"
    (leaning,) = (one for one in practice.leanings if one.conditional)
    assert (leaning.name, leaning.kind) == ("A8", "practice")
    assert {loc.line for loc in leaning.locs} == {at(kernel, line)}


@pytest.mark.parametrize(("kernel", "params", "line", "role"), PROGRAMS)
def test_an_arrival_that_is_waited_for(
    kernel: Kernel, params: dict[str, Any], line: str, role: str
) -> None:
    report = check(kernel.build(waits=True, **params), strict="ptx")
    assert (report.verdict, report.conditions) == ("proved", ())


def test_the_phase_that_is_not_waited_for_is_named() -> None:
    report = check(ring.build(waits=False, turns=41), strict="ptx")
    assert "b[1]: no warp waits for phase 19 " in found(report, "barrier-lifetime").message
    report = check(ring.build(waits=False, turns=40), strict="ptx")
    assert "b[0]: no warp waits for phase 19 " in found(report, "barrier-lifetime").message


def test_a_producer_that_does_not_drain_its_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(matmul_v5.matmul.build(m=128), strict="ptx").verdict == "proved"
    monkeypatch.setattr(Cursor, "drain", lambda cursor: None)
    report = check(matmul_v5.matmul.build(m=128), strict="ptx")
    assert report.verdict == "failed"
    assert report.rules == {"barrier-lifetime"}
    finding = report.findings[0]
    assert sites(finding) == {("mma", at(matmul_v5.matmul, "k.tcgen05.commit(slot.empty)"))}


@pytest.mark.parametrize("waits", [False, True])
def test_turns_that_commit_are_skipped(waits: bool) -> None:
    require_same(ring.build(waits=waits, turns=3000))
