"""Programs that repeat themselves for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesim import Builder, s32
from tilesim.ir.expr import Expr
from tilesim.ir.program import Program


def one_stage(k: Builder, produced: Any, consumed: Any, *, missing: bool = False) -> None:
    """Two warps hand a stage without data back and forth, in so many turns each; ``missing``: half
    of the consumer's arrivals are."""
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    with k.one_thread():
        k.mbarrier.init(full, 32)
        k.mbarrier.init(empty, 32)
    k.sync_threads()
    with k.role("producer", 0), k.loop(produced) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mbarrier.arrive(full)
    with k.role("consumer", 1), k.loop(consumed) as i:
        k.mbarrier.wait(full, i & 1)
        if missing:
            with k.if_(k.lane_id < 16):
                k.mbarrier.arrive(empty)
        else:
            k.mbarrier.arrive(empty)


def ring(
    trips: int | None, *, stages: int = 2, consumer_trips: int | None = None,
    faulty: Callable[[Expr], Expr] | None = None,
) -> Program:  # fmt: skip
    """A producer and a consumer of a ring of shared words; ``trips`` None: as many turns as the
    launch says by its scalar ``n``.

    Where ``faulty`` holds the producer fills another stage as well, which may still be read.
    """
    k = Builder("ring", warps=2)
    turns = k.scalar("n", 7) if trips is None else trips
    data = k.shared("data", s32, (stages, 32))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    with k.one_thread():
        for stage in range(stages):
            k.mbarrier.init(full[stage], 32)
            k.mbarrier.init(empty[stage], 32)
    k.sync_threads()
    with k.role("producer", 0), k.loop(turns) as i:
        k.mbarrier.wait(empty[i % stages], (i // stages & 1) ^ 1)
        k.mem.store(data[i % stages, k.lane_id], 7)
        if faulty is not None:
            with k.if_(faulty(i)):
                k.mem.store(data[(i + 1) % stages, k.lane_id], 8)
        k.mbarrier.arrive(full[i % stages])
    with k.role("consumer", 1), k.loop(turns if consumer_trips is None else consumer_trips) as i:
        k.mbarrier.wait(full[i % stages], i // stages & 1)
        value = k.var("value", 0)
        k.mem.load(value, data[i % stages, k.lane_id])
        k.mbarrier.arrive(empty[i % stages])
    return k.finish()
