"""Small sm_90a kernels with one fault each: proxies, groups, shared waits, orders of waiting.

Each has a parameter that says what is wrong with it; the default is right.
"""

from __future__ import annotations

from tilesim import Builder, kernel
from tilesim.arith.types import bf16, f32, s32
from tilesim.ir.declarations import GlobalTensor, SharedTensor
from tilesim.ir.expr import Operand
from tilesim.kernels.hopper.operands import multiply_tile
from tilesim.lib.opening import open_cluster
from tilesim.lib.pipeline import Pipeline

ROW = 128


@kernel(warps=4)
def stored_operand(k: Builder, *, by: str = "st", fence: bool = True) -> None:
    """An operand written by ordinary stores or cp.async, then read by wgmma."""
    A, B, C = (k.tensor(n, f32 if n == "C" else bf16, (64, 64)) for n in "ABC")
    a, b = k.shared("a", bf16, (64, 64), swizzle=128), k.shared("b", bf16, (64, 64), swizzle=128)
    part, acc = k.fragment("part", bf16, (16, 64)), k.fragment("acc", f32, (64, 64), "warpgroup")
    for source, target in ((A, a), (B, b)):
        for warp in range(4):
            rows = slice(16 * warp, 16 * warp + 16)
            with k.role(f"warp {warp}", warp):
                if by == "st":
                    k.tile.load(part, source[rows, :])
                    k.tile.store(target[rows, :], part)
                else:
                    k.cp_async.copy(target[rows, :], source[rows, :])
    if by == "cp.async":
        k.cp_async.wait_all()
    if fence:
        k.fence.proxy_async("shared::cta")
    k.sync_threads()
    k.tile.fill(acc, 0.0)
    multiply_tile(k, acc, a.view(), b.view())  # BUG: if there was no fence
    k.wgmma.wait_group(0)
    k.tile.store(C, acc)


@kernel(warps=4)
def stored_partials(k: Builder, *, read: bool = False, fence: bool = True) -> None:
    """A partial tile leaves by a bulk store; a flag tells another CTA, which copies it in.

    The copies need no proxy fence between them: both are asynchronous, and the first is complete.
    """
    k.launch(grid=2, cooperative=True)
    X, work = k.tensor("X", f32, (2, ROW)), k.tensor("work", f32, (ROW,))
    flag, Y = k.tensor("flag", s32, (1,)), k.tensor("Y", f32, (ROW,))
    tile, b = k.shared("tile", f32, (ROW,)), k.mbarriers("b")
    x, other, ready = k.var("x", dtype=f32), k.var("other", dtype=f32), k.var("ready", 0)
    with k.one_thread():
        k.mbarrier.init(b, 1)
    k.mem.load(x, X[k.cta_x, k.thread_id])
    with k.if_(k.cta_x.eq(1)):
        k.mem.store(tile[k.thread_id], x)
        k.fence.proxy_async("shared::cta")
    k.sync_threads()
    with k.if_(k.cta_x.eq(1)), k.one_thread():
        k.bulk.store(work, tile)
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=read)  # BUG: read says nothing of the writes
        if fence:
            k.fence.proxy_async()
        k.mem.store(flag[0], 1, sem="release", scope="gpu")
    with k.if_(k.cta_x.eq(0)):
        with k.one_thread():
            with k.while_(ready.eq(0)):
                k.mem.load(ready, flag[0], sem="acquire", scope="gpu")
            if fence:
                k.fence.proxy_async()
            k.mbarrier.arrive_expect_tx(b, tile.nbytes)
            k.bulk.load(tile, work, b)
        k.mbarrier.wait(b, 0)
        k.mem.load(other, tile[k.thread_id])
        k.mem.store(Y[k.thread_id], x + other)


@kernel(warps=9)
def shared_release(k: Builder, *, items: int = 5, groups: int = 2) -> None:
    """Two warpgroups read every stage; the stage is free when both have said so."""
    X, Y = k.tensor("X", f32, (items, ROW)), k.tensor("Y", f32, (2, items, ROW))
    buffer, x = k.shared("buffer", f32, (2, ROW)), k.var("x", dtype=f32)
    pipe = Pipeline(k, 2, consumers=groups)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("producer", 8), k.elected(), k.loop(items) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(buffer[0].nbytes)
        k.bulk.load(buffer[slot.stage], X[i], slot.full)
    for group in range(2):
        first = 4 * group
        with k.role(f"group {group}", range(first, first + 4)), k.loop(items) as i:
            slot = pipe[i]
            slot.wait()
            k.mem.load(x, buffer[slot.stage, k.thread_id % ROW])  # BUG: if one speaks for both
            k.fence.proxy_async("shared::cta")
            k.bar.sync(1 + group, ROW, aligned=False)
            if group < groups:
                with k.one_thread(first):
                    slot.release()
            k.mem.store(Y[group, i, k.thread_id % ROW], x)


