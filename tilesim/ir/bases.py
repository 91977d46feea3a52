"""Where a program's results could depend on where memory begins, which no run shows (SEMANTICS J5).

A register's value is followed as a sum of unknown bases and a rest that every launch agrees on. A
difference of two addresses in one allocation, their comparison, the low bits of an aligned one or
its CTA rank have no base left; what steers must be like that. An operand at an address must have
the base of its state space.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeAlias

from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.arithmetic import COMPARE, Typing
from tilesim.ir.base_forms import (
    NONE,
    NOTHING,
    Forms,
    base_of,
    each,
    fits,
    is_known,
    limited,
    masked,
    misses,
    owners_of,
    scaled,
    shifted,
    total,
    union,
)
from tilesim.ir.dataflow import (
    OPERANDS,
    aliases,
    at_addresses,
    expressions_in,
    mentions,
    tensors_read,
    tensors_written,
)
from tilesim.ir.expr import Base, Binary, Const, Expr, Select, Unary, Var, walk
from tilesim.ir.flowgraph import FlowGraph, graph_of
from tilesim.ir.kept import kept
from tilesim.ir.memory import Mbar, SharedTensor, View
from tilesim.ir.mir import Instruction, Mir, condition
from tilesim.ir.never import never
from tilesim.ir.op import Op
from tilesim.ir.ops.address import Isspacep

_Registers: TypeAlias = "dict[str, Forms]"


def decided_by_bases(graph: FlowGraph) -> tuple[str, ...]:
    """What a base may decide in a program, a sentence each."""
    mir = graph.mir
    if not (_is_addressed(mir) or _names_bases(mir)):
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
    if not _is_addressed(mir):
        return mir, decided_by_bases(graph_of(mir))
    bases = _Bases(graph_of(mir))
    reasons = bases.reasons()
    code = tuple(bases.located(number, i) for number, i in enumerate(mir.code))
    return replace(mir, code=code), reasons


def _names_bases(mir: Mir) -> bool:
    """Whether the address of a declaration is in the program, or what an instruction gives."""
    if any(name.startswith("&") for m in mentions(mir) for name in (*m.tested, *m.used)):
        return True
    given = (e.value for _, e in mir.all_of(fx.Defines) if isinstance(e.value, Expr))
    return any(isinstance(part, Base) for value in given for part in walk(value))


@kept
def _is_addressed(mir: Mir) -> bool:
    """Whether an operand is named by its address."""
    named = (v for op in mir.ops() for v in vars(op).values() if isinstance(v, Mbar))
    return bool(at_addresses(mir)) or any(isinstance(m.array, AddressedMbarriers) for m in named)


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
        self._by_space = overlap or _is_addressed(mir)
        #: by name of a tensor or tile
        self._contents: dict[str, Forms] = {}
        for tensor in mir.kernel.tensors:
            self._contents[self._node(tensor.name)] = NONE
        #: of registers that one instruction sets, wherever they are read; and which of the others
        #: hold what at the instruction that is looked at
        self._only: _Registers = {}
        self._registers: _Registers = {}
        #: by register of the first kind, the blocks that may read it before it is set there
        self._readers = _readers(mir, graph)
        #: what is computed into registers of the first kind
        self._values = {
            effect.var.name: effect.value
            for effects in mir.effects
            for effect in effects
            if isinstance(effect, fx.Defines) and effect.var.name in self._readers
            and isinstance(effect.value, Expr)
        }  # fmt: skip
        self._sizes = {tensor.name: tensor.nbytes for tensor in mir.kernel.tensors}
        #: by register that one instruction sets, always, what it is set to
        self._given = _given(mir, self._readers)
        self._graph, self._never = graph, never(mir)
        #: at the beginning of each block
        self._known: dict[int, _Registers] = {}
        self._reason: dict[str, None] = {}
        #: by number and operand: the tensors of which it is in one
        self._owners: dict[int, dict[str, tuple[str, ...]]] = {}

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
        for name, tensors in self._owners.get(number, {}).items():
            operand = getattr(instruction.what, name)
            known = {"among": tensors} if len(tensors) > 1 else {"within": tensors[0]}
            inside = replace(operand.tensor, space="global", **known)
            found[name] = replace(operand, tensor=inside)
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

    def _set(self, name: str, forms: Forms, *, keeps: bool) -> None:
        """A register is set, or (``keeps``) in some lanes, while others keep what they have."""
        readers = self._readers.get(name)
        if readers is None:
            before = self._registers.get(name, NOTHING) if keeps else NOTHING
            self._registers[name] = union(forms, before)
            return
        before = self._only.get(name, NOTHING)
        joined = union(before, forms)
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
            before = known.get(name, NOTHING)
            if forms is not before and before is not None:
                joined = union(before, forms)
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

    def _write(self, node: str, forms: Forms) -> None:
        before = self._contents.get(node, NOTHING)
        joined = union(before, forms)
        if joined != before:
            self._contents[node] = joined
            self._todo.update(self._graph.order)

    def _inputs(self, op: Op, effects: tuple[fx.Effect, ...]) -> Forms:
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
        found = NOTHING
        for node in nodes:
            found = union(found, self._contents.get(node, NOTHING))
        for name in OPERANDS[type(op)]:
            value = getattr(op, name)
            if not isinstance(value, View | Mbar) and name not in op.addresses:
                for expr in expressions_in(value):
                    found = union(found, self.forms(expr))
        return found

    def _follow(self, op: Op, effects: tuple[fx.Effect, ...]) -> _Registers:
        """Notes what an instruction writes to memory; what it leaves in registers."""
        match effects:
            case (fx.Defines(var=var, value=Expr() as value),) if not isinstance(op, Isspacep):
                return {var.name: self.forms(value)}
            case _:
                pass
        moved = self._inputs(op, effects)
        computed = NONE if is_known(moved) else None
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

    def _result(self, op: Op, effect: fx.Defines, moved: Forms, computed: Forms) -> Forms:
        match effect.value:
            case _ if isinstance(op, Isspacep) and self._is_pointer(op.address):
                return NONE
            case Expr() as value:
                return self.forms(value)
            case View():
                writes = any(isinstance(e, fx.Writes) for e in op.effects())
                return computed if writes else moved
            case fx.Shuffles(value=value):
                return self.forms(value)
            case _:
                return computed

    def _is_pointer(self, expr: Expr) -> bool:
        forms = self.forms(expr)
        return forms is not None and all(fits(form, "generic") for form in forms)

    def forms(self, expr: Expr) -> Forms:
        """The bases in an expression."""
        match expr:
            case Base():
                return frozenset((frozenset(((base_of(expr), Fraction(1)),)),))
            case Var(name):
                held = self._only if name in self._readers else self._registers
                return held.get(name, NOTHING)
            case Unary(op, operand):
                inner = self.forms(operand)
                if op == "not":
                    return NONE if is_known(inner) else None
                return each(inner, lambda form: scaled(form, -1))
            case Select(cond, then, other):
                arms = union(self.forms(then), self.forms(other))
                return arms if is_known(self.forms(cond)) else None
            case Binary():
                return self._binary(expr)
            case _:
                return NONE

    def _binary(self, expr: Binary) -> Forms:
        op = expr.op
        a, b = self.forms(expr.lhs), self.forms(expr.rhs)
        if a is None or b is None:
            return None
        if not a or not b:
            return NOTHING
        if op in ("+", "-"):
            sign = 1 if op == "+" else -1
            return limited(frozenset(total(x, scaled(y, sign)) for x in a for y in b))
        if op == "*" and not is_known(b):
            return self._times(b, expr.lhs)
        if is_known(a) and is_known(b):
            return NONE
        if op in ("==", "!=") and self._exactly(expr.rhs) == 0 and self._is_place(expr.lhs):
            return NONE  # nothing declared lies at zero
        if op in COMPARE or op in ("min", "max"):
            same = a == b and len(a) == 1 and op not in ("and", "or")
            return None if not same else NONE if op in COMPARE else a
        if is_known(b):
            return self._bits(op, a, expr.rhs)
        return self._bits(op, b, expr.lhs) if is_known(a) and op in ("&", "|", "^") else None

    def _is_place(self, expr: Expr) -> bool:
        """Whether a value is the address of a byte of what is declared in global memory."""
        followed, offset = set[str](), 0
        while True:
            match expr:
                case Base(name, "global"):
                    return 0 <= offset <= self._sizes.get(name, -1)
                case Binary("+", inner, Const(int() as more)):
                    expr, offset = inner, offset + more
                case Var(name) if name in self._given and name not in followed:
                    followed.add(name)
                    expr = self._given[name]
                case _:
                    return False

    def _times(self, forms: Forms, factor: Expr) -> Forms:
        known = self._exactly(factor)
        return None if known is None else each(forms, lambda form: scaled(form, known))

    def _exactly(self, expr: Expr) -> int | None:
        bounds = self._typing.interval(expr)
        return bounds[0] if bounds is not None and bounds[0] == bounds[1] else None

    def _bounds(self, expr: Expr) -> tuple[int, int] | None:
        """The least and the greatest number that an expression may be; of a register that one
        instruction sets, what that may be."""
        value = self._values.get(expr.name) if isinstance(expr, Var) else None
        return self._typing.interval(expr if value is None else value)

    def _may_set(self, expr: Expr) -> int | None:
        """The bits that a number may have set; None: any, as a negative one may."""
        bounds = self._bounds(expr)
        if bounds is None or bounds[0] < 0:
            return None
        if bounds[0] == bounds[1]:
            return bounds[0]
        below = (1 << bounds[1].bit_length()) - 1
        match self._values.get(expr.name) if isinstance(expr, Var) else expr:
            case Binary("&", _, Const(int(mask))) | Binary("&", Const(int(mask)), _):
                return below & mask
            case _:
                return below

    def _bits(self, op: str, forms: Forms, rhs: Expr) -> Forms:
        """An operation on the bits of an address, by a number without bases."""
        known = self._exactly(rhs)
        match op:
            case "*":
                return self._times(forms, rhs)
            case "<<" if known is not None:
                return each(forms, lambda form: scaled(form, 1 << known))
            case ">>" if known is not None:
                return each(forms, lambda form: shifted(form, known))
            case "//" if known is not None and known > 0 and known & (known - 1) == 0:
                return each(forms, lambda form: shifted(form, known.bit_length() - 1))
            case "%" if known is not None and known > 0 and known & (known - 1) == 0:
                return each(forms, lambda form: masked(form, known - 1))
            case "&" if known is not None:
                return each(forms, lambda form: masked(form, known))
            case "|" | "^" if (bits := self._may_set(rhs)) is not None:
                return each(forms, lambda form: form if misses(form, bits) else None)
            case _:
                return None

    # ------------------------------------------------------------------ what they decide

    def _look_at(self, number: int, instruction: Instruction) -> None:
        """Notes what a base may decide at an instruction."""
        for forms in self._deciding(instruction) if number not in self._never else ():
            if not is_known(forms):
                what = f"what happens at {instruction.loc} depends on the value of an address"
                self._reason[f"{what}, and every launch may have another"] = None
        if isinstance(instruction.what, Op):
            self._check_addresses(number, instruction.what)

    def _deciding(self, instruction: Instruction) -> Iterator[Forms]:
        cond = condition(instruction)
        if cond is not None:
            yield self.forms(cond)
        match instruction.what:
            case Op() as op:
                for name in OPERANDS[type(op)]:
                    value = getattr(op, name)
                    known = _address(value)
                    if name not in op.data and not self._names(op, name, value):
                        for expr in expressions_in(value):
                            if known is None or expr is not known.address:
                                yield self.forms(expr)
            case _:
                pass

    def _names(self, op: Op, name: str, value: object) -> bool:
        """Whether an operand only says where something lies, as the address in a tensor map."""
        if name not in op.addresses or not isinstance(value, Expr):
            return False
        forms = self.forms(value)
        return forms is not None and all(fits(form, "global") for form in forms)

    def _check_addresses(self, number: int, op: Op) -> None:
        for name in OPERANDS[type(op)]:
            known = _address(getattr(op, name))
            if known is None:
                continue
            forms = self.forms(known.address)
            if isinstance(known, AddressedTensor) and (owners := owners_of(forms, known.space)):
                self._owners.setdefault(number, {})[name] = owners
            fitting = forms is not None and all(fits(form, known.space) for form in forms)
            if not fitting and number not in self._never:
                self._reason[
                    f"what lies at {known} is not known: the address that {op.mnemonic} at "
                    f"{op.loc} takes is not made from one of something declared"
                ] = None


def _given(mir: Mir, once: Collection[str]) -> dict[str, Expr]:
    """What registers that are set ``once`` are set to, where an expression says it."""
    found: dict[str, Expr] = {}
    for effects, instruction in zip(mir.effects, mir.code, strict=True):
        match effects:
            case (fx.Defines(Var(name, dtype), Expr() as value),) if name in once:
                if instruction.guard is None and dtype.bits == 64:
                    found[name] = value
            case _:
                pass
    return found


def _readers(mir: Mir, graph: FlowGraph) -> dict[str, frozenset[int]]:
    """By register that one instruction sets, the blocks that have to be followed again when more
    becomes known of it; not those that nothing leads to."""
    setters: dict[str, list[int]] = {}
    for number, effects in enumerate(mir.effects):
        for effect in effects:
            if isinstance(effect, fx.Defines):
                setters.setdefault(effect.var.name, []).append(number)
    found: dict[str, set[int]] = {n: set() for n, numbers in setters.items() if len(numbers) == 1}
    reached, named = frozenset(graph.order), mentions(mir)
    for number, block in enumerate(graph.block_of[:-1]):
        for name in (*named[number].tested, *named[number].used):
            if name in found and block in reached:
                setter = setters[name][0]
                if graph.block_of[setter] != block or number <= setter:
                    found[name].add(block)
    return {name: frozenset(blocks) for name, blocks in found.items()}
