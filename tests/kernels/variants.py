"""Kernels that are right, each with faults of other published ones: rings, exchanges, flags.

What is marked with ``@`` and a fault's name is the line that a report is to name first.
"""

from __future__ import annotations

from tilesim import Builder, ds, kernel, u8
from tilesim.arith.types import bf16, f32, s32
from tilesim.lib.opening import open_cluster, open_cta

ROWS, COLUMNS, GROUP = 16, 64, 128
BYTES = ROWS * COLUMNS * f32.bytes


@kernel(warps=9)
def persistent(k: Builder, *, fault: str = "", tiles: int = 5, steps: int = 4) -> None:
    """Persistent CTAs with three stages that two groups read; both give them back."""
    k.launch(grid=2)
    X = k.tensor("X", f32, (tiles * steps * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (2 * tiles * ROWS, COLUMNS))
    x_map, tile = k.tensor_map(X, (ROWS, COLUMNS)), k.shared("tile", f32, (3, ROWS, COLUMNS))
    full, empty = k.mbarriers("full", 3), k.mbarriers("empty", 3)
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cta(k, (full, 1), (empty, 2))
    with k.role("load", 8), k.elected():
        n = k.var("n", 0)
        with k.loop(k.cta_x, tiles, 2) as t, k.loop(steps) as i:
            k.mbarrier.wait(empty[n % 3], ((n // 3) & 1) ^ 1)
            k.mbarrier.arrive_expect_tx(full[n % 3], BYTES)
            k.tma.load(x_map, tile[n % 3], ((t * steps + i) * ROWS, 0), full[n % 3])
            k.assign(n, n + 1)
    for g in range(2):
        with k.role(f"group {g}", range(4 * g, 4 * g + 4)):
            n = k.var(f"n{g}", 0)
            with k.loop(k.cta_x, tiles, 2) as t:
                with k.loop(steps) as i:
                    parity = i if fault == "parity" and g == 1 else n // 3
                    k.mbarrier.wait(full[n % 3], parity & 1)  # @parity
                    with k.if_((k.warp_id % 4).eq(0)):
                        k.tile.load(part, tile[n % 3])
                    k.bar.sync(1 + g, GROUP)
                    with k.one_thread(4 * g):
                        k.mbarrier.arrive(empty[n % 3])
                    k.assign(n, n + 1)
                with k.if_((k.warp_id % 4).eq(0)):
                    k.tile.store(Y[ds((2 * t + g) * ROWS, ROWS)], part)


@kernel(warps=9)
def two_queries(k: Builder, *, fault: str = "", blocks: int = 5) -> None:
    """Attention without its products: two groups with a Q each, rings of K and V, one after the
    other by named barriers."""
    Q, K, V, Y = (
        k.tensor(name, f32, (n * ROWS, COLUMNS))
        for name, n in (("Q", 2), ("K", blocks), ("V", blocks), ("Y", 2))
    )
    maps = [k.tensor_map(t, (ROWS, COLUMNS)) for t in (Q, K, V)]
    q, keys, values = (k.shared(name, f32, (2, ROWS, COLUMNS)) for name in ("q", "keys", "values"))
    q_full, k_full, k_empty, v_full, v_empty = (
        k.mbarriers(name, 2) for name in ("q_full", "k_full", "k_empty", "v_full", "v_empty")
    )
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cta(k, (q_full, 1), (k_full, 1), (v_full, 1), (k_empty, 2), (v_empty, 2))
    with k.role("load", 8), k.elected():
        for g in range(2):
            k.mbarrier.arrive_expect_tx(q_full[g], BYTES)
            k.tma.load(maps[0], q[g], (g * ROWS, 0), q_full[g])
        with k.loop(blocks) as i:
            s, parity = i % 2, (i // 2) & 1
            k.mbarrier.wait(k_empty[s], parity ^ 1)
            k.mbarrier.arrive_expect_tx(k_full[s], BYTES)
            k.tma.load(maps[1], keys[s], (i * ROWS, 0), k_full[s])
            k.mbarrier.wait((k_empty if fault == "guard" else v_empty)[s], parity ^ 1)  # @guard
            k.mbarrier.arrive_expect_tx(v_full[s], BYTES)
            k.tma.load(maps[2], values[s], (i * ROWS, 0), v_full[s])
    for g in range(2):
        with k.role(f"group {g}", range(4 * g, 4 * g + 4)):
            first = (k.warp_id % 4).eq(0)
            k.mbarrier.wait(q_full[0 if fault == "query" else g], 0)  # @query
            if g == 1:
                k.bar.arrive(2, 2 * GROUP)
            with k.loop(blocks) as i:
                s, parity = i % 2, (i // 2) & 1
                k.mbarrier.wait(k_full[s], parity)
                k.bar.sync(2 + g, 2 * GROUP)
                with k.if_(first):
                    k.tile.load(part, q[g])
                    k.tile.load(part, keys[s])
                if g == 0:
                    k.bar.arrive(3, 2 * GROUP)
                else:
                    with k.if_(i + 1 < blocks):
                        k.bar.arrive(2, 2 * GROUP)
                k.bar.sync(4 + g, GROUP)
                with k.one_thread(4 * g):
                    k.mbarrier.arrive(k_empty[s])
                k.mbarrier.wait(v_full[s], parity)
                with k.if_(first):
                    k.tile.load(part, values[s])  # @meeting
                alone = fault == "meeting" and g == 1
                if not alone:
                    k.bar.sync(4 + g, GROUP)
                with k.one_thread(4 * g + alone):
                    k.mbarrier.arrive(v_empty[s])
            with k.if_(first):
                k.tile.store(Y[ds(g * ROWS, ROWS)], part)


@kernel(warps=4)
def ring_of_stores(k: Builder, *, fault: str = "", tiles: int = 5) -> None:
    """A group stages tiles in two buffers by turns, one thread stores them."""
    X, Y = k.tensor("X", f32, (tiles, GROUP)), k.tensor("Y", f32, (tiles, GROUP))
    out, x = k.shared("out", f32, (2, GROUP)), k.var("x", dtype=f32)
    with k.loop(tiles) as t:
        k.mem.load(x, X[t, k.thread_id])
        with k.one_thread():
            k.bulk.wait_group(1, read=True)
        if fault != "alone":
            k.bar.sync(1, GROUP)
        k.mem.store(out[t % 2, k.thread_id], x)  # @alone
        k.fence.proxy_async("shared::cta")
        k.bar.sync(2, GROUP)
        with k.one_thread():
            k.bulk.store(Y[t], out[t % 2])
            k.bulk.commit_group()
    with k.one_thread():
        k.bulk.wait_group(0, read=True)


@kernel(warps=8)
def copies_by_lanes(k: Builder, *, fault: str = "", n: int = 6) -> None:
    """A group fills two stages by cp.async, whose lanes arrive; another one reads them."""
    X, Y = k.tensor("X", f32, (n, 512)), k.tensor("Y", f32, (n, 512))
    tile, x = k.shared("tile", f32, (2, 512)), k.var("x", dtype=f32)
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    with k.one_thread():
        for s in range(2):
            k.mbarrier.init(full[s], 4 if fault == "warps" else GROUP)  # @warps
            k.mbarrier.init(empty[s], GROUP)
    k.sync_threads()
    with k.role("load", range(4)), k.loop(n) as i:
        k.mbarrier.wait(empty[i % 2], (i // 2 + 1) & 1)
        mine = ds(k.warp_id * GROUP, GROUP)
        k.cp_async.copy(tile[i % 2, mine], X[i, mine])
        k.cp_async.mbarrier_arrive(full[i % 2], noinc=True)
    with k.role("read", range(4, 8)), k.loop(n) as i:
        k.mbarrier.wait(full[i % 2], (i // 2) & 1)
        for part in range(0, 512, GROUP):
            k.mem.load(x, tile[i % 2, k.thread_id - GROUP + part])
            k.mem.store(Y[i, k.thread_id - GROUP + part], x)
        k.mbarrier.arrive(empty[(i + (fault == "slot")) % 2])  # @slot


@kernel(warps=5)
def quarters(k: Builder, *, fault: str = "", n: int = 4) -> None:
    """Each of four CTAs loads a quarter of what all of them read."""
    k.launch(grid=4, cluster=4)
    X, Y = k.tensor("X", f32, (n * ROWS, COLUMNS)), k.tensor("Y", f32, (4, n, GROUP))
    x_map, tile = k.tensor_map(X, (4, COLUMNS)), k.shared("tile", f32, (2, ROWS, COLUMNS))
    full, empty, x = k.mbarriers("full", 2), k.mbarriers("empty", 2), k.var("x", dtype=f32)
    open_cluster(k, (full, 1), (empty, 4))
    rows = ds(4 * (0 if fault == "part" else k.cluster_rank), 4)
    with k.role("load", 4), k.elected(), k.loop(n) as i:
        s, row = i % 2, i * ROWS + 4 * k.cluster_rank
        k.mbarrier.wait(empty[s], (i // 2 + 1) & 1, scope="cluster")
        k.mbarrier.arrive_expect_tx(full[s], BYTES)
        k.tma.load(x_map, tile[s, rows], (row, 0), full[s], multicast=0b1111)  # @part
    with k.role("read", range(4)), k.loop(n) as i:
        k.mbarrier.wait(full[i % 2], (i // 2) & 1, scope="cluster")
        k.mem.load(x, tile[i % 2, k.thread_id % ROWS, k.thread_id // ROWS])
        k.mem.store(Y[k.cluster_rank, i, k.thread_id], x)
        k.bar.sync(1, GROUP)
        with k.one_thread():
            for rank in range(4):
                k.mbarrier.arrive(empty[i % 2].at(rank), scope="cluster")
    k.cluster.sync()


@kernel(warps=4)
def neighbours(k: Builder, *, fault: str = "", n: int = 3) -> None:
    """CTAs of a cluster add what the next one has, in two buffers by turns."""
    k.launch(grid=4, cluster=4)
    X, Y = k.tensor("X", f32, (4, GROUP)), k.tensor("Y", f32, (4, GROUP))
    own, x, y = k.shared("own", f32, (2, GROUP)), k.var("x", dtype=f32), k.var("y", dtype=f32)
    k.mem.load(x, X[k.cluster_rank, k.thread_id])
    with k.loop(n) as i:
        k.mem.store(own[i % 2, k.thread_id], x)
        k.cluster.arrive(sem="relaxed" if fault == "relaxed" else "release")  # @relaxed
        k.cluster.wait()
        k.mem.load(y, own[i % 2, k.thread_id].at((k.cluster_rank + 1) % 4))
        k.assign(x, x + y)
    k.mem.store(Y[k.cluster_rank, k.thread_id], x)
    k.cluster.sync()


@kernel(warps=2)
def in_order(k: Builder, *, fault: str = "") -> None:
    """CTAs add to one row in their order, which a word in global memory keeps."""
    k.launch(grid=3, cooperative=True)
    X, Y, turn = k.tensor("X", f32, (3, 64)), k.tensor("Y", f32, (64,)), k.tensor("turn", s32, (1,))
    x, y, now = k.var("x", dtype=f32), k.var("y", dtype=f32), k.var("now", -1)
    k.mem.load(x, X[k.cta_x, k.thread_id])
    with k.one_thread(), k.while_(now.ne(k.cta_x)):  # @skip
        k.mem.load(now, turn[0], sem="acquire", scope="gpu")
    if fault != "before":
        k.sync_threads()
    k.mem.load(y, Y[k.thread_id])  # @before
    k.mem.store(Y[k.thread_id], x + y)  # @behind
    if fault != "behind":
        k.sync_threads()
    with k.one_thread():
        after = k.cta_x + (2 if fault == "skip" else 1)
        if fault == "scope":
            k.mem.store(turn[0], after, sem="release", scope="cta")  # @scope
        else:
            k.mem.store(turn[0], after, sem="release", scope="gpu")


@kernel(warps=5)
def one_in_flight(k: Builder, *, fault: str = "", n: int = 6) -> None:
    """Products of a group, one of which goes on while the next is issued; the stage before is given
    back then."""
    A, B = (k.tensor(name, bf16, (64, 64 * n)) for name in "AB")
    C = k.tensor("C", f32, (64, 64))
    maps = [k.tensor_map(t, (64, 64), swizzle=128) for t in (A, B)]
    a, b = (k.shared(name, bf16, (3, 64, 64), swizzle=128) for name in "ab")
    full, empty = k.mbarriers("full", 3), k.mbarriers("empty", 3)
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    open_cta(k, (full, 1), (empty, 4))
    with k.role("load", 4), k.elected(), k.loop(n) as i:
        s = i % 3
        k.mbarrier.wait(empty[s], (i // 3 + 1) & 1)
        k.mbarrier.arrive_expect_tx(full[s], 2 * maps[0].box_bytes)
        for box, tile in zip(maps, (a, b), strict=True):
            k.tma.load(box, tile[s], (0, i * 64), full[s])
    with k.role("multiply", range(4)):
        k.tile.fill(acc, 0.0)
        with k.loop(n) as i:
            k.mbarrier.wait(full[i % 3], (i // 3) & 1)
            if fault != "fence":
                k.wgmma.fence()
            for j in range(0, 64, 16):
                part = ds(j, 16)
                k.wgmma.mma_async(acc, a[i % 3, :, part], b[i % 3, :, part])  # @fence
            k.wgmma.commit_group()
            k.wgmma.wait_group(1)
            with k.if_(i >= (0 if fault == "first" else 1)), k.elected():
                k.mbarrier.arrive(empty[(i + 2) % 3])  # @first
        if fault != "last":
            k.wgmma.wait_group(0)
        k.tile.store(C, acc)  # @last


@kernel(warps=1)
def maps_by_turns(k: Builder, *, fault: str = "", groups: int = 3) -> None:
    """A tensor map in global memory is set anew for each group of rows."""
    X, Y = (k.tensor(name, f32, (groups * ROWS, COLUMNS)) for name in "XY")
    x_map, maps = k.tensor_map(X, (ROWS, COLUMNS)), k.tensor("maps", u8, (128,))
    tile, draft = k.shared("tile", f32, (ROWS, COLUMNS)), k.shared("draft", u8, (128,))
    full, part = k.mbarriers("full"), k.fragment("part", f32, (ROWS, COLUMNS))
    open_cta(k, (full, 1))
    with k.loop(groups) as g:
        with k.elected():
            k.tensormap.copy(draft, x_map)
            k.tensormap.replace(draft, "global_address", X[ds(g * ROWS, ROWS)])
        k.tensormap.cp_fenceproxy(maps, draft)
        with k.elected():
            if fault != "acquire":
                k.fence.proxy_tensormap_acquire(maps)
            k.mbarrier.arrive_expect_tx(full, BYTES)
            k.tma.load(x_map, tile, (0, 0), full, at=maps)  # @acquire
        k.mbarrier.wait(full, g & 1)
        k.tile.load(part, tile)
        k.tile.store(Y[ds(g * ROWS, ROWS)], part)


@kernel(warps=2)
def two_lives(k: Builder, *, fault: str = "") -> None:
    """A barrier is invalidated and initialised again for a second copy."""
    X, Y = k.tensor("X", f32, (2, 64)), k.tensor("Y", f32, (2, 64))
    tile, full, x = k.shared("tile", f32, (64,)), k.mbarriers("full"), k.var("x", dtype=f32)
    for n in range(2):
        with k.one_thread():
            k.mbarrier.init(full, 1)
        k.sync_threads()
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(full, tile.nbytes)
            k.bulk.load(tile, X[n], full)
        k.mbarrier.wait(full, 0)
        k.mem.load(x, tile[k.thread_id])
        k.mem.store(Y[n, k.thread_id], x)  # @early
        if fault != "early":
            k.sync_threads()
        with k.one_thread():
            k.mbarrier.inval(full)


@kernel(warps=4)
def behind_a_grid(k: Builder, *, fault: str = "", n: int = 3) -> None:
    """What the grid before has written is read behind griddepcontrol.wait, by two CTAs."""
    k.launch(grid=2)
    X = k.tensor("X", f32, (n, GROUP), dependent=True)
    Y = k.tensor("Y", f32, (2, n, GROUP), dependent=True)
    tile, full, x = k.shared("tile", f32, (GROUP,)), k.mbarriers("full"), k.var("x", dtype=f32)
    open_cta(k, (full, 1))
    if fault not in ("none", "late"):
        k.griddep.wait()
    with k.loop(n) as i:
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(full, tile.nbytes)
            k.bulk.load(tile, X[i], full)  # @none
        k.mbarrier.wait(full, i & 1)
        k.mem.load(x, tile[k.thread_id])
        if fault == "late":
            k.griddep.wait()  # @late
        k.mem.store(Y[k.cta_x, i, k.thread_id], x)
        k.sync_threads()


@kernel(warps=2)
def across_warps(k: Builder, *, fault: str = "") -> None:
    """Two warps exchange words; a barrier of one warp is not enough."""
    X, Y = k.tensor("X", f32, (64,)), k.tensor("Y", f32, (64,))
    words, x = k.shared("words", f32, (64,)), k.var("x", dtype=f32)
    k.mem.load(x, X[k.thread_id])
    k.mem.store(words[k.thread_id], x)
    if fault == "warp":
        k.sync_warp()
    else:
        k.sync_threads()
    k.mem.load(x, words[k.thread_id ^ 32])  # @warp
    k.mem.store(Y[k.thread_id], x)


@kernel(warps=5)
def numbers_drawn(k: Builder, *, fault: str = "", tiles: int = 5) -> None:
    """One warp draws numbers of tiles for the others, in two slots by turns."""
    k.launch(grid=2)
    Y, drawn = k.tensor("Y", s32, (tiles, GROUP)), k.tensor("drawn", s32, (1,))
    number = k.shared("number", s32, (2,))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    open_cta(k, (full, 1), (empty, 4))
    with k.role("draw", 4), k.elected():
        tile, n = k.var("tile", 0), k.var("n", 0)
        with k.while_(tile < tiles):
            k.mbarrier.wait(empty[n % 2], ((n // 2) & 1) ^ 1)
            k.mem.atomic(drawn[0], "add", 1, result=tile)
            k.mem.store(number[n % 2], tile)
            k.mbarrier.arrive(full[n % 2])
            k.assign(n, n + 1)
    with k.role("use", range(4)):
        mine, m = k.var("mine", 0), k.var("m", 0)
        with k.while_(mine < tiles):
            k.mbarrier.wait(full[m % 2], (m // 2) & 1)
            k.mem.load(mine, number[0 if fault == "slot" else m % 2])  # @slot
            k.sync_warp()
            with k.elected():
                k.mbarrier.arrive(empty[m % 2])
            with k.if_(mine < tiles):
                k.mem.store(Y[mine, k.thread_id], mine)
            k.assign(m, m + 1)


@kernel(warps=5)
def own_state(k: Builder, *, fault: str = "", n: int = 7) -> None:
    """Three stages; each role keeps its slot and parity in registers."""
    X, Y = k.tensor("X", f32, (n, GROUP)), k.tensor("Y", f32, (n, GROUP))
    tile, x = k.shared("tile", f32, (3, GROUP)), k.var("x", dtype=f32)
    full, empty = k.mbarriers("full", 3), k.mbarriers("empty", 3)
    open_cta(k, (full, 1), (empty, 4))
    with k.role("load", 4), k.elected():
        slot, parity = k.var("slot", 0), k.var("parity", 1)
        with k.loop(n) as i:
            k.mbarrier.wait(empty[slot], parity)
            k.mbarrier.arrive_expect_tx(full[slot], tile[0].nbytes)
            k.bulk.load(tile[slot], X[i], full[slot])
            k.assign(slot, slot + 1)
            with k.if_(slot.eq(2 if fault == "wrap" else 3)):  # @wrap
                k.assign(slot, 0)
                k.assign(parity, parity ^ 1)
    with k.role("read", range(4)):
        at, phase = k.var("at", 0), k.var("phase", 0)
        with k.loop(n) as i:
            k.mbarrier.wait(full[at], phase)
            k.mem.load(x, tile[at, k.thread_id])
            k.sync_warp()
            with k.elected():
                k.mbarrier.arrive(empty[at])
            k.mem.store(Y[i, k.thread_id], x)
            k.assign(at, at + 1)
            if fault == "always":
                k.assign(phase, phase ^ 1)  # @always
            with k.if_(at.eq(3)):
                k.assign(at, 0)
                if fault != "always":
                    k.assign(phase, phase ^ 1)


@kernel(warps=5)
def query_per_tile(k: Builder, *, fault: str = "", tiles: int = 3, keys: int = 3) -> None:
    """A query stays while its keys pass, and is given back behind them."""
    Q, K, Y = (
        k.tensor(name, f32, (n, GROUP)) for name, n in (("Q", tiles), ("K", keys), ("Y", tiles))
    )
    query, ring = k.shared("query", f32, (GROUP,)), k.shared("ring", f32, (2, GROUP))
    q_full, q_empty = k.mbarriers("q_full"), k.mbarriers("q_empty")
    k_full, k_empty = k.mbarriers("k_full", 2), k.mbarriers("k_empty", 2)
    open_cta(k, (q_full, 1), (q_empty, GROUP), (k_full, 1), (k_empty, GROUP))
    with k.role("load", 4), k.elected(), k.loop(tiles) as t:
        k.mbarrier.wait(q_empty, (t & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(q_full, query.nbytes)
        k.bulk.load(query, Q[t], q_full)
        with k.loop(keys) as i:
            n = t * keys + i
            k.mbarrier.wait(k_empty[n % 2], ((n // 2) & 1) ^ 1)
            k.mbarrier.arrive_expect_tx(k_full[n % 2], query.nbytes)
            k.bulk.load(ring[n % 2], K[i], k_full[n % 2])
    x, y, total = (k.var(name, dtype=f32) for name in ("x", "y", "total"))
    with k.role("read", range(4)), k.loop(tiles) as t:
        k.mbarrier.wait(q_full, t & 1)
        k.assign(total, 0.0)
        if fault == "early":
            k.mbarrier.arrive(q_empty)  # @early
        with k.loop(keys) as i:
            n = t * keys + i
            k.mbarrier.wait(k_full[n % 2], (n // 2) & 1)
            k.mem.load(x, query[k.thread_id])
            k.mem.load(y, ring[n % 2, k.thread_id])
            k.mbarrier.arrive(k_empty[n % 2])
            k.assign(total, total + x * y)
        if fault != "early":
            k.mbarrier.arrive(q_empty)
        k.mem.store(Y[t, k.thread_id], total)
