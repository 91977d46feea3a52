"""Programs that time one thing each: their first CTAs write cycles of ``%clock64`` to ``out``.

What a loop costs is read from two loops of different length, so that its start and end cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from tilesim.arith.types import bf16, e4m3, f32, s64
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.expr import Var, select
from tilesim.lib.opening import open_cluster, open_cta

#: columns of a 16-bit tile whose rows are as wide as the 128-byte swizzle
WIDTH = 64
#: rows of a warpgroup's accumulator
ROWS = 64
Unit = Literal["bf16", "e4m3"]


@contextmanager
def timed(k: Builder, name: str = "t") -> Iterator[tuple[Var, Var]]:
    """Reads the clock before and after."""
    start, end = k.var(f"{name}_start", 0, s64), k.var(f"{name}_end", 0, s64)
    k.time.read(start, "clock64")
    yield start, end
    k.time.read(end, "clock64")


# ---------------------------------------------------------------------- the tensor core


@kernel(warps=4)
def products(
    k: Builder, *, n: int = 256, turns: int = 32, count: int = 4, groups: int = 1,
    source: Literal["shared", "registers"] = "shared", unit: Unit = "bf16", wait: bool = False,
) -> None:  # fmt: skip
    """``turns`` groups of ``count`` wgmma m64 x ``n`` by each of ``groups`` warpgroups; ``wait``
    for each group."""
    k.launch(grid=1, warps=4 * groups)
    dtype, step = (bf16, 16) if unit == "bf16" else (e4m3, 32)
    out = k.tensor("out", s64, (1,))
    sA = k.shared("sA", dtype, (groups, ROWS, step * 4), swizzle=128)
    sB = k.shared("sB", dtype, (n, step * 4), swizzle=128)
    acc = k.fragment("acc", f32, (ROWS, n), "warpgroup")
    a = k.fragment("a", bf16, (ROWS, step * 4), "warpgroup")
    A = k.tensor("A", dtype, (groups * ROWS, step * 4))
    B = k.tensor("B", dtype, (n, step * 4))
    a_map = k.tensor_map(A, (ROWS, step * 4), swizzle=128)
    b_map = k.tensor_map(B, (n, step * 4), swizzle=128)
    full = k.mbarriers("full")
    open_cta(k, (full, 1))
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, groups * a_map.box_bytes + b_map.box_bytes)
        for group in range(groups):
            k.tma.load(a_map, sA[group], (group * ROWS, 0), full)
        k.tma.load(b_map, sB, (0, 0), full)
    k.mbarrier.wait(full, 0)
    k.tile.fill(a, 1.0)
    k.tile.fill(acc, 0.0)
    k.sync_threads()
    start, end = k.var("start", 0, s64), k.var("end", 0, s64)
    k.time.read(start, "clock64")
    for group in range(groups):
        with k.warpgroup(group):
            with k.loop(turns):
                k.wgmma.fence()
                for number in range(count):
                    at = slice(number % 4 * step, (number % 4 + 1) * step)
                    if source == "shared":
                        k.wgmma.mma_async(acc, sA[group, :, at], sB[:, at])
                    else:
                        k.wgmma.mma_async(acc, a, sB[:, at], a_column=number % 4 * step)
                k.wgmma.commit_group()
                if wait:
                    k.wgmma.wait_group(0)
            k.wgmma.wait_group(0)
    k.sync_threads()
    k.time.read(end, "clock64")
    sink = k.tensor("sink", f32, (ROWS, n))
    with k.warpgroup(0):
        k.tile.store(sink[:, :], acc)
    with k.if_(k.thread_id.eq(0)):
        k.mem.store(out[0], end - start)


@kernel(warps=12)
def load(
    k: Builder, *, turns: int = 1000, pause: int = 0, boxes: int = 0, rest: int = 0,
    ctas: int = 132, n: int = 256,
) -> None:  # fmt: skip
    """Every SM multiplies random data with two warpgroups, and copies ``boxes`` boxes of 16 KiB.

    After a group of four products a warpgroup does nothing for ``pause`` nanoseconds, after a box
    the producer for ``rest``. ``out``: per CTA cycles and nanoseconds of the products, cycles of
    the copies.
    """
    k.launch(grid=ctas, registers=168)
    X = k.tensor("X", bf16, (128 + n, WIDTH))
    Y = k.tensor("Y", bf16, (1 << 16, WIDTH))
    out = k.tensor("out", s64, (ctas, 3))
    x_map = k.tensor_map(X, (128, WIDTH), swizzle=128)
    w_map = k.tensor_map(X, (n, WIDTH), swizzle=128, name="W_map")
    y_map = k.tensor_map(Y, (128, WIDTH), swizzle=128)
    sA = k.shared("sA", bf16, (128, WIDTH), swizzle=128)
    sB = k.shared("sB", bf16, (n, WIDTH), swizzle=128)
    sY = k.shared("sY", bf16, (4, 128, WIDTH), swizzle=128)
    full, turn = k.mbarriers("full"), k.mbarriers("turn", 4)
    acc = k.fragment("acc", f32, (ROWS, n), "warpgroup")
    sink = k.tensor("sink", f32, (ROWS, n))
    open_cta(k, (full, 1), (turn, 1))
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, x_map.box_bytes + w_map.box_bytes)
        k.tma.load(x_map, sA, (0, 0), full)
        k.tma.load(w_map, sB, (128, 0), full)
    k.mbarrier.wait(full, 0)
    k.sync_threads()
    start, end = k.var("start", 0, s64), k.var("end", 0, s64)
    began, ended = k.var("began", 0, s64), k.var("ended", 0, s64)
    k.time.read(start, "clock64")
    k.time.read(began, "globaltimer")
    with k.warpgroup(2):
        if boxes:
            with k.one_thread(8):
                with k.loop(boxes) as i:
                    with k.if_(i >= 4):
                        k.mbarrier.wait(turn[i % 4], (i // 4 & 1) ^ 1)
                    k.mbarrier.arrive_expect_tx(turn[i % 4], y_map.box_bytes)
                    # as in a GEMM: some CTAs copy the same
                    row = select((i % 3).eq(0), i * 16 + k.cta_x % 16, i * 16 + k.cta_x // 16)
                    k.tma.load(y_map, sY[i % 4], (row * 128 % (1 << 16), 0), turn[i % 4])
                    if rest:
                        k.time.sleep(rest)
                k.time.read(end, "clock64")
                k.mem.store(out[k.cta_x, 2], end - start)
    for group in range(2):
        with k.warpgroup(group):
            k.tile.fill(acc, 0.0)
            with k.loop(turns):
                k.wgmma.fence()
                for at in range(0, WIDTH, 16):
                    rows = slice(ROWS * group, ROWS * (group + 1))
                    k.wgmma.mma_async(acc, sA[rows, at : at + 16], sB[:, at : at + 16])
                k.wgmma.commit_group()
                k.wgmma.wait_group(0)
                if pause:
                    k.time.sleep(pause)
            if group == 0:
                k.tile.store(sink[:, :], acc)
                k.time.read(end, "clock64")
                k.time.read(ended, "globaltimer")
                with k.if_(k.thread_id.eq(0)):
                    k.mem.store(out[k.cta_x, 0], end - start)
                    k.mem.store(out[k.cta_x, 1], ended - began)


@kernel(warps=1)
def clock(k: Builder, *, cycles: int = 1_000_000) -> None:
    """Sleeps beside other kernels for so many cycles: cycles and nanoseconds that it took."""
    out = k.tensor("out", s64, (2,))
    start, now = k.var("start", 0, s64), k.var("now", 0, s64)
    began, ended = k.var("began", 0, s64), k.var("ended", 0, s64)
    k.time.read(start, "clock64")
    k.time.read(began, "globaltimer")
    k.assign(now, start)
    with k.while_(now - start < cycles):
        k.time.sleep(2000)
        k.time.read(now, "clock64")
    k.time.read(ended, "globaltimer")
    with k.if_(k.thread_id.eq(0)):
        k.mem.store(out[0], now - start)
        k.mem.store(out[1], ended - began)


# ---------------------------------------------------------------------- copies


@kernel(warps=1)
def copy_latency(k: Builder, *, rows: int = 64, boxes: int = 64) -> None:
    """One box of ``rows`` x 128 bytes after the other: cycles from issue to the end of the wait."""
    X = k.tensor("X", bf16, (boxes * rows, WIDTH))
    out = k.tensor("out", s64, (boxes,))
    x_map = k.tensor_map(X, (rows, WIDTH), swizzle=128)
    tile = k.shared("tile", bf16, (rows, WIDTH), swizzle=128)
    full = k.mbarriers("full")
    open_cta(k, (full, 1))
    with k.elected(), k.loop(boxes) as i:
        k.mbarrier.arrive_expect_tx(full, x_map.box_bytes)
        with timed(k) as (start, end):
            k.tma.load(x_map, tile, (i * rows, 0), full)
            k.mbarrier.wait(full, i & 1)
        k.mem.store(out[i], end - start)


@kernel(warps=1)
def store_latency(k: Builder, *, rows: int = 64, boxes: int = 64, read: bool = True) -> None:
    """The same for stores; ``read``: until their source may be written again."""
    X = k.tensor("X", bf16, (boxes * rows, WIDTH))
    out = k.tensor("out", s64, (boxes,))
    x_map = k.tensor_map(X, (rows, WIDTH), swizzle=128)
    tile = k.shared("tile", bf16, (rows, WIDTH), swizzle=128)
    with k.elected(), k.loop(boxes) as i:
        with timed(k) as (start, end):
            k.tma.store(x_map, tile, (i * rows, 0))
            k.bulk.commit_group()
            k.bulk.wait_group(0, read=read)
        k.mem.store(out[i], end - start)


@kernel(warps=2)
def stream(
    k: Builder, *, ctas: int = 132, rows: int = 128, boxes: int = 256, stages: int = 8,
    span: int = 1 << 18, together: int = 1, across: int = 0, threads: int = 64,
) -> None:  # fmt: skip
    """Every CTA loads ``boxes`` boxes, ``stages`` in flight, from its part of ``span`` rows.

    ``together`` CTAs load the same. With ``across`` it is as in a GEMM whose tiles are twice as
    wide as high: every third box is that of CTAs in the same one of so many rows of tiles, the
    others those of CTAs in the same column. ``out``: cycles.
    """
    k.launch(grid=ctas, warps=threads // 32)
    X = k.tensor("X", bf16, (span, WIDTH))
    out = k.tensor("out", s64, (ctas,))
    x_map = k.tensor_map(X, (rows, WIDTH), swizzle=128)
    tile = k.shared("tile", bf16, (stages, rows, WIDTH), swizzle=128)
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    open_cta(k, (full, 1), (empty, 1))
    start, end = k.var("start", 0, s64), k.var("end", 0, s64)
    k.time.read(start, "clock64")
    with k.role("producer", 1), k.elected(), k.loop(boxes) as i:
        k.mbarrier.wait(empty[i % stages], (i // stages & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[i % stages], x_map.box_bytes)
        place = i * (ctas // together) + k.cta_x // together
        if across:
            place = select(
                (i % 3).eq(0), i * 16 + k.cta_x % across, (i * 16 + 16384) + k.cta_x // across
            )
        k.tma.load(x_map, tile[i % stages], (place * rows % span, 0), full[i % stages])
    with k.role("consumer", 0):
        with k.elected(), k.loop(boxes) as i:
            k.mbarrier.wait(full[i % stages], i // stages & 1)
            k.mbarrier.arrive(empty[i % stages])
        k.time.read(end, "clock64")
        with k.elected():
            k.mem.store(out[k.cta_x], end - start)


# ---------------------------------------------------------------------- barriers


@kernel(warps=2)
def ping_pong(k: Builder, *, turns: int = 64) -> None:
    """Two warps hand an mbarrier to and fro: two hand-overs per turn."""
    out = k.tensor("out", s64, (1,))
    ping, pong = k.mbarriers("ping"), k.mbarriers("pong")
    open_cta(k, (ping, 1), (pong, 1))
    start, end = k.var("start", 0, s64), k.var("end", 0, s64)
    with k.role("first", 0), k.elected():
        k.time.read(start, "clock64")
        with k.loop(turns) as i:
            k.mbarrier.arrive(ping)
            k.mbarrier.wait(pong, i & 1)
        k.time.read(end, "clock64")
        k.mem.store(out[0], end - start)
    with k.role("second", 1), k.elected(), k.loop(turns) as i:
        k.mbarrier.wait(ping, i & 1)
        k.mbarrier.arrive(pong)


@kernel(warps=1)
def far_ping_pong(k: Builder, *, turns: int = 64) -> None:
    """The same between two CTAs of a cluster."""
    k.launch(grid=2, cluster=2)
    out = k.tensor("out", s64, (1,))
    ping, pong = k.mbarriers("ping"), k.mbarriers("pong")
    open_cluster(k, (ping, 1), (pong, 1))
    start, end = k.var("start", 0, s64), k.var("end", 0, s64)
    with k.if_(k.cluster_rank.eq(0)), k.elected():
        k.time.read(start, "clock64")
        with k.loop(turns) as i:
            k.mbarrier.arrive(ping[0].at(1), scope="cluster")
            k.mbarrier.wait(pong, i & 1, scope="cluster")
        k.time.read(end, "clock64")
        k.mem.store(out[0], end - start)
    with k.if_(k.cluster_rank.eq(1)), k.elected(), k.loop(turns) as i:
        k.mbarrier.wait(ping, i & 1, scope="cluster")
        k.mbarrier.arrive(pong[0].at(0), scope="cluster")
    k.cluster.sync()


@kernel(warps=4)
def barriers(k: Builder, *, turns: int = 64, warps: int = 4) -> None:
    """``barrier.sync`` of all ``warps``."""
    k.launch(warps=warps)
    out = k.tensor("out", s64, (1,))
    with timed(k) as (start, end), k.loop(turns):
        k.sync_threads()
    with k.if_(k.thread_id.eq(0)):
        k.mem.store(out[0], end - start)


@kernel(warps=4)
def cluster_barriers(k: Builder, *, turns: int = 64, ctas: int = 2) -> None:
    """``barrier.cluster`` arrive and wait."""
    k.launch(grid=ctas, cluster=ctas)
    out = k.tensor("out", s64, (ctas,))
    with timed(k) as (start, end), k.loop(turns):
        k.cluster.sync()
    with k.if_(k.thread_id.eq(0)):
        k.mem.store(out[k.cta_x], end - start)


@kernel(warps=1)
def waits(k: Builder, *, turns: int = 64, what: str = "wait") -> None:
    """What a warp needs to issue something that does not make it wait."""
    out = k.tensor("out", s64, (1,))
    bar = k.mbarriers("bar")
    open_cta(k, (bar, 1))
    with timed(k) as (start, end), k.loop(turns):
        if what == "wait":
            k.mbarrier.wait(bar, 1)
        elif what == "arrive":
            with k.elected():
                k.mbarrier.arrive(bar)
        elif what == "release":
            with k.elected():
                k.mbarrier.arrive(bar[0].at(0), scope="cluster")
        elif what == "relaxed":
            with k.elected():
                k.mbarrier.arrive(bar[0].at(0), sem="relaxed", scope="cluster")
        else:
            k.fence.proxy_async("shared::cta")
    with k.if_(k.thread_id.eq(0)):
        k.mem.store(out[0], end - start)


# ---------------------------------------------------------------------- arithmetic of tiles

Step = Callable[[Builder], None]
TILES = ("exp2", "fma", "zip", "zip row", "max", "sum", "part", "cast", "swizzled",
         "plain", "global", "load", "cast store")  # fmt: skip


@kernel(warps=4)
def tile(k: Builder, *, what: str = "exp2", turns: int = 16, groups: int = 1,
         columns: int = 64, ctas: int = 1) -> None:  # fmt: skip
    """``turns`` tile instructions on 64 x ``columns`` elements of a warpgroup."""
    k.launch(grid=ctas, warps=4 * groups)
    out = k.tensor("out", s64, (ctas,))
    far = 16 * ctas if ctas > 1 else 1
    sink = k.tensor("sink", f32, (far * groups, ROWS, columns))
    X = k.tensor("X", f32, (groups, ROWS, columns))
    x = k.fragment("x", f32, (ROWS, columns), "warpgroup")
    y = k.fragment("y", bf16, (ROWS, columns), "warpgroup")
    row = k.fragment("row", f32, (ROWS, 1), "warpgroup")
    part = k.fragment("part", f32, (ROWS, 8), "warpgroup")
    swizzled = k.shared("swizzled", bf16, (groups, ROWS, WIDTH), swizzle=128)
    plain = k.shared("plain", bf16, (groups, ROWS, columns))
    for group in range(groups):
        with k.warpgroup(group):
            k.tile.load(x, X[group])
            k.tile.reduce(row, "sum", x)
            k.tile.reduce(part, "sum", x)
            k.tile.cast(y, x)
            k.bar.sync(0)
            start, end = k.var(f"start{group}", 0, s64), k.var(f"end{group}", 0, s64)
            k.time.read(start, "clock64")
            with k.loop(turns) as i:
                match what:
                    case "exp2":
                        k.tile.map(x, "exp2", x)
                    case "fma":
                        k.tile.fma(x, x, 0.5, row)
                    case "zip":
                        k.tile.zip(x, "mul", x, 0.5)
                    case "zip row":
                        k.tile.zip(x, "mul", x, row)
                    case "max" | "sum":
                        k.tile.reduce(row, "max" if what == "max" else "sum", x)
                        k.tile.zip(x, "mul", x, row)
                    case "part":
                        k.tile.reduce(part, "sum", x)
                        k.tile.zip(x, "mul", x, 0.5)
                    case "cast":
                        k.tile.cast(y, x)
                        k.tile.cast(x, y)
                    case "swizzled":
                        k.tile.store(swizzled[group], y, column=0)
                    case "plain":
                        k.tile.store(plain[group], y)
                    case "global":
                        place = (i % 16 * ctas + k.cta_x) * groups if ctas > 1 else 0
                        k.tile.store(sink[place + group], x)
                    case "cast store":
                        k.tile.cast(y, x)
                        k.tile.store(swizzled[group], y, column=0)
                    case _:
                        k.tile.load(x, X[group])
                k.bar.sync(1 + group, 128)
            k.bar.sync(0)
            k.time.read(end, "clock64")
            k.tile.zip(x, "add", x, row)
            k.tile.store(sink[group], x)
            if group == 0:
                with k.if_(k.thread_id.eq(0)):
                    k.mem.store(out[k.cta_x], end - start)


# ---------------------------------------------------------------------- launches


@kernel(warps=1)
def waves(k: Builder, *, ctas: int = 132, turns: int = 0, smem: int = 200 * 1024) -> None:
    """CTAs one at a time per SM: per CTA the nanoseconds at which it starts and ends."""
    k.launch(grid=ctas, smem_bytes=smem)
    out = k.tensor("out", s64, (ctas, 2))
    start, end = k.var("start", 0, s64), k.var("end", 0, s64)
    now, until = k.var("now", 0, s64), k.var("until", 0, s64)
    k.time.read(start, "globaltimer")
    k.time.read(now, "clock64")
    k.assign(until, now + turns)
    with k.while_(now < until):
        k.time.read(now, "clock64")
    k.time.read(end, "globaltimer")
    with k.if_(k.thread_id.eq(0)):
        k.mem.store(out[k.cta_x, 0], start)
        k.mem.store(out[k.cta_x, 1], end)


@kernel(warps=1)
def nothing(k: Builder, *, ctas: int = 132) -> None:
    """A launch."""
    k.launch(grid=ctas)
    out = k.tensor("out", s64, (1,))
    with k.if_(k.thread_id.eq(0) & k.cta_x.eq(0)):
        k.mem.store(out[0], 0)
