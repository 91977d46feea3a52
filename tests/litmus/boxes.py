"""Tensor copies that are no boxes: four rows, pixels of an im2col box (B22, B23)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tilesim import Builder, s32
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.tensormap import LoadMode

from .notation import begin, global_words, thread
from .table import completes, defect, fails, rejected, row

#: rows of 4 words, the first word of row r being 10 r
MATRIX = (np.arange(8)[:, None] * 10 + np.arange(4)).tolist()
#: rows of 8 words, likewise
WIDE = (np.arange(8)[:, None] * 10 + np.arange(8)).tolist()
#: two images of 3 by 4 pixels of 4 channels, the first channel of a pixel being 4 times its number
IMAGES = np.arange(96).reshape(2, 3, 4, 4).tolist()


def read_rows(k: Builder, tile: SharedTensor, out: str, count: int, column: int = 0) -> None:
    """The first words of the rows of a tile, to a global tensor."""
    result, r = global_words(k, out, count), k.var("r")
    for i in range(count):
        k.mem.load(r, tile[i, column])
        k.mem.store(result[i], r)


@row("LB18", completes({"g": WIDE}, out=[64, 14, 34, 0]), expected=64)
@row("LB18-bytes", fails(defect("deadlock", T0="k.mbarrier.wait(b, 0)")), expected=128)
@row("LB18-outside", completes({"g": WIDE}, out=[0, 14, 0, 0]), expected=64, rows=(-1, 1, 8, 9))
def gather4(
    k: Builder, *, expected: int, rows: tuple[int, ...] = (6, 1, 3, 8), column: int = 4
) -> None:
    k.launch(warps=1, target="sm_100a")
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (4, 4)), k.tensor("g", s32, (8, 8))
    box = k.tensor_map(g, (1, 4))
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, expected)
        k.tma.load(box, d, (*rows, column), b, mode="tile::gather4")
        k.mbarrier.wait(b, 0)
        read_rows(k, d, "out", 4)


@row("LB18-target", rejected("target", "k.tma.load("), target="sm_90a")
@row("LB18-box", rejected("operand", "k.tma.load("), target="sm_100a")
def gather4_of_a_box(k: Builder, *, target: str) -> None:
    k.launch(warps=1, target=target)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (4, 4)), k.tensor("g", s32, (8, 4))
    box = k.tensor_map(g, (1, 4) if target == "sm_90a" else (2, 4))
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 64)
        k.tma.load(box, d, (0, 1, 2, 3, 0), b, mode="tile::gather4")
        k.mbarrier.wait(b, 0)


# A row that nobody writes may be read while the others are filled.
@row("LB19", completes({"g": MATRIX}, g=[[0, 1, 2, 3], [9] * 4, [20, 21, 22, 23], [9] * 4,
                                         [40, 41, 42, 43], [9] * 4, [60, 61, 62, 63], [9] * 4]),
     row=2)  # fmt: skip
@row(
    "LB19-read",
    fails(defect("race", T0="k.tma.store(box, s, (1, 3, 5, 7, 0)", T1="k.mem.load(r, g[row, 0])")),
    row=3,
)
def scatter4(k: Builder, *, row: int) -> None:
    k.launch(warps=2, target="sm_100a")
    s, g, out = k.shared("s", s32, (4, 4)), k.tensor("g", s32, (8, 4)), global_words(k, "out")
    box, r = k.tensor_map(g, (1, 4)), k.var("r")
    with k.if_(k.thread_id < 4):
        for i in range(4):
            k.mem.store(s[k.thread_id, i], 9)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.tma.store(box, s, (1, 3, 5, 7, 0), mode="tile::scatter4")
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with thread(k, 1):
        k.mem.load(r, g[row, 0])
        k.mem.store(out[0], r)


# Two rows of one copy at one place: which of them stays, nobody knows.
@row("LB19-twice", fails(defect("race", T0="k.tma.store(box, s, (1, 3, 3, 7, 0)")))
def scatter4_twice(k: Builder) -> None:
    k.launch(warps=1, target="sm_100a")
    s, g = k.shared("s", s32, (4, 4)), k.tensor("g", s32, (8, 4))
    box = k.tensor_map(g, (1, 4))
    with k.if_(k.thread_id < 4):
        for i in range(4):
            k.mem.store(s[k.thread_id, i], 9)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.tma.store(box, s, (1, 3, 3, 7, 0), mode="tile::scatter4")
        k.bulk.commit_group()
        k.bulk.wait_group(0)


# A filter of 2 by 2 over images of 3 by 4: filter bases are 0..2 along W and 0..1 along H, then the
# next image comes. Pixel number n of image i begins with word 48 i + 4 n.
@row("LB20", completes({"g": IMAGES}, out=[4, 8, 16, 20, 24, 48]), base=(0, 0, 1))
@row("LB20-shift", completes({"g": IMAGES}, out=[24, 28, 36, 40, 44, 68]), base=(0, 0, 1),
     shift=(1, 1))  # fmt: skip
@row("LB20-last", completes({"g": IMAGES}, out=[64, 68, 72, 0, 0, 0]), base=(1, 1, 0))
@row("LB20-padded", completes({"g": IMAGES}, out=[0, 0, 4, 8, 0, 16]), base=(0, 0, -1), lower=-1)
@row("LB20-strided", completes({"g": IMAGES}, out=[0, 8, 48, 56, 0, 0]), base=(0, 0, 0), step=2)
@row("LB20-bytes", fails(defect("deadlock", T0="k.mbarrier.wait(b, 0)")), base=(0, 0, 1),
     expected=128)  # fmt: skip
def im2col(
    k: Builder, *, base: tuple[int, ...], shift: tuple[int, ...] = (0, 0), expected: int = 96,
    lower: int = 0, step: int = 1,
) -> None:  # fmt: skip
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (6, 4)), k.tensor("g", s32, (2, 3, 4, 4))
    box = k.tensor_map(
        g, (6, 4), lower=(lower, lower), upper=(-1, -1), element_strides=(1, step, step, 1)
    )
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, expected)
        k.tma.load(box, d, (*base, 0), b, mode="im2col", info=shift)
        k.mbarrier.wait(b, 0)
        read_rows(k, d, "out", 6)


@row("LB20-offsets", rejected("operand", "k.tma.load("), info=(0,), lower=(0, 0))
@row("LB20-tiled", rejected("operand", "k.tma.load("), info=(0, 0), lower=None)
@row("LB20-corner", rejected("operand", "k.tensor_map("), info=(0, 0), lower=(0,))
def im2col_operands(k: Builder, *, info: tuple[int, ...], lower: tuple[int, ...] | None) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (6, 4)), k.tensor("g", s32, (2, 3, 4, 4))
    upper, shape = (None, (1, 1, 6, 4)) if lower is None else ((-1, -1), (6, 4))
    box = k.tensor_map(g, shape, lower=lower, upper=upper)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 96)
        k.tma.load(box, d, (0, 0, 0, 0), b, mode="im2col", info=info)
        k.mbarrier.wait(b, 0)


# Pixels 1, 2, 3 of the first row of an image and 0 of the next one: nobody else may touch them.
@row("LB21", completes({"g": np.zeros((2, 3, 4, 4), dtype=int).tolist()}, out=[0]), pixel=4)
@row(
    "LB21-read",
    fails(defect("race", T0="k.tma.store(box, s,", T1="k.mem.load(r, g[0, pixel // 4")),
    pixel=3,
)
def im2col_no_offs(k: Builder, *, pixel: int) -> None:
    k.launch(warps=2)
    s, g = k.shared("s", s32, (3, 4)), k.tensor("g", s32, (2, 3, 4, 4))
    out, r = global_words(k, "out"), k.var("r")
    box = k.tensor_map(g, (3, 4), lower=(0, 0), upper=(0, 0))
    with k.if_(k.thread_id < 3):
        for i in range(4):
            k.mem.store(s[k.thread_id, i], 9)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.tma.store(box, s, (0, 0, 1, 0), mode="im2col_no_offs")
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with thread(k, 1):
        k.mem.load(r, g[0, pixel // 4, pixel % 4, 0])
        k.mem.store(out[0], r)


# A row of 4 pixels of 16 channels in each of 40 images, the first channel of a pixel being its
# number: a copy goes along the row at one height from image to image.
ROWS = (np.arange(40 * 2 * 4)[:, None] + np.zeros(16)).reshape(40, 2, 4, 16).astype(int).tolist()


@row("LB22", completes({"g": ROWS}, out=[5, 6, 7, 12, 13, 14, 15]), wide="w", halo=2, pixels=5)
@row("LB22-offset", completes({"g": ROWS}, out=[6, 7, 0, 13, 14]), wide="w", halo=0, pixels=5,
     offset=1)  # fmt: skip
@row("LB22-halo", fails(defect("deadlock", T0="k.mbarrier.wait(b, 0)")), wide="w", halo=2, pixels=5,
     expected=5 * 64 + 64)  # fmt: skip
@row("LB22-128", completes({"g": ROWS}, out=[253, 254, 255, 68, 132, 196, 260]),
     wide="w::128", halo=1, pixels=128, start=0, first=125)  # fmt: skip
def along_rows(
    k: Builder, *, wide: Literal["w", "w::128"], halo: int, pixels: int, offset: int = 0,
    start: int = 1, expected: int = 0, first: int = 0,
) -> None:  # fmt: skip
    k.launch(warps=1, target="sm_100a")
    rows = pixels + halo * (4 if wide == "w::128" else 1)
    b, g = k.mbarriers("b"), k.tensor("g", s32, (40, 2, 4, 16))
    d = k.shared("d", s32, (rows, 16), swizzle=64)
    box = k.tensor_map(g, (pixels, 16), lower=(0,), upper=(0,), wide=wide, swizzle=64)
    mode: LoadMode = "im2col::w" if wide == "w" else "im2col::w::128"
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, expected or rows * 64)
        k.tma.load(box, d, (0, 1, start, 0), b, mode=mode, info=(halo, offset))
        k.mbarrier.wait(b, 0)
        out, r = global_words(k, "out", rows - first), k.var("r")
        for i in range(first, rows):
            k.mem.load(r, d[i, 0])
            k.mem.store(out[i - first], r)


# PTX does not say it, an H200 stops with an illegal instruction: rows of a box begin at a multiple
# of 16 bytes (B37). Public reports: triton-lang/triton #7385, tile-ai/tilelang #2527.
STORED = [[*line[:4], *[0] * 4] if r in (1, 2) else line for r, line in enumerate(WIDE)]
LOAD, STORE = "k.tma.load(box, d, (1, column), b)", "k.tma.store(box, d, (1, column))"


@row("LB27", completes({"g": WIDE}, g=WIDE, out=[14, 24]), column=4)
@row("LB27-before", completes({"g": WIDE}, g=WIDE, out=[0, 0]), column=-4)
@row("LB27-between", fails(defect("out-of-bounds", T0=LOAD)), column=3)
@row("LB27-negative", fails(defect("out-of-bounds", T0=LOAD)), column=-1)
@row("LB27-store", completes({"g": WIDE}, g=STORED, out=[0, 0]), column=4, stores=True)
@row("LB27-stored-between", fails(defect("out-of-bounds", T0=STORE)), column=2, stores=True)
@row("LB27-stored-before", fails(defect("out-of-bounds", T0=STORE)), column=-4, stores=True)
def column_of_a_box(k: Builder, *, column: int, stores: bool = False) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (2, 4), align=128), k.tensor("g", s32, (8, 8))
    box = k.tensor_map(g, (2, 4))
    begin(k, (b, 1))
    with thread(k, 0):
        if stores:
            for i in range(8):
                k.mem.store(d[i // 4, i % 4], 0)
            k.fence.proxy_async()
            k.tma.store(box, d, (1, column))
            k.bulk.commit_group()
            k.bulk.wait_group(0)
        else:
            k.mbarrier.arrive_expect_tx(b, 32)
            k.tma.load(box, d, (1, column), b)
            k.mbarrier.wait(b, 0)
        read_rows(k, d, "out", 2)
