"""Tensor memory of one CTA: hand-overs between tcgen05 operations, and the life of its columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilesim.arith.types import bf16, f32, u32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import GlobalTensor, Mbarriers, SharedTensor
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.tensor_memory import TensorMemory

ROWS, COLUMNS, DEPTH = 128, 32, 16
WARPGROUP = range(4)
MMA_WARP = 4


class Operands(NamedTuple):
    """A and B in shared memory, filled and visible to every warp, and the output."""

    a: SharedTensor
    b: SharedTensor
    out: GlobalTensor


def _operands(k: Builder, *barriers: tuple[Mbarriers, int]) -> Operands:
    """Initialises the barriers and fills the operands by TMA."""
    A, B = k.tensor("A", bf16, (ROWS, DEPTH)), k.tensor("B", bf16, (COLUMNS, DEPTH))
    a = k.shared("sA", bf16, (ROWS, DEPTH), swizzle=32)
    b = k.shared("sB", bf16, (COLUMNS, DEPTH), swizzle=32)
    a_map = k.tensor_map(A, (ROWS, DEPTH), swizzle=32)
    b_map = k.tensor_map(B, (COLUMNS, DEPTH), swizzle=32)
    filled = k.mbarriers("filled")
    with k.one_thread():
        k.mbarrier.init(filled, 1)
        for barrier, count in barriers:
            k.mbarrier.init(barrier, count)
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(filled, a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, a, (0, 0), filled)
        k.tma.load(b_map, b, (0, 0), filled)
    k.mbarrier.wait(filled, 0)
    return Operands(a, b, k.tensor("C", f32, (ROWS, COLUMNS)))


def _product(inputs: Arrays, **params: Any) -> Arrays:
    return {"C": inputs["A"].astype(np.float32) @ inputs["B"].astype(np.float32).T}


@kernel(target="sm_100a", warps=5, family="bugs", reference=_product)
def hand_over(k: Builder, *, tiles: int = 3, fixed: bool = False) -> None:
    """tile-ai/tilelang #1980, #2003 (B045); NVIDIA/cutlass #2974 (N3).

    The MMA warp fills an accumulator, the epilogue reads it, and both hand it over through
    mbarriers without a tcgen05 fence. By the text both directions need the fences; shipping
    kernels leave them out, so this is a finding at strictness ``ptx`` only.

    Fix: fence::after_thread_sync after each wait, fence::before_thread_sync before the arrive.
    """
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    memory = TensorMemory(k, COLUMNS)
    memory.allocate()
    operands = _operands(k, (full, 1), (empty, 32 * len(WARPGROUP)))
    d = k.tcgen05.tensor(memory.address(), f32, (ROWS, COLUMNS), name="d")
    acc = k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")

    with k.role("mma", MMA_WARP), k.elected(), k.loop(tiles) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        if fixed:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, operands.a, operands.b, accumulate=0)
        k.tcgen05.commit(full)

    with k.role("epilogue", WARPGROUP), k.loop(tiles) as i:
        k.mbarrier.wait(full, i & 1)
        if fixed:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)  # BUG: no fence between the wait and the load
        k.tcgen05.wait_ld()
        if fixed:
            k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(empty)
        k.tile.store(operands.out, acc)
    memory.free()


def _ones(inputs: Arrays, **params: Any) -> Arrays:
    row = 2 * inputs["B"].astype(np.float32).sum(axis=1)
    return {"C": np.tile(row, (ROWS, 1))}


@kernel(target="sm_100a", warps=5, family="bugs", reference=_ones)
def unwaited_store(k: Builder, *, fixed: bool = False) -> None:
    """Dao-AILab/flash-attention e540fc1b (B047).

    The softmax warps write P in two parts and announce each to the MMA warp. The second
    announcement comes without tcgen05.wait::st, so the mma may read columns that are not written.

    Fix: wait::st before the second arrive.
    """
    first, second, done = k.mbarriers("first"), k.mbarriers("second"), k.mbarriers("done")
    memory = TensorMemory(k, 64)
    memory.allocate()
    arrivals = 32 * len(WARPGROUP)
    operands = _operands(k, (first, arrivals), (second, arrivals), (done, 1))
    address = memory.address()
    o = k.tcgen05.tensor(address, f32, (ROWS, COLUMNS), name="o")
    p = k.tcgen05.tensor(address + COLUMNS, bf16, (ROWS, 2 * DEPTH), name="p")
    ones = k.fragment("ones", bf16, (ROWS, DEPTH), "warpgroup")
    acc = k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")

    with k.role("softmax", WARPGROUP):
        k.tile.fill(ones, 1.0)
        k.tcgen05.st(p[:, 0:DEPTH], ones)
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(first)
        k.tcgen05.st(p[:, DEPTH:], ones)  # BUG: announced before it is complete
        if fixed:
            k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(second)

    with k.role("mma", MMA_WARP), k.elected():
        k.mbarrier.wait(first, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(o, p[:, 0:DEPTH], operands.b, accumulate=0)
        k.mbarrier.wait(second, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(o, p[:, DEPTH:], operands.b)
        k.tcgen05.commit(done)

    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    with k.role("softmax", WARPGROUP):
        k.tcgen05.ld(acc, o)
        k.tcgen05.wait_ld()
        k.tile.store(operands.out, acc)
        k.tcgen05.wait_st()
    memory.free()


@kernel(target="sm_100a", warps=5, family="bugs", reference=_product)
def freed_while_read(k: Builder, *, fixed: bool = False) -> None:
    """triton #7994; flash-attention dd8a2729; quack 14e9a0b; DeepGEMM #292 (B050).

    The MMA warp allocates, multiplies and frees the columns when it is done. The epilogue may still
    be reading them; another CTA of the SM could get them.

    Fix: the epilogue arrives on a named barrier after its last load, the MMA warp waits there.
    """
    full, slot = k.mbarriers("full"), k.shared("slot", u32, (1,))
    operands = _operands(k, (full, 1))
    address = k.var("address", dtype=u32)
    with k.role("mma", MMA_WARP):
        k.tcgen05.alloc(slot, COLUMNS)
    k.sync_threads()
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, f32, (ROWS, COLUMNS), name="d")
    acc = k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")
    everybody = 32 * (1 + len(WARPGROUP))

    with k.role("mma", MMA_WARP):
        with k.elected():
            k.tcgen05.mma(d, operands.a, operands.b, accumulate=0)
            k.tcgen05.commit(full)
        k.mbarrier.wait(full, 0)
        if fixed:
            k.bar.sync(1, everybody, aligned=False)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, COLUMNS)  # BUG: the epilogue may still read

    with k.role("epilogue", WARPGROUP):
        k.mbarrier.wait(full, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        if fixed:
            k.tcgen05.fence_before_thread_sync()
            k.bar.arrive(1, everybody, aligned=False)
        k.tile.store(operands.out, acc)


@kernel(target="sm_100a", warps=5, family="bugs")
def address_without_tiles(k: Builder, *, tiles: int = 0, fixed: bool = False) -> None:
    """NVIDIA/cutlass #2835, example 77 (B053).

    The MMA warp allocates; the epilogue learns that the address is there from the first accumulator
    that is full. With no key/value tile there is none, and the epilogue reads the address to free
    the columns without anything that orders it after the allocation.

    Fix: a barrier after the allocation.
    """
    full, slot, address = k.mbarriers("full"), k.shared("slot", u32, (1,)), k.var("address")
    operands = _operands(k, (full, 2))
    own = k.var("own")
    count = k.scalar("tiles", tiles)
    with k.role("mma", MMA_WARP):
        k.tcgen05.alloc(slot, COLUMNS)
        if fixed:
            k.bar.arrive(1, 64, aligned=False)
        k.mem.load(own, slot[0])
        mine = k.tcgen05.tensor(own, f32, (ROWS, COLUMNS), name="d")
        with k.elected(), k.loop(count):
            k.tcgen05.mma(mine, operands.a, operands.b, accumulate=0)
        with k.elected(), k.if_(count > 0):
            k.mbarrier.arrive(full)  # hands over the address, the commit only the accumulator
            k.tcgen05.commit(full)
    with k.role("epilogue", 0):
        if fixed:
            k.bar.sync(1, 64, aligned=False)
        with k.if_(count > 0):
            k.mbarrier.wait(full, 0)
            k.tcgen05.fence_after_thread_sync()
        k.mem.load(address, slot[0])  # BUG: nothing is ordered before it if there was no tile
        k.tcgen05.dealloc(address, COLUMNS)


@kernel(target="sm_100a", warps=1, family="bugs")
def over_allocated(k: Builder, *, last: int = 64, fixed: bool = False) -> None:
    """jax-ml/jax ddc268126a, NVIDIA/Fuser #4152 (B054).

    256 + 256 + 64 columns are more than the 512 there are. The third alloc does not fail, it waits
    for ever. A number of columns that is no power of two (``last=48``) cannot be allocated at all.

    Fix: allocate within 512 columns.
    """
    sizes = (256, 128 if fixed else 256, last)
    slots = k.shared("slots", u32, (len(sizes),))
    got = [k.var(f"address{i}") for i in range(len(sizes))]
    with k.role("owner", 0):
        for i, columns in enumerate(sizes):
            k.tcgen05.alloc(slots[i], columns)  # BUG: the third can never be satisfied
            k.mem.load(got[i], slots[i])
        for i, columns in enumerate(sizes):
            k.tcgen05.dealloc(got[i], columns)


@kernel(target="sm_100a", warps=8, family="bugs")
def released_between_reads(k: Builder, *, steps: int = 3, fixed: bool = False) -> None:
    """facebookexperimental/triton #739 (B067).

    The correction warps read the row sum and the row maximum of one slot and give the slot back
    between the two reads, so the softmax warps may already write the next maximum.

    Fix: release after both reads.
    """
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    threads = 32 * len(WARPGROUP)
    memory = TensorMemory(k, 32)
    memory.allocate()
    with k.one_thread():
        k.mbarrier.init(full, threads)
        k.mbarrier.init(empty, threads)
    k.sync_threads()
    address = memory.address()
    total = k.tcgen05.tensor(address, f32, (ROWS, 1), name="row_sum")
    largest = k.tcgen05.tensor(address + 1, f32, (ROWS, 1), name="row_max")
    new, old = (k.fragment(n, f32, (ROWS, 1), "warpgroup") for n in ("new", "old"))

    with k.role("softmax", WARPGROUP), k.loop(steps) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.tcgen05.fence_after_thread_sync()
        k.tile.fill(new, 1.0)
        k.tcgen05.st(total, new)
        k.tcgen05.st(largest, new)
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(full)

    with k.role("correction", range(4, 8)), k.loop(steps) as i:
        k.mbarrier.wait(full, i & 1)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(old, total)
        if not fixed:
            k.tcgen05.wait_ld()
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(empty)
        k.tcgen05.ld(old, largest)  # BUG: the slot has been given back
        k.tcgen05.wait_ld()
        if fixed:
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(empty)
    memory.free()


_ORDER, _LIFETIME = frozenset({"tcgen05-order"}), frozenset({"tmem-lifetime"})

CASES = (
    Case(hand_over, {}, "bugs", "failed", _ORDER, strict="ptx", source="B045"),
    Case(hand_over, {}, "bugs", "proved", source="N3", note="release and acquire, no fence"),
    Case(hand_over, {"fixed": True}, "bugs", "proved", strict="ptx", source="B045"),
    Case(unwaited_store, {}, "bugs", "failed", _ORDER, source="B047"),
    Case(unwaited_store, {"fixed": True}, "bugs", "proved", strict="ptx", source="B047"),
    Case(freed_while_read, {}, "bugs", "failed", _LIFETIME, source="B050"),
    Case(freed_while_read, {"fixed": True}, "bugs", "proved", strict="ptx", source="B050"),
    Case(address_without_tiles, {}, "bugs", "failed", frozenset({"race"}), source="B053"),
    Case(address_without_tiles, {"fixed": True}, "bugs", "proved", source="B053"),
    Case(address_without_tiles, {"tiles": 2}, "bugs", "proved", source="B053", note="some tiles"),
    Case(address_without_tiles, {"tiles": 2, "fixed": True}, "bugs", "proved", source="B053"),
    Case(over_allocated, {}, "bugs", "failed", _LIFETIME, source="B054"),
    Case(
        over_allocated, {"last": 48, "fixed": True}, "bugs", "rejected", _LIFETIME,
        source="B054", note="not a power of two",
    ),
    Case(over_allocated, {"fixed": True}, "bugs", "proved", strict="ptx", source="B054"),
    Case(released_between_reads, {}, "bugs", "failed", _ORDER, source="B067"),
    Case(released_between_reads, {"fixed": True}, "bugs", "proved", strict="ptx", source="B067"),
)  # fmt: skip
