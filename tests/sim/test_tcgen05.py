"""Tensor memory and tcgen05: numbers against NumPy, and every detector with its fixed twin."""

from __future__ import annotations

from linecache import getline
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilesim import Builder, bf16, e4m3, f16, f32, s8, s32, tf32, u8
from tilesim.arith.tensor_cores import E2M1
from tilesim.arith.types import DType
from tilesim.checker import Report, check
from tilesim.ir.ops.tcgen05_mma import Kind, LoadShape
from tilesim.sim.machine.simulate import simulate

from .tensor_cores import (
    RNG,
    Pair,
    allocate,
    barrier,
    build,
    copied,
    dump,
    fill,
    free,
    issuing,
    outputs,
    small,
)  # fmt: skip


def lines_of(report: Report, rule: str) -> set[tuple[str, str]]:
    """(role, source line) of all participants of the findings of ``rule``."""
    sides = [p for f in report.findings if f.rule == rule for p in f.participants]
    return {(p.role, getline(p.loc.file, p.loc.line).strip()) for p in sides}


def rules_of(report: Report) -> set[str]:
    return {f.rule for f in report.findings}


# ---------------------------------------------------------------------- numbers of mma


def product(
    k: Builder, *, kind: Kind, dtype: DType, acc: DType, rows: int, n: int,
    trans: bool = False, tmem_a: bool = False,
) -> None:  # fmt: skip
    k.launch(warps=4)
    depth = 256 // dtype.bits
    shape = (depth, rows) if trans else (rows, depth)
    b_shape = (depth, n) if trans else (n, depth)
    a = copied(k, "a", dtype, shape, 128 if trans else 32)
    b = copied(k, "b", dtype, b_shape, 64 if trans else 32)
    done = barrier(k, "done")
    out = k.tensor("out", acc, (rows, n))
    address = allocate(k)
    fill(k, a, b)
    d = k.tcgen05.tensor(address, acc, (rows, n), name="d")
    left: Any = a[0]
    if tmem_a:
        part = k.fragment("part", dtype, (rows, depth), "warpgroup")
        left = k.tcgen05.tensor(address + 64, dtype, (128, depth), name="left")
        k.tile.load(part, a[0])
        k.tcgen05.st(left, part)
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.sync_threads()
        k.tcgen05.fence_after_thread_sync()
    with issuing(k, done):
        for repeat in range(2):
            k.tcgen05.mma(d, left, b[0], kind=kind, accumulate=repeat, a_trans=trans, b_trans=trans)
    whole = k.tcgen05.tensor(address, acc, (128, n), name="d")
    dump(k, whole, out, "32x32b" if rows == 128 else "16x256b")
    free(k, address)


@pytest.mark.parametrize(
    ("kind", "dtype", "acc"),
    [("f16", f16, f32), ("f16", bf16, f32), ("tf32", tf32, f32), ("f8f6f4", e4m3, f32),
     ("i8", s8, s32), ("i8", u8, s32)],
)  # fmt: skip
@pytest.mark.parametrize("rows", [64, 128])
def test_product_of_every_kind(kind: Kind, dtype: DType, acc: DType, rows: int) -> None:
    depth = 256 // dtype.bits
    a, b = abs(small(rows, depth)), abs(small(32, depth))
    got = outputs(product, {"ga": a, "gb": b}, kind=kind, dtype=dtype, acc=acc, rows=rows, n=32)
    np.testing.assert_array_equal(got["out"], 2 * a @ b.T)


def test_product_of_transposed_operands() -> None:
    a, b = small(16, 64), small(16, 32)
    got = outputs(
        product, {"ga": a, "gb": b}, kind="f16", dtype=bf16, acc=f32, rows=64, n=32, trans=True
    )
    np.testing.assert_array_equal(got["out"], 2 * a.T @ b)


def test_product_with_an_operand_in_tensor_memory() -> None:
    a, b = small(128, 16), small(32, 16)
    got = outputs(
        product, {"ga": a, "gb": b}, kind="f16", dtype=bf16, acc=f32, rows=128, n=32, tmem_a=True
    )
    np.testing.assert_array_equal(got["out"], 2 * a @ b.T)


