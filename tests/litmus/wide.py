"""Wide and narrow: 64 bits, 32 bytes, numbers below 8 bits, parts of 16 bytes."""

from __future__ import annotations

import math
from typing import Literal

from tilesim import Builder, f32, pred, select, u8, u32, u64
from tilesim.ir.declarations import ds

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, rejected, row

Packing = Literal["b4x16", "b4x16_p64", "b6x16_p32", "b6p2x16"]


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


@row("LW04", completes(g=[0, 0, 7, 7] + [0] * 12), mask=0x0C0C, other=0xF0F0)
@row(
    "LW04-same-bytes",
    fails(defect("race", T0="k.bulk.store(g, a", T1="k.bulk.store(g, b")),
    mask=0x0C0C,
    other=0xF8F8,
)
@row(
    "LW04-all-bytes",
    fails(defect("race", T0="k.bulk.store(g, a", T1="k.bulk.store(g, b")),
    mask=None,
    other=0xF0F0,
)
@row("LW04-17-bits", rejected("operand", "k.bulk.store(g, a"), mask=0x10000, other=1)
@row("LW04-target", rejected("target", "k.bulk.store(g, a"), mask=1, other=1, target="sm_90a")
def masked_copies_to_the_same_16_bytes(
    k: Builder, *, mask: int | None, other: int, target: str = "sm_100a"
) -> None:
    k.launch(warps=2, target=target)
    a, b, g = k.shared("a", u8, (16,)), k.shared("b", u8, (16,)), k.tensor("g", u8, (16,))
    begin(k)
    with k.role("W0", 0), k.if_(k.lane_id < 16):
        k.mem.store(a[k.lane_id], select(k.lane_id < 8, 7, 0))
        k.mem.store(b[k.lane_id], 0)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.bulk.store(g, a, mask=mask)
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with thread(k, 1):
        k.bulk.store(g, b, mask=other)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@row("LW05", completes(), place=3)
@row(
    "LW05-copied-byte",
    fails(defect("race", T0=("k.bulk.store(g, a", "k.mem.store(a["))),
    place=2,
)
def bytes_that_a_mask_leaves_out_are_not_read(k: Builder, *, place: int) -> None:
    k.launch(warps=1, target="sm_100a")
    a, g, only = k.shared("a", u8, (32,)), k.tensor("g", u8, (32,)), k.var("only", 4)
    begin(k, zero=[a])
    with thread(k, 0):
        k.bulk.store(g, a, mask=only)
        k.mem.store(a[16 + place], 1)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@row("LW06", completes(), ctas=80)
@row("LW06-few", completes(), ctas=8)
def a_masked_copy_in_a_large_grid(k: Builder, *, ctas: int) -> None:
    k.launch(grid=ctas, warps=1, target="sm_100a")
    a, g = k.shared("a", u8, (16,)), k.tensor("g", u8, (ctas, 16))
    begin(k, zero=[a])
    with thread(k, 0):
        k.bulk.store(g[k.cta_x], a, mask=0xFF)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


#: sixteen elements of 4 and of 6 bits, as bytes: the numbers 0 to 15
_FOUR = [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]
_SIX = [0x40, 0x20, 0x0C, 0x44, 0x61, 0x1C, 0x48, 0xA2, 0x2C, 0x4C, 0xE3, 0x3C]


