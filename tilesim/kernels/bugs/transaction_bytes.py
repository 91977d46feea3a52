"""Bytes expected on an mbarrier that are not the bytes its copies complete.

* `broadcast_operand` (B026): the byte count multiplies, or forgets, an operand.
* `guarded_expect` (B030): the expectation is executed by one thread per warp instead of one.
* `half_migrated` (B031): a copy's implicit ``arrive.expect_tx`` became the caller's, by half.
* `multicast` (B031): all bytes of a multicast expected by its issuer.
* `plain_arrive` (B034): the arrival is there, the expectation is not.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.ir.expr import as_expr
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

WARPS = 4
#: rows per consuming warp
ROWS = 16
HEIGHT = WARPS * ROWS
COLUMNS = 32

Count = Literal["broadcast", "forgotten", "right"]
Api = Literal["implicit", "explicit", "count kept", "no arrival"]


def _sum(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["A"] + inputs["B"]}


def _biased(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"] + inputs["bias"]}


def _twice(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": np.concatenate([inputs["X"], inputs["X"]])}


def _copy(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"].copy()}


@kernel(warps=WARPS + 1, family="bugs", reference=_biased)
def broadcast_operand(
    k: Builder, *, tiles: int = 3, stages: int = 2, count: Count = "broadcast"
) -> None:
    """NVIDIA/Fuser #3088: the expected bytes count a broadcast dimension.

    A tile of X and one row of the bias, which is broadcast over the tile's rows, arrive on one
    barrier. Multiplying all extents gives the bias the size of the tile (``broadcast``), more bytes
    than are copied: the phase never completes. If the count leaves the bias out (``forgotten``),
    the phase completes with the tile alone should it land first, and the bias is read while it is
    in flight; should the bias land first, the two never balance and the phase stays open.

    Fix: the bytes that are copied; broadcast dimensions are not part of the product (``right``).
    """
    X = k.tensor("X", f32, (HEIGHT * tiles, COLUMNS))
    bias = k.tensor("bias", f32, (COLUMNS,))
    Y = k.tensor("Y", f32, (HEIGHT * tiles, COLUMNS))
    x_map = k.tensor_map(X, (HEIGHT, COLUMNS))
    tile = k.shared("tile", f32, (stages, HEIGHT, COLUMNS))
    row = k.shared("row", f32, (stages, COLUMNS))
    pipe = Pipeline(k, stages, consumers=WARPS)
    total = k.fragment("total", f32, (1, COLUMNS))
    shift = k.fragment("shift", f32, (1, COLUMNS))
    bytes_of_bias = {"broadcast": HEIGHT * bias.nbytes, "forgotten": 0, "right": bias.nbytes}

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("producer", WARPS), k.elected(), k.loop(tiles) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(x_map.box_bytes + bytes_of_bias[count])  # BUG: but for the right count
        k.tma.load(x_map, tile[slot.stage], (i * HEIGHT, 0), slot.full)
        k.bulk.load(row[slot.stage], bias[ds(0, COLUMNS)], slot.full)

    with k.role("consumer", range(WARPS)), k.loop(tiles) as i:
        slot = pipe[i]
        slot.wait()
        k.tile.load(shift, row[slot.stage])
        with k.loop(ROWS, name="r") as r:
            here = k.warp_id * ROWS + r
            k.tile.load(total, tile[slot.stage, here])
            k.tile.zip(total, "add", total, shift)
            k.tile.store(Y[i * HEIGHT + here], total)
        k.fence.proxy_async("shared::cta")  # the reads, before the next copies' writes
        with k.elected():
            slot.release()


@kernel(warps=2 * WARPS, family="bugs", reference=_copy)
def guarded_expect(k: Builder, *, tiles: int = 3, stages: int = 2, fixed: bool = False) -> None:
    """tile-ai/tilelang #1908 (review): ``expect_tx`` under a guard that selects several threads.

    The pass accepts any equality that mentions the thread index as "one thread". Under
    ``threadIdx.x % 32 == 0`` each of the producer's four warps expects the bytes of the one copy
    that thread 0 issues: four times the bytes, so the phase never completes.

    Fix: a guard that selects exactly one thread, the one that copies.
    """
    X = k.tensor("X", f32, (HEIGHT * tiles, COLUMNS))
    Y = k.tensor("Y", f32, (HEIGHT * tiles, COLUMNS))
    x_map = k.tensor_map(X, (HEIGHT, COLUMNS))
    buffer = k.shared("buffer", f32, (stages, HEIGHT, COLUMNS))
    pipe = Pipeline(k, stages, consumers=WARPS)
    part = k.fragment("part", f32, (ROWS, COLUMNS))

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("producer", range(WARPS)), k.loop(tiles) as i:
        slot = pipe[i]
        one = k.thread_id.eq(0)
        with k.if_(one if fixed else (k.thread_id % 32).eq(0)):
            slot.acquire()
            k.mbarrier.expect_tx(slot.full, x_map.box_bytes)  # BUG: once per warp
        with k.if_(one):
            k.tma.load(x_map, buffer[slot.stage], (i * HEIGHT, 0), slot.full)
            slot.commit()

    with k.role("consumer", range(WARPS, 2 * WARPS)), k.loop(tiles) as i:
        slot = pipe[i]
        row = (k.warp_id - WARPS) * ROWS
        slot.wait()
        k.tile.load(part, buffer[slot.stage][ds(row, ROWS), :])
        k.fence.proxy_async("shared::cta")  # the reads, before the next copy's writes
        with k.elected():
            slot.release()
        k.tile.store(Y[ds(i * HEIGHT + row, ROWS), :], part)


@kernel(warps=WARPS + 1, family="bugs", reference=_sum)
def half_migrated(k: Builder, *, api: Api = "count kept") -> None:
    """NVIDIA/tilus #88: which arrives, the copy or its caller?

    At first every copy did its own ``arrive.expect_tx``, and the barrier of two operands had a
    count of two (``implicit``). Then copies stopped arriving: the caller initialises the barrier
    with a count of one and arrives with the sum of the bytes (``explicit``). A caller that keeps
    the count of two (``count kept``) or does not arrive (``no arrival``) hangs.

    Fix: a count of one and one ``arrive.expect_tx`` with the sum.
    """
    A = k.tensor("A", f32, (HEIGHT, COLUMNS))
    B = k.tensor("B", f32, (HEIGHT, COLUMNS))
    Y = k.tensor("Y", f32, (HEIGHT, COLUMNS))
    a_map = k.tensor_map(A, (HEIGHT, COLUMNS))
    b_map = k.tensor_map(B, (HEIGHT, COLUMNS))
    sA = k.shared("sA", f32, (HEIGHT, COLUMNS))
    sB = k.shared("sB", f32, (HEIGHT, COLUMNS))
    full = k.mbarriers("full")
    a = k.fragment("a", f32, (ROWS, COLUMNS))
    b = k.fragment("b", f32, (ROWS, COLUMNS))

    with k.one_thread():
        k.mbarrier.init(full, 2 if api in ("implicit", "count kept") else 1)
    k.sync_threads()

    with k.role("producer", WARPS), k.elected():
        if api in ("explicit", "count kept"):
            # BUG (count kept): the second arrival of the count of two is nowhere
            k.mbarrier.arrive_expect_tx(full, a_map.box_bytes + b_map.box_bytes)
        for tensor_map, target in ((a_map, sA), (b_map, sB)):
            if api == "implicit":
                k.mbarrier.arrive_expect_tx(full, tensor_map.box_bytes)
            k.tma.load(tensor_map, target, (0, 0), full)

    with k.role("consumer", range(WARPS)):
        mine = ds(k.warp_id * ROWS, ROWS)
        k.mbarrier.wait(full, 0)  # BUG (no arrival): nothing ever arrives
        k.tile.load(a, sA[mine, :])
        k.tile.load(b, sB[mine, :])
        k.tile.zip(a, "add", a, b)
        k.tile.store(Y[mine, :], a)


@kernel(warps=WARPS + 1, family="bugs", reference=_twice)
def multicast(k: Builder, *, senders: int = 1, fixed: bool = False) -> None:
    """NVIDIA/tilus #88: a multicast whose issuer expects the bytes of all destinations.

    The old copy expected ``popc(mask) * bytes`` on the issuing CTA's barrier and nothing on the
    others. A multicast completes ``bytes`` on the barrier of *every* CTA of the mask. The sums
    agree only if every CTA of the mask multicasts a slice of its own (``senders=2``). With one
    sender it waits for bytes that go elsewhere, and its peer for an arrival that no thread makes.

    Fix: every CTA expects the bytes that land in its own shared memory.
    """
    ctas = 2
    k.launch(grid=ctas, cluster=ctas)
    X = k.tensor("X", f32, (HEIGHT, COLUMNS))
    Y = k.tensor("Y", f32, (ctas * HEIGHT, COLUMNS))
    x_map = k.tensor_map(X, (HEIGHT // senders, COLUMNS))
    tile = k.shared("tile", f32, (HEIGHT, COLUMNS))
    full = k.mbarriers("full")
    part = k.fragment("part", f32, (ROWS, COLUMNS))

    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()

    with k.role("producer", WARPS), k.elected():
        sends = k.cluster_rank < senders
        with k.if_(as_expr(True) if fixed else sends):
            landing = senders if fixed else ctas  # BUG: popc(mask), whatever else sends
            k.mbarrier.arrive_expect_tx(full, landing * x_map.box_bytes)
        with k.if_(sends):
            row = k.cluster_rank * (HEIGHT // senders)
            slice_ = tile[ds(row, HEIGHT // senders), :]
            k.tma.load(x_map, slice_, (row, 0), full, multicast=(1 << ctas) - 1)

    with k.role("consumer", range(WARPS)):
        k.mbarrier.wait(full, 0)
        k.tile.load(part, tile[ds(k.warp_id * ROWS, ROWS), :])
        k.tile.store(Y[ds(k.cta_x * HEIGHT + k.warp_id * ROWS, ROWS), :], part)
    k.cluster.sync()  # no CTA leaves while copies into its shared memory are in flight


@kernel(warps=WARPS + 1, family="bugs", reference=_copy)
def plain_arrive(k: Builder, *, tiles: int = 4, stages: int = 2, fixed: bool = False) -> None:
    """tile-ai/tilelang #241: the producer arrives, but expects no bytes.

    An uninitialised flag made the pass drop ``expect_tx``. The arrival completes the phase at once:
    consumers read the stage while the copy is in flight, and its bytes count for a later phase.

    Fix: ``arrive.expect_tx`` with the bytes of the copy.
    """
    X = k.tensor("X", f32, (HEIGHT * tiles, COLUMNS))
    Y = k.tensor("Y", f32, (HEIGHT * tiles, COLUMNS))
    x_map = k.tensor_map(X, (HEIGHT, COLUMNS))
    buffer = k.shared("buffer", f32, (stages, HEIGHT, COLUMNS))
    pipe = Pipeline(k, stages, consumers=WARPS)
    part = k.fragment("part", f32, (ROWS, COLUMNS))

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("producer", WARPS), k.elected(), k.loop(tiles) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(x_map.box_bytes if fixed else None)  # BUG: no bytes are expected
        k.tma.load(x_map, buffer[slot.stage], (i * HEIGHT, 0), slot.full)

    with k.role("consumer", range(WARPS)), k.loop(tiles) as i:
        slot = pipe[i]
        slot.wait()
        k.tile.load(part, buffer[slot.stage][ds(k.warp_id * ROWS, ROWS), :])
        k.fence.proxy_async("shared::cta")  # the reads, before the next copy's writes
        with k.elected():
            slot.release()
        k.tile.store(Y[ds(i * HEIGHT + k.warp_id * ROWS, ROWS), :], part)


_FIXED = {"fixed": True}
_DEADLOCK = frozenset({"deadlock"})

CASES = (
    Case(
        broadcast_operand, {}, "bugs", "failed", _DEADLOCK, source="B026", note="too many bytes"
    ),
    Case(
        broadcast_operand, {"count": "forgotten"}, "bugs", "failed",
        frozenset({"race", "deadlock"}), source="B026",
        note="too few bytes; which of the two copies lands first decides between the two",
    ),
    Case(broadcast_operand, {"count": "right"}, "bugs", "proved", source="B026"),
    Case(guarded_expect, {}, "bugs", "failed", _DEADLOCK, source="B030"),
    Case(guarded_expect, _FIXED, "bugs", "proved", source="B030"),
    Case(half_migrated, {}, "bugs", "failed", _DEADLOCK, source="B031", note="half-migrated (i)"),
    Case(
        half_migrated, {"api": "no arrival"}, "bugs", "rejected", _DEADLOCK, source="B031",
        note="half-migrated (ii): visible before the kernel runs",
    ),
    Case(half_migrated, {"api": "implicit"}, "bugs", "proved", source="B031", note="before"),
    Case(half_migrated, {"api": "explicit"}, "bugs", "proved", source="B031", note="after"),
    Case(multicast, {}, "bugs", "failed", _DEADLOCK, source="B031", note="one CTA sends"),
    Case(
        multicast, {"senders": 2}, "bugs", "proved", source="B031",
        note="hidden: every CTA of the mask sends a slice",
    ),
    Case(multicast, _FIXED, "bugs", "proved", source="B031"),
    Case(multicast, {**_FIXED, "senders": 2}, "bugs", "proved", source="B031"),
    Case(plain_arrive, {}, "bugs", "failed", frozenset({"race"}), source="B034"),
    Case(plain_arrive, _FIXED, "bugs", "proved", source="B034"),
)  # fmt: skip
