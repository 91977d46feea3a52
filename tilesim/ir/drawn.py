"""Numbers that hardware hands out, and what a program does with them.

A ticket of a counter, or the coordinates of a cancelled cluster: which one an agent draws is not up
to the program. If such numbers choose addresses in global memory and are compared with fixed
numbers, and do nothing else, then all draws with the same outcomes of these comparisons are alike:
they lead to the same instructions, barriers and shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeGuard

from tilesim.analysis.cfg import FlowGraph, arms_that_compute
from tilesim.analysis.ssa import assigned, reaching
from tilesim.analysis.taint import (
    aliases,
    reached,
    tensors_read,
    tensors_written,
)
from tilesim.analysis.thread_values import Threads
from tilesim.analysis.uses_defs import OPERANDS, expressions_in
from tilesim.arith.operators import MIRRORED, RELATIONS, integer
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor, is_part
from tilesim.ir.expr import Base, Binary, Const, Expr, Select, Special, Unary, Var
from tilesim.ir.loc import Loc
from tilesim.ir.memory import GlobalTensor, View
from tilesim.ir.mir import Instruction, condition
from tilesim.ir.op import Op
from tilesim.ir.ops.clc import ClcQueryGetFirstCtaid, ClcQueryIsCanceled, ClcTryCancel
from tilesim.ir.ops.scalar import Assign, Atomic, Load, Shuffle, Store
from tilesim.ir.ops.vector import LoadVector, StoreVector

#: the source of cancelled clusters' coordinates; other sources are counters, by tensor
CLUSTERS = "clusterlaunchcontrol"

#: special registers by which a CTA knows which one it is
CTAS = ("cta_x", "cta_y", "cta_z", "cluster_id")

#: a word of shared memory: the part that it is in, its place if only that is followed, its type
Word: TypeAlias = tuple[str, str, tuple[str, int] | None, str]
#: (n, d): any function of (number + d) // n
Period: TypeAlias = tuple[int, int]
#: what a value may be made of: (source, d) is a number drawn plus d, with None any function of it;
#: what is empty does not depend on which numbers are drawn
Value: TypeAlias = frozenset[tuple[str, int | Period | None]]

_NOTHING: Value = frozenset()
#: so many different sums with one number; more are taken for any function of it
_MOST = 8
#: how many more than the bound are the numbers at which the outcome of a comparison changes
_CHANGES = {"<": (0,), ">=": (0,), "<=": (1,), ">": (1,), "==": (0, 1), "!=": (0, 1)}
#: what words of shared memory at fixed addresses are followed as, with address and type
_SHARED = "shared"
#: bits of a type of which a vector has a register for each element
_WHOLE = 32
#: halves of an answer of launch control as it was loaded: a query takes them apart
_HALVES = ("the first half of an answer", "the second half of an answer")
#: operands that say what is read or written in global memory
_PLACES = ("coords", "src_bytes")


class Drawn:
    """What numbers from ``counters`` and from launch control decide in a program.

    With ``ctas`` the number of the CTA is looked at in the same way, under the names in `CTAS`.
    ``instead``: by number, what decides at a branch in place of its condition.

    ``steers``: the sources whose numbers reach control flow, a barrier or an address of shared
    memory otherwise than by a comparison with a fixed number, and where. ``bounds``: by source,
    the numbers b for which b - 1 and b lead to different outcomes of some comparison; ``periods``:
    quotients of the numbers that decide something else.
    """

    def __init__(
        self,
        graph: FlowGraph,
        counters: Iterable[str] = (),
        *,
        ctas: bool = False,
        instead: Mapping[int, Sequence[Expr]] | None = None,
    ) -> None:
        mir = graph.mir
        self.steers: dict[str, Loc] = {}
        self.bounds: dict[str, set[int]] = {}
        self.periods: dict[str, set[Period]] = {}
        self.kernel, self._instead = mir.kernel, instead or {}
        self._mir, self._graph = mir, graph
        self._known_arms: dict[int, tuple[int, ...] | None] = {}
        self._globals = frozenset(tensor.name for tensor in mir.kernel.tensors)
        self._setters = reaching(graph).setters
        self._threads = Threads(graph, launch=True)
        self._specials = CTAS if ctas else ()
        self._counters = frozenset(counters)
        self._nodes: dict[object, Value] = {}
        #: words of shared memory at fixed addresses that are accessed
        self._words: dict[Word, None] = {}
        self._aliases = [*aliases(mir.kernel), *reached(mir)]
        self._responses = frozenset(
            op.response.tensor.name for op in mir.ops() if isinstance(op, ClcTryCancel)
        )
        #: what may overlap them
        self._near_responses = self._responses | {
            other for one, other in self._aliases if one in self._responses
        }
        self._grew = True
        while self._grew:
            self._grew = False
            for number, instruction in enumerate(mir.code):
                for deciding in self._deciding(number, instruction):
                    self._decide(self._value(deciding, number), number, instruction.loc)
                if isinstance(instruction.what, Op):
                    self._look_at(number, instruction.what, mir.effects[number])
            for one, other in self._aliases:
                self._put(other, _any(self._get(one)))

    # ------------------------------------------------------------------ instructions

    def _deciding(self, number: int, instruction: Instruction) -> Sequence[Expr]:
        """What decides where an instruction goes, or whether it is executed."""
        cond = condition(instruction)
        return self._instead.get(number, () if cond is None else (cond,))

    def _decide(self, value: Value, number: int, loc: Loc) -> None:
        """Something decides where to go on: what is executed, or what a few registers hold."""
        arms = None if not value or number in self._instead else self._arms(number)
        if arms is None:
            self._steer(value, loc)
            return
        for inside in arms:
            for effect in self._mir.effects[inside]:
                if isinstance(effect, fx.Defines):
                    self._put((effect.var.name, inside), _any(value))

    def _arms(self, number: int) -> tuple[int, ...] | None:
        """What a branch may jump over, if that is nothing but arithmetic without loops."""
        if number not in self._known_arms:
            self._known_arms[number] = arms_that_compute(self._graph, number)
        return self._known_arms[number]

    def _look_at(self, number: int, op: Op, effects: tuple[fx.Effect, ...]) -> None:
        match effects:
            case (fx.Queries(part, registers=(low, high)), fx.Defines(var=var)):
                self._query(number, op, part, (low, high), var)
                return
            case _:
                pass
        results = [e.var for e in effects if isinstance(e, fx.Defines)]
        places, data = _NOTHING, _NOTHING
        for name in OPERANDS[type(op)]:
            operand = getattr(op, name)
            value = self._union(self._value(e, number) for e in expressions_in(operand))
            if name in op.data:
                data |= value
            elif name in _PLACES or _is_global(operand):
                places |= value
                if _is_global(operand) and operand.tensor.name in self._counters:
                    self._steer(value, op.loc)
            else:
                self._steer(value, op.loc)
        made = self._made(number, op, effects, data) | _any(places)
        word = self._word(op.dst, number) if isinstance(op, Store | StoreVector) else None
        for effect in effects:
            for name in tensors_written(effect):
                self._put(name if word is None else word, made)
        for place, var in enumerate(results):
            half = {(_HALVES[place], 0)} if self._is_answer(op) else _NOTHING
            self._put((var.name, number), self._result(op, made) | half)
        self._tiles(effects, made)

    def _made(self, number: int, op: Op, effects: tuple[fx.Effect, ...], data: Value) -> Value:
        """What an instruction makes of its data."""
        names = {name for e in effects for name in tensors_read(e)}
        word = self._word(op.src, number) if isinstance(op, Load | LoadVector) else None
        if word is None:
            read = self._union(self._read(name) for name in names)
        else:  # what else is in this part of shared memory may lie there in part
            others = (*names, *(w for w in self._words if w != word and w[1] == word[1]))
            read = self._get(word) | _any(self._union(map(self._get, others)))
        if names & self._near_responses and not self._is_answer(op):
            read |= {(CLUSTERS, None)}
        for effect in effects:
            match effect:
                case fx.UsesFragment(fragment=fragment):
                    read |= self._get(("tile", fragment.name))
                case fx.UsesTmem(write=False):
                    read |= self._get(("tmem", ""))
                case _:
                    pass
        match op:
            case Assign() | Shuffle() | Store() | StoreVector():
                return data
            case Load() | LoadVector():
                return read
            case _:
                return _any(read | data)

    def _is_answer(self, op: Op) -> bool:
        """Whether an instruction loads all of an answer of launch control, as two halves; both
        are at multiples of 16 bytes."""
        return (
            isinstance(op, LoadVector)
            and op.src.dtype.bits == 64
            and len(op.results) == len(_HALVES)
            and op.src.tensor.name in self._responses
        )

    def _query(
        self, number: int, op: Op, part: str, registers: tuple[Expr, Expr], var: Var
    ) -> None:
        """A query of an answer in registers: what is no half of one may decide anything."""
        values = [self._value(register, number) for register in registers]
        other = self._union(v - {(half, 0)} for v, half in zip(values, _HALVES, strict=True))
        self._steer(other, op.loc)
        cluster = _NOTHING if part == "canceled" else frozenset({(CLUSTERS, 0)})
        self._put((var.name, number), cluster | _any(other))

    def _result(self, op: Op, made: Value) -> Value:
        match op:
            case Atomic() if op.dst.tensor.name in self._counters:
                return frozenset({(op.dst.tensor.name, 0)})
            case ClcQueryGetFirstCtaid():
                return frozenset({(CLUSTERS, 0)}) | _any(self._get(op.response.tensor.name))
            case ClcQueryIsCanceled():
                return _any(self._get(op.response.tensor.name))
            case _:
                return made

    def _tiles(self, effects: tuple[fx.Effect, ...], made: Value) -> None:
        for effect in effects:
            match effect:
                case fx.UsesFragment(fragment=fragment, write=True):
                    self._put(("tile", fragment.name), _any(made))
                case fx.UsesTmem(write=True):
                    self._put(("tmem", ""), _any(made))
                case _:
                    pass

    # ------------------------------------------------------------------ words

    def _word(self, view: View, number: int) -> Word | None:
        """What words of the CTA's shared memory are followed as: one at a fixed address, or those
        of a part of it that is told apart; else None.

        Who accesses them at another address, or as another type, may get any function of them.
        """
        tensor = view.tensor
        if not isinstance(tensor, AddressedTensor):
            return None
        address = None
        if not is_part(tensor.name):
            address = self._fixed(tensor.address, number)
            if tensor.space != "shared::cta" or view.extents or address is None:
                return None
        elif tensor.dtype.bits < _WHOLE:
            return None
        word = _SHARED, tensor.name, address, tensor.dtype.name
        self._words[word] = None
        return word

    def _fixed(self, address: Expr, at: int) -> tuple[str, int] | None:
        """An allocation and a number of bytes that an address always is."""
        match address:
            case Base(name, "shared"):
                return name, 0
            case Binary("+", inner, Const(value)) if not isinstance(inner, Binary):
                found = self._fixed(inner, at)
                return None if found is None else (found[0], found[1] + integer(value))
            case Var(name):
                base = assigned(self._graph, at, name)
                return self._fixed(base, at) if isinstance(base, Base) else None
            case _:
                return None

    def _read(self, name: str) -> Value:
        """What a tensor holds; what is no global tensor, any function of what words hold, too: of
        those in a part of shared memory, or of all."""
        if name in self._globals:
            return self._get(name)
        words = (w for w in self._words if not is_part(name) or w[1] == name)
        return self._get(name) | _any(self._union(map(self._get, words)))

    # ------------------------------------------------------------------ values

    def _value(self, expr: Expr, number: int) -> Value:
        """What an expression of an instruction is made of."""
        match expr:
            case Var(name):
                return self._union(self._get((name, n)) for n in self._setters(number, name))
            case Special(name) if name in self._specials:
                return frozenset({(name, 0)})
            case Binary("-", Binary("^", inner, Const(top)), Const(sign)) if top == sign == 1 << 31:
                return self._value(inner, number)  # 32 bits as a number with a sign
            case Binary(op, lhs, rhs):
                return self._binary(op, lhs, rhs, number)
            case Unary(op, operand):
                value = self._value(operand, number)
                return _any(value)
            case Select(cond, then, other):
                chosen = self._value(then, number) | self._value(other, number)
                return chosen | _any(self._value(cond, number))
            case _:
                return _NOTHING

    def _binary(self, op: str, lhs: Expr, rhs: Expr, at: int) -> Value:
        left, right = _numbers(self._value(lhs, at)), _numbers(self._value(rhs, at))
        if left and right:
            return _any(left | right)
        if right and op in (*RELATIONS, "+"):
            return self._binary(MIRRORED.get(op, op), rhs, lhs, at)
        number = self._threads.value(rhs, at)
        exact = [(source, d) for source, d in left if isinstance(d, int)]
        if not isinstance(number, int) or len(exact) < len(left):
            return _any(left | right)
        if op in RELATIONS:
            for source, d in exact:
                bounds = self.bounds.setdefault(source, set())
                bounds.update(number - d + more for more in _CHANGES[op])
            return _NOTHING
        if op in ("+", "-"):
            sign = 1 if op == "+" else -1
            return frozenset((s, d + sign * number) for s, d in exact)
        if op == "//" and number > 0:
            return frozenset((s, (number, d)) for s, d in exact)
        return _any(left | right)

    def _steer(self, value: Value, loc: Loc) -> None:
        for source, d in sorted(_numbers(value), key=str):
            if isinstance(d, tuple):
                self.periods.setdefault(source, set()).add(d)
            else:
                self.steers.setdefault(source, loc)

    def _union(self, values: Iterable[Value]) -> Value:
        return _NOTHING.union(*values)

    def _get(self, node: object) -> Value:
        return self._nodes.get(node, _NOTHING)

    def _put(self, node: object, value: Value) -> None:
        before = self._get(node)
        after = before | value
        if len(after) > _MOST:
            after = _any(after)
            if before == after:
                return
        if after != before:
            self._nodes[node] = after
            self._grew = True


def _any(value: Value) -> Value:
    """Any function of what ``value`` is made of."""
    found = ((source, d if isinstance(d, tuple) else None) for source, d in value)
    return _numbers(frozenset(found))


def _numbers(value: Value) -> Value:
    """The same, if halves of answers are not kept together."""
    if not any(source in _HALVES for source, _ in value):
        return value
    return frozenset((CLUSTERS, None) if s in _HALVES else (s, d) for s, d in value)


def _is_global(operand: object) -> TypeGuard[View]:
    """Whether an operand lies in a tensor of which the name is known."""
    if not isinstance(operand, View):
        return False
    tensor = operand.tensor
    return isinstance(tensor, GlobalTensor) or (
        isinstance(tensor, AddressedTensor) and bool(tensor.within) and not is_part(tensor.within)
    )
