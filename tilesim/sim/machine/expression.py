"""Compiles expressions to functions of a warp: one value, or an array with one value per lane.

An array holds 64-bit numbers with a sign, or integers of Python where a u64 is beyond 2^63.
Results have the types of `tilesim.ir.arithmetic`: integers wrap and floats round as they do in the
emitted code. Where the operands' ranges show that nothing can wrap, nothing is checked.

PTX leaves some numbers open (`Open`): quotients of a division by zero, and what a register holds in
lanes that have not set it when others have. A register may hold one in some lanes as long as
nothing depends on it: ``select`` throws away what it does not choose, a branch leaves lanes out.
Every use of an expression that may be such a number looks at its lanes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import mentioned, operand_expressions, registers_set, sets_only
from tilesim.arith.array_operators import ARRAY_BINARY, ARRAY_UNARY
from tilesim.arith.operators import BINARY, COMPARE, UNARY, integer
from tilesim.arith.sums import Sums, combined
from tilesim.arith.types import DType
from tilesim.ir.addresses import RANK_SHIFT
from tilesim.ir.arithmetic import (
    LIMITS,
    CType,
    Typing,
    integer_limits,
    join_types,
    round_f32,
    variable_type,
)
from tilesim.ir.effects import Defines, Shuffles
from tilesim.ir.expr import (
    Base,
    Binary,
    Const,
    Expr,
    ScalarParam,
    Select,
    Special,
    Unary,
    Var,
    walk,
)
from tilesim.ir.mir import Mir, condition
from tilesim.ir.op import Op
from tilesim.sim.machine.errors import Fault, UnassignedVariable
from tilesim.sim.machine.lanes import FULL, condition_lanes, mask_array, name_lanes
from tilesim.sim.machine.machine import Code, Warp
from tilesim.sim.machine.unknown import Open, Unknown, open_lanes, opened, plain

Evaluate: TypeAlias = Callable[[Warp], Any]
#: what brings a value into a type; None if every value it is given has it already
Fit: TypeAlias = Callable[[Any], Any]
#: whether a division by zero gives an open number
Opens: TypeAlias = Callable[[Binary], bool]

_INT64 = LIMITS["s64"]
_LANE_IDS = np.arange(32, dtype=np.int64)
#: the integer types that floats are converted to, the narrowest first
_CONVERTED = (LIMITS["s32"], LIMITS["u32"], LIMITS["s64"], LIMITS["u64"])
#: a shift by more gives what this one gives
_MOST_BITS = 64

_SPECIAL: dict[str, Evaluate] = {
    "warp_id": lambda w: w.number,
    "lane_id": lambda w: _LANE_IDS,
    "thread_id": lambda w: w.number * 32 + _LANE_IDS,
    "cta_x": lambda w: w.cta.coords[0],
    "cta_y": lambda w: w.cta.coords[1],
    "cta_z": lambda w: w.cta.coords[2],
    "grid_x": lambda w: w.machine.program.grid[0],
    "grid_y": lambda w: w.machine.program.grid[1],
    "grid_z": lambda w: w.machine.program.grid[2],
    "cluster_rank": lambda w: w.cta.rank,
    "cluster_size": lambda w: w.machine.program.cluster_size,
    "cluster_id": lambda w: w.cta.cluster.number,
}


#: C implementations of the operators that give a plain int for ints
_FAST: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def merged(chosen: NDArray[np.bool_], value: Any, other: Any) -> Any:
    """``value`` in the chosen lanes, ``other`` in the rest; not known if one of them is not."""
    a, b = plain(value), plain(other)
    if type(a) is Unknown or type(b) is Unknown:
        lanes = _lanes_of_one(chosen)
        return opened(
            open_lanes(value) & lanes | open_lanes(other) & ~lanes, a if type(a) is Unknown else b
        )
    if _is_wide(a) or _is_wide(b):  # NumPy takes it for the negative number with its bits
        a, b = np.asarray(a, dtype=object), np.asarray(b, dtype=object)
    result = np.where(chosen, a, b)
    if type(value) is Open or type(other) is Open:
        lanes = _lanes_of_one(chosen)
        return opened(open_lanes(value) & lanes | open_lanes(other) & ~lanes, result)
    return result


def assign(w: Warp, slot: int, value: Any) -> None:
    """``register = value`` in the active lanes; the others keep theirs."""
    held = w.registers[slot]
    if w.mask == FULL or (held is None and slot not in w.machine.plan.open_registers):
        w.registers[slot] = value
    elif held is not None:
        w.registers[slot] = merged(mask_array(w.mask), value, held)
    else:  # the others have not set it
        w.registers[slot] = opened(FULL & ~w.mask | open_lanes(value), plain(value))


def _lanes_of_one(holds: Any) -> int:
    """The lanes in which something holds that is the same in all clusters.

    Raises:
        ZeroDivisionError: it is not.
    """
    if np.ndim(holds) > 1:
        raise ZeroDivisionError("0 divides in some cluster")
    return condition_lanes(holds)


def _is_wide(value: Any) -> bool:
    """Whether a number is no integer of 64 bits with a sign."""
    return type(value) is int and not _INT64[0] <= value <= _INT64[1]


def evaluator(code: Code, expr: Expr) -> Evaluate:
    """The function that evaluates ``expr``, an expression of a loaded program, which is compiled
    once for all its uses."""
    known = code.evaluators.get(id(expr))
    if known is None:
        known = expr, compile_expr(expr, code.slots, code.mir.typing, code.opens, code.may_be_unset)
        code.evaluators[id(expr)] = known
    return known[1]


def compile_expr(
    expr: Expr, slots: Mapping[str, int], typing: Typing, opens: Opens | None = None,
    may_be_unset: frozenset[str] = frozenset(),
) -> Evaluate:  # fmt: skip
    """A function that evaluates ``expr`` for a warp; ``slots`` maps variable names to registers.

    ``opens``: whether a division by zero gives an open number, or any; None: it raises
    ZeroDivisionError in active lanes. ``may_be_unset``: registers that are open where no lane has
    set them; of the others `UnassignedVariable` is raised.
    """

    def part(expr: Expr) -> Evaluate:
        return compile_expr(expr, slots, typing, opens, may_be_unset)

    match expr:
        case Const(value):
            number = integer(value) if isinstance(value, bool) else value
            return lambda w: number
        case ScalarParam(_, value):
            return lambda w: value
        case Special(name):
            return _SPECIAL[name]
        case Base(name, "shared"):
            return lambda w: w.machine.plan.bases[name] + (w.cta.rank << RANK_SHIFT)
        case Base(name):
            return lambda w: w.machine.plan.bases[name]
        case Var(name):
            return _variable(name, slots[name], may_be_unset)
        case Unary(op, operand):
            evaluate = _unary(op, part(operand))
        case Binary():
            evaluate = _binary_of(expr, part, slots, typing, opens)
        case Select(cond, then, other):
            evaluate = _select(part(cond), part(then), part(other))
        case _:
            raise TypeError(f"not an expression: {expr!r}")
    fit = _result(expr, typing)
    return evaluate if fit is None else lambda w: fit(evaluate(w))


def _binary_of(
    expr: Binary, part: Callable[[Expr], Evaluate], slots: Mapping[str, int], typing: Typing,
    opens: Opens | None,
) -> Evaluate:  # fmt: skip
    op, rhs = expr.op, expr.rhs
    if op in ("<<", ">>"):
        count = typing.interval(rhs)
        if count is None or count[0] < 0 or count[1] >= _MOST_BITS:
            return _shift(op, part(expr.lhs), part(rhs))
    elif op not in ("and", "or"):
        kind = join_types(typing.type_of(expr.lhs), typing.type_of(rhs))
        divides = may_divide_by_zero(expr, typing)
        if divides or kind in ("u64", "f32"):
            to = kind if kind in ("u64", "f32") else None
            sides = [_converted(part(e), e, to, typing) for e in (expr.lhs, rhs)]
            if divides:
                return _quotient(op, *sides, opens=None if opens is None else opens(expr))
            return _binary(op, *sides)
    lhs_of = part(expr.lhs)
    if isinstance(rhs, Const) and not isinstance(rhs.value, float):
        general = _binary_const(op, lhs_of, integer(rhs.value))
        if isinstance(expr.lhs, Var) and op in _FAST:
            return _of_register(slots[expr.lhs.name], _FAST[op], integer(rhs.value), general)
        return general
    return _binary(op, lhs_of, part(rhs))


def may_divide_by_zero(expr: Expr, typing: Typing) -> bool:
    """Whether an expression is a quotient or remainder of integers of which the divisor may be 0:
    PTX leaves the number open then."""
    match expr:
        case Binary("//" | "%", _, rhs) if typing.type_of(expr) in LIMITS:
            known = typing.interval(rhs)
            return known is None or known[0] <= 0 <= known[1]
        case _:
            return False


def _quotient(op: str, lhs: Evaluate, rhs: Evaluate, *, opens: bool | None) -> Evaluate:
    """Where 0 divides in an active lane, the result is open if it ``opens`` (None: that raises
    ZeroDivisionError); in other lanes it is 0."""
    scalar = BINARY[op]

    def evaluate(w: Warp) -> Any:
        a, b = lhs(w), rhs(w)
        scalars = isinstance(a, (int, float)) and isinstance(b, (int, float))
        if scalars and b:
            return scalar(a, b)
        result = 0 if scalars else _apply(op, a, b)
        divisor = plain(b)
        if type(divisor) is Unknown or opens is False:
            return result
        zero = np.equal(divisor, 0) & mask_array(w.mask)
        if not np.any(zero):
            return result
        if opens is None:
            raise ZeroDivisionError(f"0 divides in {op}")
        return opened(_lanes_of_one(zero) | open_lanes(result), plain(result))

    return evaluate


def _converted(evaluate: Evaluate, expr: Expr, kind: CType | None, typing: Typing) -> Evaluate:
    """An operand in the type in which an operation is made, if that is another one."""
    fit = None if kind is None else _into(kind, typing.interval(expr))
    return evaluate if fit is None else lambda w: fit(evaluate(w))


def _result(expr: Expr, typing: Typing) -> Fit | None:
    """What the result of an operation needs to be of its type."""
    kind = typing.type_of(expr)
    if kind == "f64" or (isinstance(expr, Binary) and expr.op in COMPARE):
        return None
    if kind == "f32":
        return _round
    known = typing.interval(expr)
    # numbers of lanes are computed in 64 bits with a sign
    beyond = known is None or known[1] > LIMITS["s64"][1]
    return _into(kind, None) if beyond or typing.wraps(expr) else None


def _into(kind: CType, known: tuple[int, int] | None) -> Fit | None:
    """Conversion of a value (within ``known``, if it is an integer) to a type."""
    if kind == "f64":
        return None
    if kind == "f32":
        return _round
    low, high = LIMITS[kind]
    if known is not None and low <= known[0] and known[1] <= high:
        return None
    return lambda value: _wrap(value, low, high)


def _wrap(value: Any, low: int, high: int) -> Any:
    if type(value) is int:
        return value if low <= value <= high else (value - low) % (high - low + 1) + low
    if type(value) is Sums:
        same = value.wrapped(low, high)
        if same is not None:
            return same
    if type(value) is Open:
        return opened(value.lanes, _wrap(value.values, low, high))
    value = plain(value)
    if type(value) is Unknown:
        return value
    if not isinstance(value, np.ndarray):
        return _wrap(_truncated(float(value), high), low, high)
    if value.dtype.kind == "f":
        value = np.array([_truncated(v, high) for v in value.tolist()], dtype=object)
    if value.dtype == object:
        return _narrowed((value - low & high - low) + low)
    if high - low < (1 << 64) - 1:
        return (value - low & high - low) + low
    if low < 0 or not value.size or np.minimum.reduce(value, axis=None) >= 0:
        return value  # two's complement has wrapped it
    return value.astype(object) & high


def _narrowed(value: NDArray[Any]) -> NDArray[Any]:
    """Integers of Python as numbers of 64 bits with a sign, if all of them fit."""
    try:
        return value.astype(np.int64)
    except OverflowError:
        return value


def _truncated(value: float, high: int) -> int:
    """A float as an integer, as cvt.rzi does: NaN is 0, and what does not fit the nearest bound.

    ``high``: the greatest value of the type it is meant for; narrow ones are converted from s32.
    """
    if value != value:
        return 0
    low, top = next((a, b) for a, b in _CONVERTED if high <= b)
    return low if value <= low else top if value >= top else int(value)


def _round(value: Any) -> Any:
    if type(value) is Open:
        return opened(value.lanes, _round(value.values))
    value = plain(value)
    if type(value) is Unknown:
        return value
    if isinstance(value, np.ndarray):
        return value.astype(np.float32).astype(np.float64)
    return round_f32(float(value))


def fit_register(dtype: DType, value: Expr, typing: Typing, *, token: bool = False) -> Fit | None:
    """What brings the value of an expression into a register of type ``dtype``."""
    if token:
        return None
    if dtype.kind == "pred":
        return None if typing.interval(value) in ((0, 0), (0, 1), (1, 1)) else _truth
    return fit_value(dtype, typing.interval(value))


def fit_value(dtype: DType, known: tuple[int, int] | None) -> Fit | None:
    """What brings a number (an integer within ``known``, or a float) into ``dtype``."""
    if dtype.kind == "float":
        return _into(variable_type(dtype), None)
    low, high = integer_limits(dtype)
    if known is not None and low <= known[0] and known[1] <= high:
        return None
    return lambda value: _wrap(value, low, high)


def _truth(value: Any) -> Any:
    if type(value) is Open:
        return opened(value.lanes, _truth(value.values))
    value = plain(value)
    if type(value) is Unknown:
        return value
    return (value != 0).astype(np.int64) if isinstance(value, np.ndarray) else int(value != 0)


def _shift(op: str, lhs: Evaluate, count: Evaluate) -> Evaluate:
    """A shift: PTX takes the count as unsigned, and one beyond the width shifts everything out."""
    scalar = BINARY[op]

    def evaluate(w: Warp) -> Any:
        return shifted(lhs(w), count(w))

    def shifted(a: Any, n: Any) -> Any:
        if type(a) is Open or type(n) is Open:
            return opened(open_lanes(a) | open_lanes(n), shifted(plain(a), plain(n)))
        a, n = plain(a), plain(n)
        if type(a) is Unknown or type(n) is Unknown:
            return opened(open_lanes(a) | open_lanes(n), a if type(a) is Unknown else n)
        if not isinstance(a, np.ndarray) and not isinstance(n, np.ndarray):
            return scalar(a, n if 0 <= n < _MOST_BITS else _MOST_BITS)
        near = (np.asarray(n) >= 0) & (np.asarray(n) < _MOST_BITS)
        gone = 0 if op == "<<" else np.where(np.asarray(a) < 0, -1, 0)
        return np.where(near, _apply(op, a, np.where(near, n, 0)), gone)

    return evaluate


def _variable(name: str, slot: int, may_be_unset: frozenset[str]) -> Evaluate:
    is_open = name in may_be_unset

    def read(w: Warp) -> Any:
        value = w.registers[slot]
        if value is None:
            if not is_open:
                raise UnassignedVariable(name)
            return opened(FULL, 0)
        return value

    return read


def _unary(op: str, operand: Evaluate) -> Evaluate:
    scalar, array = UNARY[op], ARRAY_UNARY[op]

    def evaluate(w: Warp) -> Any:
        value = operand(w)
        a = plain(value)
        if type(a) is Unknown:
            return a
        if type(value) is Open:
            return opened(value.lanes, array(a))
        return array(a) if isinstance(a, np.ndarray) else scalar(a)

    return evaluate


def _apply(op: str, a: Any, b: Any) -> Any:
    """``a op b`` where at least one is an array, or not known; comparisons give 0 and 1."""
    if type(a) is Sums or type(b) is Sums:
        found = combined(op, ARRAY_BINARY[op], a, b)
        if found is not None:
            return found
    if type(a) is Open or type(b) is Open:
        return _of_open(op, a, b)
    a, b = plain(a), plain(b)
    if type(a) is Unknown or type(b) is Unknown:
        return _of_unknown(op, a, b)
    try:
        result = ARRAY_BINARY[op](a, b)
    except OverflowError:  # an integer beyond 2^63
        result = None
    if result is None or result.dtype == object:
        return _exactly(op, a, b)
    return result.astype(np.int64) if result.dtype == bool else result


def _exactly(op: str, a: Any, b: Any) -> NDArray[Any]:
    """``a op b`` with integers of Python, lane by lane; a mask of 64 bits at once, as conversions
    of a grid's addresses have it in every lane of all CTAs."""
    mask, array = (a, b) if type(a) is int else (b, a)
    if op == "&" and type(mask) is int and 0 <= mask < 1 << 64 and array.dtype == np.int64:
        kept = np.ascontiguousarray(array).view(np.uint64) & np.uint64(mask)
        return kept.view(np.int64) if (kept >> np.uint64(63) == 0).all() else kept.astype(object)
    left, right = np.broadcast_arrays(np.asarray(a, dtype=object), np.asarray(b, dtype=object))
    scalar = BINARY[op]
    pairs = zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)
    result = np.array([scalar(x, y) for x, y in pairs], dtype=object)
    return _narrowed(result.reshape(left.shape))


