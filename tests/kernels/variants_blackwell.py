"""Kernels for sm_100a that are right, each with faults of other published ones.

What is marked with ``@`` and a fault's name is the line that a report is to name first.
"""

from __future__ import annotations

from tilesim import Builder, ds, kernel
from tilesim.arith.types import bf16, f32, s32, u32

M, N, DEPTH = 128, 32, 16


@kernel(target="sm_100a", warps=6)
def pair_of_ctas(k: Builder, *, fault: str = "", steps: int = 3) -> None:
    """A CTA pair; both load their halves, for barriers of the leader, into two stages."""
    k.launch(grid=2, cluster=2)
    A, B = k.tensor("A", bf16, (2 * M, steps * DEPTH)), k.tensor("B", bf16, (N, steps * DEPTH))
    C, half, rank = k.tensor("C", f32, (2 * M, N)), N // 2, k.cluster_rank
    a_map = k.tensor_map(A, (M, DEPTH), swizzle=32)
    b_map = k.tensor_map(B, (half, DEPTH), swizzle=32)
    a = k.shared("a", bf16, (2, M, DEPTH), swizzle=32)
    b = k.shared("b", bf16, (2, half, DEPTH), swizzle=32)
    full, empty, done = k.mbarriers("full", 2), k.mbarriers("empty", 2), k.mbarriers("done")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    acc = k.fragment("acc", f32, (M, N), "warpgroup")
    with k.one_thread():
        for barrier in (full[0], full[1], empty[0], empty[1], done[0]):
            k.mbarrier.init(barrier, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role("owner", 5):
        k.tcgen05.alloc(slot, N, cta_group=2)
    k.sync_threads()
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, f32, (M, N), name="d")
    nbytes = a_map.box_bytes + b_map.box_bytes
    with k.role("load", 4), k.elected():
        with k.loop(steps) as i:
            s = i % 2
            k.mbarrier.wait(empty[s], (i // 2 + 1) & 1, scope="cluster")
            with k.if_(rank.eq(0)):
                k.mbarrier.arrive_expect_tx(full[s], 2 * nbytes)
            at = full[s] if fault == "own" else full[s].at(0)
            k.tma.load(a_map, a[s], (rank * M, i * DEPTH), at, cta_group=2)
            k.tma.load(b_map, b[s], (rank * half, i * DEPTH), at, cta_group=2)  # @own
        for n in range(steps, steps + 2):
            k.mbarrier.wait(empty[n % 2], (n // 2 + 1) & 1, scope="cluster")
    with k.role("multiply", 5), k.elected(), k.if_(rank.eq(0)):
        with k.loop(steps) as i:
            k.mbarrier.wait(full[i % 2], (i // 2) & 1, scope="cluster")
            k.tcgen05.mma(d, a[i % 2], b[i % 2], accumulate=i.ne(0), cta_group=2)
            k.tcgen05.commit(empty[i % 2], multicast=0b11, cta_group=2)
        k.tcgen05.commit(done, multicast=0b11, cta_group=2)
    with k.role("epilogue", range(4)):
        k.mbarrier.wait(done, 0, scope="cluster")
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        k.tile.store(C[ds(rank * M, M), :], acc)
    if fault == "free":
        k.sync_threads()  # @free
    else:
        k.cluster.sync()
    with k.role("owner", 5):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, N, cta_group=2)
    k.cluster.sync()


@kernel(target="sm_100a", warps=9)
def scores_in_place(k: Builder, *, fault: str = "", blocks: int = 3) -> None:
    """Attention without its softmax: P takes the columns of S, another group reads the sums."""
    Q, K = k.tensor("Q", bf16, (M, DEPTH)), k.tensor("K", bf16, (N, DEPTH))
    V, Y = k.tensor("V", bf16, (DEPTH, N)), k.tensor("Y", f32, (M, DEPTH))
    q = k.shared("q", bf16, (M, DEPTH), swizzle=32)
    keys = k.shared("keys", bf16, (N, DEPTH), swizzle=32)
    values = k.shared("values", bf16, (DEPTH, N), swizzle=64)
    maps = [k.tensor_map(t, tile.shape, swizzle=32) for t, tile in ((Q, q), (K, keys))]
    maps.append(k.tensor_map(V, values.shape, swizzle=64))
    names = ("loaded", "scored", "stored", "summed", "read")
    loaded, scored, stored, summed, read = (k.mbarriers(name) for name in names)
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    wide, narrow, out = (
        k.fragment(name, dtype, (M, columns), "warpgroup")
        for name, dtype, columns in (("wide", f32, N), ("narrow", bf16, N), ("out", f32, DEPTH))
    )
    with k.one_thread():
        for barrier, n in ((loaded, 1), (scored, 1), (stored, M), (summed, 1), (read, M)):
            k.mbarrier.init(barrier, n)  # @begin
    with k.role("multiply", 8):
        k.tcgen05.alloc(slot, 64)
    if fault != "begin":
        k.sync_threads()
    k.mem.load(address, slot[0])
    s = k.tcgen05.tensor(address, f32, (M, N), name="s")
    p = k.tcgen05.tensor(address, bf16, (M, N), name="p")
    o = k.tcgen05.tensor(address + N, f32, (M, DEPTH), name="o")
    with k.role("multiply", 8), k.elected():
        k.mbarrier.arrive_expect_tx(loaded, sum(box.box_bytes for box in maps))
        for box, tile in zip(maps, (q, keys, values), strict=True):
            k.tma.load(box, tile, (0, 0), loaded)
        k.mbarrier.wait(loaded, 0)
        with k.loop(blocks) as i:
            k.tcgen05.mma(s, q, keys, accumulate=0)  # @unasked
            k.tcgen05.commit(scored)
            if fault != "unasked":
                k.mbarrier.wait(stored, i & 1)
            k.mbarrier.wait(read, (i & 1) ^ 1)
            k.tcgen05.fence_after_thread_sync()
            for j in range(0, N, DEPTH):
                part = slice(j, j + DEPTH)
                k.tcgen05.mma(o, p[:, part], values[:, part], accumulate=int(j > 0))
            k.tcgen05.commit(summed)
    with k.role("softmax", range(4)), k.loop(blocks) as i:
        k.mbarrier.wait(scored, i & 1)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(wide, s)  # @loading
        if fault != "loading":
            k.tcgen05.wait_ld()
        k.tile.fill(narrow, 1.0)
        k.tcgen05.st(p, narrow)
        k.tcgen05.wait_ld()
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(stored)
    with k.role("correction", range(4, 8)), k.loop(blocks) as i:
        k.mbarrier.wait(summed, (i + (fault == "ahead")) & 1)  # @ahead
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(out, o)
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(read)
        k.tile.store(Y, out)
    k.sync_threads()
    with k.role("multiply", 8):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 64)


@kernel(target="sm_100a", warps=5)
def two_answers(k: Builder, *, fault: str = "", tiles: int = 6) -> None:
    """Answers of launch control in two slots, read by four warps and by the one that asks."""
    k.launch(grid=tiles)
    done = k.tensor("done", s32, (tiles, 4))
    answers = k.shared("answers", u32, (2, 4))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    with k.one_thread():
        for slot in range(2):
            k.mbarrier.init(full[slot], 1)
            k.mbarrier.init(empty[slot], 5)
    k.sync_threads()
    for name, warps in (("scheduler", range(4, 5)), ("worker", range(4))):
        with k.role(name, warps):
            tile, more = k.var(f"{name}_tile", k.cta_x), k.var(f"{name}_more", 1)
            turn = k.var(f"{name}_turn", 0)
            with k.while_(more.ne(0)):
                s, parity = turn % 2, (turn // 2) & 1
                with k.elected():
                    if name == "scheduler":
                        k.mbarrier.wait(empty[s], parity ^ 1)
                        k.mbarrier.arrive_expect_tx(full[s], 16)
                        k.clc.try_cancel(answers[s], full[s])
                    else:
                        k.mem.store(done[tile, k.warp_id], tile)
                wrong = name == "worker" and fault == "slot"
                if name == "scheduler" or fault != "none":
                    k.mbarrier.wait(full[0 if wrong else s], parity)  # @slot
                k.clc.query_is_canceled(more, answers[s])  # @none
                with k.if_(more.ne(0)):
                    k.clc.query_first_ctaid(tile, answers[s])
                k.fence.proxy_async("shared::cta")
                with k.elected():
                    k.mbarrier.arrive(empty[s])
                k.assign(turn, turn + 1)
