"""Random pipelines of clusters, with two parameters, for `tests.sim.forall_campaign`.

Each CTA of a cluster has a producer and a consumer. A stage is filled by a copy that one CTA
multicasts to all, in turns or always the same one; by asynchronous stores of a neighbour; or by the
CTA itself. The consumers of all CTAs that it comes to free it, at whoever fills it. Of the two
parameters one is left open, the other one is a number in each proof. Faults are those of
`tests.sim.forall_programs`, in all CTAs or in one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from tests.sim.forall_programs import FAULTS, Draw, Number, condition
from tilesim import Builder, s32
from tilesim.ir.expr import Expr, as_expr
from tilesim.ir.program import Program

#: how a stage is filled
_FILLING = ("own", "multicast", "multicast", "turns", "push", "push")
_WORDS = 32


def clusters(draw: Draw, n: Number, m: Number) -> Program:
    """The program that ``draw`` makes for a value of each parameter."""
    return _Cluster(draw, n, m).program()


class _Cluster:
    """A ring between the CTAs of a cluster."""

    def __init__(self, draw: Draw, n: Number, m: Number) -> None:
        self.draw, self.n, self.m = draw, n, m
        self.size = draw.of([1, 2, 2, 2, 2, 3])
        self.grid = self.size * draw.of([1, 1, 1, 1, 2])
        self.stages = draw.of([1, 2, 2, 3, 4])
        self.filling = draw.of(_FILLING) if self.size > 1 else "own"
        #: whether the other parameter is the number of turns of a loop around, or of one in it
        self.nested = draw.of(["", "", "around", "in"])
        self.fault = draw.of(FAULTS) if draw.one_in(2) else ""
        self.place = draw.below(2)
        self.who = draw.below(self.size) if draw.one_in(2) else None
        self.late = draw.one_in(4)
        self.k = k = Builder("clusters", "sm_90a", warps=2)
        k.launch(grid=self.grid, cluster=self.size)
        self.source = k.tensor("source", s32, (self.stages, _WORDS))
        self.data = k.shared("data", s32, (self.stages, _WORDS))
        self.out: Any = None
        if draw.one_in(4):
            rows = self.grid * (self.turns() * 2 + 80)
            self.out = k.tensor("out", s32, (rows, _WORDS))

    def turns(self) -> Number:
        """How many turns the loop makes, on each turn of the one around it."""
        n, m = self.n, self.m
        match self.draw.below(9):
            case 0:
                return n + m
            case 1:
                return n * m
            case 2:
                return max(n, 3 * m)
            case 3:
                return -(-n // (m + 1))
            case 4:
                return n if n > 4 * m else m
            case _:
                return n

    def program(self) -> Program:
        """Barriers, and both warps."""
        k, many = self.k, self.filling in ("multicast", "turns")
        self.full, self.empty = k.mbarriers("full", self.stages), k.mbarriers("empty", self.stages)
        users = self.size if many else 1
        with k.one_thread():
            for bar in self.full:
                k.mbarrier.init(bar, _WORDS if self.filling == "own" else 1)
            for bar in self.empty:
                k.mbarrier.init(bar, users)
            k.fence.mbarrier_init()
        if self.size > 1:
            k.cluster.sync()
        else:
            k.sync_threads()
        trips = self.turns()
        with k.role("producer", 0):
            self._turn(trips, self._fill, 1 - self.place)
        with k.role("consumer", 1):
            self._turn(trips, self._use, self.place)
        if self.size > 1:
            k.cluster.sync()
        return k.finish()

    def _turn(self, trips: Number, act: Callable[[Expr, Expr, str], None], faulty: int) -> None:
        k = self.k
        fault, index = self.fault if faulty else "", k.var(f"index{faulty}", 0)
        outer = k.loop(self.m) if self.nested == "around" else nullcontext()
        with outer, k.loop(trips) as i:
            inner = k.loop(self.m) if self.nested == "in" else nullcontext()
            with inner as j:
                act(i if j is None or self.late else j, index, fault)
                k.assign(index, index + 1)

    # ------------------------------------------------------------------ turns

    def _fill(self, turn: Expr, at: Expr, fault: str) -> None:
        k, stage, rank = self.k, at % self.stages, self.k.cluster_rank
        parity = (at // self.stages & 1) ^ 1
        full, data = self.full[stage], self.data[stage]
        k.mbarrier.wait(self.empty[stage], parity, scope="cluster")
        match self.filling:
            case "own":
                k.mem.store(data[k.lane_id], 7)
                self._faulty(turn, stage, fault, full)
                return
            case "push":
                peer = (rank + 1) % self.size
                with k.elected():
                    k.mbarrier.arrive_expect_tx(full.at(peer), 4 * _WORDS, scope="cluster")
                k.cluster.st_async(data[k.lane_id].at(peer), 7, full.at(peer))
            case filling:
                root = at % self.size if filling == "turns" else as_expr(0)
                with k.elected():
                    k.mbarrier.arrive_expect_tx(full, 4 * _WORDS)
                    with k.if_(rank.eq(root)):
                        every = (1 << self.size) - 1
                        k.bulk.load(data, self.source[stage], full, multicast=every)
        self._faulty(turn, stage, fault, None)

    def _use(self, turn: Expr, at: Expr, fault: str) -> None:
        k, stage, rank = self.k, at % self.stages, self.k.cluster_rank
        k.mbarrier.wait(self.full[stage], at // self.stages & 1, scope="cluster")
        value = k.var("value", 0)
        k.mem.load(value, self.data[stage, k.lane_id])
        if self.out is not None:
            k.mem.store(self.out[k.cta_x + self.grid * turn, k.lane_id], value)
        k.sync_warp()
        with k.elected():
            match self.filling:
                case "own":
                    self._faulty(turn, stage, fault, self.empty[stage])
                case "push":
                    giver = (rank + (self.size - 1)) % self.size
                    self._faulty(turn, stage, fault, self.empty[stage].at(giver))
                case filling:
                    # last at whoever fills the stage next: what follows from that comes after
                    # the arrivals at all others
                    after = at + self.stages if filling == "turns" else as_expr(0)
                    peers = [
                        self.empty[stage].at((after + i) % self.size) for i in range(1, self.size)
                    ]
                    for peer in peers:
                        k.mbarrier.arrive(peer, scope="cluster")
                    self._faulty(turn, stage, fault, self.empty[stage].at(after % self.size))

    def _faulty(self, turn: Expr, stage: Expr, fault: str, bar: Any) -> None:
        """Arrives, and does otherwise where a condition on the turn and the parameters holds."""
        k, draw = self.k, self.draw
        if not fault:
            if bar is not None:
                k.mbarrier.arrive(bar, scope="cluster")
            return
        holds = condition(draw, turn, self.n)
        if self.who is not None:
            holds = holds & k.cluster_rank.eq(self.who)
        if draw.one_in(4):
            holds = holds & as_expr(self.m).eq(1 + draw.below(3))
        if fault == "omits" and bar is not None:
            with k.if_(as_expr(holds).eq(0)):
                k.mbarrier.arrive(bar, scope="cluster")
            return
        with k.if_(holds):
            if fault == "twice" and bar is not None:
                k.mbarrier.arrive(bar, scope="cluster")
            else:
                where = stage + self.stages if fault == "beyond" else (stage + 1) % self.stages
                k.mem.store(self.data[where, k.lane_id], 8)
        if bar is not None:
            k.mbarrier.arrive(bar, scope="cluster")
