"""What operands are: values of registers and expressions in each lane, and the bytes they name.

A value is an integer that all lanes of a warp share, a list of 32, or None: it is not known.
Data is never computed: what a tile or a float holds is not known, and a decision that depends on it
is not covered.

A class of clusters is executed once. The registers of the other clusters are `shadows` of the warp
that is executed; what decides anything has to be the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from operator import is_
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from tilesim.arith.operators import BINARY, RELATIONS, UNARY
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.addresses import OFFSET_MASK, RANK_SHIFT, SHARED_WINDOW, WINDOW, bases
from tilesim.ir.arithmetic import LIMITS, CType, join_types, wrap
from tilesim.ir.declarations import GlobalTensor, Mbar, View
from tilesim.ir.effects import Cancels, Defines, ReadsMap, Writes, WritesMap
from tilesim.ir.expr import Base, Binary, Const, Expr, ScalarParam, Select, Special, Unary, Var
from tilesim.ir.layout import CHUNK_MASK
from tilesim.ir.mir import Mir
from tilesim.ir.op import ANNOTATIONS, Op, results_of
from tilesim.ir.program import Strict
from tilesim.ir.tensormap import (
    WIDE,
    MapFields,
    copied_shape,
    fields_of,
    info_problems,
    packing_of,
    rows_of,
    unit,
)
from tilesim.proof.flow import Flow
from tilesim.proof.forms import Cone, Family, Form
from tilesim.proof.many import ALL_LANES, UNKNOWN, WIDTH, Many, applied, fitted, in_some
from tilesim.proof.memory import Bytes, exists
from tilesim.proof.phases import Look, Token
from tilesim.proof.rules import NotCovered, Refuted, rule
from tilesim.proof.written import may_write

Scalar: TypeAlias = "int | Form | Token | Chosen | Asked | Handed | Answer | None"
Value: TypeAlias = "Scalar | list[Scalar]"
#: a memory: ("shared", rank), or ("global", name, which cluster or repetition accesses it, and
#: how accesses of a class move, or, where launch control may hand out clusters, the
#: `Handed.iteration` that decides where)
Place: TypeAlias = "tuple[str, int] | tuple[str, str, object] | tuple[str, str, object, int | None]"
#: (rank, byte) of an mbarrier
MbarrierAt: TypeAlias = tuple[int, int]
AtMbarrier: TypeAlias = tuple[list[int], MbarrierAt]


class Named(NamedTuple):
    """What lanes name: a memory, the bytes there, and the first one before they are swizzled;
    ``any``: data decides which bytes, and these are some of them."""

    lanes: list[int]
    place: Place
    bytes: Bytes
    first: int
    any: bool = False


#: what operands are evaluated in: a warp of `tilesim.proof.machine`, or a shadow
Warp: TypeAlias = Any
LANES = WIDTH
#: of addresses in shared memory, what they count from: where it begins, or both that and where its
#: window of generic addresses does
_SHARED, _GENERIC = ".shared", ".generic"
_LOCAL = (_SHARED, _GENERIC, WINDOW)
#: shared memory begins at a multiple of so many bytes, and its generic addresses do: a power of 2
_LOW = 10
_ALIGNED = 1 << _LOW
#: a CTA has so many bytes of shared memory at most, and they end within 2 to this power
_LARGEST, _HIGH = 227 << 10, 18
#: the bits of an address in tensor memory in which allocations may differ
_COLUMNS = 0xFFE0
#: the bits of a generic address
_WHOLE = 64
#: bytes that an operand names
MOST_BYTES = 1 << 20
#: where generic addresses of shared memory end, and those of global memory begin
_GLOBAL = 1 << 40


class Drawn(int):
    """An integer that another schedule may give another value: an address in tensor memory, or what
    is computed of it. ``of``: the CTA and the first column of the allocation in which it counts;
    None: in none. It is equal to another one only if that counts from the same place, and to no
    number."""

    of: tuple[int, int] | None

    def __new__(cls, number: int, of: tuple[int, int] | None = None) -> Self:
        """``of``: as the class has it."""
        made = super().__new__(cls, number)
        made.of = of
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Drawn) and int(self) == int(other) and vars(self) == vars(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__


class Address(Drawn):
    """An integer that another launch gives another value: so many bytes from where ``base`` lies.
    It names a place, and its distance from others of the same base is known. ``power``: it counts
    from 2 to that power times where shared memory begins; ``modulo``: with fewer bits than all it
    may have wrapped in a register of so many."""

    base: str
    power: int
    modulo: int

    def __new__(
        cls, number: int, base: str = _SHARED, power: int = 0, modulo: int = _WHOLE
    ) -> Self:
        """``base``: a tensor or a tensor map, or one of `_LOCAL`; the others as the class has
        them."""
        made = super().__new__(cls, number)
        made.base, made.power, made.modulo = base, power, modulo
        return made

    def moved(self, number: int, bits: int, by: int = 0) -> Drawn:
        """A sum or difference of it and a number, or it shifted ``by`` bits, in a type of so many
        bits; no address if these do not hold all that where it counts from may set."""
        power = self.power + by
        if bits < (_HIGH + power if self.base == _SHARED else _WHOLE):
            return Drawn(number)
        found = Address(number, self.base, power)
        if bits > self.modulo or (bits < _WHOLE and not found.stays()):
            found.modulo = min(self.modulo, bits)
        return found

    def is_of(self, base: str) -> bool:
        """Whether it is a whole address that counts from there."""
        bits = 32 if base == _SHARED else _WHOLE
        return self.base == base and self.power == 0 and self.modulo >= bits

    def stays(self) -> bool:
        """Whether it lies in the largest shared memory there is, or at its end, so that nothing
        carries over into higher bits, wherever that begins: all other bits are the same then."""
        field = int(self) & ((1 << _HIGH + self.power) - 1)
        return self.modulo == _WHOLE and field << _LOW <= _LARGEST << _LOW + self.power


#: what is so of an address
OfAddress: TypeAlias = Callable[[Address], bool]


def cut(x: int, number: int, bits: int) -> int:
    """What a conversion to so many bits leaves of a number: an address is one as long as it is
    whole."""
    if isinstance(x, Address):
        return x.moved(number, bits)
    if not isinstance(x, Drawn):
        return number
    return x if int(number) == int(x) else Drawn(number)


class Chosen(NamedTuple):
    """What a lane has if it is the one that elect.sync chooses, and if it is another (E12)."""

    leader: Scalar
    rest: Scalar


class Asked(NamedTuple):
    """What a lane has if a poll of its mbarrier has answered yes, and if no."""

    look: Look
    yes: Scalar
    no: Scalar


class Handed(NamedTuple):
    """A number in which clusters differ, where launch control may hand them out: it depends on that
    of the cluster itself (``turn`` 0), or of the one that the answer to request ``turn`` names."""

    value: int
    iteration: int


class Answer(NamedTuple):
    """What launch control has written for a request; ``half``: of its two words of 64 bits."""

    iteration: int
    granted: bool
    half: int = 0


def handed(value: Scalar, iteration: int) -> Scalar:
    """A number that depends on that of a cluster; nothing else is known so."""
    return Handed(value, iteration) if isinstance(value, int) else None


def plain(x: Scalar) -> Scalar:
    """The same in all clusters, as it has been found to be."""
    match x:
        case Chosen(leader, rest):
            return Chosen(plain(leader), plain(rest))
        case Asked(look, yes, no):
            return Asked(look, plain(yes), plain(no))
    return x.value if isinstance(x, Handed) else x


def asked(look: Look, yes: Scalar, no: Scalar) -> Scalar:
    """What a lane has in both cases; not known in one that depends on something else as well."""
    if type(yes) is type(no) and yes == no:
        return yes
    return Asked(look, *(None if isinstance(x, Asked | Chosen) else x for x in (yes, no)))


def answered(x: Scalar, look: Look, *, yes: bool) -> Scalar:
    """What a value is if a poll has answered so."""
    return (x.yes if yes else x.no) if isinstance(x, Asked) and x.look is look else x


def chosen(leader: Scalar, rest: Scalar) -> Scalar:
    """What a lane has in both cases."""
    return leader if type(leader) is type(rest) and leader == rest else Chosen(leader, rest)


class Differs(NotCovered):
    """Clusters, each in a repetition, that decide otherwise than what is executed for them."""

    def __init__(self, others: Sequence[tuple[int, int]], what: object) -> None:
        cluster, self.repetition = min(others, key=lambda other: other[1])
        where = f"repetition {self.repetition} of " if self.repetition else ""
        super().__init__(f"{where}cluster {cluster} differs in {what}")
        self.clusters = [c for c, repetition in others if repetition == self.repetition]


def exactly(value: Value) -> object:
    """A value, and what it is, to be compared: an address is no number."""
    if isinstance(value, list | Chosen | Asked | Handed):
        return type(value), [exactly(x) for x in value]
    return type(value), value


def uniform(row: list[Scalar]) -> Value:
    """What all lanes have, if that is one number, or known of none."""
    kind = type(row[0])
    same = kind in (int, Address, Form, type(None)) and all(
        type(x) is kind and x == row[0] for x in row
    )
    return row[0] if same else row


def lane_of(value: Value, lane: int) -> Scalar:
    """A value in one lane."""
    return value[lane] if isinstance(value, list) else value


#: numbers, and those that count from where something lies
_LOCATED = {int, Address}
_UNKNOWN: Mapping[type, str] = {
    type(None): "data", Drawn: "an address", Address: "an address", Answer: "data",
    Chosen: "which lane is elected", Asked: "an mbarrier that is polled", Form: "a parameter",
}  # fmt: skip


def undecided(x: Scalar) -> bool:
    """Whether data, or where something lies, says what a value is: each number is possible."""
    return x is None or isinstance(plain(x), Drawn)


@rule("data", "what decides is known, and no other schedule gives it another value")
def need(value: Value, what: str, *, place: bool = False) -> Any:
    """A value that decides something; ``place``: where in memory that is, and nothing else.

    Raises: NotCovered: data, or the schedule, decides it."""
    if type(value) is int:
        return value
    value = [plain(x) for x in value] if isinstance(value, list) else plain(value)
    for one in value if isinstance(value, list) else (value,):
        if type(one) in _UNKNOWN and not (place and type(one) is Address):
            raise NotCovered(f"{_UNKNOWN[type(one)]} decides {what}")
    return value


def seen(value: Value, w: Warp) -> Value:
    """A value as lanes have it that an election has told apart: only what is the same in all lanes,
    whichever is elected, is known there (E12)."""
    if not w.side or not isinstance(value, list):
        return value
    row = [getattr(x, w.side) if isinstance(x, Chosen) else x for x in value]
    return row[0] if all(type(x) is type(row[0]) and x == row[0] for x in row) else None


def _behind(value: Value, w: Warp) -> Value:
    """A value as lanes have it that have gone on as if their polls had answered no."""
    if not w.detours:
        return value
    row = [lane_of(value, i) for i in range(LANES)]
    for i, (look, _) in w.detours.items():
        row[i] = answered(row[i], look, yes=False)
    return row


class Operands:
    """Evaluates the operands of one launch at a level; ``inputs``: the bytes that tensors hold;
    ``assumed``: what the proof leans on, of which five count: `in-bounds`, that what data names in
    tensors is inside of them, `zero-state`, that tensors begin with 0 if nothing says more,
    `loops-end` and `no-trap`, that loops end, and no lane traps, where data decides that, and
    `cluster-spread`, that CTAs of a cluster lie on different SMs."""

    def __init__(
        self, mir: Mir, strict: Strict = "practice", inputs: Mapping[str, bytes] | None = None,
        assumed: Collection[str] = (), family: Family | None = None,
    ) -> None:  # fmt: skip
        self.mir, self.program, self.ptx = mir, mir.kernel, strict == "ptx"
        self.inputs, self.assumed, self.flow = inputs or {}, assumed, Flow(mir)
        #: the programs for which this one stands, and which turns of a repetition it stands for
        self.family, self.cone = family, Cone(0, family.most if family else 0)
        self.in_bounds, self.zeros = "in-bounds" in assumed, "zero-state" in assumed
        #: tensors that no instruction of the launch writes
        self.read_only = {t.name for t in mir.kernel.tensors if not t.private} - may_write(mir)
        self.bases = bases(self.program)
        #: whether launch control may hand out clusters
        self.launches = bool(mir.all_of(Cancels))
        self._types: dict[int, tuple[CType, Expr]] = {}
        self._operators: dict[int, tuple[Callable[..., Any], Expr]] = {}
        self._leaves: dict[int, tuple[frozenset[str], object]] = {}
        self._sources: dict[int, tuple[frozenset[str], object]] = {}
        self._parts: dict[int, tuple[tuple[Expr, ...], object]] = {}
        #: whether it is asked which registers hold the same data, as stores may be equal (H23)
        self.follows = False
        #: whether accesses of a class that move alike are those of the executed cluster (`moved`)
        self.moves = True

    # ------------------------------------------------------------------ values

    def value(self, e: Expr, w: Warp) -> Value:
        """What an expression is in the lanes of a warp: what it was, if its registers are."""
        if isinstance(e, Var | Const) or w.side or w.detours:
            return self._value(e, w)
        now = [w.registers.get(name) for name in self.names(e)]
        known: tuple[list[Value], Value] | None = w.values.get(id(e))
        if known is None or not all(map(is_, known[0], now)):
            known = w.values[id(e)] = now, self._value(e, w)
        return known[1]

    def _value(self, e: Expr, w: Warp) -> Value:
        if self.family is not None and isinstance(e, Const | ScalarParam) and type(e.value) is int:
            literal: Value = w.literal(e)
            return literal
        match e:
            case Const(value):
                whole = not isinstance(value, float) or value.is_integer()
                return int(value) if whole else None
            case Var(name):
                return _behind(seen(w.registers.get(name), w), w)
            case ScalarParam(_, value):
                return None if isinstance(value, float) else int(value)
            case Special(name):
                return seen(w.special(name), w)
            case Base(name, space):
                at = self.bases[name]
                if space == "shared":
                    return Address((w.rank - w.base << RANK_SHIFT) + at, _SHARED)
                return Address(at, name)
            case Unary(op, x):
                return self._apply(e, UNARY[op], self.value(x, w))
            case Binary("and" | "or" as op, x, y):
                short = partial(_short, op == "or")
                return self._apply(e, short, self.value(x, w), self.value(y, w))
            case Binary(_, x, y):
                return self._apply(e, self._operator(e), self.value(x, w), self.value(y, w))
            case Select(c, x, y):
                return self._apply(e, _select, *(self.value(one, w) for one in (c, x, y)))
        raise NotCovered(f"expression {type(e).__name__}")

    def _apply(self, e: Expr, function: Callable[..., Any], *operands: Value) -> Value:
        """An operation in each lane; its result wraps in the type of the expression."""
        kind = self._type(e)
        if kind not in LIMITS:
            return None

        bits = 32 if kind in ("s32", "u32") else _WHOLE

        def number(*xs: Scalar) -> int | None:
            try:
                result = function(*(int(x) if isinstance(x, Drawn) else x for x in xs))
            except (ZeroDivisionError, ValueError, OverflowError):
                return None
            return None if result is None else wrap(int(result), kind)

        def one(*xs: Scalar) -> Scalar:
            return located(*xs) if {*map(type, xs)} <= _LOCATED else general(*xs)

        def general(*xs: Scalar) -> Scalar:
            if any(isinstance(x, Chosen) for x in xs):
                return chosen(*(one(*some) for some in zip(*map(_cases, xs), strict=True)))
            looks = [x.look for x in xs if isinstance(x, Asked)]
            if looks:
                both = (one(*(answered(x, looks[0], yes=y) for x in xs)) for y in (True, False))
                return asked(looks[0], *both) if looks == looks[:1] * len(looks) else None
            strict = isinstance(e, Unary | Binary) and e.op not in ("and", "or")
            if any(isinstance(x, Token | Answer) for x in xs) or (strict and None in xs):
                return None
            if any(isinstance(x, Form) for x in xs):
                return self._formed(e, xs, kind)
            xs = picked(*xs)
            iterations = {x.iteration for x in xs if isinstance(x, Handed)}
            if iterations:
                known = one(*(x.value if isinstance(x, Handed) else x for x in xs))
                return handed(known, *iterations) if len(iterations) == 1 else None
            return located(*xs)

        def picked(*xs: Scalar) -> tuple[Scalar, ...]:
            if function is _select and type(xs[0]) is int:
                return (1, xs[1], xs[1]) if xs[0] else (0, xs[2], xs[2])
            return xs

        def located(*xs: Scalar) -> Scalar:
            xs = picked(*xs)
            found = number(*xs)
            if found is None or not any(isinstance(x, Drawn) for x in xs):
                return found
            return _from_bases(e, xs, found, bits, self.is_inside)

        rows = [x if isinstance(x, list) else [x] for x in operands]
        numbers = all(type(x) is int for row in rows for x in row)
        if not any(isinstance(x, list) for x in operands):
            return (number if numbers else one)(*(x for (x,) in rows))
        rows = [row if len(row) == LANES else row * LANES for row in rows]
        return [*map(number if numbers else one, *rows)]

    def is_inside(self, x: Address) -> bool:
        """Whether an address lies in what it counts from, shared memory of a CTA or a tensor, or
        not too far behind that: elsewhere it is as far from it, and not at the other end of all
        addresses."""
        far = int(x) - (self.bases[WINDOW] if x.base == _GENERIC else self.bases.get(x.base, 0))
        if not local(x):
            return 0 <= far < _GLOBAL
        if x.power or x.modulo < _WHOLE:
            return x.stays()
        return far >= 0 and far & OFFSET_MASK < 1 << _HIGH

    def _formed(self, e: Any, xs: Sequence[Any], kind: CType) -> Scalar:
        """What an operator makes of numbers that depend on a parameter."""
        if isinstance(e, Binary) and self._operator(e) is not _OPERATORS[e.op]:
            return None
        if any(type(x) not in (int, Form, type(None)) for x in xs):
            return None
        found = self.cone.computed(getattr(e, "op", "select"), xs)
        if isinstance(found, Form):
            return self.cone.within(found, wrap(found.base, kind), *LIMITS[kind])
        return None if found is None else wrap(found, kind)

    def grown(self, e: Const | ScalarParam) -> Scalar:
        """A literal in all programs of a family."""
        assert self.family is not None
        grows, kind = self.family.literals.get(id(e)), self._type(e)
        if grows is None or kind not in LIMITS:
            return None
        return self.cone.within(Form(int(e.value), 0, grows), int(e.value), *LIMITS[kind])

    def _operator(self, e: Binary) -> Callable[..., Any]:
        """What it makes of two numbers. They are compared and divided in the type that both have:
        beside a u64 a negative one is another number, and floating-point numbers are unknown."""
        if id(e) not in self._operators:
            function, kind = _OPERATORS[e.op], join_types(self._type(e.lhs), self._type(e.rhs))
            if e.op in _BY_ORDER and kind not in LIMITS:
                function = _of_floats
            elif e.op in _BY_ORDER and kind == "u64":
                function = partial(_of_u64, function)
            self._operators[id(e)] = function, e
        return self._operators[id(e)][0]

    def _type(self, e: Expr) -> CType:
        if id(e) not in self._types:
            self._types[id(e)] = self.mir.typing.type_of(e), e
        return self._types[id(e)][0]

    def decides(self, e: Expr, w: Warp) -> Value:
        """An expression that decides something: it is the same in all clusters of a class."""
        value = self.value(e, w)
        self.agree(e, w, value)
        if not self.launches:
            return value
        return [plain(x) for x in value] if isinstance(value, list) else plain(value)

    @rule("class", "whatever decides is the same in all clusters of a class")
    def agree(self, e: Expr, w: Warp, value: Value) -> None:
        """Raises: Differs: clusters for which another one stands would decide otherwise."""
        others = w.shadows if self.may_differ(e, w) else ()
        many = self.in_all(e, w) if others else None
        if many is not None:
            rows = () if many.numbers is None else (many.numbers != many.numbers[:1]).any(1)
            others = [w.each[n] for n in np.flatnonzero(rows)]
        differing = [(o.cluster, o.repetition) for o in others if self.value(e, o) != value]
        if differing:
            raise Differs(differing, e)

    def may_differ(self, operand: object, w: Warp) -> bool:
        """Whether an operand may differ between clusters of a class, or programs of a family."""
        if not w.shadows or self.family is not None:
            return bool(w.shadows)
        names = self.names(operand)
        return "" in names or not names.isdisjoint(w.differing)

    def in_all(self, e: Expr, w: Warp) -> Many | None:
        """The same as `value`, of a warp and its shadows at once, if arrays can have it."""
        if self.family is not None or self.launches or w.side or w.detours:
            return None
        if not self.may_differ(e, w):
            return many_of([self.value(e, w)])
        match e:
            case Var(name):
                found: Many | None = w.many_of(name)
                return found
            case Special(name):
                special: Many | None = w.special_in_all(name)
                return special
            case Unary(_, x):
                return self._applied(e, w, x)
            case Binary(_, x, y):
                return self._applied(e, w, x, y)
            case Select(c, x, y):
                return self._applied(e, w, c, x, y)
        return None

    def _applied(self, e: Expr, w: Warp, *operands: Expr) -> Many | None:
        """What it was, if what its registers hold in all is."""
        known: tuple[list[object], Many | None] = w.arrays.get(id(e), ([], None))
        if known[1] is not None and all(map(is_, known[0], w.held_in_all(self.names(e)))):
            return known[1]
        kind, each = self._type(e), (self.in_all(one, w) for one in operands)
        arrays = [one for one in each if one is not None]
        if len(arrays) < len(operands):
            return None
        function = self._operator(e) if isinstance(e, Binary) else None
        negative = any(one.numbers is not None and one.numbers.min() < 0 for one in arrays)
        if function is _of_floats or (isinstance(function, partial) and negative):
            return None
        found = applied(e, arrays, kind) if kind in LIMITS else UNKNOWN
        w.arrays[id(e)] = w.held_in_all(self.names(e)), found
        return found

    def each(self, e: Expr, w: Warp) -> list[Value]:
        """What it is in a warp and in its shadows: once, if it is the same in all of them, or only
        in some lanes, and not known in others."""
        value = self.value(e, w)
        if not self.may_differ(e, w):
            return [value]
        many = self.in_all(e, w)
        if many is None:
            return [self.value(e, one) for one in w.each]
        if many.numbers is None or len(many.numbers) == 1:
            return [value]
        same = np.broadcast_to((many.numbers == many.numbers[:1]).all(0), LANES)
        return [[lane_of(value, i) if same[i] else None for i in range(LANES)]]

    def assigned(self, w: Warp, var: Var, many: Many, lanes: Sequence[int]) -> Many | None:
        """As `assign`, what a register takes in a warp and its shadows at once."""
        new = fitted(many, var.dtype)
        if new is None or len(lanes) == LANES:
            return new
        old = w.many_of(var.name)
        return None if old is None else in_some(new, old, lanes)

    def places(self, view: View, w: Warp, lanes: Sequence[int]) -> tuple[str, Any] | None:
        """The tensor in which a view is, and where it begins, by cluster and lane; None: these are
        several, or not known, or `view` says what is wrong."""
        t, operands = view.tensor, [self.in_all(e, w) for e in view.operands]
        here, known = sum(1 << i for i in lanes), list[tuple[Any, str]]()
        for x in operands:
            if x is None or x.numbers is None or here & ~x.lanes:
                return None
            columns = lanes if x.numbers.shape[1] > 1 else [0]
            known.append((x.numbers[:, list(columns)], x.base))
        addressed = isinstance(t, AddressedTensor)
        name = known[-1][1] if addressed and known else t.name
        bases = [base for _, base in known[: len(known) - addressed]]
        tensor = next((one for one in self.program.tensors if one.name == name), None)
        if any(bases) or tensor is None or tensor.private:
            return None
        first = np.zeros((1, 1), np.int64)
        if isinstance(t, AddressedTensor):
            numbers = known[-1][0]
            multiple, beyond = _multiple(t)
            first = numbers - self.bases[name]
            far = first.min() < 0 or first.max() >= _GLOBAL or t.swizzle
            if far or ((numbers - beyond) % multiple).any():
                return None
        elif not isinstance(t, GlobalTensor) or t.devices != 1:
            return None
        each = zip(known, t.byte_strides, view.extents, t.shape, strict=False)
        for (numbers, _), stride, extent, size in each:
            if numbers.min() < 0 or numbers.max() > size - extent:
                return None
            first = first + numbers * stride
        return name, np.broadcast_to(first, (len(w.each), len(lanes)))

    @staticmethod
    def box(view: View) -> Bytes:
        """The bytes of a view, relative to its first one."""
        t = view.tensor
        return _box(view.extents, t.byte_strides, t.dtype.bytes)

    def names(self, operand: object) -> frozenset[str]:
        """The registers in an operand; "" and "lane": what tells clusters and lanes apart."""
        if id(operand) not in self._leaves:
            self._leaves[id(operand)] = frozenset(_leaves(operand)), operand
        return self._leaves[id(operand)][0]

    def sources(self, op: Any) -> frozenset[str]:
        """The same in all operands of an instruction, but for registers that it only sets."""
        if id(op) not in self._sources:
            operands = tuple(getattr(op, name) for name in _operands(op))
            self._sources[id(op)] = frozenset(_leaves(operands)), op
        return self._sources[id(op)][0]

    def parts(self, of: Any) -> tuple[Expr, ...]:
        """The expressions in these operands, or of which an expression consists, in one order."""
        if id(of) not in self._parts:
            operands = (getattr(of, name) for name in _operands(of))
            self._parts[id(of)] = tuple(_expressions(operands)), of
        return self._parts[id(of)][0]

    def deciding(self) -> set[str]:
        """The registers on which more may depend than what data is stored."""
        decide, made = set[str](), list[tuple[str, object]]()
        for instruction, effects in zip(self.mir.code, self.mir.effects, strict=True):
            what = instruction.what
            decide |= self.names((instruction.guard, None if isinstance(what, Op) else what))
            for e in effects:
                if isinstance(e, Defines):
                    made.append((e.var.name, what if e.value is None else e.value))
                else:
                    decide |= self.names(e.view if isinstance(e, Writes) else e)
        while more := {n for name, of in made if name in decide for n in self.names(of)} - decide:
            decide |= more
        return decide

    def assign(self, w: Any, var: Var, value: Value, lanes: Sequence[int]) -> None:
        """A register takes a value in some lanes, as far as its type holds it."""
        fit, old = self._fits(var), w.registers.get(var.name)
        value = [fit(x) for x in value] if isinstance(value, list) else fit(value)
        if w.side:  # what one of them has now, each lane would have in its place
            new = lane_of(value, lanes[0])
            cases = [_cases(lane_of(old, i)) for i in range(LANES)]
            value = [chosen(new, r) if w.side == "leader" else chosen(y, new) for y, r in cases]
        elif len(lanes) < LANES:
            value = [lane_of(value if i in lanes else old, i) for i in range(LANES)]
        w.registers[var.name] = uniform(value) if isinstance(value, list) else value

    def _fits(self, var: Var) -> Callable[[Scalar], Scalar]:
        kind, bits = var.dtype.kind, var.dtype.bits

        def fit(x: Scalar) -> Scalar:
            if isinstance(x, Chosen):
                return chosen(fit(x.leader), fit(x.rest))
            if isinstance(x, Asked):
                return asked(x.look, fit(x.yes), fit(x.no))
            if isinstance(x, Token):
                return x if var.name in self.mir.typing.tokens else None
            if isinstance(x, Handed):
                return handed(fit(x.value), x.iteration)
            if isinstance(x, Answer):
                return x if bits == 64 else None
            if x is None or kind == "float":
                return None
            if isinstance(x, Form) and kind == "pred":
                holds = self.cone.holds(x)
                return None if holds is None else int(holds)
            if isinstance(x, Form):
                low = -(1 << bits - 1) if kind == "int" else 0
                base: Any = fit(x.base)
                return self.cone.within(x, base, low, low + (1 << bits) - 1)
            number = int(bool(x)) if kind == "pred" else x & ((1 << bits) - 1)
            number -= (kind == "int" and number >> (bits - 1)) << bits
            return cut(x, number, bits)

        return fit

    def alike(
        self, operands: Sequence[Expr], w: Warp, lanes: Sequence[int], what: str, *,
        own: bool = False, place: bool = False, any: bool = False,
    ) -> list[tuple[list[int], tuple[Any, ...]]]:  # fmt: skip
        """Lanes that have the same operands, together with these. ``own``: each cluster of a class
        has its own; ``place``: they are addresses; ``any``: data may decide them, which is None."""
        values = [self.value(e, w) if own else self.decides(e, w) for e in operands]
        groups: dict[tuple[Scalar, ...], list[int]] = {}
        apart = list in map(type, values)
        if lanes and not apart:
            groups[tuple(values)] = [*lanes]  # type: ignore[arg-type]
        for lane in lanes if apart else ():
            groups.setdefault(tuple(lane_of(v, lane) for v in values), []).append(lane)
        return [
            (some, tuple(v if any and v is None else need(v, what, place=place) for v in key))
            for key, some in groups.items()
        ]

    # ------------------------------------------------------------------ places

    @rule("place", "an address is computed of where that lies which is accessed there")
    def locate(self, address: int, space: str, w: Warp) -> tuple[Place, int]:
        """The memory in which an address lies, and the byte there.

        Raises: Refuted: no declaration has it, or another CTA's is named as the own one (D7);
        NotCovered: it is a number, or computed of something else."""
        place, byte = self._located(address, space, w)
        generic = space == "generic"
        base = str(place[1]) if place[0] == "global" else _GENERIC if generic else _SHARED
        if not isinstance(address, Address) or not address.is_of(base):
            raise NotCovered(f"address {address:#x}, which is not made of {place[1]}'s")
        return place, byte

    def _located(self, address: int, space: str, w: Warp) -> tuple[Place, int]:
        if space == "generic":
            space = "global"
            if SHARED_WINDOW <= address < _GLOBAL:
                address, space = address - SHARED_WINDOW, "shared::cluster"
        elif space != "global":
            address = wrap(address, "u32")
        if space == "global":
            for tensor in self.program.tensors:
                first = self.bases[tensor.name]
                if first <= address < first + _GLOBAL:
                    return ("global", tensor.name, w.instance), address - first
            exists(False, f"address {address:#x}")
        rank, byte = address >> RANK_SHIFT, address & OFFSET_MASK
        exists(space != "shared::cta" or rank == w.rank - w.base, f"CTA {rank} in .shared::cta")
        return ("shared", self._cta(rank, w)), byte

    def _cta(self, rank: int, w: Warp) -> int:
        """The CTA of a rank in the own cluster; one that there is not, of no rank there."""
        return w.base + rank if 0 <= rank < self.program.cluster_size else self.program.ctas

    def view(self, view: View, w: Warp, lanes: Sequence[int]) -> list[Named]:
        """By lanes that name the same, the bytes of a view."""
        t = view.tensor
        if isinstance(t, GlobalTensor) and (t.private or t.devices != 1):
            raise NotCovered("private or multimem memory")
        found, own = [], view.space == "global"
        by_address = isinstance(t, AddressedTensor)
        named = self.alike(
            view.operands, w, lanes, "an address", own=own, place=by_address, any=self._any_of(t)
        )
        for group, some, values in ((g, None in v, n) for g, v in named for n in _among(view, v)):
            place, first = self._begins(view, values, w)
            place = self._of_whom(place, view.operands, w, group)
            inside(view, values)
            first += sum(o * s for o, s in zip(values, t.byte_strides, strict=False))
            mask = 0 if isinstance(t, GlobalTensor) else CHUNK_MASK[t.swizzle]
            at = _bytes_at(first, mask, view.extents, t.byte_strides, t.dtype.bytes)
            found.append(Named(group, place, at, first, some))
        return found

    @rule(
        "in-bounds",
        "data decides where an access is only if nothing writes there, and it is inside",
    )
    def _any_of(self, t: object) -> bool:
        """Whether data may decide which elements of a tensor are accessed: that they are inside is
        assumed, and what they hold not known."""
        return self.in_bounds and isinstance(t, GlobalTensor) and t.name in self.read_only

    def _begins(self, view: View, values: tuple[int, ...], w: Warp) -> tuple[Place, int]:
        match view.tensor:
            case AddressedTensor() as t:
                aligned(t, values[-1])
                return self.locate(values[-1], t.space, w)
            case GlobalTensor(name=name):
                return ("global", name, w.instance), 0
            case t:
                rank = w.rank if view.cta is None else self._cta(values[len(view.offsets)], w)
                return ("shared", rank), self.bases[t.name]

    def _of_whom(
        self, place: Place, operands: Sequence[Expr], w: Warp, lanes: Sequence[int]
    ) -> Place:
        """A place that operands name, the same in all lanes: where launch control may hand out
        clusters, in global memory also by which of their numbers it is."""
        if len(place) != 3 or not self.launches or self.program.ctas == self.program.cluster_size:
            return place
        values = [lane_of(self.value(e, w), lane) for e in operands for lane in lanes[:1]]
        iterations = {x.iteration for x in values if isinstance(x, Handed)}
        if len(iterations) > 1:
            raise NotCovered("several answers of launch control decide an address")
        return (*place, iterations.pop() if iterations else None)

    def box_of_map(self, e: ReadsMap | WritesMap, w: Warp, lanes: Sequence[int]) -> list[Named]:
        """The bytes in global memory of a copy through a tensor map."""
        fields = fields_of(e.map)
        if e.map.rank is not None or e.mode == "im2col_no_offs":
            raise NotCovered(f"a tensor map {'in memory' if e.map.rank else f'of mode {e.mode}'}")
        info, found = e.info if isinstance(e, ReadsMap) else (), []
        bits = getattr(packing_of(e.map), "bits", 8)  # of packed elements, bytes are counted
        reads = isinstance(e, ReadsMap) and fields.tensor in self.read_only  # outside, it gets 0
        for group, some in self.alike(
            (*e.coords, *info), w, lanes, "a coordinate", own=True, any=reads
        ):
            need([*some[len(e.coords) - 1 :]], "the last coordinate, or an offset")
            values = tuple(c or 0 for c in some)
            coords, shift = values[: len(e.coords)], values[len(e.coords) :]
            starts_right(e, coords, unit(fields.packing, fields.dtype, self.program.target.name))
            _small_offsets(e, shift)
            at = _elements(fields, e.mode, (*coords[:-1], coords[-1] * bits // 8), shift)
            at = at[:, None] + np.arange(fields.dtype.bytes) + fields.offset
            place = self._of_whom(("global", fields.tensor, w.instance), e.coords, w, group)
            found.append(Named(group, place, at, fields.offset))
        return found

    def starts_right_in_all(self, e: ReadsMap | WritesMap, w: Warp) -> bool:
        """Whether `starts_right` is known of all shadows of a warp, of which it is asked what it
        reads of a tensor that nothing writes: what is outside is not read."""
        parts = [self.in_all(one, w) for one in e.coords]
        last = parts[-1]
        if isinstance(e, WritesMap) or e.info or None in parts or any(x.base for x in parts if x):
            return False
        fields = fields_of(e.map)
        multiple = unit(fields.packing, fields.dtype, self.program.target.name)
        if last is None or last.numbers is None:
            return False
        return not (last.numbers % multiple).any()

    def mbarrier(self, mbar: Mbar, w: Warp, lanes: Sequence[int]) -> list[AtMbarrier]:
        """By lanes that name the same, where an mbarrier is."""
        found = []
        by_address = isinstance(mbar.array, AddressedMbarriers)
        for group, values in self.alike(
            mbar.operands, w, lanes, "which mbarrier", place=by_address
        ):
            if isinstance(mbar.array, AddressedMbarriers):
                place, byte = self.locate(values[0], mbar.array.space, w)
                found.append((group, (int(place[1]), byte)))
                continue
            exists(0 <= values[0] < mbar.array.count, mbar)
            rank = w.rank if mbar.cta is None else self._cta(values[1], w)
            found.append((group, (rank, self.bases[mbar.array.name] + 8 * values[0])))
        return found


@rule("B19", "a tensor copy starts at a multiple of 16 bytes, and a store not before its tensor")
def starts_right(e: ReadsMap | WritesMap, coords: tuple[int, ...], multiple: int) -> None:
    """``multiple``: so many elements (B37); of padded ones more.

    Raises: Refuted: it does not."""
    if coords[-1] % multiple or (isinstance(e, WritesMap) and min(coords) < 0):
        raise Refuted("B19", f"a copy through {e.map} at {coords}")


def _among(view: View, values: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
    """Two of the values of offsets that data decides: the places grow in equal steps, so what is
    aligned at both is at all."""
    if None not in values:
        return (values,)
    last = [size - n for size, n in zip(view.tensor.shape, view.extents, strict=True)]
    return tuple(
        tuple(min(number, n) if v is None else v for v, n in zip(values, last, strict=True))
        for number in range(2)
    )


@rule("B23", "the offsets of a copy by im2col are in their range")
def _small_offsets(e: ReadsMap | WritesMap, shift: tuple[int, ...]) -> None:
    """Raises: Refuted: they are not."""
    for problem in info_problems(e.map, e.mode, tuple(map(Const, shift))):
        raise Refuted("B23", problem)


def _elements(
    fields: MapFields, mode: str, coords: tuple[int, ...], shift: tuple[int, ...]
) -> Bytes:
    """Where in a tensor those elements of a copy are that lie inside of it (B19, B22, B23)."""
    counts = copied_shape(fields.box, fields.steps, mode, shift[0] if mode in WIDE else 0)
    not_too_many(prod(counts) * fields.dtype.bytes)
    at, steps = np.zeros(1, np.int64), fields.steps
    if mode != "tile":  # rows, each of as many elements
        rows = np.array(rows_of(fields, mode, coords, shift), np.int64)
        inside = ((rows >= 0) & (rows < np.array(fields.dims[:-1]))).all(1)
        at, steps = rows[inside] @ np.array(fields.strides[:-1], np.int64), (1,)
    each = (x[-len(steps) :] for x in (coords, counts, steps, fields.dims, fields.strides))
    for c, n, step, size, stride in zip(*each, strict=True):
        index = c + np.arange(n, dtype=np.int64) * step
        index = index[(index >= 0) & (index < size)]
        at = (at[:, None] + index * stride).reshape(-1)
    return at


@rule("inside", "a view lies inside of its tensor")
def inside(view: View, values: tuple[int, ...]) -> None:
    """Raises: Refuted: at these offsets it does not."""
    shape = view.tensor.shape
    for offset, extent, size in zip(values, view.extents, shape, strict=False):
        if not 0 <= offset <= size - extent:
            raise Refuted("inside", view)


@rule("aligned", "an address is a multiple of the size of what is accessed there")
def aligned(t: AddressedTensor, address: int) -> None:
    """Raises: Refuted: it is not; of an element of a vector, the vector's."""
    multiple, beyond = _multiple(t)
    if (address - beyond) % multiple:
        raise Refuted("aligned", f"{t}: no multiple of {multiple}")


