"""Small sm_100a kernels with one fault each: accumulators, two Q stages, pairs, launch control.

Each has a parameter that says what is wrong with it; the default is right. The operands are loaded
once; what is tested is what happens between the roles.
"""

from __future__ import annotations

from tilesim import Builder, kernel
from tilesim.arith.types import bf16, f32, s32, u32
from tilesim.ir.declarations import Mbarriers, SharedTensor
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.tensor_memory import TensorMemory

ROWS, COLUMNS, DEPTH, GROUP = 128, 32, 16, 128


def operands(k: Builder, *barriers: tuple[Mbarriers, int]) -> tuple[SharedTensor, SharedTensor]:
    """A and B by TMA, visible to every warp; initialises the barriers on the way."""
    A, B = k.tensor("A", bf16, (ROWS, DEPTH)), k.tensor("B", bf16, (COLUMNS, DEPTH))
    maps = [k.tensor_map(t, t.shape, swizzle=32) for t in (A, B)]
    a, b = (k.shared(f"s{t.name}", bf16, t.shape, swizzle=32) for t in (A, B))
    loaded = k.mbarriers("loaded")
    with k.one_thread():
        k.mbarrier.init(loaded, 1)
        for array, count in barriers:
            for index in range(array.count):
                k.mbarrier.init(array[index], count)
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(loaded, sum(m.box_bytes for m in maps))
        for box, tile in zip(maps, (a, b), strict=True):
            k.tma.load(box, tile, (0, 0), loaded)
    k.mbarrier.wait(loaded, 0)
    return a, b


@kernel(target="sm_100a", warps=5)
def two_accumulators(k: Builder, *, tiles: int = 5, fault: str = "") -> None:
    """The epilogue reads one accumulator while the MMA warp fills the other."""
    pipe = Pipeline(k, 2, name="acc", consumers=GROUP)
    memory = TensorMemory(k, 2 * COLUMNS)
    memory.allocate()
    a, b = operands(k, (pipe.full, 1), (pipe.empty, GROUP))
    address, acc = memory.address(), k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")
    Y = k.tensor("Y", f32, (ROWS, COLUMNS))
    with k.role("mma", 4), k.elected(), k.loop(tiles) as i:
        slot = pipe[i]
        if fault != "no acquire":
            slot.acquire()
        k.tcgen05.fence_after_thread_sync()
        d = k.tcgen05.tensor(address + slot.stage * COLUMNS, f32, (ROWS, COLUMNS), name="d")
        k.tcgen05.mma(d, a, b, accumulate=0)  # BUG: if the epilogue still reads
        k.tcgen05.commit(slot.full)
    with k.role("epilogue", range(4)), k.loop(tiles) as i:
        slot = pipe[i]
        slot.wait()
        k.tcgen05.fence_after_thread_sync()
        stage = (i + 1) % 2 if fault == "other stage" else slot.stage
        d = k.tcgen05.tensor(address + stage * COLUMNS, f32, (ROWS, COLUMNS), name="d")
        k.tcgen05.ld(acc, d)
        if fault == "early":
            k.mbarrier.arrive(slot.empty)
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        if fault != "early":
            k.mbarrier.arrive(slot.empty)
        k.tile.store(Y, acc)
    memory.free()


