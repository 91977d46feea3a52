"""Rules of memory: races, proxies, bounds, uninitialised data."""

from __future__ import annotations

from tilesim.findings.rule import ASYNC, BULK, MEMORY, NONCOHERENT, PROXIES, RuleDoc, source, swap

_RACE = source(
    """
    @ts.kernel(warps=2)
    def message(k):
        x = k.shared("x", ts.s32, (1,))
        out = k.tensor("out", ts.s32, (1,))
        ready = k.mbarriers("ready")
        value = k.var("value")
        with k.one_thread():
            k.mbarrier.init(ready, 1)
        k.sync_threads()
        with k.role("writer", 0), k.elected():
            k.mbarrier.arrive(ready)
            k.mem.store(x[0], 1)  # after the arrival: nothing publishes it
        with k.role("reader", 1), k.elected():
            k.mbarrier.wait(ready, 0)
            k.mem.load(value, x[0])
            k.mem.store(out[0], value)
    """
)

_FENCE = source(
    """
    @ts.kernel(warps=1)
    def through_tma(k):
        out = k.tensor("out", ts.s32, (32,))
        tile = k.shared("tile", ts.s32, (32,))
        k.mem.store(tile[k.lane_id], k.lane_id)
        k.sync_threads()
        with k.elected():
            k.bulk.store(out, tile)
            k.bulk.commit_group()
            k.bulk.wait_group(0)
    """
)

_NONCOHERENT = source(
    """
    @ts.kernel(warps=2)
    def neighbours(k):
        y = k.tensor("y", ts.s32, (64,))
        z = k.tensor("z", ts.s32, (64,))
        value = k.var("value")
        k.mem.store(y[k.thread_id], k.thread_id)
        k.sync_threads()
        k.mem.load(value, y[k.thread_id ^ 33], nc=True)
        k.mem.store(z[k.thread_id], value)
    """
)

_BOUNDS = source(
    """
    @ts.kernel(warps=2)
    def rows(k):
        x = k.shared("x", ts.s32, (32,))
        k.mem.store(x[k.thread_id], 0)  # 64 threads
    """
)

_UNREAD = source(
    """
    @ts.kernel(warps=1)
    def forgotten(k):
        x = k.shared("x", ts.s32, (32,))
        out = k.tensor("out", ts.s32, (32,))
        value = k.var("value")
        k.mem.load(value, x[k.lane_id])
        k.mem.store(out[k.lane_id], value)
    """
)

