"""Wide and narrow: 64 bits, 32 bytes, numbers below 8 bits, parts of 16 bytes."""

from __future__ import annotations

import math
from typing import Literal

from tilesim import Builder, f32, pred, select, u32, u64
from tilesim.ir.memory import ds

from .notation import global_words, words
from .table import completes, defect, fails, rejected, row


@row("LW01", completes(out=[1, 0, 0xFFFFFFFF]), kind="b64")
@row("LW01-low-half", completes(out=[0xFFFFFFFF, 1, 0xFFFFFFFF]), kind="b32")
def lanes_match_all_bits_of_a_value(k: Builder, *, kind: Literal["b32", "b64"]) -> None:
    """Numbers that differ in their upper half only."""
    k.launch(warps=1, target="sm_100a")
    out = k.tensor("out", u32, (3,))
    like, all_like, holds = (
        k.var("like", 0, u32),
        k.var("all_like", 0, u32),
        k.var("holds", 0, pred),
    )
    far = k.var("far", k.lane_id, u64)
    k.assign(far, (far << 40) + 7)
    k.warp.match_any(like, far, kind=kind)
    k.warp.match_all(all_like, holds, far, kind=kind)
    with k.if_(k.lane_id.eq(0)):
        k.mem.store(out[0], like)
        k.mem.store(out[1], holds)
        k.warp.match_all(all_like, holds, far, kind=kind, mask=1)
        k.mem.store(out[2], 0 - all_like)


@row("LW02", completes(out=[-31, 5, -0.0, math.nan]), target="sm_100a")
@row("LW02-target", rejected("target", "k.warp.redux(least, "), target="sm_90a")
def floats_are_reduced_over_a_warp(k: Builder, *, target: str) -> None:
    k.launch(warps=1, target=target)
    out, x = k.tensor("out", f32, (4,)), k.var("x", 0 - k.lane_id, f32)
    least, most, zero, none = (k.var(n, 0.0, f32) for n in ("least", "most", "zero", "none"))
    nothing = k.var("nothing", math.nan, f32)
    k.assign(x, select(k.lane_id.eq(7), nothing, x))
    k.warp.redux(least, "min", x, kind="f32")
    k.warp.redux(most, "min", select(k.lane_id < 5, 9.0, x), kind="f32", abs=True)
    k.warp.redux(zero, "min", select(k.lane_id.eq(9), -0.0, 0.0), kind="f32")
    k.warp.redux(none, "max", x, kind="f32", nan=True)
    with k.if_(k.lane_id.eq(0)):
        for place, value in enumerate((least, most, zero, none)):
            k.mem.store(out[place], value)


@row("LW03", completes(out=range(64)), space="global", target="sm_100a", first=0)
@row("LW03-misaligned", fails(defect("out-of-bounds", **{"warp 0": "k.mem.load_vector("})),
     space="global", target="sm_100a", first=4)  # fmt: skip
@row("LW03-target", rejected("target", "k.mem.load_vector("),
     space="global", target="sm_90a", first=0)  # fmt: skip
@row("LW03-shared", rejected("operand", "k.mem.load_vector("),
     space="shared", target="sm_100a", first=0)  # fmt: skip
def a_vector_of_32_bytes_lies_in_global_memory(
    k: Builder, *, space: str, target: str, first: int
) -> None:
    k.launch(warps=1, target=target)
    out = global_words(k, "out", 64)
    s = words(k, "s", 80) if space == "shared" else global_words(k, "s", 80)
    v = [k.var(f"v{i}") for i in range(8)]
    for part in range(2):
        k.mem.store(s[k.lane_id + 32 * part], k.lane_id + 32 * part)
    k.sync_warp()
    with k.if_(k.lane_id < 8):
        k.mem.load_vector(v, s[ds(8 * k.lane_id + first, 8)])
        k.mem.store_vector(out[ds(8 * k.lane_id, 8)], v)
