"""Rules of groups and lifetimes: bulk groups, wgmma, what must be over when a kernel ends."""

from __future__ import annotations

from tilesim.findings.rule import ASYNC, BULK, CLUSTER, TCGEN05, WGMMA, RuleDoc, source, swap

_GROUP = source(
    """
    @ts.kernel(warps=1)
    def store(k):
        out = k.tensor("out", ts.s32, (32,))
        tile = k.shared("tile", ts.s32, (32,))
        k.mem.store(tile[k.lane_id], k.lane_id)
        k.fence.proxy_async()
        k.sync_threads()
        with k.elected():
            k.bulk.store(out, tile)
            k.bulk.wait_group(0)  # the store is in no group: nothing to wait for
    """
)

_EXIT = source(
    """
    @ts.kernel(warps=1)
    def prefetch(k):
        g = k.tensor("g", ts.s32, (2, 32))
        tile = k.shared("tile", ts.s32, (2, 32))
        full = k.mbarriers("full", 2)
        with k.one_thread():
            for s in range(2):
                k.mbarrier.init(full[s], 1)
                k.mbarrier.arrive_expect_tx(full[s], tile[s].nbytes)
                k.bulk.load(tile[s], g[s], full[s])
            k.mbarrier.wait(full[0], 0)
    """
)

_WGMMA = source(
    """
    @ts.kernel(warps=4)
    def multiply(k):
        A = k.tensor("A", ts.bf16, (64, 16))
        B = k.tensor("B", ts.bf16, (32, 16))
        C = k.tensor("C", ts.f32, (64, 32))
        a_map = k.tensor_map(A, (64, 16), swizzle=32)
        b_map = k.tensor_map(B, (32, 16), swizzle=32)
        sA = k.shared("sA", ts.bf16, (64, 16), swizzle=32)
        sB = k.shared("sB", ts.bf16, (32, 16), swizzle=32)
        acc = k.fragment("acc", ts.f32, (64, 32), "warpgroup")
        full = k.mbarriers("full")
        with k.one_thread():
            k.mbarrier.init(full, 1)
        k.sync_threads()
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(full, a_map.box_bytes + b_map.box_bytes)
            k.tma.load(a_map, sA, (0, 0), full)
            k.tma.load(b_map, sB, (0, 0), full)
        k.mbarrier.wait(full, 0)
        k.tile.fill(acc, 0.0)
        k.wgmma.fence()
        k.wgmma.mma_async(acc, sA, sB)
        k.wgmma.commit_group()
        k.tile.store(C, acc)  # the tensor core may still be writing acc
        k.wgmma.wait_group(0)
    """
)

_PEER = source(
    """
    @ts.kernel(warps=1)
    def neighbour(k):
        k.launch(grid=2, cluster=2)
        x = k.shared("x", ts.s32, (1,))
        out = k.tensor("out", ts.s32, (2,))
        value = k.var("value")
        with k.elected():
            k.mem.store(x[0], k.cluster_rank)
        k.cluster.sync()
        with k.elected():
            k.mem.load(value, x.view().at(k.cluster_rank ^ 1)[0])  # the peer may have ended
            k.mem.store(out[k.cta_x], value)
    """
)

_START = source(
    """
    @ts.kernel(warps=1)
    def neighbour(k):
        k.launch(grid=2, cluster=2)
        x = k.shared("x", ts.s32, (2,))
        out = k.tensor("out", ts.s32, (2,))
        value = k.var("value")
        with k.elected():
            k.mem.store(x.view().at(k.cluster_rank ^ 1)[0], 1)  # the peer may not have started
        k.cluster.sync()
        with k.elected():
            k.mem.load(value, x[0])
            k.mem.store(out[k.cta_x], value)
    """
)

_CANCEL = source(
    """
    @ts.kernel(target="sm_100a", warps=1)
    def steal(k):
        answer = k.shared("answer", ts.u32, (4,))
        full = k.mbarriers("full")
        canceled, cta = k.var("canceled", 0), k.var("cta", 0)
        with k.one_thread():
            k.mbarrier.init(full, 1)
            k.mbarrier.arrive_expect_tx(full, 16)
            k.clc.try_cancel(answer, full)
            k.mbarrier.wait(full, 0)
            k.clc.query_is_canceled(canceled, answer)
            k.clc.query_first_ctaid(cta, answer)  # also if nothing was cancelled
    """
)

