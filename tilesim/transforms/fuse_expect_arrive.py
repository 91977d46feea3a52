"""Fuses ``mbarrier.expect_tx`` and the ``mbarrier.arrive`` after it into one instruction (A15)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.declarations import Mbar
from tilesim.ir.expr import Var, constant, walk
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierArriveExpectTx, MbarrierExpectTx
from tilesim.ir.program import For, If, Program, Role, Stmt, While


def fuse_expect_arrive(program: Program) -> Program:
    """``program`` with ``expect_tx`` and ``arrive`` fused where that changes nothing.

    Both are on one barrier, in this order and in one region, and the arrival counts 1. The fused
    instruction stands where ``expect_tx`` stood, so between the two there may only be what an
    earlier arrival cannot upset: register operations, and copies issued through the async proxy,
    on this barrier no more than the expected bytes.
    """
    body = _fused(program.body)
    return program if body == program.body else replace(program, body=body)


def _fused(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    rest = [_inside(stmt) for stmt in body]
    result: list[Stmt] = []
    while rest:
        stmt = rest.pop(0)
        if isinstance(stmt, MbarrierExpectTx):
            partner = _partner(stmt, rest)
            if partner is not None:
                stmt = _pair(stmt, rest.pop(partner))
        result.append(stmt)
    return tuple(result)


def _inside(stmt: Stmt) -> Stmt:
    match stmt:
        case For() | While() | Role():
            return replace(stmt, body=_fused(stmt.body))
        case If():
            return replace(stmt, then=_fused(stmt.then), orelse=_fused(stmt.orelse))
        case _:
            return stmt


def _pair(expect: MbarrierExpectTx, arrive: Stmt) -> MbarrierArriveExpectTx:
    assert isinstance(arrive, MbarrierArrive)
    return MbarrierArriveExpectTx(
        mbar=expect.mbar,
        bytes=expect.bytes,
        sem=arrive.sem,
        scope=arrive.scope,
        token=arrive.token,
        loc=expect.loc,
    )


def _partner(expect: MbarrierExpectTx, following: Iterable[Stmt]) -> int | None:
    """Position of the arrival that ``expect`` can be fused with."""
    fixed = _variables(expect.mbar)
    copied = 0
    for position, stmt in enumerate(following):
        if isinstance(stmt, MbarrierArrive):
            return position if _fits(expect, stmt) else None
        if not isinstance(stmt, Op) or not _harmless(stmt, fixed):
            return None
        for effect in stmt.effects():
            if isinstance(effect, fx.Completes) and _may_be_one(effect.mbar, expect.mbar):
                size = None if effect.bytes is None else constant(effect.bytes)
                if size is None or effect.mbar != expect.mbar:
                    return None
                copied += size
        expected = constant(expect.bytes)
        if copied and (expected is None or copied > expected):
            return None
    return None


def _may_be_one(a: Mbar, b: Mbar) -> bool:
    """Whether two operands may name one array; an address may be of any."""
    addressed = isinstance(a.array, AddressedMbarriers) or isinstance(b.array, AddressedMbarriers)
    return addressed or a.array == b.array


def _fits(expect: MbarrierExpectTx, arrive: MbarrierArrive) -> bool:
    return arrive.mbar == expect.mbar and constant(arrive.count) == 1 and not arrive.no_complete


def _harmless(op: Op, fixed: frozenset[str]) -> bool:
    """Whether an arrival may move from after ``op`` to before it."""
    if op.sync:
        return False
    for effect in op.effects():
        match effect:
            case fx.Defines(var=var):
                if var.name in fixed:
                    return False
            case fx.Reads(proxy="async") | fx.Writes(proxy="async") | fx.Completes():
                pass
            case fx.ReadsMap() | fx.WritesMap() | fx.UsesFragment():
                pass
            case _:
                return False
    return True


def _variables(mbar: Mbar) -> frozenset[str]:
    return frozenset(e.name for x in mbar.operands for e in walk(x) if isinstance(e, Var))
