"""Where a program's results could depend on where memory begins, which no run shows (SEMANTICS J5).

A register's value is followed as a sum of unknown bases and a rest that every launch agrees on. A
difference of two addresses in one allocation, their comparison, the low bits of an aligned one or
its CTA rank have no base left; what steers must be like that. An operand at an address must have
the base of its state space. What a load finds in a tensor that begins with addresses is what lies
there at multiples of its size; where its address is a sum of the tensor's and of multiples, only
every so many bytes are such places: of an array of structs the addresses in one field.

Some lanes may hold an address for all, as a matrix descriptor for each stage of a pipeline; a lane
without one holds a number of no account, and whether it is asked, the run sees:

    mine = select(lane < stages, first + lane * size, 0)
    shfl.sync descriptor, mine, idx, stage

PTX has one array of shared memory and addresses into it: what is a barrier, an answer or a tile
there, no declaration says. Runs show which bytes each instruction accesses. Where nothing decides
about instructions and addresses in shared memory that is not the same in other runs, these bytes
are the same as well; so what shows that may go by parts that a program never mixes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tilesim.analysis.address_carries import in_one_window, in_window, stays
from tilesim.analysis.base_forms import (
    KNOWN,
    NONE,
    NOTHING,
    SHARED_IN_GENERIC,
    Forms,
    base_of,
    cut,
    each,
    fits,
    forms_of,
    is_known,
    limited,
    lowest,
    masked,
    may_set,
    misses,
    named,
    owners_of,
    scaled,
    shifted,
    total,
    union,
    within_bits,
)
from tilesim.analysis.cfg import FlowGraph, graph_of
from tilesim.analysis.executing_warps import never
from tilesim.analysis.number_sets import Numbers
from tilesim.analysis.ssa import Values, given, once
from tilesim.analysis.taint import (
    acquires_map,
    aliases,
    at_addresses,
    is_addressed,
    names_addresses,
    tensors_read,
    tensors_written,
    tiles,
)
from tilesim.analysis.thread_values import Threads
from tilesim.analysis.uses_defs import OPERANDS, expressions_in, mentions
from tilesim.arith.operators import COMPARE
from tilesim.ir import effects as fx
from tilesim.ir.addressed import PART, AddressedTensor, is_part
from tilesim.ir.addresses import addressed_in
from tilesim.ir.arithmetic import LIMITS, Typing
from tilesim.ir.declarations import GlobalTensor, Mbar, SharedTensor, Tensor, View
from tilesim.ir.expr import (
    Base,
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    all_of,
    constant,
    select,
    unary,
)
from tilesim.ir.mir import Instruction, Mir, condition
from tilesim.ir.op import Op
from tilesim.ir.ops.address import Isspacep
from tilesim.ir.ops.scalar import Assign, Load
from tilesim.ir.ops.vector import LoadVector
from tilesim.records import replace

_NBYTES, _BITS = 8, 64
_DEEPEST = 64
#: offsets are less than this, or they are taken modulo a power of two
_FAR = 1 << 62


def _is_far(offsets: Numbers) -> bool:
    """Whether some may be so large that they are taken modulo a power of two."""
    return max(abs(offsets.low), abs(offsets.high)) >= _FAR


class PointersInMemory:
    """The addresses that tensors begin with; ``given``: what registers are set to, always."""

    def __init__(self, typing: Typing, given: Mapping[str, Expr]) -> None:
        self._typing = typing
        self._given = given

    def all_words(self, tensor: GlobalTensor) -> Forms:
        """What the words of a tensor are in the beginning."""
        return self._union(tensor, range(0, _bytes_known(tensor), _NBYTES))

    def at(self, tensor: GlobalTensor, address: Expr, start: int, size: int) -> Forms:
        """What is loaded ``start`` bytes behind an address in a tensor, as ``size`` bytes."""
        found = self._places(address, 0)
        if _is_far(found):
            found = Numbers(found.step & -found.step, found.at)
        found += Numbers.single(start)
        end = _bytes_known(tensor)
        places = range(found.at, end, found.step) if found.step else (found.at,)
        words = [p for p in places if p in found and 0 <= p < end and p % size == 0]
        if size == _NBYTES:
            return self._union(tensor, words)
        halves = any(
            one.at < p + size and p < one.at + _NBYTES for one in tensor.pointers for p in words
        )
        return None if halves else NONE

    def _union(self, tensor: GlobalTensor, words: range | list[int]) -> Forms:
        found, pointers = NOTHING, {one.at: one.to for one in tensor.pointers}
        for place in words:
            to = pointers.get(place)
            one = (
                NONE
                if to is None
                else frozenset((frozenset(((base_of(Base(to, "global")), Fraction(1)),)),))
            )
            found = union(found, one)
        return found

    def _places(self, expr: Expr, depth: int) -> Numbers:
        match expr:
            case Base():
                return Numbers.single(0)
            case Const(int() as value):
                return Numbers.single(value)
            case Var(name, dtype) if self._holds(name, dtype.bits) and depth < _DEEPEST:
                return self._places(self._given[name], depth + 1)
            case Select(_, then, other) if depth < _DEEPEST:
                return self._places(then, depth + 1) | self._places(other, depth + 1)
            case Binary() if not self._is_narrow(expr) and depth < _DEEPEST:
                return self._sum(expr, depth + 1)
            case _:
                return self._any(expr)

    def _holds(self, name: str, bits: int) -> bool:
        """Whether a register holds all of what it is set to."""
        return bits == _BITS and name in self._given

    def _sum(self, expr: Binary, depth: int) -> Numbers:
        match expr.op, expr.rhs:
            case (("+" | "-"), _):
                sign = 1 if expr.op == "+" else -1
                return self._places(expr.lhs, depth) + self._places(expr.rhs, depth) * sign
            case "*", Const(int() as factor):
                return self._places(expr.lhs, depth) * factor
            case "<<", Const(int() as count):
                return self._places(expr.lhs, depth) * (1 << count)
            case "&", Const(int() as mask) if mask > 0:
                return Numbers(1, 0) & mask
            case _:
                return self._any(expr)

    def _is_narrow(self, expr: Binary) -> bool:
        """Whether an operation may lose bits of an offset."""
        low, high = LIMITS.get(self._typing.type_of(expr), (0, 0))
        return high - low < _FAR and self._typing.wraps(expr)

    def _any(self, expr: Expr) -> Numbers:
        return Numbers(1, 0, *(self._typing.interval(expr) or ()))


def _bytes_known(tensor: GlobalTensor) -> int:
    return len(tensor.contents or "") // 2


_LOADS = (Load, LoadVector)
#: where instructions load from that were not executed
_NOWHERE = f"{PART}nowhere"

#: bytes from one address to below another
Range: TypeAlias = tuple[int, int]


def parts_of_shared(accessed: Mapping[int, Iterable[Range]]) -> dict[int, str]:
    """By number of an instruction the part of shared memory that it accesses.

    ``accessed``: the bytes, by number. Two that have a byte in common are in one part, and so are
    all bytes of one instruction.
    """
    joined: dict[int, int] = {}

    def root(number: int) -> int:
        while joined.setdefault(number, number) != number:
            number = joined[number]
        return number

    ranges = sorted((low, high, number) for number, rs in accessed.items() for low, high in rs)
    end, last = 0, -1
    for low, high, number in ranges:
        if last >= 0 and low < end:
            joined[root(number)] = root(last)
        end, last = max(end, high), number
    first: dict[int, int] = {}
    for low, _, number in ranges:
        first.setdefault(root(number), low)
    return {number: f"{PART}{first[root(number)]}" for number in accessed}


def with_shared_parts(mir: Mir, parts: Mapping[int, str], far: Collection[int]) -> Mir:
    """``mir`` with operands that name the part of shared memory that they are in.

    Operands of which copies and products read keep their names: they may be in any part. An
    instruction that has accessed nothing was not executed, and loads nothing. Those in ``far``
    have accessed global memory at generic addresses.
    """
    code = list(mir.code)
    for number, instruction in enumerate(code):
        op = instruction.what
        never = number not in far and isinstance(op, _LOADS)
        if isinstance(op, Op) and (number in parts or never):
            named: dict[str, Any] = dict(_named(op, parts.get(number, _NOWHERE)))
            if named:
                code[number] = replace(instruction, what=replace(op, **named))
    return replace(mir, code=tuple(code))


def _named(op: Op, part: str) -> Iterator[tuple[str, View]]:
    """Operands in shared memory that an instruction writes, or loads into registers, as ones in
    this part."""
    written = [e.view for e in op.effects() if isinstance(e, fx.Writes | fx.RemoteStore)]
    for name, value in vars(op).items():
        match value:
            case View(tensor=AddressedTensor(space=space, within="") as tensor):
                read = isinstance(op, _LOADS)
                if space != "global" and (read or any(value is view for view in written)):
                    yield name, replace(value, tensor=replace(tensor, within=part))
            case _:
                pass


#: bits of an address in shared memory
_HALF = 32
#: what registers are set to, by name
_Registers: TypeAlias = "dict[str, Forms]"


class Located(NamedTuple):
    """A program with operands at addresses that name the global tensor they are in.

    An address that is made of that of one tensor is nowhere else: outside of it is out of bounds.
    ``reasons``: what a base may decide there (`decided_by_bases`). ``lanes``: by number of a
    shuffle those that hold an address for all; what it gives of others is none. ``stays``: by
    number what has to hold whenever an instruction is executed, or a base may decide there, too.
    ``mixed``: the numbers of those that write what counts from one thing or from another, or from
    none: equal numbers are no equal data there.
    """

    mir: Mir
    reasons: tuple[str, ...]
    lanes: Mapping[int, int]
    stays: Mapping[int, Expr]
    mixed: frozenset[int]


def located(mir: Mir) -> Located:
    """``mir`` as `Located`."""
    if not names_addresses(mir):
        return Located(mir, (), {}, {}, frozenset())
    bases = _Bases(graph_of(mir))
    reasons = bases.reasons()
    code = tuple(bases.located(number, i) for number, i in enumerate(mir.code))
    stays = {number: all_of(*asked) for number, asked in bases.stays.items()}
    return Located(replace(mir, code=code), reasons, bases.lanes, stays, frozenset(bases.mixed))


class _Bases:
    """The bases in the registers of a lane at each instruction, and in memory at any time."""

    def __init__(self, graph: FlowGraph) -> None:
        mir = graph.mir
        self._code, self._effects, self._mentions = mir.code, mir.effects, mentions(mir)
        self._numbers = [*graph.reached()]
        #: of registers
        self._values: Values[Forms] = Values(graph, self._numbers, union, NOTHING)
        self._typing: Typing = mir.typing
        self._near = frozenset(s.name for s in mir.kernel.shared if isinstance(s, SharedTensor))
        overlap = any(True for _ in aliases(mir.kernel))
        self._by_space = overlap or is_addressed(mir)
        #: of shared memory, as far as they are kept apart
        parts = {t.within for t in at_addresses(mir) if is_part(t.within)}
        self._parts = tuple(f"[{name}]" for name in sorted(parts))
        #: by name of a tensor or tile
        self._contents: dict[str, Forms] = {}
        self._far = tuple(f"[{tensor.name}]" for tensor in mir.kernel.tensors)
        #: tensors that begin with addresses; `_contents` has what is written there
        self._tables = {f"[{t.name}]": t for t in mir.kernel.tensors if t.pointers}
        self._contents.update((node, NONE) for node in self._far if node not in self._tables)
        #: the instruction that is followed: what finds values in registers
        self._at = 0
        self._sizes = {tensor.name: tensor.nbytes for tensor in mir.kernel.tensors}
        #: by register that one instruction sets, always, what it is set to
        self._given = given(mir)
        self._tables_hold = PointersInMemory(self._typing, self._given)
        self._graph, self._never, self._threads = graph, never(mir), Threads(graph)
        #: by number of a shuffle, the lanes that hold an address for all
        self.lanes: dict[int, int] = {}
        #: by number of an instruction what has to hold there (`Located`)
        self.stays: dict[int, list[Expr]] = {}
        #: registers that hold a number on one way, and an address on another one
        self._either: set[str] = set()
        #: by number, what writes data of several bases (`Located`)
        self.mixed: set[int] = set()
        #: the instruction that is looked at, once all have been followed
        self._looking: int | None = None
        self._used = mir.kernel.smem_used
        self._placement = mir.kernel.placement
        self._reason: dict[str, None] = {}
        #: by number and operand: the tensors of which it is in one
        self._owners: dict[int, dict[str, tuple[str, ...]]] = {}

    def reasons(self) -> tuple[str, ...]:
        """What a base may decide, a sentence each."""
        for number in self._values.work:
            self._through(number)
        self._look(self._look_at)
        owners = (names for found in self._owners.values() for names in found.values())
        if any(len(names) > 1 for names in owners):
            self._either = {
                name for n in self._numbers for name in self._mentions[n].names
                if (forms := self._values.at(name, n)) and KNOWN in forms and len(forms) > 1
            }  # fmt: skip
            self._look(self._ask_windows)
        return tuple(self._reason)

    def _look(self, look: Callable[[int], None]) -> None:
        """Looks at all instructions, now that all have been followed."""
        for number in self._numbers:
            self._looking = None if number in self._never else number
            self._at = number
            look(number)
            self._through(number)

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

    def _through(self, number: int) -> None:
        """Follows an instruction."""
        self._at, op = number, self._code[number].what
        if isinstance(op, Op):
            for name, forms in self._follow(number, op, self._effects[number]).items():
                self._values.grow(name, number, forms)

    # ------------------------------------------------------------------ what values hold

    def _nodes(self, tensor: Tensor, *, write: bool) -> tuple[str, ...]:
        """What a tensor's contents are followed as: with all of shared memory if addresses reach
        it, but for parts that are kept apart: what is written at an unknown address is in none of
        them, and is read in each. Global tensors are kept apart where it is known which one an
        address is of."""
        near = ("[shared]",) if write else ("[shared]", *self._parts)
        if not isinstance(tensor, AddressedTensor):
            return near if self._by_space and tensor.name in self._near else (f"[{tensor.name}]",)
        if is_part(tensor.within):
            return (f"[{tensor.within}]",) if write else (f"[{tensor.within}]", "[shared]")
        forms = self.forms(tensor.address)
        if forms is not None and not forms:
            return ()  # nothing has come here yet
        owners = owners_of(forms, tensor.space)
        if owners:
            return tuple(f"[{name}]" for name in owners)
        far = self._far if tensor.space in ("global", "generic") else ()
        return far if tensor.space == "global" else (*near, *far)

    def _reached(self, effect: fx.Effect, *, write: bool) -> tuple[str, ...]:
        """What an effect reads in memory, or writes."""
        names = (tensors_written if write else tensors_read)(effect)
        match effect:
            case fx.Reads(view=view) | fx.Writes(view=view) | fx.RemoteStore(view=view) if names:
                return self._nodes(view.tensor, write=write)
            case _:
                return tuple(f"[{name}]" for name in names)

    def _write(self, node: str, forms: Forms) -> None:
        before = self._contents.get(node, NOTHING)
        joined = union(before, forms)
        if joined != before:
            self._contents[node] = joined
            self._values.work.again(self._numbers)

    def _inputs(self, number: int, op: Op, effects: tuple[fx.Effect, ...]) -> Forms:
        """What an instruction reads from memory, tiles and registers, addresses left out."""
        nodes = [node for e in effects for node in self._reached(e, write=False)]
        found = NOTHING
        for tensor in (self._tables[node] for node in nodes if node in self._tables):
            found = union(found, self._tables_hold.all_words(tensor))
        for node in (*nodes, *tiles(effects, write=False)):
            found = union(found, self._contents.get(node, NOTHING))
        for name, value, _ in self._mentions[number].operands:
            if not isinstance(value, View | Mbar) and name not in op.addresses:
                for expr in expressions_in(value):
                    found = union(found, self.forms(expr))
        return found

    def _follow(self, number: int, op: Op, effects: tuple[fx.Effect, ...]) -> _Registers:
        """Notes what an instruction writes to memory; what it leaves in registers."""
        match effects:
            case (fx.Defines(var=var, value=Expr() as value),) if not isinstance(op, Isspacep):
                forms = _in_register(self.forms(value), var)
                wide = var.dtype.bits > _HALF
                return {var.name: forms if not wide or self._widens(value) else None}
            case _:
                pass
        if isinstance(op, Load | LoadVector) and (found := self._loaded(op, effects[0])):
            return found
        moved = self._inputs(number, op, effects)
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
                    for node in self._reached(effect, write=True):
                        self._write(node, moved)
        return results

    def _loaded(self, op: Load | LoadVector, effect: fx.Effect) -> _Registers:
        """What a load leaves in registers that finds addresses with which tensors begin."""
        nodes, view = self._reached(effect, write=False), op.src
        whole = all(constant(offset) == 0 for offset in view.offsets)
        tables = not self._tables.keys().isdisjoint(nodes)
        if not (isinstance(view.tensor, AddressedTensor) and whole and tables):
            return {}
        results = (op.var,) if isinstance(op, Load) else op.results
        size = view.nbytes // len(results)
        found: _Registers = {}
        for number, var in enumerate(results):
            forms = NOTHING
            for node in nodes:
                forms = union(forms, self._contents.get(node, NOTHING))
                if node in self._tables:
                    initial = self._tables_hold.at(
                        self._tables[node], view.tensor.address, number * size, size
                    )
                    forms = union(forms, initial)
            found[var.name] = forms
        return found

    def _result(self, op: Op, effect: fx.Defines, moved: Forms, computed: Forms) -> Forms:
        match effect.value:
            case _ if isinstance(op, Isspacep) and self._is_pointer(op.address):
                return NONE
            case Expr() as value:
                return _in_register(self.forms(value), effect.var)
            case View():
                writes = any(isinstance(e, fx.Writes) for e in op.effects())
                return computed if writes else within_bits(moved, effect.var.dtype.bits)
            case fx.Shuffles(value=value, mode=mode):
                return self._shuffled(value) if mode == "idx" else self.forms(value)
            case _:
                return computed

    def _shuffled(self, value: Expr) -> Forms:
        """What a shuffle gives: where some lanes hold an address and the others a number, in every
        warp the same, that address."""
        forms, mir, at = self.forms(value), self._graph.mir, self._at
        if forms is None or KNOWN not in forms or len(forms) == 1:
            return forms
        chosen: Expr | None = value
        if isinstance(value, Var):
            chosen, at = self._given.get(value.name), once(mir).get(value.name, at)
        holds = self._threads.value(chosen.cond, at) if isinstance(chosen, Select) else None
        if not isinstance(chosen, Select) or not isinstance(holds, np.ndarray):
            return forms
        for arm, lanes in ((chosen.then, holds != 0), (chosen.other, holds == 0)):
            found = self._forms_at(arm, at)
            if found and KNOWN not in found:
                held = np.flatnonzero(lanes.all(axis=0))
                self.lanes[self._at] = sum(1 << int(lane) for lane in held)
                return found
        return forms

    def _is_pointer(self, expr: Expr) -> bool:
        forms = self.forms(expr)
        return forms is not None and all(fits(form, "generic") for form in forms)

    def _forms_at(self, expr: Expr, number: int) -> Forms:
        """The bases in an expression of another instruction."""
        here, self._at = self._at, number
        found = self.forms(expr)
        self._at = here
        return found

    def forms(self, expr: Expr) -> Forms:
        """The bases in an expression of the instruction that is followed."""
        match expr:
            case Base():
                return forms_of(base_of(expr))
            case Var(name):
                return self._values.at(name, self._at)
            case Unary(op, operand):
                inner = self.forms(operand)
                if op == "not":
                    return NONE if is_known(inner) else None
                return each(inner, lambda form: scaled(form, -1))
            case Select(cond, then, other):
                either = union(self.forms(then), self.forms(other))
                return either if is_known(self.forms(cond)) else None
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
        if b is NONE and op in ("+", "-"):
            return a
        if op in ("+", "-"):
            sign = 1 if op == "+" else -1
            found = limited(frozenset(total(x, scaled(y, sign)) for x in a for y in b))
            both = not (is_known(a) or is_known(b))
            gone = both and found is not None and KNOWN in found
            return found if not gone or self._stay(expr, a, b) else None
        if op == "*" and not is_known(b):
            return self._whole(expr, self._times(b, expr.lhs))
        if is_known(a) and is_known(b):
            return NONE
        if op in ("==", "!=") and self._exactly(expr.rhs) == 0 and self._is_place(expr.lhs):
            return NONE  # nothing declared lies at zero
        if op in COMPARE or op in ("min", "max"):
            same = a == b and len(a) == 1 and op not in ("and", "or")
            if not same or not self._stay(expr, a, b):
                return None
            return NONE if op in COMPARE else a
        if is_known(b):
            return self._bits(expr, a, expr.lhs, expr.rhs)
        if is_known(a) and op in ("&", "|", "^"):
            return self._bits(expr, b, expr.rhs, expr.lhs)
        return None

    def _stay(self, expr: Binary, a: Forms, b: Forms) -> bool:
        """Whether it can be asked of both operands that they stay what they count from."""
        return self._stays(expr.lhs, a) and self._stays(expr.rhs, b)

    def _stays(self, value: Expr, forms: Forms, *, bits: int = 2 * _HALF) -> bool:
        """Whether a run can tell that a value has not wrapped, nor left what it counts from
        (`tilesim.analysis.address_carries`). That is asked of it, unless it is plain. ``bits``: no
        others of it matter."""
        wide = bits > _HALF and self._typing.type_of(value) in ("s64", "u64")
        if forms is None or (wide and not self._widens(value)):
            return False
        asked = [stays(value, form, self._used) for form in forms if form]
        if not self._is_inside(value):
            self._ask([one for one in asked if one is not None])
        return None not in asked

    def _widens(self, value: Expr) -> bool:
        """Whether a run can tell that no address in a register of 32 bits has wrapped, of which a
        value of more bits is made."""
        match value:
            case Var(_, dtype) if dtype.bits <= _HALF:
                forms = self.forms(value)
                return is_known(forms) or self._stays(value, forms)
            case Binary("&", _, Const(int(mask))) if 0 <= mask < 1 << _HALF:
                return True  # that is asked of what is left
            case Unary(_, one):
                return self._widens(one)
            case Binary(_, one, other) | Select(_, one, other):
                return all([self._widens(one), self._widens(other)])
            case _:
                return True

    def _ask(self, asked: list[Expr]) -> None:
        """Has this looked at whenever the instruction is executed."""
        if self._looking is not None and asked:
            known = self.stays.setdefault(self._looking, [])
            known += [one for one in asked if one not in known]

    def _is_inside(self, value: Expr) -> bool:
        """Whether a value is the address of something declared, or of what lies close behind."""
        followed, low, high, at = set[str](), 0, 0, self._at
        while True:
            match value:
                case Base(name, "shared"):
                    first = self._placement.get(name, -1)
                    return first + low >= 0 and first + high <= self._used
                case Base(name, "global"):
                    return low >= 0 and high <= self._sizes.get(name, -1)
                case Binary("+", inner, Const(int() as more)):
                    value, low, high = inner, low + more, high + more
                case Binary("+", inner, more) if is_known(self._forms_at(more, at)):
                    bounds = self._typing.interval(more)
                    if bounds is None:
                        return False
                    value, low, high = inner, low + bounds[0], high + bounds[1]
                case Var(name, dtype) if name in self._given and name not in followed:
                    if dtype.bits < _HALF:
                        return False
                    followed.add(name)
                    value, at = self._given[name], once(self._graph.mir)[name]
                case _:
                    return False

    def _is_place(self, expr: Expr) -> bool:
        """Whether a value is the address of a byte of what is declared in global memory."""
        forms = self.forms(expr)
        declared = forms is not None and all(fits(form, "global") for form in forms)
        return declared and self._is_inside(expr)

    def _times(self, forms: Forms, factor: Expr) -> Forms:
        known = self._exactly(factor)
        return None if known is None else each(forms, lambda form: scaled(form, known))

    def _exactly(self, expr: Expr) -> int | None:
        bounds = self._typing.interval(expr)
        return bounds[0] if bounds is not None and bounds[0] == bounds[1] else None

    def _bits(self, expr: Binary, forms: Forms, value: Expr, other: Expr) -> Forms:
        """An operation on the bits of an address, by a number without bases."""
        known, low, bits = self._exactly(other), lowest(forms), 2 * _HALF
        match expr.op:
            case "*":
                return self._whole(expr, self._times(forms, other))
            case "<<" if known is not None:
                return self._whole(expr, each(forms, lambda form: scaled(form, 1 << known)))
            case "&" if known is not None and 0 <= known < 1 << low:
                return NONE
            case "|" | "^":
                sets = may_set(other, self._typing, self._given)
                if 0 <= sets < 1 << low:
                    return forms
                found = each(forms, lambda form: form if misses(form, sets) else None)
            case ">>" if known is not None:
                found = each(forms, lambda form: shifted(form, known))
            case "//" if known is not None and known > 0 and known & (known - 1) == 0:
                found = each(forms, lambda form: shifted(form, known.bit_length() - 1))
            case "%" if known is not None and known > 0 and known & (known - 1) == 0:
                found = each(forms, lambda form: masked(form, known - 1))
            case "&" if known is not None:
                found = each(forms, lambda form: masked(form, known))
                bits = known.bit_length() if known >= 0 else bits
            case _:
                return None
        stays = found is not None and self._stays(value, forms, bits=bits)
        return found if stays else None

    def _whole(self, expr: Expr, forms: Forms) -> Forms:
        """What is left of a value that may be larger than its type."""
        bits = _HALF if self._typing.type_of(expr) in ("s32", "u32") else 2 * _HALF
        return each(forms, lambda form: cut(form, bits))

    # ------------------------------------------------------------------ what they decide

    def _look_at(self, number: int) -> None:
        """Notes what a base may decide at an instruction."""
        instruction = self._code[number]
        for forms in self._deciding(number, instruction) if number not in self._never else ():
            if not is_known(forms):
                what = f"what happens at {instruction.loc} depends on the value of an address"
                self._reason[f"{what}, and every launch may have another"] = None
        if isinstance(op := instruction.what, Op):
            self._check_addresses(number, op)
            effects = self._effects[number]
            if any(isinstance(effect, fx.Writes) for effect in effects):
                written = self._inputs(number, op, effects)
                if written is None or len(written) > 1:
                    self.mixed.add(number)

    def _ask_windows(self, number: int) -> None:
        """Asks that no sum carries an address out of the window of what it counts from: where it
        may count from several tensors, its place in one of them does not tell from which."""
        for _, value, _ in self._mentions[number].operands:
            for expr in expressions_in(value):
                self._ask([*self._moved(expr)])
        match self._code[number].what:
            case Assign(var=var, value=value) if var.name in self._either and is_known(
                self.forms(value)
            ):
                self._ask([in_one_window(value, Const(0))])
            case _:
                pass

    def _moved(self, expr: Expr) -> Iterator[Expr]:
        """What has to hold for the addresses in an expression to stay in their windows."""
        match expr:
            case Unary(_, operand):
                yield from self._moved(operand)
            case Binary(op, lhs, rhs):
                yield from self._moved(lhs)
                yield from self._moved(rhs)
                of = rhs if is_known(self.forms(lhs)) else lhs
                if op in ("+", "-") and self._is_far(expr) and self._is_far(of):
                    yield in_one_window(expr, of)
            case Select(cond, then, other):
                for arm, chosen in ((then, cond), (other, unary("not", cond))):
                    moved = [*self._moved(arm)]
                    if is_known(self.forms(arm)) and self._is_far(expr):
                        moved.append(in_one_window(arm, Const(0)))
                    yield from (select(chosen, one, 1) for one in moved)
            case _:
                pass

    def _is_far(self, expr: Expr) -> bool:
        """Whether a value is an address in global memory, or none."""
        return bool(owners_of(self.forms(expr), "global"))

    def _deciding(self, number: int, instruction: Instruction) -> Iterator[Forms]:
        cond = condition(instruction)
        if cond is not None:
            yield self.forms(cond)
        match instruction.what:
            case Op() as op:
                for name, value, _ in self._mentions[number].operands:
                    known = addressed_in(value)
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
            known = addressed_in(getattr(op, name))
            if known is None:
                continue
            forms = self.forms(known.address)
            if isinstance(known, AddressedTensor) and (owners := owners_of(forms, known.space)):
                self._owners.setdefault(number, {})[name] = owners
            forms = NOTHING if is_known(forms) and acquires_map(op) else named(forms, known.space)
            fitting = forms is not None and all(fits(form, known.space) for form in forms)
            if forms and fitting and known.space == "generic" and forms <= {SHARED_IN_GENERIC}:
                self._ask([in_window(known.address)])
                fitting = self._widens(known.address)
            if not fitting and number not in self._never:
                what = f"what lies at the address that {op.mnemonic} at {op.loc} takes"
                why = "it is not made from one of something declared"
                self._reason[f"{what} is not known: {why}"] = None


def _in_register(forms: Forms, var: Var) -> Forms:
    """What is left of a value in a register."""
    if forms is None or is_known(forms) or var.dtype.kind == "float":
        return forms if is_known(forms) else None
    return each(forms, lambda form: cut(form, var.dtype.bits))