def _of_unknown(op: str, a: Any, b: Any) -> Any:
    """``a op b`` where one is not known: neither is the result, if the other does not decide it."""
    lost, known = (a, b) if type(a) is Unknown else (b, a)
    if open_lanes(a) or open_lanes(b):
        return lost.opened(_open_in(op, a, b))
    if type(known) is int and (op, bool(known)) in (("and", False), ("or", True)):
        return int(bool(known))
    return 0 if op == "&" and type(known) is int and known == 0 else lost


def _of_open(op: str, a: Any, b: Any) -> Any:
    """``a op b`` where one is open in some lanes."""
    return opened(_open_in(op, a, b), _apply(op, plain(a), plain(b)))


def _open_in(op: str, a: Any, b: Any) -> int:
    """The lanes in which ``a op b`` is open: those of each, but where the other one decides it."""
    return open_lanes(a) & ~_decides(op, b) | open_lanes(b) & ~_decides(op, a)


def _decides(op: str, value: Any) -> int:
    """The lanes in which a value decides the result, whatever the other one is."""
    if op not in ("and", "or", "&") or type(value) is Unknown or np.ndim(plain(value)) > 1:
        return 0
    holds = _lanes_of_one(plain(value))
    return (holds if op == "or" else FULL & ~holds) & ~open_lanes(value)