@kernel(warps=2)
def keys_and_values(k: Builder, *, blocks: int = 3, ahead: bool = False, stages: int = 1) -> None:
    """K and V in rings of their own: who loads K ahead needs a stage that V's reader gives back."""
    K, V = (k.tensor(n, f32, (blocks, 32)) for n in "KV")
    Y, x, y = k.tensor("Y", f32, (blocks, 32)), k.var("x", dtype=f32), k.var("y", dtype=f32)
    sk = k.shared("sk", f32, (stages, 32))
    keys, values = Pipeline(k, stages, name="k"), Pipeline(k, 1, name="v")
    sv = k.shared("v", f32, (1, 32))
    with k.one_thread():
        keys.init()
        values.init()
    k.sync_threads()
    with k.role("load", 0), k.elected(), k.loop(blocks) as i:
        if ahead:
            with k.if_(i.eq(0)):
                _load(k, keys, sk, K, 0)
            with k.if_(i + 1 < blocks):
                _load(k, keys, sk, K, i + 1)  # BUG: with one stage, before V
        else:
            _load(k, keys, sk, K, i)
        _load(k, values, sv, V, i)
    with k.role("compute", 1), k.loop(blocks) as i:
        left, right = keys[i], values[i]
        left.wait()
        right.wait()  # waits for V
        k.mem.load(x, sk[left.stage, k.lane_id])
        k.mem.load(y, sv[right.stage, k.lane_id])
        k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            left.release()
            right.release()
        k.mem.store(Y[i, k.lane_id], x + y)


def _load(
    k: Builder, pipe: Pipeline, target: SharedTensor, source: GlobalTensor, i: Operand
) -> None:
    slot = pipe[i]
    slot.acquire()
    slot.commit(128)
    k.bulk.load(target[slot.stage], source[i], slot.full)


@kernel(warps=8)
def one_id(k: Builder, *, rounds: int = 2, ids: int = 2) -> None:
    """Two warpgroups exchange values among themselves, each with a named barrier of its own."""
    X, Y = k.tensor("X", f32, (2, ROW)), k.tensor("Y", f32, (2, rounds, ROW))
    scratch, x = k.shared("scratch", f32, (2, rounds, ROW)), k.var("x", dtype=f32)
    thread = k.thread_id % ROW
    for group in range(2):
        with k.role(f"group {group}", range(4 * group, 4 * group + 4)):
            k.mem.load(x, X[group, thread])
            for i in range(rounds):
                k.mem.store(scratch[group, i, thread], x)
                k.bar.sync(1 + group % ids, ROW, aligned=False)  # BUG: if the ids coincide
                k.mem.load(x, scratch[group, i, thread ^ 127])
                k.mem.store(Y[group, i, thread], x)


@kernel(warps=1)
def uneven_rounds(k: Builder, *, short: int = 2, long: int = 3, even: bool = True) -> None:
    """A cluster barrier per tile: every CTA of the cluster needs as many."""
    k.launch(grid=2, cluster=2)
    Y, tile = k.tensor("Y", s32, (2, 4, 32)), k.shared("tile", s32, (4, 32))
    x, count = k.var("x"), k.var("count", long)
    with k.if_(k.cluster_rank.eq(1)):
        k.assign(count, long if even else short)
    with k.loop(long) as i, k.if_(i < count):
        k.mem.store(tile[i, k.lane_id], i)
        k.cluster.sync()  # BUG: if a CTA has fewer tiles
        k.mem.load(x, tile[i, k.lane_id].at(k.cluster_rank ^ 1))
        k.mem.store(Y[k.cluster_rank, i, k.lane_id], x)
    k.cluster.sync()


