"""Protocols of FlashAttention, CUTLASS, DeepEP and cuDNN that no other file here has."""

from __future__ import annotations

from tilesim import Builder, ds, kernel, minimum
from tilesim.arith.types import bf16, f32, s32, u32
from tilesim.lib.opening import open_cluster
from tilesim.lib.pipeline import Pipeline, Slot
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

ROW = 128
SIDE = 64
KEYS = 16


def _release(k: Builder, slot: Slot) -> None:
    with k.elected():
        slot.release()


@kernel(warps=8)
def overlap(k: Builder, *, n: int = 3, stages: int = 2, tiles: int = 2, fault: str = "") -> None:
    """FlashAttention-3: the next QK beside PV, rings for K and for V, O through V's memory.

    Named barrier 1 says that Q may be overwritten, an mbarrier that O has left V's memory.
    """
    Q, Y = (k.tensor(name, bf16, (tiles * SIDE, SIDE)) for name in "QY")
    K, V = (k.tensor(name, bf16, (n * KEYS, SIDE)) for name in "KV")
    q_map, y_map = (k.tensor_map(t, (SIDE, SIDE), swizzle=128) for t in (Q, Y))
    k_map, v_map = (k.tensor_map(t, (KEYS, SIDE), swizzle=128) for t in (K, V))
    sq = k.shared("sq", bf16, (SIDE, SIDE), swizzle=128)
    sk = k.shared("sk", bf16, (stages, KEYS, SIDE), swizzle=128)
    sv = k.shared("sv", bf16, (stages, KEYS, SIDE), swizzle=128, offset=32768)
    so = k.shared("so", bf16, (SIDE, SIDE), swizzle=128, offset=32768)
    keys = Pipeline(k, stages, name="k", consumers=4)
    values = Pipeline(k, stages, name="v", consumers=4)
    loaded, left = k.mbarriers("loaded"), k.mbarriers("left")
    s = k.fragment("s", f32, (SIDE, KEYS), "warpgroup")
    p = k.fragment("p", bf16, (SIDE, KEYS), "warpgroup")
    o = k.fragment("o", f32, (SIDE, SIDE), "warpgroup")
    rounded = k.fragment("rounded", bf16, (SIDE, SIDE), "warpgroup")
    with k.one_thread():
        keys.init()
        values.init()
        k.mbarrier.init(loaded, 1)
        k.mbarrier.init(left, 4)
    k.sync_threads()
    with k.role("load", 0), k.loop(tiles, name="t") as t:
        first = keys[t * n]
        with k.elected():
            first.acquire()
            first.commit(k_map.box_bytes)
            k.tma.load(k_map, sk[first.stage], (0, 0), first.full)
        k.bar.sync(1, 160, aligned=False)
        with k.elected():
            k.mbarrier.arrive_expect_tx(loaded, q_map.box_bytes)
            k.tma.load(q_map, sq, (t * SIDE, 0), loaded)
            if fault != "output":
                k.mbarrier.wait(left, (t + 1) & 1)
            with k.loop(1, n + 1, name="j") as j:
                with k.if_(j < n):
                    slot = keys[t * n + j]
                    slot.acquire()
                    slot.commit(k_map.box_bytes)
                    k.tma.load(k_map, sk[slot.stage], (j * KEYS, 0), slot.full)
                slot = values[t * n + j - 1]
                slot.acquire()
                slot.commit(v_map.box_bytes)
                k.tma.load(v_map, sv[slot.stage], ((j - 1) * KEYS, 0), slot.full)
    with k.role("math", range(4, 8)):

        def scores(slot: Slot) -> None:
            slot.wait()
            k.wgmma.fence()
            for c in range(0, SIDE, 16):
                at = slice(c, c + 16)
                k.wgmma.mma_async(s, sq[:, at], sk[slot.stage][:, at], accumulate=int(c > 0))
            k.wgmma.commit_group()

        def output(slot: Slot) -> None:
            slot.wait()
            k.wgmma.fence()
            k.wgmma.mma_async(o, p, sv[slot.stage], b_trans=True)
            k.wgmma.commit_group()

        k.bar.arrive(1, 160, aligned=False)
        with k.loop(tiles, name="t") as t:
            k.mbarrier.wait(loaded, t & 1)
            k.tile.fill(o, 0.0)
            scores(keys[t * n])
            k.wgmma.wait_group(0)
            _release(k, keys[t * n])
            k.tile.cast(p, s)
            with k.loop(1, n, name="j") as j:
                scores(keys[t * n + j])
                output(values[t * n + j - 1])
                k.wgmma.wait_group(2 if fault == "scores" else 1)
                k.tile.map(s, "exp", s)  # BUG: if they are still computed
                _release(k, keys[t * n + j])
                if fault == "values":
                    _release(k, values[t * n + j - 1])
                if fault != "weights":
                    k.wgmma.wait_group(0)
                k.tile.cast(p, s)  # BUG: if PV still reads the old ones
                if fault == "weights":
                    k.wgmma.wait_group(0)
                if fault != "values":
                    _release(k, values[t * n + j - 1])
            k.bar.arrive(1, 160, aligned=False)  # nobody waits for the last one
            output(values[t * n + n - 1])
            k.wgmma.wait_group(0)
            _release(k, values[t * n + n - 1])
            k.tile.cast(rounded, o)
            k.bar.sync(2, ROW, aligned=False)
            k.tile.store(so, rounded)
            k.fence.proxy_async("shared::cta")
            k.bar.sync(2, ROW, aligned=False)
            with k.role("store", 4), k.elected():
                k.tma.store(y_map, so, (t * SIDE, 0))
                k.bulk.commit_group()
                k.bulk.wait_group(0, read=True)
            k.bar.sync(2, ROW, aligned=False)
            with k.elected():
                k.mbarrier.arrive(left)


