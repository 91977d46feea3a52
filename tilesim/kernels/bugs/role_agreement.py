"""Roles that disagree: on how often they loop, on which of them waits, on which owns a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.expr import minimum
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.tensor_memory import TensorMemory

WARPGROUP = 128
QUERIES, KEYS, DEPTH = 128, 32, 16


def _row_sums(
    inputs: Arrays, *, blocks: int = 4, splits: int = 2, split: int = 1, **params: Any
) -> Arrays:
    q, keys = inputs["Q"].astype(np.float32), inputs["K"].astype(np.float32)
    per = -(-blocks // splits)
    mine = keys[split * per * KEYS : min((split + 1) * per, blocks) * KEYS]
    return {"Y": (q @ mine.T).sum(axis=1, keepdims=True)}


@kernel(target="sm_100a", warps=10, family="bugs", reference=_row_sums)
def packed_split(
    k: Builder, *, blocks: int = 4, splits: int = 2, split: int = 1, packed: bool = True,
    fixed: bool = False,
) -> None:  # fmt: skip
    """Dao-AILab/flash-attention #2761 (B103): two of four roles do not unpack the split index.

    Y = the row sums of Q @ K.T over the key blocks of one split. The tile scheduler packs the
    number of splits into the upper half of the split index. Softmax and correction unpack it, load
    and MMA do not: for them the range of key blocks starts beyond the end and is empty, and the
    other two wait for scores that no role computes. If the number of splits is not packed
    (``packed`` off), the index is what every role takes it for.

    Fix: unpack it in every role.
    """
    per_split = -(-blocks // splits)
    Q, K = k.tensor("Q", bf16, (QUERIES, DEPTH)), k.tensor("K", bf16, (blocks * KEYS, DEPTH))
    Y = k.tensor("Y", f32, (QUERIES, 1))
    q_map = k.tensor_map(Q, (QUERIES, DEPTH), swizzle=32)
    k_map = k.tensor_map(K, (KEYS, DEPTH), swizzle=32)
    q = k.shared("q", bf16, (QUERIES, DEPTH), swizzle=32)
    keys = k.shared("keys", bf16, (2, KEYS, DEPTH), swizzle=32)
    sums = k.shared("sums", f32, (QUERIES, 1))
    loaded, scored = Pipeline(k, 2, name="k"), Pipeline(k, 1, name="s", consumers=WARPGROUP)
    reduced = Pipeline(k, 1, name="sum", producers=WARPGROUP, consumers=WARPGROUP)
    q_full = k.mbarriers("q_full")
    scores = k.fragment("scores", f32, (QUERIES, KEYS), "warpgroup")
    part = k.fragment("part", f32, (QUERIES, 1), "warpgroup")
    total, value = k.var("total", 0.0, dtype=f32), k.var("value", dtype=f32)
    index = k.scalar("split_idx", (splits << 16 if packed else 0) | split)
    memory = TensorMemory(k, KEYS)
    memory.allocate()
    with k.one_thread():
        k.mbarrier.init(q_full, 1)
        for pipe in (loaded, scored, reduced):
            pipe.init()
    k.sync_threads()
    s = k.tcgen05.tensor(memory.address(), f32, (QUERIES, KEYS), name="s")

    raw = index & 0xFFFF if fixed else index
    first, last = raw * per_split, minimum(raw * per_split + per_split, blocks)  # BUG: not unpacked
    with k.role("load", 8), k.elected():
        k.mbarrier.arrive_expect_tx(q_full, q_map.box_bytes)
        k.tma.load(q_map, q, (0, 0), q_full)
        filling = loaded.cursor("load")
        with k.loop(first, last, name="block") as block:
            slot = filling.slot
            slot.acquire()
            slot.commit(k_map.box_bytes)
            k.tma.load(k_map, keys[slot.stage], (block * KEYS, 0), slot.full)
            filling.advance()
        filling.drain()

    with k.role("mma", 9), k.elected():
        k.mbarrier.wait(q_full, 0)
        with k.loop(first, last, name="block") as block:
            source, target = loaded[block - first], scored[block - first]
            source.wait()
            target.acquire()
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.mma(s, q, keys[source.stage], accumulate=0)
            k.tcgen05.commit(source.empty)
            k.tcgen05.commit(target.full)

    unpacked = index & 0xFFFF
    first, last = unpacked * per_split, minimum(unpacked * per_split + per_split, blocks)
    with k.role("softmax", range(4)), k.loop(first, last, name="block") as block:
        source, target = scored[block - first], reduced[block - first]
        source.wait()  # waits for scores
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(scores, s)
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        source.release()
        k.tile.reduce(part, "sum", scores)
        target.acquire()
        k.tile.store(sums, part)
        target.commit()

    with k.role("correction", range(4, 8)):
        row = k.thread_id - WARPGROUP
        with k.loop(first, last, name="block") as block:
            source = reduced[block - first]
            source.wait()  # waits for sums
            k.mem.load(value, sums[row, 0])
            source.release()
            k.assign(total, total + value)
        k.mem.store(Y[row, 0], total)
    memory.free()


def _sum(inputs: Arrays, **params: Any) -> Arrays:
    return {"D": inputs["A"] + inputs["C"]}


@kernel(warps=6, family="bugs", reference=_sum)
def idle_cta(k: Builder, *, tiles: int = 3, ctas: int = 2, fixed: bool = False) -> None:
    """NVIDIA/cutlass #2172, 6c6b78550 (B105): the epilogue load waits although it has no tile.

    D = A + C, tile by tile in persistent CTAs. So that the main loop's loads go first, the load
    warp arrives on an order barrier once it has issued those of its first tile, and the warp that
    loads C for the epilogue waits there before its own loop. A CTA without a tile has no first
    tile: no thread arrives, and the epilogue load waits for ever.

    Fix: wait inside the loop, in the first iteration.
    """
    k.launch(grid=ctas)
    A, C, D = (k.tensor(name, f32, (tiles, WARPGROUP)) for name in "ACD")
    a, c = k.shared("a", f32, (2, WARPGROUP)), k.shared("c", f32, (2, WARPGROUP))
    main = Pipeline(k, 2, name="main", consumers=WARPGROUP)
    epilogue = Pipeline(k, 2, name="epilogue", consumers=WARPGROUP)
    order = k.mbarriers("order")
    x, y = k.var("x", dtype=f32), k.var("y", dtype=f32)
    with k.one_thread():
        main.init()
        epilogue.init()
        k.mbarrier.init(order, 1)
    k.sync_threads()

    with k.role("load", 4), k.elected(), k.loop(k.cta_x, tiles, ctas, name="tile") as tile:
        slot = main[tile // ctas]
        slot.acquire()
        slot.commit(a[0].nbytes)
        k.bulk.load(a[slot.stage], A[tile], slot.full)
        with k.if_(tile.eq(k.cta_x)):
            k.mbarrier.arrive(order)

    with k.role("epilogue load", 5), k.elected():
        if not fixed:
            k.mbarrier.wait(order, 0)  # BUG: before it is known that there is a tile
        with k.loop(k.cta_x, tiles, ctas, name="tile") as tile:
            if fixed:
                with k.if_(tile.eq(k.cta_x)):
                    k.mbarrier.wait(order, 0)
            slot = epilogue[tile // ctas]
            slot.acquire()
            slot.commit(c[0].nbytes)
            k.bulk.load(c[slot.stage], C[tile], slot.full)

    with k.role("math", range(4)), k.loop(k.cta_x, tiles, ctas, name="tile") as tile:
        left, right = main[tile // ctas], epilogue[tile // ctas]
        left.wait()
        k.mem.load(x, a[left.stage, k.thread_id])
        right.wait()
        k.mem.load(y, c[right.stage, k.thread_id])
        k.fence.proxy_async("shared::cta")  # the reads, before the next copies' writes
        left.release()
        right.release()
        k.mem.store(D[tile, k.thread_id], x + y)


def _scaled(inputs: Arrays, *, seq: int = 250, **params: Any) -> Arrays:
    return {"Y": inputs["Q"][:, :seq] * inputs["lse"]}


@kernel(warps=12, family="bugs", reference=_scaled)
def release_behind_work(k: Builder, *, seq: int = 250, heads: int = 3, fixed: bool = False) -> None:
    """tile-ai/tilelang #2567 (B108): the release of Q comes after work that needs Q.

    Y = Q * lse, head by head. The producer waits for the consumers before *every* load of Q, the
    first one too. Rows of 252 floats are multiples of 16 bytes: lse comes by an asynchronous copy
    with barriers of its own, and the consumers release Q at the top of the loop. Rows of 250 floats
    are not: the consumers copy lse themselves, after they have waited for Q, and the release moved
    behind this copy and its barrier. The producer waits for the release, the release for the copy,
    the copy for Q.

    Fix: the first release before the loop.
    """
    consumers, producer = range(8), 8
    threads = 32 * len(consumers)
    bulk = seq * f32.bytes % 16 == 0
    Q, Y = k.tensor("Q", f32, (heads, threads)), k.tensor("Y", f32, (heads, seq))
    lse = k.tensor("lse", f32, (heads, seq))
    q, factors = k.shared("q", f32, (threads,)), k.shared("factors", f32, (2, threads))
    full, pressure = k.mbarriers("full"), k.mbarriers("pressure")
    rows = Pipeline(k, 2, name="lse", consumers=threads)
    x, y = k.var("x", dtype=f32), k.var("y", dtype=f32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(pressure, 1)
        rows.init()
    k.sync_threads()

    with k.role("producer", producer), k.elected(), k.loop(heads, name="head") as head:
        k.mbarrier.wait(pressure, head & 1)  # waits for the release
        k.mbarrier.arrive_expect_tx(full, q.nbytes)
        k.bulk.load(q, Q[head], full)
        if bulk:
            slot = rows[head]
            slot.acquire()
            slot.commit(seq * f32.bytes)
            k.bulk.load(factors[slot.stage, 0:seq], lse[head], slot.full)

    with k.role("consumer", consumers):
        if fixed and not bulk:
            with k.one_thread():
                k.mbarrier.arrive(pressure)
        with k.loop(heads, name="head") as head:
            if bulk:
                k.bar.sync(3, threads)
                with k.one_thread():
                    k.mbarrier.arrive(pressure)
            k.mbarrier.wait(full, head & 1)  # waits for Q
            slot = rows[head]
            if bulk:
                slot.wait()
            else:
                with k.if_(k.thread_id < seq):
                    k.mem.load(y, lse[head, k.thread_id])
                    k.mem.store(factors[slot.stage, k.thread_id], y)
            k.mem.load(x, q[k.thread_id])
            if not bulk:
                k.bar.sync(3, threads)
                with k.one_thread():
                    k.mbarrier.arrive(pressure)  # BUG: the first one is needed before Q
            with k.if_(k.thread_id < seq):
                k.mem.load(y, factors[slot.stage, k.thread_id])
                k.mem.store(Y[head, k.thread_id], x * y)
            if bulk:
                slot.release()


def _doubled(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"] * 2}


@kernel(target="sm_100a", warps=9, family="bugs", reference=_doubled)
def foreign_tail(k: Builder, *, tail: bool = True) -> None:
    """flashinfer-ai/flashinfer #3581, ac554d5a2 (B109): a role tails a pipeline it does not own.

    Y = 2 X. Compute group 1 fills a staging buffer, the epilogue warp stores it and gives it back;
    group 1 tails the pipeline, that is it waits until the last slot has come back. Group 0 tails it
    too, although it neither acquires nor commits: its first wait is for the phase before the first.
    That one passes if the slot has not come back yet; if group 0 is late, it names a phase that
    no thread completes.

    Fix: group 0 has no tail.
    """
    X, Y = k.tensor("X", f32, (2, WARPGROUP)), k.tensor("Y", f32, (2, WARPGROUP))
    staging = k.shared("staging", f32, (WARPGROUP,))
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    x = k.var("x", dtype=f32)
    with k.one_thread():
        k.mbarrier.init(full, WARPGROUP)
        k.mbarrier.init(empty, 1)
    k.sync_threads()

    with k.role("group 1", range(4, 8)):
        k.mbarrier.wait(empty, 1)
        k.mem.load(x, X[1, k.thread_id - WARPGROUP])
        k.mem.store(staging[k.thread_id - WARPGROUP], x * 2.0)
        k.fence.proxy_async("shared::cta")
        k.mbarrier.arrive(full)
        k.mbarrier.wait(empty, 0)  # the owner's tail

    with k.role("epilogue", 8), k.elected():
        k.mbarrier.wait(full, 0)
        k.bulk.store(Y[1], staging)
        k.bulk.commit_group()
        k.bulk.wait_group(0)
        k.mbarrier.arrive(empty)

    with k.role("group 0", range(4)):
        k.mem.load(x, X[0, k.thread_id])
        k.mem.store(Y[0, k.thread_id], x * 2.0)
        if tail:
            k.mbarrier.wait(empty, 1)  # BUG: passes only before the slot has come back
            k.mbarrier.wait(empty, 0)


_DEADLOCK, _FIXED = frozenset({"deadlock"}), {"fixed": True}

CASES = (
    Case(packed_split, {}, "bugs", "failed", _DEADLOCK, source="B103"),
    Case(
        packed_split, {"packed": False}, "bugs", "proved", source="B103",
        note="the number of splits is not packed",
    ),
    Case(packed_split, _FIXED, "bugs", "proved", strict="ptx", source="B103"),
    Case(
        packed_split, {**_FIXED, "blocks": 3}, "bugs", "proved", source="B103",
        note="the last split is shorter",
    ),
    Case(
        idle_cta, {"tiles": 1}, "bugs", "failed", _DEADLOCK, source="B105",
        note="fewer tiles than CTAs",
    ),
    Case(idle_cta, {}, "bugs", "proved", source="B105", note="hidden: every CTA has a tile"),
    Case(idle_cta, {**_FIXED, "tiles": 1}, "bugs", "proved", strict="ptx", source="B105"),
    Case(
        idle_cta, {**_FIXED, "tiles": 1, "ctas": 3}, "bugs", "proved", source="B105",
        note="two CTAs have no tile",
    ),
    Case(idle_cta, _FIXED, "bugs", "proved", strict="ptx", source="B105"),
    Case(release_behind_work, {}, "bugs", "failed", _DEADLOCK, source="B108"),
    Case(
        release_behind_work, {"seq": 252}, "bugs", "proved", source="B108",
        note="lse comes by an asynchronous copy",
    ),
    Case(release_behind_work, _FIXED, "bugs", "proved", source="B108"),
    Case(
        foreign_tail, {}, "bugs", "failed", _DEADLOCK, source="B109", note="some schedules"
    ),
    Case(foreign_tail, {"tail": False}, "bugs", "proved", strict="ptx", source="B109"),
)  # fmt: skip