_TMEM_ORDER = source(
    """
    @ts.kernel(target="sm_100a", warps=1)
    def round_trip(k):
        base = k.shared("base", ts.u32, (1,))
        address = k.var("address", dtype=ts.u32)
        sent = k.fragment("sent", ts.f32, (32, 32))
        received = k.fragment("received", ts.f32, (32, 32))
        k.tcgen05.alloc(base, 32)
        k.mem.load(address, base[0])
        tile = k.tcgen05.tensor(address, ts.f32, (128, 32))
        k.tile.fill(sent, 1.0)
        k.tcgen05.st(tile, sent)
        k.tcgen05.ld(received, tile)  # may overtake the st
        k.tcgen05.wait_ld()
        k.tcgen05.wait_st()
        k.tcgen05.dealloc(address, 32)
    """
)

_TMEM_LEAK = source(
    """
    @ts.kernel(target="sm_100a", warps=1)
    def leak(k):
        base = k.shared("base", ts.u32, (1,))
        address = k.var("address", dtype=ts.u32)
        k.tcgen05.alloc(base, 32)
        k.mem.load(address, base[0])
    """
)

DOCS = (
    RuleDoc(
        "bulk-group",
        "No instruction waits for a copy that was never committed to a group.",
        "`wait_group` waits for committed groups of the executing thread only. A bulk store or a "
        "`cp.async` between the last `commit_group` and the wait is in none, so the wait returns "
        "while it runs. The groups of another thread, and bulk and non-bulk groups of one thread, "
        "are separate lists, too.",
        (BULK, "cp.async.bulk.commit_group", "cp.async.bulk.wait_group"),
        ("B29", "B30", "C4"),
        "`commit_group` after the copies, in the thread that issued them and that waits.",
        _GROUP,
        swap(_GROUP, ("        k.bulk.wait_group(0)  # the store is in no group: nothing to "
                      "wait for\n",
                      "        k.bulk.commit_group()\n        k.bulk.wait_group(0)\n")),
    ),
    RuleDoc(
        "async-at-exit",
        "The kernel can end while a copy still reads or writes its shared memory.",
        "The shared memory of a CTA belongs to the next one when it exits. A copy into it must "
        "have been observed by some thread, a store from it must at least have *read* its source "
        "(`wait_group.read`).",
        (ASYNC, BULK),
        ("B34", "U15"),
        "Wait for every copy: on its mbarrier, or with `wait_group(.read)`.",
        _EXIT,
        swap(_EXIT, ("        k.mbarrier.wait(full[0], 0)\n",
                     "        k.mbarrier.wait(full[0], 0)\n"
                     "        k.mbarrier.wait(full[1], 0)\n")),
    ),
    RuleDoc(
        "wgmma-order",
        "Registers of a wgmma may be accessed only before a wgmma.fence or after the wait_group "
        "that covers it.",
        "`wgmma.mma_async` is not ordered after earlier instructions of its own threads. Between "
        "any access to an accumulator (or a register operand) and the mma that uses it there must "
        "be a `wgmma.fence`; only further mma on the same accumulator need none. From the mma "
        "until `wgmma.wait_group` covers its group the registers belong to the tensor core.",
        (WGMMA, "wgmma.fence", "wgmma.wait_group"),
        ("F2", "F3", "F5", "F6"),
        "`wgmma.fence` before the first mma, `commit_group` after the last, `wait_group` before "
        "the accumulator is used.",
        _WGMMA,
        swap(_WGMMA, ("    k.tile.store(C, acc)  # the tensor core may still be writing acc\n"
                      "    k.wgmma.wait_group(0)\n",
                      "    k.wgmma.wait_group(0)\n    k.tile.store(C, acc)\n")),
    ),
    RuleDoc(
        "peer-start",
        "A CTA accesses the shared memory of a CTA of its cluster that may not have started.",
        "Shared memory of a CTA exists once the CTA runs. The CTAs of a cluster start in no "
        "defined order. Something that the peer has done must come before the "
        "first remote load, store or arrive, a multicast copy or a copy into it; also before it "
        "allocates tensor memory together with this CTA (`cta_group::2`). That the peer must not "
        "have ended is `peer-exit`.",
        (CLUSTER, "Programming Model: cluster of cooperative thread arrays"),
        ("D8", "G9"),
        "Let all CTAs of the cluster pass a cluster barrier before the first remote access.",
        _START,
        swap(
            _START,
            ("  # the peer may not have started", ""),
            (
                '    value = k.var("value")\n',
                '    value = k.var("value")\n    k.cluster.sync()\n',
            ),
        ),
    ),
    RuleDoc(
        "peer-exit",
        "A CTA may end while another CTA of its cluster still accesses its shared memory.",
        "Shared memory of a CTA exists while the CTA runs. A remote load, store or arrive, a "
        "multicast copy and a copy into a peer must have happened before the peer exits. A "
        "trailing cluster barrier covers what is complete when its threads arrive; a copy that is "
        "still in flight has to be waited for by its receiver first. That a peer must have started "
        "is `peer-start`.",
        (CLUSTER, "Programming Model: cluster of cooperative thread arrays"),
        ("D9", "D10"),
        "End with a cluster barrier after the last remote access, and wait for incoming copies "
        "before it.",
        _PEER,
        swap(
            _PEER,
            ("  # the peer may have ended", ""),
            (
                "        k.mem.store(out[k.cta_x], value)\n",
                "        k.mem.store(out[k.cta_x], value)\n    k.cluster.sync()\n",
            ),
        ),
    ),
    RuleDoc(
        "launch-control",
        "A cluster launch control request or its answer is used where that is undefined.",
        "`clusterlaunchcontrol.try_cancel` asks for the work of a cluster that has not started. "
        "Its answer is a 16-byte asynchronous write with a completion on an mbarrier, which each "
        "receiving CTA arms with 16 bytes. Once a CTA has *observed* an answer that cancelled "
        "nothing, another request by it is undefined; several requests before that are defined. "
        "`get_first_ctaid` on such an answer is undefined: ask `is_canceled` first. All CTAs that "
        "a "
        "multicast answer goes to must still be running.",
        ("clusterlaunchcontrol.try_cancel, clusterlaunchcontrol.query_cancel",),
        ("D18", "D19"),
        "Stop asking after the first answer that cancelled nothing, and decode only the others.",
        _CANCEL,
        swap(
            _CANCEL,
            (
                "        k.clc.query_first_ctaid(cta, answer)  # also if nothing was cancelled\n",
                "        with k.if_(canceled.ne(0)):\n"
                "            k.clc.query_first_ctaid(cta, answer)\n",
            ),
        ),
    ),
    RuleDoc(
        "tcgen05-order",
        "Two tcgen05 operations access the same tensor memory, and neither is ordered after the "
        "other.",
        "Only some pairs of tcgen05 operations of one thread execute in order (mma after mma on "
        "one accumulator, mma after cp). For the others the first must have completed: "
        "`tcgen05.commit` and a wait on its mbarrier for mma, cp and shift; `tcgen05.wait::ld` and "
        "`wait::st` for loads and stores. Between threads a `tcgen05.fence::before_thread_sync` "
        "precedes the hand-over and a `tcgen05.fence::after_thread_sync` follows it (asked for at "
        "strictness `ptx`).",
        (TCGEN05,),
        ("G17", "G19", "G20", "G21", "G22", "G23", "G26", "U20"),
        "Commit to an mbarrier and wait for it before tensor memory is loaded; `wait::ld` before "
        "it is overwritten.",
        _TMEM_ORDER,
        swap(
            _TMEM_ORDER,
            (
                "    k.tcgen05.ld(received, tile)  # may overtake the st\n"
                "    k.tcgen05.wait_ld()\n"
                "    k.tcgen05.wait_st()\n",
                "    k.tcgen05.wait_st()\n"
                "    k.tcgen05.ld(received, tile)\n"
                "    k.tcgen05.wait_ld()\n",
            ),
        ),
    ),
    RuleDoc(
        "tmem-lifetime",
        "Tensor memory is used outside the life of its allocation, or not given back.",
        "Columns are allocated by one warp, are valid once the address has been handed to the "
        "others, and must be freed before the kernel ends. Everything that uses them must be "
        "complete before `tcgen05.dealloc`; after `relinquish_alloc_permit` the CTA must not "
        "allocate; allocations of one CTA must not grow.",
        (TCGEN05, "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit"),
        ("G4", "G5", "G7", "G8", "G9", "U25"),
        "Synchronise all users, then free every column in the warp that allocated it.",
        _TMEM_LEAK,
        _TMEM_LEAK + "    k.tcgen05.dealloc(address, 32)\n",
    ),
)  # fmt: skip
