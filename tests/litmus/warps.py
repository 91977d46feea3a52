"""Instructions of one warp: votes, vectors, matrices, time (SEMANTICS E19 to E24, H15 to H17)."""

from __future__ import annotations

from typing import Literal

from tilesim import Builder, bf16, f16, f32, f64, pred, s32, u32, u64
from tilesim.arith.types import DType
from tilesim.ir.declarations import ds

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, rejected, row


@row("LV01", completes(out=[7] * 16 + [0] * 16), mask=0xFFFF)
@row(
    "LV01-whole-mask",
    fails(defect("participation", **{"warp 0": "k.warp.ballot("})),
    mask=0xFFFFFFFF,
)
@row("LV01-short-mask", fails(defect("participation", **{"warp 0": "k.warp.ballot("})), mask=0xFF)
def a_vote_names_the_lanes_that_execute_it(k: Builder, *, mask: int) -> None:
    k.launch(warps=1)
    out, seen = k.tensor("out", u32, (32,)), k.var("seen", 0, u32)
    with k.if_(k.lane_id < 16):
        k.warp.ballot(seen, k.lane_id < 3, mask=mask)
    k.mem.store(out[k.lane_id], seen)


@row("LV02", completes(out=[1, 0, 1, 0xF0, 0, 0, 496, 31, 0, -1]))
def what_lanes_learn_from_each_other(k: Builder) -> None:
    k.launch(warps=1)
    out, holds = global_words(k, "out", 10), k.var("holds", 1, pred)
    some, every, alike, least, most, odd, total = (
        k.var(name, 0, s32) for name in ("some", "every", "alike", "least", "most", "odd", "total")
    )
    like, all_like = k.var("like", 0, u32), k.var("all_like", 0, u32)
    k.warp.vote(some, k.lane_id.eq(3), "any")
    k.warp.vote(every, k.lane_id.eq(3), "all")
    k.warp.vote(alike, k.lane_id < 32, "uni")
    k.warp.match_any(like, k.lane_id // 4)
    k.warp.match_all(all_like, holds, k.lane_id)
    k.warp.redux(total, "add", k.lane_id)
    k.warp.redux(most, "max", k.lane_id)
    k.warp.redux(odd, "xor", k.lane_id, kind="b32")
    k.warp.redux(least, "min", 0 - k.lane_id % 2)
    with k.if_(k.lane_id.eq(5)):
        found = (some, every, alike, like, all_like, holds, total, most, odd, least)
        for place, value in enumerate(found):
            k.mem.store(out[place], value)


@row("LV03", completes(), steers=False)
@row(
    "LV03-steers",
    completes(verdicts=("bounded",), note="which lanes activemask shows, nobody knows"),
    steers=True,
)
def activemask_promises_nothing(k: Builder, *, steers: bool) -> None:
    k.launch(warps=1)
    out, seen = k.tensor("out", u32, (32,)), k.var("seen", 0, u32)
    k.warp.activemask(seen)
    with k.if_(seen.eq(0xFFFFFFFF) if steers else k.lane_id < 32):
        k.mem.store(out[k.lane_id], seen)


@row("LV04", completes(), steers=False)
@row(
    "LV04-steers",
    completes(verdicts=("bounded",), note="what a clock shows, nobody knows"),
    steers=True,
)
def a_timeout_is_no_ground_for_a_proof(k: Builder, *, steers: bool) -> None:
    k.launch(warps=1)
    out, start, now = k.tensor("out", u64, (32,)), k.var("start", 0, u64), k.var("now", 0, u64)
    k.time.read(start, "globaltimer")
    k.time.sleep(100)
    k.time.read(now, "globaltimer")
    with k.if_(now - start < 1000 if steers else k.lane_id < 32):
        k.mem.store(out[k.lane_id], now)


@row("LV05", completes({"a": 1, "b": 2}, out=32), sync=True)
@row(
    "LV05-unordered",
    fails(
        defect("race", W0="k.mem.store_vector(s[k", W1="k.matrix.load(x"),
        defect("race", W0="k.mem.store_vector(s[16", W1="k.matrix.load(y"),
    ),
    sync=False,
)
def matrices_pass_through_shared_memory(k: Builder, *, sync: bool) -> None:
    k.launch(warps=2)
    a, b = k.tensor("a", bf16, (16, 16)), k.tensor("b", bf16, (16, 8))
    out, s = k.tensor("out", f32, (16, 8)), k.shared("s", bf16, (32, 16))
    v, x, y = (
        [k.var(f"{n}{i}", 0, u32) for i in range(c)] for n, c in (("v", 4), ("x", 4), ("y", 2))
    )
    d = [k.var(f"d{i}", 0.0, f32) for i in range(4)]
    lane, eight, two = k.lane_id, ds(k.lane_id % 2 * 8, 8), ds(k.lane_id % 4 * 2, 2)
    begin(k)
    with k.role("W0", 0):
        k.mem.load_vector(v, a[lane // 2, eight])
        k.mem.store_vector(s[k.lane_id // 2, eight], v)
        with k.if_(lane < 16):
            k.mem.load_vector(v, b[lane, 0:8])
            k.mem.store_vector(s[16 + lane, 0:8], v)
    if sync:
        k.sync_threads()
    with k.role("W1", 1):
        k.matrix.load(x, s[lane % 16, ds(lane // 16 * 8, 8)])
        k.matrix.load(y, s[16 + lane % 16, 0:8], trans=True)
        k.matrix.mma(d, x, y, d, "bf16")
        k.mem.store_vector(out[lane // 4, two], d[:2])
        k.mem.store_vector(out[8 + lane // 4, two], d[2:])


@row("LV06", completes(out=range(64)), first=0)
@row("LV06-misaligned", fails(defect("out-of-bounds", **{"warp 0": "k.mem.load_vector("})), first=2)
def a_vector_is_aligned_to_its_size(k: Builder, *, first: int) -> None:
    k.launch(warps=1)
    s, out = words(k, "s", 132), global_words(k, "out", 64)
    v = [k.var(f"v{i}") for i in range(4)]
    for part in range(4):
        k.mem.store(s[k.lane_id + 32 * part], k.lane_id + 32 * part)
    k.sync_warp()
    with k.if_(k.lane_id < 16):
        k.mem.load_vector(v, s[ds(4 * k.lane_id + first, 4)])
        k.mem.store_vector(out[ds(4 * k.lane_id, 4)], v)


_WEAK = {"W0": "k.mem.store_vector(flags", "W1": "k.mem.load_vector((x, y), flags"}


@row("LV17", completes(verdicts=("exhausted",), note="who is first, decides what is read"))
@row("LV17-load", fails(defect("race", **_WEAK)), loads="weak")
@row("LV17-store", fails(defect("race", **_WEAK)), stores="weak")
@row("LV17-half", fails(defect("out-of-bounds", W1="k.mem.load_vector(")), first=1)
def a_strong_vector_is_as_many_strong_words(
    k: Builder,
    *,
    stores: Literal["weak", "relaxed"] = "relaxed",
    loads: Literal["weak", "relaxed"] = "relaxed",
    first: int = 2,
) -> None:
    k.launch(warps=2)
    flags, x, y = words(k, "flags", 4), k.var("x", 0), k.var("y", 0)
    with k.if_(k.thread_id < 4):
        k.mem.store(flags[k.lane_id], 0)
    k.sync_threads()
    with thread(k, 0, "W0"):
        k.mem.store_vector(flags[first : first + 2], (1, 2), sem=stores)
    with thread(k, 1, "W1"):
        k.mem.load_vector((x, y), flags[first : first + 2], sem=loads)


@row("LV18-narrow", rejected("operand", "k.mem.store_vector("), shape=(8,), dtype=f16)
@row("LV18-column", rejected("operand", "k.mem.store_vector("), shape=(4, 2), dtype=s32)
def a_strong_vector_is_one_piece_of_whole_words(
    k: Builder, *, shape: tuple[int, ...], dtype: DType
) -> None:
    k.launch(warps=1)
    s = k.shared("s", dtype, shape)
    values = range(2 if dtype is f16 else 4)
    k.mem.store_vector(s[0:4] if dtype is f16 else s[:, 0], tuple(values), sem="relaxed")


@row("LV07", completes(), whole=True)
@row("LV07-half", fails(defect("participation", **{"warp 0": "k.matrix.store("})), whole=False)
def a_matrix_needs_the_whole_warp(k: Builder, *, whole: bool) -> None:
    k.launch(warps=1)
    s, r = k.shared("s", bf16, (32, 8)), k.var("r", 0, u32)
    with k.if_(k.lane_id < (32 if whole else 16)):
        k.matrix.store(s[k.lane_id], (r,))


@row("LV08-global", rejected("operand", "k.matrix.load("))
def a_matrix_lies_in_shared_memory(k: Builder) -> None:
    k.launch(warps=1)
    k.matrix.load((k.var("r", 0, u32),), k.tensor("g", bf16, (32, 8))[k.lane_id])


@row("LV12", completes(out=[(120 << 16) + 0x3F] * 16 + [0] * 16))
def lanes_gather_where_a_branch_has_parted_them(k: Builder) -> None:
    """Inside a branch nothing brings lanes together but what they execute together."""
    k.launch(warps=1)
    s, out = words(k, "s", 32), k.tensor("out", u32, (32,))
    seen, total = k.var("seen", 0, u32), k.var("total", 0)
    with k.if_(k.lane_id < 16):
        with k.if_(k.lane_id < 4):
            k.mem.store(s[k.lane_id], 1)
        with k.else_():
            k.mem.store(s[k.lane_id], 2)
        k.warp.ballot(seen, k.lane_id < 6, mask=0xFFFF)
        k.warp.redux(total, "add", k.lane_id, mask=0xFFFF)
        k.mem.store(out[k.lane_id], seen + total * 65536)


@row("LV13", fails(defect("race", **{"warp 0": ("k.mem.store_vector(", "k.mem.load_vector(")})))
@row("LV13-sync", completes(), sync=True)
def votes_order_nothing(k: Builder, *, sync: bool = False) -> None:
    """Lanes that a branch has parted come to a vote together; what they stored is not ordered."""
    k.launch(warps=1)
    m, seen = k.shared("m", s32, (32, 4)), k.var("seen", 0, u32)
    v = [k.var(f"v{i}") for i in range(4)]
    for register in v:
        k.assign(register, 0)
    with k.if_(k.lane_id < 16):
        with k.if_(k.lane_id < 4):
            k.mem.store_vector(m[k.lane_id], v)
        k.warp.ballot(seen, k.lane_id < 6, mask=0xFFFF)
        if sync:
            k.sync_warp(0xFFFF)
        with k.if_((k.lane_id >= 4) & (k.lane_id < 8)):
            k.mem.load_vector(v, m[k.lane_id - 4])


@row("LV15", completes(out=[[8.0] * 8 for _ in range(32)]))
@row("LV15-half", fails(defect("participation", **{"warp 0": "k.matrix.mma_groups("})), lanes=16)
@row("LV15-registers", rejected("operand", "k.matrix.mma_groups("), registers=4)
def four_products_by_groups_of_lanes(k: Builder, *, lanes: int = 32, registers: int = 2) -> None:
    """Every element is 1, but those of a, which are 2."""
    k.launch(warps=1)
    out = k.tensor("out", f32, (32, 8))
    d = [k.var(f"d{i}", 0.0, f32) for i in range(8)]
    x, y = k.var("x", 0x40004000, u32), k.var("y", 0x3C003C00, u32)
    with k.if_(k.lane_id < lanes):
        k.matrix.mma_groups(d, [x] * registers, [y] * 2, d)
    k.mem.store_vector(out[k.lane_id, ds(0, 4)], d[:4])
    k.mem.store_vector(out[k.lane_id, ds(4, 4)], d[4:])


@row("LV16", completes(out=[[256.0] * 4 for _ in range(32)]))
@row("LV16-half", fails(defect("participation", **{"warp 0": "k.matrix.mma_scaled("})), lanes=16)
@row("LV16-vectors", rejected("operand", "k.matrix.mma_scaled("), vectors=4)
def a_product_with_scales(k: Builder, *, lanes: int = 32, vectors: Literal[2, 4] = 2) -> None:
    """64 products of ones, twice doubled by their scales."""
    k.launch(warps=1, target="sm_120a")
    out = k.tensor("out", f32, (32, 4))
    d = [k.var(f"d{i}", 0.0, f32) for i in range(4)]
    ones, twice = k.var("ones", 0x22222222, u32), k.var("twice", 0x80808080, u32)
    with k.if_(k.lane_id < lanes):
        k.matrix.mma_scaled(
            d, [ones] * 4, [ones] * 2, d, twice, twice, "mxf4", vectors=vectors
        )  # fmt: skip
    k.mem.store_vector(out[k.lane_id, ds(0, 4)], d)


@row("LV14", completes(out=[[4.0 * x * y for y in range(8)] for x in range(8)]))
@row("LV14-half", fails(defect("participation", **{"warp 0": "k.matrix.mma("})), lanes=16)
@row("LV14-registers", rejected("operand", "k.matrix.mma("), registers=2)
@row("LV14-sums", rejected("operand", "k.matrix.mma("), half=True)
def a_product_of_8_rows_in_double_precision(
    k: Builder, *, lanes: int = 32, registers: int = 1, half: bool = False
) -> None:
    """Every row and column holds its number: each sum has four equal products."""
    k.launch(warps=1)
    out = k.tensor("out", f64, (8, 8))
    x, d = k.var("x", 0.0, f64), [k.var(f"d{i}", 0.0, f64) for i in range(2)]
    k.assign(x, k.lane_id // 4)
    with k.if_(k.lane_id < lanes):
        k.matrix.mma(d, [x] * registers, [x], d, "f64", half=half)
    k.mem.store_vector(out[k.lane_id // 4, ds(k.lane_id % 4 * 2, 2)], d)
