"""Instructions that no lane executes, whatever data and scalars are: behind a comparison of a
pointer to nothing with null, say."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.arithmetic import integer_limits
from tilesim.ir.expr import Const, Expr, ScalarParam, walk
from tilesim.ir.flowgraph import known
from tilesim.ir.kept import kept
from tilesim.ir.mir import Branch, Instruction, Mir, Switch
from tilesim.ir.op import Op


@kept
def never(mir: Mir) -> frozenset[int]:
    """The numbers of instructions that no lane executes."""
    values = _values(mir)
    made, seen, left = set[int](), set[int](), [0]
    while left:
        number = left.pop()
        if number in seen or number >= len(mir.code):
            continue
        seen.add(number)
        instruction = mir.code[number]
        if instruction.guard is None or _number(instruction.guard, values) != 0:
            made.add(number)
        left += _next(number, instruction, values)
    return frozenset(range(len(mir.code))) - made


def _next(number: int, instruction: Instruction, values: dict[str, int]) -> tuple[int, ...]:
    match instruction.what:
        case Branch(target=target, cond=None):
            return (target,)
        case Branch(target=target, cond=Expr() as cond, sense=sense):
            holds = _number(cond, values)
            if holds is None:
                return number + 1, target
            return (target,) if bool(holds) is sense else (number + 1,)
        case Switch(targets=targets):
            return targets
        case Op(mnemonic="exit") if instruction.guard is None:
            return ()
        case _:
            return (number + 1,)


def _number(expr: Expr, values: dict[str, int]) -> int | float | None:
    """A value that every launch has."""
    return None if _mentions_given(expr) else known(expr, None, values)


def _mentions_given(expr: Expr) -> bool:
    return any(map(_is_given, walk(expr)))


def _is_given(part: Expr) -> bool:
    """Whether it is a number of one launch, or one that stands for those of all."""
    if isinstance(part, Const):
        return type(part.value) not in (bool, int, float)
    return isinstance(part, ScalarParam)


def _values(mir: Mir) -> dict[str, int]:
    """What registers hold that all instructions which set them set to one number that every launch
    has."""
    given: dict[str, list[Expr]] = {}
    others = set[str]()
    for _, effect in mir.all_of(fx.Defines):
        var, value = effect.var, effect.value
        if isinstance(value, Expr) and var.dtype.kind != "float" and not _mentions_given(value):
            given.setdefault(var.name, []).append(value)
        else:
            others.add(var.name)
    limits = {e.var.name: integer_limits(e.var.dtype) for _, e in mir.all_of(fx.Defines)
              if e.var.dtype.kind != "float"}  # fmt: skip
    found: dict[str, int] = {}
    left = [(name, values) for name, values in given.items() if name not in others]
    while True:
        before = len(found)
        for name, values in left:
            numbers = {known(value, None, found) for value in values}
            number = numbers.pop() if len(numbers) == 1 else None
            low, high = limits[name]
            if isinstance(number, int) and low <= number <= high:
                found[name] = number
        if len(found) == before:
            return found
        left = [(name, values) for name, values in left if name not in found]
