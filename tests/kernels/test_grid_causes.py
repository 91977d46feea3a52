"""What earlier grids may still use, and a bulk store touches: no group of copies is the cause."""

from __future__ import annotations

from tests.kernels.evidence import at
from tilesim import Builder, f32, kernel
from tilesim.checker import check


@kernel(warps=1)
def stored_behind_a_grid(k: Builder, *, waits: bool = True) -> None:
    """A tile goes to where the grid before this one may still be reading."""
    k.launch(grid=2)
    Y, tile = k.tensor("Y", f32, (2, 32), dependent=True), k.shared("tile", f32, (32,))
    if waits:
        k.griddep.wait()
    k.mem.store(tile[k.lane_id], 1.0)
    k.fence.proxy_async()
    k.sync_warp()
    with k.elected():
        k.bulk.store(Y[k.cta_x], tile)  # stores
        k.bulk.commit_group()
        k.bulk.wait_group(0)


def test_a_bulk_store_without_a_wait_for_earlier_grids_lacks_that() -> None:
    assert check(stored_behind_a_grid.build()).verdict == "proved"
    report = check(stored_behind_a_grid.build(waits=False))
    assert report.verdict == "failed"
    for finding in report.findings:
        assert finding.rule == "race"
        assert finding.cause == "the kernel does not wait for earlier grids"
        assert [p.loc.line for p in finding.culprits] == [at(stored_behind_a_grid, "# stores")]
