"""Where a program's results could depend on where memory begins, which no run shows (SEMANTICS J5).

A register's value is followed as a sum of unknown bases and a rest that every launch agrees on. A
difference of two addresses in one allocation, their comparison, the low bits of an aligned one or
its CTA rank have no base left; what steers must be like that. An operand at an address must have
the base of its state space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.addresses import WINDOW
from tilesim.ir.arithmetic import COMPARE, Typing
from tilesim.ir.dataflow import (
    OPERANDS,
    aliases,
    expressions_in,
    operand_expressions,
    tensors_read,
    tensors_written,
)
from tilesim.ir.expr import Base, Binary, Expr, Select, Unary, Var, walk
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.memory import Mbar, SharedTensor, View
from tilesim.ir.mir import Instruction, Mir, condition
from tilesim.ir.op import Op
from tilesim.ir.ops.address import Isspacep


@dataclass(frozen=True, order=True)
class _Unknown:
    """A base: a number of which only the bits from ``low`` up to ``high`` may be set."""

    name: str
    low: int
    high: int


#: how often each base is in a value; without those that are not
_Form: TypeAlias = frozenset[tuple[_Unknown, Fraction]]
#: what a value may be; None: anything, with some base
_Forms: TypeAlias = "frozenset[_Form] | None"

_Registers: TypeAlias = "dict[str, _Forms]"

_KNOWN: _Form = frozenset()
_NONE: _Forms = frozenset((_KNOWN,))
_NOTHING: _Forms = frozenset()
#: shared memory begins at a multiple of 1 KiB, and ends below 256 KiB: descriptors hold 18 bits
SHARED = _Unknown("shared memory", 10, 18)
_GENERIC = _Unknown("the shared window", 32, 64)
#: forms that are told apart
_MANY = 8
#: instructions whose result is a copy of what they read
_MOVES = ("ld", "shfl.sync")


def _base(base: Base) -> _Unknown:
    if base.name == WINDOW:
        return _GENERIC
    return SHARED if base.space == "shared" else _Unknown(base.name, 4, 64)


def decided_by_bases(graph: FlowGraph) -> tuple[str, ...]:
    """What a base may decide in a program, a sentence each."""
    mir = graph.mir
    if not any(isinstance(e, Base) or _addressed(op) for op in mir.ops() for e in _parts(op)):
        return ()
    return _Bases(graph).reasons()


def located(mir: Mir) -> Mir:
    """``mir`` with operands at addresses that name the global tensor they are in."""
    return located_with_reasons(mir)[0]


def located_with_reasons(mir: Mir) -> tuple[Mir, tuple[str, ...]]:
    """``mir`` with operands at addresses that name the global tensor they are in; what a base may
    decide there (`decided_by_bases`).

    An address that is made of that of one tensor is nowhere else: outside of it is out of bounds.
    """
    if not any(_addressed(op) for op in mir.ops()):
        return mir, decided_by_bases(FlowGraph(mir))
    bases = _Bases(FlowGraph(mir))
    reasons = bases.reasons()
    code = tuple(bases.located(number, i) for number, i in enumerate(mir.code))
    return replace(mir, code=code), reasons


def _parts(op: Op) -> Iterator[Expr]:
    for effect in op.effects():
        if isinstance(effect, fx.Defines) and isinstance(effect.value, Expr):
            yield from walk(effect.value)
    for name in OPERANDS[type(op)]:
        for expr in expressions_in(getattr(op, name)):
            yield from walk(expr)


def _addressed(op: Op) -> bool:
    return any(True for name in OPERANDS[type(op)] if _address(getattr(op, name)) is not None)


def _address(value: object) -> AddressedTensor | AddressedMbarriers | None:
    """What an operand names by its address."""
    match value:
        case View(tensor=AddressedTensor() as tensor):
            return tensor
        case Mbar(array=AddressedMbarriers() as array):
            return array
        case _:
            return None


class _Bases:
    """The bases in the registers of a lane at each instruction, and in memory at any time."""

    def __init__(self, graph: FlowGraph) -> None:
        mir = graph.mir
        self._code, self._effects = mir.code, mir.effects
        #: blocks that may begin with more than when they were followed
        self._todo = set(graph.order)
        self._typing: Typing = mir.typing
        self._near = frozenset(s.name for s in mir.kernel.shared if isinstance(s, SharedTensor))
        overlap = any(True for _ in aliases(mir.kernel))
        self._by_space = overlap or any(_addressed(op) for op in mir.ops())
        #: by name of a tensor or tile
        self._contents: dict[str, _Forms] = {}
        for tensor in mir.kernel.tensors:
            self._contents[self._node(tensor.name)] = _NONE
        #: of registers that one instruction sets, wherever they are read; and which of the others
        #: hold what at the instruction that is looked at
        self._only: _Registers = {}
        self._registers: _Registers = {}
        #: by register of the first kind, the blocks that may read it before it is set there
        self._readers = _readers(mir, graph)
        self._graph = graph
        #: at the beginning of each block
        self._known: dict[int, _Registers] = {}
        self._reason: dict[str, None] = {}
        #: by number and operand: the tensor that it is in
        self._owners: dict[int, dict[str, str]] = {}

    def reasons(self) -> tuple[str, ...]:
        """What a base may decide, a sentence each."""
        while self._todo:
            for block in self._graph.order:
                if block in self._todo:
                    self._todo.discard(block)
                    self._through(block)
        for block in self._graph.order:
            self._through(block, look=True)
        return tuple(self._reason)

    def located(self, number: int, instruction: Instruction) -> Instruction:
        """An instruction with the tensors that its operands at addresses are in."""
        found: dict[str, Any] = {}
        for name, tensor in self._owners.get(number, {}).items():
            operand = getattr(instruction.what, name)
            found[name] = replace(operand, tensor=replace(operand.tensor, within=tensor))
        if not found or not isinstance(instruction.what, Op):
            return instruction
        return replace(instruction, what=replace(instruction.what, **found))

    def _through(self, block: int, *, look: bool = False) -> None:
        """Follows a block, or looks at what bases may decide there."""
        self._registers = dict(self._known.get(block, {}))
        for number in self._graph.blocks[block]:
            instruction = self._code[number]
            if look:
                self._look_at(number, instruction)
            if isinstance(instruction.what, Op) and not (look and self._is_settled(number)):
                results = self._follow(instruction.what, self._effects[number])
                for name, forms in results.items():
                    self._set(name, forms, keeps=instruction.guard is not None)
        for after in self._graph.successors[block]:
            self._enter(after)

    def _is_settled(self, number: int) -> bool:
        """Whether an instruction only sets registers that are the same wherever they are read."""
        effects = self._effects[number]
        return all(isinstance(e, fx.Defines) and e.var.name in self._readers for e in effects)

    def _set(self, name: str, forms: _Forms, *, keeps: bool) -> None:
        """A register is set, or (``keeps``) in some lanes, while others keep what they have."""
        readers = self._readers.get(name)
        if readers is None:
            before = self._registers.get(name, _NOTHING) if keeps else _NOTHING
            self._registers[name] = _union(forms, before)
            return
        before = self._only.get(name, _NOTHING)
        joined = _union(before, forms)
        if joined != before or name not in self._only:
            self._only[name] = joined
            self._todo |= readers

    def _enter(self, block: int) -> None:
        """A block may begin with what registers hold now, too."""
        known = self._known.get(block)
        if known is None:
            self._known[block] = dict(self._registers)
            self._todo.add(block)
            return
        for name, forms in self._registers.items():
            before = known.get(name, _NOTHING)
            if forms is not before and before is not None:
                joined = _union(before, forms)
                if joined != before:
                    known[name] = joined
                    self._todo.add(block)

    # ------------------------------------------------------------------ what values hold

    def _node(self, name: str) -> str:
        """What a tensor's contents are followed as: with its whole space if addresses reach it."""
        if not self._by_space:
            return f"[{name}]"
        return "[shared]" if name in self._near or name.startswith(".shared") else "[global]"

    def _nodes(self, name: str) -> tuple[str, ...]:
        return ("[shared]", "[global]") if name == ".generic" else (self._node(name),)

    def _write(self, node: str, forms: _Forms) -> None:
        before = self._contents.get(node, _NOTHING)
        joined = _union(before, forms)
        if joined != before:
            self._contents[node] = joined
            self._todo.update(self._graph.order)

    def _inputs(self, op: Op, effects: tuple[fx.Effect, ...]) -> _Forms:
        """What an instruction reads from memory, tiles and registers, addresses left out."""
        nodes = [node for e in effects for name in tensors_read(e) for node in self._nodes(name)]
        for effect in effects:
            match effect:
                case fx.UsesFragment(fragment=fragment, write=False):
                    nodes.append(f"#{fragment.name}")
                case fx.UsesTmem(write=False):
                    nodes.append("@")
                case _:
                    pass
        found = _NOTHING
        for node in nodes:
            found = _union(found, self._contents.get(node, _NOTHING))
        for name in OPERANDS[type(op)]:
            value = getattr(op, name)
            if not isinstance(value, View | Mbar):
                for expr in expressions_in(value):
                    found = _union(found, self.forms(expr))
        return found

    def _follow(self, op: Op, effects: tuple[fx.Effect, ...]) -> _Registers:
        """Notes what an instruction writes to memory; what it leaves in registers."""
        match effects:
            case (fx.Defines(var=var, value=Expr() as value),) if not isinstance(op, Isspacep):
                return {var.name: self.forms(value)}
            case _:
                pass
        moved = self._inputs(op, effects)
        computed = _NONE if _is_known(moved) else None
        results: _Registers = {}
        for effect in effects:
            match effect:
                case fx.Defines(var=var):
                    results[var.name] = self._result(op, effect, moved, computed)
                case fx.UsesFragment(fragment=fragment, write=True):
                    self._write(f"#{fragment.name}", computed)
                case fx.UsesTmem(write=True):
                    self._write("@", moved)
                case _:
                    for name in tensors_written(effect):
                        for node in self._nodes(name):
                            self._write(node, moved)
        return results

    def _result(self, op: Op, effect: fx.Defines, moved: _Forms, computed: _Forms) -> _Forms:
        match effect.value:
            case _ if isinstance(op, Isspacep) and self._is_pointer(op.address):
                return _NONE
            case Expr() as value:
                return self.forms(value)
            case View():
                return moved
            case _:
                return moved if op.mnemonic in _MOVES else computed

    def _is_pointer(self, expr: Expr) -> bool:
        forms = self.forms(expr)
        return forms is not None and all(_fits(form, "generic") for form in forms)

    def forms(self, expr: Expr) -> _Forms:
        """The bases in an expression."""
        match expr:
            case Base():
                return frozenset((frozenset(((_base(expr), Fraction(1)),)),))
            case Var(name):
                held = self._only if name in self._readers else self._registers
                return held.get(name, _NOTHING)
            case Unary(op, operand):
                inner = self.forms(operand)
                if op == "not":
                    return _NONE if _is_known(inner) else None
                return _each(inner, lambda form: _scaled(form, -1))
            case Select(cond, then, other):
                arms = _union(self.forms(then), self.forms(other))
                return arms if _is_known(self.forms(cond)) else None
            case Binary():
                return self._binary(expr)
            case _:
                return _NONE

    def _binary(self, expr: Binary) -> _Forms:
        op = expr.op
        a, b = self.forms(expr.lhs), self.forms(expr.rhs)
        if a is None or b is None:
            return None
        if not a or not b:
            return _NOTHING
        if op in ("+", "-"):
            sign = 1 if op == "+" else -1
            return _limited(frozenset(_sum(x, _scaled(y, sign)) for x in a for y in b))
        if op == "*" and not _is_known(b):
            return self._times(b, expr.lhs)
        if _is_known(a) and _is_known(b):
            return _NONE
        if op in COMPARE or op in ("min", "max"):
            same = a == b and len(a) == 1 and op not in ("and", "or")
            return None if not same else _NONE if op in COMPARE else a
        return self._bits(op, a, expr.rhs) if _is_known(b) else None

    def _times(self, forms: _Forms, factor: Expr) -> _Forms:
        known = self._exactly(factor)
        return None if known is None else _each(forms, lambda form: _scaled(form, known))

    def _exactly(self, expr: Expr) -> int | None:
        bounds = self._typing.interval(expr)
        return bounds[0] if bounds is not None and bounds[0] == bounds[1] else None

    def _bits(self, op: str, forms: _Forms, rhs: Expr) -> _Forms:
        """An operation on the bits of an address, by a number without bases."""
        known = self._exactly(rhs)
        bounds = self._typing.interval(rhs)
        match op:
            case "*":
                return self._times(forms, rhs)
            case "<<" if known is not None:
                return _each(forms, lambda form: _scaled(form, 1 << known))
            case ">>" if known is not None:
                return _each(forms, lambda form: _shifted(form, known))
            case "//" if known is not None and known > 0 and known & (known - 1) == 0:
                return _each(forms, lambda form: _shifted(form, known.bit_length() - 1))
            case "%" if known is not None and known > 0 and known & (known - 1) == 0:
                return _each(forms, lambda form: _masked(form, known - 1))
            case "&" if known is not None:
                return _each(forms, lambda form: _masked(form, known))
            case "|" | "^" if known is not None:
                return _each(forms, lambda form: form if _misses(form, known) else None)
            case "|" | "^" if bounds is not None and bounds[0] >= 0:
                below = (1 << bounds[1].bit_length()) - 1
                return _each(forms, lambda form: form if _misses(form, below) else None)
            case _:
                return None

    # ------------------------------------------------------------------ what they decide

    def _look_at(self, number: int, instruction: Instruction) -> None:
        """Notes what a base may decide at an instruction."""
        for forms in self._deciding(instruction):
            if not _is_known(forms):
                what = f"what happens at {instruction.loc} depends on the value of an address"
                self._reason[f"{what}, and every launch may have another"] = None
        if isinstance(instruction.what, Op):
            self._check_addresses(number, instruction.what)

    def _deciding(self, instruction: Instruction) -> Iterator[_Forms]:
        cond = condition(instruction)
        if cond is not None:
            yield self.forms(cond)
        match instruction.what:
            case Op() as op:
                for name in OPERANDS[type(op)]:
                    value = getattr(op, name)
                    known = _address(value)
                    if name not in op.data:
                        for expr in expressions_in(value):
                            if known is None or expr is not known.address:
                                yield self.forms(expr)
            case _:
                pass

    def _check_addresses(self, number: int, op: Op) -> None:
        for name in OPERANDS[type(op)]:
            known = _address(getattr(op, name))
            if known is None:
                continue
            forms = self.forms(known.address)
            if isinstance(known, AddressedTensor) and (owner := _owner(forms, known.space)):
                self._owners.setdefault(number, {})[name] = owner
            if forms is None or not all(_fits(form, known.space) for form in forms):
                self._reason[
                    f"what lies at {known} is not known: the address that {op.mnemonic} at "
                    f"{op.loc} takes is not made from one of something declared"
                ] = None