def _multiple(t: AddressedTensor) -> tuple[int, int]:
    return (t.multiple, t.beyond) if t.multiple else (t.dtype.bytes, 0)


def many_of(values: Sequence[Value]) -> Many | None:
    """What a warp and its shadows hold, or all of them, as an array, if it can have that: in the
    same lanes, numbers, or addresses that count from one tensor."""
    rows: list[Any] = [x if isinstance(x, list) else [x] for x in values]
    width = max(map(len, rows))
    rows = [row if len(row) == width else row * width for row in rows]
    kinds, lanes = {type(x) for row in rows for x in row}, ALL_LANES
    if type(None) in kinds:
        known = {sum(1 << i for i, x in enumerate(row) if x is not None) for row in rows}
        if len(known) > 1:
            return None
        if not (lanes := known.pop()):
            return UNKNOWN
        rows = [[0 if x is None else x for x in row] for row in rows]
    found = [x for x in rows[0] if type(x) is Address]
    base = found[0].base if found else ""
    if kinds - {type(None)} != {Address if base else int} or (found and local(found[0])):
        return None
    if base and not all(x.is_of(base) for row in rows for x in row if type(x) is Address):
        return None
    try:
        return Many(np.array(rows, np.int64), base, lanes).reduced()
    except OverflowError:
        return None


