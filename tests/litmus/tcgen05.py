"""LITMUS section G: tensor memory, tcgen05, its fences, CTA pairs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from tilesim import Builder, bf16, e4m3, f32, u8, u32
from tilesim.ir.declarations import Fragment, GlobalTensor, Mbarriers, SharedTensor, TensorMap
from tilesim.ir.expr import Var
from tilesim.ir.ops.mbarrier import ArriveSem
from tilesim.ir.tensor_memory import TmemView

from .notation import begin, thread
from .table import completes, defect, fails, row

RNG = np.random.default_rng(0)
N, K = 32, 16
INPUTS = {"ga": RNG.integers(-3, 4, (128, K)), "gb": RNG.integers(-3, 4, (N, K))}
PRODUCT = INPUTS["ga"] @ INPUTS["gb"].T
ONES = np.ones((128, K)) @ INPUTS["gb"].T
#: defects may leave the columns in use when they are freed
FREED = ("tmem-lifetime",)
SECOND_CP = 'multicast="warpx4")  # new'


class Setup(NamedTuple):
    """A and B in shared memory, their maps, 128 columns of tensor memory, and the output."""

    a: SharedTensor
    b: SharedTensor
    map_a: TensorMap
    address: Var
    acc: Fragment
    out: GlobalTensor

    def at(self, k: Builder, column: int, name: str = "d") -> TmemView:
        """An accumulator at a column of the allocation."""
        return k.tcgen05.tensor(self.address + column, f32, (128, N), name=name)


def setup(k: Builder, *barriers: tuple[Mbarriers, int], warps: int = 5) -> Setup:
    """Fills A and B by TMA, allocates 128 columns in warp 0, and tells every warp."""
    k.launch(warps=warps, target="sm_100a")
    ga, gb = k.tensor("ga", bf16, (128, K)), k.tensor("gb", bf16, (N, K))
    a, b = k.shared("ta", bf16, (128, K), swizzle=32), k.shared("tb", bf16, (N, K), swizzle=32)
    map_a, map_b = k.tensor_map(ga, (128, K), swizzle=32), k.tensor_map(gb, (N, K), swizzle=32)
    slot, loaded = k.shared("slot", u32, (1,)), k.mbarriers("loaded")
    out, acc = k.tensor("out", f32, (128, N)), k.fragment("acc", f32, (128, N), "warpgroup")
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 128)
    begin(k, (loaded, 1), *barriers)
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.arrive_expect_tx(loaded, map_a.box_bytes + map_b.box_bytes)
        k.tma.load(map_a, a, (0, 0), loaded)
        k.tma.load(map_b, b, (0, 0), loaded)
    k.mbarrier.wait(loaded, 0)
    address = k.var("address", dtype=u32)
    k.mem.load(address, slot[0])
    return Setup(a, b, map_a, address, acc, out)


def finish(k: Builder, address: Var) -> None:
    """Everybody is done with the columns; warp 0 frees them."""
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 128)
        k.tcgen05.relinquish_alloc_permit()


@contextmanager
def group(k: Builder) -> Iterator[None]:
    """``WG``: warps 0 to 3, which reach all lanes together."""
    with k.role("WG", range(4)):
        yield


MMA = "k.tcgen05.mma(d, s.a, s.b, accumulate=0)"
LD = "k.tcgen05.ld(s.acc, d)"


@row("LG01", completes(INPUTS, out=PRODUCT))
@row("LG05", fails(defect("tcgen05-order", t=MMA, WG=LD), also=FREED), commit=False, handoff="none")
# U31: the fence orders but does not complete.
@row(
    "LG05-fence",
    fails(defect("tcgen05-order", t=MMA, WG=LD), also=FREED),
    commit=False,
    handoff="fb",
)
@row(
    "LG06",
    practice=completes(INPUTS, out=PRODUCT),
    ptx=fails(defect("tcgen05-order", t=MMA, WG=LD), also=FREED),
    after=False,
)
@row("LG06-relaxed", completes(INPUTS, out=PRODUCT), relaxed=True)
@row(
    "LG06-relaxed-no-fence",
    fails(defect("tcgen05-order", t=MMA, WG=LD), also=FREED),
    relaxed=True, after=False,
)  # fmt: skip
def full_life(
    k: Builder, *, commit: bool = True, handoff: str = "", after: bool = True, relaxed: bool = False
) -> None:
    b = k.mbarriers("b")
    s = setup(k, (b, 1))
    d = s.at(k, 0)
    with thread(k, 4, "t"):
        k.tcgen05.mma(d, s.a, s.b, accumulate=0)
        if commit:
            k.tcgen05.commit(b)
        if handoff == "fb":
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(b)
    with group(k):
        if handoff != "none":
            k.mbarrier.wait(b, 0, sem="relaxed" if relaxed else "acquire", scope="cluster")
        if after:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(s.acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(s.out, s.acc)
    finish(k, s.address)


class Scaled(NamedTuple):
    """Block-scaled operands in shared memory, and their scale factors."""

    x: SharedTensor
    y: SharedTensor
    factors: SharedTensor


def scaled(k: Builder) -> Scaled:
    """Fills block-scaled operands by TMA and waits for them in every warp."""
    x = k.shared("x", e4m3, (128, 32), swizzle=32)
    y = k.shared("y", e4m3, (N, 32), swizzle=32)
    factors, ready = k.shared("factors", u8, (32, 16)), k.mbarriers("ready")
    gx, gy = k.tensor("gx", e4m3, (128, 32)), k.tensor("gy", e4m3, (N, 32))
    gf = k.tensor("gf", u8, (32, 16))
    map_x, map_y = k.tensor_map(gx, (128, 32), swizzle=32), k.tensor_map(gy, (N, 32), swizzle=32)
    begin(k, (ready, 1))
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.arrive_expect_tx(ready, map_x.box_bytes + map_y.box_bytes + 512)
        k.tma.load(map_x, x, (0, 0), ready)
        k.tma.load(map_y, y, (0, 0), ready)
        k.bulk.load(factors, gf, ready)
    k.mbarrier.wait(ready, 0)
    return Scaled(x, y, factors)


@row("LG07", completes())
@row(
    "LG07-no-fences",
    fails(defect("tcgen05-order", T0="k.tcgen05.cp(", T1="k.tcgen05.mma("), also=FREED),
    fences=False,
)
@row(
    "LG07-no-fences-release",
    practice=completes(),
    ptx=fails(defect("tcgen05-order", T0="k.tcgen05.cp(", T1="k.tcgen05.mma("), also=FREED),
    fences=False, sem="release",
)  # fmt: skip
def pipelined_other_thread(k: Builder, *, fences: bool = True, sem: ArriveSem = "relaxed") -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    q = scaled(k)
    d, both = s.at(k, 0), k.tcgen05.tensor(s.address + 64, u8, (32, 16), name="scales")
    with thread(k, 0):
        k.tcgen05.cp(both, q.factors, "32x128b", multicast="warpx4")
        if fences:
            k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(b, sem=sem, scope="cluster")
    with thread(k, 1):
        k.mbarrier.wait(b, 0, sem="acquire" if sem == "release" else "relaxed", scope="cluster")
        if fences:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, q.x, q.y, kind="mxf8f6f4", accumulate=0, scale_a=both, scale_b=both)
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@row(
    "LG08",
    fails(defect("tcgen05-order", WG=LD, t=MMA), also=FREED),
    wait=False,
)
@row("LG08-wait", completes(INPUTS, out=0))
@row(
    "LG08-no-fences",
    practice=completes(INPUTS, out=0),
    ptx=fails(
        defect("tcgen05-order", WG=LD, t=MMA),
        defect("tcgen05-order", WG="k.tcgen05.st(d, s.acc)", t=MMA),
        also=FREED,
    ),
    fences=False,
)
def load_then_overwrite(k: Builder, *, wait: bool = True, fences: bool = True) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 128), (done, 1))
    d = s.at(k, 0)
    with group(k):
        k.tile.fill(s.acc, 0)
        k.tcgen05.st(d, s.acc)
        k.tcgen05.wait_st()
        k.tcgen05.ld(s.acc, d)
        if wait:
            k.tcgen05.wait_ld()
        if fences:
            k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(b)
        k.tile.store(s.out, s.acc)
    with thread(k, 4, "t"):
        k.mbarrier.wait(b, 0)
        if fences:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, s.a, s.b, accumulate=0)
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@row("LG09", completes(INPUTS, out=2 * PRODUCT))
def accumulator_chain(k: Builder) -> None:
    b = k.mbarriers("b")
    s = setup(k, (b, 1))
    d = s.at(k, 0)
    with thread(k, 4, "t"):
        k.tcgen05.mma(d, s.a, s.b, accumulate=0)
        k.tcgen05.mma(d, s.a, s.b)
        k.tcgen05.commit(b)
    with group(k):
        k.mbarrier.wait(b, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(s.acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(s.out, s.acc)
    finish(k, s.address)


@row(
    "LG09-chained",
    fails(
        defect(
            "tcgen05-order",
            t=("k.tcgen05.mma(first, s.a, s.b, accumulate=0)", "k.tcgen05.mma(second,"),
        )
    ),
)
@row("LG09-chained-wait", completes(), wait=True)
def product_of_product(k: Builder, *, wait: bool = False) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    first, second = s.at(k, 0, "first"), s.at(k, 64, "second")
    left = first[:, 0:8].cast(bf16, 16)
    with thread(k, 4, "t"):
        k.tcgen05.mma(first, s.a, s.b, accumulate=0)
        if wait:
            k.tcgen05.commit(b)
            k.mbarrier.wait(b, 0)
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(second, left, s.b, accumulate=0)
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@row(
    "LG09-store",
    fails(
        defect("tcgen05-order", WG="k.tcgen05.st(left, ones)", t="k.tcgen05.mma(d, left, s.b,"),
    ),
    wait=False,
)
@row("LG09-store-wait", completes(INPUTS, out=ONES))
@row(
    "LG09-store-no-fences",
    practice=completes(INPUTS, out=ONES),
    ptx=fails(
        defect("tcgen05-order", WG="k.tcgen05.st(left, ones)", t="k.tcgen05.mma(d, left, s.b,"),
    ),
    fences=False,
)
def stored_operand(k: Builder, *, wait: bool = True, fences: bool = True) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 128), (done, 1))
    d, left = s.at(k, 0), k.tcgen05.tensor(s.address + 64, bf16, (128, K), name="left")
    ones = k.fragment("ones", bf16, (128, K), "warpgroup")
    with group(k):
        k.tile.fill(ones, 1)
        k.tcgen05.st(left, ones)
        if wait:
            k.tcgen05.wait_st()
        if fences:
            k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(b)
    with thread(k, 4, "t"):
        k.mbarrier.wait(b, 0)
        if fences:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, left, s.b, accumulate=0)
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    with group(k):
        k.tcgen05.ld(s.acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(s.out, s.acc)
        if not wait:
            k.tcgen05.wait_st()
    finish(k, s.address)


@row("LG10", fails(defect("tcgen05-order", t=MMA, WG=LD), also=FREED))
@row("LG10-own", completes(INPUTS, out=PRODUCT), committer=4)
# "Same with a commit after only ld/st": it tracks neither.
@row(
    "LG10-load",
    fails(defect("tcgen05-order", WG=LD, t2="k.tcgen05.st(d, s.acc)"), also=FREED),
    committer=-1,
)
def commit_tracks_own(k: Builder, *, committer: int = 5) -> None:
    b = k.mbarriers("b")
    s = setup(k, (b, 1), warps=8)
    d = s.at(k, 0)
    if committer >= 0:
        with thread(k, 4, "t"):
            k.tcgen05.mma(d, s.a, s.b, accumulate=0)
            if committer == 4:
                k.tcgen05.commit(b)
        k.sync_threads()
        if committer != 4:
            with thread(k, committer, "t2"):
                k.tcgen05.commit(b)
    else:
        with k.role("t2", range(4, 8)):
            k.tile.fill(s.acc, 0)
            k.tcgen05.st(d, s.acc)
        with k.role("t2", 4), k.elected():
            k.tcgen05.commit(b)
        k.sync_threads()
    with group(k):
        k.mbarrier.wait(b, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(s.acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(s.out, s.acc)
    finish(k, s.address)


@row(
    "LG11",
    fails(
        defect("tcgen05-order", W4=MMA, WG=LD),
        defect("deadlock"),
        defect("phase-alias"),
        defect("phase-ambiguity"),
        also=(*FREED, "over-arrival"),
    ),
)
@row("LG11-elected", completes(INPUTS, out=PRODUCT), wide=False)
def warp_wide_commit(k: Builder, *, wide: bool = True) -> None:
    b = k.mbarriers("b")
    s = setup(k, (b, 1))
    d = s.at(k, 0)
    with k.role("W4", 4):
        with k.elected():
            k.tcgen05.mma(d, s.a, s.b, accumulate=0)
            if not wide:
                k.tcgen05.commit(b)
        if wide:
            k.tcgen05.commit(b)
    with group(k):
        k.mbarrier.wait(b, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(s.acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(s.out, s.acc)
    finish(k, s.address)


@row(
    "LG12-arrive",
    fails(defect("race", t=MMA, T1="k.tma.load(s.map_a, s.a, (0, 0), refill)")),
    commit=False,
)
@row("LG12", completes())
def slot_release(k: Builder, *, commit: bool = True) -> None:
    empty, refill, done = k.mbarriers("empty"), k.mbarriers("refill"), k.mbarriers("done")
    s = setup(k, (empty, 1), (refill, 1), (done, 1))
    d = s.at(k, 0)
    with thread(k, 4, "t"):
        k.tcgen05.mma(d, s.a, s.b, accumulate=0)
        if commit:
            k.tcgen05.commit(empty)
        else:
            k.mbarrier.arrive(empty)
        k.tcgen05.commit(done)
    with thread(k, 1):
        k.mbarrier.wait(empty, 0)
        k.mbarrier.arrive_expect_tx(refill, s.map_a.box_bytes)
        k.tma.load(s.map_a, s.a, (0, 0), refill)
        k.mbarrier.wait(refill, 0)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@row("LG13", fails(defect("proxy-fence", WG="k.tile.store(s.a, ones)", t=MMA)), fence=False)
@row("LG13-fence", completes(INPUTS, out=ONES))
def generic_operand(k: Builder, *, fence: bool = True) -> None:
    b = k.mbarriers("b")
    s = setup(k, (b, 1))
    d, ones = s.at(k, 0), k.fragment("ones", bf16, (128, K), "warpgroup")
    with group(k):
        k.tile.fill(ones, 1)
        k.tile.store(s.a, ones)
        if fence:
            k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 4, "t"):
        k.tcgen05.mma(d, s.a, s.b, accumulate=0)
        k.tcgen05.commit(b)
    with group(k):
        k.mbarrier.wait(b, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(s.acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(s.out, s.acc)
    finish(k, s.address)


@row(
    "LG14",
    practice=completes(),
    ptx=fails(
        defect(
            "tcgen05-order",
            t=('k.tcgen05.mma(d, q.x, q.y, kind="mxf8f6f4", accumulate=0,', SECOND_CP),
        ),
        defect(
            "tcgen05-order",
            t=('k.tcgen05.cp(both, q.factors, "32x128b", multicast="warpx4")  # old', SECOND_CP),
        ),
    ),
)
@row("LG14-wait", completes(), wait=True)
def scale_overwrite(k: Builder, *, wait: bool = False) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    q = scaled(k)
    d, both = s.at(k, 0), k.tcgen05.tensor(s.address + 64, u8, (32, 16), name="scales")
    with thread(k, 4, "t"):
        k.tcgen05.cp(both, q.factors, "32x128b", multicast="warpx4")  # old
        k.tcgen05.mma(d, q.x, q.y, kind="mxf8f6f4", accumulate=0, scale_a=both, scale_b=both)
        if wait:
            k.tcgen05.commit(b)
            k.mbarrier.wait(b, 0)
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.cp(both, q.factors, "32x128b", multicast="warpx4")  # new
        k.tcgen05.mma(d, q.x, q.y, kind="mxf8f6f4", scale_a=both, scale_b=both)
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)
