"""Each lane of a warp makes, arms and awaits an mbarrier of its own, without a meeting (A6, A7)."""

from __future__ import annotations

from typing import get_args

import pytest

import tilesim as ts
from tests.gpu import needs
from tests.kernels.evidence import at, found, sites
from tests.ptx.campaign import back
from tilesim import Builder
from tilesim.arith.types import f32
from tilesim.gpu.emit import emit
from tilesim.ir.program import Strict

STRICT = get_args(Strict)


@ts.kernel(warps=1)
def own(
    k: Builder, *, lanes: int = 32, armed: int = 0, awaited: int = 0, read: int = 0,
    rounds: int = 1, fenced: bool = False, made: bool = False, through: bool = False,
) -> None:  # fmt: skip
    """Of the next lane: the barrier that is ``armed`` or ``awaited``, the row that is ``read``.

    Lanes meet once all barriers are ``made``, and once each is ``through`` with its wait.
    """
    rows, out = k.tensor("rows", f32, (32, 4)), k.tensor("out", f32, (32,))
    box, bars = k.shared("box", f32, (32, 4)), k.mbarriers("bars", 32)
    value, lane = k.var("value", 0.0, f32), k.lane_id
    with k.if_(lane < lanes, sync=False):
        k.mbarrier.init(bars[lane], 1)  # made
        if fenced:
            k.fence.mbarrier_init()
        if made:
            k.sync_warp((1 << lanes) - 1)
        bar = bars[(lane + armed) % lanes]
        for turn in range(rounds):
            k.mbarrier.arrive_expect_tx(bar, 16)  # armed
            k.bulk.load(box[lane], rows[lane], bar)  # copied
            k.mbarrier.wait(bars[(lane + awaited) % lanes], turn & 1)  # awaited
            if through:
                k.sync_warp((1 << lanes) - 1)
            k.mem.load(value, box[(lane + read) % lanes, 0])  # read
            k.mem.store(out[lane], value)
            k.fence.proxy_async()


@ts.kernel(warps=1)
def ended(
    k: Builder, *, lanes: int = 32, of: int = 0, made: bool = False, through: bool = False,
    again: str = "no",
) -> None:  # fmt: skip
    """Each lane ends its own barrier, or the next one's, and uses it ``again``: ``late`` after its
    wait, or while a copy is on its way (``early``)."""
    rows, box = k.tensor("rows", f32, (32, 4)), k.shared("box", f32, (32, 4))
    bars, lane = k.mbarriers("bars", 32), k.lane_id
    with k.if_(lane < lanes, sync=False):
        k.mbarrier.init(bars[lane], 1)  # made
        if made:
            k.sync_warp((1 << lanes) - 1)
        k.mbarrier.arrive_expect_tx(bars[lane], 16)
        k.bulk.load(box[lane], rows[lane], bars[lane])  # copied
        if again != "early":
            k.mbarrier.wait(bars[lane], 0)  # awaited
        if through:
            k.sync_warp((1 << lanes) - 1)
        k.mbarrier.inval(bars[(lane + of) % lanes])  # ended
        if again != "no":
            k.mbarrier.init(bars[lane], 1)  # made again
            k.mbarrier.arrive(bars[lane])
            k.mbarrier.wait(bars[lane], 0)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("lanes", [2, 32])
@pytest.mark.parametrize(
    "params",
    [
        {}, {"rounds": 3}, {"fenced": True}, {"read": 1, "through": True},
        {"armed": 1, "awaited": 1, "made": True}, {"awaited": 1, "read": 1, "made": True},
    ],
    ids=str,
)  # fmt: skip
def test_lanes_use_their_own_barriers(lanes: int, params: dict[str, int], strict: Strict) -> None:
    report = ts.check(own.build(lanes=lanes, **params), strict=strict)
    assert report.verdict == "proved", report.findings


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("lanes", [2, 32])
@pytest.mark.parametrize(
    ("params", "use"),
    [
        ({"armed": 1, "awaited": 1}, "armed"), ({"awaited": 1}, "awaited"),
        ({"awaited": 1, "fenced": True}, "awaited"),
    ],
    ids=str,
)  # fmt: skip
def test_a_barrier_that_another_lane_has_made(
    lanes: int, params: dict[str, int], use: str, strict: Strict
) -> None:
    """Nothing orders its initialisation before the use, which may come first."""
    report = ts.check(own.build(lanes=lanes, **params), strict=strict)
    assert report.rules == {"init-visibility"}
    expected = {("warp 0", at(own, f"# {use}")), ("warp 0", at(own, "# made"))}
    assert sites(found(report, "init-visibility")) == expected


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("lanes", [2, 32])
def test_a_row_that_another_lane_has_waited_for(lanes: int, strict: Strict) -> None:
    report = ts.check(own.build(lanes=lanes, read=1), strict=strict)
    assert report.rules == {"race"}
    expected = {("warp 0", at(own, "# read")), ("warp 0", at(own, "# copied"))}
    assert sites(found(report, "race")) == expected


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("lanes", [2, 32])
def test_lanes_end_their_own_barriers(lanes: int, strict: Strict) -> None:
    for right in ({}, {"again": "late"}, {"of": 1, "made": True, "through": True}):
        report = ts.check(ended.build(lanes=lanes, **right), strict=strict)
        assert report.verdict == "proved", report.findings
    early = ts.check(ended.build(lanes=lanes, again="early"), strict=strict)
    assert early.rules == {"barrier-lifetime"}
    expected = {("warp 0", at(ended, "# copied")), ("warp 0", at(ended, "# made again"))}
    assert sites(found(early, "barrier-lifetime")) == expected
    others = ts.check(ended.build(lanes=lanes, of=1, made=True), strict=strict)
    assert others.rules == {"barrier-lifetime"}
    expected = {("warp 0", at(ended, "# awaited")), ("warp 0", at(ended, "# ended"))}
    assert expected in [sites(finding) for finding in others.findings]
    unmade = ts.check(ended.build(lanes=lanes, of=1), strict=strict)
    assert unmade.rules == {"init-visibility"}


@needs.compiler
@pytest.mark.parametrize(
    ("params", "rules"),
    [({}, set()), ({"awaited": 1}, {"init-visibility"}), ({"read": 1}, {"race"})],
    ids=str,
)
def test_the_same_in_ptx(params: dict[str, int], rules: set[str]) -> None:
    report = ts.check(back(emit(own.build(**params))))
    assert report.verdict == ("failed" if rules else "proved")
    assert report.rules == rules
