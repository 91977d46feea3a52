"""Threads of a warp that copy, wait and address peers on their own; counts that change."""

from __future__ import annotations

from tilesim import Builder, kernel, select
from tilesim.arith.types import s32
from tilesim.ir.ops.fence import FenceScope
from tilesim.lib.opening import open_cluster

LANES = 32


@kernel(warps=2)
def row_copies(k: Builder, *, rows: int = 8, fault: str = "") -> None:
    """Each lane fetches a row with its own bulk copy, and stores it with another."""
    X, Y = k.tensor("X", s32, (2 * rows, 4)), k.tensor("Y", s32, (rows, 4))
    tile, full, word = k.shared("tile", s32, (rows, 4)), k.mbarriers("full"), k.var("word")
    with k.one_thread():
        k.mbarrier.init(full, rows)
    k.sync_threads()
    lane = k.lane_id
    with k.role("copy", 0), k.if_(lane < rows):
        k.mbarrier.arrive_expect_tx(full, 16)
        k.bulk.load(tile[0 if fault == "one row" else lane], X[2 * lane], full)
        k.mbarrier.wait(full, 0)
        k.bulk.store(Y[lane], tile[lane])
        k.bulk.commit_group()
        if fault == "one waits":
            with k.if_(lane.eq(0)):
                k.bulk.wait_group()
        else:
            k.bulk.wait_group()
    k.sync_threads()
    with k.role("next", 1), k.if_(lane < rows):
        k.mem.load(word, tile[lane, 0])
        k.mem.store(tile[lane, 0], word + 1)  # BUG: if a lane's store still reads it


@kernel(warps=2)
def other_lane(k: Builder, *, fault: str = "") -> None:
    """A bulk group belongs to the thread that issued its copies (B29, B30)."""
    Y, tile = k.tensor("Y", s32, (LANES,)), k.shared("tile", s32, (LANES,))
    with k.role("fill", 0):
        k.mem.store(tile[k.lane_id], 1)
        k.fence.proxy_async()
        k.sync_warp()
        with k.if_(k.lane_id.eq(0)):
            k.bulk.store(Y, tile)
            if fault != "commit":
                k.bulk.commit_group()
        with k.if_(k.lane_id.eq(5 if fault else 0)):
            if fault == "commit":
                k.bulk.commit_group()
            k.bulk.wait_group(read=True)
    k.sync_threads()
    with k.role("next", 1):
        k.mem.store(tile[k.lane_id], 2)  # BUG: if the store still reads it