def block_scaled(
    k: Builder, *, kind: Kind, dtype: DType, vector: int, depth: int, scale_id: int
) -> None:
    k.launch(warps=4)
    a, b = copied(k, "a", dtype, (128, 32)), copied(k, "b", dtype, (32, 32))
    sa, sb = copied(k, "sa", u8, (32, 16), 0), copied(k, "sb", u8, (32, 16), 0)
    done, out = barrier(k, "done"), k.tensor("out", f32, (128, 32))
    address = allocate(k)
    fill(k, a, b, sa, sb)
    d = k.tcgen05.tensor(address, f32, (128, 32), name="d")
    scale_a = k.tcgen05.tensor(address + 32, u8, (32, 16), name="scale_a")
    scale_b = k.tcgen05.tensor(address + 36, u8, (32, 16), name="scale_b")
    with issuing(k, done):
        k.tcgen05.cp(scale_a, sa[0], "32x128b", multicast="warpx4")
        k.tcgen05.cp(scale_b, sb[0], "32x128b", multicast="warpx4")
        k.tcgen05.mma(
            d, a[0], b[0], kind=kind, accumulate=0, scale_a=scale_a, scale_b=scale_b,
            scale_vec=vector, scale_id=scale_id,
        )  # fmt: skip
    dump(k, d, out)
    free(k, address)


