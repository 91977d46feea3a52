"""LITMUS section G: allocation of tensor memory, lanes, CTA pairs; LB15."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilesim import Builder, bf16, f32, s32, u32

from .notation import begin, global_words
from .table import completes, defect, fails, rejected, row
from .tcgen05 import K, N


@row("LG02-48", rejected("tmem-lifetime", "k.tcgen05.alloc(slot, first)"), first=48, free=False)
@row("LG02-16", rejected("tmem-lifetime", "k.tcgen05.alloc(slot, first)"), first=16, free=False)
@row("LG02-1024", rejected("tmem-lifetime", "k.tcgen05.alloc(slot, first)"), first=1024, free=False)
@row(
    "LG02-grows",
    fails(
        defect(
            "tmem-lifetime", W0=("k.tcgen05.alloc(slot, first)", "k.tcgen05.alloc(slot, second)")
        )
    ),
    first=64, second=128,
)  # fmt: skip
@row("LG02-shrinks", completes(), first=128, second=64)
@row(
    "LG02-relinquished",
    fails(
        defect(
            "tmem-lifetime",
            W0=("k.tcgen05.relinquish_alloc_permit()", "k.tcgen05.alloc(slot, second)"),
        )
    ),
    first=64, second=64, relinquish=True,
)  # fmt: skip
@row("LG02-leak", fails(defect("tmem-lifetime", W0="k.tcgen05.alloc(slot, first)")), free=False)
@row(
    "LG02-never",
    fails(defect("tmem-lifetime", W0="k.tcgen05.alloc(slot, second)")),
    first=512, second=512,
)  # fmt: skip
def alloc_rules(
    k: Builder, *, first: int = 64, second: int = 0, relinquish: bool = False, free: bool = True
) -> None:
    k.launch(warps=1, target="sm_100a")
    slot, one, two = k.shared("slot", u32, (1,)), k.var("one"), k.var("two")
    with k.role("W0", 0):
        k.tcgen05.alloc(slot, first)
        k.mem.load(one, slot[0])
        if relinquish:
            k.tcgen05.relinquish_alloc_permit()
        if second:
            k.tcgen05.alloc(slot, second)
            k.mem.load(two, slot[0])
            k.tcgen05.dealloc(two, second)
        if free:
            k.tcgen05.dealloc(one, first)


# Whether the flag is ever seen is LD09's question; here both CTAs are resident.
@row("LG03", fails(defect("deadlock")), columns=512)
@row(
    "LG03-half",
    completes(
        verdicts=("proved", "exhausted", "bounded"),
        note="which CTA allocates first decides who gets which columns",
    ),
    columns=256,
)
def alloc_contention(k: Builder, *, columns: int) -> None:
    k.launch(warps=1, grid=2, target="sm_100a", cooperative=True)
    slot, flag, r = k.shared("slot", u32, (1,)), global_words(k, "flag", 2), k.var("r", 0)
    address = k.var("address")
    with k.role("W0", 0):
        k.tcgen05.alloc(slot, columns)
        k.mem.load(address, slot[0])
        with k.elected():
            k.mem.store(flag[k.cta_x], 1, sem="release", scope="gpu")
        with k.while_(r.eq(0)):
            k.mem.load(r, flag[1 - k.cta_x], sem="acquire", scope="gpu")
        k.tcgen05.dealloc(address, columns)


@row(
    "LG04",
    fails(defect("race", W0="k.tcgen05.alloc(slot, 32)", W1="k.mem.load(d, slot[0])  # other")),
)
@row("LG04-bar", completes(), bar=True)
def address_unsynchronised(k: Builder, *, bar: bool = False) -> None:
    k.launch(warps=2, target="sm_100a")
    slot, d = k.shared("slot", u32, (1,)), k.var("d")
    begin(k, zero=[slot])
    with k.role("W0", 0):
        k.tcgen05.alloc(slot, 32)
    if bar:
        k.sync_threads()
    with k.role("W1", 1):
        k.mem.load(d, slot[0])  # other
    k.sync_threads()
    with k.role("W0", 0):
        k.mem.load(d, slot[0])
        k.tcgen05.dealloc(d, 32)


@contextmanager
def cta(k: Builder, rank: int) -> Iterator[None]:
    """``CTAn``: the one warp of a CTA of a pair."""
    with k.if_(k.cluster_rank.eq(rank)), k.role(f"CTA{rank}", 0):
        yield


@row(
    "LG15",
    fails(
        defect(
            "deadlock",
            CTA0="k.cluster.sync()  # first",
            CTA1="k.tcgen05.dealloc(d1, 64, cta_group=2)",
        )
    ),
    early=False,
)
@row("LG15-barrier-first", completes(), early=True)
def pair_dealloc_order(k: Builder, *, early: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2, target="sm_100a")
    slot, d0, d1 = k.shared("slot", u32, (1,)), k.var("d0"), k.var("d1")
    k.cluster.sync()
    with cta(k, 0):
        k.tcgen05.alloc(slot, 64, cta_group=2)
        k.mem.load(d0, slot[0])
        k.cluster.sync()  # first
        k.tcgen05.dealloc(d0, 64, cta_group=2)
    with cta(k, 1):
        k.tcgen05.alloc(slot, 64, cta_group=2)
        k.mem.load(d1, slot[0])
        if early:
            k.cluster.sync()
        k.tcgen05.dealloc(d1, 64, cta_group=2)
        if not early:
            k.cluster.sync()


@row(
    "LG16",
    fails(
        defect(
            "deadlock",
            CTA0="k.tcgen05.alloc(slot, 64, cta_group=2)  # 0",
            CTA1="k.mbarrier.wait(b, 0)",
        )
    ),
    both=False,
)
@row("LG16-both", completes(), both=True)
def pair_alloc_one_sided(k: Builder, *, both: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2, target="sm_100a")
    slot, b, d = k.shared("slot", u32, (1,)), k.mbarriers("b"), k.var("d")
    begin(k, (b, 1))
    k.cluster.sync()
    with cta(k, 0):
        k.tcgen05.alloc(slot, 64, cta_group=2)  # 0
        with k.elected():
            k.mbarrier.arrive(b[0].at(1), sem="release", scope="cluster")
    with cta(k, 1):
        if both:
            k.tcgen05.alloc(slot, 64, cta_group=2)
        k.mbarrier.wait(b, 0)
    if both:
        k.mem.load(d, slot[0])
        k.cluster.sync()
        k.tcgen05.dealloc(d, 64, cta_group=2)
    k.cluster.sync()


@row("LG17-lanes", fails(defect("out-of-bounds", W1=("k.tcgen05.st(wrong, part)",))), lane=0)
@row(
    "LG17-all-warps",
    fails(defect("out-of-bounds", W1=("k.tcgen05.st(wrong, part)",))),
    practice=completes(),
    lane=0, both=True,
)  # fmt: skip
@row("LG17-others", fails(defect("out-of-bounds", W1=("k.tcgen05.st(wrong, part)",))), lane=64)
@row("LG17-own-lanes", completes(), lane=32)
@row("LG17-groups", rejected("operand", "k.tcgen05.commit(b, cta_group=2)"), lane=32, mixed=True)
@row("LG17-sm_120a", rejected("target", "k.tcgen05.alloc(slot, 32)"), lane=32, target="sm_120a")
@row("LG17-sm_90a", rejected("target", "k.tcgen05.alloc(slot, 32)"), lane=32, target="sm_90a")
def wrong_lanes_group_target(
    k: Builder, *, lane: int, mixed: bool = False, both: bool = False, target: str = "sm_100a"
) -> None:
    k.launch(warps=2, grid=2, cluster=2, target=target)
    slot, b, address = k.shared("slot", u32, (1,)), k.mbarriers("b"), k.var("address")
    part = k.fragment("part", f32, (32, 32))
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 32)
    begin(k, (b, 1))
    k.mem.load(address, slot[0])
    wrong = k.tcgen05.tensor(address + (lane << 16), f32, (32, 32), name="d")
    with k.role("W1", (0, 1) if both else 1):
        k.tile.fill(part, 0)
        k.tcgen05.st(wrong, part)
        k.tcgen05.wait_st()
    if mixed:
        with k.one_thread():
            k.tcgen05.commit(b, cta_group=2)
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 32)


_NOT_SAID = defect("out-of-bounds", CTA1="k.tcgen05.commit(b, multicast=3 >>")
_WAITS = 'k.mbarrier.wait(b, 0, scope="cluster")'


@row("LG19-one", completes({"out": [1, 1]}), ctas=1)
@row("LG19", practice=completes({"out": [1, 1]}), ptx=fails(_NOT_SAID), ctas=2)
@row(
    "LG19-counted",
    practice=fails(defect("deadlock", CTA0=_WAITS, CTA1=_WAITS)),
    ptx=fails(_NOT_SAID),
    ctas=2, count=2,
)  # fmt: skip
def commit_to_no_cta(k: Builder, *, ctas: int, count: int = 1) -> None:
    """In the second CTA of the pair the mask is 0, as in kernels of cuTile (U9)."""
    k.launch(warps=1, grid=2, cluster=2, target="sm_100a")
    b, out = k.mbarriers("b"), k.tensor("out", s32, (2,))
    begin(k, (b, count))
    k.cluster.sync()
    for rank in range(ctas):
        with cta(k, rank), k.elected():
            k.tcgen05.commit(b, multicast=3 >> 16 * k.cluster_rank, cta_group=2)
    for rank in range(2):
        with cta(k, rank):
            k.mbarrier.wait(b, 0, scope="cluster")
            with k.elected():
                k.mem.store(out[rank], 1)
    k.cluster.sync()


@row("LB15", completes(), share=2)
@row(
    "LB15-one-share",
    fails(
        defect("race"), defect("deadlock"), defect("tx-mismatch"), defect("phase-ambiguity"),
        also=("async-at-exit", "peer-exit", "uninitialised-read"),
    ),
    share=1,
)  # fmt: skip
def pair_leader_bytes(k: Builder, *, share: int) -> None:
    k.launch(warps=1, grid=2, cluster=2, target="sm_100a")
    ga, gb = k.tensor("ga", bf16, (256, K)), k.tensor("gb", bf16, (N, K))
    a, b = k.shared("ta", bf16, (128, K), swizzle=32), k.shared("tb", bf16, (N // 2, K), swizzle=32)
    map_a = k.tensor_map(ga, (128, K), swizzle=32)
    map_b = k.tensor_map(gb, (N // 2, K), swizzle=32)
    slot, full, done = k.shared("slot", u32, (1,)), k.mbarriers("full"), k.mbarriers("done")
    address = k.var("address", dtype=u32)
    with k.elected():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(done, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    k.tcgen05.alloc(slot, 32, cta_group=2)
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, f32, (128, N), name="d")
    with k.elected():
        k.tma.load(map_a, a, (128 * k.cluster_rank, 0), full[0].at(0), cta_group=2)
        k.tma.load(map_b, b, (N // 2 * k.cluster_rank, 0), full[0].at(0), cta_group=2)
    with cta(k, 0), k.elected():
        k.mbarrier.arrive_expect_tx(full, share * (map_a.box_bytes + map_b.box_bytes))
        k.mbarrier.wait(full, 0, scope="cluster")
        k.tcgen05.mma(d, a, b, accumulate=0, cta_group=2)
        k.tcgen05.commit(done, multicast=3, cta_group=2)
    k.mbarrier.wait(done, 0, scope="cluster")
    k.tcgen05.fence_after_thread_sync()
    k.cluster.sync()
    k.tcgen05.dealloc(address, 32, cta_group=2)
