"""For which values of a register a condition holds: what a loop waits for that polls a word.

The condition is turned inside out: from the results that are wanted to those of its operands, and
so on down to the register. What it is compared with is known when the loop is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast

from tilesim.analysis.uses_defs import replaced
from tilesim.arith.operators import MIRRORED, NEGATED
from tilesim.arith.types import DType
from tilesim.ir.arithmetic import LIMITS, Typing, integer_limits
from tilesim.ir.expr import Binary, BinaryOp, Const, Expr, Unary, Var, walk

#: integers, as intervals that do not touch in ascending order, the ends not included
Spans: TypeAlias = tuple[tuple[int, int], ...]
#: the values of the leaves; None: they are yet to be found
_Leaves: TypeAlias = Sequence[int] | None

_EVER = 1 << 80
ALL: Spans = ((-_EVER, _EVER),)
NONE: Spans = ()
#: an operation that gives more intervals than these is none that a wait is made of
_MOST = 64

#: by comparison with c: what is on the left of it
_HOLDS: dict[str, Callable[[int], Spans]] = {
    "<": lambda c: ((-_EVER, c),),
    "<=": lambda c: ((-_EVER, c + 1),),
    ">": lambda c: ((c + 1, _EVER),),
    ">=": lambda c: ((c, _EVER),),
    "==": lambda c: ((c, c + 1),),
    "!=": lambda c: ((-_EVER, c), (c + 1, _EVER)),
}


class NoPreimage(Exception):
    """A condition is of a kind that no wait has."""


class Preimage:
    """The values of ``var`` with which ``cond`` holds; see `spans`.

    ``cond`` is that condition; ``leaves`` are the expressions that it depends on besides: what they
    are is asked for.
    ``decides``: expressions of the leaves that tell all that it depends on.

    Raises:
        NoPreimage: it is of a kind that no wait has.
    """

    def __init__(self, cond: Expr, var: Var, typing: Typing) -> None:
        self.leaves: list[Expr] = []
        self.decides: list[Expr] = []
        if var.dtype.kind not in ("int", "uint"):
            raise NoPreimage
        self.cond, self._var, self._typing = _plain(cond), var, typing
        self._limits = integer_limits(var.dtype)
        #: of leaves
        self._places: dict[Expr, int] = {}
        self._before(self.cond, NOT_ZERO, None)
        self._known: dict[tuple[int, ...], Spans | None] = {}

    def spans(self, leaves: Sequence[int]) -> Spans | None:
        """The values with which it holds where the leaves are these; None if these are too many
        intervals."""
        key = tuple(leaves)
        if key not in self._known:
            try:
                self._known[key] = _within(self._before(self.cond, NOT_ZERO, key), self._limits)
            except NoPreimage:
                self._known[key] = None
        return self._known[key]

    def renamed(self, var: Var) -> Expr:
        """The condition, about another register."""
        return replaced(self.cond, {self._var.name: var})

    def of_word(self, spans: Spans, dtype: DType) -> Spans:
        """The unsigned numbers that a word of type ``dtype`` holds where the register has these."""
        low, high = integer_limits(dtype)
        register = 1 << self._var.dtype.bits
        # the same bits as numbers with a sign and without
        same_bits = (tuple((a + k, b + k) for a, b in spans) for k in (-register, 0, register))
        return wrapped(both(either(*same_bits), ((low, high + 1),)), 1 << dtype.bits)

    # ------------------------------------------------------------------ from results to values

    def _before(self, expr: Expr, asked: Spans | None, leaves: _Leaves) -> Spans:
        """The values with which an expression has a result that is asked for.

        None: what leaves are, and what is asked for because of that, when they are looked for.
        """
        if not self._polled(expr):
            number = self._number(expr, leaves)
            return ALL if number is not None and asked and _holds(asked, number) else NONE
        truths = [t for t in (False, True) if asked is None or _holds(asked, t)]
        match expr:
            case Var():
                return asked or NONE
            case Unary("not", inner):
                return either(*(self._truth(inner, not truth, leaves) for truth in truths))
            case Binary("and" | "or" as op, lhs, rhs):
                found = []
                for truth in truths:
                    sides = self._truth(lhs, truth, leaves), self._truth(rhs, truth, leaves)
                    found.append(both(*sides) if truth is (op == "and") else either(*sides))
                return either(*found)
            case Binary(op, lhs, rhs) if op in _HOLDS:
                return self._compared(op, lhs, rhs, truths, leaves)
            case Unary(op, inner):
                fit, less = self._fit(inner, expr, asked), 1 if op == "~" else 0
                turned = fit and tuple((1 - b - less, 1 - a - less) for a, b in reversed(fit))
                return self._before(inner, turned, leaves)
            case Binary():
                return self._computed(expr, asked, leaves)
            case _:
                raise NoPreimage

    def _truth(self, expr: Expr, truth: bool, leaves: _Leaves) -> Spans:
        """The values with which an expression holds, or does not."""
        return self._before(expr, NOT_ZERO if truth else ZERO, leaves)

    def _polled(self, expr: Expr) -> bool:
        return any(isinstance(e, Var) and e.name == self._var.name for e in walk(expr))

    def _number(self, expr: Expr, leaves: _Leaves, decides: Expr | None = None) -> int | None:
        """What a part without the register is; ``decides``: all that counts of it."""
        if self._typing.type_of(expr) not in LIMITS:
            raise NoPreimage
        if isinstance(expr, Const):
            return int(expr.value)
        if leaves is not None:
            return leaves[self._places[expr]]
        if expr not in self._places:
            self._places[expr] = len(self.leaves)
            self.leaves.append(expr)
        decides = expr if decides is None else decides
        self.decides += [decides] if decides not in self.decides else []
        return None

    def _compared(
        self, op: str, lhs: Expr, rhs: Expr, truths: list[bool], leaves: _Leaves
    ) -> Spans:
        if self._polled(rhs):
            lhs, rhs, op = rhs, lhs, MIRRORED[op]
        if self._polled(rhs):
            raise NoPreimage
        number = self._number(rhs, leaves)
        holds = None if number is None else _HOLDS[op](number)
        asked = [holds if truth or holds is None else outside(holds) for truth in truths]
        return either(*(self._before(lhs, wanted, leaves) for wanted in asked))

    def _computed(self, expr: Binary, asked: Spans | None, leaves: _Leaves) -> Spans:
        op: str = expr.op
        lhs, rhs = expr.lhs, expr.rhs
        if self._polled(rhs):
            if self._polled(lhs) or op not in ("+", "-", "&", "^"):
                raise NoPreimage
            lhs, rhs, op = rhs, lhs, "minus" if op == "-" else op
        fit, limits = self._fit(lhs, expr, asked), self._range(lhs)
        if op == "^" and not isinstance(rhs, Const):
            fit, number = asked, self._number(rhs, leaves, self._block(lhs, rhs, asked, leaves))
        elif op not in _UNDONE or (op in ("&", ">>", "//", "^") and not isinstance(rhs, Const)):
            raise NoPreimage
        else:
            number = self._number(rhs, leaves)
        if op == "^" and limits[0] < 0:
            raise NoPreimage
        if fit is None or number is None:
            return self._before(lhs, None, leaves)
        return self._before(lhs, _within(_UNDONE[op](fit, number, limits), limits), leaves)

    def _block(self, lhs: Expr, rhs: Expr, asked: Spans | None, leaves: _Leaves) -> Expr | None:
        """All that counts of ``rhs`` in ``lhs ^ rhs``: which block of those it is in that the ends
        of what is asked for lie between."""
        if leaves is not None:
            return None
        limits, others = self._range(lhs), self._range(rhs)
        results = 0, (1 << max(limits[1], others[1]).bit_length()) - 1
        ends = [x for span in _within(asked or NONE, results) for x in span]
        block = min((x & -x for x in ends if x), default=0)
        if not block or limits[0] < 0 or others[0] < 0:
            raise NoPreimage
        return rhs // block

    def _range(self, expr: Expr) -> tuple[int, int]:
        """The least and the greatest value of an operand."""
        if isinstance(expr, Var):
            return integer_limits(expr.dtype)
        found = self._typing.interval(expr)
        kind = self._typing.type_of(expr)
        if kind not in LIMITS:
            raise NoPreimage
        return LIMITS[kind] if found is None else found

    def _fit(self, inner: Expr, outer: Expr, asked: Spans | None) -> Spans | None:
        """From results of an operation to what they were before they were brought into its type."""
        kind = self._typing.type_of(outer)
        if kind not in LIMITS or self._typing.type_of(inner) not in LIMITS:
            raise NoPreimage
        low, high = LIMITS[kind]
        size = high + 1 - low
        inside = both(asked or NONE, ((low, high + 1),))
        iterations = (tuple((a + k * size, b + k * size) for a, b in inside) for k in range(-2, 3))
        return None if asked is None else either(*iterations)


def _plain(cond: Expr) -> Expr:
    """A condition without a negation of a comparison."""
    match cond:
        case Unary("not", Unary("not", inner)):
            return _plain(inner)
        case Unary("not", Binary(op, lhs, rhs)) if op in NEGATED:
            return Binary(cast(BinaryOp, NEGATED[op]), lhs, rhs)
        case _:
            return cond


ZERO: Spans = ((0, 1),)
NOT_ZERO: Spans = ((-_EVER, 0), (1, _EVER))


def _holds(spans: Spans, value: int) -> bool:
    return any(a <= value < b for a, b in spans)


def both(one: Spans, other: Spans) -> Spans:
    """What is in both."""
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return tuple(sorted((a, b) for a, b in pairs if a < b))


def either(*several: Spans) -> Spans:
    """What is in any of them."""
    found: list[tuple[int, int]] = []
    for a, b in sorted(span for spans in several for span in spans):
        if found and a <= found[-1][1]:
            found[-1] = found[-1][0], max(b, found[-1][1])
        else:
            found.append((a, b))
    return tuple(found)


def outside(spans: Spans) -> Spans:
    """All other numbers."""
    bounds = [-_EVER, *(x for span in spans for x in span), _EVER]
    pairs = zip(bounds[::2], bounds[1::2], strict=True)
    return tuple((a, b) for a, b in pairs if a < b)


def wrapped(spans: Spans, size: int) -> Spans:
    """The numbers from 0 on, below ``size``, that differ from these by multiples of it."""
    found: list[tuple[int, int]] = []
    for a, b in spans:
        if b - a >= size:
            return ((0, size),)
        start = a % size
        stop = start + b - a
        found += [(start, min(stop, size)), (0, stop - size)]
    return either(tuple((a, b) for a, b in found if a < b))


def next_run(spans: Spans, value: int, size: int) -> tuple[int, int] | None:
    """The first number from ``value`` on that is in ``spans`` modulo ``size``, and the first one
    after it that is not; None if none is."""
    base = value - value % size
    ahead = either(
        *(tuple((a + k, b + k) for a, b in spans) for k in (base, base + size, base + 2 * size))
    )
    for a, b in ahead:
        if b > value:
            return max(a, value), b
    return None


def _within(spans: Spans, limits: tuple[int, int]) -> Spans:
    return both(spans, ((limits[0], limits[1] + 1),))


def _few(spans: Iterable[tuple[int, int]]) -> Spans:
    found = either(tuple(spans))
    if len(found) > _MOST:
        raise NoPreimage
    return found


def _masked(asked: Spans, mask: int, limits: tuple[int, int]) -> Spans:
    """Before ``& mask``, for masks of high or of low bits: blocks in which the result rises by one
    step, or stays."""
    low, high = limits
    if mask < 0:
        raise NoPreimage
    least = mask & -mask if mask else high + 1
    if (mask // least) & (mask // least + 1):
        raise NoPreimage  # ones, zeros, ones
    step = mask + 1 if least == 1 else least
    blocks = range(low // step * step, high + 1, step)
    if len(blocks) > _MOST:
        raise NoPreimage
    if least > 1:
        return _few((x, x + step) for x in blocks if _holds(asked, x & mask))
    inside = both(asked, ((0, step),))
    return _few((a + x, b + x) for x in blocks for a, b in inside)


def _xored(asked: Spans, number: int, limits: tuple[int, int]) -> Spans:
    """Before ``^ number``: by blocks of two to the power of something."""
    if limits[0] < 0 or number < 0:
        raise NoPreimage
    found: list[tuple[int, int]] = []
    for a, b in both(asked, ((0, 1 << (limits[1] | number).bit_length()),)):
        while a < b:
            block = a & -a if a else 1 << (b.bit_length() - 1)
            while a + block > b:
                block //= 2
            start = a ^ (number & -block)
            found.append((start, start + block))
            a += block
            if len(found) > 4 * _MOST:
                raise NoPreimage
    return _few(found)


def _halved(asked: Spans, number: int) -> Spans:
    if number <= 0:
        raise NoPreimage
    return tuple((a * number, b * number) for a, b in asked)


#: by operator: from results to what stood on the left of it, with the number on the right; "minus"
#: is a difference in which it stands on the right
_UNDONE: dict[str, Callable[[Spans, int, tuple[int, int]], Spans]] = {
    "+": lambda asked, n, _: tuple((a - n, b - n) for a, b in asked),
    "-": lambda asked, n, _: tuple((a + n, b + n) for a, b in asked),
    "minus": lambda asked, n, _: tuple((n + 1 - b, n + 1 - a) for a, b in reversed(asked)),
    "&": _masked,
    "^": _xored,
    "//": lambda asked, n, _: _halved(asked, n),
    ">>": lambda asked, n, _: _halved(asked, 1 << n),
}
