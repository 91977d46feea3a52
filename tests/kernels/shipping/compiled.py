"""Protocols that compilers generate: Triton, Mosaic GPU, MLIR NVGPU, tilelang, nvFuser, mKernel."""

from __future__ import annotations

from tilesim import Builder, all_of, any_of, ds, kernel
from tilesim.arith.types import bf16, f32
from tilesim.ir.declarations import Mbar, Mbarriers
from tilesim.ir.expr import Operand, Var, as_expr
from tilesim.lib.opening import open_cluster
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

ROW = 128


@kernel(warps=5)
def leader(k: Builder, *, stages: int = 2, n: int = 5, poll: str = "wait", fault: str = "") -> None:
    """Triton: all warps of a partition wait, one thread gives the slot back (triton#10035).

    ``poll``: the wait written out as a first try_wait or test_wait and a loop of them.
    """
    pipe, seen = Pipeline(k, stages), k.var("seen", 0)
    with k.one_thread():
        pipe.init()
    k.sync_threads()

    def wait(bar: Mbar, parity: Operand) -> None:
        ask = k.mbarrier.try_wait if poll == "try_wait" else k.mbarrier.test_wait
        if poll == "wait":
            k.mbarrier.wait(bar, parity)  # BUG: if a warp is late
            return
        ask(seen, bar, parity)
        with k.while_(seen.eq(0)):
            ask(seen, bar, parity)  # BUG: if a warp polls late

    with k.role("producer", 4), k.elected(), k.loop(n) as i:
        slot = pipe[i]
        wait(slot.empty, slot.parity ^ 1)
        slot.commit()
    with k.role("consumer", range(4)), k.loop(n) as i:
        slot = pipe[i]
        wait(slot.full, slot.parity)
        if fault != "no barrier":
            k.bar.sync(1, ROW, aligned=False)
        with k.one_thread():
            slot.release()


@kernel(warps=5)
def store_token(k: Builder, *, stages: int = 1, n: int = 3, fault: str = "") -> None:
    """Triton AutoWS: a store's slot is given back one iteration later (fb triton#1678)."""
    Y, staging = k.tensor("Y", f32, (max(n, 1), ROW)), k.shared("staging", f32, (stages, ROW))
    pipe = Pipeline(k, stages)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("epilogue", range(4)), k.loop(n) as i:
        slot = pipe[i]
        slot.acquire()
        k.mem.store(staging[slot.stage, k.thread_id], i)
        k.fence.proxy_async("shared::cta")
        k.bar.sync(1, ROW, aligned=False)
        with k.one_thread():
            slot.commit()
    with k.role("store", 4), k.elected():
        with k.loop(n) as i:
            slot = pipe[i]
            if fault == "wait first":
                slot.wait()  # BUG: if its slot is the one that is still held
            with k.if_(i > 0):
                k.bulk.wait_group(0, read=True)
                pipe[i - 1].release()
            if fault != "wait first":
                slot.wait()
            k.bulk.store(Y[i], staging[slot.stage])
            k.bulk.commit_group()
        k.bulk.wait_group(0)


class Phases:
    """Mosaic GPU: the parities of an array of barriers are the bits of one register."""

    def __init__(self, k: Builder, bars: Mbarriers, name: str) -> None:
        self._k, self._bars, self._bits = k, bars, k.var(name, 0)

    def wait(self, slot: Operand) -> None:
        """Waits for the next phase of one of the barriers."""
        bits: Var = self._bits
        self._k.mbarrier.wait(self._bars[slot], (bits >> slot) & 1)
        self._k.assign(bits, bits ^ (as_expr(1) << slot))


