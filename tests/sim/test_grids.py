"""Grids of which one CTA far out is wrong: found at any size, and the right twin is proved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilesim import Builder, Program, bf16, f32, s32, select
from tilesim.checker import Report, check
from tilesim.ir.declarations import Mbarriers
from tilesim.ir.expr import Expr
from tilesim.sim.machine.simulate import Run, Simulation

#: builds a kernel in which something is as it should be, or (true) wrong in one CTA
Make = Callable[[Builder, Expr], None]
ODD = 37
#: what `polled` reads when it waits
FLAG = 0


def launch(grid: int, make: Make, wrong: bool, warps: int = 2) -> Program:
    """``make`` with a condition that holds in CTA 37 only, or in none."""
    k = Builder("grid", warps=warps)
    k.launch(grid=grid)
    make(k, k.cta_x.eq(ODD if wrong else -1))
    return k.finish()


def pair(k: Builder, count: int = 1) -> Mbarriers:
    """Two barriers that expect ``count`` arrivals."""
    b = k.mbarriers("b", 2)
    with k.one_thread():
        k.mbarrier.init(b[0], count)
        k.mbarrier.init(b[1], count)
    k.sync_threads()
    return b


def index(k: Builder, odd: Expr) -> None:
    b = pair(k)
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mbarrier.wait(b[select(odd, 1, 0)], 0)


def arrived(k: Builder, odd: Expr) -> None:
    b = pair(k)
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[select(odd, 1, 0)])
    with k.role("second", 1):
        k.mbarrier.wait(b[0], 0)


def parity(k: Builder, odd: Expr) -> None:
    b = pair(k)
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mbarrier.wait(b[0], 0)
        k.mbarrier.wait(b[1], select(odd, 0, 1))


def arrivals(k: Builder, odd: Expr) -> None:
    b = pair(k, 2)
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0], select(odd, 1, 2))
    with k.role("second", 1):
        k.mbarrier.wait(b[0], 0)


def name(k: Builder, odd: Expr) -> None:
    with k.role("first", 0):
        k.bar.sync(1, 64)
    with k.role("second", 1):
        k.bar.sync(select(odd, 2, 1), 64)


def condition(k: Builder, odd: Expr) -> None:
    b = pair(k)
    with k.role("first", 0), k.one_thread(0), k.if_(odd.eq(0)):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mbarrier.wait(b[0], 0)


def trips(k: Builder, odd: Expr) -> None:
    b = pair(k)
    with k.role("first", 0), k.one_thread(0), k.loop(select(odd, 0, 1)):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mbarrier.wait(b[0], 0)


def carried(k: Builder, odd: Expr) -> None:
    """What differs goes through registers and a loop before it decides."""
    b = pair(k)
    at = k.var("at", 0)
    with k.loop(3):
        k.assign(at, at + select(odd, 1, 0))
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mbarrier.wait(b[at // 3], 0)


def shuffled(k: Builder, odd: Expr) -> None:
    """A lane of a shuffle decides which barrier is waited for."""
    b = pair(k)
    at = k.var("at", 0)
    k.mem.shuffle(at, k.lane_id // 31, select(odd, 31, 0))
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mbarrier.wait(b[at], 0)


def through_lanes(k: Builder, odd: Expr) -> None:
    """So does what a lane holds."""
    b = pair(k)
    at = k.var("at", 0)
    k.mem.shuffle(at, select(odd, 1, 0), 0)
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mbarrier.wait(b[at], 0)


def loaded(k: Builder, odd: Expr) -> None:
    """And a word of shared memory that another address holds."""
    b, words, at = pair(k), k.shared("words", s32, (32,)), k.var("at", 0)
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mem.store(words[k.lane_id], k.lane_id)
        k.sync_warp()
        k.mem.load(at, words[select(odd, 1, 0)])
        k.mbarrier.wait(b[at], 0)


def passed_on(k: Builder, odd: Expr) -> None:
    """Or what was stored there."""
    b, words, at = pair(k), k.shared("words", s32, (32,)), k.var("at", 0)
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mem.store(words[k.lane_id], select(odd, 1, 0))
        k.mem.load(at, words[k.lane_id])
        k.mbarrier.wait(b[at], 0)


WAITS = (
    index, arrived, parity, arrivals, name, condition, trips, carried, shuffled, through_lanes,
    loaded, passed_on,
)  # fmt: skip


@pytest.mark.parametrize("grid", [48, 100])
@pytest.mark.parametrize("make", WAITS)
def test_a_cta_that_hangs_is_found(make: Make, grid: int) -> None:
    right = check(launch(grid, make, wrong=False))
    assert right.verdict == "proved", right
    assert f"all {grid} CTAs" in right.covers
    wrong = check(launch(grid, make, wrong=True))
    assert wrong.verdict == "failed"
    assert wrong.rules == {"deadlock"}, wrong
    assert {p.cta for p in wrong.findings[0].participants} == {ODD}
    assert right.stats.ctas == (48 if grid == 48 else 1)


def shared_slot(k: Builder, odd: Expr) -> None:
    """Two warps write one word each, or the same."""
    words = k.shared("words", s32, (64,))
    first = select(odd, 0, k.warp_id)
    k.mem.store(words[first * 32 + k.lane_id], k.warp_id)


def masked(k: Builder, odd: Expr) -> None:
    """Which lanes of the second warp write next to those of the first."""
    words = k.shared("words", s32, (64,))
    with k.role("first", 0), k.if_(k.lane_id < 16):
        k.mem.store(words[k.lane_id], 1)
    with k.role("second", 1), k.if_(k.lane_id < select(odd, 17, 16)):
        k.mem.store(words[31 - k.lane_id], 1)


def own_words(k: Builder, odd: Expr) -> None:
    """Global addresses may differ between CTAs, but not how those of one CTA overlap."""
    C = k.tensor("C", s32, (128, 64))
    second = select(odd, 0, k.warp_id)
    k.mem.store(C[k.cta_x, second * 32 + k.lane_id], 1)


RACES = (shared_slot, masked, own_words)


@pytest.mark.parametrize("grid", [64, 100])
@pytest.mark.parametrize("make", RACES)
def test_a_cta_that_races_is_found(make: Make, grid: int) -> None:
    right = check(launch(grid, make, wrong=False))
    assert right.verdict == "proved", right
    wrong = check(launch(grid, make, wrong=True))
    assert wrong.verdict == "failed"
    assert wrong.rules == {"race"}, wrong
    assert {p.cta for p in wrong.findings[0].participants} == {ODD}


@pytest.mark.parametrize("grid", [64, 100])
def test_a_cta_that_leaves_the_tensor_is_found(grid: int) -> None:
    def make(k: Builder, odd: Expr) -> None:
        C = k.tensor("C", s32, (grid,))
        with k.one_thread():
            k.mem.store(C[select(odd, grid, k.cta_x)], 1)

    assert check(launch(grid, make, wrong=False)).verdict == "proved"
    wrong = check(launch(grid, make, wrong=True))
    assert wrong.rules == {"out-of-bounds"}
    assert {p.cta for p in wrong.findings[0].participants} == {ODD}


@pytest.mark.parametrize("grid", [64, 100])
def test_a_cta_whose_box_begins_between_chunks_is_found(grid: int) -> None:
    """Nobody writes the tensor: only where the rows of a box begin differs (B37)."""

    def make(k: Builder, odd: Expr) -> None:
        rows, b = k.tensor_map(k.tensor("g", s32, (8, 4 * grid)), (8, 4)), pair(k)
        tile = k.shared("tile", s32, (8, 4), align=128)
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(b[0], 128)
            k.tma.load(rows, tile, (0, k.cta_x * 4 + select(odd, 2, 0)), b[0])
            k.mbarrier.wait(b[0], 0)

    assert check(launch(grid, make, wrong=False)).verdict == "proved"
    wrong = check(launch(grid, make, wrong=True))
    assert wrong.rules == {"out-of-bounds"}
    assert "(B37)" in wrong.findings[0].message
    assert {p.cta for p in wrong.findings[0].participants} == {ODD}


# ------------------------------------------------------------------ two CTAs and the same bytes


def tiles(grid: int, at: Callable[[Builder], Expr]) -> Program:
    """Each CTA stores a tile of 16 rows through tensor maps."""
    k = Builder("tiles", warps=1)
    k.launch(grid=grid)
    C = k.tensor("C", f32, (16 * grid, 32))
    c_map = k.tensor_map(C, (16, 32))
    tile, values = k.shared("tile", f32, (16, 32)), k.fragment("values", f32, (16, 32))
    k.tile.fill(values, 0)
    k.tile.store(tile[...], values)
    k.fence.proxy_async("shared::cta")
    k.sync_warp()
    with k.one_thread():
        k.tma.store(c_map, tile, (at(k) * 16, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    return k.finish()


def words(grid: int, at: Callable[[Builder], Expr]) -> Program:
    """Each CTA stores 64 words, in two warps."""
    k = Builder("words", warps=2)
    k.launch(grid=grid)
    C = k.tensor("C", s32, (64 * grid,))
    k.mem.store(C[at(k) * 64 + k.thread_id], 1)
    return k.finish()


@pytest.mark.parametrize("kernel", [tiles, words])
@pytest.mark.parametrize("grid", [64, 100, 100_000])
def test_two_ctas_that_store_to_the_same_bytes(
    kernel: Callable[[int, Callable[[Builder], Expr]], Program], grid: int
) -> None:
    right = check(kernel(grid, lambda k: k.cta_x))
    assert right.verdict == "proved"
    assert f"all {grid} CTAs" in right.covers
    last = grid - 5
    wrong = check(kernel(grid, lambda k: select(k.cta_x.eq(last), ODD, k.cta_x)))
    assert wrong.verdict == "failed"
    assert wrong.rules == {"race"}
    first = wrong.findings[0]
    assert {p.cta for p in first.participants} == {ODD, last}
    assert len({str(p.loc) for p in first.participants}) == 1
    assert len(first.participants) == 2


@pytest.mark.parametrize("grid", [2, 100])
def test_ctas_that_store_the_same_pixels(grid: int) -> None:
    """Where pixels lie is not told by an offset: beyond 64 clusters nobody has compared them."""
    k = Builder("pixels", warps=2)
    k.launch(grid=grid)
    g, s = k.tensor("g", bf16, (2, 3, 5, 64)), k.shared("s", bf16, (3, 64))
    box = k.tensor_map(g, (3, 64), lower=(0, 0), upper=(-1, 0))
    for pixel in range(3):
        k.mem.store(s[pixel, k.thread_id], 1.0)
    k.fence.proxy_async()
    k.sync_threads()
    with k.if_(k.thread_id.eq(0)):
        k.tma.store(box, s, (0, 0, 1, 0), mode="im2col_no_offs")
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    report = check(k.finish())
    if grid == 2:
        assert report.rules == {"race"}
    else:
        (reason,) = report.reasons
        assert report.verdict == "bounded"
        assert reason.startswith("what cp.async.bulk.tensor.store accesses in g (")


@pytest.mark.parametrize("grid", [64, 1000])
def test_a_cta_that_reads_what_another_writes(grid: int) -> None:
    def program(ahead: int) -> Program:
        k = Builder("stencil", warps=1)
        k.launch(grid=grid)
        C, seen = k.tensor("C", s32, (32 * grid + 64,)), k.var("seen", 0)
        k.mem.store(C[k.cta_x * 32 + k.lane_id], 1)
        k.mem.load(seen, C[select(k.cta_x.eq(ODD), k.cta_x + ahead, k.cta_x) * 32 + k.lane_id])
        return k.finish()

    assert check(program(0)).verdict == "proved"
    wrong = check(program(1))
    assert wrong.rules == {"race"}
    assert {p.cta for p in wrong.findings[0].participants} == {ODD, ODD + 1}
    assert len({str(p.loc) for p in wrong.findings[0].participants}) == 2


@pytest.mark.parametrize("grid", [64, 1000])
@pytest.mark.parametrize("weak", [False, True])
def test_reductions_of_all_ctas_into_one_word(grid: int, weak: bool) -> None:
    k = Builder("sums", warps=1)
    k.launch(grid=grid)
    total = k.tensor("total", s32, (1,))
    with k.one_thread():
        with k.if_(k.cta_x.eq(grid - 3) if weak else k.cta_x < 0):
            k.mem.store(total[0], 0)
        k.mem.atomic(total[0], "add", 1)
    report = check(k.finish())
    if not weak:
        assert report.verdict == "proved"
        return
    assert report.rules == {"race"}
    assert grid - 3 in {p.cta for p in report.findings[0].participants}


def strided(rows: int) -> Program:
    """``rows`` CTAs in one dimension of the grid, 100 in the other; tiles cut off at the edge."""
    k = Builder("strided", warps=1)
    k.launch(grid=(100, rows))
    C = k.tensor("C", s32, (rows * 8 - 3, 100 * 32 - 4))
    c_map = k.tensor_map(C, (8, 32))
    tile, values = k.shared("tile", s32, (8, 32)), k.fragment("values", s32, (8, 32))
    k.tile.fill(values, 0)
    k.tile.store(tile[...], values)
    k.fence.proxy_async("shared::cta")
    k.sync_warp()
    with k.one_thread():
        k.tma.store(c_map, tile, (k.cta_y * 8, k.cta_x * 32))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    return k.finish()


@pytest.mark.parametrize("weak", [False, True])
def test_two_ctas_that_meet_in_several_instructions_are_run_once(
    weak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, run = [], Simulation.run

    def counted(*args: Any, **options: Any) -> Run:
        runs.append(args[3])
        return run(*args, **options)

    monkeypatch.setattr(Simulation, "run", counted)
    k = Builder("several", warps=1)
    k.launch(grid=4000)
    D = k.tensor("D", s32, (1000, 8))
    with k.one_thread():
        for column in range(7):
            k.mem.atomic(D[k.cta_x // 4, column], "add", 1)
        if weak:
            k.mem.store(D[k.cta_x // 4, 7], 1)
        else:
            k.mem.atomic(D[k.cta_x // 4, 7], "add", 1)
    report = check(k.finish())
    assert report.verdict == ("failed" if weak else "proved")
    assert runs[:2] == [[0], [0, 3]], "the first CTA, and the first and the last of a row"
    if weak:
        assert report.rules == {"race"}
        assert {p.cta for p in report.findings[0].participants} == {0, 3}
    else:
        assert len(runs) == 2


def test_tiles_that_are_cut_off_at_the_edge() -> None:
    report = check(strided(7))
    assert report.verdict == "proved"
    assert "all 700 CTAs" in report.covers


# ------------------------------------------------------------------ classes


def persistent(grid: int, tiles: int, wrong: int = -1) -> Program:
    """CTAs take every ``grid``-th tile; two take the same one if ``wrong`` is a CTA."""
    k = Builder("persistent", warps=1)
    k.launch(grid=grid)
    C = k.tensor("C", s32, (tiles * 32 + 32,))
    with k.loop(k.cta_x, tiles, grid, name="tile") as tile:
        k.mem.store(C[select(k.cta_x.eq(wrong), tile + 1, tile) * 32 + k.lane_id], 1)
    return k.finish()


def test_persistent_ctas_with_different_numbers_of_tiles_are_two_classes() -> None:
    report = check(persistent(100, 1050))
    assert report.verdict == "proved"
    assert "all 100 CTAs, of which 2 were run" in report.covers
    assert report.stats.ctas == 2
    wrong = check(persistent(100, 1050, wrong=60))
    assert wrong.rules == {"race"}
    assert {p.cta for p in wrong.findings[0].participants} == {60, 61}


def test_a_class_for_each_cta_is_all_of_them_or_no_proof() -> None:
    def triangle(grid: int, work: int) -> Report:
        k = Builder("triangle", warps=1)
        k.launch(grid=grid)
        with k.loop(k.cta_x + 1), k.loop(work):
            k.sync_threads()
        return check(k.finish())

    small = triangle(100, 1)
    assert small.verdict == "proved"
    assert small.stats.ctas == 100
    large = triangle(2000, 10)
    assert large.verdict == "bounded"
    assert "differ" in large.reasons[0]
    assert "test_grids.py" in large.reasons[0]
    assert "i.stop" in large.reasons[0]


def seldom(k: Builder, odd: Expr) -> None:
    """What the CTA waits for depends on who draws first; it is as elsewhere in the timed run."""
    b, drawn, ticket = pair(k), k.shared("drawn", s32, (1,)), k.var("ticket", 0)
    with k.one_thread():
        k.mem.store(drawn[0], 0)
    k.sync_threads()
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
        k.mem.atomic(drawn[0], "add", 1, result=ticket, scope="cta")
    with k.role("second", 1), k.if_(k.lane_id.eq(0)):
        k.mem.atomic(drawn[0], "add", 1, result=ticket, scope="cta")
        with k.if_(ticket.eq(1)):
            k.mbarrier.wait(b[select(odd, 1, 0)], 0)


def polled(k: Builder, odd: Expr) -> None:
    """And on whether a flag has been set, which exploration finds out."""
    b, flag, seen = pair(k), k.shared("flag", s32, (1,)), k.var("seen", 0)
    with k.one_thread():
        k.mem.store(flag[0], 0)
    k.sync_threads()
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
        k.mem.store(flag[0], 1, sem="relaxed")
    with k.role("second", 1), k.if_(k.lane_id.eq(0)):
        k.mem.load(seen, flag[0], sem="relaxed")
        with k.if_(seen.eq(FLAG)):
            k.mbarrier.wait(b[select(odd, 1, 0)], 0)


@pytest.mark.parametrize("grid", [64, 100])
def test_a_cta_that_differs_in_other_schedules_only(grid: int) -> None:
    assert check(launch(grid, seldom, wrong=False)).verdict in ("proved", "exhausted")
    wrong = check(launch(grid, seldom, wrong=True))
    assert wrong.rules == {"deadlock"}
    assert {p.cta for p in wrong.findings[0].participants} == {ODD}


@pytest.mark.parametrize("flag", [0, 1])
def test_exploration_follows_the_others_as_well(flag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sim.test_grids.FLAG", flag)
    right = check(launch(100, polled, wrong=False))
    assert right.verdict == "exhausted"
    assert "all 100 CTAs, of which 1 were run" in right.covers
    wrong = check(launch(100, polled, wrong=True))
    assert wrong.verdict in ("failed", "bounded")


@pytest.mark.parametrize("wrong", [False, True])
def test_given_contents_that_steer_are_compared(wrong: bool) -> None:
    k = Builder("table", warps=2)
    k.launch(grid=500)
    X, at = k.tensor("X", s32, (500,)), k.var("at", 0)
    b = k.mbarriers("b", 2)
    with k.one_thread():
        k.mbarrier.init(b[0], 1)
        k.mbarrier.init(b[1], 1)
    k.sync_threads()
    k.mem.load(at, X[k.cta_x])
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mbarrier.wait(b[at], 0)
    contents = np.zeros(500, np.int32)
    contents[411] = wrong
    report = check(k.finish(), inputs={"X": contents})
    assert report.verdict == ("failed" if wrong else "proved")
    if wrong:
        assert {p.cta for p in report.findings[0].participants} == {411}