@kernel(warps=2)
def gathered(k: Builder, *, fault: str = "") -> None:
    """Each lane gathers 16 bytes with cp.async; their arrivals tell another warp (C6)."""
    X, tile = k.tensor("X", s32, (LANES, 4)), k.shared("tile", s32, (LANES, 4))
    full, word = k.mbarriers("full"), k.var("word")
    with k.one_thread():
        k.mbarrier.init(full, 1 if fault == "one lane" else LANES)
    k.sync_threads()
    with k.role("gather", 0):
        k.cp_async.copy(tile, X)
        if fault == "one lane":
            with k.elected():
                k.cp_async.mbarrier_arrive(full, noinc=True)
        else:
            half = k.lane_id < LANES // 2
            with k.if_(half):
                k.cp_async.mbarrier_arrive(full, noinc=True)
            with k.if_(k.lane_id >= LANES // 2):
                k.cp_async.mbarrier_arrive(full, noinc=True)
    with k.role("use", 1):
        k.mbarrier.wait(full, 0)
        k.mem.load(word, tile[k.lane_id, 0])  # BUG: if other lanes' copies are in flight


@kernel(warps=2)
def permuted(k: Builder, *, rows: int = 20, fault: str = "") -> None:
    """Each lane copies a row of its own choice with cp.async; rows past the end are zeros (C2)."""
    X, order = k.tensor("X", s32, (rows, 4)), k.tensor("order", s32, (LANES,))
    tile, row, word, lane = (
        k.shared("tile", s32, (LANES, 4)),
        k.var("row"),
        k.var("word"),
        k.lane_id,
    )
    with k.role("gather", 0):
        k.mem.load(row, order[lane])
        inside = lane < rows
        slot = lane // 2 if fault == "slot" else lane
        k.cp_async.copy(tile[slot], X[select(inside, row, 0)], src_bytes=select(inside, 16, 0))
        if fault != "in flight":
            k.cp_async.wait_all()
    k.sync_threads()
    with k.role("use", 1):
        k.mem.load(word, tile[lane, 0])  # BUG: if a copy is in flight


@kernel(warps=2)
def uneven_groups(k: Builder, *, fault: str = "") -> None:
    """Lanes that commit no second group may not leave one pending (C4)."""
    X, tile = k.tensor("X", s32, (2, LANES, 4)), k.shared("tile", s32, (2, LANES, 4))
    word = k.var("word")
    with k.role("copy", 0):
        k.cp_async.copy(tile[0], X[0])
        k.cp_async.commit_group()
        with k.if_(k.lane_id < 16):
            k.cp_async.copy(tile[1, 0:16], X[1, 0:16])
            if fault:
                k.cp_async.commit_group()
        if not fault:
            k.cp_async.commit_group()
        k.cp_async.wait_group(1)
    k.sync_threads()
    with k.role("use", 1):
        k.mem.load(word, tile[0, k.lane_id, 0])  # BUG: if half of the lanes waited for nothing
    k.sync_threads()
    with k.role("copy", 0):
        k.cp_async.wait_all()


@kernel(warps=2)
def histogram(k: Builder, *, size: int = 2, fault: str = "") -> None:
    """CUDA's example of distributed shared memory: each lane counts in the CTA of its bin."""
    k.launch(grid=size, cluster=size)
    bins, out = k.shared("bins", s32, (LANES,)), k.tensor("out", s32, (size, LANES))
    count, thread = k.var("count"), k.thread_id
    with k.if_(thread < LANES):
        k.mem.store(bins[thread], 0)
    if fault != "no start":
        k.cluster.sync()
    scope: FenceScope = "cta" if fault == "scope" else "cluster"
    k.mem.atomic(bins[thread % LANES].at(thread % size), "add", 1, scope=scope)
    if fault == "own":
        k.sync_threads()
    else:
        k.cluster.sync()
    with k.if_(thread < LANES):
        k.mem.load(count, bins[thread])
        k.mem.store(out[k.cluster_rank, thread], count)
    k.cluster.sync()


@kernel(warps=1)
def all_to_all(k: Builder, *, size: int = 4, fault: str = "") -> None:
    """Lane n sends a word to CTA n with st.async, and reads the word of every CTA with ld."""
    k.launch(grid=size, cluster=size)
    inbox, own = k.shared("inbox", s32, (size,)), k.shared("own", s32, (1,))
    mail, word, lane = k.mbarriers("mail"), k.var("word"), k.lane_id
    open_cluster(k, (mail, 1))
    with k.elected():
        k.mem.store(own[0], k.cluster_rank)
        k.mbarrier.arrive_expect_tx(mail, 4 * size + (4 if fault == "bytes" else 0))
    with k.if_(lane < size):
        k.cluster.st_async(inbox[k.cluster_rank].at(lane), lane, mail[0].at(lane))
    k.mbarrier.wait(mail, 0, scope="cluster")
    if fault != "early":
        k.cluster.sync()
    with k.if_(lane < size):
        k.mem.load(word, inbox[lane])
        k.mem.load(word, own[0].at(lane))  # BUG: if nobody said that it is written
    if fault != "exit":
        k.cluster.sync()


@kernel(warps=2)
def some_peers(
    k: Builder, *, size: int = 4, mask: int = 0b0101, stages: int = 2, n: int = 5, fault: str = ""
) -> None:
    """CTA 0 multicasts to some CTAs of the cluster, which arm their barriers themselves."""
    k.launch(grid=size, cluster=size)
    X, tile = k.tensor("X", s32, (n, 4)), k.shared("tile", s32, (stages, 4))
    landed, freed, word = k.mbarriers("landed", stages), k.mbarriers("freed", stages), k.var("word")
    receivers = [rank for rank in range(size) if mask >> rank & 1]
    open_cluster(k, (landed, 1), (freed, 1 if fault == "one free" else len(receivers)))
    rank = k.cluster_rank
    with k.if_(((mask >> rank) & 1).eq(1)), k.role("receive", 1), k.elected(), k.loop(n) as i:
        slot = i % stages
        with k.if_(rank.eq(receivers[0]) if fault == "unarmed" else rank >= 0):
            k.mbarrier.arrive_expect_tx(landed[slot], 16)
        k.mbarrier.wait(landed[slot], (i // stages) & 1, scope="cluster")
        k.mem.load(word, tile[slot, 0])
        k.fence.proxy_async()
        with k.if_(rank.eq(receivers[0]) if fault == "one free" else rank >= 0):
            k.mbarrier.arrive(freed[slot].at(0), scope="cluster")
    with k.if_(rank.eq(0)), k.role("send", 0), k.elected(), k.loop(n) as i:
        slot = i % stages
        k.mbarrier.wait(freed[slot], ((i // stages) & 1) ^ 1, scope="cluster")
        k.bulk.load(tile[slot], X[i], landed[slot], multicast=mask)
    if fault != "exit":
        k.cluster.sync()


@kernel(warps=3)
def leaver(k: Builder, *, stages: int = 2, n: int = 6, until: int = 3, fault: str = "") -> None:
    """One of two consumers leaves: its last arrival on every stage is an arrive_drop (A16)."""
    X, tile = k.tensor("X", s32, (n, 4)), k.shared("tile", s32, (stages, 4))
    ready, vacant, word = k.mbarriers("ready", stages), k.mbarriers("vacant", stages), k.var("word")
    with k.one_thread():
        for stage in range(stages):
            k.mbarrier.init(ready[stage], 1)
            k.mbarrier.init(vacant[stage], 2)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(n) as i:
        slot = i % stages
        k.mbarrier.wait(vacant[slot], ((i // stages) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(ready[slot], 16)
        k.bulk.load(tile[slot], X[i], ready[slot])
    for name, warp, count in (("stays", 1, n), ("leaves", 2, until)):
        with k.role(name, warp), k.elected(), k.loop(count) as i:
            slot = i % stages
            k.mbarrier.wait(ready[slot], (i // stages) & 1)
            k.mem.load(word, tile[slot, 0])
            k.fence.proxy_async()
            last = i + stages >= count
            with k.if_(last if warp == 2 and fault != "silent" else last & 0):
                k.mbarrier.arrive_drop(vacant[slot])
            with k.else_():
                k.mbarrier.arrive(vacant[slot])


@kernel(warps=2)
def recycled(k: Builder, *, rounds: int = 3, fault: str = "") -> None:
    """A barrier is invalidated and initialised again with another count in every round (A6)."""
    b, x, word = k.mbarriers("b"), k.shared("x", s32, (1,)), k.var("word")
    with k.loop(rounds) as i:
        with k.one_thread():
            k.mbarrier.init(b, i + 1)
        k.sync_threads()
        with k.role("write", 0), k.elected():
            k.mem.store(x[0], i)
            k.mbarrier.arrive(b, i + 1)
        with k.role("read", 1), k.elected():
            k.mbarrier.wait(b, 1 if fault == "phase" else 0)
            k.mem.load(word, x[0])  # BUG: if the new barrier is taken for the old one
        if fault != "no barrier":
            k.sync_threads()
        if fault != "live":
            with k.one_thread():
                k.mbarrier.inval(b)
