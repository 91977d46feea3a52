"""MIR of PTX without detours: predicates that went through a number, registers nobody reads.

    selp r, 1, 0, p
    setp q, r == 0        ->    branch ..., cond=p, sense=False
    branch ..., cond=q

Inline assembly hands its predicates on so, `elect.sync` and polls among them. What an instruction
that only sets registers from others sets, and nobody reads, is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilesim.ir.blocking import evaluated
from tilesim.ir.dataflow import mentioned, mentions_of, registers_set, sets_only
from tilesim.ir.expr import Const, Expr, Unary, Var, walk
from tilesim.ir.flowgraph import FlowGraph, graph_of
from tilesim.ir.mir import Branch, Control, Instruction, Mir
from tilesim.ir.op import Computation, Op
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.ops.wgmma import WgmmaMmaAsync
from tilesim.ir.renumber import renumbered
from tilesim.ptx.compute import Data
from tilesim.ptx.forwarding import forward


@dataclass(frozen=True)
class _Choice:
    """What a register holds: ``then`` where a predicate holds, ``other`` where it does not; one
    number if there is none."""

    flag: Var | None
    then: int
    other: int

    @property
    def predicate(self) -> Expr | None:
        """What is true where the register is not 0; None if the predicate does not decide that."""
        if self.flag is None or bool(self.then) == bool(self.other):
            return None
        return self.flag if self.then else Unary("not", self.flag)

    @property
    def always(self) -> Const | None:
        """Whether it is not 0, if it is so whatever the predicate says."""
        return Const(int(bool(self.then))) if bool(self.then) == bool(self.other) else None


def simple(mir: Mir, given: Collection[str] = ()) -> Mir:
    """``mir`` with predicates in place of what they are told by, and what registers hold in place
    of them, but for those of ``given``. It does the same."""
    graph, code = graph_of(mir), [*mir.code]
    for number, short in _shortened(mir):
        code[number] = short
    again = {number for block in graph.blocks for number in _set_again(code, block)}
    typing = forward(graph, code, given, again)
    unread = _unread(graph, code, again)
    instead: dict[int, tuple[Instruction, ...]] = dict.fromkeys(unread, ())
    for block in graph.blocks:
        left = _left(code, block, unread)
        for number, place in zip(left, _products_together(code, left), strict=True):
            if code[place] is not mir.code[number]:
                instead[number] = (code[place],)
    return replace(renumbered(mir, instead), typing=typing) if instead else mir


def _left(code: list[Instruction], block: Sequence[int], unread: Collection[int]) -> list[int]:
    """The instructions of a block but for those that nobody reads; the time of these is kept."""
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
            code[number] = replace(code[number], left_out=more)
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


def _unread(graph: FlowGraph, code: Sequence[Instruction], again: Collection[int]) -> set[int]:
    """What sets registers that nobody reads but what is left out as well, as ``again`` is, or that
    are set again before, or to what they hold."""
    found = {n for block in graph.blocks for n in _set_again(code, block, again)}
    named = [{*one.tested, *one.used} for one in map(mentions_of, code)]
    readers = Counter(name for n, names in enumerate(named) if n not in found for name in names)
    left = {n: i.what for n, i in enumerate(code) if n not in found and _only_computes(i.what)}
    while more := {n for n, what in left.items() if _is_unread(what, readers)}:
        found |= more
        for number in more:
            del left[number]
            readers.subtract(named[number])
    return found


def _set_again(
    code: Sequence[Instruction], block: Sequence[int], known: Collection[int] = ()
) -> Iterator[int]:
    """What sets registers of which its lanes set all again before anybody reads one; ``known`` are
    among them."""
    later: set[str] = set()
    for number in reversed(block):
        if number in known:
            yield number
            continue
        instruction = code[number]
        what = instruction.what
        if isinstance(what, Op):
            results = {var.name for var in registers_set(what)}
            if results and results <= later and _is_replaced(instruction):
                yield number
                continue
            if instruction.guard is None:
                later |= results
        tested, used, _ = mentions_of(instruction)
        later -= tested | used


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
    return isinstance(what, Assign | Computation | Data) and sets_only(what)


def _is_unread(what: Op | Control, readers: Mapping[str, int]) -> bool:
    assert isinstance(what, Op)
    if isinstance(what, Assign) and _same(what):
        return True
    return not any(readers[var.name] for var in registers_set(what))


def _same(assign: Assign) -> bool:
    return isinstance(assign.value, Var) and assign.value.name == assign.var.name


def _shortened(mir: Mir) -> Iterator[tuple[int, Instruction]]:
    """The instructions that another predicate decides as well, with that."""
    for block in graph_of(mir).blocks:
        choices = _Choices()
        for number in block:
            instruction = mir.code[number]
            short = _with_flags(instruction, choices)
            if short is not instruction:
                yield number, short
            what = instruction.what
            found = None
            if isinstance(what, Assign) and instruction.guard is None:
                found = _choice(what, choices)
            for var in registers_set(what) if isinstance(what, Op) else ():
                choices.forget(var.name)
            if found is not None and isinstance(what, Assign) and found.flag != what.var:
                choices.note(what.var.name, found)


class _Choices(dict[str, _Choice]):
    """What registers hold at one place, by name."""

    def __init__(self) -> None:
        super().__init__()
        #: by predicate, the registers that it may decide
        self._decided: dict[str, list[str]] = {}

    def note(self, name: str, choice: _Choice) -> None:
        """A register is set to that."""
        self[name] = choice
        if choice.flag is not None:
            self._decided.setdefault(choice.flag.name, []).append(name)

    def forget(self, name: str) -> None:
        """A register is set: what it chose, and what it held, are so no more."""
        self.pop(name, None)
        for other in self._decided.pop(name, ()):
            choice = self.get(other)
            if choice is not None and choice.flag is not None and choice.flag.name == name:
                del self[other]


def _choice(assign: Assign, choices: Mapping[str, _Choice]) -> _Choice | None:
    """What is assigned, if one predicate decides it."""
    match assign.value:
        case Const(int() as value) if 0 <= value < 1 << assign.var.dtype.bits:
            return _Choice(None, value, value)
        case _:
            pass
    if len(mentioned(assign.value)) != 1:
        return None
    var = next((part for part in walk(assign.value) if isinstance(part, Var)), None)
    if var is None:
        return None
    name = var.name
    choice = choices.get(name)
    if choice is None and var.dtype.kind == "pred":
        choice = _Choice(var, 1, 0)
    if choice is None:
        return None
    found = []
    for value in (choice.then, choice.other):
        match evaluated(assign.value, {name: Const(value)}):
            case Const(int() as held) if 0 <= held < 1 << assign.var.dtype.bits:
                found.append(bool(held) if assign.var.dtype.kind == "pred" else held)
            case _:
                return None
    return _Choice(choice.flag, *found)


def _with_flags(instruction: Instruction, choices: Mapping[str, _Choice]) -> Instruction:
    """An instruction that tests what decides it."""
    what, guard = instruction.what, instruction.guard
    match what:
        case Branch(cond=Expr() as cond, sense=sense) if flags := _flags(cond, choices):
            cond = evaluated(cond, flags)
            match cond:
                case Unary("not", inner):
                    what = replace(what, cond=inner, sense=not sense)
                case _:
                    what = replace(what, cond=cond)
        case Assign(value=value) if flags := _flags(value, choices):
            what = replace(what, value=evaluated(value, flags))
        case WgmmaMmaAsync(accumulate=Var(name)) if name in choices:
            always = choices[name].always
            what = what if always is None else replace(what, accumulate=always)
        case _:
            pass
    if guard is not None and (flags := _flags(guard, choices)):
        guard = evaluated(guard, flags)
    if what is instruction.what and guard is instruction.guard:
        return instruction
    return replace(instruction, what=what, guard=guard)


def _flags(expr: Expr, choices: Mapping[str, _Choice]) -> dict[str, Expr]:
    """What predicates in an expression are told by."""
    found: dict[str, Expr] = {}
    for part in walk(expr):
        if isinstance(part, Var) and part.dtype.kind == "pred" and part.name in choices:
            flag = choices[part.name].predicate
            if flag is not None:
                found[part.name] = flag
    return found