def value_in(many: Many, index: int) -> Value:
    """What it is in the warp, or in the shadow of that number."""
    if many.numbers is None:
        return None
    row = many.numbers[index if len(many.numbers) > 1 else 0].tolist()
    row = [Address(x, many.base) for x in row] if many.base else row
    if many.lanes == ALL_LANES:
        return uniform(row)
    return [row[i % len(row)] if many.lanes >> i & 1 else None for i in range(LANES)]


def _cases(x: Scalar) -> tuple[Scalar, Scalar]:
    """What a lane has if it is elected, and if not."""
    return x if isinstance(x, Chosen) else (x, x)


def _short(stop: bool, p: Scalar, q: Scalar) -> int | None:
    """``and`` and ``or``, which one operand may decide."""
    known = [bool(x) for x in (p, q) if x is not None]
    if stop in known:
        return int(stop)
    return int(not stop) if len(known) == 2 else None


def _left(a: Any, b: Any) -> Any:
    """``a << b``: beyond 64 nothing is left of a number of 64 bits."""
    return BINARY["<<"](a, min(b, 64))


def _of_floats(_a: Any, _b: Any) -> None:
    """Numbers of which one is converted to a floating-point type are not known."""


def _of_u64(function: Callable[..., Any], a: Any, b: Any) -> Any:
    """``function`` of numbers in 64 bits without a sign."""
    return function(wrap(a, "u64"), wrap(b, "u64"))


