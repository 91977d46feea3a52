"""Collective instructions with lanes that branched away or have exited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tilesim import Builder, Program, f32, s32, u32
from tilesim.checker import check

from .sites import sites


def build(function: Callable[..., None], **params: Any) -> Program:
    k = Builder("kernel", "sm_100a", 1)
    function(k, **params)
    return k.finish()


@contextmanager
def lanes(k: Builder, which: str) -> Iterator[None]:
    """All lanes; half of them; all while some have exited; all, by a condition that is true."""
    if which == "exited":
        with k.if_(k.lane_id >= 16):
            k.exit()
    match which:
        case "half":
            with k.if_(k.lane_id < 16):
                yield
        case "all, by a condition":
            with k.if_(k.thread_id < 32):
                yield
        case _:
            yield


def tiles(k: Builder, *, which: str, what: str) -> None:
    x = k.shared("x", f32, (32, 32))
    a, b = k.fragment("a", f32, (32, 32)), k.fragment("b", f32, (32, 32))
    row = k.fragment("row", f32, (32, 1))
    k.tile.fill(a, 1)
    k.tile.store(x, a)
    k.sync_warp()
    with k.role("W", 0), lanes(k, which):
        match what:
            case "fill":
                k.tile.fill(b, 0)
            case "load":
                k.tile.load(b, x)
            case "store":
                k.tile.store(x, a)
            case "map":
                k.tile.map(b, "exp", a)
            case "reduce":
                k.tile.reduce(row, "sum", a)


TILES = {
    "fill": "k.tile.fill(b, 0)", "load": "k.tile.load(b, x)", "store": "k.tile.store(x, a)",
    "map": 'k.tile.map(b, "exp", a)', "reduce": 'k.tile.reduce(row, "sum", a)',
}  # fmt: skip


@pytest.mark.parametrize("which", ["half", "exited"])
@pytest.mark.parametrize("what", TILES)
def test_a_tile_is_spread_over_all_lanes(what: str, which: str) -> None:
    report = check(build(tiles, which=which, what=what))
    assert report.verdict == "failed"
    assert sites(report, tiles) == [("participation", {("W", TILES[what])})]
    for right in ("all", "all, by a condition"):
        assert check(build(tiles, which=right, what=what), strict="ptx").verdict == "proved"


def tensor_memory(k: Builder, *, which: str, what: str) -> None:
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    part = k.fragment("part", f32, (32, 32))
    k.tile.fill(part, 0)
    with k.role("W", 0):
        k.tcgen05.alloc(slot, 32)
        k.mem.load(address, slot[0])
        d = k.tcgen05.tensor(address, f32, (32, 32))
        k.tcgen05.st(d, part)  # first
        k.tcgen05.wait_st()  # first
        if what in ("ld", "st", "wait"):
            with lanes(k, which):
                match what:
                    case "ld":
                        k.tcgen05.ld(part, d)
                    case "st":
                        k.tcgen05.st(d, part)
                    case "wait":
                        k.tcgen05.wait_st()
        k.tcgen05.wait_ld()
        k.tcgen05.wait_st()  # last
        with lanes(k, which if what == "dealloc" else "all"):
            k.tcgen05.dealloc(address, 32)


TENSOR_MEMORY = {
    "ld": "k.tcgen05.ld(part, d)", "st": "k.tcgen05.st(d, part)", "wait": "k.tcgen05.wait_st()",
    "dealloc": "k.tcgen05.dealloc(address, 32)",
}  # fmt: skip


@pytest.mark.parametrize("which", ["half", "exited"])
@pytest.mark.parametrize("what", TENSOR_MEMORY)
def test_tensor_memory_is_accessed_by_whole_warps(what: str, which: str) -> None:
    report = check(build(tensor_memory, which=which, what=what))
    assert report.verdict == "failed"
    assert sites(report, tensor_memory) == [("participation", {("W", TENSOR_MEMORY[what])})]
    right = build(tensor_memory, which="all, by a condition", what=what)
    assert check(right, strict="ptx").verdict == "proved"


def masked(k: Builder, *, which: str, mode: Any, mask: int) -> None:
    out, value = k.tensor("out", s32, (32,)), k.var("value", 0)
    with k.role("W", 0), lanes(k, which):
        k.mem.shuffle(value, k.lane_id, k.lane_id, mode, mask=mask)
        k.mem.store(out[k.lane_id], value)


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
def test_a_shuffle_waits_for_the_lanes_of_its_mask(mode: str) -> None:
    """Also where each lane only reads what it may: its own value, or that of the lanes below."""
    line = "k.mem.shuffle(value, k.lane_id, k.lane_id, mode, mask=mask)"
    if mode == "idx":
        for which, mask in (("half", 0xFFFFFFFF), ("half", 0x1FFFF), ("all", 0xFFFF)):
            report = check(build(masked, which=which, mode=mode, mask=mask))
            assert sites(report, masked) == [("participation", {("W", line)})]
        for which, mask in (("half", 0xFFFF), ("exited", 0xFFFF), ("exited", 0xFFFFFFFF)):
            right = build(masked, which=which, mode=mode, mask=mask)
            assert check(right, strict="ptx").verdict == "proved"
    else:
        report = check(build(masked, which="half", mode=mode, mask=0xFFFFFFFF))
        assert sites(report, masked) == [("participation", {("W", line)})]
    assert check(build(masked, which="all", mode=mode, mask=0xFFFFFFFF)).verdict == "proved"


def shuffle(k: Builder, *, which: str, mode: Any, distance: int) -> None:
    out, value = k.tensor("out", s32, (32,)), k.var("value", 0)
    with k.role("W", 0), lanes(k, which):
        k.mem.shuffle(value, k.lane_id, distance, mode)
        k.mem.store(out[k.lane_id], value)


@pytest.mark.parametrize("which", ["half", "exited"])
@pytest.mark.parametrize(
    ("mode", "wrong", "right"), [("idx", 16, 15), ("bfly", 16, 8), ("down", 1, 0), ("down", 16, 0)]
)
def test_a_shuffle_reads_from_lanes_that_execute_it(
    mode: str, wrong: int, right: int, which: str
) -> None:
    report = check(build(shuffle, which=which, mode=mode, distance=wrong))
    assert report.verdict == "failed"
    line = "k.mem.shuffle(value, k.lane_id, distance, mode)"
    assert sites(report, shuffle) == [("participation", {("W", line)})]
    for fixed in (
        build(shuffle, which=which, mode=mode, distance=right),
        build(shuffle, which="all", mode=mode, distance=wrong),
    ):
        assert check(fixed, strict="ptx").verdict == "proved"
