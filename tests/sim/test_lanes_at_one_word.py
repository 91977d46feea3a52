"""The lanes of a reduction take their turns at one word, and others may look in between."""

from __future__ import annotations

import pytest

import tilesim as ts
from tests.kernels.evidence import at, found, sites
from tilesim import Builder
from tilesim.arith.types import s32


@ts.kernel(warps=2)
def counted(
    k: Builder, *, goal: int = 32, one_lane: bool = False, met: bool = True
) -> None:  # fmt: skip
    """All lanes write and count; the reader waits for so many of them."""
    words = k.shared("words", s32, (32,))
    count = k.tensor("count", s32, (1,))
    state, value = k.var("state", 0), k.var("value", 0)
    with k.role("writer", 0):
        k.mem.store(words[k.lane_id], 1)
        if met:
            k.sync_warp()
        with k.if_(k.lane_id < (1 if one_lane else 32)):
            k.mem.atomic(count[0], "add", 1, sem="release", scope="gpu")
    with k.role("reader", 1):
        with k.while_(state < goal):
            k.mem.load(state, count[0], sem="acquire", scope="gpu")
        k.mem.load(value, words[k.lane_id])


def test_all_lanes_have_counted() -> None:
    assert ts.check(counted.build()).verdict == "proved"
    assert ts.check(counted.build(met=False)).verdict == "proved"
    assert ts.check(counted.build(goal=1, one_lane=True)).verdict == "proved"


@pytest.mark.parametrize("goal", [1, 16, 31])
def test_some_lanes_have_counted(goal: int) -> None:
    """In some schedule the reader goes on before the others have released their words; but each
    of them releases what all have written before they met."""
    assert ts.check(counted.build(goal=goal)).verdict == "proved"
    race = found(ts.check(counted.build(goal=goal, met=False)), "race")
    assert sites(race) == {
        ("writer", at(counted, "k.mem.store(words")), ("reader", at(counted, "k.mem.load(value")),
    }  # fmt: skip
