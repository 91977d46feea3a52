"""Groups of copies are per lane: what one has waited for is known to it, and to it alone."""

from __future__ import annotations

import tilesim as ts
from tests.kernels.evidence import at, found, sites
from tilesim import Builder
from tilesim.ir.types import u32


@ts.kernel(warps=2)
def two_stores(k: Builder, *, waits: int = 3) -> None:
    """Lanes 0 and 3 store a tile each; one of them waits and hands tile 1 back."""
    tiles, out = k.shared("tiles", u32, (2, 32)), k.tensor("out", u32, (2, 32))
    done = k.mbarriers("done")
    with k.one_thread():
        k.mbarrier.init(done, 1)
    with k.role("filler", 1):
        k.mem.store(tiles[0, k.lane_id], 1)
        k.mem.store(tiles[1, k.lane_id], 1)
        k.fence.proxy_async("shared::cta")
    k.sync_threads()
    with k.role("storer", 0):
        with k.if_(k.lane_id.eq(0)):
            k.bulk.store(out[0], tiles[0])
            k.bulk.commit_group()
        with k.if_(k.lane_id.eq(3)):
            k.bulk.store(out[1], tiles[1])  # stores
            k.bulk.commit_group()
        with k.if_(k.lane_id.eq(waits)):
            k.bulk.wait_group(0)
            k.mbarrier.arrive(done)
        for lane in (0, 3):
            with k.if_(k.lane_id.eq(lane)):
                k.bulk.wait_group(0)
    with k.role("filler", 1):
        k.mbarrier.wait(done, 0)
        k.mem.store(tiles[1, k.lane_id], 2)  # refills


def test_a_lane_knows_of_its_own_finished_store() -> None:
    """Although an earlier one of another lane is still under way."""
    assert ts.check(two_stores.build()).verdict == "proved"


def test_a_lane_does_not_wait_for_the_store_of_another_one() -> None:
    report = ts.check(two_stores.build(waits=0))
    assert report.verdict == "failed"
    assert sites(found(report, "race")) == {
        ("storer", at(two_stores, "# stores")), ("filler", at(two_stores, "# refills")),
    }  # fmt: skip
