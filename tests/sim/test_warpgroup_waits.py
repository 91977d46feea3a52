"""A proof says that it takes the `wgmma.wait_group` of one warp for its warpgroup's (F5)."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at
from tests.litmus.notation import thread
from tests.litmus.wgmma import operands
from tilesim import Builder, kernel
from tilesim.checker import check
from tilesim.checker.certificates import certified
from tilesim.ir.program import Strict


@kernel(warps=5)
def released(k: Builder, *, arrivals: int = 4, waits: bool = True) -> None:
    """A stage is overwritten behind the arrivals of so many warps, behind their waits or not."""
    empty, refill = k.mbarriers("empty"), k.mbarriers("refill")
    a, b, acc, out, map_a = operands(k, (empty, arrivals), (refill, 1))
    with k.role("WG", range(4)):
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a[0], b, accumulate=0)
        k.wgmma.commit_group()
        if waits:
            k.wgmma.wait_group(0)
        with k.if_(k.warp_id < arrivals), k.elected():
            k.mbarrier.arrive(empty)
        k.wgmma.wait_group(0)
        k.tile.store(out, acc)
    with thread(k, 4, "TMA"):
        k.mbarrier.wait(empty, 0)
        k.mbarrier.arrive_expect_tx(refill, map_a.box_bytes)
        k.tma.load(map_a, a[0], (0, 0), refill)
        k.mbarrier.wait(refill, 0)


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize(
    ("form", "leans"),
    [({"arrivals": 4}, False), ({"arrivals": 1}, True), ({"arrivals": 3}, True)],
)
def test_the_wait_of_one_warp_is_taken_for_the_warpgroup(
    form: dict[str, int], leans: bool, strict: Strict
) -> None:
    program = released.build(**form)
    report = check(program, strict=strict)
    assert (report.verdict, report.findings) == ("proved", ())
    lines = [at(released, what) for what in ("k.tma.load(map_a, a[0]", "k.wgmma.mma_async(")]
    found = {one.name: [loc.line for loc in one.locs] for one in report.leanings}
    assert found.get("warpgroup-wait") == (lines if leans else None)
    assert certified(program, strict, (), None)[1].verdict == "certified"


def test_no_wait_is_a_race() -> None:
    report = check(released.build(arrivals=1, waits=False))
    assert {f.rule for f in report.findings} == {"race"}