def _readers(mir: Mir, graph: FlowGraph) -> dict[str, frozenset[int]]:
    """By register that one instruction sets, the blocks that have to be followed again when more
    becomes known of it."""
    setters: dict[str, list[int]] = {}
    for number, effects in enumerate(mir.effects):
        for effect in effects:
            if isinstance(effect, fx.Defines):
                setters.setdefault(effect.var.name, []).append(number)
    found: dict[str, set[int]] = {n: set() for n, numbers in setters.items() if len(numbers) == 1}
    for number, instruction in enumerate(mir.code):
        block = graph.block_of[number]
        for name in _names(instruction):
            if name in found:
                setter = setters[name][0]
                if graph.block_of[setter] != block or number <= setter:
                    found[name].add(block)
    return {name: frozenset(blocks) for name, blocks in found.items()}


def _names(instruction: Instruction) -> Iterator[str]:
    """The registers that an instruction reads."""
    cond = condition(instruction)
    parts = [] if cond is None else [*walk(cond)]
    if isinstance(instruction.what, Op):
        for expr in operand_expressions(instruction.what):
            parts += walk(expr)
    return (part.name for part in parts if isinstance(part, Var))


def _fits(form: _Form, space: str) -> bool:
    """Whether a value is an address into what is declared in a state space."""
    one = Fraction(1)
    near, generic = frozenset(((SHARED, one),)), frozenset(((SHARED, one), (_GENERIC, one)))
    if space.startswith("shared"):
        return form == near
    if form == generic:
        return space == "generic"
    return len(form) == 1 and all(u.high == 64 and u != _GENERIC and n == 1 for u, n in form)


