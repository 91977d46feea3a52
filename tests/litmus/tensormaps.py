"""LITMUS LB17: tensor maps that are made on the device, and the fences of their proxy (B14)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tilesim import Builder, s32, u8
from tilesim.ir.effects import Scope
from tilesim.ir.tensormap import Field

from .notation import begin, global_words, thread
from .table import completes, defect, fails, rejected, row

#: two groups of 4 rows of 8 words, the first one of a row being 100 times its group, plus the row
GROUPS = (
    np.arange(2)[:, None, None] * 100 + np.arange(4)[:, None] + np.zeros(8, dtype=int)
).tolist()
#: rows of 8 words, the first one of row r being 10 r
MATRIX = (np.arange(10)[:, None] * 10 + np.arange(8)).tolist()
LOAD = "k.tma.load(rows, d,"


@row("LB17", fails(defect("proxy-fence", T0="k.tensormap.replace(at,", T1=LOAD)), release=None,
     acquire=None)  # fmt: skip
@row("LB17-released", fails(defect("proxy-fence", T0="k.tensormap.replace(at,", T1=LOAD)),
     acquire=None)  # fmt: skip
@row("LB17-acquired", fails(defect("proxy-fence", T0="k.tensormap.replace(at,", T1=LOAD)),
     release=None)  # fmt: skip
@row("LB17-early", fails(defect("proxy-fence", T0="k.tensormap.replace(at,", T1=LOAD)), early=True)
@row("LB17-before", fails(defect("proxy-fence", T0="k.tensormap.replace(at,", T1=LOAD)), late=True)
@row("LB17-unordered", fails(defect("race", T0="k.tensormap.replace(at,", T1=LOAD),
                             also=("proxy-fence", "uninitialised-read")), handed=False)  # fmt: skip
@row("LB17-right", completes({"g": GROUPS}, out=[101]))
@row("LB17-cta", completes({"g": GROUPS}, out=[101]), release="cta", acquire="cta")
@row("LB17-elsewhere", fails(defect("proxy-fence", T0="k.tensormap.replace(at,", T1=LOAD)),
     other=True)  # fmt: skip
def modified(
    k: Builder, *, release: Scope | None = "gpu", acquire: Scope | None = "gpu",
    early: bool = False, late: bool = False, handed: bool = True, other: bool = False,
) -> None:  # fmt: skip
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (1, 4, 8)), k.tensor("g", s32, (2, 4, 8))
    ready = k.mbarriers("ready")
    maps, rows = k.tensor("maps", u8, (2, 128)), k.tensor_map(g, (1, 4, 8))
    out, r, at = global_words(k, "out"), k.var("r"), maps[0]
    begin(k, (b, 1), (ready, 1))
    with thread(k, 0):
        k.tensormap.copy(at, rows)
        if release is not None and late:
            k.fence.proxy_tensormap_release(release)
        k.tensormap.replace(at, "global_address", g[1])
        if release is not None and not late:
            k.fence.proxy_tensormap_release(release)
        k.mbarrier.arrive(ready)
    with thread(k, 1):
        if acquire is not None and early:
            k.fence.proxy_tensormap_acquire(at, acquire)
        if handed:
            k.mbarrier.wait(ready, 0)
        if acquire is not None and not early:
            k.fence.proxy_tensormap_acquire(maps[1] if other else at, acquire)
        k.mbarrier.arrive_expect_tx(b, 128)
        k.tma.load(rows, d, (0, 1, 0), b, at=at)
        k.mbarrier.wait(b, 0)
        k.mem.load(r, d[0, 0, 0])
        k.mem.store(out[0], r)


# The idiom of grouped products: one warp makes the map of the next group in shared memory, copies
# it to global memory with a release, acquires it, and loads; it waits until the copy before has
# read the map.
REPLACE = 'k.tensormap.replace(staged, "global_dim", size, 1)'
SIZES = [4, 2, 3]


@row("LB23", completes({"g": np.ones((3, 4, 8), dtype=int).tolist(), "sizes": SIZES},
                       out=[4, 2, 3]))  # fmt: skip
@row("LB23-waited", completes({"g": np.ones((3, 4, 8), dtype=int).tolist(), "sizes": SIZES},
                              out=[4, 2, 3]), read="full")  # fmt: skip
@row("LB23-acquire", fails(defect("proxy-fence", W0=("k.tensormap.cp_fenceproxy(", "k.tma.load("))),
     acquire=False)  # fmt: skip
@row("LB23-scope", fails(defect("proxy-fence", W0=("k.tensormap.cp_fenceproxy(", "k.tma.load("))),
     fence=False)  # fmt: skip
@row("LB23-read", fails(defect("race", W0=("k.tensormap.cp_fenceproxy(", "k.tma.load("))),
     read="")  # fmt: skip
@row(
    "LB23-lanes",
    fails(
        defect("race", W0=("k.tensormap.cp_fenceproxy(", REPLACE)),
        defect("race", W0=("k.tensormap.cp_fenceproxy(", "k.tma.load(")),
        also=("proxy-fence",),
    ),
    meet=False,
)
def grouped(
    k: Builder, *, acquire: bool = True, fence: bool = True,
    read: Literal["group", "full", ""] = "group", meet: bool = True,
) -> None:  # fmt: skip
    k.launch(warps=2)
    full, empty, g = k.mbarriers("full"), k.mbarriers("empty"), k.tensor("g", s32, (3, 4, 8))
    d, staged = k.shared("d", s32, (1, 4, 8)), k.shared("staged", u8, (128,))
    maps, other = k.tensor("maps", u8, (128,)), k.tensor("other", u8, (128,))
    rows, sizes = k.tensor_map(g, (1, 4, 8)), global_words(k, "sizes", 3)
    out = global_words(k, "out", 3)
    size, r, total = k.var("size"), k.var("r"), k.var("total")
    begin(k, (full, 1), (empty, 1))
    with k.role("W0", 0):
        with k.elected():
            k.tensormap.copy(staged, rows)
        with k.loop(3) as i:
            with k.elected(sync=meet):
                k.mem.load(size, sizes[i])
                k.tensormap.replace(staged, "global_address", g[i])
                k.tensormap.replace(staged, "global_dim", size, 1)
                if read == "group":
                    k.bulk.commit_group()
                    k.bulk.wait_group(0, read=True)
            if read == "full":
                k.mbarrier.wait(full, (i & 1) ^ 1)
            k.tensormap.cp_fenceproxy(maps, staged, "gpu")
            if acquire:
                k.fence.proxy_tensormap_acquire(maps if fence else other, "gpu")
            with k.elected():
                k.mbarrier.wait(empty, (i & 1) ^ 1)
                k.mbarrier.arrive_expect_tx(full, 128)
                k.tma.load(rows, d, (0, 0, 0), full, at=maps)
    with k.role("W1", 1), k.loop(3) as i:
        k.mbarrier.wait(full, i & 1)
        with k.elected():
            k.assign(total, 0)
            for line in range(4):
                k.mem.load(r, d[0, line, 0])
                k.assign(total, total + r)
            k.mem.store(out[i], total)
            k.fence.proxy_async()
            k.mbarrier.arrive(empty)


# Every number comes from the fields: two rows of four words, of a matrix with rows of 8 words.
@row("LB24", completes({"g": MATRIX}, out=[14, 24]), expected=32)
@row("LB24-bytes", fails(defect("deadlock", T0="k.mbarrier.wait(b, 0)")), expected=128)
@row("LB24-rank", fails(defect("uninitialised-read", T0="k.tma.load(")), left_out="rank")
@row("LB24-box", fails(defect("uninitialised-read", T0="k.tma.load(")), left_out="box_dim")
@row("LB24-type", fails(defect("uninitialised-read", T0="k.tma.load(")), left_out="elemtype")
@row("LB24-stride", fails(defect("out-of-bounds", T0="k.tma.load(")), stride=24)
@row("LB24-large", fails(defect("out-of-bounds", T0="k.tma.load(")), first=9, height=20)
@row("LB24-high", fails(defect("uninitialised-read", T0="k.tma.load(")), rank=2)
@row("LB24-low", fails(defect("out-of-bounds", T0="k.tma.load(")), rank=0)
def made(
    k: Builder, *, expected: int = 32, left_out: str = "", stride: int = 32, height: int = 3,
    rank: int = 1, first: int = 0,
) -> None:  # fmt: skip
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (4, 8)), k.tensor("g", s32, (10, 8))
    maps, rows, r = k.tensor("maps", u8, (128,)), k.tensor_map(g, (4, 8)), k.var("r")
    out = global_words(k, "out", 2)
    begin(k, (b, 1))
    with thread(k, 0):
        codes: tuple[tuple[Field, int], ...] = (
            ("rank", rank), ("elemtype", 3), ("interleave_layout", 0), ("swizzle_mode", 0),
            ("fill_mode", 0),
        )  # fmt: skip
        for field, value in codes:
            if field != left_out:
                k.tensormap.replace(maps, field, value)
        k.tensormap.replace(maps, "global_address", g[1, 0])
        k.tensormap.replace(maps, "global_stride", stride, 0)
        for ord, (box, dim) in enumerate(((4, 8), (2, height))):
            k.tensormap.replace(maps, "box_dim", box, ord) if left_out != "box_dim" else None
            k.tensormap.replace(maps, "global_dim", dim, ord)
            k.tensormap.replace(maps, "element_stride", 1, ord)
        k.fence.proxy_tensormap_release("cta")
        k.fence.proxy_tensormap_acquire(maps, "cta")
        k.mbarrier.arrive_expect_tx(b, expected)
        k.tma.load(rows, d, (first, 4), b, at=maps)
        k.mbarrier.wait(b, 0)
        for i, (line, column) in enumerate(((0, 0), (0, 4))):
            k.mem.load(r, d[line, column])
            k.mem.store(out[i], r)


@row("LB25", completes({"g": np.zeros((2, 4, 8), dtype=int).tolist()},
                       g=[[[0] * 8] * 4, [[7] * 8] * 2 + [[0] * 8] * 2]))  # fmt: skip
@row(
    "LB25-replaced",
    fails(defect("race", T0=("k.tma.store(", 'replace(maps, "rank"'))),
    waits=False,
)
def stored(k: Builder, *, waits: bool = True) -> None:
    k.launch(warps=1)
    s, g = k.shared("s", s32, (1, 4, 8)), k.tensor("g", s32, (2, 4, 8))
    maps, rows = k.tensor("maps", u8, (128,)), k.tensor_map(g, (1, 4, 8))
    with k.if_(k.thread_id < 8):
        for i in range(4):
            k.mem.store(s[0, i, k.thread_id], 7)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.tensormap.copy(maps, rows)
        k.tensormap.replace(maps, "global_address", g[1])
        k.tensormap.replace(maps, "global_dim", 2, 1)
        k.fence.proxy_tensormap_release("gpu")
        k.fence.proxy_tensormap_acquire(maps, "gpu")
        k.tma.store(rows, s, (0, 0, 0), at=maps)
        k.bulk.commit_group()
        if waits:
            k.bulk.wait_group(0, read=True)
        k.tensormap.replace(maps, "rank", 2)
        k.bulk.wait_group(0)


@row("LB26-shared", rejected("operand", "k.tma.load("), shared=True)
@row("LB26-code", rejected("operand", "k.tensormap.replace("), code=20)
@row("LB26-target", rejected("target", "k.tensormap.replace("), target="sm_90")
def operands(k: Builder, *, shared: bool = False, code: int = 3, target: str = "sm_90a") -> None:
    k.launch(warps=1, target=target)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (4, 8)), k.tensor("g", s32, (10, 8))
    place = k.shared("place", u8, (128,)) if shared else k.tensor("maps", u8, (128,))
    rows = k.tensor_map(g, (4, 8))
    begin(k, (b, 1))
    with thread(k, 0):
        k.tensormap.replace(place, "elemtype", code)
        k.mbarrier.arrive_expect_tx(b, 128)
        k.tma.load(rows, d, (0, 0), b, at=place)
        k.mbarrier.wait(b, 0)
