"""What the emitter knows about a program's variables before it writes a line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesim.arith.intervals import Interval
from tilesim.arith.operators import COMPARE
from tilesim.ir import effects as fx
from tilesim.ir.arithmetic import INT_MAX, INT_MIN, Typing, integer_limits
from tilesim.ir.expr import Binary, Const, Expr, Var
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.op import Op
from tilesim.ir.program import For, Program, Role, walk
from tilesim.ir.registers import assigned, operands, typing_of

#: after so many rounds a bound that still moves is taken to have none
_ROUNDS = 3


def emitted_typing(program: Program) -> Typing:
    """Types of registers, and what values those of integer types can have in any launch.

    The ranges hold every value that is ever written to a register: they are widened until no
    instruction leaves them.
    """
    ranges: dict[str, Interval] = {}
    steps = sorted(set(_literals(program)))
    typing = replace(typing_of(program), ranges=ranges, any_scalar=True)
    free = assigned(program)
    stable, rounds = False, 0
    while not stable:
        stable, rounds = True, rounds + 1
        for var, written in _definitions(program, typing, free):
            old = ranges.get(var.name)
            new = _joined(old, written, integer_limits(var.dtype))
            if old is not None and rounds > _ROUNDS:
                new = _widened(old, new, [*integer_limits(var.dtype), *steps])
            if new != old:
                ranges[var.name], stable = new, False
    return typing


def _definitions(
    program: Program, typing: Typing, free: frozenset[str]
) -> Iterator[tuple[Var, Interval]]:
    """What is written to registers of integer types, given what they hold so far."""
    for stmt in walk(program.body):
        if isinstance(stmt, For):
            counter = None if stmt.var.name in free else counted(stmt, typing)
            yield stmt.var, counter or integer_limits(stmt.var.dtype)
        elif isinstance(stmt, Op):
            for effect in stmt.effects():
                match effect:
                    case fx.Defines(var=var, value=value):
                        if var.dtype.kind != "float" and var.name not in typing.tokens:
                            known = typing.interval(value) if isinstance(value, Expr) else None
                            yield var, known or integer_limits(var.dtype)
                    case _:
                        pass


def _joined(old: Interval | None, new: Interval, limits: Interval) -> Interval:
    """Both ranges; the limits of the type where a value does not fit it."""
    if new[0] < limits[0] or new[1] > limits[1]:
        return limits
    return new if old is None else (min(old[0], new[0]), max(old[1], new[1]))


def _widened(old: Interval, new: Interval, steps: list[int]) -> Interval:
    """A bound that keeps moving goes to the next step: one of the type's, or of a comparison's."""
    low = max(s for s in steps if s <= new[0]) if new[0] < old[0] else new[0]
    high = min(s for s in steps if s >= new[1]) if new[1] > old[1] else new[1]
    return low, high


def _literals(program: Program) -> Iterator[int]:
    """The numbers that registers are compared with, where counting up or down may end."""
    for stmt in walk(program.body):
        for operand in operands(stmt):
            for part in walk_expr(operand):
                if isinstance(part, Binary) and part.op in COMPARE and isinstance(part.rhs, Const):
                    yield int(part.rhs.value)


def counted(loop: For, typing: Typing) -> Interval | None:
    """What a counter that only its loop sets can be, its value after the last turn included.

    None: it may leave its type.
    """
    start, stop, step = (typing.interval(e) for e in (loop.start, loop.stop, loop.step))
    if start is None or stop is None or step is None or step[0] <= 0 <= step[1]:
        return None
    if step[0] > 0:
        low, high = start[0], max(start[1], stop[1] - 1 + step[1])
    else:
        low, high = min(start[0], stop[0] + 1 + step[0]), start[1]
    return (low, high) if low >= INT_MIN and high <= INT_MAX else None


def role_name(outer: str, role: Role) -> str:
    """What reports call the warps inside ``role``: the outermost name that is not ``warp n``."""
    return outer or ("" if role.name.startswith("warp ") else role.name)
