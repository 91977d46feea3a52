"""Barriers of a CTA or cluster, lifetimes, and control flow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesim.fuzz.faults import Block, Edit, block_fault, has_effect, statement_fault
from tilesim.ir import effects as fx
from tilesim.ir.expr import Const, binary
from tilesim.ir.op import Op, results_of
from tilesim.ir.ops.bar import ElectSync
from tilesim.ir.ops.cluster import ClusterArrive
from tilesim.ir.program import For, If, Stmt


@statement_fault("init dropped", "a barrier is used without mbarrier.init", Op)
def _drop_init(op: Op) -> Iterator[tuple[str, Block]]:
    if has_effect(op, fx.InitsMbarrier):
        yield f"{op.mnemonic} removed", ()


@statement_fault("inval dropped", "a barrier's lifetime never ends", Op)
def _drop_inval(op: Op) -> Iterator[tuple[str, Block]]:
    if has_effect(op, fx.InvalidatesMbarrier):
        yield f"{op.mnemonic} removed", ()


@statement_fault("named barrier dropped", "one bar.sync or bar.arrive is missing", Op)
def _drop_named(op: Op) -> Iterator[tuple[str, Block]]:
    if has_effect(op, fx.JoinsBarrier) and not results_of(type(op)):
        yield f"{op.mnemonic} removed", ()


@block_fault("cluster barrier dropped", "CTAs of a cluster do not wait for each other")
def _drop_cluster(block: Block) -> Iterator[Edit]:
    for place, stmt in enumerate(block[:-1]):
        if _joins_cluster(stmt, arrives=True) and _joins_cluster(block[place + 1], arrives=False):
            what = "barrier.cluster.arrive and wait removed"
            yield Edit(stmt.loc, what, (*block[:place], *block[place + 2 :]))


def _joins_cluster(stmt: Stmt, *, arrives: bool) -> bool:
    return isinstance(stmt, Op) and any(
        isinstance(e, fx.JoinsCluster) and e.arrives == arrives for e in stmt.effects()
    )


@statement_fault("cluster barrier halved", "a CTA only arrives, or only waits", Op)
def _half_cluster(op: Op) -> Iterator[tuple[str, Block]]:
    if has_effect(op, fx.JoinsCluster):
        yield f"{op.mnemonic} removed", ()


@statement_fault("cluster barrier relaxed", "the cluster barrier publishes nothing", ClusterArrive)
def _relaxed_cluster(op: ClusterArrive) -> Iterator[tuple[str, Block]]:
    if op.sem == "release":
        yield ".relaxed instead of .release", (replace(op, sem="relaxed"),)


@statement_fault("dead predicate", "a region is never executed", If)
def _dead(stmt: If) -> Iterator[tuple[str, Block]]:
    if stmt.then:
        yield "the condition is never true", (replace(stmt, cond=Const(0)),)


@block_fault("every lane", "what one elected lane should do is done by all lanes")
def _every_lane(block: Block) -> Iterator[Edit]:
    for place, stmt in enumerate(block[:-1]):
        region = block[place + 1]
        if isinstance(stmt, ElectSync) and isinstance(region, If) and region.then:
            new = (*block[: place + 1], *region.then, *block[place + 2 :])
            yield Edit(stmt.loc, "the region of the elected lane is executed by all lanes", new)


@statement_fault("uneven trips", "one role goes around once more or once less than the others", For)
def _uneven(stmt: For) -> Iterator[tuple[str, Block]]:
    yield "one trip more", (replace(stmt, stop=binary("+", stmt.stop, stmt.step)),)
    yield "one trip fewer", (replace(stmt, stop=binary("-", stmt.stop, stmt.step)),)
