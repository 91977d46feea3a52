"""Instructions of PTX with what registers hold in their place.

    mov a, address(shared)
    mov b, a + 1024          ->    mbarrier.init mbar_at(address(shared) + 1024), 8
    mov c, 8
    mbarrier.init mbar_at(b), c

Compilers keep each step of an address in a register of its own, and each is an instruction to
analyse, to load and to run. An expression takes the place of a register where it has its value in
every lane: what it is made of is not set in between. Where a value is not known, neither is what
is computed of it, and of that only counts what it is made of. What is not read any more,
`tilesim.ptx.passes.simplify` leaves out.

A comparison of what a predicate chooses is that predicate, or its opposite. Inline assembly hands
its predicates on so, `elect.sync` and polls among them:

    selp r, 1, 0, p
    setp q, r == 0        ->    branch ..., cond=p, sense=False
    branch ..., cond=q

Quotients that compilers compute by a product with a constant are quotients again:

    mul.wide.u32 a, x, 0xAAAAAAAB; shr.u64 b, a, 33          ->    x // 3

A ring of three stages divides by 3 in every turn. Of a quotient it is known how it changes when
the dividend does, and that of a remainder nothing changes after so many turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from operator import is_
from typing import TypeAlias

from tilesim.analysis.cfg import FlowGraph, is_truth
from tilesim.analysis.uses_defs import mentioned, mentions_of, operand_expressions, registers_set
from tilesim.arith.intervals import Interval
from tilesim.arith.operators import integer
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.arithmetic import LIMITS, CType, Typing, bounds, integer_limits, join_types, wrap
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.effects import Gathers, Shuffles
from tilesim.ir.expr import (
    Base,
    Binary,
    Const,
    Expr,
    Select,
    Special,
    Unary,
    Var,
    binary,
    constant,
    select,
    unary,
    walk,
)
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Branch, Control, Instruction, Switch, Trap
from tilesim.ir.op import Computation, Op
from tilesim.ir.ops.compute import Compute, Data, Exchange
from tilesim.ir.ops.scalar import Assign, Shuffle
from tilesim.ir.tensor_memory import TmemView
from tilesim.records import replace

_NOTHING: frozenset[str] = frozenset()


class Listing:
    """A program's instructions by number. One may be put in place of another that sets the same."""

    def __init__(self, code: Iterable[Instruction]) -> None:
        self.code = [*code]
        #: what each mentions, as `tilesim.analysis.uses_defs.Mentions` has it
        self.names = [_mentioned_by(instruction) for instruction in self.code]
        #: the registers that each sets
        self.sets = [_set_by(instruction) for instruction in self.code]

    def put(self, number: int, instruction: Instruction) -> None:
        """Puts an instruction in the place of another one."""
        self.code[number] = instruction
        self.names[number] = _mentioned_by(instruction)


def _mentioned_by(instruction: Instruction) -> frozenset[str]:
    what, guard = instruction.what, instruction.guard
    if isinstance(what, Assign) and guard is None:
        return mentioned(what.value)
    tested, used, _ = mentions_of(instruction)
    return tested | used if tested and used else tested or used


def _set_by(instruction: Instruction) -> frozenset[str]:
    what = instruction.what
    if isinstance(what, Assign):
        return frozenset((what.var.name,))
    if isinstance(what, Op):
        return frozenset([var.name for var in registers_set(what)])
    return _NOTHING


_ALL_BITS = (1 << 64) - 1
_NO_SIGN = (1 << 63) - 1


