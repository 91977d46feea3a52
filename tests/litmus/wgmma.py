"""LITMUS section F: warpgroup MMA, its fences, groups and operands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilesim import Builder, bf16, f32
from tilesim.ir.declarations import Fragment, GlobalTensor, Mbarriers, TensorMap, View

from .notation import begin, thread
from .table import completes, defect, fails, rejected, row

RNG = np.random.default_rng(0)
INPUTS = {"ga": RNG.integers(-3, 4, (64, 16)), "gb": RNG.integers(-3, 4, (32, 16))}
PRODUCT = INPUTS["ga"] @ INPUTS["gb"].T
ONES = np.ones((64, 16)) @ INPUTS["gb"].T
MMA, READ = "k.wgmma.mma_async(acc, a[0], b", "k.tile.store(out, acc)"


class Operands(NamedTuple):
    """Two stages of A, and B, in shared memory; an accumulator; the output; the map of A."""

    a: tuple[View, View]
    b: View
    acc: Fragment
    out: GlobalTensor
    map_a: TensorMap


def operands(k: Builder, *barriers: tuple[Mbarriers, int]) -> Operands:
    """Fills both stages of A, and B, by TMA and waits for them in every warp."""
    ga, gb = k.tensor("ga", bf16, (64, 16)), k.tensor("gb", bf16, (32, 16))
    a = k.shared("a", bf16, (2, 64, 16), swizzle=32)
    b = k.shared("b", bf16, (32, 16), swizzle=32)
    out, acc = k.tensor("out", f32, (64, 32)), k.fragment("acc", f32, (64, 32), "warpgroup")
    map_a, map_b = k.tensor_map(ga, (64, 16), swizzle=32), k.tensor_map(gb, (32, 16), swizzle=32)
    full = k.mbarriers("full")
    begin(k, (full, 1), *barriers)
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.arrive_expect_tx(full, 2 * map_a.box_bytes + map_b.box_bytes)
        k.tma.load(map_a, a[0], (0, 0), full)
        k.tma.load(map_a, a[1], (0, 0), full)
        k.tma.load(map_b, b, (0, 0), full)
    k.mbarrier.wait(full, 0)
    return Operands((a[0], a[1]), b.view(), acc, out, map_a)


@row("LF01", completes(INPUTS, out=PRODUCT))
@row("LF02", fails(defect("wgmma-order", WG=MMA)), fill=True, fence=False)
@row("LF02-fence", completes(INPUTS, out=PRODUCT), fill=True)
# The programs of LF03 end with the mma in flight, which may be reported too.
@row("LF03", fails(defect("wgmma-order", WG=(MMA, READ)), also=("async-at-exit",)), wait=False)
@row(
    "LF03-no-commit",
    fails(defect("wgmma-order", WG=(MMA, READ)), also=("async-at-exit",)),
    commit=False,
)
def multiply(
    k: Builder, *, fill: bool = False, fence: bool = True, commit: bool = True, wait: bool = True
) -> None:
    k.launch(warps=4)
    a, b, acc, out, _ = operands(k)
    with k.role("WG", range(4)):
        if fill:
            k.tile.fill(acc, 0)
        if fence:
            k.wgmma.fence()
        k.wgmma.mma_async(acc, a[0], b, accumulate=int(fill))
        if commit:
            k.wgmma.commit_group()
        if wait:
            k.wgmma.wait_group(0)
        k.tile.store(out, acc)


@row(
    "LF04",
    fails(defect("proxy-fence", WG=("k.tile.store(a[0], ones)", MMA))),
    fence=False,
)
@row("LF04-fence", completes(INPUTS, out=ONES), fence=True)
def generic_operand(k: Builder, *, fence: bool) -> None:
    k.launch(warps=4)
    a, b, acc, out, _ = operands(k)
    ones = k.fragment("ones", bf16, (64, 16), "warpgroup")
    with k.role("WG", range(4)):
        k.tile.fill(ones, 1)
        k.tile.store(a[0], ones)
        if fence:
            k.fence.proxy_async()
        k.bar.sync(1, 128)
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a[0], b, accumulate=0)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)
        k.tile.store(out, acc)


@row(
    "LF05",
    fails(defect("race", WG=MMA, T0="k.tma.load(map_a, a[0], (0, 0), refill)")),
    release="after commit",
)
@row("LF05-wait-0", completes(INPUTS, out=PRODUCT), release="after wait_group 0")
@row("LF05-wait-1", completes(INPUTS, out=2 * PRODUCT), release="after wait_group 1")
def release_stage(k: Builder, *, release: str) -> None:
    k.launch(warps=5)
    empty, refill = k.mbarriers("empty"), k.mbarriers("refill")
    a, b, acc, out, map_a = operands(k, (empty, 128), (refill, 1))
    with k.role("WG", range(4)):
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a[0], b, accumulate=0)
        k.wgmma.commit_group()
        if release == "after wait_group 1":
            k.wgmma.mma_async(acc, a[1], b)
            k.wgmma.commit_group()
        if release != "after commit":
            k.wgmma.wait_group(1 if release == "after wait_group 1" else 0)
        k.mbarrier.arrive(empty)
        k.wgmma.wait_group(0)
        k.tile.store(out, acc)
    with thread(k, 4, "T0"):
        k.mbarrier.wait(empty, 0)
        k.mbarrier.arrive_expect_tx(refill, map_a.box_bytes)
        k.tma.load(map_a, a[0], (0, 0), refill)
        k.mbarrier.wait(refill, 0)


@row("LF06-three-warps", fails(defect("participation")), warps=3, target="sm_90a")
@row("LF06-sm_100a", rejected("target", "k.wgmma.fence()"), warps=4, target="sm_100a")
@row("LF06-sm_120a", rejected("target", "k.wgmma.fence()"), warps=4, target="sm_120a")
def three_warps_or_wrong_target(k: Builder, *, warps: int, target: str) -> None:
    k.launch(warps=4, target=target)
    a, b, acc, _, _ = operands(k)
    with k.role("WG", range(warps)):
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a[0], b, accumulate=0)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)
