"""Bulk copies to global memory that all lanes of a warp execute: 32 of them (B5), which write the
same bytes from one place."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, f32, kernel
from tilesim.checker import check
from tilesim.sim.machine.simulate import simulate

Waits = Literal["all", "one", "none"]
STORE, AGAIN = "k.tma.store(rows, tile, (0, 0))", "k.mem.store(tile[0, k.lane_id], 2.0)"


@kernel(warps=1)
def stored(k: Builder, *, waits: Waits = "all", copies: int = 1) -> None:
    """A tile is filled, copied out by all lanes ``copies`` times, and filled again."""
    y, tile = k.tensor("y", f32, (1, 32)), k.shared("tile", f32, (1, 32), align=128)
    rows = k.tensor_map(y, (1, 32))
    k.mem.store(tile[0, k.lane_id], 1.0)
    k.fence.proxy_async("shared::cta")
    k.sync_warp()
    for _ in range(copies):
        k.tma.store(rows, tile, (0, 0))
        k.bulk.commit_group()
        if waits == "all":
            k.bulk.wait_group(0, read=True)
        if waits == "one":
            with k.elected():
                k.bulk.wait_group(0, read=True)
    k.sync_warp()
    k.mem.store(tile[0, k.lane_id], 2.0)
    k.bulk.wait_group(0)


def test_lanes_that_copy_the_same_write_the_same() -> None:
    report = check(stored.build())
    assert report.verdict == "proved"
    (leaning,) = (one for one in report.leanings if one.conditional)
    assert leaning.name == "H23"
    assert [loc.line for loc in leaning.locs] == [at(stored, STORE)]


def test_as_written_they_race() -> None:
    report = check(stored.build(), strict="ptx")
    place = "warp 0", at(stored, STORE)
    assert report.verdict == "failed"
    assert sites(found(report, "race")) == {place}


@pytest.mark.parametrize("waits", ["one", "none"])
def test_each_lane_waits_for_its_own_copy(waits: Waits) -> None:
    report = check(stored.build(waits=waits))
    assert report.verdict == "failed"
    places = {("warp 0", at(stored, STORE)), ("warp 0", at(stored, AGAIN))}
    assert sites(found(report, "race")) == places


def test_waiting_for_the_read_does_not_order_two_copies() -> None:
    report = check(stored.build(copies=2))
    assert report.verdict == "failed"
    assert sites(found(report, "race")) == {("warp 0", at(stored, STORE))}


@kernel(warps=1)
def reduced(k: Builder, *, lanes: int = 32, boxed: bool = True) -> None:
    """Lanes add the same tile to one place."""
    y, tile = k.tensor("y", f32, (1, 32)), k.shared("tile", f32, (1, 32), align=128)
    rows = k.tensor_map(y, (1, 32))
    k.mem.store(tile[0, k.lane_id], 1.0)
    k.fence.proxy_async("shared::cta")
    k.sync_warp()
    with k.if_(k.lane_id < lanes):
        if boxed:
            k.tma.reduce(rows, tile, (0, 0))
        else:
            k.bulk.reduce(y[0], tile[0])
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@pytest.mark.parametrize("boxed", [True, False])
@pytest.mark.parametrize("lanes", [1, 5, 32])
def test_each_lane_adds(lanes: int, boxed: bool) -> None:
    program = reduced.build(lanes=lanes, boxed=boxed)
    assert check(program).verdict == "proved"
    run = simulate(program, {"y": np.zeros((1, 32), np.float32)})
    assert np.all(run.outputs["y"] == lanes)
