"""LITMUS section G for the other forms of tcgen05.mma: sparse, weight-stationary, f16 results;
and for operands of a product that are used again too early.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilesim import Builder, e4m3, f16, f32, u8, u32
from tilesim.arith.tensor_cores import pairs
from tilesim.ir.declarations import Mbarriers, SharedTensor
from tilesim.ir.expr import Var
from tilesim.ir.ops.tcgen05_mma import Kind

from .notation import begin, thread
from .table import completes, defect, fails, rejected, row
from .tcgen05 import FREED, RNG, finish, group

ROWS, COLUMNS, K = 128, 64, 16
A = RNG.integers(-3, 4, (ROWS, K))
B = RNG.integers(-3, 4, (COLUMNS, 2 * K))
INPUTS = {"ga": A, "gb": B}
#: of every four elements of A the first two are kept
KEPT_FIRST = 0x44444444
SPARSE = A @ B.reshape(COLUMNS, -1, 4)[:, :, :2].reshape(COLUMNS, K).T
DENSE = A @ B[:, :K].T
#: lanes that keep the zeros that were there
MASK = (0xFFFFFFFF, 0, 0, 0xFFFF0000)
ENABLED = np.array([not MASK[lane // 32] >> lane % 32 & 1 for lane in range(ROWS)])

#: the line of each form in `product_form`, and its result
FORMS = {
    "sp": ("k.tcgen05.mma_sp(d, s.a, s.b, fields)", SPARSE),
    "ws": ("k.tcgen05.mma_ws(d, s.a, dense)", DENSE),
    "masked": ("k.tcgen05.mma(d, s.a, dense, disable", np.where(ENABLED[:, None], DENSE, 0)),
    "scaled": ("k.tcgen05.mma(d, s.a, dense, scale", DENSE),
    "f16": ("k.tcgen05.mma(d, s.a, dense)  # f16", DENSE),
}
LD = "k.tcgen05.ld(acc, d)"


class Operands(NamedTuple):
    """A and B in shared memory, visible to every warp, and 128 columns of tensor memory."""

    a: SharedTensor
    b: SharedTensor
    address: Var


def operands(k: Builder, *barriers: tuple[Mbarriers, int]) -> Operands:
    """Fills A and B by TMA, allocates in warp 0, and tells every warp."""
    k.launch(warps=5, target="sm_100a")
    ga, gb = k.tensor("ga", f16, (ROWS, K)), k.tensor("gb", f16, (COLUMNS, 2 * K))
    a = k.shared("ta", f16, (ROWS, K), swizzle=32)
    b = k.shared("tb", f16, (COLUMNS, 2 * K), swizzle=64)
    map_a = k.tensor_map(ga, (ROWS, K), swizzle=32)
    map_b = k.tensor_map(gb, (COLUMNS, 2 * K), swizzle=64)
    slot, loaded, address = k.shared("slot", u32, (1,)), k.mbarriers("loaded"), k.var("address")
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 128)
    begin(k, (loaded, 1), *barriers)
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.arrive_expect_tx(loaded, map_a.box_bytes + map_b.box_bytes)
        k.tma.load(map_a, a, (0, 0), loaded)
        k.tma.load(map_b, b, (0, 0), loaded)
    k.mbarrier.wait(loaded, 0)
    k.mem.load(address, slot[0])
    return Operands(a, b, address)


@row("LG01-sp", completes(INPUTS, out=FORMS["sp"][1]), form="sp")
@row("LG01-ws", completes(INPUTS, out=FORMS["ws"][1]), form="ws")
@row("LG01-masked", completes(INPUTS, out=FORMS["masked"][1]), form="masked")
@row("LG01-scaled", completes(INPUTS, out=FORMS["scaled"][1]), form="scaled")
@row("LG01-f16", completes(INPUTS, out=FORMS["f16"][1]), form="f16")
@row(
    "LG05-sp",
    fails(defect("tcgen05-order", t=FORMS["sp"][0], WG=LD), also=FREED),
    form="sp", commit=False,
)  # fmt: skip
@row(
    "LG05-ws",
    fails(defect("tcgen05-order", t=FORMS["ws"][0], WG=LD), also=FREED),
    form="ws", commit=False,
)  # fmt: skip
@row(
    "LG05-masked",
    fails(defect("tcgen05-order", t=FORMS["masked"][0], WG=LD), also=FREED),
    form="masked", commit=False,
)  # fmt: skip
@row(
    "LG05-f16",
    fails(defect("tcgen05-order", t=FORMS["f16"][0], WG=LD), also=FREED),
    form="f16", commit=False,
)  # fmt: skip
@row(
    "LG09-metadata",
    fails(defect("tcgen05-order", t=FORMS["sp"][0], WG="k.tcgen05.st(fields, words)")),
    form="sp", wait=False,
)  # fmt: skip
def product_form(k: Builder, *, form: str, commit: bool = True, wait: bool = True) -> None:
    b, stored = k.mbarriers("b"), k.mbarriers("stored")
    s = operands(k, (b, 1), (stored, 128))
    dtype = f16 if form == "f16" else f32
    out, acc = (
        k.tensor("out", dtype, (ROWS, COLUMNS)),
        k.fragment("acc", dtype, (ROWS, COLUMNS), "warpgroup"),
    )
    words = k.fragment("words", u32, (ROWS, 1), "warpgroup")
    d = k.tcgen05.tensor(s.address, dtype, (ROWS, COLUMNS), name="d", packed=False)
    fields = k.tcgen05.tensor(s.address + COLUMNS, u32, (ROWS, 1), name="fields")
    dense = s.b[:, 0:K]
    with group(k):
        k.tile.fill(acc, 0)
        k.tcgen05.st(d, acc)
        k.tcgen05.wait_st()
        k.tile.fill(words, KEPT_FIRST)
        k.tcgen05.st(fields, words)
        if wait:
            k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(stored)
    with thread(k, 4, "t"):
        k.mbarrier.wait(stored, 0)
        k.tcgen05.fence_after_thread_sync()
        if form == "sp":
            k.tcgen05.mma_sp(d, s.a, s.b, fields)
        if form == "ws":
            k.tcgen05.mma_ws(d, s.a, dense)
        if form == "masked":
            k.tcgen05.mma(d, s.a, dense, disable_output_lane=MASK)
        if form == "scaled":
            k.tcgen05.mma(d, s.a, dense, scale_input_d=4)
        if form == "f16":
            k.tcgen05.mma(d, s.a, dense)  # f16
        if commit:
            k.tcgen05.commit(b)
        else:
            k.mbarrier.arrive(b)
    with group(k):
        k.mbarrier.wait(b, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(out, acc)
        if not wait:
            k.tcgen05.wait_st()
    finish(k, s.address)


SP = "k.tcgen05.mma_sp(d, s.a, s.b, fields, accumulate=0)"


# U19 is about scale factors; metadata are overwritten in the same way. A product that executes
# between two copies orders all that they write, if it reads some of it.
@row(
    "LG14-metadata",
    practice=completes(),
    ptx=fails(
        defect("tcgen05-order", t=(SP, 'k.tcgen05.cp(four, words, "128x128b")  # new')),
        defect(
            "tcgen05-order",
            t=(
                'k.tcgen05.cp(four, words, "128x128b")  # old',
                'k.tcgen05.cp(four, words, "128x128b")  # new',
            ),
        ),
    ),
)
@row("LG14-metadata-wait", completes(), wait=True)
@row(
    "LG14-metadata-of-others",
    fails(
        defect(
            "tcgen05-order",
            t=(
                'k.tcgen05.cp(four, words, "128x128b")  # old',
                'k.tcgen05.cp(four, words, "128x128b")  # new',
            ),
        )
    ),
    own=False,
)
def metadata_overwrite(k: Builder, *, wait: bool = False, own: bool = True) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = operands(k, (b, 1), (done, 1))
    words, fill = k.shared("words", u32, (ROWS, 4)), k.fragment("fill", u32, (ROWS, 4))
    with k.role("filler", 0):
        k.tile.fill(fill, KEPT_FIRST)
        k.tile.store(words, fill)
        k.fence.proxy_async()
    k.sync_threads()
    d = k.tcgen05.tensor(s.address, f32, (ROWS, COLUMNS), name="d")
    four = k.tcgen05.tensor(s.address + COLUMNS, u32, (ROWS, 4), name="four")
    others = k.tcgen05.tensor(s.address + COLUMNS + 4, u32, (ROWS, 4), name="others")
    fields = (four if own else others)[:, 0:1]
    with thread(k, 4, "t"):
        k.tcgen05.cp(others, words, "128x128b")
        k.tcgen05.cp(four, words, "128x128b")  # old
        k.tcgen05.mma_sp(d, s.a, s.b, fields, accumulate=0)
        if wait:
            k.tcgen05.commit(b)
            k.mbarrier.wait(b, 0)
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.cp(four, words, "128x128b")  # new
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@row(
    "LG12-tensor-arrive",
    fails(
        defect("tcgen05-order", t="k.tcgen05.mma(d, left, s.b[:, 0:K], accumulate=0)",
               WG="k.tcgen05.st(left, ones)  # new"),
        also=FREED,
    ),
    commit=False,
)  # fmt: skip
@row("LG12-tensor", completes())
def tensor_operand_release(k: Builder, *, commit: bool = True) -> None:
    """G17: A in tensor memory stays as it is until the product is complete."""
    full, empty, done = k.mbarriers("full"), k.mbarriers("empty"), k.mbarriers("done")
    s = operands(k, (full, 128), (empty, 1), (done, 1))
    d = k.tcgen05.tensor(s.address, f32, (ROWS, COLUMNS), name="d")
    left = k.tcgen05.tensor(s.address + COLUMNS, f16, (ROWS, K), name="left")
    ones = k.fragment("ones", f16, (ROWS, K), "warpgroup")
    with group(k):
        k.tile.fill(ones, 1)
        k.tcgen05.st(left, ones)
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(full)
    with thread(k, 4, "t"):
        k.mbarrier.wait(full, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, left, s.b[:, 0:K], accumulate=0)
        if commit:
            k.tcgen05.commit(empty)
        else:
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(empty)
        k.tcgen05.commit(done)
    with group(k):
        k.mbarrier.wait(empty, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.st(left, ones)  # new
        k.tcgen05.wait_st()
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


# What shipping code relies on is that operands may be replaced, not that results may (U19).
@row(
    "LG14-result",
    fails(
        defect(
            "tcgen05-order",
            t=(
                "k.tcgen05.mma(d, s.a, s.b[:, 0:K], accumulate=0)  # result",
                'k.tcgen05.cp(d[:, 0:4], words, "128x128b")',
            ),
        )
    ),
    wait=False,
)
@row("LG14-result-wait", completes())
def result_overwrite(k: Builder, *, wait: bool = True) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = operands(k, (b, 1), (done, 1))
    words = k.shared("words", f32, (ROWS, 4))
    with k.role("filler", 0):
        fill = k.fragment("fill", f32, (ROWS, 4))
        k.tile.fill(fill, 1)
        k.tile.store(words, fill)
        k.fence.proxy_async()
    k.sync_threads()
    d = k.tcgen05.tensor(s.address, f32, (ROWS, COLUMNS), name="d")
    with thread(k, 4, "t"):
        k.tcgen05.mma(d, s.a, s.b[:, 0:K], accumulate=0)  # result
        if wait:
            k.tcgen05.commit(b)
            k.mbarrier.wait(b, 0)
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.cp(d[:, 0:4], words, "128x128b")
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


#: 128 elements of e2m1 in a row, two in a byte
FOURS = RNG.integers(0, 256, (ROWS, 64))
EIGHTS = RNG.integers(-3, 4, (COLUMNS, 128))
MMA = "k.tcgen05.mma(d, a[:, part], b[:, part], "


@row("LG18", completes({"ga": FOURS, "gb": EIGHTS}, out=pairs(FOURS) @ EIGHTS.T))
@row("LG18-refill", fails(defect("race", t=(MMA, "# refill"))), refill=True)
@row(
    "LG18-read",
    fails(defect("tcgen05-order", t=MMA, WG="k.tcgen05.ld(acc, d)"), also=FREED),
    commit=False,
)
@row("LG18-kind", rejected("operand", MMA), kind="i8")
def elements_of_four_bits(
    k: Builder, *, kind: Kind = "f8f6f4", refill: bool = False, commit: bool = True
) -> None:
    """A of e2m1, which the copy spreads out as the product wants it: sixteen begin 16 bytes."""
    k.launch(warps=5, target="sm_100a")
    ga, gb = k.tensor("ga", u8, (ROWS, 64)), k.tensor("gb", e4m3, (COLUMNS, 128))
    a, b = (
        k.shared("a", u8, (ROWS, 128), swizzle=128),
        k.shared("b", e4m3, (COLUMNS, 128), swizzle=128),
    )
    fours = k.tensor_map(ga, (ROWS, 128), swizzle=128, packing="b4x16_p64")
    eights = k.tensor_map(gb, (COLUMNS, 128), swizzle=128)
    slot, address = k.shared("slot", u32, (1,)), k.var("address")
    loaded, done = k.mbarriers("loaded"), k.mbarriers("done")
    out, acc = (
        k.tensor("out", f32, (ROWS, COLUMNS)),
        k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup"),
    )
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 128)
    begin(k, (loaded, 1), (done, 1))
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, f32, (ROWS, COLUMNS), name="d")
    with thread(k, 4, "t"):
        k.mbarrier.arrive_expect_tx(loaded, fours.box_bytes + eights.box_bytes)
        k.tma.load(fours, a, (0, 0), loaded)
        k.tma.load(eights, b, (0, 0), loaded)
        k.mbarrier.wait(loaded, 0)
        for step in range(4):
            part = slice(32 * step, 32 * step + 32)
            k.tcgen05.mma(d, a[:, part], b[:, part], accumulate=step, kind=kind, a_type="e2m1")
        if refill:
            k.mbarrier.arrive_expect_tx(loaded, fours.box_bytes)
            k.tma.load(fours, a, (0, 0), loaded)  # refill
            k.mbarrier.wait(loaded, 1)
        if commit:
            k.tcgen05.commit(done)
        else:
            k.mbarrier.arrive(done)
    with group(k):
        k.mbarrier.wait(done, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(out, acc)
    finish(k, address)
