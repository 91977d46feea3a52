"""A try_wait whose answer only decides whether to wait again (DETERMINACY section 6).

``flag = try_wait(b, p)`` and, later, ``if not flag: wait(b, p)`` (or a loop of polls in its place)
is one wait that starts to look early: whatever the first look answers, the warp goes on when the
phase has completed. The timed run makes the second wait alone; what the first could have seen is
checked with the clock it had (condition C1), and whether the phase can be missed at the second
(C2). That both ask the same is seen when they are executed (`tilesim.sim.ops.mbarrier`). A chosen
schedule makes the first look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from tilesim.ir.expr import Binary, Const, Expr, Unary, Var
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.memory import Mbar, View
from tilesim.ir.op import ANNOTATIONS, Op, results_of
from tilesim.ir.ops.mbarrier import MbarrierTestWait, MbarrierTryWait, MbarrierWait
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import For, If, Program, Stmt, While, walk

Poll = MbarrierTryWait | MbarrierTestWait


def second_wait(stmt: If) -> tuple[Var, MbarrierWait] | None:
    """The flag and the wait of ``if not flag: wait``, else None."""
    match stmt:
        case If(cond=cond, then=(MbarrierWait() as wait,), orelse=()):
            pass
        case _:
            return None
    flag = polled_flag(cond)
    return None if flag is None else (flag, wait)


def polled_flag(cond: Expr) -> Var | None:
    """The flag of ``not flag``, else None."""
    match cond:
        case Unary("not", Var() as flag) | Binary("==", Var() as flag, Const(0)):
            return flag
        case _:
            return None


def spin_wait(stmt: While) -> tuple[MbarrierWait, Assign] | None:
    """The blocking wait a canonical ``while not try_wait`` loop stands for (A25), else None."""
    if len(stmt.body) != 1 or not isinstance(stmt.body[0], Poll):
        return None
    poll = stmt.body[0]
    flag = polled_flag(stmt.cond)
    if flag is None or flag != poll.result:
        return None
    wait = MbarrierWait(
        mbar=poll.mbar, phase=poll.phase, parity=poll.parity, sem=poll.sem, scope=poll.scope,
        loc=poll.loc,
    )  # fmt: skip
    return (wait, Assign(var=flag, value=Const(1), loc=stmt.loc))


def peek_flags(program: Program) -> frozenset[str]:
    """Variables that only carry the answer of a poll to such an ``if``, or to a loop of polls."""
    polled = {s.result.name for s in walk(program.body) if isinstance(s, Poll)}
    used = {v.name for stmt in walk(program.body) for e in _uses(stmt) for v in _vars(e)}
    deciding: set[str] = set()
    for stmt in walk(program.body):
        match stmt:
            case If() if (pair := second_wait(stmt)) is not None:
                deciding.add(pair[0].name)
            case While() if (spin := spin_wait(stmt)) is not None:
                deciding.add(spin[1].var.name)
            case _:
                pass
    assigned = {
        s.var.name
        for s in walk(program.body)
        if isinstance(s, Assign) and not isinstance(s.value, Const)
    }
    return frozenset(polled & deciding - used - assigned)


def _vars(expr: Expr) -> Iterator[Var]:
    return (e for e in walk_expr(expr) if isinstance(e, Var))


def _uses(stmt: Stmt) -> Iterator[Expr]:
    """Expressions whose value matters, the conditions of `second_wait` left out."""
    match stmt:
        case For():
            yield from (stmt.start, stmt.stop, stmt.step)
        case While():
            if spin_wait(stmt) is None:
                yield stmt.cond
        case If():
            if second_wait(stmt) is None:
                yield stmt.cond
        case Op():
            left_out = ANNOTATIONS | results_of(type(stmt))
            for field in fields(stmt):
                if field.name not in left_out:
                    yield from _expressions(getattr(stmt, field.name))
        case _:
            pass


def _expressions(value: object) -> Iterator[Expr]:
    match value:
        case Expr():
            yield value
        case View():
            yield from value.offsets
            yield from _expressions(value.cta)
        case Mbar():
            yield value.index
            yield from _expressions(value.cta)
        case tuple():
            for item in value:
                yield from _expressions(item)
        case _:
            pass
