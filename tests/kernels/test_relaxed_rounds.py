"""A cluster barrier at which nobody releases, between warps of one CTA: DeepGEMM's kernels meet so
before they read where tensor memory is, and before they give it back."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at
from tilesim import Builder, kernel, s32, u32
from tilesim.checker import check
from tilesim.dsl.kernel import Kernel
from tilesim.mistakes import diagnose as explain


@pytest.fixture(autouse=True)
def _strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis that raises fails the test."""
    monkeypatch.setattr(explain, "RAISES", True)


@kernel(warps=2)
def told_in_a_round(k: Builder, *, sem: str = "release") -> None:
    k.launch(grid=2, cluster=2)
    word, Y, value = k.shared("word", s32, (1,)), k.tensor("Y", s32, (2,)), k.var("value")
    with k.role("writer", 0), k.elected():
        k.mem.store(word[0], 7)
    k.cluster.arrive(sem="release" if sem == "release" else "relaxed")  # told
    k.cluster.wait()
    with k.role("reader", 1), k.elected():
        k.mem.load(value, word[0])
        k.mem.store(Y[k.cluster_rank], value)


@kernel(warps=4)
def given_back_in_a_round(k: Builder, *, sem: str = "release") -> None:
    k.launch(grid=2, cluster=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    part = k.fragment("part", u32, (128, 32), "warpgroup")
    k.tile.fill(part, 1)
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 32)
    k.sync_threads()
    k.mem.load(address, slot[0])
    k.tcgen05.st(k.tcgen05.tensor(address, u32, (128, 32)), part)
    k.tcgen05.wait_st()
    k.cluster.arrive(sem="release" if sem == "release" else "relaxed")  # given back
    k.cluster.wait()
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.dealloc(address, 32)


@pytest.mark.parametrize(
    ("rounds", "rule", "line"),
    [(told_in_a_round, "race", "# told"), (given_back_in_a_round, "tmem-lifetime", "# given back")],
)
def test_the_arrival_that_hands_nothing_on_is_the_cause(
    rounds: Kernel, rule: str, line: str
) -> None:
    assert check(rounds.build()).verdict == "proved"
    report = check(rounds.build(sem="relaxed"))
    assert report.verdict == "failed"
    finding = report.findings[0]
    assert finding.rule == rule
    assert "is relaxed: it releases nothing" in finding.cause
    assert [p.loc.line for p in finding.culprits] == [at(rounds, line)]