@kernel(target="sm_100a", warps=8)
def mosaic(k: Builder, *, tiles: int = 2, depth: int = 2, steps: int = 2, fault: str = "") -> None:
    """Pallas blackwell_matmul_mgpu: two arrivals per stage, no wait for the first use of a slot."""
    A, B = k.tensor("A", bf16, (ROW * tiles, 64 * depth)), k.tensor("B", bf16, (64, 64 * depth))
    a_map, b_map = (k.tensor_map(t, (r, 64), swizzle=128) for t, r in ((A, ROW), (B, 64)))
    C, half = k.tensor("C", f32, (ROW * tiles, 64)), 32
    c_map, out = k.tensor_map(C, (ROW, half)), k.shared("out", f32, (2, ROW, half))
    sa = k.shared("sa", bf16, (steps, ROW, 64), swizzle=128)
    sb = k.shared("sb", bf16, (steps, 64, 64), swizzle=128)
    loaded, consumed = k.mbarriers("loaded", steps), k.mbarriers("consumed", steps)
    done, stored = k.mbarriers("done", 2), k.mbarriers("stored", 2)
    memory, part = TensorMemory(k, ROW), k.fragment("part", f32, (ROW, half), "warpgroup")
    memory.allocate()
    with k.one_thread():
        for array, count in ((loaded, 2), (consumed, 1), (done, 1), (stored, ROW)):
            for index in range(array.count):
                k.mbarrier.init(array[index], count)
    k.sync_threads()
    address = memory.address()
    with k.role("load", 0), k.elected():
        free = Phases(k, consumed, "consumed_bits")
        with k.loop(tiles, name="t") as t, k.loop(depth, name="j") as j:
            slot = j % steps
            with k.if_(any_of(j >= steps, t > (1 if fault == "late" else 0))):
                free.wait(slot)
            k.mbarrier.arrive_expect_tx(loaded[slot], a_map.box_bytes)  # BUG: if it is in use
            k.tma.load(a_map, sa[slot], (t * ROW, j * 64), loaded[slot])
            k.mbarrier.arrive_expect_tx(loaded[slot], b_map.box_bytes)
            k.tma.load(b_map, sb[slot], (0, j * 64), loaded[slot])
        for used in range(min(steps, depth)):
            free.wait(used)
    with k.role("mma", 1), k.elected():
        full, read = Phases(k, loaded, "loaded_bits"), Phases(k, stored, "stored_bits")
        with k.loop(tiles, name="t") as t:
            if fault != "not stored":
                with k.if_(t > 1):
                    read.wait(t % 2)
            k.tcgen05.fence_after_thread_sync()
            d = k.tcgen05.tensor(address + t % 2 * 64, f32, (ROW, 64))
            with k.loop(depth, name="j") as j:
                full.wait(j % steps)
                k.tcgen05.fence_after_thread_sync()
                multiply_tile(k, d, sa[j % steps], sb[j % steps], first=j.eq(0))  # BUG: if read
                k.tcgen05.commit(consumed[j % steps])
                with k.if_(j >= depth - 1):
                    k.tcgen05.commit(done[t % 2])
    with k.role("store", range(4, 8)):
        summed = Phases(k, done, "done_bits")
        with k.loop(tiles, name="t") as t:
            k.bulk.wait_group(0, read=True)
            summed.wait(t % 2)
            k.tcgen05.fence_after_thread_sync()
            for part_ in range(2):
                at = address + t % 2 * 64 + part_ * half
                k.tcgen05.ld(part, k.tcgen05.tensor(at, f32, (ROW, half)))
                k.tcgen05.wait_ld()
                k.bar.sync(1, ROW, aligned=False)
                k.tile.store(out[part_], part)
                k.fence.proxy_async("shared::cta")
                k.bar.sync(1, ROW, aligned=False)
                with k.one_thread(4):
                    k.tma.store(c_map, out[part_], (t * ROW, part_ * half))
                    k.bulk.commit_group()
                k.bulk.wait_group(1, read=True)
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(stored[t % 2])
        k.bulk.wait_group(0, read=True)
    memory.free()


@kernel(target="sm_100a", warps=8)
def shared_columns(k: Builder, *, n: int = 2, fault: str = "") -> None:
    """TLX attention, backward: P lies over columns of S that other warps read (fb triton#1992)."""
    memory = TensorMemory(k, ROW)
    memory.allocate()
    k.sync_threads()
    address = memory.address()
    s = k.fragment("s", f32, (ROW, 64), "warpgroup")
    p = k.fragment("p", bf16, (ROW, 64), "warpgroup")
    k.tile.fill(s, 1.0)
    for half in range(2):
        with k.role(f"compute {half}", range(4 * half, 4 * half + 4)), k.loop(n):
            scores = k.tcgen05.tensor(address + 64 * half, f32, (ROW, 64))
            k.tcgen05.st(scores, s)
            k.tcgen05.wait_st()
            k.tcgen05.ld(s, scores)  # BUG: if the other warps' P is there
            k.tcgen05.wait_ld()
            k.tile.cast(p, s)
            k.tcgen05.fence_before_thread_sync()
            if fault != "no barrier":
                k.bar.sync(1, 2 * ROW, aligned=False)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.st(k.tcgen05.tensor(address + 64 + 32 * half, bf16, (ROW, 64)), p)
            k.tcgen05.wait_st()
            k.tcgen05.fence_before_thread_sync()
            k.bar.sync(2, 2 * ROW, aligned=False)
            k.tcgen05.fence_after_thread_sync()
    memory.free()


