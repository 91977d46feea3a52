"""Cluster launch control: which warp reads an answer, until when, and what a failure means."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tilesim.arith.types import s32, u32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

READERS = 2
STORE = range(3, 7)

Mistake = Literal["none", "unpublished", "early", "uncounted"]


def _numbers(inputs: Arrays, *, tiles: int = 9, **params: Any) -> Arrays:
    return {"done": np.arange(1, tiles + 1, dtype=np.int32)}


@kernel(target="sm_100a", warps=1 + READERS, family="bugs", reference=_numbers)
def answer(k: Builder, *, tiles: int = 9, arrive: str = "after", fence: bool = True) -> None:
    """tile-ai/tilelang #2423 (B009); facebookexperimental/triton #1723 (B040).

    The last warp asks for tiles, the others read the answers. B009: the readers give the slot back
    before they read it (``arrive="before"``), and the next answer overwrites it. B040: they read
    and give back without a proxy fence (``fence`` off); the answer is an asynchronous write, so by
    the text the reads before it need one.

    Fix: read, ``fence.proxy.async``, arrive.
    """
    k.launch(grid=tiles)
    done = k.tensor("done", s32, (tiles,))
    response = k.shared("response", u32, (4,))
    pipe = Pipeline(k, 1, name="answer", consumers=READERS + 1)
    x, more, count = k.var("x", k.cta_x), k.var("more", 1), k.var("count", 0)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    slot = pipe[count]
    with k.while_(more.ne(0)):
        with k.role("scheduler", READERS), k.elected():
            slot.acquire()
            slot.commit(16)
            k.clc.try_cancel(response, slot.full)
        with k.role("worker", 0), k.elected():
            k.mem.store(done[x], x + 1)
        slot.wait()
        if arrive == "before":
            with k.elected():
                slot.release()
        k.clc.query_is_canceled(more, response)  # BUG: the slot may be overwritten
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(x, response)
        if fence:
            k.fence.proxy_async("shared::cta")
        if arrive == "after":
            with k.elected():
                slot.release()
        k.assign(count, count + 1)


def _marks(inputs: Arrays, *, tiles: int = 6, **params: Any) -> Arrays:
    return {"done": np.tile(np.arange(1, tiles + 1, dtype=np.int32), (len(STORE), 1))}


@kernel(target="sm_100a", warps=3 + len(STORE), family="bugs", reference=_marks)
def tile_ids(k: Builder, *, tiles: int = 6, mistake: Mistake = "none") -> None:
    """tile-ai/tilelang #2423, #2410 (B009): one warp decodes the answers for all others.

    The scheduler warp writes the tile's number to shared memory, ``published``; load, MMA and store
    warps read it and report, ``finished``. Mistakes: the readers wait for the answer instead of the
    number (``unpublished``); they report before they read (``early``); the four store warps read,
    but only one of them reports and is counted (``uncounted``).

    Fix: publish the number, report after the read, count every reader.
    """
    k.launch(grid=tiles)
    done = k.tensor("done", s32, (len(STORE), tiles))
    response, number = k.shared("response", u32, (4,)), k.shared("number", s32, (1,))
    arrived, published, finished = (k.mbarriers(n) for n in ("arrived", "published", "finished"))
    readers = 2 + (1 if mistake == "uncounted" else len(STORE))
    x, more, count = k.var("x", k.cta_x), k.var("more", 1), k.var("count", 0)
    with k.one_thread():
        for barrier, arrivals in ((arrived, 1), (published, 1), (finished, readers)):
            k.mbarrier.init(barrier, arrivals)
    k.sync_threads()

    with k.role("scheduler", 0), k.elected(), k.while_(more.ne(0)):
        k.mbarrier.wait(finished, (count & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(arrived, 16)
        k.clc.try_cancel(response, arrived)
        k.mbarrier.wait(arrived, count & 1)
        k.clc.query_is_canceled(more, response)
        k.assign(x, -1)
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(x, response)
        k.fence.proxy_async("shared::cta")
        k.mem.store(number[0], x)
        k.mbarrier.arrive(published)
        k.assign(count, count + 1)

    for name, warps in (("load", range(1, 2)), ("mma", range(2, 3)), ("store", STORE)):
        with k.role(name, warps), k.elected(), k.while_(x >= 0):
            if name == "store":
                k.mem.store(done[k.warp_id - STORE[0], x], x + 1)
            k.mbarrier.wait(arrived if mistake == "unpublished" else published, count & 1)
            if mistake == "early":
                k.mbarrier.arrive(finished)
            k.mem.load(x, number[0])  # BUG: written later, or overwritten early
            if mistake == "uncounted" and name == "store":
                with k.if_(k.warp_id.eq(STORE[0])):
                    k.mbarrier.arrive(finished)
            elif mistake != "early":
                k.mbarrier.arrive(finished)
            k.assign(count, count + 1)


@kernel(target="sm_100a", warps=1, family="bugs")
def blind_requests(k: Builder, *, fixed: bool = False) -> None:
    """Dao-AILab/quack 58cb592 (B117).

    After an answer that cancelled nothing the scheduler sends further requests and never reads
    their answers. Asking after a failure is undefined; on the machine in question such a failure
    was spurious, later requests succeeded, and the tiles they cancelled were lost.

    Fix: no request after a failure, and every answer is read.
    """
    k.launch(grid=2)
    response, b = k.shared("response", u32, (4,)), k.mbarriers("b")
    more, parity = k.var("more", 1), k.var("parity", 0)
    with k.role("scheduler", 0), k.elected():
        k.mbarrier.init(b, 1)
        with k.while_(more.ne(0)):
            k.mbarrier.arrive_expect_tx(b, 16)
            k.clc.try_cancel(response, b)
            k.mbarrier.wait(b, parity)
            k.assign(parity, parity ^ 1)
            k.clc.query_is_canceled(more, response)
            k.fence.proxy_async("shared::cta")
        if not fixed:
            k.mbarrier.arrive_expect_tx(b, 16)
            k.clc.try_cancel(response, b)  # BUG: after an answer that cancelled nothing
            k.mbarrier.wait(b, parity)


_RACE = frozenset({"race"})

CASES = (
    Case(answer, {"arrive": "before"}, "bugs", "failed", _RACE, source="B009"),
    Case(tile_ids, {"mistake": "unpublished"}, "bugs", "failed", _RACE, source="B009"),
    Case(tile_ids, {"mistake": "early"}, "bugs", "failed", _RACE, source="B009"),
    Case(tile_ids, {"mistake": "uncounted"}, "bugs", "failed", _RACE, source="B009"),
    Case(tile_ids, {}, "bugs", "proved", strict="ptx", source="B009"),
    Case(
        answer, {"fence": False}, "bugs", "failed", frozenset({"proxy-fence"}), strict="ptx",
        source="B040",
    ),
    Case(
        answer, {"fence": False}, "bugs", "proved", source="B040",
        note="common practice: no fence between a read and an asynchronous write",
    ),
    Case(answer, {}, "bugs", "proved", strict="ptx", source="B040"),
    Case(blind_requests, {}, "bugs", "failed", frozenset({"launch-control"}), source="B117"),
    Case(blind_requests, {"fixed": True}, "bugs", "proved", strict="ptx", source="B117"),
)  # fmt: skip
