"""A ring of shared-memory stages between a producer and a consumer.

Each stage has two mbarriers: *full* (its data has arrived) and *empty* (it may be overwritten).
Work items are numbered 0, 1, 2... over the whole kernel; item ``i`` uses stage ``i % stages`` for
the ``i // stages``-th time, and the parity of that number is the phase to wait for. Because both
follow from the item's number there is no state to forget: a persistent kernel that counts on
across output tiles is right, one that restarts at 0 per tile is not.

Where a role does not know its item's number, a `Cursor` keeps stage and phase in registers.

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
    ...
    reads = pipe.cursor("epilogue")      # the same by a state of the role's own
    reads.slot.wait()
    reads.slot.release()
    reads.advance()
"""

from __future__ import annotations

from collections.abc import Iterable

from tilesim.dsl.builder import Builder
from tilesim.ir.declarations import Mbar, Mbarriers
from tilesim.ir.expr import Expr, Operand, Var, as_expr, select
from tilesim.ir.ops.mbarrier import Scope
from tilesim.records import dataclass, field

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

    def acquire(self, *, scope: Scope = "cta") -> None:
        """Producer: waits until the stage's previous use was released.

        A fresh barrier lets a wait for parity 1 pass at once (SEMANTICS A22), so the first use of
        every stage needs no arrival beforehand.
        """
        self.builder.mbarrier.wait(self.empty, self.parity ^ 1, scope=scope)

    def commit(self, bytes: Operand | None = None) -> None:
        """Producer: arrives on ``full``.

        With ``bytes``, the sum over all copies that complete on ``full``, the stage is full once
        they have landed; without, it is full when the last producer has arrived.
        """
        if bytes is None:
            self.builder.mbarrier.arrive(self.full)
        else:
            self.builder.mbarrier.arrive_expect_tx(self.full, bytes)

    def commit_at(self, bytes: Operand, ranks: Iterable[Operand]) -> None:
        """Producer: `commit` with ``bytes`` on the ``full`` barrier of each CTA in ``ranks``.

        PTX has no multicast of this arrival: it is one remote ``arrive.expect_tx`` per CTA.
        """
        for rank in ranks:
            self.builder.mbarrier.arrive_expect_tx(self.full.at(rank), bytes, scope="cluster")

    def wait(self, *, scope: Scope = "cta") -> None:
        """Consumer: waits until the stage is full."""
        self.builder.mbarrier.wait(self.full, self.parity, scope=scope)

    def release(self) -> None:
        """Consumer: arrives on ``empty``; the stage may be overwritten once all consumers have."""
        self.builder.mbarrier.arrive(self.empty)

    def release_at(self, rank: Operand) -> None:
        """Consumer: `release` to the producer in another CTA of the cluster."""
        self.builder.mbarrier.arrive(self.empty.at(rank), scope="cluster")


@dataclass(frozen=True)
class Cursor:
    """A role's place in a ring: the stage and the phase of its next item, in two registers.

    Every role that produces or consumes needs its own, advanced once per item.
    """

    pipe: Pipeline
    stage: Var
    phase: Var

    @property
    def slot(self) -> Slot:
        """The next item's use of its stage."""
        return self.pipe.slot(self.stage, self.phase)

    def advance(self) -> None:
        """Goes on to the following item; the phase turns where the ring starts over."""
        k, last = self.pipe.builder, self.pipe.stages - 1
        k.assign(self.phase, self.phase ^ self.stage.eq(last))
        k.assign(self.stage, select(self.stage.eq(last), 0, self.stage + 1))

    def drain(self, *, scope: Scope = "cta") -> None:
        """Producer, behind its last item: waits until every stage was released.

        A release that is made later (by ``tcgen05.commit``, or by another CTA) must come before
        the end of this CTA, with which its barriers end (SEMANTICS A8, D9).
        """
        with self.pipe.builder.loop(self.pipe.stages, name="last"):
            self.slot.acquire(scope=scope)
            self.advance()


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
        self._prefix = f"{name}_" if name else ""
        self.builder = k
        self.stages = stages
        self.full: Mbarriers = k.mbarriers(f"{self._prefix}full", stages)
        self.empty: Mbarriers = k.mbarriers(f"{self._prefix}empty", stages)
        self._producers = producers
        self._consumers = consumers

    def init(self) -> None:
        """Initialises the barriers; for one thread, before a barrier that all threads join."""
        for stage in range(self.stages):
            self.builder.mbarrier.init(self.full[stage], self._producers)
            self.builder.mbarrier.init(self.empty[stage], self._consumers)

    def invalidate(self) -> None:
        """Ends the barriers' lifetime; for one thread, once every other use is ordered before."""
        for stage in range(self.stages):
            self.builder.mbarrier.inval(self.full[stage])
            self.builder.mbarrier.inval(self.empty[stage])

    def slot(self, stage: Operand, parity: Operand) -> Slot:
        """The use of ``stage`` whose phases have this parity."""
        at = as_expr(stage)
        return Slot(self.builder, at, as_expr(parity), self.full[at], self.empty[at])

    def cursor(self, role: str) -> Cursor:
        """A place at item 0, in registers named after the ring and the role."""
        name = f"{self._prefix}{role}"
        return Cursor(
            self, self.builder.var(f"{name}_stage", 0), self.builder.var(f"{name}_phase", 0)
        )

    def drain(self, items: Operand, *, scope: Scope = "cta") -> None:
        """Producer, behind its last of so many items: `Cursor.drain` without a cursor."""
        with self.builder.loop(self.stages, name="last") as last:
            self[items + last].acquire(scope=scope)

    def __getitem__(self, item: Operand) -> Slot:
        index = as_expr(item)
        return self.slot(index % self.stages, (index // self.stages) & 1)
