"""Rows of a tile that a kernel neither fills nor stores are not read in any way that counts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.mutate import line
from tilesim import Builder, bf16, ds, f32, kernel
from tilesim.checker import check
from tilesim.ir.program import Strict
from tilesim.sim.machine.simulate import simulate

STRICT: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=4)
def tail(
    k: Builder, *, rows: int = 40, stores: int = 40, fills: bool = False, sums: bool = False
) -> None:
    """``rows`` of 64 rows are copied in, all are scaled, ``stores`` of them are copied out."""
    X, Y = k.tensor("X", f32, (rows, 32)), k.tensor("Y", f32, (64, 32))
    tile, done = k.shared("tile", f32, (64, 32)), k.shared("done", f32, (64, 32))
    full, part = k.mbarriers("full"), k.fragment("part", f32, (16, 32))
    column = k.fragment("column", f32, (16, 1))
    with k.one_thread():
        k.mbarrier.init(full, 1)
    if fills:
        k.tile.fill(part, 0.0)
        k.tile.store(tile[ds(k.warp_id * 16, 16)], part)
        k.fence.proxy_async()
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, rows * 128)
        k.bulk.load(tile[0:rows], X, full)
    k.mbarrier.wait(full, 0)
    k.tile.load(part, tile[ds(k.warp_id * 16, 16)])
    k.tile.map(part, "exp", part)
    if sums:
        k.tile.reduce(column, "sum", part)
        k.tile.zip(part, "div", part, column)
    k.tile.store(done[ds(k.warp_id * 16, 16)], part)
    k.fence.proxy_async()
    k.sync_threads()
    with k.one_thread():
        k.bulk.store(Y[0:stores], done[0:stores])
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("sums", [False, True])
def test_rows_that_are_not_stored_need_not_be_filled(sums: bool, strict: Strict) -> None:
    assert check(tail.build(sums=sums), strict=strict).verdict == "proved"
    assert check(tail.build(sums=sums, fills=True), strict=strict).verdict == "proved"
    x = np.ones((40, 32), dtype=np.float32)
    assert simulate(tail.build(sums=sums), {"X": x}, strict=strict).findings == ()


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("stores", [41, 64])
def test_a_row_that_is_stored_must_be_filled(stores: int, strict: Strict) -> None:
    report = check(tail.build(stores=stores), strict=strict)
    assert report.verdict == "failed"
    (finding,) = report.findings
    assert finding.rule == "uninitialised-read"
    assert {p.loc.line for p in finding.participants} == {line(tail, "k.tile.load(part, tile[")}
    assert check(tail.build(stores=stores, fills=True), strict=strict).verdict == "proved"


@kernel(warps=4)
def product(k: Builder, *, stores: int = 32) -> None:
    """A wgmma of which half of the rows of A are filled; ``stores`` rows of the result are kept."""
    A, B = k.tensor("A", bf16, (32, 64)), k.tensor("B", bf16, (32, 64))
    C = k.tensor("C", f32, (64, 32))
    a = k.shared("a", bf16, (64, 64), swizzle=128)
    b = k.shared("b", bf16, (32, 64), swizzle=128)
    out = k.shared("out", f32, (64, 32))
    full, acc = k.mbarriers("full"), k.fragment("acc", f32, (64, 32), "warpgroup")
    a_map, b_map = k.tensor_map(A, (32, 64), swizzle=128), k.tensor_map(B, (32, 64), swizzle=128)
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, a[0:32], (0, 0), full)
        k.tma.load(b_map, b, (0, 0), full)
    k.mbarrier.wait(full, 0)
    k.wgmma.fence()
    for part in range(4):
        columns = slice(16 * part, 16 * part + 16)
        k.wgmma.mma_async(acc, a[:, columns], b[:, columns], accumulate=part > 0)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)
    k.tile.store(out, acc)
    k.fence.proxy_async()
    k.sync_threads()
    with k.one_thread():
        k.bulk.store(C[0:stores], out[0:stores])
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@pytest.mark.parametrize("strict", STRICT)
def test_rows_of_a_product(strict: Strict) -> None:
    assert check(product.build(), strict=strict).verdict == "proved"
    report = check(product.build(stores=40), strict=strict)
    assert report.verdict == "failed"
    assert {f.rule for f in report.findings} == {"uninitialised-read"}
    assert {p.loc.line for f in report.findings for p in f.participants} == {
        line(product, "k.wgmma.mma_async(")
    }


@kernel(warps=1)
def never_filled(k: Builder, *, fills: bool = False) -> None:
    """A tile that nothing fills at all is read, and nothing comes of it."""
    tile, part = k.shared("tile", f32, (16, 32)), k.fragment("part", f32, (16, 32))
    if fills:
        k.tile.fill(part, 0.0)
        k.tile.store(tile, part)
        k.sync_warp()
    k.tile.load(part, tile)


@pytest.mark.parametrize("strict", STRICT)
def test_a_tile_that_is_never_filled(strict: Strict) -> None:
    report = check(never_filled.build(), strict=strict)
    assert [f.rule for f in report.findings] == ["uninitialised-read"]
    assert check(never_filled.build(fills=True), strict=strict).verdict == "proved"