def as_quotient(expr: Expr, typing: Typing) -> Expr:
    """The quotient that ``expr`` is, of the same type; ``expr`` if it is not known to be one."""
    count, product = 0, expr
    while isinstance(product, Binary) and product.op == ">>":
        by = constant(product.rhs)
        if by is None or not 0 <= by < 64:
            return expr
        count, product = count + by, product.lhs
    match product:
        case Binary("&", Binary("*", x, Const(int() as factor)) as inner, Const(kept)) if (
            count and kept == _ALL_BITS
        ):
            most = _ALL_BITS
        case Binary("*", x, Const(int() as factor)) as inner if count and not typing.wraps(inner):
            most = _NO_SIGN
        case _:
            return expr
    known = typing.interval(x)
    if factor <= 0 or known is None or known[0] < 0 or known[1] * factor > most:
        return expr
    divisor = -(-(1 << count) // factor)
    # x factor / 2^count = (x + x excess / 2^count) / divisor: no further than the next integer
    excess = divisor * factor - (1 << count)
    if divisor < 2 or known[1] * excess >= 1 << count:
        return expr
    found = binary("//", x, divisor)
    if typing.type_of(found) != typing.type_of(expr):
        found = binary("&", found, _ALL_BITS)
    return found if typing.type_of(found) == typing.type_of(expr) else expr


#: operators and operands of an expression that takes the place of a register
_MOST = 16

#: how often something is computed that is one operation with a constant
_OFTEN = 2

#: what is known of registers, by name
Values: TypeAlias = Mapping[str, Expr]


def forward(
    graph: FlowGraph, listing: Listing, given: Collection[str], gone: Collection[int]
) -> Typing:
    """Puts into ``listing``, the instructions of ``graph``, what registers hold in place of them,
    but for those of ``given``, so that it does the same; what is known of registers from then on.

    ``gone``: the instructions that are left out.
    """
    forwarding = _Forwarding(graph, listing, given, gone)
    for block in graph.order:
        forwarding.walk(block)
    typing = graph.mir.typing
    return replace(typing, ranges={**typing.ranges, **forwarding.ranges})


class _Contents:
    """What registers hold at one place, until something is set that it is made of."""

    def __init__(self) -> None:
        self.values: dict[str, Expr] = {}
        #: those of which what they hold is of use only where it decides
        self.choices: set[str] = set()
        #: what other things that are computed are made of
        self.sources_of: dict[str, tuple[Expr, ...]] = {}
        #: by register, those that hold what is made of it
        self._parts_of: dict[str, list[str]] = {}

    def note(self, name: str, value: Expr, names: frozenset[str], *, choice: bool) -> None:
        """A register holds the value of an expression, which mentions these; ``choice``: it is of
        use only where it decides."""
        if self._note_sources(name, names):
            self.values[name] = value
            if choice:
                self.choices.add(name)

    def note_data(self, name: str, sources: tuple[Expr, ...], names: frozenset[str]) -> None:
        """A register holds what no expression says, and is made of that."""
        if self._note_sources(name, names):
            self.sources_of[name] = sources

    def _note_sources(self, name: str, names: frozenset[str]) -> bool:
        if name in names:
            return False
        for other in names:
            self._parts_of.setdefault(other, []).append(name)
        return True

    def forget(self, name: str) -> None:
        """A register is set: what it held, and what was made of that, is so no more."""
        for gone in (name, *self._parts_of.pop(name, ())):
            self.values.pop(gone, None)
            self.choices.discard(gone)
            self.sources_of.pop(gone, None)


class _Forwarding:
    """A walk through blocks, each before those that follow it but for loops."""

    def __init__(
        self, graph: FlowGraph, listing: Listing, given: Collection[str], gone: Collection[int]
    ) -> None:
        self._graph, self._listing, self._given, self._gone = graph, listing, given, gone
        #: by register: how many instructions read it, and how many set it
        self._uses: defaultdict[str, int] = defaultdict(int)
        self._setters: defaultdict[str, int] = defaultdict(int)
        #: registers that hold what a lane has got from another one
        self._of_lanes: set[str] = set()
        known: set[str] = set()
        for number, instruction in enumerate(listing.code):
            if number in gone:
                continue
            for name in listing.names[number]:
                self._uses[name] += 1
            for name in listing.sets[number]:
                self._setters[name] += 1
            if isinstance(instruction.what, Shuffle | Exchange):
                self._of_lanes |= listing.sets[number]
            if not isinstance(instruction.what, Data):
                known |= listing.sets[number]
        #: what registers hold that are set once, to what is the same from then on; and where
        self._always: dict[str, tuple[int, Expr]] = {}
        #: registers that hold unknown values wherever they are set
        self._unknown = self._setters.keys() - known
        #: least and greatest values of registers that are set once
        self.ranges: dict[str, Interval] = {}
        self._typing = replace(graph.mir.typing, ranges=self.ranges, any_scalar=True)

    def walk(self, block: int) -> None:
        """The instructions of a block."""
        contents, listing, always = _Contents(), self._listing, self._always
        for number in self._graph.blocks[block]:
            if number in self._gone:
                continue
            old = listing.code[number]
            left_out = _NOTHING if _decides(old.what) else contents.choices
            values: dict[str, Expr] = {}
            for name in listing.names[number]:
                if name in always and self._graph.dominates(always[name][0], block):
                    contents.values[name] = always[name][1]
                if name in contents.values and name not in left_out:
                    values[name] = contents.values[name]
            new = self._with(old, values, contents)
            if new is not old:
                listing.put(number, new)
            if isinstance(new.what, Op):
                for name in listing.sets[number]:
                    contents.forget(name)
                if new.guard is None:
                    self._note(new.what, listing.names[number], block, contents)

    def _note(self, op: Op, names: frozenset[str], block: int, contents: _Contents) -> None:
        """An instruction that mentions these has set registers."""
        if isinstance(op, Assign):
            self._note_value(op, names, block, contents)
        elif isinstance(op, Data | Computation):
            # of what another lane has got, the order says whether two compute the same
            if (isinstance(op, Data) and op.partly) or not self._of_lanes.isdisjoint(names):
                return
            operands = operand_expressions(op)
            for result in registers_set(op):
                contents.note_data(result.name, operands, names)

    def _note_value(
        self, op: Assign, names: frozenset[str], block: int, contents: _Contents
    ) -> None:
        name = op.var.name
        value = None if name in self._given else self._value(op)
        if value is None or _size(op.value) > _MOST:
            return
        value, uses = self._decided(value), self._uses[name]
        dear = uses > 1 and not _is_short(value) and (uses > _OFTEN or not _is_step(value))
        if dear and not _is_choice(value):
            return
        if not dear and self._setters[name] == 1 and not any(map(_varies, names)):
            self._always[name] = block, value
        contents.note(name, value, names, choice=dear)

    def _value(self, assign: Assign) -> Expr | None:
        """What the register of an assignment holds from then on; None if no expression says it."""
        var, value, typing = assign.var, assign.value, self._typing
        if var.name in typing.tokens:
            return None
        once = self._setters[var.name] == 1
        if isinstance(value, Var) and value.name not in typing.tokens and value.dtype == var.dtype:
            if once and value.name in self._unknown:
                self._unknown.add(var.name)
            return value
        known = None if var.dtype.kind == "float" else typing.interval(value)
        if known is None:
            return None
        low, high = integer_limits(var.dtype)
        if low <= known[0] and known[1] <= high:
            if once:
                self.ranges[var.name] = known
            return value
        return binary("&", value, high) if var.dtype.kind == "uint" else None

    # ------------------------------------------------------------------ instructions

    def _with(self, instruction: Instruction, values: Values, contents: _Contents) -> Instruction:
        """An instruction that takes what registers hold."""
        what, guard = instruction.what, instruction.guard
        if isinstance(what, Data):
            what = _of_sources(what, contents)
        elif values:
            what = self._taking(instruction, values)
            if guard is not None:
                guard = self._put(guard, values)
        if isinstance(what, Compute):
            what = self._unless_unknown(what)
        if what is instruction.what and guard is instruction.guard:
            return instruction
        return Instruction(what, guard, instruction.role)

    def _taking(self, instruction: Instruction, values: Values) -> Op | Control:
        match instruction.what:
            case Assign(value=value) as what:
                new = self._put(value, values)
                return what if new is value else Assign(var=what.var, value=new, loc=what.loc)
            case Branch(cond=Expr() as cond) | Trap(cond=cond) as what:
                new = self._put(cond, values)
                match what, new:
                    case Branch(sense=sense), Unary("not", inner):
                        return replace(what, cond=inner, sense=not sense)
                    case _:
                        return what if new is cond else replace(what, cond=new)
            case Switch(index=index) as what:
                new = self._put(index, values)
                return what if new is index else replace(what, index=new)
            case Op() as what:
                if any(isinstance(effect, Gathers | Shuffles) for effect in what.effects()):
                    # lanes may read what others have that have not come by
                    values = {n: v for n, v in values.items() if isinstance(v, Const)}
                changes: dict[str, object] = {}
                for name, old, names in mentions_of(instruction).operands:
                    if not names.isdisjoint(values):
                        operand = self._operand(old, values)
                        if operand is not old:
                            changes[name] = operand
                return what.having(changes) if changes else what
            case what:
                return what

    def _unless_unknown(self, compute: Compute) -> Op:
        """A computation; if it is one with what is not known, that is what comes out."""
        registers = {source.name: source for source in compute.sources if isinstance(source, Var)}
        if len(registers) != 1 or len(compute.results) != 1:
            return compute
        ((name, source),), (result,) = registers.items(), compute.results
        plain = all(isinstance(s, Var | Const) for s in compute.sources)
        if not plain or name not in self._unknown or source.dtype != result.dtype:
            return compute
        if self._setters[result.name] == 1:
            self._unknown.add(result.name)
        return Assign(var=result, value=source, loc=compute.loc)

    # ------------------------------------------------------------------ operands

    def _operand(self, value: object, values: Values) -> object:
        match value:
            case Expr():
                return self._put(value, values)
            case View(tensor=AddressedTensor(address=address) as tensor):
                new = self._put(address, values)
                if new is address:
                    return value
                return replace(value, tensor=replace(tensor, address=new))
            case Mbar(array=AddressedMbarriers(address=address) as array):
                new = self._put(address, values)
                if new is address:
                    return value
                return replace(value, array=replace(array, address=new))
            case TmemView(address=address):
                new = self._put(address, values)
                return value if new is address else replace(value, address=new)
            case tuple():
                items = tuple([self._operand(item, values) for item in value])
                return value if all(map(is_, items, value)) else items
            case _:
                return value

    def _put(self, expr: Expr, values: Values) -> Expr:
        """An expression with the values of its registers, if it has the same value so."""
        if isinstance(expr, Var):
            return values.get(expr.name, expr)
        try:
            return self._replaced(expr, values)
        except _OtherTypeError:
            return expr

    def _replaced(self, expr: Expr, values: Values) -> Expr:
        match expr:
            case Var(name):
                return values.get(name, expr)
            case Unary(op, operand):
                new = self._replaced(operand, values)
                if new is operand:
                    return expr
                return self._decided(self._same(expr, unary(op, new), (operand, new)))
            case Binary(op, lhs, rhs):
                a, b = self._replaced(lhs, values), self._replaced(rhs, values)
                if a is lhs and b is rhs:
                    return expr
                new = self._same(expr, binary(op, a, b), (lhs, a), (rhs, b))
                if op == ">>":
                    return as_quotient(new, self._typing)
                return _of_few_bits(self._decided(new))
            case Select(cond, then, other):
                c, a, b = (self._replaced(part, values) for part in (cond, then, other))
                if c is cond and a is then and b is other:
                    return expr
                return self._same(expr, select(c, a, b), (then, a), (other, b))
            case _:
                return expr

    def _decided(self, expr: Expr) -> Expr:
        """A truth that a condition in it decides, as that, its opposite, or a number."""
        cond = _condition_in(expr) if is_truth(expr) else None
        if cond is None or cond == expr or any(map(self._typing.wraps, walk(expr))):
            return expr
        match [_where(expr, cond, holds) for holds in (1, 0)]:
            case [Const(yes), Const(no)] if bool(yes) == bool(no):
                return Const(int(bool(yes)))
            case [Const(yes), Const()]:
                return cond if yes else unary("not", cond)
            case _:
                return expr

    def _same(self, old: Expr, new: Expr, *operands: tuple[Expr, Expr]) -> Expr:
        """``new``, which has the value of ``old``: its operands have those of the old ones, in the
        same types or in others in which nothing wraps.

        Raises:
            _OtherTypeError: something may wrap elsewhere.
        """
        typing = self._typing
        known = [typing.facts(part) for pair in operands for part in pair]
        (first, _), (other, _), *_ = known
        (last, _), (other_last, _) = known[-2:]
        if first == other and last == other_last:
            return _wrapped_as(new, typing.type_of(old))
        intervals = [bounds(*part) for part in known[1::2]]
        for kind in (join_types(first, last), join_types(other, other_last)):
            if kind not in LIMITS:
                raise _OtherTypeError
            low, high = LIMITS[kind]
            for interval in intervals:
                if interval is None or interval[0] < low or interval[1] > high:
                    raise _OtherTypeError
        if typing.wraps(old) or typing.wraps(new):
            raise _OtherTypeError
        return new


def _condition_in(expr: Expr) -> Expr | None:
    """What chooses in an expression, or a predicate in it; None if there is neither."""
    parts = [*walk(expr)]
    chosen = (p.cond for p in parts if isinstance(p, Select) and is_truth(p.cond))
    flags = (p for p in parts if isinstance(p, Var) and p.dtype.kind == "pred")
    return next(chosen, next(flags, None))


def _where(expr: Expr, cond: Expr, holds: int) -> Expr:
    """What an expression is where a condition holds, or does not."""
    if expr == cond:
        return Const(holds)
    match expr:
        case Unary(op, operand):
            return unary(op, _where(operand, cond, holds))
        case Binary(op, lhs, rhs):
            return binary(op, _where(lhs, cond, holds), _where(rhs, cond, holds))
        case Select(choice, then, other):
            return select(*(_where(e, cond, holds) for e in (choice, then, other)))
        case _:
            return expr


def _decides(what: Op | Control) -> bool:
    """Whether an instruction decides something, or sets a predicate that may."""
    if isinstance(what, Assign):
        return what.var.dtype.kind == "pred"
    return not isinstance(what, Op)


def _wrapped_as(expr: Expr, kind: CType) -> Expr:
    """An expression that stands for one of a type: a literal that is folded from others of it
    wraps as the type does."""
    if isinstance(expr, Const) and kind in LIMITS:
        value = integer(expr.value)
        return expr if value == wrap(value, kind) else Const(wrap(value, kind))
    return expr


def _of_few_bits(expr: Expr) -> Expr:
    """``x & more & few`` as ``x & few``: bits that every integer type has are in ``x`` already."""
    match expr:
        case Binary("&", Binary("&", inner, Const(int() as more)), Const(int() as few)) if (
            0 <= few < 1 << 31 and more & few == few
        ):
            return Binary("&", inner, expr.rhs)
        case _:
            return expr


class _OtherTypeError(Exception):
    """An expression would be computed in a type in which it has another value."""


def _of_sources(data: Data, contents: _Contents) -> Data:
    """What is not known, whatever it is made of, with what that is made of itself."""
    found: dict[str, Expr] = {}
    for source in data.sources:
        for part in walk(source):
            if isinstance(part, Var):
                value = contents.values.get(part.name)
                made = contents.sources_of.get(part.name, (part,)) if value is None else walk(value)
                found.update((str(p), p) for p in made if isinstance(p, Var | Special | Base))
            elif isinstance(part, Special | Base):
                found[str(part)] = part
    sources = tuple(found.values())
    if not sources or len(sources) > _MOST or sources == data.sources:
        return data
    return replace(data, sources=sources, composed=True)


def _is_short(value: Expr) -> bool:
    """Whether an expression costs no more than a register, wherever it is."""
    match value:
        case Const() | Base() | Var() | Special() | Binary("+", Base(), Const()):
            return True
        case Unary("not", Var()):
            return True
        case _:
            return False


def _is_choice(value: Expr) -> bool:
    """Whether a condition chooses one of two numbers."""
    match value:
        case Select(_, Const(), Const()):
            return True
        case _:
            return False


def _is_step(value: Expr) -> bool:
    """Whether an expression is one operation with a register and a constant: where it is needed
    twice, that costs less than an instruction."""
    return isinstance(value, Binary) and isinstance(value.lhs, Var) and isinstance(value.rhs, Const)


def _varies(name: str) -> bool:
    """Whether something that is mentioned has other values later, or one for each lane."""
    return name[0] not in "%&" or name in ("%thread_id", "%lane_id")


@cached
def _size(expr: Expr) -> int:
    """Operators and operands of an expression; too many if it may divide by zero."""
    parts = [*walk(expr)]
    return _MOST + 1 if any(map(_may_divide, parts)) else len(parts)


def _may_divide(part: Expr) -> bool:
    """Whether an operator divides by what may be zero."""
    return isinstance(part, Binary) and part.op in ("//", "%") and not constant(part.rhs)