@kernel(warps=5)
def output_over_input(
    k: Builder, *, tiles: int = 3, depth: int = 3, stages: int = 2, fault: str = ""
) -> None:
    """mKernel: the output tile is stage 0 of the input ring (uccl-project/mKernel#18)."""
    X, Y = k.tensor("X", f32, (tiles * depth, ROW)), k.tensor("Y", f32, (tiles, ROW))
    ring, stored = k.shared("ring", f32, (stages, ROW)), k.mbarriers("stored")
    x, total = k.var("x", dtype=f32), k.var("total", dtype=f32)
    pipe = Pipeline(k, stages, consumers=4)
    with k.one_thread():
        pipe.init()
        k.mbarrier.init(stored, 1)
    k.sync_threads()
    with k.role("producer", 4), k.elected(), k.loop(tiles, name="t") as t:
        at = 1 if fault == "iteration" else 0
        with k.loop(depth, name="j") as j:
            slot = pipe[t * depth + j]
            with k.if_(all_of(t > 0, j.eq(at))):
                k.mbarrier.wait(stored, (t + 1) & 1)
            slot.acquire()
            slot.commit(ring[0].nbytes)
            k.bulk.load(ring[slot.stage], X[t * depth + j], slot.full)  # BUG: if it is stored
    with k.role("consumer", range(4)), k.loop(tiles, name="t") as t:
        k.assign(total, 0.0)
        with k.loop(depth, name="j") as j:
            slot = pipe[t * depth + j]
            slot.wait()
            k.mem.load(x, ring[slot.stage, k.thread_id])
            k.assign(total, total + x)
            k.fence.proxy_async("shared::cta")
            k.sync_warp()
            with k.elected():
                slot.release()
        k.bar.sync(1, ROW, aligned=False)
        k.mem.store(ring[0, k.thread_id], total)
        k.fence.proxy_async("shared::cta")
        k.bar.sync(1, ROW, aligned=False)
        with k.one_thread():
            k.bulk.store(Y[t], ring[0])
            k.bulk.commit_group()
            k.bulk.wait_group(0, read=True)
            k.mbarrier.arrive(stored)


@kernel(warps=8)
def previous_slot(k: Builder, *, stages: int = 2, n: int = 5, fault: str = "") -> None:
    """MLIR's NVGPU tutorial: one thread frees the slot before, after wgmma.wait_group 1.

    The registers at launch are left to ptxas, as in a kernel with __launch_bounds__(256, 1).
    """
    width = 64 * max(n, 1)
    A, B = k.tensor("A", bf16, (64, width)), k.tensor("B", bf16, (64, width))
    a_map, b_map = (k.tensor_map(t, (64, 64), swizzle=128) for t in (A, B))
    C, acc = k.tensor("C", f32, (64, 64)), k.fragment("acc", f32, (64, 64), "warpgroup")
    sa, sb = (k.shared(name, bf16, (stages, 64, 64), swizzle=128) for name in ("sa", "sb"))
    pipe = Pipeline(k, stages)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("registers", range(4, 8)):
        k.setmaxnreg("dec", 40)
    with k.role("producer", range(4, 8) if fault == "all warps" else 4), k.loop(n) as i:
        slot = pipe[i]
        k.mbarrier.wait(slot.empty, slot.parity ^ 1)  # BUG: if a warp that loads nothing is late
        with k.one_thread(4):
            k.tma.load(a_map, sa[slot.stage], (0, i * 64), slot.full)
            k.tma.load(b_map, sb[slot.stage], (0, i * 64), slot.full)  # BUG: if it is multiplied
            slot.commit(a_map.box_bytes + b_map.box_bytes)
    with k.role("consumer", range(4)):
        k.setmaxnreg("inc", 232)
        k.tile.fill(acc, 0.0)
        with k.loop(n) as i:
            slot = pipe[i]
            slot.wait()
            k.wgmma.fence()
            for c in range(0, 64, 16):
                at = slice(c, c + 16)
                k.wgmma.mma_async(acc, sa[slot.stage, :, at], sb[slot.stage, :, at])
            k.wgmma.commit_group()
            k.wgmma.wait_group(1)
            with k.if_(i > (-1 if fault == "this slot" else 0)), k.one_thread():
                pipe[i if fault == "this slot" else i - 1].release()
        k.wgmma.wait_group(0)
        k.tile.store(C[0:64], acc)


