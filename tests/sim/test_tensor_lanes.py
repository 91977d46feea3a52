"""Lanes of a warp that each issue to the tensor core: a commit follows its own lane's operations
(G26), and nothing orders those of different lanes (G19, G23)."""

from __future__ import annotations

from typing import Any, get_args

import pytest

import tilesim as ts
from tests.gpu import needs
from tests.kernels.evidence import at, sites
from tests.ptx.campaign import back
from tilesim import Builder
from tilesim.arith.types import bf16, f32, u32
from tilesim.gpu.emit import emit
from tilesim.ir.declarations import View
from tilesim.ir.expr import Operand
from tilesim.ir.program import Strict

ROWS, COLUMNS, DEPTH = 128, 32, 16
STRICT = get_args(Strict)


def _matrices(k: Builder, bars: ts.Mbarriers, count: int) -> tuple[View, View]:
    """Both operands, which two lanes write, and ``count`` barriers of one arrival."""
    a = k.shared("sA", bf16, (ROWS, DEPTH), swizzle=32)
    b = k.shared("sB", bf16, (COLUMNS, DEPTH), swizzle=32)
    with k.loop(ROWS // 32) as i, k.loop(DEPTH) as j:
        k.mem.store(a[i * 32 + k.lane_id, j], 1)
        with k.if_(i.eq(0)):
            k.mem.store(b[k.lane_id, j], 1)
    k.fence.proxy_async()
    with k.one_thread():
        for n in range(count):
            k.mbarrier.init(bars[n], 1)
    return a[:], b[:]


def _allocated(k: Builder, columns: int) -> Operand:
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    k.tcgen05.alloc(slot, columns)
    k.sync_threads()
    k.mem.load(address, slot[0])
    return address


@ts.kernel(target="sm_100a", warps=1)
def each(
    k: Builder, *, lanes: int = 2, by: str = "branch", awaited: str = "all", apart: bool = True,
    met: bool = False, fenced: bool = True, refilled: bool = False, together: bool = True,
) -> None:  # fmt: skip
    """Each lane multiplies and commits to its own mbarrier, in a ``branch`` of its own, a turn of a
    ``loop``, or all by one ``instruction``.

    The warp waits for ``all`` of them, or for one; or each lane waits for its ``own``. ``apart``:
    into columns of their own; else the second adds to what the first has computed, in a branch that
    it enters when they have ``met`` and ``fenced``. ``refilled``: A is written before the others.
    ``together``: lanes that have each waited for their own meet before the columns are freed.
    """
    bars = k.mbarriers("bars", lanes)
    a, b = _matrices(k, bars, lanes)
    address = _allocated(k, COLUMNS * lanes)

    def multiplies(number: Operand, *, more: bool = False) -> None:
        where = address + COLUMNS * number if apart else address
        d = k.tcgen05.tensor(where, f32, (ROWS, COLUMNS), name="d")
        if fenced:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, a, b, accumulate=int(more and not apart))  # issued
        k.tcgen05.commit(bars[number])
        if awaited == "own":
            k.mbarrier.wait(bars[number], 0)
            k.tcgen05.fence_after_thread_sync()

    if by == "instruction":
        with k.if_(k.lane_id < lanes, sync=False):
            multiplies(k.lane_id)
    elif by == "loop":
        with k.loop(lanes) as i, k.if_(k.lane_id.eq(i), sync=False):
            multiplies(i)
    else:
        for n in range(lanes):
            with k.if_(k.lane_id.eq(n), sync=False):
                multiplies(n, more=n > 0)
            if met:
                k.sync_warp()
    for n in range(lanes):
        if awaited in ("all", str(n)):
            k.mbarrier.wait(bars[n], 0)
    if awaited == "own" and together:
        k.sync_warp()
    k.tcgen05.fence_after_thread_sync()
    if refilled:
        k.sync_warp()
        with k.one_thread():
            k.mem.store(a[0, 0], 2)  # refilled
        for n in range(lanes):
            k.mbarrier.wait(bars[n], 0)
        k.tcgen05.fence_after_thread_sync()
    k.tcgen05.dealloc(address, COLUMNS * lanes)  # freed


@ts.kernel(target="sm_100a", warps=1)
def copied(
    k: Builder, *, awaited: str = "all", apart: bool = True, second: int = 1, known: bool = False
) -> None:
    """Lane 0 copies into tensor memory and lane ``second``, maybe once that is ``known``, too."""
    bars = k.mbarriers("bars", 2)
    rows = k.shared("rows", u32, (128, 4))
    with k.loop(4) as i, k.loop(4) as j:
        k.mem.store(rows[i * 32 + k.lane_id, j], 0)
    k.fence.proxy_async()
    with k.one_thread():
        k.mbarrier.init(bars[0], 1)
        k.mbarrier.init(bars[1], 1)
    address = _allocated(k, COLUMNS)
    for n, lane in enumerate((0, second)):
        d = k.tcgen05.tensor(address + 4 * n * apart, u32, (128, 4), name="d")
        with k.if_(k.lane_id.eq(lane), sync=False):
            if n and known:
                k.mbarrier.wait(bars[0], 0)
                k.tcgen05.fence_after_thread_sync()
            k.tcgen05.cp(d, rows, "128x128b")  # issued
            k.tcgen05.commit(bars[n])
    for n in range(2):
        if awaited in ("all", str(n)):
            k.mbarrier.wait(bars[n], 0)
    k.tcgen05.fence_after_thread_sync()
    k.tcgen05.dealloc(address, COLUMNS)  # freed


