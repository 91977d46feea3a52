"""Assignments in a row as one step: a function of Python that is made once the row has been
executed often.

It is for registers that hold one integer for all lanes, which is what most arithmetic of PTX is
about: counters, addresses of stages, parities. Where one of them holds anything else the row is
executed one instruction after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tilesim.arith.intervals import Interval
from tilesim.arith.operators import COMPARE, integer
from tilesim.ir.addresses import RANK_SHIFT
from tilesim.ir.arithmetic import LIMITS, Typing, integer_limits, join_types
from tilesim.ir.effects import Defines
from tilesim.ir.expr import (
    Base,
    Binary,
    Const,
    Expr,
    ScalarParam,
    Select,
    Unary,
    Var,
    walk,
)
from tilesim.ir.large import size_of
from tilesim.ir.op import Op
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Code, Entry, Step, Warp

#: rows are compiled when they have been executed this often
_OFTEN = 32
#: what is written in Python as it is in an expression
_AS_IT_IS = frozenset(["+", "-", "*", "&", "|", "^", "==", "!=", "<", "<=", ">", ">="])
#: counts of shifts are below this
_MOST_BITS = 64
#: a row of so many assignments is one function at most
LONGEST = 64
#: levels of an expression that is written in Python, where each is in up to four parentheses, and
#: 200 of these are too many
DEEPEST = 40

Put: TypeAlias = Callable[[Warp, int, Any], None]
#: a register and what it is set to
Assignment: TypeAlias = tuple[Var, Expr]


def one_by_one(w: Warp, steps: Sequence[tuple[Step, bool]]) -> None:
    """A row of instructions, each with whether it counts as executed, by themselves."""
    for number, (step, counts) in enumerate(steps):
        if number:
            w.pc += 1
            w.executed += counts
        step(w)


class Row:
    """Assignments in a row; ``alone`` are their steps, each with whether it counts as executed.

    ``put`` writes a register where not all lanes are active.
    """

    def __init__(
        self, ops: Sequence[Assignment], alone: Sequence[tuple[Step, bool]],
        slots: Mapping[str, int], typing: Typing, put: Put,
    ) -> None:  # fmt: skip
        self._ops, self._alone, self._slots, self._typing = ops, alone, slots, typing
        self._put = put
        self._left = _OFTEN
        self._fast: Callable[[Warp], bool] | None = None

    def step(self, w: Warp) -> None:
        """What all of the instructions do."""
        if self._fast is not None:
            if self._fast(w):
                return
        elif self._left:
            self._left -= 1
            if not self._left:
                self._fast = _function(self._text(), self._put)
        one_by_one(w, self._alone)

    def _text(self) -> str:
        """The function: whether it has done what the row does, which needs integers."""
        python = _Python(self._slots, self._typing)
        lines = [python.assigned(var, value) for var, value in self._ops]
        asked = " and ".join(f"type(r{slot}) is int" for slot in python.read)
        written = [*dict.fromkeys(self._slots[var.name] for var, _ in self._ops)]
        counted = sum(counts for _, counts in self._alone[1:])
        return "\n".join((
            "def row(w):",
            "    r = w.registers",
            *(f"    r{slot} = r[{slot}]" for slot in python.read),
            f"    if not ({asked or True}):",
            "        return False",
            *(f"    {line}" for line in lines),
            f"    if w.mask == {FULL}:",
            *(f"        r[{slot}] = r{slot}" for slot in written),
            "    else:",
            *(f"        put(w, {slot}, r{slot})" for slot in written),
            f"    w.pc += {len(self._ops) - 1}",
            f"    w.executed += {counted}",
            "    return True",
        ))  # fmt: skip


def _function(text: str, put: Put) -> Callable[[Warp], bool]:
    names: dict[str, Any] = {"put": put}
    exec(compile(text, "<assignments in a row>", "exec"), names)
    made: Callable[[Warp], bool] = names["row"]
    return made


class _Python:
    """Expressions over registers that hold integers, as text of Python."""

    def __init__(self, slots: Mapping[str, int], typing: Typing) -> None:
        self._slots, self._typing = slots, typing
        #: registers whose values before the row are read
        self.read: dict[int, None] = {}
        self._set: set[int] = set()

    def assigned(self, var: Var, value: Expr) -> str:
        """An assignment."""
        text, slot = self._register(var, value), self._slots[var.name]
        self._set.add(slot)
        return f"r{slot} = {text}"

    def _register(self, var: Var, value: Expr) -> str:
        """A value in the type of its register."""
        text, known = self._of(value), self._typing.interval(value)
        if var.name in self._typing.tokens:
            return text
        if var.dtype.kind == "pred":
            return text if known in ((0, 0), (0, 1), (1, 1)) else f"({text} != 0) * 1"
        low, high = integer_limits(var.dtype)
        return text if _within(known, low, high) else _wrapped(text, low, high)

    def _of(self, expr: Expr) -> str:
        match expr:
            case Const(value) | ScalarParam(_, value):
                return f"({integer(value)})"
            case Var(name):
                slot = self._slots[name]
                if slot not in self._set:
                    self.read[slot] = None
                return f"r{slot}"
            case Unary("not", operand):
                return f"(0 if {self._of(operand)} else 1)"
            case Unary(op, operand):
                return self._wrapped(expr, f"({op}{self._of(operand)})")
            case Binary("and" | "or" as op, lhs, rhs):
                return f"(1 if {self._of(lhs)} {op} {self._of(rhs)} else 0)"
            case Binary(op, lhs, rhs):
                return self._binary(expr, op, lhs, rhs)
            case Select(cond, then, other):
                text = f"({self._of(then)} if {self._of(cond)} else {self._of(other)})"
                return self._wrapped(expr, text)
            case Base(name, space):
                rank = f" + (w.cta.rank << {RANK_SHIFT})" if space == "shared" else ""
                return f"(w.machine.plan.bases[{name!r}]{rank})"
            case _:
                raise TypeError(f"not of integers: {expr!r}")

    def _binary(self, expr: Binary, op: str, lhs: Expr, rhs: Expr) -> str:
        if op in ("<<", ">>"):
            a, b = self._of(lhs), self._of(rhs)
        else:
            kind = join_types(self._typing.type_of(lhs), self._typing.type_of(rhs))
            a, b = (self._converted(e, kind) for e in (lhs, rhs))
        if op in COMPARE:
            return f"(1 if {a} {op} {b} else 0)"
        return self._wrapped(expr, f"({a} {op} {b})")

    def _converted(self, expr: Expr, kind: str) -> str:
        """An operand in the type in which an operation is made."""
        text = self._of(expr)
        if kind != "u64" or _within(self._typing.interval(expr), *LIMITS["u64"]):
            return text
        return _wrapped(text, *LIMITS["u64"])

    def _wrapped(self, expr: Expr, text: str) -> str:
        if not self._typing.wraps(expr):
            return text
        return _wrapped(text, *LIMITS[self._typing.type_of(expr)])


def _within(known: Interval | None, low: int, high: int) -> bool:
    return known is not None and low <= known[0] and known[1] <= high


def _wrapped(text: str, low: int, high: int) -> str:
    if not low:
        return f"({text} & {high})"
    return f"(({text} - {low} & {high - low}) + {low})"


def assignment(op: Op, typing: Typing) -> Assignment | None:
    """The register that an instruction sets to an expression over integers, and the expression,
    if it does nothing else and all operations are written in Python."""
    match op.effects():
        case (Defines(var, Expr() as value, oracle="", unknown=""),):
            if var.dtype.kind == "float" or size_of(value)[0] > DEEPEST:
                return None
            return (var, value) if all(_written(part, typing) for part in walk(value)) else None
        case _:
            return None


def _written(part: Expr, typing: Typing) -> bool:
    if typing.type_of(part) not in LIMITS:
        return False
    match part:
        case Const() | ScalarParam() | Var() | Unary() | Select() | Base():
            return True
        case Binary("<<" | ">>", _, count):
            known = typing.interval(count)
            return _within(known, 0, _MOST_BITS - 1)
        case Binary("and" | "or"):
            return True
        case Binary(op):
            return op in _AS_IT_IS
        case _:
            return False


def stretches(numbers: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Those of ``numbers``, which rise, that follow each other; not single ones."""
    row: list[int] = []
    for number in numbers:
        if row and (number != row[-1] + 1 or len(row) == LONGEST):
            if len(row) > 1:
                yield tuple(row)
            row = []
        row.append(number)
    if len(row) > 1:
        yield tuple(row)


def take_apart(code: Code, steps: list[Entry], numbers: Collection[int]) -> None:
    """Makes each of these instructions a step by itself, and what is between them in a row of
    assignments a row of its own."""
    for row, together in [*code.rows.items()]:
        if steps[row[0]] is not together or set(numbers).isdisjoint(row):
            continue
        steps[row[0]] = code.alone[row[0]]
        if row in code.assigned and code.row is not None:
            for part in stretches(n for n in row if n not in numbers):
                steps[part[0]] = code.row(part)