@kernel(target="sm_100a", warps=9)
def two_q_stages(k: Builder, *, blocks: int = 3, fault: str = "") -> None:
    """Attention with two Q tiles in flight: S0 and S1, two softmax warpgroups, one MMA warp."""
    s_full, p_full = k.mbarriers("s_full", 2), k.mbarriers("p_full", 2)
    done = k.mbarriers("done")
    memory = TensorMemory(k, 256)
    memory.allocate()
    a, b = operands(k, (s_full, 1), (p_full, GROUP), (done, 1))
    address = memory.address()
    s = [k.tcgen05.tensor(address + 32 * q, f32, (ROWS, 32), name=f"s{q}") for q in range(2)]
    o = [k.tcgen05.tensor(address + 64 + 32 * q, f32, (ROWS, 32), name=f"o{q}") for q in range(2)]
    p = [
        k.tcgen05.tensor(address + 128 + 32 * q, bf16, (ROWS, DEPTH), name=f"p{q}")
        for q in range(2)
    ]
    scores = k.fragment("scores", f32, (ROWS, 32), "warpgroup")
    part = k.fragment("part", bf16, (ROWS, DEPTH), "warpgroup")
    with k.role("mma", 8), k.elected():
        for q in range(2):
            k.tcgen05.mma(s[q], a, b, accumulate=0)
            k.tcgen05.commit(s_full[q])
        with k.loop(blocks, name="block") as block:
            for q in range(2):
                k.mbarrier.wait(p_full[0 if fault == "one stage" else q], block & 1)
                k.tcgen05.fence_after_thread_sync()
                k.tcgen05.mma(o[q], p[q], b, accumulate=block > 0)  # BUG: if P is not there
                with k.if_(block + 1 < blocks):
                    k.tcgen05.mma(s[q], a, b, accumulate=0)
                    k.tcgen05.commit(s_full[1 - q if fault == "swapped" else q])
        k.tcgen05.commit(done)
    for q in range(2):
        with k.role(f"softmax {q}", range(4 * q, 4 * q + 4)):
            k.tile.fill(part, 1.0)
            with k.loop(blocks, name="block") as block:
                k.mbarrier.wait(s_full[q], block & 1)
                k.tcgen05.fence_after_thread_sync()
                k.tcgen05.ld(scores, s[q])
                k.tcgen05.wait_ld()
                k.tcgen05.st(p[q], part)
                if fault != "unwaited":
                    k.tcgen05.wait_st()
                k.tcgen05.fence_before_thread_sync()
                k.mbarrier.arrive(p_full[q])
    k.mbarrier.wait(done, 0)
    memory.free()