#: of commits that nothing waits for
AT_EXIT: dict[Strict, set[str]] = {"practice": set(), "ptx": {"barrier-lifetime"}}
RIGHT: list[dict[str, Any]] = [
    {}, {"lanes": 4}, {"awaited": "own"}, {"met": True}, {"apart": False, "met": True},
    {"by": "loop"}, {"by": "instruction"}, {"by": "instruction", "lanes": 4, "awaited": "own"},
    {"by": "loop", "refilled": True},
]  # fmt: skip


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("params", RIGHT, ids=str)
def test_each_commit_follows_its_own_lane(params: dict[str, Any], strict: Strict) -> None:
    report = ts.check(each.build(**params), strict=strict)
    assert report.verdict == "proved", report.findings


def test_each_lane_knows_by_the_text_what_the_others_have_waited_for() -> None:
    """The twins, in which the lanes have met, are above."""
    program = each.build(awaited="own", together=False)
    assert ts.check(program).verdict == "proved"
    report = ts.check(program, strict="ptx")
    assert report.rules == {"tmem-lifetime"}
    freed = {("warp 0", at(each, "# freed")), ("warp 0", at(each, "# issued"))}
    assert sites(report.findings[0]) == freed


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("awaited", ["0", "1", "none"])
@pytest.mark.parametrize("by", ["branch", "loop", "instruction"])
def test_a_wait_for_one_lane_is_none_for_another(by: str, awaited: str, strict: Strict) -> None:
    report = ts.check(each.build(by=by, awaited=awaited), strict=strict)
    assert report.rules == {"tmem-lifetime"} | AT_EXIT[strict]
    freed = {("warp 0", at(each, "# freed")), ("warp 0", at(each, "# issued"))}
    lifetime = [one for one in report.findings if one.rule == "tmem-lifetime"]
    assert all(sites(finding) == freed for finding in lifetime)
    columns = {"0": ["32..63"], "1": ["0..31"], "none": ["0..31", "32..63"]}[awaited]
    for finding, expected in zip(lifetime, columns, strict=False):
        assert f"columns {expected})" in finding.message


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("awaited", ["0", "1"])
def test_an_operand_that_another_lane_still_reads(awaited: str, strict: Strict) -> None:
    report = ts.check(each.build(by="loop", awaited=awaited, refilled=True), strict=strict)
    assert report.rules == {"race"}
    expected = {("warp 0", at(each, "# refilled")), ("warp 0", at(each, "# issued"))}
    assert sites(report.findings[0]) == expected


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("by", ["branch", "instruction"])
def test_lanes_that_add_to_the_same_columns(by: str, strict: Strict) -> None:
    """The pipeline keeps the order of one thread: of two, a meeting and the fences make it."""
    report = ts.check(each.build(by=by, apart=False), strict=strict)
    assert "tcgen05-order" in report.rules
    assert sites(report.findings[0]) == {("warp 0", at(each, "# issued"))}


def test_lanes_that_meet_and_do_not_fence() -> None:
    program = each.build(apart=False, met=True, fenced=False)
    report = ts.check(program)
    assert report.verdict == "proved"
    assert "U20" in {leaning.name for leaning in report.leanings}
    strict = ts.check(program, strict="ptx")
    assert strict.rules == {"tcgen05-order"}
    assert sites(strict.findings[0]) == {("warp 0", at(each, "# issued"))}


@pytest.mark.parametrize("strict", STRICT)
def test_copies_by_two_lanes(strict: Strict) -> None:
    for right in ({}, {"apart": False, "known": True}):
        report = ts.check(copied.build(**right), strict=strict)
        assert report.verdict == "proved", report.findings
    for awaited in ("0", "1"):
        early = ts.check(copied.build(awaited=awaited), strict=strict)
        assert early.rules == {"tmem-lifetime"} | AT_EXIT[strict]
        freed = {("warp 0", at(copied, "# freed")), ("warp 0", at(copied, "# issued"))}
        assert sites(early.findings[0]) == freed
    same = ts.check(copied.build(apart=False), strict=strict)
    assert same.rules == {"tcgen05-order"}


@needs.compiler
@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("by", ["branch", "loop", "instruction"])
def test_the_same_in_ptx(by: str, strict: Strict) -> None:
    assert ts.check(back(emit(each.build(by=by))), strict=strict).verdict == "proved"
    wrong = ts.check(back(emit(each.build(by=by, awaited="1"))), strict=strict)
    assert wrong.rules == {"tmem-lifetime"} | AT_EXIT[strict]