_OPERATORS = BINARY | {"<<": _left}
#: operators whose result depends on the type in which the operands are numbers, beyond its width
_BY_ORDER = RELATIONS | {"min", "max", "//", "%"}


_SHIFTS = {"+": ([Address, int], [int, Address]), "-": ([Address, int],)}
#: what comes of an address in shared memory and where its window begins
_CONVERTED: Mapping[tuple[str, ...], str] = {
    ("+", _SHARED, WINDOW): _GENERIC, ("+", WINDOW, _SHARED): _GENERIC,
    ("-", _GENERIC, WINDOW): _SHARED,
}  # fmt: skip
_BITS = ("&", "|", "^")


@rule("address", "of where memory lies, distances and the low bits of shared memory are known only")
def _from_bases(e: Expr, xs: Sequence[Any], number: int, bits: int, is_inside: OfAddress) -> int:
    """What comes of operands of which some differ between launches or schedules, in a type of so
    many bits."""
    at = [x for x in xs if isinstance(x, Address)]
    of = [x.base for x in at]
    others = [x for x in xs if type(x) is int]
    all_inside = all(map(is_inside, at))
    match e:
        case Select() if not isinstance(xs[0], Drawn):
            picked = xs[1] if xs[0] else xs[2]
            return cut(picked, number, bits) if isinstance(picked, int) else number
        case Binary("+" | "-" as op) if [type(x) for x in xs] in _SHIFTS[op]:
            return at[0].moved(number, bits)
        case Binary(op) if (op, *of) in _CONVERTED and _is_plain(at):
            return Address(number, _CONVERTED[op, *of])
        case Binary("-" | "==" | "!=" | "<" | "<=" | ">" | ">=") if _of_one(at) and all_inside:
            return number
        case Binary("==" | "!=") if others == [0] and all_inside and at and _is_not_null(at[0]):
            return number
        case Binary("%") if of in ([_SHARED], [_GENERIC]) and all_inside and _divides(xs[1], at[0]):
            return number
        case Binary(op) if op in _BITS and of in ([_SHARED], [_GENERIC]) and others:
            return _other_bits(op, at[0], others[0], number, bits)
        case Binary("<<" | ">>" as op) if of == [_SHARED] and others == [*xs[1:]]:
            return _shifted(op, at[0], others[0], number, bits)
        case Binary(op) if not of and others:
            return Drawn(number, _in_allocation(op, xs, others[0]))
    return Drawn(number)