@kernel(warps=2)
def foreign_group(k: Builder, *, own: bool = True) -> None:
    """A bulk group belongs to the thread that committed it; nobody else can wait for it."""
    X, Y = k.tensor("X", f32, (2, 64)), k.tensor("Y", f32, (2, 64))
    out, x = k.shared("out", f32, (64,)), k.var("x", dtype=f32)
    for i in range(2):
        k.mem.load(x, X[i, k.thread_id])
        k.mem.store(out[k.thread_id], x)  # BUG: if the store before it has not been read
        k.fence.proxy_async("shared::cta")
        k.sync_threads()
        with k.role("store", 0), k.elected():
            k.bulk.store(Y[i], out)
            k.bulk.commit_group()
            if own or i == 1:
                k.bulk.wait_group(0)
        if not own:
            with k.role("wait", 1), k.elected():
                k.bulk.wait_group(0)
        k.sync_threads()


@kernel(warps=4)
def one_waiter(k: Builder, *, items: int = 4, barrier: bool = True) -> None:
    """One warp waits for the copy, a barrier tells the others."""
    X, Y = k.tensor("X", f32, (items, ROW)), k.tensor("Y", f32, (items, ROW))
    tile, full, x = k.shared("tile", f32, (ROW,)), k.mbarriers("full"), k.var("x", dtype=f32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.loop(items) as i:
        with k.one_thread():
            k.bulk.load(tile, X[i], full)
            k.mbarrier.arrive_expect_tx(full, tile.nbytes)
            k.mbarrier.wait(full, i & 1)
        if barrier:
            k.sync_threads()
        k.mem.load(x, tile[k.thread_id])  # BUG: if only one warp has waited
        k.fence.proxy_async("shared::cta")
        k.sync_threads()
        k.mem.store(Y[i, k.thread_id], x)


@kernel(warps=2)
def polled(k: Builder, *, items: int = 3, right: bool = True) -> None:
    """A hand-written try_wait loop, with a parity that flips after every success."""
    X, Y = k.tensor("X", f32, (items, 32)), k.tensor("Y", f32, (items, 32))
    tile, x = k.shared("tile", f32, (32,)), k.var("x", dtype=f32)
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    done, parity = k.var("done", 0), k.var("parity", 0)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 1)
    k.sync_threads()
    with k.role("load", 0), k.elected(), k.loop(items) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full, 128)
        k.bulk.load(tile, X[i], full)
    with k.role("compute", 1), k.loop(items) as i:
        k.assign(done, 0)
        with k.while_(done.eq(0)):
            k.mbarrier.try_wait(done, full, parity)  # BUG: if the parity stays
        if right:
            k.assign(parity, parity ^ 1)
        k.mem.load(x, tile[k.lane_id])
        k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(empty)
        k.mem.store(Y[i, k.lane_id], x)


@kernel(warps=2)
def remote_slot(k: Builder, *, items: int = 4, credit: bool = True) -> None:
    """A ring from CTA to CTA: the receiver's credit goes back to the sender's barrier."""
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", f32, (items, 32)), k.tensor("Y", f32, (items, 32))
    mine, box = k.shared("mine", f32, (items, 32)), k.shared("box", f32, (2, 32))
    full, empty, loaded = k.mbarriers("full", 2), k.mbarriers("empty", 2), k.mbarriers("loaded")
    x = k.var("x", dtype=f32)
    open_cluster(k, (full, 1), (empty, 1), (loaded, 1))
    with k.if_(k.cluster_rank.eq(0)), k.role("send", 0), k.elected():
        k.mbarrier.arrive_expect_tx(loaded, mine.nbytes)
        k.bulk.load(mine, X, loaded)
        k.mbarrier.wait(loaded, 0)
        with k.loop(items) as i:
            if credit:
                k.mbarrier.wait(empty[i % 2], ((i // 2) & 1) ^ 1, scope="cluster")
            k.bulk.copy(box[i % 2].at(1), mine[i], full[i % 2].at(1))  # BUG: without the credit
    with k.if_(k.cluster_rank.eq(1)), k.role("receive", 1), k.loop(items) as i:
        with k.elected():
            k.mbarrier.arrive_expect_tx(full[i % 2], 128)
        k.mbarrier.wait(full[i % 2], (i // 2) & 1, scope="cluster")
        k.mem.load(x, box[i % 2, k.lane_id])
        k.fence.proxy_async()
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(empty[i % 2].at(0), scope="cluster")
        k.mem.store(Y[i, k.lane_id], x)
    k.cluster.sync()
