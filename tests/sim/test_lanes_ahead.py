"""Words of memory that lanes of a warp count in: some may be instructions ahead of the others."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, Kernel, kernel, u32
from tilesim.checker import check
from tilesim.checker.witness import replay
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.expr import Var


def _begin(k: Builder) -> tuple[SharedTensor, SharedTensor, Var]:
    """A word that counts, data of every lane, and what is seen of the word."""
    word, data = k.shared("word", u32, (1,)), k.shared("data", u32, (32,))
    seen = k.var("seen", 0)
    with k.one_thread():
        k.mem.store(word[0], 0)
    k.sync_threads()
    return word, data, seen


@kernel(warps=2)
def counted_twice(k: Builder, *, sync: bool = True) -> None:
    """Every lane counts twice; a reader waits until as many have counted as there are lanes."""
    word, data, seen = _begin(k)
    with k.role("counts", 0):
        k.mem.store(data[k.lane_id], 1)
        k.mem.atomic(word[0], "add", 1, sem="release", scope="cta")
        if sync:
            k.sync_warp()
        k.mem.atomic(word[0], "add", 1, sem="release", scope="cta")
    with k.role("reads", 1):
        with k.while_(seen < 32):
            k.mem.load(seen, word[0], sem="acquire", scope="cta")
        k.mem.load(seen, data[k.lane_id])


@kernel(warps=2)
def exactly_one(k: Builder, *, sync: bool = True) -> None:
    """Lanes wait for just one count, and then count themselves."""
    word, _, seen = _begin(k)
    with k.role("waits", 0):
        with k.while_(seen.ne(1)):
            k.mem.load(seen, word[0], sem="acquire", scope="cta")
        if sync:
            k.sync_warp()
        k.mem.atomic(word[0], "add", 1, sem="release", scope="cta")
    with k.role("counts", 1), k.elected():
        k.mem.atomic(word[0], "add", 1, sem="release", scope="cta")


@kernel(warps=2)
def taken_back(k: Builder, *, sync: bool = True) -> None:
    """Lanes wait for a flag, which one of them takes back."""
    word, _, seen = _begin(k)
    with k.role("waits", 0):
        with k.while_(seen < 1):
            k.mem.load(seen, word[0], sem="acquire", scope="cta")
        if sync:
            k.sync_warp()
        with k.if_(k.lane_id.eq(0)):
            k.mem.store(word[0], 0, sem="release", scope="cta")
    with k.role("raises", 1), k.elected():
        k.mem.store(word[0], 1, sem="release", scope="cta")


@pytest.mark.parametrize("program", [counted_twice, exactly_one, taken_back])
def test_lanes_that_meet_in_between(program: Kernel) -> None:
    assert check(program.build(), strict="ptx").verdict == "proved"


def test_a_lane_may_count_twice_before_another_counts() -> None:
    """Half of the lanes reach the number alone. No schedule of whole warps shows that."""
    report = check(counted_twice.build(sync=False))
    assert "goes its own way" in report.covers
    assert sites(found(report, "race")) == {
        ("counts", at(counted_twice, "k.mem.store(data")),
        ("reads", at(counted_twice, "k.mem.load(seen, data")),
    }


@pytest.mark.parametrize("program", [exactly_one, taken_back])
def test_a_lane_may_still_look_when_others_go_on(program: Kernel) -> None:
    built = program.build(sync=False)
    report = check(built)
    assert "goes its own way" in report.covers
    finding = found(report, "deadlock")
    assert ("waits", at(program, "k.while_(seen")) in sites(finding)
    assert report.witness is not None
    assert finding in replay(built, report.witness).findings