def _shifted(op: str, x: Address, n: int, number: int, bits: int) -> int:
    """What an address in shared memory is, shifted: above it lies the rank of its CTA."""
    if op == "<<":
        return x.moved(number, bits, n)
    if not x.stays() or _LOW + x.power < n < _HIGH + x.power:
        return Drawn(number)
    return x.moved(number, bits, -n) if n <= _LOW + x.power else number


def _other_bits(op: str, x: Address, n: int, number: int, bits: int) -> int:
    """What an address in shared memory is with other bits."""
    if op == "&" and 0 <= n < 1 << x.modulo < 1 << _WHOLE:
        known = x.moved(x & ((1 << x.modulo) - 1), x.modulo)
        x = known if isinstance(known, Address) else x
    low, high = _LOW + x.power, _HIGH + x.power if x.base == _SHARED else _WHOLE
    if op == "&" and 0 <= n < 1 << low:
        return number
    changes = (~n if op == "&" else n) & ((1 << bits) - 1)
    if not changes >> low:
        return x.moved(number, bits)
    own = ((1 << high) - 1) >> low << low
    if not x.stays() or (changes & own and (op != "&" or n & own)):
        return Drawn(number)
    return number if changes & own else x.moved(number, bits)


def _is_plain(at: Sequence[Address]) -> bool:
    """Whether addresses count from where shared memory or its window begins, and have not
    wrapped."""
    return all(x.power == 0 and x.modulo == _WHOLE for x in at)


