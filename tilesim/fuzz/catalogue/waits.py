"""Waits: missing, for the wrong phase, or without the ordering that a wait should give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilesim.fuzz.faults import Block, changed, has_effect, statement_fault
from tilesim.ir import effects as fx
from tilesim.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    binary,
    constant,
    select,
    unary,
    walk,
)
from tilesim.ir.op import Op
from tilesim.ir.program import While


@statement_fault("wait dropped", "nobody waits for the phase", Op, While)
def _drop(stmt: Op | While) -> Iterator[tuple[str, Block]]:
    if isinstance(stmt, Op):
        effects = stmt.effects()
        if len(effects) == 1 and isinstance(effects[0], fx.Waits) and not effects[0].poll:
            yield "the wait is removed", ()
    elif stmt.body and all(has_effect(s, fx.Waits) for s in stmt.body):
        yield "the loop that polls is removed", ()


@statement_fault("wrong parity", "a wait starts with the other parity", Op)
def _parity(op: Any) -> Iterator[tuple[str, Block]]:
    if has_effect(op, fx.Waits) and op.parity:
        yield "the parity is inverted", (changed(op, phase=binary("^", op.phase, 1)),)


@statement_fault("phase not carried", "a wait uses the parity of an earlier round for ever",
                 Op)  # fmt: skip
def _stuck(op: Any) -> Iterator[tuple[str, Block]]:
    for effect in op.effects():
        match effect:
            case fx.Defines(var=var, value=Expr() as value) if _turns(var, value):
                yield f"{var.name} is not advanced", ()
            case _:
                pass
    if not has_effect(op, fx.Waits) or not op.parity or constant(op.phase) is not None:
        return
    names = sorted({e.name for e in walk(op.phase) if isinstance(e, Var)})
    first = _at_zero(op.phase, frozenset(names))
    if constant(first) is not None:
        yield f"the parity stays {first}", (changed(op, phase=first),)
    for name in names if len(names) > 1 else ():
        again = _at_zero(op.phase, frozenset({name}))
        if again != op.phase:
            yield f"the parity starts again with every {name}", (changed(op, phase=again),)


def _turns(var: Var, value: Expr) -> bool:
    """Whether this is the step of a phase bit (``x ^ ...``) or of a stage that starts over."""
    steps = (isinstance(e, Select) or (isinstance(e, Binary) and e.op == "^") for e in walk(value))
    return any(steps) and var in walk(value)


def _at_zero(expr: Expr, names: frozenset[str]) -> Expr:
    """The value in the first iteration: these variables are 0."""
    match expr:
        case Var(name=name):
            return Const(0) if name in names else expr
        case Unary(op, operand):
            return unary(op, _at_zero(operand, names))
        case Binary(op, lhs, rhs):
            return binary(op, _at_zero(lhs, names), _at_zero(rhs, names))
        case Select(cond, then, other):
            return select(_at_zero(cond, names), _at_zero(then, names), _at_zero(other, names))
        case _:
            return expr


@statement_fault("relaxed arrival", "an arrival publishes nothing", Op)
def _relaxed(op: Any) -> Iterator[tuple[str, Block]]:
    arrives = any(isinstance(e, fx.Arrives) and not e.drop for e in op.effects())
    if arrives and getattr(op, "sem", "") == "release":
        yield ".relaxed instead of .release", (changed(op, sem="relaxed"),)


@statement_fault("relaxed wait", "a wait acquires nothing", Op)
def _unacquired(op: Any) -> Iterator[tuple[str, Block]]:
    if has_effect(op, fx.Waits) and op.sem == "acquire":
        yield ".relaxed instead of .acquire", (changed(op, sem="relaxed"),)


@statement_fault("scope too small", "an operation of the cluster orders for its CTA only", Op)
def _scope(op: Op) -> Iterator[tuple[str, Block]]:
    if getattr(op, "scope", None) == "cluster":
        yield f"{op.mnemonic} has .cta instead of .cluster", (changed(op, scope="cta"),)