@kernel(warps=9)
def predicated_rows(k: Builder, *, rows: int = 5, slots: int = 4, fault: str = "") -> None:
    """nvFuser: rows dealt to two groups; a row past the end is not loaded (NVIDIA/Fuser#4524)."""
    X, Y = k.tensor("X", f32, (rows, ROW)), k.tensor("Y", f32, (rows, ROW))
    ring, x = k.shared("ring", f32, (slots, ROW)), k.var("x", dtype=f32)
    pipe = Pipeline(k, slots, consumers=ROW)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("load", 8), k.elected(), k.loop((rows + 1) // 2 * 2) as i, k.if_(i < rows):
        slot = pipe[i]
        slot.acquire()
        slot.commit(ring[0].nbytes)
        k.bulk.load(ring[slot.stage], X[i], slot.full)
    for group in range(2):
        thread = k.thread_id - ROW * group
        with (
            k.role(f"compute {group}", range(4 * group, 4 * group + 4)),
            k.loop((rows + 1) // 2) as i,
        ):
            row = i * 2 + group
            slot = pipe[row]
            if fault == "wait":
                slot.wait()  # BUG: if the row does not exist
            with k.if_(row < rows):
                if fault != "wait":
                    slot.wait()
                k.mem.load(x, ring[slot.stage, thread])
                k.fence.proxy_async("shared::cta")
                slot.release()
                k.mem.store(Y[row, thread], x)


@kernel(warps=9)
def three_roles(k: Builder, *, n: int = 2, aligned: bool = False) -> None:
    """TIRx attention: three branches meet at a barrier (mlc-ai/TIRx-kernels#21)."""
    for name, warps in (("mma", 8), ("compute", range(4)), ("reduce", range(4, 8))):
        with k.role(name, warps), k.loop(n):
            k.bar.sync(5, 288, aligned=aligned)


@kernel(target="sm_100a", warps=4)
def pair_masks(k: Builder, *, pairs: int = 2, fault: str = "") -> None:
    """Mosaic GPU: a commit for both CTAs of each pair of a larger cluster (jax#40279)."""
    size = 2 * pairs
    k.launch(grid=size, cluster=size)
    A, B = k.tensor("A", bf16, (ROW * size, 64)), k.tensor("B", bf16, (ROW, 64))
    a_map, b_map = (k.tensor_map(t, (r, 64), swizzle=128) for t, r in ((A, ROW), (B, 64)))
    C, part = k.tensor("C", f32, (ROW * size, ROW)), k.fragment("p", f32, (ROW, ROW), "warpgroup")
    sa, sb = (k.shared(s, bf16, (r, 64), swizzle=128) for s, r in (("sa", ROW), ("sb", 64)))
    loaded, done, rank = k.mbarriers("loaded"), k.mbarriers("done"), k.cluster_rank
    memory, first = TensorMemory(k, ROW, cta_group=2), rank - rank % 2
    open_cluster(k, (loaded, 1), (done, 1))
    memory.allocate()
    k.sync_threads()
    d = k.tcgen05.tensor(memory.address(), f32, (ROW, ROW))
    with k.one_thread():
        with k.if_(rank.eq(first)):
            nbytes = 2 * (a_map.box_bytes + b_map.box_bytes)
            k.mbarrier.arrive_expect_tx(loaded, nbytes, scope="cluster")
        k.tma.load(a_map, sa, (rank * ROW, 0), loaded[0].at(first), cta_group=2)
        k.tma.load(b_map, sb, (rank % 2 * 64, 0), loaded[0].at(first), cta_group=2)
        with k.if_(rank.eq(first)):
            k.mbarrier.wait(loaded, 0, scope="cluster")
            k.tcgen05.fence_after_thread_sync()
            multiply_tile(k, d, sa.view(), sb.view(), first=1, cta_group=2)
            mask = as_expr(0b11) << (0 if fault == "mask" else first)
            k.tcgen05.commit(done, multicast=mask, cta_group=2)
    k.mbarrier.wait(done, 0, scope="cluster")  # BUG: if other pairs signal it, or nobody
    k.tcgen05.fence_after_thread_sync()
    k.tcgen05.ld(part, d)
    k.tcgen05.wait_ld()
    k.tile.store(C[ds(rank * ROW, ROW)], part)
    memory.free()