def _binary(op: str, lhs: Evaluate, rhs: Evaluate) -> Evaluate:
    scalar = BINARY[op]

    def evaluate(w: Warp) -> Any:
        try:
            a, b = lhs(w), rhs(w)
        except UnassignedVariable:
            if not (_settles(op, lhs, w) or _settles(op, rhs, w)):
                raise
            return int(op == "or")
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            return scalar(a, b)
        return _apply(op, a, b)

    return evaluate


def _settles(op: str, side: Evaluate, w: Warp) -> bool:
    """Whether a side of ``op`` that lanes have set decides the result in all active ones."""
    with suppress(UnassignedVariable):
        return not w.mask & ~_decides(op, side(w))
    return False


def _binary_const(op: str, lhs: Evaluate, constant: int) -> Evaluate:
    scalar = _FAST.get(op) or BINARY[op]

    def evaluate(w: Warp) -> Any:
        a = lhs(w)
        return scalar(a, constant) if type(a) is int else _apply(op, a, constant)

    return evaluate


def _of_register(
    slot: int, operation: Callable[[Any, Any], Any], constant: int, general: Evaluate
) -> Evaluate:
    """A register and a constant, in one step while the register holds one integer."""

    def evaluate(w: Warp) -> Any:
        value = w.registers[slot]
        return operation(value, constant) if type(value) is int else general(w)

    return evaluate


