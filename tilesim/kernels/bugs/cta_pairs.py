"""CTA pairs: operands, accumulators and columns of one CTA that the other one's mma uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import bf16, f32, u32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case

ROWS, COLUMNS, DEPTH, PAIR = 128, 32, 16, 2
MMA_WARP, EPILOGUE = 4, range(4)
LEADER, BOTH = 0, 0b11


def _product(inputs: Arrays, *, steps: int = 3, **params: Any) -> Arrays:
    a, b = inputs["A"].astype(np.float32), inputs["B"].astype(np.float32)
    return {"C": a @ b.T}


@kernel(target="sm_100a", warps=5, family="bugs", reference=_product)
def pair(
    k: Builder, *, steps: int = 3, ready: str = "both", release: str = "leader",
    rendezvous: bool = True,
) -> None:  # fmt: skip
    """Three bugs of one kernel: C (256, 32) = A @ B.T by a CTA pair, ``steps`` times over.

    B049 (jax 16371553ee, triton #1553), ``ready="own"``: the even CTA multiplies when its own half
    of the operands is there, the other half may not be. Fix: the odd CTA reports, too.

    B069 (jax d0d662d299), ``release="own"``: each epilogue gives its accumulator back in its own
    CTA, so the mma of the even CTA overwrites the odd one's while it is read. Fix: both arrive in
    the even CTA.

    B051 (DeepGEMM #292, triton #8874, jax 1ff8a65bba), ``rendezvous`` off: the columns are freed
    after a barrier of each CTA alone. Fix: the cluster barrier.
    """
    k.launch(grid=PAIR, cluster=PAIR)
    A = k.tensor("A", bf16, (PAIR * ROWS, DEPTH))
    B = k.tensor("B", bf16, (COLUMNS, DEPTH))
    C = k.tensor("C", f32, (PAIR * ROWS, COLUMNS))
    half = COLUMNS // PAIR
    a = k.shared("a", bf16, (ROWS, DEPTH), swizzle=32)
    b = k.shared("b", bf16, (half, DEPTH), swizzle=32)
    a_map = k.tensor_map(A, (ROWS, DEPTH), swizzle=32)
    b_map = k.tensor_map(B, (half, DEPTH), swizzle=32)
    c_map = k.tensor_map(C, (ROWS, COLUMNS))
    out = k.shared("out", f32, (ROWS, COLUMNS))
    loaded, reports = k.mbarriers("loaded"), k.mbarriers("reports")
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    acc = k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")
    rank = k.cluster_rank
    arrivals = 32 * len(EPILOGUE) * (PAIR if release == "leader" else 1)

    with k.one_thread():
        for barrier, count in ((loaded, 1), (reports, PAIR), (full, 1), (empty, arrivals)):
            k.mbarrier.init(barrier, count)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role("owner", 0):
        k.tcgen05.alloc(slot, COLUMNS, cta_group=2)
    k.sync_threads()
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, f32, (ROWS, COLUMNS), name="d")

    with k.role("mma", MMA_WARP), k.elected():
        k.mbarrier.arrive_expect_tx(loaded, a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, a, (rank * ROWS, 0), loaded)  # A of this CTA
        k.tma.load(b_map, b, (rank * half, 0), loaded)  # B of this CTA
        k.mbarrier.wait(loaded, 0)
        k.mbarrier.arrive(reports[0].at(LEADER), scope="cluster")
        with k.if_(rank.eq(LEADER)):
            if ready == "both":
                k.mbarrier.wait(reports, 0, scope="cluster")
            with k.loop(steps) as i:
                k.mbarrier.wait(empty, (i & 1) ^ 1, scope="cluster")
                k.tcgen05.fence_after_thread_sync()
                k.tcgen05.mma(d, a, b, accumulate=0, cta_group=2)  # BUG: of both CTAs
                k.tcgen05.commit(full, multicast=BOTH, cta_group=2)

    with k.role("epilogue", EPILOGUE):
        with k.loop(steps) as i:
            k.mbarrier.wait(full, i & 1, scope="cluster")
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(acc, d)
            k.tcgen05.wait_ld()
            k.tcgen05.fence_before_thread_sync()
            where = empty[0].at(LEADER) if release == "leader" else empty[0]
            k.mbarrier.arrive(where, scope="cluster")
        k.tile.store(out, acc)
        k.fence.proxy_async("shared::cta")

    k.sync_threads()
    if rendezvous:
        k.cluster.sync()
    with k.role("owner", 0):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, COLUMNS, cta_group=2)  # BUG: the other CTA may still read
        with k.elected():
            k.tma.store(c_map, out, (rank * ROWS, 0))
            k.bulk.commit_group()
            k.bulk.wait_group(0, read=True)
    k.cluster.sync()


CASES = (
    Case(pair, {"ready": "own"}, "bugs", "failed", frozenset({"race"}), source="B049"),
    Case(
        pair, {"rendezvous": False}, "bugs", "failed", frozenset({"tmem-lifetime"}), source="B051"
    ),
    Case(pair, {"release": "own"}, "bugs", "failed", frozenset({"tcgen05-order"}), source="B069"),
    Case(pair, {}, "bugs", "proved", strict="ptx", source="B049 B051 B069"),
)