def _owner(forms: _Forms, space: str) -> str:
    """The global tensor that an address is one of; empty if that is not known."""
    if space.startswith("shared") or forms is None or len(forms) != 1:
        return ""
    (form,) = forms
    names = [u.name for u, _ in form if _fits(form, "global")]
    return names[0] if names else ""


def _is_known(forms: _Forms) -> bool:
    return forms is not None and forms <= frozenset((_KNOWN,))


def _limited(forms: frozenset[_Form]) -> _Forms:
    return forms if len(forms) <= _MANY else None


def _union(a: _Forms, b: _Forms) -> _Forms:
    return None if a is None or b is None else _limited(a | b)


def _each(forms: _Forms, change: Callable[[_Form], _Form | None]) -> _Forms:
    if forms is None:
        return None
    changed = [change(form) for form in forms]
    return None if None in changed else frozenset(form for form in changed if form is not None)


def _sum(a: _Form, b: _Form) -> _Form:
    total = dict(a)
    for unknown, times in b:
        total[unknown] = total.get(unknown, 0) + times
    return frozenset((u, n) for u, n in total.items() if n)


def _scaled(form: _Form, factor: int | Fraction) -> _Form:
    return frozenset((u, n * factor) for u, n in form if factor)


def _span(unknown: _Unknown, times: Fraction) -> tuple[int, int] | None:
    """The bits that a multiple of a base may set, if it is a power of two times the base."""
    up, down = times.numerator, times.denominator
    if up <= 0 or up & (up - 1) or down & (down - 1):
        return None
    places = up.bit_length() - down.bit_length()
    return unknown.low + places, unknown.high + places


def _shifted(form: _Form, count: int) -> _Form | None:
    """What is left of the bases in an address that is shifted to the right."""
    kept = []
    for unknown, times in form:
        span = _span(unknown, times)
        if span is None or span[0] < count < span[1]:
            return None
        if count <= span[0]:
            kept.append((unknown, times / (1 << count)))
    return frozenset(kept)


def _masked(form: _Form, mask: int) -> _Form | None:
    """What is left of the bases in an address of which some bits are taken."""
    kept = []
    for unknown, times in form:
        span = _span(unknown, times)
        if span is None:
            return None
        own = (1 << span[1]) - (1 << span[0])
        if mask & own == own:
            kept.append((unknown, times))
        elif mask & own:
            return None
    return frozenset(kept)


def _misses(form: _Form, number: int) -> bool:
    """Whether no bit of ``number`` is one that a base may have set."""
    spans = [_span(unknown, times) for unknown, times in form]
    return all(span is not None and not (number >> span[0]) << span[0] & (1 << span[1]) - 1
               for span in spans)  # fmt: skip
