"""Asynchronous operations: copies, masks, fences between proxies, groups that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.fuzz.faults import (
    Block,
    Edit,
    block_fault,
    changed,
    dropped,
    has_effect,
    statement_fault,
)
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, binary
from tilesim.ir.op import Op
from tilesim.ir.program import Stmt

#: the faults of leaving out one instruction that has them as its `Op.fault`, and what is missing
_DROPPED = {
    "proxy fence dropped": "fence.proxy.async or fence.proxy.async::generic",
    "mbarrier_init fence dropped": "fence.mbarrier_init",
    "tcgen05 fence dropped": "tcgen05.fence",
    "wgmma fence dropped": "wgmma.fence",
    "memory fence dropped": "fence",
}
#: fault: the groups that are not waited for
_DRAINS: dict[str, tuple[fx.Group, ...]] = {
    "store not awaited": ("bulk",),
    "wgmma wait dropped": ("wgmma",),
    "cp.async wait dropped": ("cp.async",),
    "tcgen05 wait dropped": ("tcgen05.ld", "tcgen05.st"),
}


@statement_fault("copy dropped", "a copy whose bytes are expected is not issued", Op)
def _drop_copy(op: Op) -> Iterator[tuple[str, Block]]:
    if has_effect(op, fx.Completes) and has_effect(op, fx.Writes, fx.RemoteStore):
        yield f"{op.mnemonic} removed", ()


@statement_fault("wrong multicast mask", "a multicast reaches another set of CTAs", Op)
def _mask(op: Op) -> Iterator[tuple[str, Block]]:
    mask = getattr(op, "multicast", None)
    if isinstance(mask, Expr):
        wrong = binary("^", mask, 1)
        yield "rank 0 toggled in the mask", (changed(op, multicast=wrong),)
        yield "no mask: the own CTA only", (changed(op, multicast=None),)


def _register_dropped(fault: str, what: str) -> None:
    @statement_fault(fault, f"{what} is missing", Op)
    def _drop(op: Op) -> Iterator[tuple[str, Block]]:
        if op.fault == fault:
            yield f"{op.mnemonic} removed", ()


def _register_drain(fault: str, groups: tuple[fx.Group, ...]) -> None:
    @statement_fault(fault, f"nobody waits for operations of {' or '.join(groups)}", Op)
    def _drop(op: Op) -> Iterator[tuple[str, Block]]:
        if any(isinstance(e, fx.WaitsGroup) and e.group in groups for e in op.effects()):
            yield f"{op.mnemonic} removed", ()


for _name, _what in _DROPPED.items():
    _register_dropped(_name, _what)
for _name, _groups in _DRAINS.items():
    _register_drain(_name, _groups)


@statement_fault("wrong group count", "a wait leaves one more group pending", Op)
def _group(op: Op) -> Iterator[tuple[str, Block]]:
    pending = getattr(op, "pending", None)
    if has_effect(op, fx.WaitsGroup) and isinstance(pending, int):
        yield f"{pending + 1} groups may be pending", (changed(op, pending=pending + 1),)


@statement_fault("only reads awaited", "a store's result is not awaited, only its source", Op)
def _reads_only(op: Op) -> Iterator[tuple[str, Block]]:
    waits = [e for e in op.effects() if isinstance(e, fx.WaitsGroup)]
    if any(e.group == "bulk" and not e.read_only for e in waits):
        yield "wait_group.read instead of wait_group", (changed(op, read=True),)


@statement_fault("group commit dropped", "operations are never put into a group", Op)
def _drop_commit(op: Op) -> Iterator[tuple[str, Block]]:
    if _closes_group(op):
        yield f"{op.mnemonic} removed", ()


@block_fault("group commit too early", "operations are issued after the commit of their group")
def _early_commit(block: Block) -> Iterator[Edit]:
    for place, stmt in enumerate(block):
        if place and _closes_group(stmt):
            before = block[place - 1]
            if isinstance(before, Op) and _asynchronous(before):
                swapped = (*block[: place - 1], stmt, before, *block[place + 1 :])
                what = f"the commit is made before the last {before.mnemonic}"
                yield Edit(stmt.loc, what, swapped)


def _closes_group(stmt: Stmt) -> bool:
    return has_effect(stmt, fx.Commits) and not has_effect(stmt, fx.Arrives, fx.WaitsGroup)


def _asynchronous(op: Op) -> bool:
    return any(getattr(effect, "asynchronous", False) for effect in op.effects())


dropped("columns not freed", "tensor memory is kept at the end", fx.FreesTmem)