@kernel(target="sm_100a", warps=6)
def pair_ring(
    k: Builder, *, items: int = 4, both: bool = True, remote: bool = True, tail: bool = True
) -> None:
    """A CTA pair's operands in a ring: one commit gives the stage back in both CTAs."""
    stages, half = 2, COLUMNS // 2
    k.launch(grid=2, cluster=2)
    A = k.tensor("A", bf16, (items * 2 * ROWS, DEPTH))
    B = k.tensor("B", bf16, (items * COLUMNS, DEPTH))
    a_map = k.tensor_map(A, (ROWS, DEPTH), swizzle=32)
    b_map = k.tensor_map(B, (half, DEPTH), swizzle=32)
    a = k.shared("a", bf16, (stages, ROWS, DEPTH), swizzle=32)
    b = k.shared("b", bf16, (stages, half, DEPTH), swizzle=32)
    full, empty, done = (
        k.mbarriers("full", stages),
        k.mbarriers("empty", stages),
        k.mbarriers("done"),
    )
    rank = k.cluster_rank
    with k.one_thread():
        for index in range(stages):
            k.mbarrier.init(full[index], 2 if remote else 1)
            k.mbarrier.init(empty[index], 1)
        k.mbarrier.init(done, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    memory = TensorMemory(k, COLUMNS, cta_group=2)
    memory.allocate()
    k.sync_threads()
    d = k.tcgen05.tensor(memory.address(), f32, (ROWS, COLUMNS), name="d")
    with k.role("load", 5), k.elected(), k.loop(items) as i:
        stage = i % stages
        k.mbarrier.wait(empty[stage], ((i // stages) & 1) ^ 1, scope="cluster")
        size = a_map.box_bytes + b_map.box_bytes
        where = full[stage].at(0) if remote else full[stage]
        k.mbarrier.arrive_expect_tx(where, size, scope="cluster")
        k.tma.load(a_map, a[stage], ((i * 2 + rank) * ROWS, 0), where, cta_group=2)
        k.tma.load(b_map, b[stage], (i * COLUMNS + rank * half, 0), where, cta_group=2)
    if tail:
        with k.role("load", 5), k.elected(), k.loop(items, items + stages) as i:
            k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1, scope="cluster")
    with k.role("mma", 4), k.elected(), k.if_(rank.eq(0)):
        with k.loop(items) as i:
            stage = i % stages
            k.mbarrier.wait(full[stage], (i // stages) & 1, scope="cluster")  # BUG: if own only
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.mma(d, a[stage], b[stage], accumulate=i > 0, cta_group=2)
            k.tcgen05.commit(empty[stage], multicast=0b11 if both else 0b01, cta_group=2)
        k.tcgen05.commit(done, multicast=0b11, cta_group=2)
    k.mbarrier.wait(done, 0, scope="cluster")
    memory.free()
    k.cluster.sync()


@kernel(target="sm_100a", warps=6)
def foreign_commit(k: Builder, *, steps: int = 2, fault: str = "") -> None:
    """A commit counts for the thread that issued the mma, once per lane that executes it."""
    full, empty, issued = (k.mbarriers(n) for n in ("full", "empty", "issued"))
    memory = TensorMemory(k, COLUMNS)
    memory.allocate()
    a, b = operands(k, (full, 1), (empty, GROUP), (issued, 1))
    d = k.tcgen05.tensor(memory.address(), f32, (ROWS, COLUMNS), name="d")
    acc, Y = (
        k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup"),
        k.tensor("Y", f32, (ROWS, COLUMNS)),
    )
    with k.role("mma", 4), k.loop(steps) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.tcgen05.fence_after_thread_sync()
        with k.elected():
            k.tcgen05.mma(d, a, b, accumulate=0)
            if fault == "other warp":
                k.mbarrier.arrive(issued)
            elif fault != "whole warp":
                k.tcgen05.commit(full)
        if fault == "whole warp":
            k.tcgen05.commit(full)  # BUG: 32 arrivals
    if fault == "other warp":
        with k.role("helper", 5), k.elected(), k.loop(steps) as i:
            k.mbarrier.wait(issued, i & 1)
            k.tcgen05.commit(full)  # BUG: it has issued no mma
    with k.role("epilogue", range(4)), k.loop(steps) as i:
        k.mbarrier.wait(full, i & 1)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(empty)
        k.tile.store(Y, acc)
    memory.free()


@kernel(target="sm_100a", warps=6)
def two_mma_warps(k: Builder, *, ordered: bool = True) -> None:
    """Two warps accumulate into one accumulator, the second after the first."""
    turn, done = k.mbarriers("turn"), k.mbarriers("done", 2)
    memory = TensorMemory(k, COLUMNS)
    memory.allocate()
    a, b = operands(k, (turn, 1), (done, 1))
    d = k.tcgen05.tensor(memory.address(), f32, (ROWS, COLUMNS), name="d")
    with k.role("first", 4), k.elected():
        k.tcgen05.mma(d, a, b, accumulate=0)
        k.tcgen05.commit(done[0])
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(turn)
    with k.role("second", 5), k.elected():
        if ordered:
            k.mbarrier.wait(turn, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, a, b)  # BUG: if it is not the second
        k.tcgen05.commit(done[1])
    for index in range(2):
        k.mbarrier.wait(done[index], 0)
    memory.free()


@kernel(target="sm_100a", warps=3)
def answers_ahead(k: Builder, *, tiles: int = 7, stages: int = 2, wraps: bool = True) -> None:
    """Launch-control answers in a ring of slots, requested ahead of the workers."""
    k.launch(grid=tiles)
    done = k.tensor("done", s32, (tiles,))
    response = k.shared("response", u32, (stages, 4))
    pipe = Pipeline(k, stages, name="answer", consumers=3)
    x, more, count = k.var("x", k.cta_x), k.var("more", 1), k.var("count", 0)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.while_(more.ne(0)):
        slot = pipe[count]
        with k.role("scheduler", 2), k.elected():
            slot.acquire()
            slot.commit(16)
            k.clc.try_cancel(response[slot.stage], slot.full)
        with k.role("worker", 0), k.elected():
            k.mem.store(done[x], x + 1)
        k.mbarrier.wait(slot.full, slot.parity if wraps else count & 1)  # BUG: per use of the slot
        k.clc.query_is_canceled(more, response[slot.stage])
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(x, response[slot.stage])
        k.fence.proxy_async("shared::cta")
        with k.elected():
            slot.release()
        k.assign(count, count + 1)