def _in_allocation(op: str, xs: Sequence[Any], n: int) -> tuple[int, int] | None:
    """In which allocation of tensor memory an address counts that is moved by a number, or gets
    other bits than those in which allocations differ."""
    (of,) = {x.of for x in xs if isinstance(x, Drawn)}
    moves = op == "+" or (op == "-" and isinstance(xs[0], Drawn))
    bits = op in _BITS and not (~n if op == "&" else n) & _COLUMNS
    return of if moves or bits else None


def _is_not_null(x: Address) -> bool:
    """Whether nothing lies at 0 where an address counts from."""
    return x.base == _GENERIC or not local(x)


def _divides(n: Scalar, x: Address) -> bool:
    """Whether a remainder by n is that of the low bits, which where shared memory begins leaves."""
    return type(n) is int and n > 0 and (1 << _LOW + x.power) % n == 0


def _of_one(at: Sequence[Address]) -> bool:
    """Whether these are two addresses that count from one place."""
    return len(at) == 2 and (at[0].base, at[0].power) == (at[1].base, at[1].power)


def local(x: object) -> bool:
    """Whether something is computed of where shared memory begins."""
    return isinstance(x, Address) and x.base in _LOCAL


def _select(c: Scalar, p: Scalar, q: Scalar) -> Scalar:
    if c is None:
        return None
    return p if c else q