@kernel(warps=12)
def signalling(k: Builder, *, stages: int = 2, n: int = 5, tiles: int = 2, fault: str = "") -> None:
    """CUTLASS cooperative: one thread of a warpgroup gives back the stage before the last."""
    A, B = k.tensor("A", bf16, (tiles * ROW, 64 * n)), k.tensor("B", bf16, (64, 64 * n))
    a_map, b_map = k.tensor_map(A, (ROW, 64), swizzle=128), k.tensor_map(B, (64, 64), swizzle=128)
    sa = k.shared("sa", bf16, (stages, ROW, 64), swizzle=128)
    sb = k.shared("sb", bf16, (stages, 64, 64), swizzle=128)
    pipe, acc = Pipeline(k, stages, consumers=2), k.fragment("acc", f32, (64, 64), "warpgroup")
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("load", 0), k.elected(), k.loop(tiles * n) as i:
        slot = pipe[i]
        slot.acquire()  # oldest stage
        slot.commit(a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, sa[slot.stage], (i // n * ROW, i % n * 64), slot.full)  # refill
        k.tma.load(b_map, sb[slot.stage], (0, i % n * 64), slot.full)
    for group in range(2):
        warp = 4 + 4 * group
        with k.role(f"math {group}", range(warp, warp + 4)):
            k.tile.fill(acc, 0.0)
            with k.loop(tiles * n) as i:
                slot = pipe[i]
                slot.wait()
                k.wgmma.fence()
                for c in range(0, 64, 16):
                    rows, at = slice(64 * group, 64 * group + 64), slice(c, c + 16)
                    k.wgmma.mma_async(acc, sa[slot.stage][rows, at], sb[slot.stage][:, at])
                k.wgmma.commit_group()
                k.wgmma.wait_group(1)
                with k.one_thread(warp):
                    if fault == "this":
                        slot.release()
                    else:
                        with k.if_(i > 0):
                            pipe[i - 1].release()
            k.wgmma.wait_group(0)


@kernel(warps=8)
def large_values(k: Builder, *, n: int = 3, fault: str = "") -> None:
    """FlashAttention-3, large head of V: one group's P is used by both, each with half of V."""
    V = k.tensor("V", bf16, (SIDE, 2 * SIDE))
    v_map = k.tensor_map(V, (SIDE, SIDE), swizzle=128)
    sv = k.shared("sv", bf16, (2, SIDE, SIDE), swizzle=128)
    sp, loaded = k.shared("sp", bf16, (SIDE, SIDE), swizzle=128), k.mbarriers("loaded")
    p = k.fragment("p", bf16, (SIDE, SIDE), "warpgroup")
    o = k.fragment("o", f32, (SIDE, SIDE), "warpgroup")
    full, empty = 1, 2
    with k.one_thread():
        k.mbarrier.init(loaded, 1)
        k.mbarrier.arrive_expect_tx(loaded, 2 * v_map.box_bytes)
        for half in range(2):
            k.tma.load(v_map, sv[half], (0, SIDE * half), loaded)
    k.sync_threads()
    k.mbarrier.wait(loaded, 0)
    k.tile.fill(o, 0.0)

    def multiply(half: int) -> None:
        k.wgmma.fence()
        for c in range(0, SIDE, 16):
            at = slice(c, c + 16)
            k.wgmma.mma_async(o, sp[:, at], sv[half][at, :], b_trans=True)  # read P
        k.wgmma.commit_group()

    with k.role("first", range(4)), k.loop(n):
        k.tile.fill(p, 1.0)
        k.bar.sync(empty, 256, aligned=False)
        k.tile.store(sp, p)
        if fault != "fence":
            k.fence.proxy_async("shared::cta")
        k.bar.arrive(full, 256, aligned=False)
        if fault != "own":
            k.bar.sync(3, ROW, aligned=False)
        multiply(0)
        k.wgmma.wait_group(0)
    with k.role("second", range(4, 8)):
        if fault != "closed":
            k.bar.arrive(empty, 256, aligned=False)
        with k.loop(n):
            k.bar.sync(full, 256, aligned=False)
            multiply(1)
            if fault == "early":
                k.bar.arrive(empty, 256, aligned=False)
            k.wgmma.wait_group(0)
            if fault != "early":
                k.bar.arrive(empty, 256, aligned=False)


@kernel(warps=5)
def shared_epilogue(
    k: Builder, *, stages: int = 2, n: int = 5, delay: int = 1, fault: str = ""
) -> None:
    """CUTLASS epilogue with ReuseSmemC: D leaves from C's stage, given back ``delay`` later."""
    C, D = k.tensor("C", f32, (n, ROW)), k.tensor("D", f32, (n, ROW))
    buffer, x, pipe = k.shared("b", f32, (stages, ROW)), k.var("x", dtype=f32), Pipeline(k, stages)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("load", 4), k.elected(), k.loop(n) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(buffer[0].nbytes)
        k.bulk.load(buffer[slot.stage], C[i], slot.full)  # reload
    with k.role("epilogue", range(4)), k.loop(n) as i:
        slot = pipe[i]
        slot.wait()
        k.mem.load(x, buffer[slot.stage, k.thread_id])
        k.mem.store(buffer[slot.stage, k.thread_id], x * 2.0)
        k.fence.proxy_async("shared::cta")
        k.bar.sync(1, ROW, aligned=False)
        with k.one_thread():
            k.bulk.store(D[i], buffer[slot.stage])
            k.bulk.commit_group()
            k.bulk.wait_group(delay + int(fault == "late"), read=True)
            with k.if_(i >= delay):
                pipe[i - delay].release()
            with k.if_(i.eq(n - 1)):
                k.bulk.wait_group(0, read=True)
                with k.loop(n - minimum(delay, n), n, name="last") as last:
                    pipe[last].release()


@kernel(warps=5)
def cluster_output(
    k: Builder, *, n: int = 2, tiles: int = 2, stages: int = 2, fault: str = ""
) -> None:
    """FlashAttention-3 with multicast: O leaves from K's memory, which the peer also fills."""
    k.launch(grid=2, cluster=2)
    K, Y = k.tensor("K", f32, (tiles * n, 2, 64)), k.tensor("Y", f32, (2, tiles, ROW))
    buffer, x = k.shared("buffer", f32, (stages, ROW)), k.var("x", dtype=f32)
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    left, rank = k.mbarriers("left"), k.cluster_rank
    open_cluster(k, (full, 1), (empty, 8), (left, 1 if fault == "own" else 2))
    with k.role("load", 4), k.elected():
        with k.loop(tiles, name="t") as t:
            if fault != "no wait":
                k.mbarrier.wait(left, (t + 1) & 1, scope="cluster")
            with k.loop(t * n, t * n + n) as i:
                stage = i % stages
                k.mbarrier.wait(empty[stage], ((i // stages) & 1) ^ 1, scope="cluster")
                k.mbarrier.arrive_expect_tx(full[stage], buffer[0].nbytes)
                half = ds(rank * 64, 64)
                k.bulk.load(buffer[stage, half], K[i, rank], full[stage], multicast=0b11)
        if fault != "tail":
            k.mbarrier.wait(left, (tiles + 1) & 1, scope="cluster")
            with k.loop(tiles * n, tiles * n + stages) as i:
                phase = ((i // stages) & 1) ^ 1
                k.mbarrier.wait(empty[i % stages], phase, scope="cluster")
    with k.role("math", range(4)), k.loop(tiles, name="t") as t:
        with k.loop(t * n, t * n + n) as i:
            stage = i % stages
            k.mbarrier.wait(full[stage], (i // stages) & 1, scope="cluster")
            k.mem.load(x, buffer[stage, k.thread_id])
            k.fence.proxy_async("shared::cta")
            k.sync_warp()
            with k.if_(k.lane_id < 2):
                k.mbarrier.arrive(empty[stage].at(k.lane_id), scope="cluster")  # hand back
        k.bar.sync(1, ROW, aligned=False)
        k.mem.store(buffer[0, k.thread_id], x)  # output
        k.fence.proxy_async("shared::cta")
        k.bar.sync(1, ROW, aligned=False)
        with k.one_thread():
            k.bulk.store(Y[rank, t], buffer[0])
            k.bulk.commit_group()
            k.bulk.wait_group(0, read=True)
            for peer in range(2):
                with k.if_(rank.eq(peer) if fault == "own" else rank >= 0):
                    k.mbarrier.arrive(left[0].at(peer), scope="cluster")  # it has left


@kernel(warps=1)
def copy_through(k: Builder, *, n: int = 5, stages: int = 2, fault: str = "") -> None:
    """DeepEP: one thread copies global memory through a ring of stages."""
    X, Y = k.tensor("X", f32, (n, ROW)), k.tensor("Y", f32, (n, ROW))
    buffer, full = k.shared("buffer", f32, (stages, ROW)), k.mbarriers("full", stages)
    with k.elected():
        for stage in range(stages):
            k.mbarrier.init(full[stage], 1)
            if stage < n:
                k.mbarrier.arrive_expect_tx(full[stage], buffer[0].nbytes)
                k.bulk.load(buffer[stage], X[stage], full[stage])
        with k.loop(n) as i:
            stage_ = i % stages
            k.mbarrier.wait(full[stage_], (i // stages) & 1)
            k.bulk.store(Y[i], buffer[stage_])
            k.bulk.commit_group()
            with k.if_(i + stages < n):
                k.bulk.wait_group(stages - 1 if fault == "pending" else 0, read=True)
                k.mbarrier.arrive_expect_tx(full[stage_], buffer[0].nbytes)
                k.bulk.load(buffer[stage_], X[i + stages], full[stage_])  # next
        k.bulk.wait_group(0)


@kernel(target="sm_100a", warps=6)
def subtiles(k: Builder, *, tiles: int = 3, slots: int = 1, fault: str = "") -> None:
    """cuDNN's grouped GEMM, CUTLASS example 93: an accumulator is read in parts, then freed."""
    A, B = k.tensor("A", bf16, (ROW, 64)), k.tensor("B", bf16, (64, 64))
    C = k.tensor("C", f32, (tiles * ROW, 64))
    a_map, b_map = k.tensor_map(A, (ROW, 64), swizzle=128), k.tensor_map(B, (64, 64), swizzle=128)
    sa = k.shared("sa", bf16, (ROW, 64), swizzle=128)
    sb = k.shared("sb", bf16, (64, 64), swizzle=128)
    loaded, over = k.mbarriers("loaded"), k.mbarriers("over")
    sums, memory = Pipeline(k, slots, consumers=4), TensorMemory(k, 64 * slots, warp=4)
    part = k.fragment("part", f32, (ROW, 16), "warpgroup")
    memory.allocate()
    with k.one_thread(5):
        sums.init()
        k.mbarrier.init(loaded, 1)
        k.mbarrier.init(over, 4)
    k.sync_threads()
    address = memory.address()
    with k.role("mma", 4):
        with k.elected():
            k.mbarrier.arrive_expect_tx(loaded, a_map.box_bytes + b_map.box_bytes)
            k.tma.load(a_map, sa, (0, 0), loaded)
            k.tma.load(b_map, sb, (0, 0), loaded)
            k.mbarrier.wait(loaded, 0)
            with k.loop(tiles) as t:
                slot = sums[t]
                slot.acquire()
                k.tcgen05.fence_after_thread_sync()
                d = k.tcgen05.tensor(address + 64 * slot.stage, f32, (ROW, 64))
                multiply_tile(k, d, sa[:], sb[:], first=1)
                k.tcgen05.commit(slot.full)
            k.mbarrier.wait(over, 0)
        k.sync_warp()
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 64 * slots)  # free
    with k.role("epilogue", range(4)):
        with k.loop(tiles) as t:
            slot = sums[t]
            slot.wait()
            k.tcgen05.fence_after_thread_sync()
            d = k.tcgen05.tensor(address + 64 * slot.stage, f32, (ROW, 64))
            for c in range(0, 64, 16):
                last = c == 48
                if fault == "release" and last:
                    k.tcgen05.fence_before_thread_sync()
                    _release(k, slot)
                k.tcgen05.ld(part, d[:, c : c + 16])  # BUG: if it was given back
                if fault != "wait::ld" or not last:
                    k.tcgen05.wait_ld()
                k.tile.store(C[ds(t * ROW, ROW), c : c + 16], part)
            if fault != "release":
                k.tcgen05.fence_before_thread_sync()
                _release(k, slot)
        with k.elected():
            k.mbarrier.arrive(over)


@kernel(target="sm_100a", warps=6)
def throttle(k: Builder, *, stages: int = 2, tiles: int = 5, fault: str = "") -> None:
    """CUTLASS with launch control: each role reads the answers, the load warp paces the asking."""
    k.launch(grid=tiles)
    marks, response = k.tensor("marks", s32, (tiles, ROW)), k.shared("r", u32, (stages, 4))
    answers = Pipeline(k, stages, name="answer", consumers=7 if fault == "count" else 6)
    pace = Pipeline(k, stages, name="pace")
    with k.one_thread(5):
        answers.init()
        pace.init()
    k.sync_threads()
    more, x, count = k.var("more", 1), k.var("x", k.cta_x), k.var("count", 0)

    def fetch() -> None:
        slot = answers[count]
        slot.wait()
        if fault == "early":
            _release(k, slot)
        k.clc.query_is_canceled(more, response[slot.stage])  # BUG: if it was given back
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(x, response[slot.stage])
        k.fence.proxy_async("shared::cta")
        if fault != "early":
            k.sync_warp()
            _release(k, slot)
        k.assign(count, count + 1)

    with k.role("scheduler", 5), k.while_(more.ne(0)):
        with k.elected():
            turn, slot = pace[count], answers[count]
            turn.wait()
            turn.release()
            slot.acquire()  # before asking
            slot.commit(16)
            k.clc.try_cancel(response[slot.stage], slot.full)
        fetch()
    with k.role("load", 4), k.while_(more.ne(0)):
        with k.elected():
            turn = pace[count]
            turn.acquire()
            turn.commit()
        fetch()
    with k.role("epilogue", range(4)), k.while_(more.ne(0)):
        k.mem.store(marks[x, k.thread_id], x)
        fetch()
