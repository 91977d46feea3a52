"""What is wrong with the operands of one instruction: each row is a call with a wrong operand, what
is said of it, and the nearest right call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tilesim import Builder, InvalidProgram, bf16, f32, s8, s32, s64, u8, u32, u64
from tilesim.arith.types import DType
from tilesim.errors import Diagnostic
from tilesim.ir.tensor_memory import TmemView
from tilesim.ir.verify import diagnose


class Kernel:
    """A builder, and one of each kind of operand."""

    def __init__(self, target: str) -> None:
        k = self.k = Builder("operands")
        k.launch(warps=4, cluster=2, grid=2, target=target)
        self.words = k.tensor("words", u32, (64,))
        self.bytes = k.tensor("bytes", u8, (1024,))
        self.rows = k.tensor("rows", bf16, (64, 64))
        self.shared_words = k.shared("shared_words", u32, (64,))
        self.longs = k.shared("longs", u64, (64,))
        self.shared_bytes = k.shared("shared_bytes", u8, (1024,))
        self.halves = k.shared("halves", bf16, (64, 8))
        self.a = k.shared("a", bf16, (64, 16), swizzle=32)
        self.b = k.shared("b", bf16, (16, 16), swizzle=32)
        self.tall = k.shared("tall", bf16, (264, 16), swizzle=32)
        self.wide_b = k.shared("wide_b", s8, (40, 32), swizzle=32)
        self.byte_a = k.shared("byte_a", s8, (64, 32), swizzle=32)
        self.acc = k.fragment("acc", f32, (64, 16), "warpgroup")
        self.acc_264 = k.fragment("acc_264", f32, (64, 264), "warpgroup")
        self.acc_128 = k.fragment("acc_128", f32, (128, 16), "warpgroup")
        self.acc_bytes = k.fragment("acc_bytes", s32, (64, 40), "warpgroup")
        self.acc_48 = k.fragment("acc_48", s32, (64, 48), "warpgroup")
        self.b_48 = k.shared("b_48", s8, (48, 32), swizzle=32)
        self.of_warp = k.fragment("of_warp", f32, (64, 16))
        self.a_warp = k.fragment("a_warp", bf16, (64, 16))
        self.a_group = k.fragment("a_group", bf16, (64, 16), "warpgroup")
        self.tile = k.fragment("tile", f32, (16, 16))
        self.narrow = k.fragment("narrow", f32, (16, 8))
        self.low = k.fragment("low", bf16, (16, 16))
        self.full = k.mbarriers("full", 2)
        self.r = [k.var(f"r{i}", 0, u32) for i in range(8)]
        self.f = [k.var(f"f{i}", 0.0, f32) for i in range(8)]
        self.signed = k.var("signed", 0, s64)
        self.token = k.var("token", 0, u64)
        self.copied = k.shared("copied", u8, (128, 16))
        self.tile_12 = k.fragment("tile_12", f32, (32, 12))
        self.tile_16 = k.fragment("tile_16", f32, (32, 16))
        self.everywhere = k.tensor("everywhere", bf16, (64,), devices=2)
        self.words_everywhere = k.tensor("words_everywhere", u32, (64,), devices=2)
        self.map = k.shared("map", u8, (128,))
        self.half_map = k.shared("half_map", u8, (64,))
        self.signed_map = k.shared("signed_map", s32, (32,))
        self.images = k.tensor("images", bf16, (8, 32, 64))
        self.packed = k.tensor("packed", u8, (64, 128))
        self.square = k.shared("square", u32, (8, 8))

    def tmem(self, dtype: DType, shape: tuple[int, int]) -> TmemView:
        """What lies in tensor memory at an address in a register."""
        return self.k.tcgen05.tensor(self.r[0], dtype, shape)


Call = Callable[[Kernel], Any]


@dataclass(frozen=True)
class Row:
    """A wrong call, part of what is said of it, and a right one."""

    message: str
    wrong: Call
    right: Call
    target: str = "sm_100a"


ROWS = (
    # mbarrier
    Row("mbarrier.inval works on the executing CTA's own barriers only (A6)",
        lambda o: o.k.mbarrier.inval(o.full[0].at(1)), lambda o: o.k.mbarrier.inval(o.full[0])),
    Row("a remote arrive has no result token",
        lambda o: o.k.mbarrier.arrive(o.full[0].at(1), token=o.token),
        lambda o: o.k.mbarrier.arrive(o.full[0], token=o.token)),
    Row("a remote arrive has no result token",
        lambda o: o.k.mbarrier.arrive_expect_tx(o.full[0].at(1), 16, token=o.token),
        lambda o: o.k.mbarrier.arrive_expect_tx(o.full[0], 16, token=o.token)),
    Row("a remote arrive has no result token",
        lambda o: o.k.mbarrier.arrive_drop(o.full[0].at(1), token=o.token),
        lambda o: o.k.mbarrier.arrive_drop(o.full[0], token=o.token)),
    Row("parity 2 is neither 0 nor 1 (A21)",
        lambda o: o.k.mbarrier.wait(o.full[0], 2), lambda o: o.k.mbarrier.wait(o.full[0], 1)),
    # cp.async
    Row("cp.async copies 4, 8 or 16 bytes at a time, not 2 (C1)",
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:16], o.bytes[0:16], size=2),
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:16], o.bytes[0:16], size=4)),
    Row("12 bytes is not a multiple of the copy size 16 (C1)",
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:12], o.bytes[0:12], size=16),
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:12], o.bytes[0:12], size=4)),
    Row("sizes differ: 32 and 16 bytes",
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:32], o.bytes[0:16], size=16),
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:32], o.bytes[0:32], size=16)),
    Row("cp.async copies from global to shared memory (C1)",
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:16], o.shared_bytes[16:32], size=16),
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:16], o.bytes[16:32], size=16)),
    Row("cp.async writes the executing CTA's own shared memory (C1)",
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:16].at(1), o.bytes[0:16], size=16),
        lambda o: o.k.cp_async.copy(o.shared_bytes[0:16], o.bytes[0:16], size=16)),
    Row("cp.async.mbarrier.arrive works on the executing CTA's own barriers only (C6)",
        lambda o: o.k.cp_async.mbarrier_arrive(o.full[0].at(1)),
        lambda o: o.k.cp_async.mbarrier_arrive(o.full[0])),
    # bulk copies
    Row("bytes must be in shared memory",
        lambda o: o.k.bulk.load(o.bytes[0:16], o.bytes[16:32], o.full[0]),
        lambda o: o.k.bulk.load(o.shared_bytes[0:16], o.bytes[16:32], o.full[0])),
    Row("shared_bytes must be in global memory",
        lambda o: o.k.bulk.load(o.shared_bytes[0:16], o.shared_bytes[16:32], o.full[0]),
        lambda o: o.k.bulk.load(o.shared_bytes[0:16], o.bytes[16:32], o.full[0])),
    Row("sizes differ: 16 and 32 bytes",
        lambda o: o.k.bulk.load(o.shared_bytes[0:16], o.bytes[0:32], o.full[0]),
        lambda o: o.k.bulk.load(o.shared_bytes[0:32], o.bytes[0:32], o.full[0])),
    Row("shared_bytes must be in global memory",
        lambda o: o.k.bulk.store(o.shared_bytes[0:16], o.shared_bytes[16:32]),
        lambda o: o.k.bulk.store(o.bytes[0:16], o.shared_bytes[16:32])),
    Row("the source", lambda o: o.k.bulk.copy(
            o.shared_bytes[0:16].at(1), o.shared_bytes[16:32].at(1), o.full[0].at(1)),
        lambda o: o.k.bulk.copy(o.shared_bytes[0:16].at(1), o.shared_bytes[16:32],
                                o.full[0].at(1))),
    Row("must be in another CTA: use .at(rank) (B.2)", lambda o: o.k.bulk.copy(
            o.shared_bytes[0:16], o.shared_bytes[16:32], o.full[0].at(1)),
        lambda o: o.k.bulk.copy(o.shared_bytes[0:16].at(1), o.shared_bytes[16:32],
                                o.full[0].at(1))),
    Row("only global memory is prefetched", lambda o: o.k.bulk.prefetch(o.shared_bytes[0:16]),
        lambda o: o.k.bulk.prefetch(o.bytes[0:16])),
    # st.async, red.async
    Row("st.async writes a peer's shared memory: name the CTA with .at(rank) (D11)",
        lambda o: o.k.cluster.st_async(o.shared_words[0], 1, o.full[0].at(1)),
        lambda o: o.k.cluster.st_async(o.shared_words[0].at(1), 1, o.full[0].at(1))),
    Row("the mbarrier of st.async is in the destination CTA: use .at(rank) (D11)",
        lambda o: o.k.cluster.st_async(o.shared_words[0].at(1), 1, o.full[0]),
        lambda o: o.k.cluster.st_async(o.shared_words[0].at(1), 1, o.full[0].at(1))),
    Row("destination CTA 1 and mbarrier CTA 0 differ (D11)",
        lambda o: o.k.cluster.st_async(o.shared_words[0].at(1), 1, o.full[0].at(0)),
        lambda o: o.k.cluster.st_async(o.shared_words[0].at(1), 1, o.full[0].at(1))),
    Row("st.async stores one element per lane",
        lambda o: o.k.cluster.st_async(o.shared_words[0:2].at(1), 1, o.full[0].at(1)),
        lambda o: o.k.cluster.st_async(o.shared_words[0].at(1), 1, o.full[0].at(1))),
    Row("st.async stores 32- or 64-bit elements, not bf16 (D11)",
        lambda o: o.k.cluster.st_async(o.halves[0, 0].at(1), 1, o.full[0].at(1)),
        lambda o: o.k.cluster.st_async(o.longs[0].at(1), 1, o.full[0].at(1))),
    Row("red.async reduces one element per lane", lambda o: o.k.cluster.red_async(
            o.shared_words[0:2].at(1), "add", 1, o.full[0].at(1)),
        lambda o: o.k.cluster.red_async(o.shared_words[0].at(1), "add", 1, o.full[0].at(1))),
    Row("red.async.add exists for", lambda o: o.k.cluster.red_async(
            o.halves[0, 0].at(1), "add", 1, o.full[0].at(1)),
        lambda o: o.k.cluster.red_async(o.longs[0].at(1), "add", 1, o.full[0].at(1))),
    # launch control
    Row("must be in the executing CTA's shared memory (D18)",
        lambda o: o.k.clc.try_cancel(o.words[0:4], o.full[0]),
        lambda o: o.k.clc.try_cancel(o.shared_words[0:4], o.full[0])),
    Row("has 8 bytes, a response has 16 (D18)",
        lambda o: o.k.clc.try_cancel(o.shared_words[0:2], o.full[0]),
        lambda o: o.k.clc.try_cancel(o.shared_words[0:4], o.full[0])),
    Row("the mbarrier must be in the executing CTA (D18)",
        lambda o: o.k.clc.try_cancel(o.shared_words[0:4], o.full[0].at(1)),
        lambda o: o.k.clc.try_cancel(o.shared_words[0:4], o.full[0])),
    # ldmatrix, stmatrix
    Row("1, 2 or 4 matrices are moved at once, not 3 (E23)",
        lambda o: o.k.matrix.load(o.r[:3], o.halves[o.k.lane_id]),
        lambda o: o.k.matrix.load(o.r[:4], o.halves[o.k.lane_id])),
    Row("a matrix must be in the executing CTA's shared memory, not in rows",
        lambda o: o.k.matrix.load(o.r[:1], o.rows[o.k.lane_id, 0:8]),
        lambda o: o.k.matrix.load(o.r[:1], o.halves[o.k.lane_id])),
    Row("each lane names a row of 8 elements of 16 bits",
        lambda o: o.k.matrix.store(o.halves[o.k.lane_id, 0:4], o.r[:1]),
        lambda o: o.k.matrix.store(o.halves[o.k.lane_id], o.r[:1])),
    Row("a register of the result is s32 or u32: it holds two elements (E23)",
        lambda o: o.k.matrix.load(o.f[:1], o.halves[o.k.lane_id]),
        lambda o: o.k.matrix.load(o.r[:1], o.halves[o.k.lane_id])),
    Row("a matrix must be in the executing CTA's shared memory, not in bytes",
        lambda o: o.k.matrix.store_bytes(o.bytes[0:16], o.r[:1]),
        lambda o: o.k.matrix.store_bytes(o.shared_bytes[0:16], o.r[:1])),
    Row("each lane names a row of 16 bytes",
        lambda o: o.k.matrix.store_bytes(o.shared_bytes[0:8], o.r[:1]),
        lambda o: o.k.matrix.store_bytes(o.shared_bytes[0:16], o.r[:1])),
    Row("1, 2 or 4 matrices are moved at once, not 3 (E25)",
        lambda o: o.k.matrix.store_bytes(o.shared_bytes[0:16], o.r[:3]),
        lambda o: o.k.matrix.store_bytes(o.shared_bytes[0:16], o.r[:2])),
    Row("a register of the result is s32 or u32: it holds four elements (E25)",
        lambda o: o.k.matrix.load_bytes(o.f[:2], o.shared_bytes[0:16]),
        lambda o: o.k.matrix.load_bytes(o.r[:2], o.shared_bytes[0:16])),
    # wgmma
    Row("pending group count 8 is outside 0..7",
        lambda o: o.k.wgmma.wait_group(8), lambda o: o.k.wgmma.wait_group(7), "sm_90a"),
    Row("wgmma has no u32 inputs (F9)",
        lambda o: o.k.wgmma.mma_async(o.acc, o.a, o.shared_words[0:64]),
        lambda o: o.k.wgmma.mma_async(o.acc, o.a, o.b), "sm_90a"),
    Row("the accumulator of_warp must be a warpgroup fragment (F1)",
        lambda o: o.k.wgmma.mma_async(o.of_warp, o.a, o.b),
        lambda o: o.k.wgmma.mma_async(o.acc, o.a, o.b), "sm_90a"),
    Row("accumulator has 128 rows, one wgmma computes 64 (F9)",
        lambda o: o.k.wgmma.mma_async(o.acc_128, o.a, o.b),
        lambda o: o.k.wgmma.mma_async(o.acc, o.a, o.b), "sm_90a"),
    Row("N = 264 is not a wgmma size for bf16 (F9)",
        lambda o: o.k.wgmma.mma_async(o.acc_264, o.a, o.tall),
        lambda o: o.k.wgmma.mma_async(o.acc, o.a, o.b), "sm_90a"),
    Row("N = 40 is not a wgmma size for s8 (F9)",
        lambda o: o.k.wgmma.mma_async(o.acc_bytes, o.byte_a, o.wide_b),
        lambda o: o.k.wgmma.mma_async(o.acc_48, o.byte_a, o.b_48), "sm_90a"),
    Row("s8 inputs do not accumulate in f32 (F9)",
        lambda o: o.k.wgmma.mma_async(o.acc, o.byte_a, o.b_48[0:16]),
        lambda o: o.k.wgmma.mma_async(o.acc_48, o.byte_a, o.b_48), "sm_90a"),
    Row("A is s8, B is bf16",
        lambda o: o.k.wgmma.mma_async(o.acc, o.byte_a, o.b),
        lambda o: o.k.wgmma.mma_async(o.acc, o.a, o.b), "sm_90a"),
    Row("rows must be in shared memory (F9)",
        lambda o: o.k.wgmma.mma_async(o.acc, o.rows[:, 0:16], o.b),
        lambda o: o.k.wgmma.mma_async(o.acc, o.a, o.b), "sm_90a"),
    Row("b must be in the executing CTA's shared memory",
        lambda o: o.k.wgmma.mma_async(o.acc, o.a, o.b.at(1)),
        lambda o: o.k.wgmma.mma_async(o.acc, o.a, o.b), "sm_90a"),
    Row("A fragment a_warp must be a warpgroup fragment (F9)",
        lambda o: o.k.wgmma.mma_async(o.acc, o.a_warp, o.b),
        lambda o: o.k.wgmma.mma_async(o.acc, o.a_group, o.b), "sm_90a"),
    # tiles in registers
    Row("shared_words is u32, fragment tile is f32",
        lambda o: o.k.tile.load(o.tile, o.shared_words[0:64]),
        lambda o: o.k.tile.load(o.low, o.b)),
    Row("shapes differ: (16, 8) and (16, 16)",
        lambda o: o.k.tile.map(o.narrow, "exp2", o.tile),
        lambda o: o.k.tile.map(o.tile, "exp2", o.tile)),
    Row("shapes differ: (16, 8) and (16, 16)",
        lambda o: o.k.tile.zip(o.narrow, "add", o.tile, 1.0),
        lambda o: o.k.tile.zip(o.tile, "add", o.tile, 1.0)),
    Row("(16, 8) cannot be repeated over (16, 16)",
        lambda o: o.k.tile.zip(o.tile, "add", o.tile, o.narrow),
        lambda o: o.k.tile.zip(o.tile, "add", o.tile, o.tile)),
    Row("shapes differ: (16, 8) and (16, 16)",
        lambda o: o.k.tile.fma(o.narrow, o.tile, 1.0, 1.0),
        lambda o: o.k.tile.fma(o.tile, o.tile, 1.0, 1.0)),
    Row("shapes differ: (16, 8) and (16, 16)",
        lambda o: o.k.tile.cast(o.narrow, o.low), lambda o: o.k.tile.cast(o.tile, o.low)),
    # scalars, vectors, hints
    Row("a scalar access needs one element per lane",
        lambda o: o.k.mem.load(o.r[0], o.words[0:2]), lambda o: o.k.mem.load(o.r[0], o.words[0])),
    Row("fills 2 registers, 4 are given",
        lambda o: o.k.mem.load_vector(o.r[:4], o.words[0:2]),
        lambda o: o.k.mem.load_vector(o.r[:2], o.words[0:2])),
    Row("packed elements need registers of type s32 or u32",
        lambda o: o.k.mem.load_vector(o.f[:4], o.halves[0]),
        lambda o: o.k.mem.load_vector(o.r[:4], o.halves[0])),
    Row("discard.L2 takes 128 bytes of global memory",
        lambda o: o.k.mem.discard(o.bytes[0:64]), lambda o: o.k.mem.discard(o.bytes[0:128])),
    Row("only global memory is prefetched", lambda o: o.k.mem.prefetch(o.shared_bytes[0]),
        lambda o: o.k.mem.prefetch(o.bytes[0])),
    # tcgen05
    Row("the address is written to one u32 of the CTA's shared memory",
        lambda o: o.k.tcgen05.alloc(o.shared_words[0:2], 32),
        lambda o: o.k.tcgen05.alloc(o.shared_words[0], 32)),
    Row("must be in the executing CTA's shared memory (G16)",
        lambda o: o.k.tcgen05.cp(o.tmem(u8, (128, 16)), o.shared_bytes.at(1), "128x128b"),
        lambda o: o.k.tcgen05.cp(o.tmem(u8, (128, 16)), o.copied, "128x128b")),
    Row("tcgen05.shift moves 32 rows of 32 bytes",
        lambda o: o.k.tcgen05.shift(o.tmem(u32, (32, 4))),
        lambda o: o.k.tcgen05.shift(o.tmem(u32, (32, 8)))),
    Row("columns: .32x32b.xN accesses 1 x N, N a power of two up to 128 (G13)",
        lambda o: o.k.tcgen05.ld(o.tile_12, o.tmem(f32, (32, 12))),
        lambda o: o.k.tcgen05.ld(o.tile_16, o.tmem(f32, (32, 16)))),
    # multimem
    Row("fills 4 words, 2 registers are given",
        lambda o: o.k.multimem.ld_reduce(o.r[:2], "add", o.everywhere[0:8]),
        lambda o: o.k.multimem.ld_reduce(o.r[:4], "add", o.everywhere[0:8])),
    Row("2 registers of u32 at once: there are 1, 2 and 4 of narrow floats (H21)",
        lambda o: o.k.multimem.ld_reduce(o.r[:2], "add", o.words_everywhere[0:2]),
        lambda o: o.k.multimem.ld_reduce(o.r[:1], "add", o.words_everywhere[0])),
    Row("sums of u32 are not accumulated in f32 (H21)",
        lambda o: o.k.multimem.ld_reduce(o.r[:1], "add", o.words_everywhere[0], acc="f32"),
        lambda o: o.k.multimem.ld_reduce(o.r[:1], "add", o.words_everywhere[0])),
    Row("cannot hold", lambda o: o.k.multimem.ld_reduce(o.f[:1], "add", o.words_everywhere[0]),
        lambda o: o.k.multimem.ld_reduce(o.r[:1], "add", o.words_everywhere[0])),
    # mma.sync
    Row("c and d are 4 registers of two f16, or 8 of f32 (E24)",
        lambda o: o.k.matrix.mma_groups(o.f[:6], o.r[:2], o.r[:2], o.f[:6]),
        lambda o: o.k.matrix.mma_groups(o.f, o.r[:2], o.r[:2], o.f)),
    Row("c is f32 only if d is f32 (E24)",
        lambda o: o.k.matrix.mma_groups(o.r[:4], o.r[:2], o.r[:2], o.f),
        lambda o: o.k.matrix.mma_groups(o.r[:4], o.r[4:6], o.r[6:8], o.r[:4])),
    Row("the results of mma.sync are of type f32 here (E24)",
        lambda o: o.k.matrix.mma_groups(o.r, o.r[:2], o.r[:2], o.f),
        lambda o: o.k.matrix.mma_groups(o.f, o.r[:2], o.r[:2], o.f)),
    Row("d, a, b and c have (4, 4, 2, 4) registers per lane, not (4, 2, 2, 4) (E24)",
        lambda o: o.k.matrix.mma_scaled(o.f[:4], o.r[:2], o.r[:2], o.f[:4], 0, 0, kind="e4m3",
                                        kind_b="e4m3"),
        lambda o: o.k.matrix.mma_scaled(o.f[:4], o.r[:4], o.r[:2], o.f[:4], 0, 0, kind="e4m3",
                                        kind_b="e4m3"), "sm_120a"),
    Row("the results of mma.sync are of type f32 here (E24)",
        lambda o: o.k.matrix.mma_scaled(o.r[:4], o.r[:4], o.r[:2], o.f[:4], 0, 0, kind="e4m3",
                                        kind_b="e4m3"),
        lambda o: o.k.matrix.mma_scaled(o.f[:4], o.r[:4], o.r[:2], o.f[:4], 0, 0, kind="e4m3",
                                        kind_b="e4m3"), "sm_120a"),
    # tensor maps in memory
    Row("box_dim has no dimension 5", lambda o: o.k.tensormap.replace(o.map, "box_dim", 1, 5),
        lambda o: o.k.tensormap.replace(o.map, "box_dim", 1, 4)),
    Row("a tensor map has 128 bytes", lambda o: o.k.tensormap.replace(o.half_map, "rank", 1),
        lambda o: o.k.tensormap.replace(o.map, "rank", 1)),
    Row("the bytes of a tensor map are u8, u32 or u64 here",
        lambda o: o.k.tensormap.replace(o.signed_map, "rank", 1),
        lambda o: o.k.tensormap.replace(o.map, "rank", 1)),
    Row("is in a peer's shared memory", lambda o: o.k.tensormap.replace(o.map.at(1), "rank", 1),
        lambda o: o.k.tensormap.replace(o.map, "rank", 1)),
    Row("must be in the executing CTA's shared memory",
        lambda o: o.k.tensormap.cp_fenceproxy(o.words[0:32], o.words[32:64]),
        lambda o: o.k.tensormap.cp_fenceproxy(o.words[0:32], o.shared_words[0:32])),
    Row("is u8, words", lambda o: o.k.tensormap.cp_fenceproxy(o.words[0:32], o.map),
        lambda o: o.k.tensormap.cp_fenceproxy(o.bytes[0:128], o.map)),
    # declarations
    Row("has 2 dimensions and strides (1,)",
        lambda o: o.k.tensor("strided", u32, (4, 4), (1,)),
        lambda o: o.k.tensor("strided", u32, (4, 4), (4, 1))),
    Row("none has shape (0, 8)", lambda o: o.k.fragment("none", f32, (0, 8)),
        lambda o: o.k.fragment("none", f32, (8, 8))),
    Row("none has 0 mbarriers", lambda o: o.k.mbarriers("none", 0),
        lambda o: o.k.mbarriers("none", 1)),
    Row("the box (0, 16) is empty", lambda o: o.k.tensor_map(o.rows, (0, 16)),
        lambda o: o.k.tensor_map(o.rows, (8, 16))),
    Row("is not contiguous along its last dimension (B16)",
        lambda o: o.k.tensor_map(o.k.tensor("spread", bf16, (64, 64), (128, 2)), (8, 16)),
        lambda o: o.k.tensor_map(o.k.tensor("spread", bf16, (64, 64), (128, 1)), (8, 16))),
    Row("an im2col map has 3 to 5 dimensions, rows has 2 (B23)",
        lambda o: o.k.tensor_map(o.rows, (8, 16), lower=(0,), upper=(0,)),
        lambda o: o.k.tensor_map(o.images, (8, 16), lower=(0,), upper=(0,))),
    Row("of an im2col map is (pixels per column, channels per pixel)",
        lambda o: o.k.tensor_map(o.images, (8, 16, 1), lower=(0,), upper=(0,)),
        lambda o: o.k.tensor_map(o.images, (8, 16), lower=(0,), upper=(0,))),
    Row("the corner (-40000,) is outside -32768..32767 (B16)",
        lambda o: o.k.tensor_map(o.images, (8, 16), lower=(-40000,), upper=(0,)),
        lambda o: o.k.tensor_map(o.images, (8, 16), lower=(-1,), upper=(0,))),
    Row("1025 pixels per column and 16 channels per pixel are not in",
        lambda o: o.k.tensor_map(o.images, (1025, 16), lower=(0,), upper=(0,)),
        lambda o: o.k.tensor_map(o.images, (1024, 16), lower=(0,), upper=(0,))),
    Row("the modes im2col::w need a swizzle (B23)",
        lambda o: o.k.tensor_map(o.images, (8, 16), lower=(0,), upper=(0,), wide="w"),
        lambda o: o.k.tensor_map(o.images, (8, 16), lower=(0,), upper=(0,), wide="w",
                                 swizzle=32)),
    Row("the rows of a box of b4x16_p64 have 128 elements, not 64 (B36)",
        lambda o: o.k.tensor_map(o.packed, (8, 64), packing="b4x16_p64", swizzle=128),
        lambda o: o.k.tensor_map(o.packed, (8, 128), packing="b4x16_p64", swizzle=128)),
    Row("the box's rows have 48 elements, not a multiple of 32 (B15, B36)",
        lambda o: o.k.tensor_map(o.packed, (8, 48), packing="b4x16"),
        lambda o: o.k.tensor_map(o.packed, (8, 64), packing="b4x16")),
    Row("the tile must be in shared memory, rows is global",
        lambda o: o.k.tma.load(o.k.tensor_map(o.rows, (8, 8)), o.rows[0:8, 0:8], (0, 0), o.full[0]),
        lambda o: o.k.tma.load(o.k.tensor_map(o.rows, (8, 8)), o.halves[0:8], (0, 0), o.full[0])),
    Row("tile is u32, tensor map is bf16",
        lambda o: o.k.tma.load(o.k.tensor_map(o.rows, (8, 8)), o.square, (0, 0), o.full[0]),
        lambda o: o.k.tma.load(o.k.tensor_map(o.rows, (8, 8)), o.halves[0:8], (0, 0), o.full[0])),
)  # fmt: skip


def diagnostics(call: Call, target: str) -> tuple[Diagnostic, ...]:
    """What is wrong with a kernel that makes one call."""
    kernel = Kernel(target)
    try:
        call(kernel)
    except InvalidProgram as error:
        return error.diagnostics
    return diagnose(kernel.k.finish())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.message)
def test_a_wrong_operand_is_refused_and_a_right_one_is_not(row: Row) -> None:
    found = diagnostics(row.wrong, row.target)
    assert any(row.message in d.message for d in found), found
    assert all(d.loc.line >= row.wrong.__code__.co_firstlineno for d in found)
    assert diagnostics(row.right, row.target) == ()
