"""MIR of PTX without detours: fewer registers and instructions.

What registers hold takes their place (`tilesim.ptx.passes.forwarding`). What an instruction that
only sets registers from others sets, and is not read, is left out. Instructions that compute data
of the same data are one, which has the results of all:

    cvt r1, f1, f2
    cvt r2, f3, f4        ->    ptx.data "cvt", {r1, r2}, {tile}

A variable stands for all registers of a tile (`tilesim.ptx.accumulators`), and a compiler does to
each of them what it does to the others: what comes out is not known, only what it is made of.

Branches that ask whether a pointer of the launch is null go where it is:

    mov r, 0; mov p, r == 0; branch L, cond=p    ->    branch L

What stands behind such a question accesses what no parameter points to. Only a register of 64 bits
that holds zero decides one: a number of the launch that is not zero is asked as it is, for
``--for-all`` gives it other values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence

from tilesim.analysis.cfg import FlowGraph, graph_of
from tilesim.analysis.ssa import given
from tilesim.analysis.uses_defs import mentioned, mentions_of, registers_set, replaced, sets_only
from tilesim.ir.expr import Const, Expr, Var, constant
from tilesim.ir.mir import Branch, Control, Instruction, Mir
from tilesim.ir.op import Computation, Op
from tilesim.ir.ops.compute import AccessTile, Data
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.ops.wgmma import WgmmaMmaAsync
from tilesim.ptx.passes.forwarding import Listing, forward
from tilesim.records import dataclass, field, replace
from tilesim.transforms.rewrite import renumbered


def simple(mir: Mir, given: Collection[str] = ()) -> Mir:
    """``mir`` with what registers hold in place of them, but for those of ``given``. It does the
    same."""
    graph, listing = graph_of(mir), Listing(mir.code)
    again = _set_again(graph, listing, ())
    typing = forward(graph, listing, given, again)
    unread = _unread(graph, listing, again)
    code = listing.code
    instead: dict[int, tuple[Instruction, ...]] = dict.fromkeys(unread, ())
    for block in graph.blocks:
        left = _left(code, block, unread)
        for number, place in zip(left, _products_together(code, left), strict=True):
            if code[place] is not mir.code[number]:
                instead[number] = (code[place],)
    return replace(renumbered(mir, instead), typing=typing) if instead else mir


def _left(code: list[Instruction], block: Sequence[int], unread: Collection[int]) -> list[int]:
    """The instructions of a block but for those that are not read; the time of these is kept."""
    left = [number for number in block if number not in unread]
    if not left:
        return left
    place, cycles = left[0], dict.fromkeys(left, 0)
    for number in block:
        if number not in unread:
            place = number
        elif isinstance(what := code[number].what, Op):
            cycles[place] += what.cycles
    for number, more in cycles.items():
        if more:
            old = code[number]
            code[number] = Instruction(old.what, old.guard, old.role, left_out=more)
    return left


def _products_together(code: Sequence[Instruction], block: Sequence[int]) -> list[int]:
    """The instructions of a block with what sets registers for products of a warpgroup before those
    it stands between: products that follow each other are one step of the machine."""
    order: list[int] = []
    for number in block:
        place = len(order)
        while place and _may_precede(code[number], code[order[place - 1]]):
            place -= 1
        order.insert(place, number)
    return order


def _may_precede(instruction: Instruction, product: Instruction) -> bool:
    """Whether an instruction only sets registers that the product before it does not read."""
    what, before = instruction.what, product.what
    if not isinstance(before, WgmmaMmaAsync) or not isinstance(what, Assign | Data):
        return False
    sets = {var.name for var in registers_set(what)}
    plain = instruction.guard is None and product.guard is None
    return plain and sets_only(what) and sets.isdisjoint(mentions_of(product).used)


def _unread(graph: FlowGraph, listing: Listing, again: Collection[int]) -> set[int]:
    """What sets registers that nothing reads but what is left out as well, as ``again`` is, or that
    are set again before, or to what they hold."""
    found = _set_again(graph, listing, again)
    readers, setters = defaultdict[str, int](int), defaultdict[str, list[int]](list)
    left: list[int] = []
    for number, instruction in enumerate(listing.code):
        if number not in found:
            for name in listing.names[number]:
                readers[name] += 1
            if _only_computes(instruction.what):
                left.append(number)
                for name in listing.sets[number]:
                    setters[name].append(number)
    while left:
        number = left.pop()
        read = any(readers[name] for name in listing.sets[number])
        if number in found or (read and not _same(listing.code[number].what)):
            continue
        found.add(number)
        for name in listing.names[number]:
            readers[name] -= 1
            if not readers[name]:
                left += setters[name]
    return found


def _set_again(graph: FlowGraph, listing: Listing, known: Collection[int]) -> set[int]:
    """What sets registers of which its lanes set all again before one is read; ``known`` are
    among them."""
    found = {*known}
    for block in graph.blocks:
        later: set[str] = set()
        for number in reversed(block):
            if number in known:
                continue
            instruction, results = listing.code[number], listing.sets[number]
            if results and results <= later and _is_replaced(instruction):
                found.add(number)
                continue
            if instruction.guard is None:
                later |= results
            later -= listing.names[number]
    return found


def _is_replaced(instruction: Instruction) -> bool:
    """Whether what an instruction computes is as if it had not been once its registers are set
    again: not if it sets one of several for which a variable stands, which tells what that is made
    of; constants say nothing of that."""
    what = instruction.what
    if not isinstance(what, Data) or not what.partly:
        return _only_computes(what)
    plain = instruction.guard is None and sets_only(what) and not what.warp
    return plain and all(isinstance(source, Const) for source in what.sources)


def _only_computes(what: Op | Control) -> bool:
    """Whether an instruction does nothing but compute registers."""
    return isinstance(what, Assign) or (isinstance(what, Computation | Data) and sets_only(what))


def _same(what: Op | Control) -> bool:
    """Whether an assignment leaves its register as it is."""
    match what:
        case Assign(var=Var(name), value=Var(same)):
            return name == same
        case _:
            return False


class Together:
    """The instructions of a kernel while it is lowered, one behind the other: ``code``."""

    def __init__(self) -> None:
        self.code: list[Instruction] = []
        #: by what they are and what they work on, those that others may still come to
        self._begun: dict[Hashable, _Begun] = {}
        #: by register: the last instruction that has set it, or read it, since `end`
        self._set: dict[str, int] = {}
        self._read: dict[str, int] = {}

    def add(self, instruction: Instruction) -> None:
        """The next instruction of the kernel."""
        match instruction.what:
            case Data(warp=False, group=None) as data if instruction.guard is None:
                self._data(data, instruction)
            case Assign() | Computation() | Data() | AccessTile() as op:
                self._append(op, instruction)
            case _:
                self.end()
                self.code.append(instruction)

    def end(self) -> None:
        """What follows does more than to compute registers, or may be reached otherwise."""
        if self._begun:
            for begun in self._begun.values():
                begun.put_into(self.code)
            self._begun.clear()
            self._set.clear()
            self._read.clear()

    def _append(self, op: Op, instruction: Instruction) -> None:
        if self._begun:
            number, (tested, used, _) = len(self.code), mentions_of(instruction)
            _note(self._read, tested | used, number)
            _note(self._set, (var.name for var in registers_set(op)), number)
        self.code.append(instruction)

    def _data(self, data: Data, instruction: Instruction) -> None:
        on = data.results if data.partly else data.sources
        key = (data.opcode, data.why, data.partly, on, data.loc)
        begun = self._begun.get(key)
        if begun is not None and self._may_join(begun.number, data):
            begun.join(data)
            _note(self._read, _mentioned(data.sources), begun.number)
            _note(self._set, (var.name for var in data.results), begun.number)
            return
        if begun is not None:
            begun.put_into(self.code)
        self._begun[key] = _Begun(len(self.code), data)
        self._append(data, instruction)

    def _may_join(self, number: int, data: Data) -> bool:
        """Whether this may be computed by instruction ``number``, before it, already: all registers
        that its operands are made of are set there as they are here, and nothing in between sets
        or reads what it sets.

        One that sets a register of a tile may follow another that does, though it may work on what
        that one has set: the two together make the same of the same.
        """
        results = {var.name for var in data.results}
        of_tile = results if data.partly else ()
        return all(
            self._set.get(name, -1) <= number and self._read.get(name, -1) <= number
            for name in results
        ) and all(
            self._set.get(name, -1) < number
            for name in _mentioned(data.sources)
            if name not in of_tile
        )


@dataclass
class _Begun:
    """An instruction, and what others add to it."""

    number: int
    first: Data
    results: dict[Var, None] = field(default_factory=dict)
    sources: dict[Expr, None] = field(default_factory=dict)
    others: int = 0

    def join(self, data: Data) -> None:
        """Another one is computed with it."""
        self.others += 1
        self.results.update(dict.fromkeys(data.results))
        if data.partly:  # it keeps what the variable holds, which the first one has set
            self.sources.update(dict.fromkeys(s for s in data.sources if s not in data.results))

    def put_into(self, code: list[Instruction]) -> None:
        """Puts what it has become in its place."""
        if not self.others:
            return
        first, old = self.first, code[self.number]
        what = replace(
            first, results=tuple(dict.fromkeys((*first.results, *self.results))),
            sources=tuple(dict.fromkeys((*first.sources, *self.sources))),
            loc=replace(first.loc, behind=None),
        )  # fmt: skip
        more = old.left_out + self.others * first.cycles
        code[self.number] = replace(old, what=what, left_out=more)


def _mentioned(operands: Iterable[Expr]) -> frozenset[str]:
    """The registers that operands are made of: one may be an expression."""
    return frozenset[str]().union(*map(mentioned, operands))


def _note(places: dict[str, int], names: Iterable[str], number: int) -> None:
    """Each of ``names`` is set, or read, at ``number``; the last place is what counts."""
    for name in names:
        places[name] = max(number, places.get(name, -1))


_POINTER = 64


def without_null_tests(mir: Mir) -> Mir:
    """``mir`` with jumps in place of branches that a null pointer decides."""
    types = {var.name: var.dtype for var in mir.kernel.variables}
    values = given(mir)
    known = {n: v for n, v in values.items() if types[n].bits == _POINTER and constant(v) == 0}
    if not known:
        return mir
    nulls = dict(known)
    for name, value in values.items():
        if types[name].kind == "pred":
            found = replaced(value, nulls)
            if isinstance(found, Const):
                known[name] = found
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number, instruction in enumerate(mir.code):
        branch = instruction.what
        if isinstance(branch, Branch) and branch.cond is not None:
            cond = replaced(branch.cond, known)
            if isinstance(cond, Const) and cond != branch.cond:
                taken = bool(cond.value) is branch.sense
                jump = replace(branch, cond=None, sense=True)
                instead[number] = (replace(instruction, what=jump),) if taken else ()
    return renumbered(mir, instead)
