"""One mistake each in two pipelines that are right without it: its line is the first one named."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilesim as ts
from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import Kernel
from tilesim.lib.tensor_memory import multiply_tile
from tilesim.mistakes import diagnose as explain

STAGES, TURNS, TILES = 3, 7, 3


@ts.kernel(warps=8)
def staged(k: Builder, *, bug: str = "") -> None:
    """Copies through a ring, products of a warpgroup, a store of what all warps have written."""
    source = k.tensor("source", ts.bf16, (64 * TURNS, 64))
    result = k.tensor("result", ts.f32, (64, 64))
    box, out = k.tensor_map(source, (64, 64), swizzle=128), k.tensor_map(result, (64, 64))
    a = k.shared("a", ts.bf16, (STAGES, 64, 64), swizzle=128)
    b = k.shared("b", ts.bf16, (STAGES, 64, 64), swizzle=128)
    c = k.shared("c", ts.f32, (64, 64))
    full, empty = k.mbarriers("full", STAGES), k.mbarriers("empty", STAGES)
    acc = k.fragment("acc", ts.f32, (64, 64), "warpgroup")
    with k.one_thread():
        for slot in range(STAGES):
            k.mbarrier.init(full[slot], 1)
            k.mbarrier.init(empty[slot], 128)
        k.fence.mbarrier_init()
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(TURNS) as i:
        s, other = i % STAGES, (i + 1) % STAGES
        k.mbarrier.wait(empty[other if bug == "waits" else s], ((i // STAGES) & 1) ^ 1)  # @waits
        halves = 1 if bug == "bytes" else 2
        k.mbarrier.arrive_expect_tx(full[s], halves * box.box_bytes)  # @bytes
        k.tma.load(box, a[s], (i * 64, 0), full[s])
        k.tma.load(box, b[s], (i * 64, 0), full[s])
    with k.role("consumer", range(4, 8)):
        with k.loop(TURNS) as i:
            s, other = i % STAGES, (i + 1) % STAGES
            k.mbarrier.wait(full[s], (i // STAGES) & 1)
            k.wgmma.fence()
            for q in range(4):
                part = ts.ds(16 * q, 16)
                more = i.ne(0) if q == 0 else 1
                k.wgmma.mma_async(acc, a[s, :, part], b[s, :, part], accumulate=more)
            k.wgmma.commit_group()
            k.wgmma.wait_group(1 if bug == "group" else 0)  # @group
            if bug == "seldom":
                with k.if_(i < TURNS - 4):  # @seldom
                    k.mbarrier.arrive(empty[s])
            else:
                k.mbarrier.arrive(empty[other if bug == "releases" else s])  # @releases
        k.wgmma.wait_group(0)
        k.tile.store(c, acc)
        k.fence.proxy_async("shared::cta")
        k.bar.sync(1, 96 if bug == "threads" else 128)  # @threads
        with k.if_(k.warp_id.eq(4)), k.elected():
            k.tma.store(out, c, (0, 0))
            k.bulk.commit_group()
            k.bulk.wait_group(0)


@ts.kernel(target="sm_100a", warps=8)
def accumulated(k: Builder, *, bug: str = "") -> None:
    """Products into two accumulators in turn, which an epilogue reads and hands back."""
    source = k.tensor("source", ts.bf16, (128 * TILES, 128))
    box = k.tensor_map(source, (128, 64), swizzle=128)
    a = k.shared("a", ts.bf16, (2, 128, 64), swizzle=128)
    word, address = k.shared("word", ts.u32, (1,)), k.var("address", dtype=ts.u32)
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    ready, free = k.mbarriers("ready", 2), k.mbarriers("free", 2)
    acc = k.fragment("acc", ts.f32, (128, 128), "warpgroup")
    with k.one_thread():
        for s in range(2):
            for barrier, arrivals in ((full, 1), (empty, 1), (ready, 1), (free, 128)):
                k.mbarrier.init(barrier[s], arrivals)
        k.fence.mbarrier_init()
    with k.role("alloc", 2):
        k.tcgen05.alloc(word, 256)
    k.sync_threads()
    k.tcgen05.fence_after_thread_sync()
    k.mem.load(address, word[0])
    d = k.tcgen05.tensor(address, ts.f32, (128, 256))
    with k.role("tma", 0), k.elected(), k.loop(2 * TILES) as i:
        k.mbarrier.wait(empty[i % 2], ((i // 2) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[i % 2], box.box_bytes)
        k.tma.load(box, a[i % 2], ((i // 2) * 128, (i % 2) * 64), full[i % 2])
    with k.role("mma", 1), k.elected(), k.loop(TILES) as t:
        if bug != "no wait":
            start = 0 if bug == "start" else 1
            k.mbarrier.wait(free[t % 2], ((t // 2) & 1) ^ start)  # @start
        k.tcgen05.fence_after_thread_sync()  # @no wait
        with k.loop(2) as j:
            n = t * 2 + j
            k.mbarrier.wait(full[n % 2], (n // 2) & 1)
            k.tcgen05.fence_after_thread_sync()
            columns = d[:, ts.ds((t % 2) * 128, 128)]
            multiply_tile(k, columns, a[n % 2], a[n % 2], first=j.eq(0))
            k.tcgen05.commit(empty[(n + 1) % 2 if bug == "slot" else n % 2])  # @slot
            if bug == "early":
                with k.if_(j.eq(0)):
                    k.tcgen05.commit(ready[t % 2])  # @early
        if bug != "early":
            k.tcgen05.commit(ready[t % 2])
    with k.role("epilogue", range(4, 8)), k.loop(TILES) as t:
        k.mbarrier.wait(ready[t % 2], (t // 2) & 1)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d[:, ts.ds((t % 2) * 128, 128)])
        if bug == "hands on":
            k.mbarrier.arrive(free[t % 2])  # @hands on
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        if bug != "hands on":
            k.mbarrier.arrive(free[t % 2])
    k.sync_threads()
    with k.role("free", 2):
        k.tcgen05.dealloc(address, 256)


MISTAKES = (
    (staged, "waits", "deadlock", "has not waited for phase 0"),
    (staged, "bytes", "race", "8192 bytes are expected on full["),
    (staged, "group", "race", "wgmma.wait_group 1 does not wait for"),
    (staged, "seldom", "deadlock", "has made all its 3 arrivals"),
    (staged, "releases", "deadlock", "has filled its slot"),
    (staged, "threads", "race", "completes with 96 threads"),
    (accumulated, "start", "deadlock", "the producer's first wait must use parity 1"),
    (accumulated, "no wait", "tcgen05-order", "and no warp waits for it"),
    (accumulated, "slot", "deadlock", "has filled its slot"),
    (accumulated, "early", "tcgen05-order", "this commit comes before"),
    (accumulated, "hands on", "tcgen05-order", "releases what tcgen05.ld still uses"),
)


@pytest.mark.parametrize(
    ("kernel", "bug", "rule", "cause"), MISTAKES, ids=[bug for _, bug, _, _ in MISTAKES]
)
def test_the_first_line_is_that_of_the_mistake(
    kernel: Kernel, bug: str, rule: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "RAISES", True)
    report = check(kernel.build(bug=bug))
    assert report.verdict == "failed"
    finding = report.findings[0]
    assert (finding.rule, cause in finding.cause) == (rule, True), finding.cause
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert source[finding.locations[0].line - 1].endswith(f"# @{bug}")


@pytest.mark.parametrize("kernel", [staged, accumulated], ids=lambda kernel: kernel.name)
def test_without_a_mistake_they_are_proved(kernel: Kernel) -> None:
    assert check(kernel.build()).verdict == "proved"
