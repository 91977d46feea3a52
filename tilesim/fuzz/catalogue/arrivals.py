"""Arrivals: missing, too many, at the wrong time, of the wrong size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tilesim.fuzz.faults import Block, Edit, block_fault, changed, has_effect, statement_fault
from tilesim.ir import effects as fx
from tilesim.ir.expr import binary, constant
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import BarSync, ElectSync
from tilesim.ir.ops.mbarrier import (
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierWait,
)
from tilesim.ir.ops.tcgen05 import Tcgen05Commit
from tilesim.ir.ops.tcgen05_mma import Tcgen05Mma
from tilesim.ir.program import If, Stmt, walk


@statement_fault("arrive dropped", "an arrival or commit that a phase needs is missing", Op)
def _drop(op: Op) -> Iterator[tuple[str, Block]]:
    if isinstance(op, MbarrierArriveExpectTx):
        yield (
            f"only expect_tx is left of {op.mnemonic}",
            (MbarrierExpectTx(mbar=op.mbar, bytes=op.bytes, loc=op.loc),),
        )
    elif has_effect(op, fx.Arrives):
        yield f"{op.mnemonic} removed", ()


@statement_fault("arrive duplicated", "an arrival is made twice", Op)
def _duplicate(op: Op) -> Iterator[tuple[str, Block]]:
    if has_effect(op, fx.Arrives):
        yield f"{op.mnemonic} repeated", (op, op)


@block_fault("arrive too early", "a stage is released, or a phase armed, before the work is done")
def _early(block: Block) -> Iterator[Edit]:
    units = list(_units(block))
    for place, arrive in _arriving(units):
        waits = [i for i in range(place) if _waits(units[i])]
        for target in sorted({waits[-1], waits[-1] + 1}) if waits else [0]:
            where = "before" if waits and target == waits[-1] else "right after"
            what = f"{arrive.mnemonic} moved {where} the wait that precedes it"
            yield from _moved(units, place, target, arrive, what)


@block_fault(
    "arrive before the group wait", "a stage is released while an operation still reads it"
)
def _before_group_wait(block: Block) -> Iterator[Edit]:
    units = list(_units(block))
    for place, arrive in _arriving(units):
        waits = [i for i in range(place) if any(has_effect(s, fx.WaitsGroup) for s in units[i])]
        if waits:
            wait = units[waits[-1]][0]
            name = wait.mnemonic if isinstance(wait, Op) else "the wait"
            what = f"{arrive.mnemonic} moved before {name}"
            yield from _moved(units, place, waits[-1], arrive, what)


@block_fault("arrive too late", "an arrival is made only after the next wait")
def _late(block: Block) -> Iterator[Edit]:
    units = list(_units(block))
    for place, arrive in _arriving(units):
        after = next((i for i in range(place + 1, len(units)) if _waits(units[i])), None)
        if after is not None:
            passed, rest = units[place + 1 : after + 1], units[after + 1 :]
            order = [*units[:place], *passed, units[place], *rest]
            what = f"{arrive.mnemonic} moved after the wait that follows it"
            yield Edit(arrive.loc, what, tuple(s for u in order for s in u))


def _arriving(units: list[Block]) -> Iterator[tuple[int, Op]]:
    """The units that do nothing but arrive, with their arrival."""
    for place, unit in enumerate(units):
        arrive = next((s for s in walk(unit) if isinstance(s, MbarrierArrive)), None)
        if arrive is not None and _only_arrives(unit):
            yield place, arrive


def _moved(units: list[Block], place: int, target: int, arrive: Op, what: str) -> Iterator[Edit]:
    """A unit moved up to ``target``, if it passes anything but arrivals."""
    if not all(map(_only_arrives, units[target:place])):
        moved = [*units[:target], units[place], *units[target:place], *units[place + 1 :]]
        yield Edit(arrive.loc, what, tuple(s for u in moved for s in u))


def _units(block: Block) -> Iterator[Block]:
    """The statements of a block; an election stays with the region it guards."""
    place = 0
    while place < len(block):
        pair = (
            isinstance(block[place], ElectSync)
            and place + 1 < len(block)
            and isinstance(block[place + 1], If)
        )
        yield block[place : place + 1 + pair]
        place += 1 + pair


def _only_arrives(unit: Block) -> bool:
    return all(isinstance(s, MbarrierArrive | ElectSync | If) for s in walk(unit))


def _waits(unit: Block) -> bool:
    return any(isinstance(s, MbarrierWait | BarSync) for s in unit)


@statement_fault("commit without the operations", "an arrival does not wait for the tensor core",
                 Tcgen05Commit)  # fmt: skip
def _plain_arrive(op: Tcgen05Commit) -> Iterator[tuple[str, Block]]:
    if op.multicast is None:
        arrive = MbarrierArrive(mbar=op.mbar, scope="cluster", loc=op.loc)
        yield f"mbarrier.arrive instead of {op.mnemonic}", (arrive,)


@block_fault("commit too early", "a commit is made before the operations it should cover")
def _early_commit(block: Block) -> Iterator[Edit]:
    for place, stmt in enumerate(block):
        if not _commits(stmt):
            continue
        start = place
        while start and not _blocks(block[start - 1]):
            start -= 1
        if any(isinstance(s, Tcgen05Mma) for s in walk(block[start:place])):
            moved = (*block[:start], stmt, *block[start:place], *block[place + 1 :])
            yield Edit(stmt.loc, "the commit is moved before the operations", moved)


def _commits(stmt: Stmt) -> bool:
    return isinstance(stmt, Tcgen05Commit)


def _blocks(stmt: Stmt) -> bool:
    return has_effect(stmt, fx.Waits, fx.JoinsBarrier, fx.JoinsCluster) or _commits(stmt)


@statement_fault("wrong arrival count", "mbarrier.init with one arrival too few or too many",
                 MbarrierInit)  # fmt: skip
def _count(op: MbarrierInit) -> Iterator[tuple[str, Block]]:
    known = constant(op.count)
    for delta, text in ((-1, "one too few"), (1, "one too many")):
        if known is None or known + delta >= 1:
            count = binary("+", op.count, delta)
            shown = text if known is None else f"{known + delta} instead of {known}"
            yield f"count {shown}", (replace(op, count=count),)


@statement_fault("wrong bytes", "too few or too many bytes are expected",
                 MbarrierArriveExpectTx, MbarrierExpectTx)  # fmt: skip
def _bytes(op: Any) -> Iterator[tuple[str, Block]]:
    for delta in (-16, 16):
        text = f"{abs(delta)} bytes too {'few' if delta < 0 else 'many'}"
        if (constant(op.bytes) or 0) + delta >= 0:
            yield text, (changed(op, bytes=binary("+", op.bytes, delta)),)


@statement_fault("bytes not expected", "an arrival forgets the bytes of its copies",
                 MbarrierArriveExpectTx, MbarrierExpectTx)  # fmt: skip
def _no_bytes(op: Any) -> Iterator[tuple[str, Block]]:
    if isinstance(op, MbarrierExpectTx):
        yield f"{op.mnemonic} removed", ()
        return
    arrive = MbarrierArrive(mbar=op.mbar, sem=op.sem, scope=op.scope, token=op.token, loc=op.loc)
    yield f"{arrive.mnemonic} instead of {op.mnemonic}", (arrive,)
