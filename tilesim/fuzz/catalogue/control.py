"""Barriers of a CTA or cluster, lifetimes, and control flow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesim.fuzz.faults import (
    Block,
    Edit,
    block_fault,
    changed,
    dropped,
    has_effect,
    predicates_of,
    statement_fault,
)
from tilesim.fuzz.predicates import Predicates
from tilesim.ir import effects as fx
from tilesim.ir.expr import Const, binary
from tilesim.ir.mir import Branch, Instruction
from tilesim.ir.op import Op
from tilesim.ir.program import For, If, Stmt

dropped("init dropped", "a barrier is used without mbarrier.init", fx.InitsMbarrier)
dropped("inval dropped", "a barrier's lifetime never ends", fx.InvalidatesMbarrier)


@statement_fault("named barrier dropped", "one bar.sync or bar.arrive is missing", Op)
def _drop_named(op: Op) -> Iterator[tuple[str, Block]]:
    if any(isinstance(e, fx.JoinsBarrier) and e.vote is None for e in op.effects()):
        yield f"{op.mnemonic} removed", ()


@block_fault("cluster barrier dropped", "CTAs of a cluster do not wait for each other")
def _drop_cluster(block: Block) -> Iterator[Edit]:
    for place, stmt in enumerate(block[:-1]):
        if _joins_cluster(stmt) == {True} and _joins_cluster(block[place + 1]) == {False}:
            what = "barrier.cluster.arrive and wait removed"
            yield Edit(stmt.loc, what, (*block[:place], *block[place + 2 :]))


def _joins_cluster(stmt: Stmt) -> set[bool]:
    """Whether an instruction arrives at the cluster barrier or waits for it; empty: neither."""
    effects = stmt.effects() if isinstance(stmt, Op) else ()
    return {e.arrives for e in effects if isinstance(e, fx.JoinsCluster)}


dropped("cluster barrier halved", "a CTA only arrives, or only waits", fx.JoinsCluster)


@statement_fault("cluster barrier relaxed", "the cluster barrier publishes nothing", Op)
def _relaxed_cluster(op: Op) -> Iterator[tuple[str, Block]]:
    if any(
        isinstance(e, fx.JoinsCluster) and e.arrives and e.sem == "release" for e in op.effects()
    ):
        yield ".relaxed instead of .release", (changed(op, sem="relaxed"),)


@statement_fault("dead predicate", "a region is never executed", If)
def _dead(stmt: If) -> Iterator[tuple[str, Block]]:
    if stmt.then:
        yield "the condition is never true", (replace(stmt, cond=Const(0)),)


@predicates_of("dead predicate")
def _always_skipped(predicates: Predicates) -> Iterator[tuple[int, str, Instruction | None]]:
    for number in predicates.skips():
        old = predicates.mir.code[number]
        assert isinstance(old.what, Branch)
        always = replace(old, what=replace(old.what, cond=None))
        yield number, f"what follows is skipped up to {_target(predicates, old.what)}", always
    for number in predicates.guarded():
        yield number, f"{_name(predicates, number)} is never executed", None


def _target(predicates: Predicates, branch: Branch) -> str:
    code = predicates.mir.code
    return str(code[branch.target].loc.innermost) if branch.target < len(code) else "the end"


def _name(predicates: Predicates, number: int) -> str:
    what = predicates.mir.code[number].what
    assert isinstance(what, Op)
    return what.mnemonic


@block_fault("every lane", "what one elected lane should do is done by all lanes")
def _every_lane(block: Block) -> Iterator[Edit]:
    for place, stmt in enumerate(block[:-1]):
        region = block[place + 1]
        if has_effect(stmt, fx.Elects) and isinstance(region, If) and region.then:
            new = (*block[: place + 1], *region.then, *block[place + 2 :])
            yield Edit(stmt.loc, "the region of the elected lane is executed by all lanes", new)


@predicates_of("every lane")
def _every_thread(predicates: Predicates) -> Iterator[tuple[int, str, Instruction | None]]:
    for number in filter(predicates.chooses_lanes, predicates.skips()):
        yield number, "the branch over what follows is removed: all lanes execute it", None
    for number in filter(predicates.chooses_lanes, predicates.guarded()):
        unguarded = replace(predicates.mir.code[number], guard=None)
        yield number, f"{_name(predicates, number)} is executed by all lanes", unguarded


@statement_fault("uneven trips", "one role goes around once more or once less than the others", For)
def _uneven(stmt: For) -> Iterator[tuple[str, Block]]:
    yield "one trip more", (replace(stmt, stop=binary("+", stmt.stop, stmt.step)),)
    yield "one trip fewer", (replace(stmt, stop=binary("-", stmt.stop, stmt.step)),)