def _select(cond: Evaluate, then: Evaluate, other: Evaluate) -> Evaluate:
    def evaluate(w: Warp) -> Any:
        value, a, b = cond(w), then(w), other(w)
        c = plain(value)
        if type(c) is Unknown:
            return c
        if not isinstance(c, np.ndarray):
            return a if c else b
        result = merged(c != 0, a, b)
        if type(value) is Open:
            return opened(value.lanes | open_lanes(result), plain(result))
        return result

    return evaluate


# ------------------------------------------------------------------ numbers that are open


class UsesUndefined(Fault):
    """An active lane uses the quotient of a division by zero."""

    def __init__(self, lanes: int) -> None:
        lane = (lanes & -lanes).bit_length() - 1
        super().__init__(
            f"lane {lane} uses the quotient or remainder of a division by zero, which is any number"
        )


def used(evaluate: Evaluate, unset: frozenset[str]) -> Evaluate:
    """``evaluate`` for uses to which the number matters in all active lanes; ``unset``: registers
    in it that are made of some which lanes may not have set."""

    def use(w: Warp) -> Any:
        value = evaluate(w)
        lanes = open_lanes(value) & w.mask
        if lanes and unset:
            where = "" if lanes == w.mask else f" in {name_lanes(lanes)}"
            raise UnassignedVariable(f"{min(unset)}{where}")
        if lanes:
            raise UsesUndefined(lanes)
        return value.values if type(value) is Open else value

    return use