DOCS = (
    RuleDoc(
        "race",
        "Two accesses to the same bytes, at least one a write, and nothing orders one before the "
        "other.",
        "Both accesses are named, with the bytes they share. An access is ordered before another "
        "one if a chain of program order and synchronisation leads from it to the other: a "
        "releasing arrive and an acquiring wait of that phase, a named barrier, a cluster barrier. "
        "An asynchronous copy or wgmma runs from its issue until its completion has been "
        "*observed* (a wait on its mbarrier, a `wait_group`); an access to its memory before that "
        "is a race, on every schedule.\n\n"
        "Usual causes: a stage released before its last read (`wgmma` still reads it until "
        "`wait_group`); an init count that lets a barrier complete without every reader; reading "
        "before the wait; a completed copy taken as proof of its issuer's other writes (it "
        "publishes its own bytes only); `.relaxed` on an arrive or a wait.",
        (MEMORY, ASYNC),
        ("A26", "A27", "A28", "A30", "B2", "F7", "H4", "H6"),
        "Order the accesses: arrive after the first, wait before the second, and let the barrier "
        "count every thread that takes part.",
        _RACE,
        swap(_RACE, ("        k.mbarrier.arrive(ready)\n", ""),
             ("        k.mem.store(x[0], 1)  # after the arrival: nothing publishes it\n",
              "        k.mem.store(x[0], 1)\n        k.mbarrier.arrive(ready)\n")),
    ),
    RuleDoc(
        "proxy-fence",
        "The accesses are synchronised, but go through different proxies, and no proxy fence lies "
        "between them.",
        "Ordinary loads and stores use the generic proxy; TMA, bulk copies and the shared operands "
        "of wgmma the async proxy. Synchronisation alone does not carry data from one to the "
        "other: the thread that wrote through the generic proxy executes `fence.proxy.async` "
        "before the hand-over. In the other direction nothing is needed: observing the completion "
        "of a copy includes the fence.\n\n"
        "At strictness `ptx` the fence is also asked for between a generic *read* and the copy "
        "that overwrites the bytes; shipping kernels omit it there, so `practice` accepts that.",
        (PROXIES, "membar, fence: fence.proxy.async"),
        ("H5", "H6", "H9", "H11", "H13", "B35", "U12", "U14"),
        "`fence.proxy.async` in every writing thread, after its writes and before the barrier.",
        _FENCE,
        swap(_FENCE, ("    k.sync_threads()\n",
                      '    k.fence.proxy_async("shared::cta")\n    k.sync_threads()\n')),
    ),
    RuleDoc(
        "noncoherent-load",
        "A load through the cache for read-only data reads bytes that the same kernel writes.",
        "`ld.global.nc` (`__ldg`, and what compilers make of `const __restrict__`) goes through a "
        "cache that no store of the grid reaches: what it loads is read-only as long as the kernel "
        "runs. Barriers, fences, acquires and a ticket of the last CTA order nothing there; only "
        "the end of the kernel does. On an H200 a line that was in that cache was stale behind a "
        "barrier in 99.9% of tries. Behind another CTA's release it always was. It does not "
        "matter which of the two comes first, or which thread writes. `ld.const` and `ld.param` "
        "are such loads as well, and a store to a constant or a parameter is illegal even where "
        "nothing loads it. Other bytes of the same tensor may be written.",
        (NONCOHERENT,),
        ("H25",),
        "Load it with `ld.global` (no `__ldg`, no `const __restrict__`), or write it in an earlier "
        "kernel.",
        _NONCOHERENT,
        swap(_NONCOHERENT, (", nc=True)", ")")),
    ),
    RuleDoc(
        "out-of-bounds",
        "An access leaves its allocation, or its address is not aligned as the instruction needs.",
        "Indices are checked against the tensor, addresses of copies against their alignment: 16 "
        "bytes for bulk copies, 128 bytes for shared tiles of tensor copies (an H200 faults on "
        "less). Tensor maps may reach over the edge of a global tensor: loads fill with zeros, "
        "stores skip the outside. Bulk copies without a map may not.",
        (BULK, "Tensors: bounding box and out-of-boundary access"),
        ("B6", "B9", "B17", "B19", "B37", "U10"),
        "Keep the index inside, or guard it with a condition; align tensors and their stages.",
        _BOUNDS,
        swap(_BOUNDS, ("    k.mem.store(x[k.thread_id], 0)  # 64 threads\n",
                       "    with k.if_(k.thread_id < 32):\n"
                       "        k.mem.store(x[k.thread_id], 0)\n")),
    ),
    RuleDoc(
        "uninitialised-read",
        "The bytes, register or fragment that is read was never written.",
        "Shared memory and registers hold nothing defined when a kernel starts. Before a read "
        "without any write, an initialisation or a wait is missing, or a wait passes too early: a "
        "consumer that starts with parity 1, for example. Rows of a tile that nothing fills are "
        "no finding if global memory does not depend on them. Two runs that start with different "
        "bytes in shared memory must then agree.",
        (MEMORY,),
        ("A22", "B2"),
        "Write it first, or wait for the copy that fills it.",
        _UNREAD,
        swap(_UNREAD, ('    value = k.var("value")\n',
                       '    value = k.var("value")\n'
                       "    k.mem.store(x[k.lane_id], 0)\n")),
    ),
)  # fmt: skip
