"""Numbers that depend on the value of a parameter, and on the turn of a repetition: linear ones.

The programs of the values p, p + d, p + 2d... up to ``most`` times are one *family*: they differ in
literals and in sizes of tensors, by as much from each to the next. A certificate says so of them,
and that the run of the k-th has so many ``turns`` more of a repetition for each k. So a number in
turn j of program k is base + turn * j + more * k, where 0 <= j <= turns * k and 0 <= k <= most. In
this triangle a comparison comes out the same if it does so in the three corners. What is computed
in another way is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any, NamedTuple, TypeAlias

from tilesim.ir.arithmetic import literal_type
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.expr import Const, ScalarParam
from tilesim.ir.mir import Mir
from tilesim.proof.rules import NotCovered, rule
from tilesim.records import dataclass, field, fields


class Form(NamedTuple):
    """base + turn * j + more * k."""

    base: int
    iteration: int = 0
    more: int = 0

    def at(self, j: int, k: int) -> int:
        """The number in a turn of a program."""
        return self.base + self.iteration * j + self.more * k


Number: TypeAlias = "int | Form"


def formed(x: Number) -> Form:
    """A number as a form."""
    return x if isinstance(x, Form) else Form(x)


def simple(x: Form) -> Number:
    """A form as a number, if it is one."""
    return x if x.iteration or x.more else x.base


def plus(x: Number, y: Number, times: int = 1) -> Number:
    """x + times * y."""
    return simple(Form(*(a + times * b for a, b in zip(formed(x), formed(y), strict=True))))


class Cone(NamedTuple):
    """The turns j <= turns * k of the programs k <= most."""

    iterations: int
    most: int

    def limits(self, x: Number) -> tuple[int, int]:
        """The least and the greatest value of a number."""
        ends = [
            formed(x).at(j, k)
            for j, k in ((0, 0), (0, self.most), (self.iterations * self.most, self.most))
        ]
        return min(ends), max(ends)

    def within(self, x: Form, base: int, low: int, high: int) -> Number | None:
        """A form that is wrapped where its base is; None: elsewhere it is wrapped otherwise."""
        moved = x._replace(base=base)
        least, greatest = self.limits(moved)
        return simple(moved) if low <= least and greatest <= high else None

    def sign(self, x: Number) -> tuple[bool | None, bool | None]:
        """Whether a number is below 0, and whether it is 0; None: not everywhere alike."""
        low, high = self.limits(x)
        below = True if high < 0 else False if low >= 0 else None
        return below, True if low == high == 0 else False if low > 0 or high < 0 else None

    @rule("form", "what depends on a parameter is known as long as it is linear, and does not wrap")
    def computed(self, op: str, xs: Sequence[Number | None]) -> Number | None:
        """What an operator makes of numbers, before the result wraps; None: it is not known."""
        if op in ("and", "or", "not", "select"):
            return self._logical(op, xs)
        a, b = (*xs, None)[:2]
        if a is None or (b is None and len(xs) > 1):
            return None
        if b is None:
            return plus(0 if op == "-" else -1, a, -1) if op in ("-", "~") else None
        if op in ("*", "&") and isinstance(b, Form):
            a, b = b, a
        if op in ("+", "-"):
            return plus(a, b, 1 if op == "+" else -1)
        if op in ("<<", ">>") and isinstance(b, int):
            if not 0 <= b < 64:
                return None
            op, b = {"<<": "*", ">>": "//"}[op], 1 << b
        if op == "&" and isinstance(b, int) and b >= 0 and not b & (b + 1):
            op, b = "%", b + 1
        if op in ("*", "//", "%"):
            return _by_a_number(op, formed(a), b) if isinstance(b, int) else None
        return self._compared(op, a, b)

    def _compared(self, op: str, a: Number, b: Number) -> Number | None:
        below, equal = self.sign(plus(a, b, -1))
        above, _ = self.sign(plus(b, a, -1))
        if op in ("min", "max"):
            first = above if op == "max" else below
            other = below if op == "max" else above
            return a if first or other is False else b if other or first is False else None
        found = {
            "<": below, ">": above, "==": equal, "<=": None if above is None else not above,
            ">=": None if below is None else not below, "!=": None if equal is None else not equal,
        }.get(op)  # fmt: skip
        return None if found is None else int(found)

    def holds(self, x: Number | None) -> bool | None:
        """Whether a number is another one than 0."""
        zero = None if x is None else self.sign(x)[1]
        return None if zero is None else not zero

    def _logical(self, op: str, xs: Sequence[Number | None]) -> Number | None:
        known = [self.holds(x) for x in xs]
        if op == "select":
            return None if known[0] is None else xs[1] if known[0] else xs[2]
        if op == "not":
            return None if known[0] is None else int(not known[0])
        if (op == "or") in known:
            return int(op == "or")
        return None if None in known else int(op == "and")


def _by_a_number(op: str, x: Form, n: int) -> Number | None:
    """A product, or, if a divisor divides what changes, a quotient or remainder."""
    if op == "*":
        return simple(Form(*(part * n for part in x)))
    if n <= 0 or x.iteration % n or x.more % n:
        return None
    return x.base % n if op == "%" else simple(Form(*(part // n for part in x)))


# ---------------------------------------------------------------------- programs


@dataclass
class Family:
    """``literals``: by how much they grow from each program to the next, by their identity in the
    first; ``tensors``: the same of the sizes of tensors, by name."""

    most: int
    literals: dict[int, int] = field(default_factory=dict)
    tensors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _seen: set[tuple[int, ...]] = field(default_factory=set)
    _kept: list[object] = field(default_factory=list)

    @rule("family", "programs of a family differ in literals and sizes of tensors, linearly")
    def compare(self, three: Sequence[Any]) -> None:
        """Compares parts of the first, the second, and the last program.

        Raises: NotCovered: they differ otherwise."""
        a, b, c = three
        key = id(a), id(b), id(c)
        if key in self._seen:
            return
        self._seen.add(key)
        self._kept += three
        if not type(a) is type(b) is type(c):
            raise NotCovered("a program that the parameter decides")
        grown = self._grows(a, b, c)
        if is_dataclass(a) and not isinstance(a, type):
            for part in fields(a):
                if part.compare and part.name != grown:
                    self.compare([getattr(x, part.name) for x in three])
        elif isinstance(a, tuple | list):
            if not len(a) == len(b) == len(c):
                raise NotCovered("a program that the parameter decides")
            for parts in zip(a, b, c, strict=True):
                self.compare(parts)
        elif isinstance(a, dict):
            self.compare([list(x.items()) for x in three])
        elif not a == b == c:
            raise NotCovered(f"the parameter decides {a}")

    def _grows(self, a: Any, b: Any, c: Any) -> str:
        """Notes by how much a literal or a tensor grows; returns the field in which it does."""
        if isinstance(a, Const | ScalarParam) and type(a.value) is int:
            grows = self._growth(a.value, b.value, c.value)
            if self.literals.setdefault(id(a), grows) != grows:
                raise NotCovered("a literal that grows in one place only")
            # of what it is a part, also where it decides no number, has a type of its own
            if (
                grows
                and isinstance(a, Const)
                and {*map(literal_type, (a.value, c.value))} != {"s32"}
            ):
                raise NotCovered("a literal whose type the parameter decides")
            return "value"
        if isinstance(a, GlobalTensor) and len(a.shape) == len(b.shape) == len(c.shape):
            sizes = zip(a.shape, b.shape, c.shape, strict=True)
            growths = tuple(self._growth(*some) for some in sizes)
            if self.tensors.setdefault(a.name, growths) != growths or min(growths, default=0) < 0:
                raise NotCovered(f"{a.name}, of several sizes, or one that shrinks")
            return "shape"
        return ""

    def _growth(self, first: Any, second: Any, last: Any) -> int:
        if not type(first) is type(second) is type(last) is int:
            raise NotCovered("a number that is none in each program")
        if first + self.most * (second - first) != last:
            raise NotCovered("a number that does not grow linearly")
        return second - first


def family(three: Sequence[Mir], most: int) -> Family:
    """That of the first, the second and the last program, the ``most``-th behind the first.

    Raises: NotCovered: they are of none."""
    found = Family(most)
    for name in ("kernel", "code", "local", "effects"):
        found.compare([getattr(mir, name) for mir in three])
    found.compare([mir.typing.tokens for mir in three])
    found.compare([mir.typing.any_scalar for mir in three])
    for tensor in three[0].kernel.tensors:
        growths = found.tensors[tensor.name]
        plain = not (tensor.strides or tensor.contents or tensor.pointers)
        if any(growths) and not (plain and sum(map(bool, growths[1:])) < 2):
            raise NotCovered(f"{tensor.name}, which has contents, or more than its size grows")
    return found
