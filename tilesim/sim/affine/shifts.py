"""By how much values differ from repetition to repetition, and for how many repetitions.

A value v with shift d is v + k d in the k-th repetition. Where an operation keeps that form, its
result has a shift; where an operation compares, what comes out is the same, and nothing wraps, in
some number of repetitions, which is found from the values: nothing may be skipped beyond that.

Some values do not differ by a shift, but can be computed for repetitions to come. What a kernel
works on next is often `tile % width`: no shift, yet a function of registers that have one. Such a
value may decide nothing but where global memory is accessed: that is looked at for all the
repetitions which are to be skipped, and for all clusters that take the same steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.operators import RELATIONS
from tilesim.ir.arithmetic import LIMITS, CType, Typing, join_types
from tilesim.ir.expr import Base, Binary, Const, Expr, ScalarParam, Select, Special, Unary, Var
from tilesim.sim.affine.cluster_values import CtaOfAllClusters, Mirror, Uniform, differs
from tilesim.sim.affine.free_parameter import UNBOUNDED
from tilesim.sim.machine.expression import Evaluate, Fit, compile_expr
from tilesim.sim.machine.lanes import FULL, mask_array
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.unknown import Unknown, plain

#: an integer, or integers of all clusters, or by cluster and lane
Number: TypeAlias = Any
#: beyond this, integers of 64 bits are not counted with
_FAR = 1 << 61


class NoShift(Exception):
    """A value does not differ by the same amount from repetition to repetition.

    ``period``: it does if so many times as many turns are one repetition.
    """

    def __init__(self, expr: object, period: int = 1) -> None:
        super().__init__(str(expr))
        self.expr = expr
        self.period = period


class Bounds:
    """``limit``: in so many repetitions all that was bounded stays as it is.

    A number that differs between clusters is an array over these, or by cluster and lane.
    """

    def __init__(self) -> None:
        #: the same in each of the clusters, where these differ
        self.limits: Number = UNBOUNDED
        self._most = UNBOUNDED

    @property
    def limit(self) -> int:
        """In so many repetitions that holds in all clusters."""
        return self.limits if type(self.limits) is int else int(np.min(self.limits))

    def bound_range(self, value: Number, shift: int, low: int, high: int) -> None:
        """Only so many repetitions as a value stays in a range."""
        if not shift:
            return
        if type(value) is int:
            least = most = value
        elif isinstance(value, np.ndarray):
            least, most = int(value.min()), int(value.max())
        else:
            raise NoShift(f"{value} outside of {low}..{high}")
        if not (low <= least and most <= high):
            text = " to ".join(map(str, dict.fromkeys((least, most))))
            raise NoShift(f"{text} outside of {low}..{high}")
        if least == most:
            value = least
        elif value.ndim == 2:
            value = value.max(1, keepdims=True) if shift > 0 else value.min(1, keepdims=True)
        if type(value) is not int:
            value = value.astype(object)
        self._bound((high - value) // shift if shift > 0 else (value - low) // -shift)

    def bound_negative(self, value: Number, shift: int) -> None:
        """Only so many as a value stays negative, or does not become so."""
        if type(value) is int:
            if value < 0 < shift:
                self._bound((-value - 1) // shift)
            elif value >= 0 > shift:
                self._bound(value // -shift)
        elif shift:
            value = exact(value, shift)
            room = (-value - 1) // shift if shift > 0 else value // -shift
            self._bound(np.where((value < 0) == (shift > 0), room, UNBOUNDED))

    def bound_zero(self, value: Number, shift: int) -> None:
        """Only so many as a value stays zero, or does not become so."""
        if not shift:
            return
        if type(value) is int:
            if not value:
                self._bound(0)
            elif -value % shift == 0 and -value // shift > 0:
                self._bound(-value // shift - 1)
            return
        value = exact(value, shift)
        often = -value // shift
        crosses = (-value % shift == 0) & (often > 0)
        self._bound(np.where(value == 0, 0, np.where(crosses, often - 1, UNBOUNDED)))

    def _bound(self, room: Number) -> None:
        """Only so many, in each cluster."""
        if type(room) is int and room >= self._most:
            return
        if type(room) is int and type(self.limits) is int:
            self.limits = self._most = min(self.limits, room)
            return
        room = np.asarray(np.minimum(room, UNBOUNDED), dtype=np.int64)
        if room.ndim == 2:
            room = room.min(axis=1)
            if (room == room[0]).all():
                self._bound(int(room[0]))
                return
        self.limits = np.minimum(self.limits, room)
        self._most = int(self.limits.max())

    def mark(self) -> Any:
        """What is bounded by now."""
        return self.limits

    def return_to(self, limits: Any) -> None:
        """To what was bounded before, a `mark`."""
        self.limits = limits
        self._most = limits if type(limits) is int else int(limits.max())


def exact(value: Number, other: Number = 0) -> Number:
    """Numbers that can be added to others, or divided by them, without coming to the end of 64
    bits."""
    if type(value) is int or value.dtype == object:
        return value
    return value if _is_near(value) and _is_near(other) else value.astype(object)


def difference(a: Number, b: Number) -> Number:
    """``a - b``."""
    return exact(a, b) - exact(b, a)


def _is_near(value: Number) -> bool:
    if type(value) is int:
        return -_FAR < value < _FAR
    return int(value.min()) > -_FAR and int(value.max()) < _FAR


# ------------------------------------------------------------------ shifts of expressions


#: an integer for all lanes, or an array of 32
Shift: TypeAlias = Any
#: a lane, or the numbers of some
Where: TypeAlias = Any
#: operators whose result depends on no more than the bits of their operands
_OF_BITS = frozenset({"+", "-", "*", "&", "|", "^", "<<"})
#: so many repetitions may be looked at as one, of which the bits of a value repeat
_LONGEST = 1 << 12


class Lost:
    """The shift of a register that has none."""

    def __init__(self, why: NoShift) -> None:
        self.why = why


def is_moving(shift: Shift) -> bool:
    """Whether a shift is not zero in every lane, or lost."""
    if type(shift) is int:
        return shift != 0
    return isinstance(shift, Lost) or bool(np.any(shift))


def set_moving(
    w: Warp, moving: dict[int, Any], slot: int, moves: Any, mask: int,
    merged: Callable[[int, Any, Any], Any],
) -> None:  # fmt: skip
    """A register is set in the lanes of ``mask`` to what moves by ``moves``; in the others it moves
    as it did before. ``merged`` makes one of both."""
    alone = slot in w.machine.plan.private and not w.machine.split_groups
    if not (alone or mask == FULL or w.registers[slot] is None):
        moves = merged(mask, moves, moving.get(slot, 0))
    if is_moving(moves):
        moving[slot] = moves
    else:
        moving.pop(slot, None)


class Shifts(Bounds):
    """The shifts of expressions; ``limit``: in so many repetitions all comparisons come out the
    same, and nothing wraps.

    Where a warp stands for those of other clusters (`tilesim.sim.affine.cluster_classes`), a value
    is an array over the clusters, and all of them have to agree; ``same`` says which clusters these
    are.
    """

    def __init__(self, slots: Mapping[str, int], typing: Typing, same: Any = None) -> None:
        super().__init__()
        self.typing = typing
        #: how expressions are looked at
        self.look: type[ExpressionShift] = ExpressionShift
        #: whether they can be looked at in several lanes together
        self.wide = True
        self.same = same
        #: whether an expression is the same in all of them
        self.uniform: Uniform | None = None
        self._slots = slots
        self._compiled: dict[int, tuple[Expr, Evaluate]] = {}
        #: types of expressions, which are kept alive, by identity
        self._types: dict[int, tuple[Expr, CType]] = {}

    def of(self, expr: Expr, w: Warp, mask: int, moving: Mapping[int, Shift]) -> Shift:
        """The shift of ``expr`` in the lanes of ``mask``; ``moving``: those of registers.

        Raises:
            NoShift: there is none.
        """
        if not mask:
            return 0
        look = self.look(self, w, moving)
        if self.wide:
            before = self.mark()
            try:
                return look.at(expr, lanes_of(mask))
            except NoShift:  # it may have one in each lane
                self.return_to(before)
        first = look.at(expr, (mask & -mask).bit_length() - 1)
        if not look.varies:
            return first
        lanes = [n for n in range(32) if mask >> n & 1]
        shifts = np.zeros(32, dtype=object)
        shifts[lanes[0]] = first
        for lane in lanes[1:]:
            shifts[lane] = look.at(expr, lane)
        inside = shifts[lanes]
        return first if (inside == first).all() else shifts

    def require_fixed(self, expr: Expr, w: Warp, mask: int, moving: Mapping[int, Shift]) -> None:
        """Raises `NoShift` unless the value is the same in every repetition."""
        if is_moving(self.of(expr, w, mask, moving)):
            raise NoShift(expr)

    def require_range(
        self, expr: Expr, w: Warp, mask: int, shift: Shift, low: int, high: int,
        *, wraps: bool = False,
    ) -> None:  # fmt: skip
        """Only so many repetitions as the value stays in a range; if it ``wraps`` into that, as it
        wraps as often."""
        value = self.value(expr, w)
        if type(shift) is int:
            together = self.in_lanes(value, lanes_of(mask))
            if together is not None:
                self.bound_range(together, shift, *_range(together, low, high, wraps=wraps))
                return
        for lane in (n for n in range(32) if mask >> n & 1):
            inside = self.in_lane(value, lane)
            if type(inside) is not int and not isinstance(inside, np.ndarray):
                raise NoShift(expr)
            own = _range(inside, low, high, wraps=wraps)
            self.bound_range(inside, in_lane(shift, lane), *own)

    def require_multiple(self, expr: Expr, shift: Shift, least: int) -> None:
        """Raises `NoShift` unless it moves by multiples of ``least``."""
        if np.any(np.asarray(shift) % least):
            raise NoShift(expr, least)

    def require_inside(self, expr: Expr, w: Warp, mask: int, shift: Shift, free: Any) -> None:
        """Only so many repetitions as a place stays where it may be (`MovableOperand`)."""
        self.require_range(expr, w, mask, shift, free.low, free.high)

    def value(self, expr: Expr, w: Warp | Mirror) -> Any:
        """The value of an expression: a number, one per lane, or an array over the clusters."""
        if type(expr) is Const and type(expr.value) is int:
            return expr.value
        if self.uniform is not None and type(w) is Mirror and self.uniform.has(expr, w):
            w = w.warp
        try:
            with np.errstate(divide="raise", over="ignore"):
                return plain(self.evaluate(expr)(cast("Warp", w)))
        except ArithmeticError:
            raise NoShift(expr) from None

    def in_lane(self, value: Any, lane: int) -> Any:
        """A value in a lane: a number, or integers of the clusters where these differ."""
        if isinstance(value, np.ndarray) and value.ndim == 2:
            column = value[:, lane if value.shape[1] > 1 else 0]
            if self.same is not None:
                if len(column) != len(self.same):
                    raise NoShift("clusters that have left")
                column = column[self.same]
            one = column[0]
            if (column == one).all():
                return one.item() if isinstance(one, np.generic) else one
            return column if column.dtype.kind in "iuO" else None
        return in_lane(value, lane)

    def in_lanes(self, value: Any, lanes: NDArray[np.intp]) -> Number | None:
        """A value in some lanes: a number, or integers by cluster and lane (one row or column
        where clusters or lanes do not differ); None if lanes have to be looked at one by one."""
        if type(value) is int:
            return value
        if not isinstance(value, np.ndarray) or value.dtype.kind != "i":
            return None
        if value.ndim == 1:
            return value[None, lanes]
        if self.same is not None:
            if len(value) != len(self.same):
                raise NoShift("clusters that have left")
            value = value[self.same]
        if value.shape[1] > 1:
            return value[:, lanes]
        one = value[0, 0]
        return one.item() if (value == one).all() else value

    def evaluate(self, expr: Expr) -> Evaluate:
        """The function that evaluates an expression."""
        known = self._compiled.get(id(expr))
        if known is None:
            known = expr, compile_expr(expr, self._slots, self.typing)
            self._compiled[id(expr)] = known
        return known[1]

    def type_of(self, expr: Expr) -> CType:
        """The type of an expression."""
        known = self._types.get(id(expr))
        if known is None:
            known = self._types[id(expr)] = expr, self.typing.type_of(expr)
        return known[1]

    def literal(self, expr: Expr) -> Shift:
        """The shift of a literal."""
        return 0

    def slot(self, name: str) -> int:
        """The register of a variable."""
        return self._slots[name]


def lanes_of(mask: int) -> NDArray[np.intp]:
    """The lanes of a mask."""
    return np.flatnonzero(mask_array(mask))


class ExpressionShift:
    """One look at an expression, in one lane or in some lanes together.

    Lanes are looked at together, by their numbers, while whatever moves does so by the same in all
    of them; `NoShift` may mean that it does not.
    """

    def __init__(self, shifts: Shifts, w: Warp, moving: Mapping[int, Shift]) -> None:
        self._shifts = shifts
        self._w = w
        self._moving = moving
        self._values: dict[int, Any] = {}
        #: some value or shift differs between lanes
        self.varies = False

    def _value(self, expr: Expr, lane: Where) -> Number:
        """The value in a lane: of every cluster, where these differ."""
        value = self._values.get(id(expr))
        if value is None:
            value = self._values[id(expr)] = self._shifts.value(expr, self._w)
        if isinstance(value, np.ndarray) and value.shape[-1] > 1:
            self.varies = True
        shifts = self._shifts
        found = shifts.in_lane(value, lane) if type(lane) is int else shifts.in_lanes(value, lane)
        if type(found) is not int and not isinstance(found, np.ndarray):
            raise NoShift(expr)
        return found

    def _one(self, expr: Expr, lane: Where) -> int:
        """The value in a lane, the same in all clusters."""
        value = self._value(expr, lane)
        if type(value) is int:
            return value
        one = value.flat[0]
        if type(lane) is int or (value != one).any():
            raise NoShift(expr)
        return int(one)

    def at(self, expr: Expr, lane: Where) -> Shift:
        """The shift in a lane."""
        match expr:
            case Var(name):
                return self._variable(expr, name, lane)
            case Unary("not", operand):
                self._truth(operand, lane)
                return 0
            case Unary(_, operand):
                shift = self.at(operand, lane)
                return self._result(expr, lane, -shift) if shift else 0
            case Binary():
                return self._binary(expr, lane)
            case Select(cond, then, other):
                self._truth(cond, lane)
                return self._chosen(expr, self._value(cond, lane) != 0, then, other, lane)
            case Const() | ScalarParam():
                return self._shifts.literal(expr)
            case Special() | Base():
                return 0
            case _:
                raise NoShift(expr)

    def _variable(self, expr: Expr, name: str, lane: Where) -> Shift:
        shift = self._moving.get(self._shifts.slot(name), 0)
        if isinstance(shift, Lost):
            raise shift.why
        if isinstance(shift, np.ndarray):
            self.varies = True
            shift = shift[lane]
            if type(lane) is not int:
                if (shift != shift[0]).any():
                    raise NoShift(expr)
                shift = shift[0]
        return shift.item() if isinstance(shift, np.generic) else shift

    def _truth(self, cond: Expr, lane: Where) -> None:
        """Whether a condition holds does not change."""
        shift = self.at(cond, lane)
        if shift:
            self._shifts.bound_zero(self._value(cond, lane), shift)

    def _result(self, expr: Expr, lane: Where, shift: int) -> int:
        """A shift, as long as the value stays in the range of its type."""
        if shift:
            kind = self._shifts.type_of(expr)
            if kind not in LIMITS:
                raise NoShift(expr)
            self._shifts.bound_range(self._value(expr, lane), shift, *LIMITS[kind])
        return shift

    def _binary(self, expr: Binary, lane: Where) -> int:
        op, lhs, rhs = expr.op, expr.lhs, expr.rhs
        if op in ("and", "or"):
            self._truth(lhs, lane)
            self._truth(rhs, lane)
            return 0
        a, b = self.at(lhs, lane), self.at(rhs, lane)
        if not a and not b:
            return 0
        self._converted(expr, lane, a, b)
        if op in RELATIONS:
            self._compare(op, lane, lhs, rhs, a - b)
            return 0
        return self._result(expr, lane, self._arithmetic(expr, lane, a, b))

    def _converted(self, expr: Binary, lane: Where, a: int, b: int) -> None:
        """What an operation is made in holds its operands as they are; one that does not move may
        become another number where only its bits count."""
        shifts = self._shifts
        kind = join_types(shifts.type_of(expr.lhs), shifts.type_of(expr.rhs))
        if kind not in LIMITS:
            raise NoShift(expr)
        if kind != "u64":
            return
        for operand, shift in ((expr.lhs, a), (expr.rhs, b)):
            value = self._value(operand, lane)
            if expr.op not in _OF_BITS and np.any(value < 0):
                raise NoShift(expr)
            shifts.bound_range(value, shift, *LIMITS[kind])

    def _compare(self, op: str, lane: Where, lhs: Expr, rhs: Expr, shift: int) -> None:
        """What a comparison says does not change."""
        value = self._difference(lhs, rhs, lane)
        match op:
            case "==" | "!=":
                self._shifts.bound_zero(value, shift)
            case "<" | ">=":
                self._shifts.bound_negative(value, shift)
            case _:
                self._shifts.bound_negative(-value, -shift)

    def _difference(self, lhs: Expr, rhs: Expr, lane: Where) -> Number:
        return difference(self._value(lhs, lane), self._value(rhs, lane))

    def _arithmetic(self, expr: Binary, lane: Where, a: int, b: int) -> int:
        op, lhs, rhs = expr.op, expr.lhs, expr.rhs
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*" if not a or not b:
                return b * self._one(lhs, lane) if b else a * self._one(rhs, lane)
            case "//" | "%" if not b:
                return self._divided(expr, a, self._one(rhs, lane), lane)
            case "<<" if not b:
                return a << self._count(expr, lane)
            case ">>" if not b:
                return self._divided(expr, a, 1 << self._count(expr, lane), lane)
            case "&" | "|" | "^" if not a or not b:
                fixed = self._one(lhs if not a else rhs, lane)
                return self._bits(expr, lane, a or b, fixed)
            case "min" | "max":
                return self._extreme(expr, lane, a, b)
            case _:
                raise NoShift(expr)

    def _count(self, expr: Binary, lane: Where) -> int:
        count = self._one(expr.rhs, lane)
        if not 0 <= count < 64:
            raise NoShift(expr)
        return count

    def _divided(self, expr: Binary, shift: int, by: int, lane: Where) -> int:
        if not by:
            raise NoShift(expr)
        if not shift % by:
            return 0 if expr.op == "%" else shift // by
        period = abs(by) // gcd(abs(shift), by)
        if period <= _LONGEST or not 0 < by < 1 << 63:
            raise NoShift(expr, period)
        self._shifts.bound_range(self._value(expr.lhs, lane) % by, shift, 0, by - 1)
        return shift if expr.op == "%" else 0

    def _bits(self, expr: Binary, lane: Where, shift: int, fixed: int) -> int:
        """Bits of a value that moves by a multiple of what the others are below, or else only in
        bits below the others for some time: as a number whose sign is turned to compare it."""
        if expr.op == "&":
            return self._masked(expr, lane, shift, fixed)
        low = 1 << fixed.bit_length()
        if fixed < 0:
            raise NoShift(expr)
        if not shift % low:
            return shift
        period = low // gcd(abs(shift), low)
        if period <= _LONGEST:
            raise NoShift(expr, period)
        below = self._value(expr.lhs if self.at(expr.lhs, lane) else expr.rhs, lane)
        bit = fixed & -fixed
        self._shifts.bound_range(below & (bit - 1), shift, 0, bit - 1)
        return shift

    def _masked(self, expr: Binary, lane: Where, shift: int, mask: int) -> int:
        """The bits of a value that a mask keeps: none that move; or all that do, up to where the
        type ends, or for some time those from one bit on of a number that stays below another."""
        low, top = mask & -mask, 1 << mask.bit_length()
        if mask >= 0 and not shift % top:
            return 0
        if mask < 0:
            if low != -mask:
                raise NoShift(expr)
        elif low + mask != top or top // gcd(abs(shift), top) <= _LONGEST:
            raise NoShift(expr, top // gcd(abs(shift), top))
        if shift % low:
            raise NoShift(expr, low // gcd(abs(shift), low))
        if mask > 0:
            self._shifts.bound_range(self._value(expr, lane), shift, 0, top - 1)
        return shift

    def _extreme(self, expr: Binary, lane: Where, a: int, b: int) -> int:
        """The smaller or greater one stays so."""
        value = self._difference(expr.lhs, expr.rhs, lane)
        least = expr.op == "min"
        if type(value) is int and not value:
            return min(a, b) if least else max(a, b)
        self._shifts.bound_negative(value, a - b)
        self._shifts.bound_negative(-value, b - a)
        first = (value < 0) if least else (value >= 0)
        if a != b and (np.any(first) != np.all(first) or np.any(value == 0)):
            raise NoShift(expr)
        return a if np.all(first) else b

    def _chosen(self, expr: Expr, holds: Any, then: Expr, other: Expr, lane: Where) -> Shift:
        """The shift of one of two values."""
        chosen = [e for e, of in ((then, np.any(holds)), (other, not np.all(holds))) if of]
        shifts = [self.at(e, lane) for e in chosen]
        if any(shift != shifts[0] for shift in shifts):
            raise NoShift(expr)
        if self._shifts.type_of(expr) == "u64":
            for e in chosen:
                self._shifts.bound_range(self._value(e, lane), shifts[0], *LIMITS["u64"])
        return shifts[0]


def in_lane(value: Any, lane: int) -> Any:
    """A value in a lane."""
    if isinstance(value, np.ndarray):
        value = value[lane]
        return value.item() if isinstance(value, np.generic) else value
    return value


def _range(value: object, low: int, high: int, *, wraps: bool) -> tuple[int, int]:
    """A range; if a value ``wraps`` into it, the numbers around it that become those of the range
    by the same multiple of its size."""
    least = int(value.min()) if isinstance(value, np.ndarray) else value
    if not wraps or type(least) is not int:
        return low, high
    by = least - low - (least - low) % (high - low + 1)
    return low + by, high + by


# ------------------------------------------------------------------ values that differ by no shift


#: the numbers of repetitions; the one that is watched is 0
Repetitions = NDArray[np.int64]


class FutureValue(Lost, ABC):
    """A value in the repetitions to come: (repetitions * clusters, 1 or 32) as `at` gives it."""

    @abstractmethod
    def at(self, many: Repetitions) -> NDArray[Any]:
        """The values in these repetitions, in all clusters.

        Raises:
            NoShift: they cannot be computed.
        """


class Shifted(FutureValue):
    """A value that does have a shift, in so many clusters."""

    def __init__(self, value: Any, shift: Shift, clusters: int, why: NoShift) -> None:
        super().__init__(why)
        array = np.asarray(value)
        if array.dtype.kind not in "iu" and np.any(shift):
            raise why
        array = array if array.ndim == 2 else array.reshape(1, -1)
        self._value = np.broadcast_to(array, (clusters, array.shape[1]))
        self._shift = shift

    def at(self, many: Repetitions) -> NDArray[Any]:
        value = np.tile(self._value, (len(many), 1))
        if not np.any(self._shift):
            return value
        moved = np.repeat(many, len(self._value))[:, None] * np.asarray(self._shift)
        return cast("NDArray[Any]", value + moved)


class Carried(FutureValue):
    """What a register holds since the repetition before: ``source`` is what it then ends with."""

    def __init__(self, why: NoShift) -> None:
        super().__init__(why)
        self.source: FutureValue | None = None

    def at(self, many: Repetitions) -> NDArray[Any]:
        if self.source is None or (many < 1).any():
            raise self.why
        return self.source.at(many - 1)


class Computed(FutureValue):
    """The value of an expression of registers that are known in the repetitions to come."""

    def __init__(
        self, evaluate: Evaluate, fit: Fit | None, warp: Any, reads: Iterable[int],
        moving: Mapping[int, Shift], why: NoShift,
    ) -> None:  # fmt: skip
        """``warp``: where it is evaluated; ``reads``: the registers in it, ``moving`` their shifts.

        Raises:
            NoShift: one of them cannot be computed.
        """
        super().__init__(why)
        self._evaluate = evaluate
        self._fit = fit
        self._warp = warp
        self._parts: dict[int, Any] = {}
        for slot in reads:
            value, shift = plain(warp.registers[slot]), moving.get(slot, 0)
            if isinstance(shift, FutureValue):
                self._parts[slot] = shift
            elif type(shift) is Lost or type(value) is Unknown or value is None:
                raise why
            elif type(shift) is int and not shift:
                self._parts[slot] = value.copy() if isinstance(value, np.ndarray) else value
            else:
                self._parts[slot] = Shifted(value, shift, clusters_of(warp), why)
        self._last: tuple[bytes, NDArray[Any]] | None = None

    def at(self, many: Repetitions) -> NDArray[Any]:
        name = many.tobytes()
        if self._last is None or self._last[0] != name:
            self._last = name, self._compute(many)
        return self._last[1]

    def _compute(self, many: Repetitions) -> NDArray[Any]:
        times, cta = len(many), self._warp.cta
        coords = (_tiled(coordinate, times) for coordinate in cta.coords)
        place = CtaOfAllClusters(cta.rank, coords, _tiled(cta.cluster.number, times))
        registers = {
            slot: part.at(many) if isinstance(part, FutureValue) else _tiled(part, times)
            for slot, part in self._parts.items()
        }
        try:
            with np.errstate(divide="raise", over="ignore"):
                value = plain(
                    self._evaluate(cast(Warp, WarpInIteration(self._warp, place, registers)))
                )
        except ArithmeticError:
            raise self.why from None
        value = value if self._fit is None else plain(self._fit(value))
        if type(value) is Unknown:
            raise self.why
        whole = np.asarray(value)
        rows = times * clusters_of(self._warp)
        return np.broadcast_to(whole, (rows, whole.shape[-1] if whole.ndim else 1))


class WarpInIteration:
    """A warp at another time, as expressions see it."""

    def __init__(self, warp: Any, place: Any, registers: Mapping[int, Any] | Sequence[Any]) -> None:
        """``place``: its CTA."""
        self.machine = warp.machine
        self.number = warp.number
        self.mask = warp.mask
        self.cta = place
        self.registers = registers


def _tiled(value: Any, times: int) -> Any:
    """A value that is the same in all repetitions."""
    return np.tile(value, (times, 1)) if differs(value) else value


def clusters_of(warp: Any) -> int:
    """For how many clusters a warp stands, as expressions see it."""
    number = warp.cta.cluster.number
    return len(number) if differs(number) else 1