def spread(scales: NDArray[Any], rows: int, vector: int, scale_id: int, block: int) -> Any:
    """Scale factors of ``rows`` rows, repeated over their blocks of K, as powers of two."""
    words = scales.reshape(32, 4, 4)  # lane, column, byte
    factors = np.array([words[r % 32, r // 32, scale_id : scale_id + vector] for r in range(rows)])
    return np.repeat(2.0 ** (factors.astype(float) - 127), block, axis=1)


@pytest.mark.parametrize("scale_id", [0, 3])
def test_block_scaled_product_of_eight_bit_floats(scale_id: int) -> None:
    a, b = small(128, 32), small(32, 32)
    sa, sb = RNG.integers(124, 131, (32, 16)), RNG.integers(124, 131, (32, 16))
    got = outputs(
        block_scaled, {"ga": a, "gb": b, "gsa": sa, "gsb": sb},
        kind="mxf8f6f4", dtype=e4m3, vector=1, depth=32, scale_id=scale_id,
    )  # fmt: skip
    wide_a, wide_b = (spread(s, rows, 1, scale_id, 32) for s, rows in ((sa, 128), (sb, 32)))
    np.testing.assert_array_equal(got["out"], (a * wide_a) @ (b * wide_b).T)


def nibbles(packed: NDArray[Any]) -> NDArray[Any]:
    return np.stack([E2M1[packed & 15], E2M1[packed >> 4]], axis=-1).reshape(len(packed), -1)


@pytest.mark.parametrize("kind", ["mxf4", "mxf4nvf4"])
def test_block_scaled_product_of_four_bit_floats(kind: Kind) -> None:
    a, b = RNG.integers(0, 256, (128, 32)), RNG.integers(0, 256, (32, 32))
    sa, sb = RNG.integers(124, 131, (32, 16)), RNG.integers(124, 131, (32, 16))
    got = outputs(
        block_scaled, {"ga": a, "gb": b, "gsa": sa, "gsb": sb},
        kind=kind, dtype=u8, vector=2, depth=64, scale_id=2,
    )  # fmt: skip
    wide_a, wide_b = (spread(s, rows, 2, 2, 32) for s, rows in ((sa, 128), (sb, 32)))
    np.testing.assert_array_equal(got["out"], (nibbles(a) * wide_a) @ (nibbles(b) * wide_b).T)


def test_block_scaled_product_with_sixteen_element_blocks() -> None:
    a, b = RNG.integers(0, 256, (128, 32)), RNG.integers(0, 256, (32, 32))
    ones = np.full((32, 16), 0x38)  # 1.0 in ue4m3
    got = outputs(
        block_scaled, {"ga": a, "gb": b, "gsa": ones, "gsb": ones},
        kind="mxf4nvf4", dtype=u8, vector=4, depth=64, scale_id=0,
    )  # fmt: skip
    np.testing.assert_array_equal(got["out"], nibbles(a) @ nibbles(b).T)


# ---------------------------------------------------------------------- loads, copies, shifts


def round_trip(k: Builder, *, shape: LoadShape, columns: int, half: int = 0) -> None:
    k.launch(warps=4)
    rows = 16 if shape.startswith("16x") and shape != "16x32bx2" else 32
    source = k.tensor("source", f32, (4, rows, columns))
    out = k.tensor("out", f32, (4, rows, columns))
    part = k.fragment("part", f32, (rows, columns))
    back = k.fragment("back", f32, (rows, columns))
    address = allocate(k)
    d = k.tcgen05.tensor(address + 4, f32, (128, columns), name="d")
    k.tile.load(part, source[k.warp_id])
    k.tcgen05.st(d, part, shape=shape, half_split=half)
    k.tcgen05.wait_st()
    k.tcgen05.ld(back, d, shape=shape, half_split=half)
    k.tcgen05.wait_ld()
    k.tile.store(out[k.warp_id], back)
    free(k, address)


@pytest.mark.parametrize(
    ("shape", "columns", "half"),
    [("32x32b", 1, 0), ("32x32b", 64, 0), ("16x64b", 4, 0), ("16x128b", 32, 0),
     ("16x256b", 64, 0), ("16x32bx2", 8, 16)],
)  # fmt: skip
def test_what_is_stored_is_loaded(shape: LoadShape, columns: int, half: int) -> None:
    rows = 16 if shape.startswith("16x") and shape != "16x32bx2" else 32
    source = small(4, rows, columns)
    got = outputs(round_trip, {"source": source}, shape=shape, columns=columns, half=half)
    np.testing.assert_array_equal(got["out"], source)


def shifted(k: Builder) -> None:
    k.launch(warps=4)
    source, done = copied(k, "source", s32, (128, 8), 32), barrier(k, "done")
    out, address = k.tensor("out", s32, (128, 8)), allocate(k)
    fill(k, source)
    d = k.tcgen05.tensor(address, s32, (128, 8), name="d")
    with k.one_thread():
        k.tcgen05.cp(d, source[0], "128x256b")
        k.tcgen05.commit(done)
        k.mbarrier.wait(done, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.shift(d[0:32, :])
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 1)
    k.tcgen05.fence_after_thread_sync()
    dump(k, d, out)
    free(k, address)


def test_shift_moves_rows_down_by_one_lane() -> None:
    source = small(128, 8)
    expected = source.copy()
    expected[:31] = source[1:32]
    got = simulate(build(shifted), {"gsource": source}).outputs["out"]
    np.testing.assert_array_equal(got, expected)


# ---------------------------------------------------------------------- CTA pairs


def pair_product(k: Builder, *, rendezvous: bool = True, peer_ready: bool = True) -> None:
    pair = Pair(k, bf16, 128, 32)
    d = k.tcgen05.tensor(pair.address, f32, (128, pair.columns), name="d")
    pair.load()
    with k.if_(k.cluster_rank.eq(0)), k.one_thread(1):
        if peer_ready:
            k.mbarrier.wait(pair.ready, 0, scope="cluster")
        else:
            k.mbarrier.wait(pair.full, 0)
        k.tcgen05.mma(d, pair.a, pair.b, accumulate=0, cta_group=2)
        k.tcgen05.commit(pair.done, multicast=3, cta_group=2)
    k.mbarrier.wait(pair.done, 0, scope="cluster")
    k.tcgen05.fence_after_thread_sync()
    result = k.fragment("result", f32, (128, pair.columns), "warpgroup")
    k.tcgen05.ld(result, d)
    k.tcgen05.wait_ld()
    k.tile.store(pair.out[k.cluster_rank], result)
    pair.free(rendezvous=rendezvous)


def test_pair_that_frees_without_a_rendezvous_is_reported() -> None:
    report = check(build(pair_product, rendezvous=False))
    assert report.verdict == "failed"
    assert rules_of(report) == {"tmem-lifetime"}
    lines = {line for _, line in lines_of(report, "tmem-lifetime")}
    assert "k.tcgen05.dealloc(self.address, 128, cta_group=2)" in lines
    assert "k.tcgen05.ld(result, d)" in lines


def test_pair_product_before_the_peers_operands_are_ready_is_a_race() -> None:
    report = check(build(pair_product, peer_ready=False))
    assert report.verdict == "failed"
    assert "race" in rules_of(report)
    lines = {line for _, line in lines_of(report, "race")}
    assert "k.tcgen05.mma(d, pair.a, pair.b, accumulate=0, cta_group=2)" in lines
    assert "k.tma.load(map_, tile, (rows * k.cluster_rank, 0), self.full)" in lines
