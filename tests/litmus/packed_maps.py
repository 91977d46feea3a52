"""Tensor maps of elements of 4 and 6 bits and of pixels, from the host and made on the device (B14,
B23, B36)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tilesim import Builder, s32, u8
from tilesim.ir.tensormap import Field

from .boxes import IMAGES, read_rows
from .notation import begin, global_words, thread
from .table import completes, defect, fails, rejected, row

Packing = Literal["b4x16", "b4x16_p64", "b6x16_p32"]
#: bytes of 128 elements
_BYTES = {"b4x16": 64, "b4x16_p64": 64, "b6x16_p32": 96}
#: of one row in shared memory
_ROOM = {"b4x16": 64, "b4x16_p64": 128, "b6x16_p32": 128}


def _pixels(nbytes: int) -> list[object]:
    """Two images of 3 by 4 pixels of so many bytes, of pixel n all n + 1."""
    numbers = np.arange(1, 25, dtype=np.uint8)[:, None] + np.zeros(nbytes, dtype=np.uint8)
    return [*numbers.reshape(2, 3, 4, nbytes).tolist()]


# Filter bases are 0..2 along W and 0..1 along H: the copy takes pixels 1, 2, 4, 5, 6 and 12, and of
# each byte 40: behind the gaps of 8 bytes it is one of those that were loaded.
@row("LB29", completes({"g": _pixels(64)}, out=[2, 3, 5, 6, 7, 13]), packing="b4x16")
@row("LB29-shift", completes({"g": _pixels(64)}, out=[7, 8, 10, 11, 12, 18]), packing="b4x16",
     shift=(1, 1))  # fmt: skip
@row("LB29-padded", completes({"g": _pixels(64)}, out=[2, 3, 5, 6, 7, 13]), packing="b4x16_p64",
     column=32)  # fmt: skip
@row("LB29-six", completes({"g": _pixels(96)}, out=[2, 3, 5, 6, 7, 13]), packing="b6x16_p32")
@row("LB29-bytes", fails(defect("deadlock", T0="k.mbarrier.wait(b, 0)")), packing="b4x16_p64",
     expected=6 * 128)  # fmt: skip
@row("LB29-between", rejected("operand", "k.tma.load("), packing="b4x16_p64", first=64)
@row("LB29-channels", rejected("operand", "k.tensor_map("), packing="b4x16_p64", channels=64)
@row("LB29-target", rejected("target", "k.tma.load("), packing="b4x16", target="sm_90a")
def packed_pixels(
    k: Builder, *, packing: Packing, shift: tuple[int, ...] = (0, 0), column: int = 40,
    expected: int = 0, first: int = 0, channels: int = 128, target: str = "sm_100a",
) -> None:  # fmt: skip
    k.launch(warps=1, target=target)
    nbytes = _BYTES[packing]
    b, g = k.mbarriers("b"), k.tensor("g", u8, (2, 3, 4, nbytes))
    d = k.shared("d", u8, (6, _ROOM[packing] * channels // 128))
    box = k.tensor_map(g, (6, channels), lower=(0, 0), upper=(-1, -1), packing=packing)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, expected or 6 * nbytes)
        k.tma.load(box, d, (0, 0, 1, first), b, mode="im2col", info=shift)
        k.mbarrier.wait(b, 0)
        read_rows(k, d, "out", 6, column)


# What a store leaves of pixels 1, 2, 3 and the first one of the next image.
@row("LB29-store", completes(out=[0x11, 0x11, 0x11, 0]), pixel=1)
@row("LB29-store-read", fails(defect("race", T0="k.tma.store(", T1="k.mem.load(r, g[0, 0, pixel")),
     pixel=1, meets=False)  # fmt: skip
def packed_pixels_are_stored(k: Builder, *, pixel: int, meets: bool = True) -> None:
    k.launch(warps=2, target="sm_100a")
    s, g = k.shared("s", u8, (3, 64)), k.tensor("g", u8, (2, 3, 5, 64))
    out, r, done = global_words(k, "out", 4), k.var("r"), k.mbarriers("done")
    box = k.tensor_map(g, (3, 128), lower=(0, 0), upper=(-1, 0), packing="b4x16")
    begin(k, (done, 1))
    for i in range(3):
        k.mem.store(s[i, k.thread_id], 0x11)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.tma.store(box, s, (0, 0, 1, 0), mode="im2col_no_offs")
        k.bulk.commit_group()
        k.bulk.wait_group(0)
        k.mbarrier.arrive(done)
    with thread(k, 1):
        if meets:
            k.mbarrier.wait(done, 0)
        for i in range(4):
            k.mem.load(r, g[0, 0, pixel + i, 40] if i < 3 else g[0, 1, 0, 40])
            k.mem.store(out[i], r)


# A map for im2col is copied as a whole; tensormap.replace.tile is for tiled maps.
@row("LB30", completes({"g": IMAGES}, out=[4, 8, 16, 20, 24, 48]))
@row("LB30-release", fails(defect("proxy-fence", T0=("k.tensormap.copy(", "k.tma.load("))),
     fence=False)  # fmt: skip
@row("LB30-replaced", fails(defect("out-of-bounds", T0="k.tma.load(")), replaces=True)
@row("LB30-tiled", fails(defect("out-of-bounds", T0="k.tma.load(")), tiled=True)
@row("LB30-bytes", fails(defect("deadlock", T0="k.mbarrier.wait(b, 0)")), expected=64)
def pixels_through_a_copied_map(
    k: Builder, *, fence: bool = True, replaces: bool = False, tiled: bool = False,
    expected: int = 96,
) -> None:  # fmt: skip
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (6, 4)), k.tensor("g", s32, (2, 3, 4, 4))
    pixels = k.tensor_map(g, (6, 4), lower=(0, 0), upper=(-1, -1))
    rows = k.tensor_map(g, (1, 1, 4, 4), name="rows")
    maps = k.tensor("maps", u8, (128,))
    begin(k, (b, 1))
    with thread(k, 0):
        k.tensormap.copy(maps, rows if tiled else pixels)
        if replaces:
            k.tensormap.replace(maps, "global_address", g[0])
        if fence:
            k.fence.proxy_tensormap_release("gpu")
        k.fence.proxy_tensormap_acquire(maps, "gpu")
        k.mbarrier.arrive_expect_tx(b, expected)
        k.tma.load(pixels, d, (0, 0, 1, 0), b, mode="im2col", info=(0, 0), at=maps)
        k.mbarrier.wait(b, 0)
        read_rows(k, d, "out", 6)


# Two rows of 128 elements of a matrix of four, made of fields alone.
@row("LB31", completes({"g": [[7] * 64, [8] * 64, [9] * 64, [1] * 64]}, out=[8, 9]), code=13)
@row("LB31-padded", completes({"g": [[7] * 64, [8] * 64, [9] * 64, [1] * 64]}, out=[8, 9]), code=14)
@row("LB31-six", completes({"g": [[7] * 96, [8] * 96, [9] * 96, [1] * 96]}, out=[8, 9]), code=15)
@row("LB31-copied", completes({"g": [[7] * 64, [8] * 64, [9] * 64, [1] * 64]}, out=[8, 9]),
     code=13, copies=True)  # fmt: skip
@row("LB31-gaps", fails(defect("deadlock", T0="k.mbarrier.wait(b, 0)")), code=14, expected=256)
@row("LB31-row", fails(defect("out-of-bounds", T0="k.tma.load(")), code=14, wide=64)
@row("LB31-swizzle", fails(defect("out-of-bounds", T0="k.tma.load(")), code=15, swizzle=1)
@row("LB31-fill", fails(defect("out-of-bounds", T0="k.tma.load(")), code=13, fill=1)
@row("LB31-first", fails(defect("out-of-bounds", T0="k.tma.load(")), code=14, first=64)
@row("LB31-tile", fails(defect("race", T0="k.tma.load(", T1="k.mem.store(next_to["),
                        defect("race", T0="k.mem.load(r,", T1="k.mem.store(next_to[")),
     code=14, close=True)  # fmt: skip
@row("LB31-beside", completes({"g": [[7] * 64] * 4}, out=[7, 7]), code=13, close=True)
@row("LB31-target", rejected("target", 'k.tensormap.replace(maps, "elemtype"'), code=13,
     target="sm_90a")  # fmt: skip
def packed_map_of_fields(
    k: Builder, *, code: int, expected: int = 0, wide: int = 128, swizzle: int = 0, fill: int = 0,
    first: int = 0, close: bool = False, copies: bool = False, target: str = "sm_100a",
) -> None:  # fmt: skip
    k.launch(warps=2, target=target)
    nbytes = 96 if code == 15 else 64
    b, g = k.mbarriers("b"), k.tensor("g", u8, (4, nbytes))
    d = k.shared("d", u8, (2, 64), offset=1024, align=128)
    next_to = k.shared("next_to", u8, (128,), offset=1152)
    maps, r = k.tensor("maps", u8, (128,)), k.var("r")
    out, where = global_words(k, "out", 2), k.var("where", first)
    declared = k.tensor_map(g, (2, 64))
    packed = k.tensor_map(g, (1, 128), packing="b4x16", name="packed") if copies else declared
    begin(k, (b, 1))
    with thread(k, 0):
        if copies:
            k.tensormap.copy(maps, packed)
        codes: tuple[tuple[Field, int], ...] = (
            ("rank", 1), ("interleave_layout", 0), ("swizzle_mode", swizzle), ("fill_mode", fill),
        )  # fmt: skip
        k.tensormap.replace(maps, "elemtype", code)
        for field, value in codes:
            k.tensormap.replace(maps, field, value)
        k.tensormap.replace(maps, "global_address", g)
        k.tensormap.replace(maps, "global_stride", nbytes, 0)
        for ord, (box, dim) in enumerate(((wide, 128), (2, 4))):
            if not copies:
                k.tensormap.replace(maps, "global_dim", dim, ord)
            k.tensormap.replace(maps, "box_dim", box, ord)
            k.tensormap.replace(maps, "element_stride", 1, ord)
        k.fence.proxy_tensormap_release("gpu")
        k.fence.proxy_tensormap_acquire(maps, "gpu")
        k.mbarrier.arrive_expect_tx(b, expected or 2 * nbytes)
        k.tma.load(declared, d, (1, where), b, at=maps)
        k.mbarrier.wait(b, 0)
        # rows are 64 bytes apart without gaps, and 128 with them
        for i in range(2):
            k.mem.load(r, d[i, 0] if code == 13 or not i else next_to[0])
            k.mem.store(out[i], r)
    if close:
        with thread(k, 1):
            k.mem.store(next_to[0], 3)
