"""What instructions mention, and which registers they set: read off one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import NamedTuple

from tilesim.ir import effects as fx
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.expr import Base, Binary, Expr, Select, Special, Unary, Var, binary, select, unary
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Instruction, Mir, condition
from tilesim.ir.op import ANNOTATIONS, Op, results_of
from tilesim.ir.tensor_memory import TmemView


@cached
def sets_only(op: Op) -> bool:
    """Whether an instruction does nothing but set registers."""
    effects = op.effects()
    return bool(effects) and all(isinstance(effect, fx.Defines) for effect in effects)


def only_computes(op: Op) -> bool:
    """Whether all that an instruction does is to set registers to what its operands say."""
    return sets_only(op) and not any(
        isinstance(e, fx.Defines) and (e.oracle or e.elsewhere or e.unknown) for e in op.effects()
    )


def computed(effects: tuple[fx.Effect, ...]) -> frozenset[str] | None:
    """The registers that an instruction sets which does nothing else; None if it does."""
    names = {e.var.name for e in effects if isinstance(e, fx.Defines) and not e.oracle}
    return frozenset(names) if len(names) == len(effects) else None


def sets(mir: Mir, number: int) -> frozenset[str]:
    """The registers that an instruction sets."""
    return _sets(mir)[number]


@cached
def _sets(mir: Mir) -> tuple[frozenset[str], ...]:
    return tuple(
        frozenset([e.var.name for e in effects if isinstance(e, fx.Defines)])
        for effects in mir.effects
    )


@cached
def registers_set(op: Op) -> tuple[Var, ...]:
    """The registers that an instruction sets."""
    return tuple([e.var for e in op.effects() if isinstance(e, fx.Defines)])


@cached
def operand_expressions(op: Op) -> tuple[Expr, ...]:
    """All expressions in the operands of an instruction; a register that it sets only is none."""
    values = [getattr(op, name) for name in OPERANDS[type(op)]]
    return tuple([expr for value in values for expr in expressions_in(value)])


class Mentions(NamedTuple):
    """What the expressions of an instruction are made of: names of registers, ``%lane_id`` of
    special ones, ``&A`` of addresses.

    ``tested``: by what decides whether it is executed or where it goes; ``used``: by its operands.
    ``operands``: name, value and mentions of each operand that has any.
    """

    tested: frozenset[str]
    used: frozenset[str]
    operands: tuple[tuple[str, object, frozenset[str]], ...]

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return self.tested | self.used if self.tested and self.used else self.tested or self.used


_NOTHING: frozenset[str] = frozenset()


@cached
def mentions(mir: Mir) -> tuple[Mentions, ...]:
    """What each instruction mentions, by number."""
    return tuple(map(mentions_of, mir.code))


def reads(mir: Mir, number: int) -> frozenset[str]:
    """What an instruction, or what decides it, is made of."""
    return mentions(mir)[number].names


@cached
def registers_of(mir: Mir) -> dict[str, set[str]]:
    """By what operands mention, the registers that are set by instructions with these operands."""
    found: dict[str, set[str]] = {}
    for number, mentioned in enumerate(mentions(mir)):
        for name in mentioned.used:
            found.setdefault(name, set()).update(sets(mir, number))
    return found


def mentions_of(instruction: Instruction) -> Mentions:
    """What an instruction mentions."""
    op = instruction.what
    if isinstance(op, Op):
        guard, found = instruction.guard, _mentioning(op)
        return found if guard is None else Mentions(mentioned(guard), found.used, found.operands)
    cond = condition(instruction)
    return Mentions(_NOTHING if cond is None else mentioned(cond), _NOTHING, ())


@cached
def _mentioning(op: Op) -> Mentions:
    """What the operands of an instruction mention."""
    found: list[tuple[str, object, frozenset[str]]] = []
    used = _NOTHING
    values = op.__dict__
    for name in OPERANDS[type(op)]:
        value = values[name]
        if isinstance(value, Expr):
            names = mentioned(value)
        elif isinstance(value, _WITHOUT):
            continue
        else:
            names = _NOTHING.union(*map(mentioned, expressions_in(value)))
        if names:
            found.append((name, value, names))
            used = used | names if used else names
    return Mentions(_NOTHING, used, tuple(found))


@cached
def mentioned(expr: Expr) -> frozenset[str]:
    """What an expression is made of, as `Mentions` has it."""
    match expr:
        case Var(name):
            return frozenset((name,))
        case Binary(_, lhs, rhs):
            first, second = mentioned(lhs), mentioned(rhs)
            return first | second if first and second else first or second
        case Unary(_, operand):
            return mentioned(operand)
        case Select(cond, then, other):
            return mentioned(cond) | mentioned(then) | mentioned(other)
        case Special(name):
            return frozenset((f"%{name}",))
        case Base(name):
            return frozenset((f"&{name}",))
        case _:
            return _NOTHING


#: operands that are no expressions and have none
_WITHOUT = (int, str, type(None))


class _Fields(dict[type[Op], tuple[str, ...]]):
    """Filled as classes are asked for."""

    def __missing__(self, kind: type[Op]) -> tuple[str, ...]:
        left_out = ANNOTATIONS | results_of(kind)
        self[kind] = tuple(f.name for f in fields(kind) if f.name not in left_out)
        return self[kind]


#: by class of instruction: the names of its operands, registers that it only sets left out
OPERANDS = _Fields()


def expressions_in(value: object) -> tuple[Expr, ...]:
    """The expressions in an operand: offsets, indices, ranks, or the operand itself."""
    match value:
        case Expr() as expr:
            return (expr,)
        case View() | Mbar():
            return value.operands
        case tuple() as items:
            return tuple([i for i in items if isinstance(i, Expr)])
        case TmemView() as tmem:
            return (tmem.address,)
        case _:
            return ()


def rebuilt(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """``expr`` with what is no operation in it put through a function."""
    match expr:
        case Unary(op, operand):
            return unary(op, rebuilt(operand, leaf))
        case Binary(op, lhs, rhs):
            return binary(op, rebuilt(lhs, leaf), rebuilt(rhs, leaf))
        case Select(cond, then, other):
            return select(*(rebuilt(e, leaf) for e in (cond, then, other)))
        case _:
            return leaf(expr)


def replaced(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """``expr`` with other values in place of some registers."""
    return rebuilt(expr, lambda e: values.get(e.name, e) if isinstance(e, Var) else e)