class OpenNumbers:
    """Where a program may divide by zero, or some lanes may not have set a register that they use,
    and what becomes of such a number.

    Of a divisor that is data which is not looked at, nothing is said: ``deciding`` are the
    registers that are computed anyhow, all of them if it is None. ``unset``: registers that lanes
    may use which have not set them, when others have.
    """

    def __init__(self, mir: Mir, deciding: frozenset[str] | None, unset: Collection[str]) -> None:
        self._mir, self._deciding = mir, deciding
        #: those that are used on a path on which nothing sets them
        self.at_entry = frozenset(unset)
        #: those that are made of what lanes may not have set
        self.unset = frozenset(closure(unset, self._carried_to))
        #: registers that may hold such a number in some lane
        self.registers = self.unset
        divides = any(map(self._divides, _parts(mir)))
        self._any = divides or bool(unset)
        if divides:
            divided = [v.name for v, value in self._values if self.may_be_open(value)]
            self.registers |= closure(divided, self._sources_of)

    def may_be_open(self, expr: Expr) -> bool:
        """Whether an expression may be such a number."""
        return self._any and any(
            self._divides(part) or (isinstance(part, Var) and part.name in self.registers)
            for part in walk(expr)
        )

    def opens(self, expr: Binary) -> bool:
        """Whether the divisor of a quotient is what the program computes, and not what stands for
        data."""
        names = mentioned(expr.rhs)
        return all(name[0] in "%&" or name in self._computed for name in names)

    @cached_property
    def needed(self) -> frozenset[str]:
        """Registers that have to be computed for it."""
        if not self._any:
            return frozenset()
        parts = [mentioned(part) for part in _parts(self._mir) if self.may_be_open(part)]
        found = self.registers.union(*(names & self._computed for names in parts))
        held = self._computed | self.registers
        sources: dict[str, frozenset[str]] = {}
        for var, value in self._values:
            sources[var.name] = sources.get(var.name, frozenset()) | mentioned(value) & held
        return frozenset(closure(found, lambda name: sources.get(name, ())))

    def _divides(self, part: Expr) -> bool:
        return may_divide_by_zero(part, self._mir.typing)

    @cached_property
    def _values(self) -> list[tuple[Var, Expr]]:
        """The values that registers take of expressions, be it in other lanes."""
        found: list[tuple[Var, Expr]] = []
        for _, effect in self._mir.all_of(Defines):
            value = effect.value
            value = value.value if isinstance(value, Shuffles) else value
            found += [(effect.var, value)] if isinstance(value, Expr) else []
        return found

    @cached_property
    def _computed(self) -> frozenset[str]:
        """Registers that hold what the program computes, and not what stands for data."""
        names, deciding = frozenset(self._mir.setters), self._deciding
        if deciding is None:
            return names
        found = [effect for _, effect in self._mir.all_of(Defines)]
        data = {e.var.name for e in found if not isinstance(e.value, Expr)} - deciding
        held = closure(data, lambda name: self._sources_of(name) - deciding)
        return names - held

    def _sources_of(self, name: str) -> frozenset[str]:
        """The registers that expressions which mention this one set."""
        return self._makes.get(name, frozenset())

    def _carried_to(self, name: str) -> frozenset[str]:
        """Those, and what instructions set that only compute or exchange registers."""
        return self._sources_of(name) | {
            result.name
            for op in self._mir.ops()
            if (sets_only(op) or op.exchanges or op.combines)
            and any(name in mentioned(e) for e in operand_expressions(op))
            for result in registers_set(op)
        }

    @cached_property
    def _makes(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for var, value in self._values:
            for name in mentioned(value):
                found.setdefault(name, set()).add(var.name)
        return {name: frozenset(names) for name, names in found.items()}


def _parts(mir: Mir) -> Iterator[Expr]:
    """All expressions of a program, and what they consist of."""
    for instruction in mir.code:
        cond, what = condition(instruction), instruction.what
        if cond is not None:
            yield from walk(cond)
        if isinstance(what, Op):
            for expr in operand_expressions(what):
                yield from walk(expr)
