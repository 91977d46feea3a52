"""A ring of shared-memory stages between a producer and a consumer.

Each stage has two mbarriers: *full* (its data has arrived) and *empty* (it may be overwritten).
Work items are numbered 0, 1, 2... over the whole kernel; item ``i`` uses stage ``i % stages`` for
the ``i // stages``-th time, and the parity of that number is the phase to wait for. Because both
follow from the item's number there is no state to forget: a persistent kernel that counts on
across output tiles is right, one that restarts at 0 per tile is not.

::

    pipe = Pipeline(k, stages=4, consumers=4)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    ...
    slot = pipe[i]                       # i: integer or loop variable
    slot.acquire()                       # producer: wait until the stage is empty
    slot.commit(bytes)                   #           announce the copies that signal slot.full
    k.tma.load(..., slot.full)
    ...
    slot.wait()                          # consumer: wait until the stage is full
    slot.release()                       #           give it back
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesim.ir.builder import Builder
from tilesim.ir.expr import Expr, Operand, as_expr
from tilesim.ir.memory import Mbar, Mbarriers

#: findings name the kernel's lines, not the ones in this file
__tilesim_helper__ = True


@dataclass(frozen=True)
class Slot:
    """One use of one stage: the stage, the parity of this use, and its two barriers."""

    builder: Builder = field(repr=False)
    stage: Expr
    parity: Expr
    full: Mbar
    empty: Mbar

    def acquire(self) -> None:
        """Producer: waits until the stage's previous use was released.

        A fresh barrier lets a wait for parity 1 pass at once (SEMANTICS A22), so the first use of
        every stage needs no arrival beforehand.
        """
        self.builder.mbarrier.wait(self.empty, self.parity ^ 1)

    def commit(self, bytes: Operand | None = None) -> None:
        """Producer: arrives on ``full``.

        With ``bytes``, the sum over all copies that complete on ``full``, the stage is full once
        they have landed; without, it is full when the last producer has arrived.
        """
        if bytes is None:
            self.builder.mbarrier.arrive(self.full)
        else:
            self.builder.mbarrier.arrive_expect_tx(self.full, bytes)

    def wait(self) -> None:
        """Consumer: waits until the stage is full."""
        self.builder.mbarrier.wait(self.full, self.parity)

    def release(self) -> None:
        """Consumer: arrives on ``empty``; the stage may be overwritten once all consumers have."""
        self.builder.mbarrier.arrive(self.empty)


class Pipeline:
    """The full and empty barriers of ``stages`` stages.

    ``producers`` and ``consumers`` are arrivals per use: an arrival by a whole warp counts 32, one
    inside ``k.elected()`` counts 1, `Slot.commit` with bytes by one elected lane counts 1.
    """

    def __init__(
        self,
        k: Builder,
        stages: int,
        *,
        name: str = "",
        producers: int = 1,
        consumers: int = 1,
    ) -> None:
        prefix = f"{name}_" if name else ""
        self.stages = stages
        self.full: Mbarriers = k.mbarriers(f"{prefix}full", stages)
        self.empty: Mbarriers = k.mbarriers(f"{prefix}empty", stages)
        self._k = k
        self._producers = producers
        self._consumers = consumers

    def init(self) -> None:
        """Initialises the barriers; for one thread, before a barrier that all threads join."""
        for stage in range(self.stages):
            self._k.mbarrier.init(self.full[stage], self._producers)
            self._k.mbarrier.init(self.empty[stage], self._consumers)

    def invalidate(self) -> None:
        """Ends the barriers' lifetime; for one thread, once every other use is ordered before."""
        for stage in range(self.stages):
            self._k.mbarrier.inval(self.full[stage])
            self._k.mbarrier.inval(self.empty[stage])

    def __getitem__(self, item: Operand) -> Slot:
        index = as_expr(item)
        stage = index % self.stages
        parity = (index // self.stages) & 1
        return Slot(self._k, stage, parity, self.full[stage], self.empty[stage])
