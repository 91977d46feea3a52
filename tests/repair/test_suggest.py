"""Repairs of small kernels, each with one mistake: the first one suggested is the known fix."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import tilesim as ts
from tests.kernels.variants import numbers_drawn
from tilesim.ir.mir import Mir
from tilesim.ir.ops.mbarrier import MbarrierInit
from tilesim.ir.program import Role
from tilesim.loader import load_one
from tilesim.repair import Repairs, Wanted
from tilesim.repair.preservation import Work, without_waits
from tilesim.sim.observers.timeline import record
from tilesim.transforms.lower import lower
from tilesim.transforms.rewrite import edited, statements

#: enough for all of these many times over: the first repair does not depend on it
TIME = timedelta(minutes=10)
ROWS, COLUMNS, STAGES, TILES = 16, 32, 2, 4

EXAMPLES = Path(__file__).parents[2] / "examples"


@ts.kernel(warps=2)
def ring(k: ts.Builder, *, mistake: str = "") -> None:
    """A producer warp copies tiles into a ring, a consumer warp negates them and stores them."""
    X = k.tensor("X", ts.f32, (TILES * ROWS, COLUMNS))
    Y = k.tensor("Y", ts.f32, (TILES * ROWS, COLUMNS))
    x_map, y_map = k.tensor_map(X, (ROWS, COLUMNS)), k.tensor_map(Y, (ROWS, COLUMNS))
    buffer = k.shared("buffer", ts.f32, (STAGES, ROWS, COLUMNS))
    staging = k.shared("staging", ts.f32, (ROWS, COLUMNS))
    full, empty = k.mbarriers("full", STAGES), k.mbarriers("empty", STAGES)
    tile = k.fragment("tile", ts.f32, (ROWS, COLUMNS))
    with k.one_thread():
        for n in range(STAGES):
            k.mbarrier.init(full[n], 2 if mistake == "count" else 1)
            k.mbarrier.init(empty[n], 1)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(TILES) as i:
        stage, phase = i % STAGES, (i // STAGES) & 1
        k.mbarrier.wait(empty[stage], phase if mistake == "parity" else phase ^ 1)
        if mistake == "plain arrive":
            k.mbarrier.arrive(full[stage])
        elif mistake == "no arrival":
            k.mbarrier.expect_tx(full[stage], x_map.box_bytes)
        else:
            bytes_ = x_map.box_bytes * 2 if mistake == "bytes" else x_map.box_bytes
            slot = (i + 1) % STAGES if mistake == "slot" else stage
            k.mbarrier.arrive_expect_tx(full[slot], bytes_)
        k.tma.load(x_map, buffer[stage], (i * ROWS, 0), full[stage])
    with k.role("consumer", 1), k.loop(TILES - 1 if mistake == "trips" else TILES) as i:
        stage, phase = i % STAGES, (i // STAGES) & 1
        if mistake != "wait":
            k.mbarrier.wait(full[stage], 0 if mistake == "stuck" else phase)
        k.tile.load(tile, buffer[stage])
        k.fence.proxy_async("shared::cta")
        with k.elected():
            if mistake != "arrive":
                k.mbarrier.arrive(empty[stage])
            if mistake == "twice":
                k.mbarrier.arrive(empty[stage])
        k.tile.map(tile, "neg", tile)
        k.tile.store(staging, tile)
        if mistake != "fence":
            k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            k.tma.store(y_map, staging, (i * ROWS, 0))
            if mistake != "commit":
                k.bulk.commit_group()
            k.bulk.wait_group(1 if mistake == "pending" else 0)
        k.sync_warp()


FIXES = {
    "count": "count 1 instead of 2 in mbarrier.init",
    "parity": "phase ((i // 2) & 1) ^ 1 instead of (i // 2) & 1 in mbarrier.wait",
    "stuck": "phase (i_1 // 2) & 1 instead of 0 in mbarrier.wait",
    "bytes": "bytes 2048 instead of 4096 in mbarrier.arrive.expect_tx",
    "slot": "barrier full[i % 2] instead of full[(i + 1) % 2] in mbarrier.arrive.expect_tx",
    "plain arrive": "mbarrier.arrive.expect_tx of 2048 bytes instead of mbarrier.arrive",
    "no arrival": "mbarrier.arrive.expect_tx of 2048 bytes instead of mbarrier.expect_tx",
    "arrive": "mbarrier.arrive on empty[i_1 % 2]",
    "twice": "mbarrier.arrive once, not twice",
    "wait": "mbarrier.wait on full[i_1 % 2] parity (i_1 // 2) & 1",
    "fence": "fence.proxy.async.shared::cta after tile.store",
    "commit": "cp.async.bulk.commit_group after cp.async.bulk.tensor.store",
    "pending": "pending 0 instead of 1 in cp.async.bulk.wait_group",
    "trips": "i_1 up to 4 instead of 3",
}


#: the source line as it should be, where that can be said
PATCHES = {
    "count": "k.mbarrier.init(full[n], 1)",
    "parity": ('k.mbarrier.wait(empty[stage], (phase if mistake == "parity" else phase ^ 1) ^ 1)'),
    "bytes": "k.mbarrier.arrive_expect_tx(full[slot], 2048)",
    "slot": "k.mbarrier.arrive_expect_tx(full[i % 2], bytes_)",
    "plain arrive": "k.mbarrier.arrive_expect_tx(full[stage], 2048)",
    "no arrival": "k.mbarrier.arrive_expect_tx(full[stage], x_map.box_bytes)",
    "twice": "pass",
    "fence": 'k.tile.store(staging, tile)\nk.fence.proxy_async("shared::cta")',
    "commit": "k.tma.store(y_map, staging, (i * ROWS, 0))\nk.bulk.commit_group()",
    "pending": "k.bulk.wait_group(0)",
}


def suggested(program: ts.Program | Mir) -> Repairs:
    report = ts.check(program, suggest=TIME)
    assert report.verdict == "failed"
    assert report.repairs is not None
    return report.repairs


@pytest.mark.parametrize("mistake", FIXES)
def test_the_known_fix_is_suggested_first(mistake: str) -> None:
    assert ts.check(ring.build()).verdict == "proved"
    repairs = suggested(ring.build(mistake=mistake))
    first = repairs.found[0]
    assert first.what.startswith(FIXES[mistake])
    assert first.verdict == "proved"
    assert ts.check(first.program).verdict == "proved"
    assert repairs.ended
    patches = [c.patch for c in first.changes if c.patch is not None]
    text = "\n".join(line.strip() for patch in patches for line in patch.new)
    assert PATCHES.get(mistake, text) == text


def test_nothing_is_looked_for_unless_asked_or_if_nothing_fails() -> None:
    assert ts.check(ring.build(mistake="count")).repairs is None
    assert ts.check(ring.build(), suggest=TIME).repairs is None


@pytest.mark.parametrize("mistake", ["count", "fence"])
def test_machine_code_is_mended_too(mistake: str) -> None:
    report = ts.check(lower(ring.build(mistake=mistake)), suggest=TIME)
    assert report.repairs is not None
    first = report.repairs.found[0]
    assert first.what.startswith(FIXES[mistake])
    assert ts.check(first.program).verdict == "proved"


def test_what_computes_something_else_is_no_repair() -> None:
    program = ring.build(mistake="count")
    wanted = Wanted(timedelta(seconds=2), numbers={}, same=lambda outputs: False)
    report = ts.check(program, suggest=wanted)
    assert report.repairs is not None
    assert report.repairs.found == ()
    assert "edits tried" in str(report.repairs)


@ts.kernel(warps=2)
def starved(k: ts.Builder) -> None:
    """Nobody ever writes what the reader waits for and stores."""
    x, Y = k.shared("x", ts.s32, (1,)), k.tensor("Y", ts.s32, (1,))
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 2)
    k.sync_threads()
    with k.role("writer", 0), k.elected():
        k.mbarrier.arrive(full)
    with k.role("reader", 1), k.elected():
        value = k.var("value")
        k.mbarrier.wait(full, 0)
        k.mem.load(value, x[0])
        k.mem.store(Y[0], value)


def test_nothing_is_suggested_where_the_data_is_missing() -> None:
    report = ts.check(starved.build(), suggest=timedelta(seconds=3))
    assert report.repairs is not None
    assert report.repairs.found == ()


def test_work_is_what_is_stored_and_how_often_it_is_moved() -> None:
    program = ring.build(mistake="count")
    work = Work(program, "practice", {})
    assert work.is_done_by(ring.build(), frozenset())
    assert not work.is_done_by(ring.build(mistake="trips"), frozenset({"trips"}))
    places = enumerate(statements(program))
    roles = [n for n, what in places if isinstance(what, Role) and what.name == "consumer"]
    assert not work.is_done_by(edited(program, {roles[0]: ()}), frozenset())


@ts.kernel(warps=1)
def copied(k: ts.Builder, *, dtype: str = "s32", waits: bool = True) -> None:
    """Copies 2,048 numbers; without the wait, what was in shared memory before."""
    X, Y = k.tensor("X", dtype, (2048,)), k.tensor("Y", dtype, (2048,))
    tile, full = k.shared("tile", dtype, (2048,)), k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.arrive_expect_tx(full, tile.nbytes)
        k.bulk.load(tile, X, full)
        if waits:
            k.mbarrier.wait(full, 0)
        k.bulk.store(Y, tile)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@pytest.mark.parametrize("dtype", ["s32", "u8", "bf16", "e4m3"])
def test_numbers_that_were_there_before_are_stored_all_the_same(dtype: str) -> None:
    right, wrong = copied.build(dtype=dtype), copied.build(dtype=dtype, waits=False)
    assert Work(wrong, "practice", {}).is_done_by(right, frozenset())


def test_the_example_of_the_readme_is_mended() -> None:
    wrong = load_one(str(EXAMPLES / "pipeline.py")).build()
    assert isinstance(wrong, ts.Program)
    best = suggested(wrong).found[0]
    assert best.what == "phase (i_1 // 2) & 1 instead of i_1 & 1 in mbarrier.wait"


#: what is written in the example, what instead, and the line of the first repair that undoes it
BROKEN = {
    "count": ("(empty[stage], 4)", "(empty[stage], 5)", "k.mbarrier.init(empty[stage], 4)"),
    "less": ("(empty[stage], 4)", "(empty[stage], 3)", "k.mbarrier.init(empty[stage], 4)"),
    "none": ("(full[stage], 1)", "(full[stage], 2)", "k.mbarrier.init(full[stage], 1)"),
    "bytes": ("x_map.box_bytes)", "x_map.box_bytes + 1)",
              "k.mbarrier.arrive_expect_tx(full[slot], 8192)"),
    "no init of those who arrive":
        ("k.mbarrier.init(empty[stage], 4)", "",
         "k.mbarrier.init(full[stage], 1)\nk.mbarrier.init(empty[stage], 4)"),
    "no init of copies":
        ("k.mbarrier.init(full[stage], 1)", "",
         "k.mbarrier.init(empty[stage], 4)\nk.mbarrier.init(full[stage], 1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_the_patched_text_is_proved(tmp_path: Path, name: str) -> None:
    right, wrong, line = BROKEN[name]
    file = tmp_path / "pipeline.py"
    text = (
        (EXAMPLES / "pipeline.py").read_text().replace("fixed: bool = False", "fixed: bool = True")
    )
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong))
    program = load_one(str(file)).build()
    assert isinstance(program, ts.Program)
    (patch,) = suggested(program).found[0].patches
    assert [new.strip() for new in patch.new] == line.splitlines()
    lines = file.read_text().splitlines()
    lines[patch.first - 1 : patch.last] = patch.new
    mended = tmp_path / "mended.py"
    mended.write_text("\n".join(lines))
    again = load_one(str(mended)).build()
    assert isinstance(again, ts.Program)
    assert ts.check(again).verdict == "proved"


def test_a_slot_that_is_not_initialised_is_like_the_others() -> None:
    whole = lower(ring.build())
    (last,) = [
        n for n, i in enumerate(whole.code)
        if isinstance(i.what, MbarrierInit) and f"{i.what.mbar}" == "empty[1]"
    ]  # fmt: skip
    best = suggested(edited(whole, {last: ()})).found[0]
    assert (best.what, best.verdict) == ("mbarrier.init of empty with count 1", "proved")
    assert best.changes[0].after[-1] == "mbarrier.init empty[1], 1"


def test_an_arrival_by_one_lane_is_shown_whole(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    text = (
        (EXAMPLES / "pipeline.py").read_text().replace("fixed: bool = False", "fixed: bool = True")
    )
    file.write_text(text.replace("k.mbarrier.arrive(empty[slot])", "pass"))
    program = load_one(str(file)).build()
    assert isinstance(program, ts.Program)
    best = suggested(program).found[0]
    at = next(n for n, line in enumerate(text.splitlines(), 1) if "arrive(empty" in line) - 1
    by = "mbarrier.arrive on empty[i_1 % 2] by one lane"
    assert best.what == f"{by} after the block at pipeline.py:{at}"
    (change,) = best.changes
    assert change.after[1].startswith("elect.sync")
    assert change.after[2].startswith("if elected")
    assert change.after[3].strip() == "mbarrier.arrive empty[i_1 % 2]"


@ts.kernel(warps=1)
def followed(k: ts.Builder) -> None:
    """Reads what the grid before computes, which may not have ended."""
    X, Y = k.tensor("X", ts.s32, (32,), dependent=True), k.tensor("Y", ts.s32, (32,))
    value = k.var("value")
    k.mem.load(value, X[k.lane_id])
    k.mem.store(Y[k.lane_id], value)


def test_the_wait_for_the_grid_before_is_suggested() -> None:
    best = suggested(followed.build()).found[0]
    assert best.what == "griddepcontrol.wait before ld"
    (change,) = best.changes
    assert change.patch is not None
    added = [line.strip() for line in change.patch.new if line not in change.patch.old]
    assert added == ["k.griddep.wait()"]


@ts.kernel(warps=2)
def tile_of_a_counter(k: ts.Builder, *, synced: bool = False, taken: int = 4) -> None:
    """A thread of the second warp draws the number of a tile, which all threads store."""
    k.launch(grid=2)
    Y, drawn = k.tensor("Y", ts.s32, (4, 64)), k.tensor("drawn", ts.s32, (1,))
    number, tile = k.shared("number", ts.s32, (1,)), k.var("tile")
    with k.role("draw", 1), k.elected():
        k.mem.atomic(drawn[0], "add", 1, result=tile)
        k.mem.store(number[0], tile)
    if synced:
        k.sync_threads()
    k.mem.load(tile, number[0])
    with k.if_(tile < taken):
        k.mem.store(Y[tile, k.thread_id], tile)


def test_a_counter_begins_with_what_it_does_in_a_check() -> None:
    """Were it another number, other tiles would be stored than those without any wait."""
    best = suggested(tile_of_a_counter.build()).found[0]
    assert (best.what, best.verdict) == ("barrier.sync before ld", "proved")
    (patch,) = best.patches
    assert [*map(str.strip, patch.new)] == ["k.bar.sync(0)", "k.mem.load(tile, number[0])"]
    work = Work(tile_of_a_counter.build(), "practice", {})
    assert work.is_done_by(tile_of_a_counter.build(synced=True), frozenset({"barrier"}))
    assert not work.is_done_by(
        tile_of_a_counter.build(synced=True, taken=0), frozenset({"barrier"})
    )


def test_what_does_not_end_without_its_waits_is_cut_off() -> None:
    """The readers poll one slot, in which the last number may never come."""
    program = numbers_drawn.build(fault="slot")
    recording = record(without_waits(program), steps=1_000)
    assert "step limit" in recording.cut_off
