"""Kernels that together contain every SM90 instruction, most of them in several forms.

They are compiled, not run: what they do does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import get_args, get_type_hints

from tilesim import (
    Builder,
    Program,
    address_of,
    all_of,
    bf16,
    e4m3,
    e5m2,
    f16,
    f32,
    f64,
    maximum,
    mbar_at,
    minimum,
    pred,
    s8,
    s16,
    s32,
    s64,
    select,
    tf32,
    u8,
    u16,
    u32,
    u64,
    view_at,
)
from tilesim.ir.declarations import ds
from tilesim.ir.ops import mma_sync
from tilesim.ir.ops.bulk import ReduceOp
from tilesim.ir.ops.matrix import LdmatrixBytes
from tilesim.ir.ops.mma_sync import Narrow, Order
from tilesim.ir.ops.scalar import AtomicOp
from tilesim.ir.ops.tcgen05_mma import Kind
from tilesim.ir.ops.tile import MapOp
from tilesim.ir.ops.warp import VoteSync

PROGRAMS: dict[str, Program] = {}


def program(
    *, target: str = "sm_90a", warps: int = 4
) -> Callable[[Callable[[Builder], None]], Callable[[Builder], None]]:
    """Decorator: adds the program that a function of a builder makes."""

    def add(function: Callable[[Builder], None]) -> Callable[[Builder], None]:
        builder = Builder(function.__name__, target, warps)
        function(builder)
        PROGRAMS[function.__name__] = builder.finish()
        return function

    return add


@program()
def mbarriers(k: Builder) -> None:
    b, token, done = k.mbarriers("b", 4), k.var("token"), k.var("done", 0)
    index = k.var("index", 1)
    with k.one_thread():
        for i in range(4):
            k.mbarrier.init(b[i], 32)
    k.fence.mbarrier_init()
    k.sync_threads()
    k.mbarrier.arrive(b[index], token=token)
    k.mbarrier.arrive(b[0], 2)
    k.mbarrier.arrive(b[1], 2, sem="relaxed", scope="cluster")
    k.mbarrier.arrive(b[1], 1, no_complete=True)
    k.mbarrier.arrive(b[1], 1, no_complete=True, token=token)
    k.mbarrier.pending_count(done, token)
    k.mbarrier.arrive_expect_tx(b[2], 16, token=token)
    k.mbarrier.arrive_expect_tx(b[2], index * 16)
    k.mbarrier.arrive_drop(b[3])
    k.mbarrier.arrive_drop(b[3], 2, token=token)
    k.mbarrier.arrive_drop(b[3], bytes=16)
    k.mbarrier.expect_tx(b[0], 32)
    k.mbarrier.complete_tx(b[0], 32)
    k.mbarrier.wait(b[0], index & 1)
    k.mbarrier.wait(b[1], token=token)
    k.mbarrier.wait(b[0], 0, sem="relaxed", scope="cluster")
    k.mbarrier.test_wait(done, b[0], 1)
    k.mbarrier.test_wait(done, b[0], token=token)
    with k.while_(done.eq(0)):
        k.mbarrier.try_wait(done, b[0], 1, time_hint=1000)
    k.mbarrier.try_wait(done, b[0], token=token)
    with k.one_thread():
        for i in range(4):
            k.mbarrier.inval(b[i])


@program()
def copies(k: Builder) -> None:
    k.launch(grid=4, cluster=2)
    X, Y = k.tensor("X", f32, (4, 64, 64)), k.tensor("Y", f32, (4, 64, 64))
    x_map = k.tensor_map(X, (1, 32, 32), swizzle=128, fill="nan")
    y_map = k.tensor_map(Y, (1, 32, 32), swizzle=128)
    tile = k.shared("tile", f32, (2, 32, 32), swizzle=128)
    line = k.shared("line", f32, (2, 64))
    b = k.mbarriers("b", 2)
    i = k.var("i", 1)
    with k.one_thread():
        k.tma.prefetch(x_map, (0, 0, 0))
        k.tma.load(x_map, tile[i], (k.cta_x, 0, 32), b[i])
        k.tma.load(x_map, tile[0], (k.cta_x, 0, 0), b[0], multicast=3)
        k.tma.store(y_map, tile[i], (0, 32, i * 32))
        k.tma.reduce(y_map, tile[0], (0, 32, 32), "add")
        k.bulk.prefetch(X[0, 0])
        k.bulk.load(line[0], X[0, 0], b[0])
        k.bulk.load_ignoring(line[0], X[0, 0], b[0], left=4)
        k.bulk.load_ignoring(line[0], X[0, 0], b[0], k.warp_id, k.cluster_rank + 1)
        k.bulk.load(line[i], X[i, 3], b[0], multicast=1 << k.cluster_rank)
        k.bulk.store(Y[0, 0], line[0])
        k.bulk.reduce(Y[0, 1], line[1], "add")
        k.bulk.copy(line[0].at(1), line[1], b[0].at(1))
        k.bulk.commit_group()
        k.bulk.wait_group(1, read=True)
        k.bulk.wait_group(0)


@program(warps=1)
def tensor_maps(k: Builder) -> None:
    """Tensor maps that are made on the device."""
    k.launch(grid=2)
    g, maps = k.tensor("g", bf16, (2, 64, 64)), k.tensor("maps", u64, (2, 16))
    map_ = k.tensor_map(g, (1, 64, 64), swizzle=128)
    tile, full = k.shared("tile", bf16, (64, 64), swizzle=128), k.mbarriers("full")
    staged, size = k.shared("staged", u64, (16,)), k.var("size", 64)
    own = maps[k.cta_x]
    with k.role("warp 0", 0):
        with k.elected():
            k.mbarrier.init(full, 1)
            k.fence.proxy_async()
            k.tensormap.copy(staged, map_)
            k.tensormap.copy(own, map_)
            k.tensormap.replace(own, "global_address", g[k.cta_x])
            k.tensormap.replace(staged, "global_address", g[k.cta_x])
            k.tensormap.replace(staged, "rank", 2)
            k.tensormap.replace(staged, "global_dim", size, 1)
            k.tensormap.replace(staged, "global_stride", 2 * size, 0)
            k.tensormap.replace(staged, "box_dim", 64, 1)
            k.tensormap.replace(staged, "element_stride", 1, 2)
            k.tensormap.replace(staged, "elemtype", 10)
            k.tensormap.replace(staged, "interleave_layout", 0)
            k.tensormap.replace(staged, "swizzle_mode", 3)
            k.tensormap.replace(staged, "fill_mode", 1)
            k.fence.proxy_tensormap_release("gpu")
        k.tensormap.cp_fenceproxy(own, staged, "gpu")
        k.fence.proxy_tensormap_acquire(own, "gpu")
        with k.elected():
            k.mbarrier.arrive_expect_tx(full, 8192)
            k.tma.load(map_, tile, (0, 0, 0), full, at=own)
            k.mbarrier.wait(full, 0)
            k.tma.store(map_, tile, (0, 0, 0), at=own)
            k.tma.reduce(map_, tile, (0, 0, 0), at=own)
            k.bulk.commit_group()
            k.bulk.wait_group(0)


@program(warps=1)
def pixels(k: Builder) -> None:
    """Tensor copies along pixel boxes of Hopper."""
    g = k.tensor("g", bf16, (2, 3, 4, 64))
    box = k.tensor_map(g, (8, 64), lower=(-1, -1), upper=(-1, -1), swizzle=128)
    inside = k.tensor_map(g, (8, 64), lower=(0, 0), upper=(0, 0), swizzle=128, name="inside")
    tile, full = k.shared("tile", bf16, (8, 64), swizzle=128), k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.fence.proxy_async()
        k.tma.prefetch(box, (0, -1, -1, 0), mode="im2col", info=(0, 1))
        k.mbarrier.arrive_expect_tx(full, 1024)
        k.tma.load(box, tile, (0, -1, -1, 0), full, mode="im2col", info=(1, 2))
        k.mbarrier.wait(full, 0)
        k.tma.store(inside, tile, (0, 0, 1, 0), mode="im2col_no_offs")
        k.tma.reduce(inside, tile, (0, 0, 1, 0), mode="im2col_no_offs")
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@program(target="sm_100a", warps=1)
def scattered(k: Builder) -> None:
    """Tensor copies of rows and along rows of images, which Blackwell has."""
    m, g = k.tensor("m", bf16, (64, 64)), k.tensor("g", bf16, (2, 3, 4, 64))
    rows = k.tensor_map(m, (1, 64), swizzle=128)
    row = k.tensor_map(g, (8, 64), lower=(-1,), upper=(0,), wide="w", swizzle=128)
    long = k.tensor_map(
        g, (128, 64), lower=(-1,), upper=(0,), wide="w::128", swizzle=128, name="long"
    )
    four, full = k.shared("four", bf16, (4, 64), swizzle=128), k.mbarriers("full")
    tile = k.shared("tile", bf16, (10, 64), swizzle=128)
    wide = k.shared("wide", bf16, (132, 64), swizzle=128)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.fence.proxy_async()
        k.tma.prefetch(rows, (7, 1, 5, 3, 0), mode="tile::gather4")
        k.mbarrier.arrive_expect_tx(full, 512 + 1280 + 132 * 128)
        k.tma.load(rows, four, (7, 1, 5, 3, 0), full, mode="tile::gather4")
        k.tma.load(row, tile, (0, 1, -1, 0), full, mode="im2col::w", info=(2, 1))
        k.tma.load(long, wide, (0, 1, -1, 0), full, mode="im2col::w::128", info=(1, 0))
        k.mbarrier.wait(full, 0)
        k.tma.store(rows, four, (3, 5, 1, 7, 0), mode="tile::scatter4")
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@program(warps=2)
def peers(k: Builder) -> None:
    k.launch(grid=(4, 2), cluster=(2, 2))
    words, wide = k.shared("words", u32, (64,)), k.shared("wide", f64, (64,))
    floats, value = k.shared("floats", f32, (64,)), k.var("value", dtype=f32)
    b, peer = k.mbarriers("b"), k.var("peer", k.cluster_rank ^ 1)
    fragment = k.fragment("fragment", f32, (1, 64))
    k.cluster.arrive()
    k.cluster.wait()
    k.cluster.arrive(sem="relaxed", aligned=False)
    k.cluster.wait(aligned=False)
    at = k.lane_id + k.cluster_id + k.cluster_size
    k.mem.store(floats[at].at(peer), 1.0)
    k.mem.load(value, floats[at].at(peer))
    k.tile.load(fragment, floats.view().at(peer))
    k.cluster.st_async(words[at].at(peer), 7, b[0].at(peer))
    k.cluster.st_async(wide[at].at(peer), 7.5, b[0].at(peer))
    k.cluster.st_async(floats[at].at(peer), value, b[0].at(peer))
    for op in ("inc", "dec", "add", "min", "max", "and", "or", "xor"):
        k.cluster.red_async(words[at].at(peer), op, 3, b[0].at(peer))
    k.mbarrier.arrive(b[0].at(peer), scope="cluster")
    k.mbarrier.arrive_expect_tx(b[0].at(peer), 16, scope="cluster")
    k.mbarrier.expect_tx(b[0].at(peer), 16)
    k.mbarrier.complete_tx(b[0].at(peer), 16, scope="cluster")
    with k.elected():
        k.bulk.reduce_peer(words[0:32].at(peer), words[32:64], b[0].at(peer), "add")
        k.bulk.reduce_peer(words[0:32].at(peer), words[32:64], b[0].at(peer), "xor")
    k.fence.proxy_async_generic("release")
    k.fence.proxy_async_generic("acquire")
    k.griddep.wait()
    k.griddep.launch_dependents()


@program()
def chunks(k: Builder) -> None:
    X = k.tensor("X", bf16, (4, 32, 64))
    tile = k.shared("tile", bf16, (2, 32, 64), swizzle=128)
    padded = k.shared("padded", bf16, (32, 64), pitch=144)
    b, i = k.mbarriers("b"), k.var("i", 0)
    k.cp_async.copy(tile[i], X[k.cta_x])
    k.cp_async.copy(padded, X[1], size=8)
    k.cp_async.copy(padded[0:16], X[1, 0:16], size=4, src_bytes=512)
    with k.elected():
        k.cp_async.copy(tile[0, 0], X[1, 0])
    with k.if_(k.lane_id < 7):
        k.cp_async.copy(tile[0, 1], X[1, 0])
    k.cp_async.commit_group()
    k.cp_async.wait_group(1)
    k.cp_async.wait_all()
    k.cp_async.mbarrier_arrive(b)
    k.cp_async.mbarrier_arrive(b, noinc=True)


@program(warps=8)
def barriers(k: Builder) -> None:
    k.launch(registers=168)
    out, vote = k.tensor("out", s32, (256,)), k.var("vote")
    with k.role("low", range(4)):
        k.setmaxnreg("dec", 40)
        k.bar.sync(1, 256)
        k.bar.arrive(2, 256)
    with k.role("high", range(4, 8)):
        k.setmaxnreg("inc", 200)
        k.bar.sync(1, 256, aligned=False)
        k.bar.sync(2, 256)
    k.sync_threads()
    k.bar.red(vote, 3, k.thread_id < 3, op="popc")
    k.bar.red(vote, 4 + (vote & 1), vote > 1, op="and", threads=256)
    k.bar.red(vote, 4, vote > 1, op="or", aligned=False)
    k.sync_warp()
    chosen = k.elect(mask=0xFFFFFFFF)
    with k.if_(chosen):
        k.mem.store(out[k.thread_id], vote)
    with k.role("odd", (1, 3, 6)):
        for space in ("global", "shared::cta", "shared::cluster"):
            k.fence.proxy_async(space)
        k.fence.proxy_async()
        for scope in ("cta", "cluster", "gpu", "sys"):
            k.fence.memory("acq_rel", scope)
        for sem in ("sc", "acquire", "release"):
            k.fence.memory(sem)
        k.fence.sync_restrict("release")
        k.fence.sync_restrict("acquire")
        k.exit()


@program(warps=1)
def scalars(k: Builder) -> None:
    n = k.scalar("n", 7)
    x, i, j = k.var("x", dtype=f32), k.var("i", 3), k.var("j", 5, dtype=u32)
    wide, real = k.var("wide", dtype=u64), k.var("real", dtype=f64)
    at = k.lane_id
    for dtype in (u8, s8, u16, s16, u32, s32, u64, s64, f16, bf16, f32, tf32, f64, e4m3, e5m2):
        memory = k.shared(f"memory_{dtype}", dtype, (32,))
        tensor = k.tensor(f"T_{dtype}", dtype, (32,))
        v = k.var(f"v_{dtype}", dtype=dtype)
        k.mem.load(v, memory[at])
        k.mem.store(tensor[at], v)
    words, counts = k.shared("words", s32, (32,)), k.tensor("counts", u64, (32,))
    k.mem.load(i, words[at], sem="acquire", scope="cta")
    k.mem.store(words[at], i, sem="release", scope="cluster")
    for op in ("add", "min", "max", "and", "or", "xor", "exch"):
        k.mem.atomic(words[at], op, 1, result=i, sem="acq_rel", scope="cta")
        k.mem.atomic(counts[at], op, 1, sem="release")
    k.mem.atomic(words[at], "cas", 1, compare=0, result=i, sem="acquire")
    tickets = k.tensor("tickets", u32, (32,))
    for wraps in get_args(AtomicOp)[1:3]:
        k.mem.atomic(tickets[at], wraps, 7, result=j, sem="acq_rel")
        k.mem.atomic(tickets[at], wraps, j)
    floats = k.tensor("floats", f32, (32,))
    k.mem.atomic(floats[at], "add", 1.5, result=x)
    k.mem.atomic(floats[at], "exch", 1.5, result=x)
    halves = k.tensor("halves", f16, (32,))
    k.mem.atomic(halves[at], "add", 1.0)
    for mode in ("idx", "up", "down", "bfly"):
        k.mem.shuffle(i, i + 1, 1, mode)
    k.mem.shuffle(x, x, i)
    k.mem.shuffle(x, x, i, mask=0xFFFFFFFF)
    a = select(i < n, i // 3, i % n) + minimum(i, 4) * maximum(n, 2) - (i >> 1) + (i << 2)
    k.assign(i, (a // 4) % 8 + (i & 7) ^ (i | 1))
    k.assign(j, j - 1)
    k.assign(wide, j + i)
    k.assign(real, x * 0.5)
    with k.loop(10, 0, -2) as counter:
        with k.if_(all_of(counter > 2, i.ne(3))):
            k.assign(i, -counter)
        with k.else_():
            k.break_()
    with k.loop(i, n, 1 + (i & 1)) as counter:
        k.assign(i, ~counter)


@program()
def votes(k: Builder) -> None:
    x, holds, seen = k.var("x", 0), k.var("holds", 0, pred), k.var("seen", 0, u32)
    for mode in get_args(get_type_hints(VoteSync)["mode"]):
        k.warp.vote(holds, k.lane_id < 3, mode)
    k.warp.ballot(seen, holds, mask=seen)
    k.warp.match_any(seen, x, mask=0xFF)
    k.warp.match_all(seen, holds, x + 1)
    k.warp.match_any(seen, x, kind="b64")
    k.warp.match_all(seen, holds, k.var("long", 0, s64), kind="b64")
    k.warp.redux(x, "add", k.lane_id)
    k.warp.redux(seen, "max", seen, kind="u32")
    k.warp.redux(seen, "xor", 7, kind="b32")
    k.warp.activemask(seen)


@program()
def several_devices(k: Builder) -> None:
    at, word, long = k.lane_id, k.var("word", 0, u32), k.var("long", 0, u64)
    real, x = k.var("real", 0.0, f64), [k.var(f"x{i}", 0.0, f32) for i in range(4)]
    packed = [k.var(f"p{i}", 0, u32) for i in range(4)]
    words, longs = (k.tensor(f"T_{t}", t, (32,), devices=8) for t in (u32, u64))
    reals, floats = k.tensor("reals", f64, (32,), devices=8), k.tensor("X", f32, (32, 4), devices=8)
    for op in ("add", "min", "max", "and", "or", "xor"):
        k.multimem.ld_reduce((word,), op, words[at], sem="relaxed", scope="gpu")
        k.multimem.red(words[at], op, (word,), sem="release", scope="cluster")
        k.multimem.ld_reduce((long,), op, longs[at])
        k.multimem.red(longs[at], op, (long,))
    k.multimem.ld_reduce((real,), "add", reals[at], sem="acquire")
    k.multimem.red(reals[at], "add", (real,))
    k.multimem.store(reals[at], (real,), sem="release")
    k.multimem.store(words[at], (word,), sem="relaxed", scope="cta")
    k.multimem.store(longs[at], (long,))
    for count in (1, 2, 4):
        k.multimem.ld_reduce(x[:count], "add", floats[at, 0:count])
        k.multimem.red(floats[at, 0:count], "add", x[:count])
        k.multimem.store(floats[at, 0:count], x[:count])
        for kind in (f16, bf16):
            some = k.tensor(f"{kind}_{count}", kind, (32, 2 * count), devices=8)
            k.multimem.ld_reduce(packed[:count], "max", some[at])
            k.multimem.ld_reduce(packed[:count], "add", some[at], acc="f32")
            k.multimem.red(some[at], "add", packed[:count])
            k.multimem.store(some[at], packed[:count])
    with k.elected():
        for op in get_args(ReduceOp):
            k.multimem.reduce(words, k.shared(f"by_{op}", u32, (32,)), op)
        for kind in (u64, s64, f16, bf16, f32, f64):
            there = k.tensor(f"sum_{kind}", kind, (32,), devices=8)
            k.multimem.reduce(there, k.shared(f"s_{kind}", kind, (32,)), "add")
            k.multimem.copy(there, k.shared(f"c_{kind}", kind, (32,)))
        k.bulk.commit_group()


@program(target="sm_100a", warps=1)
def operations_of_their_own(k: Builder) -> None:
    for dtype in (u8, u16, s16, f16, u32, s32, f32, u64, s64, f64):
        words = k.tensor(f"words_{dtype}", dtype, (32,))
        k.mem.store_async(words[k.lane_id], 7)
        k.mem.store_async(words[k.lane_id], 7, scope="sys")
    for dtype in (u32, s32, u64, s64):
        sums = k.tensor(f"sums_{dtype}", dtype, (32,))
        k.mem.reduce_async(sums[k.lane_id], 7)
        k.mem.reduce_async(sums[k.lane_id], 7, scope="sys")


@program(target="sm_100a")
def several_devices_bytes(k: Builder) -> None:
    packed = [k.var(f"p{i}", 0, u32) for i in range(4)]
    for kind in (e4m3, e5m2):
        some = k.tensor(f"T_{kind}", kind, (32, 16), devices=4)
        k.multimem.ld_reduce(packed, "add", some[k.lane_id], acc="f16")
        k.multimem.ld_reduce(packed[:2], "min", some[k.lane_id, 0:8])
    with k.elected():
        k.multimem.copy(some, k.shared("s", e5m2, (32, 16)), mask=0x0F0F)


@program(target="sm_100a")
def matrices_of_bytes(k: Builder) -> None:
    rows, r = k.shared("rows", u8, (32, 16)), [k.var(f"r{i}", 0, u32) for i in range(4)]
    row = rows[k.lane_id]
    for source in get_args(get_type_hints(LdmatrixBytes)["source"]):
        for count in (2, 4):
            k.matrix.load_bytes(r[:count], row, source=source)
        for count in (1, 2, 4) if source != "b8" else ():
            k.matrix.load_bytes(r[:count], row, "m8n16", source=source)
    for count in (1, 2, 4):
        k.matrix.store_bytes(row, r[:count])


@program(target="sm_100a")
def masked_bytes(k: Builder) -> None:
    s, g, mask = k.shared("s", u8, (64,)), k.tensor("g", u8, (64,)), k.var("mask", 0xFF)
    with k.one_thread():
        k.bulk.store(g, s, mask=mask)
        k.bulk.store(g, s, mask=0xF0F0)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@program(target="sm_100a")
def packed_elements(k: Builder) -> None:
    bar = k.mbarriers("bar")
    tile = k.shared("tile", u8, (8, 128), swizzle=128, align=1024)
    fours, sixes = k.tensor("fours", u8, (8, 64)), k.tensor("sixes", u8, (8, 96))
    padded = k.tensor_map(fours, (8, 128), packing="b4x16_p64", swizzle=128, name="padded")
    image, maps, made = (
        k.tensor(name, u8, shape)
        for name, shape in (("image", (2, 4, 4, 64)), ("maps", (128,)), ("made", (128,)))
    )
    columns = k.tensor_map(
        image, (8, 128), lower=(0, 0), upper=(-1, -1), packing="b4x16_p64", swizzle=128,
        name="columns",
    )  # fmt: skip
    spread = k.tensor_map(sixes, (8, 128), packing="b6x16_p32", swizzle=128, name="spread")
    bytewise = k.tensor_map(sixes, (8, 128), packing="b6p2x16", swizzle=128, name="bytewise")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
        k.tma.load(padded, tile, (0, 0), bar)
        k.tma.load(spread, tile, (0, 0), bar)
        k.tma.store(bytewise, tile, (0, 0))
        k.tensormap.copy(maps, columns)
        k.fence.proxy_tensormap_release("gpu")
        k.fence.proxy_tensormap_acquire(maps, "gpu")
        k.tma.load(columns, tile, (0, 0, 0, 0), bar, mode="im2col", info=(0, 0), at=maps)
        k.tensormap.replace(made, "elemtype", 14)


@program(target="sm_100a")
def wide_registers(k: Builder) -> None:
    f, lowest = [k.var(f"f{i}", 0.0, f32) for i in range(8)], k.var("lowest", 0.0, f32)
    d, x = [k.var(f"d{i}", 0, u64) for i in range(4)], [k.var(f"x{i}", 0, u32) for i in range(8)]
    floats, longs = k.tensor("floats", f32, (32, 8)), k.tensor("longs", u64, (32, 4))
    halves = k.tensor("halves", bf16, (32, 16))
    k.mem.load_vector(f, floats[k.lane_id])
    k.mem.load_vector(d, longs[k.lane_id])
    k.mem.load_vector(x, halves[k.lane_id])
    k.mem.store_vector(floats[k.lane_id], f)
    k.mem.store_vector(longs[k.lane_id], d)
    k.mem.store_vector(halves[k.lane_id], x)
    k.warp.redux(lowest, "min", f[0], kind="f32", abs=True, nan=True)
    k.warp.redux(lowest, "max", lowest, kind="f32")


@program()
def vectors(k: Builder) -> None:
    words, halves = k.tensor("words", s32, (32, 4)), k.shared("halves", f16, (32, 8))
    wide, x = k.shared("wide", f64, (32, 2)), [k.var(f"x{i}", 0, u32) for i in range(4)]
    lines = k.tensor("lines", s32, (32, 32))
    doubles = [k.var(f"y{i}", 0, f64) for i in range(2)]
    k.mem.load_vector(x, words[k.lane_id])
    k.mem.load_vector(x[:2], halves[k.lane_id, 0:4])
    k.mem.load_vector(doubles, wide[k.lane_id])
    k.mem.store_vector(wide[k.lane_id], doubles)
    k.mem.load_vector(x, words[k.lane_id], sem="relaxed", scope="gpu")
    k.mem.load_vector(doubles, wide[k.lane_id], sem="relaxed", scope="cluster")
    k.mem.store_vector(words[k.lane_id], x, sem="relaxed", scope="sys")
    k.mem.store_vector(wide[k.lane_id], doubles, sem="relaxed")
    k.mem.load_vector(doubles, wide[k.lane_id], sem="acquire", scope="cluster")
    k.mem.store_vector(words[k.lane_id], x, sem="release", scope="gpu")
    k.mem.store_vector(halves[k.lane_id], x)
    k.mem.prefetch(words[k.lane_id, 0], "L1")
    k.mem.discard(lines[k.lane_id, 0:32])
    k.fence.proxy_alias()
    k.time.sleep(k.lane_id)
    k.time.read(k.var("short", 0, s32), "clock")
    k.time.read(k.var("long", 0, s64))
    k.time.read(k.var("wall", 0, u64), "globaltimer")


@program()
def addresses(k: Builder) -> None:
    w, out = k.shared("w", f32, (8, 32), swizzle=128), k.tensor("out", f32, (64,))
    p, g, x = k.var("p", address_of(w[2, 1]), u32), k.var("g", 0, u64), k.var("x", 0.0, f32)
    holds = k.var("holds", 0, pred)
    k.mem.mapa(p, p, 0)
    k.mem.getctarank(k.var("rank", 0, u32), p)
    k.mem.cvta(g, p, "shared")
    k.mem.mapa_generic(g, g, k.cluster_rank)
    for space in ("shared::cta", "shared::cluster", "global"):
        k.mem.isspacep(holds, g, space)
    k.mem.cvta_to(p, g, "shared")
    k.mem.load(x, view_at(g, f32, space="generic"))
    k.mem.store(view_at(p + 4 * k.lane_id, f32, space="shared::cluster"), x)
    k.mem.store(view_at(address_of(out) + 8, f32, (2, 8), space="global")[1, k.lane_id % 8], x)
    k.mem.atomic(view_at(address_of(out), u32, space="global"), "add", 1)
    k.mbarrier.init(mbar_at(p), 1)
    k.mbarrier.arrive(mbar_at(p, space="shared::cluster"), scope="cluster")
    box = view_at(p, f32, (8, 32), swizzle=128)
    tile = k.tensor_map(k.tensor("source", f32, (64, 64)), (8, 32), swizzle=128)
    k.tma.load(tile, box, (0, 0), mbar_at(p))
    k.bulk.store(view_at(address_of(out), f32, (64,), space="global"), view_at(p, f32, (64,)))
    k.assign(g, address_of(out))
    k.mem.cvta(g, g, "global")


@program()
def matrices(k: Builder) -> None:
    rows, r = k.shared("rows", bf16, (32, 8)), [k.var(f"r{i}", 0, u32) for i in range(4)]
    for count in (1, 2, 4):
        k.matrix.load(r[:count], rows[k.lane_id], trans=count == 2)
        k.matrix.store(rows[k.lane_id], r[:count], trans=count == 1)


@program()
def warp_products(k: Builder) -> None:
    r, w = ([k.var(f"{n}{i}", 0, t) for i in range(8)] for n, t in (("r", u32), ("w", f64)))
    floats, sums = [k.var(f"f{i}", 0.0, f32) for i in range(4)], [k.var(f"i{i}") for i in range(4)]
    for kind in ("f16", "bf16", "tf32", "e4m3", "e5m2"):
        for a in (2, 4):
            k.matrix.mma(floats, r[:a], r[: a // 2], floats, kind)
            if kind not in ("bf16", "tf32"):
                k.matrix.mma(r[:2], r[:a], r[: a // 2], r[:2], kind, half=True)
    k.matrix.mma(floats, r[:4], r[:2], floats, "e4m3", kind_b="e5m2")
    octets: tuple[mma_sync.Kind, ...] = ("s8", "u8")
    for kind, kind_b in product(octets, repeat=2):
        for a in (1, 2, 4):
            d = sums[: 2 if a == 1 else 4]
            k.matrix.mma(d, r[:a], r[: (a + 1) // 2], d, kind, kind_b=kind_b, satfinite=a > 1)
    for a in (1, 2, 4):
        d, b = sums[: 2 if a == 1 else 4], r[: (a + 1) // 2]
        k.matrix.mma(d, r[:a], b, d, "s4", kind_b="u4", satfinite=a == 1)
        k.matrix.mma(d, r[:a], b, d, "b1", bits="and")
        k.matrix.mma(d, r[:a], b, d, "b1", bits="xor")
    for a in (1, 2, 4, 8):
        d = w[: 2 if a == 1 else 4]
        k.matrix.mma(d, w[:a], w[: (a + 1) // 2], d, "f64")


@program()
def group_products(k: Builder) -> None:
    r, floats = (
        [k.var(f"r{i}", 0, u32) for i in range(4)],
        [k.var(f"f{i}", 0.0, f32) for i in range(8)],
    )
    for order_a, order_b in product(get_args(Order), repeat=2):
        k.matrix.mma_groups(floats, r[:2], r[2:], floats, order_a=order_a, order_b=order_b)
        k.matrix.mma_groups(floats, r[:2], r[2:], r, order_a=order_a, order_b=order_b)
        k.matrix.mma_groups(r, r[:2], r[2:], r, order_a=order_a, order_b=order_b)


@program(target="sm_120a")
def scaled_warp_products(k: Builder) -> None:
    r, d = [k.var(f"r{i}", 0, u32) for i in range(5)], [k.var(f"f{i}", 0.0, f32) for i in range(4)]
    a, b, s = r[:4], r[:2], r[4]
    for kind, kind_b in product(get_args(Narrow), repeat=2):
        k.matrix.mma_scaled(d, a, b, d, s, s, kind=kind, kind_b=kind_b, at_a=(3, 1), at_b=(1, 3))
    k.matrix.mma_scaled(d, a, b, d, s, s, "mxf4", vectors=2, at_a=(2, 0), at_b=(0, 2))
    k.matrix.mma_scaled(d, a, b, d, s, s, "mxf4nvf4", vectors=2)
    k.matrix.mma_scaled(d, a, b, d, s, s, "mxf4nvf4", vectors=4, scale="ue4m3")


@program(target="sm_120a")
def narrow_warp_products(k: Builder) -> None:
    r, floats = (
        [k.var(f"r{i}", 0, u32) for i in range(4)],
        [k.var(f"f{i}", 0.0, f32) for i in range(4)],
    )
    for kind in ("e3m2", "e2m3", "e2m1"):
        k.matrix.mma(floats, r, r[:2], floats, kind)
        k.matrix.mma(r[:2], r, r[:2], r[:2], kind, kind_b="e4m3", half=True)


@program()
def tiles(k: Builder) -> None:
    s = k.shared("s", f32, (64, 40))
    for kind in (f32, bf16, f16, e4m3, s8, s32, f64):
        T = k.tensor(f"T_{kind}", kind, (8, 48))
        x, y = k.fragment(f"x_{kind}", kind, (8, 48)), k.fragment(f"y_{kind}", kind, (8, 48))
        column = k.fragment(f"column_{kind}", kind, (8, 1))
        row = k.fragment(f"row_{kind}", kind, (1, 48))
        k.tile.load(x, T)
        k.tile.load(row, T[3])
        for reduction in ("sum", "max", "min"):
            k.tile.reduce(column, reduction, x)
        for op in ("add", "sub", "mul", "div", "min", "max"):
            k.tile.zip(y, op, x, column)
        k.tile.zip(y, "add", y, row)
        k.tile.zip(y, "mul", x, 2)
        for function in get_args(MapOp):
            k.tile.map(y, function, x)
        k.tile.store(T, y)
        k.tile.store(T[:, 0:1], column)
    acc = k.fragment("acc", f32, (64, 40), "warpgroup")
    half = k.fragment("half", bf16, (64, 40), "warpgroup")
    total = k.fragment("total", f32, (64, 1), "warpgroup")
    narrow = k.fragment("narrow", f32, (1, 40))
    own, short = (k.fragment(n, t, (1, 40), "warpgroup") for n, t in (("own", f32), ("short", f16)))
    tall = k.fragment("tall", f32, (128, 16), "warpgroup")
    k.tile.fill(acc, 0)
    k.tile.fill(narrow, 1.0)
    part = k.fragment("part", f16, (1, 16), "warpgroup")
    k.tile.load(part, k.tensor("V", f16, (17,))[1:17])
    k.tile.load(acc, s)
    k.tile.reduce(total, "max", acc)
    k.tile.zip(acc, "sub", acc, total)
    k.tile.zip(acc, "mul", acc, narrow)
    k.tile.fma(acc, acc, 0.5, total)
    k.tile.fma(acc, acc, narrow, acc)
    k.tile.load(own, s[0:1, :])
    k.tile.zip(own, "add", own, narrow)
    k.tile.map(own, "rcp", own)
    k.tile.tril(own, own, 7, 0)
    k.tile.cast(short, own)
    k.tile.zip(acc, "mul", acc, own)
    k.tile.fma(acc, acc, own, total)
    k.tile.tril(acc, acc, -1, -1.0e30)
    k.tile.left(acc, acc, 33, -1.0e30)
    eighth = k.fragment("eighth", f32, (64, 8), "warpgroup")
    k.tile.reduce(eighth, "sum", acc)
    k.tile.reduce(total, "sum", eighth)
    k.tile.cast(half, acc)
    H = k.tensor("H", bf16, (64, 41))
    k.tile.store(H[:, 1:41], half)
    T = k.tensor("T", f32, (128, 16))
    k.tile.load(tall, T)
    k.tile.zip(tall, "max", tall, part)
    k.tile.store(T, tall)
    k.tile.store(T[:, 0:8], tall, column=8)
    k.tile.store(s[:, 8:24], acc, column=16)
    k.tile.store(s[:, 0:1], total)


@program()
def wgmmas(k: Builder) -> None:
    flag = k.var("flag", 0)
    for kind, depth, accumulator in (
        (bf16, 16, f32), (f16, 16, f16), (tf32, 8, f32), (e4m3, 32, f32), (e5m2, 32, f16),
        (s8, 32, s32), (u8, 32, s32),
    ):  # fmt: skip
        a = k.shared(f"a_{kind}", kind, (64, 128 // kind.bytes), swizzle=128)
        b = k.shared(f"b_{kind}", kind, (64, 64 // kind.bytes), swizzle=64)
        acc = k.fragment(f"acc_{kind}", accumulator, (64, 64), "warpgroup")
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a[:, depth : 2 * depth], b[:, 0:depth], accumulate=flag)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)
        k.tile.store(k.tensor(f"out_{kind}", accumulator, (64, 64)), acc)
    turned = k.shared("turned", bf16, (32, 64), swizzle=128)
    pair = k.shared("pair", bf16, (2, 16, 64), swizzle=128)
    registers = k.fragment("registers", bf16, (64, 32), "warpgroup")
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    wide = k.fragment("wide", f32, (64, 128), "warpgroup")
    k.tile.fill(registers, 1)
    k.wgmma.fence()
    k.wgmma.mma_async(acc, turned[0:16], turned[ds(16, 16)], a_trans=True, b_trans=True)
    k.wgmma.mma_async(acc, registers, turned[0:16], b_trans=True)
    k.wgmma.mma_async(wide, registers, pair, b_trans=True, a_column=16, accumulate=0)
    k.wgmma.commit_group()
    k.wgmma.wait_group(1)
    k.wgmma.wait_group(0)
    k.tile.store(k.tensor("out", f32, (64, 64)), acc)


@program(target="sm_100a", warps=1)
def cancellations(k: Builder) -> None:
    response, b = k.shared("response", u32, (4,)), k.mbarriers("b")
    won, where = k.var("won"), k.var("where")
    with k.elected():
        k.clc.try_cancel(response, b)
        k.clc.try_cancel(response, b, multicast=True)
    k.clc.query_is_canceled(won, response)
    for axis in ("x", "y", "z"):
        k.clc.query_first_ctaid(where, response, axis)


@program(target="sm_100a")
def tensor_memory(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    slot, b = k.shared("slot", u32, (1,)), k.mbarriers("b")
    a = k.shared("a", bf16, (128, 64), swizzle=128)
    turned = k.shared("turned", bf16, (64, 64), swizzle=128)
    bytes_ = k.shared("bytes_", e4m3, (128, 128), swizzle=128)
    rows, narrow = k.shared("rows", u8, (32, 16)), k.shared("narrow", u8, (128, 32), swizzle=32)
    at = k.var("at", dtype=u32)
    with k.role("warp 0", 0):
        k.tcgen05.alloc(slot, 128)
        k.tcgen05.relinquish_alloc_permit()
    k.sync_threads()
    k.mem.load(at, slot[0])
    d = k.tcgen05.tensor(at, f32, (128, 64))
    packed = k.tcgen05.tensor(at + 64, bf16, (128, 64))
    scales = k.tcgen05.tensor(at + 96, u8, (32, 16))
    with k.role("issue", 0), k.elected():
        k.tcgen05.cp(scales, rows, "32x128b", multicast="warpx4")
        k.tcgen05.mma(d, a[:, 0:16], a[0:64, 16:32], accumulate=0)
        k.tcgen05.mma(d, packed[:, 0:16], turned[0:16], b_trans=True)
        k.tcgen05.mma(d, bytes_[:, 0:32], bytes_[0:64, 32:64])
        scale = k.tcgen05.tensor(at + 96, u8, (32, 4))
        k.tcgen05.mma(
            d, bytes_[:, 0:32], bytes_[0:64, 32:64], kind="mxf8f6f4", scale_a=scale, scale_b=scale
        )
        k.tcgen05.mma(d, bytes_[:, 0:32], narrow[0:64], b_type="e2m1")
        k.tcgen05.mma(d, narrow, narrow[0:64], a_type="e3m2", b_type="e2m3")
        k.tcgen05.shift(d[0:32, 0:8])
        k.tcgen05.commit(b)
        k.tcgen05.commit(b, multicast=3)
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    k.tcgen05.fence_after_thread_sync()
    out = k.tensor("out", f32, (128, 64))
    x, y = (k.fragment(n, f32, (128, 64), "warpgroup") for n in ("x", "y"))
    row_sum = k.fragment("row_sum", f32, (128, 1), "warpgroup")
    bias, half = k.fragment("bias", f32, (1, 64)), k.fragment("half", bf16, (128, 64), "warpgroup")
    k.tcgen05.ld(x, d)
    k.tcgen05.wait_ld()
    k.tile.fill(bias, 1)
    k.tile.reduce(row_sum, "sum", x)
    k.tile.zip(y, "sub", x, row_sum)
    k.tile.zip(y, "add", y, bias)
    k.tile.cast(half, y)
    k.tcgen05.st(packed, half)
    k.tcgen05.wait_st()
    k.tile.store(out, y)
    k.sync_threads()
    with k.role("warp 0", 0):
        k.tcgen05.dealloc(at, 128)


@program(target="sm_100a")
def products(k: Builder) -> None:
    """Every form of tcgen05.mma of one CTA."""
    k.launch()
    slot, at = k.shared("slot", u32, (1,)), k.var("at", dtype=u32)
    halves = k.shared("halves", f16, (128, 64), swizzle=128)
    words, bytes_ = (
        k.shared("words", tf32, (128, 32), swizzle=128),
        k.shared("bytes_", u8, (128, 128), swizzle=128),
    )
    with k.role("warp 0", 0):
        k.tcgen05.alloc(slot, 512)
    k.sync_threads()
    k.mem.load(at, slot[0])
    d = k.tcgen05.tensor(at, f32, (128, 64))
    d16 = k.tcgen05.tensor(at, f16, (128, 64), packed=False)
    sums, one = k.tcgen05.tensor(at, s32, (128, 64)), k.tcgen05.tensor(at + 65, u32, (128, 1))
    two, scale = k.tcgen05.tensor(at + 66, u32, (128, 2)), k.tcgen05.tensor(at + 68, u8, (32, 16))
    a, b = halves[:, 0:16], halves[0:64, 0:16]
    with k.role("issue", 0), k.elected():
        k.tcgen05.mma(d16, a, b, scale_input_d=3)
        k.tcgen05.mma(d, words[:, 0:8], words[0:64, 8:16], disable_output_lane=(1, 2, 3, 4))
        k.tcgen05.mma(
            d, a, b, disable_output_lane=(1, 2, 3, 4), scale_input_d=15, accumulate=at.eq(0)
        )
        k.tcgen05.mma(sums, bytes_[:, 0:32], bytes_[0:64, 32:64])
        kinds: tuple[tuple[Kind, int], ...] = (("mxf4", 2), ("mxf4nvf4", 2), ("mxf4nvf4", 4))
        for kind, vector in kinds:
            k.tcgen05.mma(
                d, bytes_[:, 0:32], bytes_[0:64, 32:64], kind=kind, scale_a=scale, scale_b=scale,
                scale_vec=vector,
            )  # fmt: skip
        k.tcgen05.mma_sp(d16, a, halves[0:64, 0:32], one)
        k.tcgen05.mma_sp(
            d, words[:, 0:8], words[0:64, 0:16], one, disable_output_lane=(0, 0, 0, 1),
            scale_input_d=1,
        )  # fmt: skip
        k.tcgen05.mma_sp(sums, bytes_[:, 0:32], bytes_[0:64, 0:64], two)
        k.tcgen05.mma_sp(d, k.tcgen05.tensor(at + 128, f16, (128, 16)), halves[0:64, 0:32], one)
        k.tcgen05.mma_ws(d16, a, b)
        k.tcgen05.mma_ws(k.tcgen05.tensor(at, f32, (128, 32)), halves[0:64, 0:16], b, accumulate=0)
        k.tcgen05.mma_ws(k.tcgen05.tensor(at, f32, (128, 16)), halves[0:32, 0:16], b)
        k.tcgen05.mma_ws(sums, bytes_[:, 0:32], bytes_[0:64, 0:32])
        k.tcgen05.mma_ws(d, k.tcgen05.tensor(at + 128, f16, (128, 16)), b)
    x, y = (k.fragment(n, f16, (128, 64), "warpgroup") for n in ("x", "y"))
    z, w = k.fragment("z", f16, (64, 64), "warpgroup"), k.fragment("w", f32, (128, 8), "warpgroup")
    k.tcgen05.ld(x, d16)
    k.tcgen05.ld(z, d16, shape="16x128b")
    k.tcgen05.ld(w, k.tcgen05.tensor(at, f32, (128, 8)), shape="16x32bx2", half_split=8)
    k.tcgen05.wait_ld()
    k.tile.map(y, "neg", x)
    k.tcgen05.st(d16, y)
    k.tcgen05.st(d16, z, shape="16x128b")
    k.tcgen05.st(k.tcgen05.tensor(at, f32, (128, 8)), w, shape="16x32bx2", half_split=8)
    k.tcgen05.wait_st()
    k.sync_threads()
    with k.role("warp 0", 0):
        k.tcgen05.dealloc(at, 512)


@program(target="sm_103a")
def paired_products(k: Builder) -> None:
    """Every form of tcgen05.mma of a pair of CTAs."""
    k.launch(grid=2, cluster=2)
    slot, at = k.shared("slot", u32, (1,)), k.var("at", dtype=u32)
    halves = k.shared("halves", f16, (128, 64), swizzle=128)
    with k.role("warp 0", 0):
        k.tcgen05.alloc(slot, 128, cta_group=2)
    k.sync_threads()
    k.mem.load(at, slot[0])
    d, one = k.tcgen05.tensor(at, f32, (128, 64)), k.tcgen05.tensor(at + 65, u32, (128, 1))
    b = halves[0:32, 0:16]
    with k.role("issue", 0), k.elected():
        k.tcgen05.mma(d, halves[:, 0:16], b, cta_group=2, disable_output_lane=(1, 2, 3, 4) * 2)
        k.tcgen05.mma(d[:, 0:32], halves[0:64, 0:16], b, cta_group=2, scale_input_d=2)
        left = k.tcgen05.tensor(at + 96, f16, (64, 16))
        k.tcgen05.mma(d[:, 0:32], left, b, cta_group=2)
        k.tcgen05.mma_sp(d, halves[:, 0:16], halves[0:32, 0:32], one, cta_group=2)
        k.tcgen05.cp(d[0:4, 0:8], halves[0:4, 0:16], "4x256b", cta_group=2)
        k.tcgen05.cp(d[:, 0:8], halves[:, 0:16], "128x256b", cta_group=2)
        k.tcgen05.shift(d[0:32, 0:8], cta_group=2)
    k.cluster.sync()
    with k.role("warp 0", 0):
        k.tcgen05.dealloc(at, 128, cta_group=2)