@row("LW07", completes({"G": [_FOUR * 16] * 2}, out=_FOUR), packing="b4x16", landed=128)
@row("LW07-padded", completes({"G": [_FOUR * 16] * 2}, out=_FOUR), packing="b4x16_p64", landed=128)
@row("LW07-six", completes({"G": [_SIX * 16] * 2}, out=_SIX[:8]), packing="b6x16_p32", landed=192)
@row(
    "LW07-with-gaps",
    fails(defect("deadlock", T0="k.mbarrier.wait(")),
    packing="b4x16_p64",
    landed=256,
)
@row("LW07-between", rejected("operand", "k.tma.load("), packing="b4x16_p64", landed=128, first=64)
@row("LW07-store-type", rejected("operand", "k.tma.load("), packing="b6p2x16", landed=192)
@row("LW07-target", rejected("target", "k.tma.load("), packing="b4x16", landed=128, target="sm_90a")
def packed_elements_are_loaded(
    k: Builder, *, packing: Packing, landed: int, first: int = 0, target: str = "sm_100a"
) -> None:
    """Two rows of 128 elements; what arrives is counted without the gaps."""
    k.launch(warps=1, target=target)
    four = packing.startswith("b4")
    G, out = k.tensor("G", u8, (2, 128 if four else 192)), k.tensor("out", u8, (8,))
    box = k.tensor_map(G, (2, 128), packing=packing)
    tile = k.shared("tile", u8, (2, 64 if packing == "b4x16" else 128), align=128)
    full, byte = k.mbarriers("full"), k.var("byte", 0)
    begin(k, (full, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(full, landed)
        k.tma.load(box, tile, (0, first), full)
        k.mbarrier.wait(full, 0)
        with k.loop(8) as i:
            k.mem.load(byte, tile[1, i])
            k.mem.store(out[i], byte)


@row("LW08", completes(G=[_SIX * 8] * 2), packing="b6p2x16", first=0)
@row("LW08-late", fails(defect("out-of-bounds", T0="k.tma.store(")), packing="b6p2x16", first=64)
@row("LW08-gaps", rejected("operand", "k.tma.store("), packing="b6x16_p32", first=0)
def elements_are_packed_when_they_are_stored(k: Builder, *, packing: Packing, first: int) -> None:
    """Bytes of 6 bits and 2 of padding, which a store leaves out."""
    k.launch(warps=4, target="sm_100a")
    G, tile = k.tensor("G", u8, (2, 96)), k.shared("tile", u8, (2, 128), align=128)
    box = k.tensor_map(G, (2, 128), packing=packing)
    column, where = k.thread_id, k.var("where", first)
    for line in range(2):
        k.mem.store(tile[line, column], column % 16 + 192)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.tma.store(box, tile, (0, where))
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@row("LW09", completes(), apart=256)
@row(
    "LW09-same-row",
    fails(defect("race", T0="tile, (0, 0))", T1="tile, (0, apart))")),
    apart=128,
)
def packed_stores_touch_the_bytes_of_their_elements(k: Builder, *, apart: int) -> None:
    """Boxes of 256 elements of 4 bits, 128 bytes, in one row of 512."""
    k.launch(warps=2, target="sm_100a")
    G, tile = k.tensor("G", u8, (1, 256)), k.shared("tile", u8, (1, 128), align=128)
    box = k.tensor_map(G, (1, 256), packing="b4x16")
    begin(k)
    with k.role("W0", 0), k.loop(4) as i:
        k.mem.store(tile[0, k.lane_id + 32 * i], 0)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.tma.store(box, tile, (0, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with thread(k, 1):
        k.tma.store(box, tile, (0, apart))
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@row("LW10", completes(), scope="gpu")
@row(
    "LW10-scope",
    fails(defect("race", **{"warp 0": ("k.multimem.red(", "k.multimem.red(")})),
    scope="cta",
)
@row(
    "LW10-store",
    fails(defect("race", **{"warp 0": ("k.multimem.red(", "k.multimem.store(")})),
    scope="gpu",
    store=True,
)
def devices_count_together(
    k: Builder, *, scope: Literal["cta", "gpu"], store: bool = False
) -> None:
    """Two CTAs of this device; what the other devices do is not looked at."""
    k.launch(grid=2, warps=1, cooperative=True)
    count = k.tensor("count", u32, (1,), devices=8)
    with k.if_(k.lane_id.eq(0)):
        if store:
            with k.if_(k.cta_x.eq(1)):
                k.multimem.store(count[0], (0,))
        k.multimem.red(count[0], "add", (1,), scope=scope)


@row("LW11", completes({"X": [[1, 2, 3, 4]] * 32}, out=[8, 16, 24, 32]), steers=False)
@row(
    "LW11-steers",
    completes({"X": [[1, 2, 3, 4]] * 32}, verdicts=("bounded",), note="other devices decide"),
    steers=True,
)
def a_sum_over_devices(k: Builder, *, steers: bool) -> None:
    """The numbers are those of eight devices that hold the same."""
    k.launch(warps=1)
    X, out = k.tensor("X", f32, (32, 4), devices=8), k.tensor("out", f32, (4,))
    x = [k.var(f"x{i}", 0.0, f32) for i in range(4)]
    k.multimem.ld_reduce(x, "add", X[k.lane_id], sem="relaxed", scope="gpu")
    with k.if_(x[0] < 100 if steers else k.lane_id < 32), k.if_(k.lane_id.eq(0)):
        for i in range(4):
            k.mem.store(out[i], x[i])


@row("LW16", completes(G=[5 * n for n in range(32)]))
@row("LW16-mask", completes(G=[4 * n + n % 4 // 3 * n for n in range(32)]), target="sm_100a")
@row(
    "LW16-read",
    fails(defect("race", T0=("k.multimem.reduce(", "# again"))),
    waits=False,
)
@row("LW16-own", rejected("operand", "k.multimem.copy("), devices=1)
@row("LW16-target", rejected("target", "k.multimem.copy("), mask=0xF000)
def copies_go_to_all_devices(
    k: Builder, *, target: str = "sm_90a", devices: int = 4, waits: bool = True, mask: int = 0
) -> None:
    """A copy, and a sum to which each of the devices adds the same."""
    k.launch(warps=1, target=target)
    G, s = k.tensor("G", u32, (32,), devices=devices), k.shared("s", u32, (32,))
    summed = G if devices > 1 else k.tensor("summed", u32, (32,), devices=2)
    k.mem.store(s[k.lane_id], k.lane_id)
    k.fence.proxy_async()
    k.sync_warp()
    with thread(k, 0):
        k.multimem.copy(G, s, mask=0xF000 if target == "sm_100a" else mask or None)
        k.bulk.commit_group()
        k.bulk.wait_group(0)
        k.multimem.reduce(summed, s, "add")
        k.bulk.commit_group()
        if waits:
            k.bulk.wait_group(0)
        k.mem.store(s[0], 7)  # again
        k.bulk.wait_group(0)


@row("LW12-load", rejected("operand", "k.mem.load("), place="ld")
@row("LW12-own", rejected("operand", "k.multimem.red(Y"), place="own")
@row("LW12-type", rejected("operand", "k.multimem.ld_reduce("), place="type")
def a_multimem_address_is_for_multimem_operations(k: Builder, *, place: str) -> None:
    k.launch(warps=1)
    X, Y = k.tensor("X", f32, (4,), devices=8), k.tensor("Y", f32, (4,))
    x = k.var("x", 0.0, f32)
    if place == "ld":
        k.mem.load(x, X[0])
    if place == "own":
        k.multimem.red(Y[0], "add", (x,))
    if place == "type":
        k.multimem.ld_reduce((x,), "min", X[0])


def _exchanged(number: int) -> list[int]:
    """Register ``number`` of a matrix whose byte at (row, column) is 16 row + column."""
    return [
        sum(
            16 * (4 * (t % 4) + 2 * number + b % 2) + t // 4 + 8 * (b // 2) << 8 * b
            for b in range(4)
        )
        for t in range(32)
    ]


@row("LW13", completes(out=[_exchanged(0), _exchanged(1)]), sync=True)
@row(
    "LW13-unordered",
    fails(defect("race", **{"warp 0": ("k.mem.store(s[", "k.matrix.load_bytes(")})),
    sync=False,
)
@row("LW13-half", fails(defect("participation", **{"warp 0": "k.matrix.load_bytes("})), lanes=16)
@row("LW13-target", rejected("target", "k.matrix.load_bytes("), target="sm_90a")
def a_matrix_of_bytes_is_exchanged(
    k: Builder, *, sync: bool = True, lanes: int = 32, target: str = "sm_100a"
) -> None:
    k.launch(warps=1, target=target)
    s, out = k.shared("s", u8, (16, 16)), k.tensor("out", u32, (2, 32))
    x = [k.var(f"x{i}", 0, u32) for i in range(2)]
    with k.loop(8) as i:
        k.mem.store(s[2 * i + k.lane_id // 16, k.lane_id % 16], 32 * i + k.lane_id)
    if sync:
        k.sync_warp()
    with k.if_(k.lane_id < lanes):
        k.matrix.load_bytes(x, s[k.lane_id % 16])
    for number in range(2):
        k.mem.store(out[number, k.lane_id], x[number])


@row("LW14", completes(out=[64 * b + lane for lane in range(16) for b in (0, 1)]), whole=True)
@row(
    "LW14-half", fails(defect("participation", **{"warp 0": "k.matrix.store_bytes("})), whole=False
)
def a_matrix_of_bytes_is_stored(k: Builder, *, whole: bool) -> None:
    """Byte b of lane t is 64 b + t: column 0 has lanes 0 to 3, bytes 0 and 1 in turns."""
    k.launch(warps=1, target="sm_100a")
    s, out, byte = k.shared("s", u8, (8, 16)), k.tensor("out", u8, (32,)), k.var("byte", 0)
    word = k.lane_id * 0x01010101 + 0xC0804000
    with k.if_(k.lane_id < (32 if whole else 16)):
        k.matrix.store_bytes(s[k.lane_id % 8], (word,))
    k.sync_warp()
    # row 2 i + b, columns 0 to 3: lanes i, i + 4, i + 8, i + 12
    k.mem.load(byte, s[k.lane_id // 2 % 4 * 2 + k.lane_id % 2, k.lane_id // 8])
    k.mem.store(out[k.lane_id], byte)


@row("LW15", completes({"G": _SIX + [9] * 4}, out=[0x03020100, 0x0F0E0D0C]), source="b6x16_p32")
@row("LW15-four", completes({"G": _FOUR + [9] * 8}, out=[0x0C080400, 0x3C383430]),
     source="b4x16_p64")  # fmt: skip
@row("LW15-bytes", rejected("operand", "k.matrix.load_bytes("), source="b8")
def narrow_elements_get_a_byte_each(
    k: Builder, *, source: Literal["b8", "b6x16_p32", "b4x16_p64"]
) -> None:
    k.launch(warps=1, target="sm_100a")
    s, G, out = k.shared("s", u8, (8, 16)), k.tensor("G", u8, (16,)), k.tensor("out", u32, (2,))
    x, byte = k.var("x", 0, u32), k.var("byte", 0)
    with k.if_(k.lane_id < 16):
        k.mem.load(byte, G[k.lane_id])
        with k.loop(8) as i:
            k.mem.store(s[i, k.lane_id], byte)
    k.sync_warp()
    k.matrix.load_bytes((x,), s[k.lane_id % 8], "m8n16", source=source)
    with k.if_(k.lane_id.eq(4)):
        k.mem.store(out[0], x)
    with k.if_(k.lane_id.eq(7)):
        k.mem.store(out[1], x)
