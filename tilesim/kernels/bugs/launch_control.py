"""Cluster launch control: who reads an answer, until when, and what a failure means."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.ir.builder import Builder
from tilesim.ir.kernel import kernel
from tilesim.ir.types import s32, u32
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.pipeline import Pipeline
from tilesim.kernels.registry import Case

READERS = 2


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


CASES = (
    Case(answer, {"arrive": "before"}, "bugs", "failed", frozenset({"race"}), source="B009"),
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