def _operands(of: Any) -> list[str]:
    """The fields of an instruction or expression, but for those that name what it sets."""
    own = ANNOTATIONS | (results_of(type(of)) if isinstance(of, Op) else frozenset())
    return sorted(of.__dataclass_fields__.keys() - own)


def _expressions(some: Iterable[object]) -> Iterator[Expr]:
    for one in some:
        match one:
            case Expr():
                yield one
            case View() | Mbar():
                yield from one.operands
            case tuple():
                yield from _expressions(one)
            case _ if next(_leaves(one), None) is not None:
                raise NotCovered(f"the operands in {one}")


def _leaves(x: object) -> Iterator[str]:
    match x:
        case Var(name):
            yield name
        case Special("lane_id" | "thread_id"):
            yield "lane"
        case Special(name):
            if name.startswith("cta_") or name == "cluster_id":
                yield ""
        case Const() | ScalarParam() | Base():
            return
        case tuple():
            for part in x:
                yield from _leaves(part)
        case _:
            for name in getattr(x, "__dataclass_fields__", ()):
                yield from _leaves(getattr(x, name))


def not_too_many(nbytes: int) -> None:
    """Raises: NotCovered: so many bytes are too many for one operand."""
    if nbytes > MOST_BYTES:
        raise NotCovered(f"an operand of {nbytes} bytes")


@lru_cache(256)  # the warps of a warpgroup name the same tile, and each turn does again
def _bytes_at(first: int, mask: int, *box: Any) -> Bytes:
    """The bytes of a box from one on, swizzled by a mask."""
    at = _box(*box) + first
    at = at ^ (((at >> 7) & mask) << 4) if mask else at
    at.flags.writeable = False
    return at


@lru_cache(64)
def _box(extents: tuple[int, ...], strides: tuple[int, ...], nbytes: int) -> Bytes:
    """The bytes of a box of elements, relative to its first one."""
    not_too_many(prod(extents) * nbytes)
    at = np.zeros(1, np.int64)
    for n, stride in zip(extents, strides, strict=True):
        at = (at[:, None] + np.arange(n, dtype=np.int64)[None, :] * stride).reshape(-1)
    return at[:, None] + np.arange(nbytes)
