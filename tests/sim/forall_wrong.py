"""Kernels that are wrong for some values of their parameter only, and one of these values.

The reasons are those of real kernels: counters that wrap, sums of bytes and arrivals that leave
their range, tensors that end, tiles that are partial, rings that do not divide what they carry,
conditions that hold in one turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.sim.steady_programs import ring
from tilesim import Builder, s32, u8, u16, u32
from tilesim.ir.expr import Expr, as_expr, select
from tilesim.ir.program import Program

#: the parameter
Number = Any


@dataclass(frozen=True)
class Wrong:
    """A kernel that is wrong for the value ``bad``, if that is not refused."""

    name: str
    build: Callable[[Number], Program]
    bad: int


def _conditions() -> Iterator[tuple[str, Callable[[Expr, Number], Any], int]]:
    """Turns in which a stage is filled that may still be read, and a value with such a turn."""
    yield "late", lambda i, n: i.eq(9_999), 10_001
    yield "square", lambda i, n: (i * i).eq(4_000_000), 2_003
    yield "bits", lambda i, n: (i & 1_023).eq(1_023), 1_026
    yield "xor", lambda i, n: (i ^ 777).eq(0), 780
    yield "digits", lambda i, n: (i // 100).eq(5) & (i % 100).eq(3), 506
    yield "before the end", lambda i, n: i.eq(n - 300), 333
    yield "middle", lambda i, n: (2 * i).eq(n) & (i > 60), 124
    yield "coprime", lambda i, n: (i % 3).eq(2) & (i % 7).eq(6) & (i % 5).eq(4), 110
    yield "product wraps", lambda i, n: i * (1 << 22) < 0, 520
    yield "sum wraps", lambda i, n: i + ((1 << 31) - 700) < 0, 705
    yield "shifted", lambda i, n: (i >> 9).eq(1) & (i & 511).eq(0), 515
    yield "chosen", lambda i, n: select(i < 400, 1, i % 2).eq(0), 410
    yield "clamped", lambda i, n: select(i < 350, i, 350).eq(350), 360
    yield "modulo n", lambda i, n: i.eq(n % 97 + 60) & (as_expr(n % 97).eq(13)), 110
    yield "quotient of n", lambda i, n: i.eq(70) & as_expr(n // 128).eq(3), 400


def _faulty(holds: Callable[[Expr, Number], Any]) -> Callable[[Number], Program]:
    return lambda n: ring(n, faulty=lambda i: holds(i, n))


def counted(n: Number, dtype: Any, stages: int) -> Program:
    """A ring of which one side tells phases by a counter that wraps where the ring does not."""
    k = Builder("counted", warps=2)
    data = k.shared("data", s32, (stages, 32))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    with k.one_thread():
        for bar in (*full, *empty):
            k.mbarrier.init(bar, 32)
    k.sync_threads()
    for role, waits, arrives in (("producer", empty, full), ("consumer", full, empty)):
        first = int(role == "producer")
        with k.role(role, 1 - first):
            at = k.var(f"at{first}", 0, s32 if first else dtype)
            with k.loop(n):
                k.mbarrier.wait(waits[at % stages], (at // stages & 1) ^ first)
                if first:
                    k.mem.store(data[at % stages, k.lane_id], 7)
                else:
                    k.mem.load(k.var("value", 0), data[at % stages, k.lane_id])
                k.mbarrier.arrive(arrives[at % stages])
                k.assign(at, at + 1)
    return k.finish()


def summed(n: Number, *, each: int, apart: bool) -> Program:
    """All copies complete on one phase of one barrier: their bytes, expected one by one or before
    all of them, are too many at some time."""
    k = Builder("summed", "sm_90a", warps=1)
    source = k.tensor("source", s32, (each // 4,))
    data, bar = k.shared("data", s32, (each // 4,)), k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    with k.elected():
        if not apart:
            k.mbarrier.expect_tx(bar, each * n)
        with k.loop(n):
            if apart:
                k.mbarrier.expect_tx(bar, each)
            k.bulk.prefetch(source[0 : each // 4])
            k.mbarrier.complete_tx(bar, each)
        k.mbarrier.arrive(bar)
        k.mbarrier.wait(bar, 0)
    del data
    return k.finish()


def pending(n: Number, *, literal: bool) -> Program:
    """A barrier of ``n`` arrivals, each by itself or all by one instruction."""
    k = Builder("pending", warps=1)
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, n)
    k.sync_threads()
    with k.elected():
        if literal:
            k.mbarrier.arrive(bar, n)
        else:
            with k.loop(n):
                k.mbarrier.arrive(bar)
        k.mbarrier.wait(bar, 0)
    return k.finish()


def stores(
    n: Number, rows: Number, one: Callable[[Expr], Any], other: Callable[[Expr], Any],
    trips: Number = None,
) -> Program:  # fmt: skip
    """Two warps write rows of a tensor, each at places of its own, as they say."""
    k = Builder("stores", warps=2)
    out = k.tensor("out", s32, (rows, 32))
    for warp, row in enumerate((one, other)):
        with k.role(f"w{warp}", warp), k.loop(n if trips is None or not warp else trips) as i:
            k.mem.store(out[as_expr(row(i)), k.lane_id], 1)
    return k.finish()


def loads(n: Number, rows: Number, row: Callable[[Expr], Any], *, bulk: bool = False) -> Program:
    """A tensor is read that may end before the loop does."""
    k = Builder("loads", "sm_90a", warps=1)
    data, bar = k.shared("data", s32, (32,)), k.mbarriers("bar")
    source = k.tensor("source", s32, (rows, 32))
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    with k.role("w", 0), k.loop(n) as i:
        at = as_expr(row(i))
        if bulk:
            with k.elected():
                k.mbarrier.arrive_expect_tx(bar, 128)
                k.bulk.load(data, source[at], bar)
            k.mbarrier.wait(bar, i & 1)
        else:
            k.mem.load(k.var("value", 0), source[at, k.lane_id])
    return k.finish()


def drained(n: Number, stages: int) -> Program:
    """After the loop the last phase of each stage is waited for, which is another one where the
    ring does not divide the turns."""
    k = Builder("drained", warps=1)
    bars = k.mbarriers("bars", stages)
    with k.one_thread():
        for bar in bars:
            k.mbarrier.init(bar, 1)
    k.sync_threads()
    with k.elected():
        with k.loop(n) as i:
            k.mbarrier.arrive(bars[i % stages])
            k.mbarrier.wait(bars[i % stages], i // stages & 1)
        for stage in range(stages):
            k.mbarrier.wait(bars[stage], ((n + stages - 1) // stages - 1) & 1)
    return k.finish()


def nested(n: Number) -> Program:
    """A loop in a loop, the inner one as long as the outer one has turned: a stage that does not
    exist is written in one turn of both."""
    k = Builder("nested", warps=1)
    data = k.shared("data", s32, (2, 32))
    with k.role("w", 0), k.loop(n) as i, k.loop(i + 1) as j:
        k.mem.store(data[select((i + j).eq(90), 2, j % 2), k.lane_id], 1)
    return k.finish()


def periods(n: Number) -> Program:
    """Two warps that turn in different rings, and meet in one word where both are at their ends."""
    k = Builder("periods", warps=2)
    data = k.shared("data", s32, (40, 32))
    for warp, (ring_of, at) in enumerate(((7, 500), (11, 600))):
        with k.role(f"w{warp}", warp), k.loop(n) as i:
            place = select(i.eq(at), 39, 20 * warp + i % ring_of)
            k.mem.store(data[place, k.lane_id], 1)
    return k.finish()


def groups(n: Number) -> Program:
    """Of the groups of copies more stay pending than the ring has stages, from some turn on."""
    k = Builder("groups", warps=1)
    source, data = k.tensor("source", s32, (32,)), k.shared("data", s32, (3, 32))
    with k.role("w", 0), k.loop(n) as i:
        k.cp_async.copy(data[i % 3, k.lane_id], source[k.lane_id], size=4)
        k.cp_async.commit_group()
        with k.if_(i < 200):
            k.cp_async.wait_group(0)
    return k.finish()


def partial(n: Number) -> Program:
    """Tiles of eight rows, of which the last one may be partial, and is read whole."""
    return loads((n + 7) // 8, n, lambda i: i * 8 + 7)


def behind(n: Number, act: Callable[[Builder, Any, Number], None]) -> Program:
    """A register counts the turns of a loop, and is used behind it by the first of two warps."""
    k = Builder("behind", "sm_90a", warps=2)
    count = k.var("count", 0)
    with k.role("w0", 0), k.loop(n):
        k.assign(count, count + 1)
        k.bar.sync(1, 32)
    act(k, count, n)
    return k.finish()


def _added(k: Builder, count: Any, n: Number) -> None:
    """A place that is read and written by one instruction, and written by another warp."""
    sums = k.tensor("sums", u32, (n + 200, 32))
    with k.role("w0", 0):
        k.mem.atomic(sums[count, k.lane_id], "add", 1)
    with k.role("w1", 1):
        k.mem.store(sums[100, k.lane_id], 1)


def _copied(k: Builder, count: Any, n: Number) -> None:
    """One register says where in both memories; one of them ends."""
    source, data = k.tensor("source", s32, (n + 1, 4)), k.shared("data", s32, (64, 4))
    with k.role("w0", 0):
        k.cp_async.copy(data[count], source[count], size=16)
        k.cp_async.commit_group()
        k.cp_async.wait_group(0)


def _shuffled(k: Builder, count: Any, n: Number) -> None:
    """What a register had decides what is in it."""
    data = k.shared("data", s32, (100,))
    with k.role("w0", 0):
        k.mem.shuffle(count, count, 0)
        k.mem.store(data[count], 1)


def _pipelines() -> Iterator[Wrong]:
    yield Wrong("added to", lambda n: behind(n, _added), 100)
    yield Wrong("one register for two places", lambda n: behind(n, _copied), 64)
    yield Wrong("shuffled in place", lambda n: behind(n, _shuffled), 100)
    yield Wrong("counter of 8 bits", lambda n: counted(n, u8, 3), 270)
    yield Wrong("counter of 16 bits", lambda n: counted(n, u16, 3), 65_600)
    yield Wrong("bytes one by one", lambda n: summed(n, each=4_096, apart=True), 300)
    yield Wrong("bytes before all", lambda n: summed(n, each=4_096, apart=False), 300)
    yield Wrong("arrivals", lambda n: pending(n, literal=False), 1 << 20)
    yield Wrong("arrivals at once", lambda n: pending(n, literal=True), 1 << 20)
    yield Wrong("rows that meet", lambda n: stores(n, 2 * n, lambda i: i, lambda i: n - i), 9)
    yield Wrong("a fixed row", lambda n: stores(n, n + 900, lambda i: i, lambda i: 800, 1), 801)
    yield Wrong("strides", lambda n: stores(n, 6_000, lambda i: 2 * i, lambda i: 3_001 - i), 1_003)
    yield Wrong("store beyond", lambda n: stores(n, 700, lambda i: i, lambda i: 0, 0), 701)
    yield Wrong("load beyond", lambda n: loads(n, 400, lambda i: i), 401)
    yield Wrong("load beyond by one", lambda n: loads(n, n, lambda i: i + i // 300), 301)
    yield Wrong("bulk load beyond", lambda n: loads(n, 300, lambda i: i, bulk=True), 301)
    yield Wrong("partial tile", lambda n: partial(n + 7), 2)
    yield Wrong("drained", lambda n: drained(n + 2, 3), 2)
    yield Wrong("nested", nested, 60)
    yield Wrong("periods", periods, 700)
    yield Wrong("groups", groups, 210)


def all_wrong() -> list[Wrong]:
    """Each of them."""
    rings = [Wrong(name, _faulty(holds), bad) for name, holds, bad in _conditions()]
    return rings + list(_pipelines())
