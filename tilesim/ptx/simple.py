"""MIR of PTX without detours: predicates that went through a number, registers nobody reads.

    selp r, 1, 0, p
    setp q, r == 0        ->    branch ..., cond=p, sense=False
    branch ..., cond=q

Inline assembly hands its predicates on so, `elect.sync` and polls among them. What an instruction
that only sets registers from others sets, and nobody reads, is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilesim.ir.blocking import evaluated
from tilesim.ir.dataflow import mentions, sets_only
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Const, Expr, Unary, Var, walk
from tilesim.ir.flowgraph import graph_of
from tilesim.ir.mir import Branch, Instruction, Mir
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.ops.wgmma import WgmmaMmaAsync
from tilesim.ir.renumber import renumbered
from tilesim.ptx.compute import Data


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


def simple(mir: Mir) -> Mir:
    """``mir`` with predicates in place of what they are told by. It does the same."""
    mir = _with(mir, dict(_shortened(mir)))
    return _products_together(_with(mir, dict.fromkeys(_unread(mir), ())))


def _with(mir: Mir, instead: Mapping[int, tuple[Instruction, ...]]) -> Mir:
    return renumbered(mir, instead) if instead else mir


def _products_together(mir: Mir) -> Mir:
    """``mir`` with what sets registers for products of a warpgroup before those it stands between:
    products that follow each other are one step of the machine."""
    instead: dict[int, tuple[Instruction, ...]] = {}
    for block in graph_of(mir).blocks:
        order: list[int] = []
        for number in block:
            place = len(order)
            while place and _may_precede(mir, number, order[place - 1]):
                place -= 1
            order.insert(place, number)
        if order != [*block]:
            instead.update((n, (mir.code[k],)) for n, k in zip(block, order, strict=True))
    return _with(mir, instead)


def _may_precede(mir: Mir, number: int, product: int) -> bool:
    """Whether an instruction only sets registers that the product before it does not read."""
    instruction, before = mir.code[number], mir.code[product].what
    if not isinstance(before, WgmmaMmaAsync) or not isinstance(instruction.what, Assign | Data):
        return False
    sets = {e.var.name for e in mir.effects[number] if isinstance(e, Defines)}
    plain = instruction.guard is None and mir.code[product].guard is None
    return plain and sets_only(instruction.what) and sets.isdisjoint(mentions(mir)[product].used)


def _unread(mir: Mir) -> set[int]:
    """What sets a register that nobody reads but what is left out as well, or to what it holds."""
    named = mentions(mir)
    readers = Counter(name for one in named for name in (*one.tested, *one.used))
    assigns = {n: i.what for n, i in enumerate(mir.code) if isinstance(i.what, Assign)}
    found: set[int] = set()
    while more := {n for n, what in assigns.items() if not readers[what.var.name] or _same(what)}:
        found |= more
        for number in more:
            del assigns[number]
            readers.subtract((*named[number].tested, *named[number].used))
    return found


def _same(assign: Assign) -> bool:
    return isinstance(assign.value, Var) and assign.value.name == assign.var.name


def _shortened(mir: Mir) -> Iterator[tuple[int, tuple[Instruction, ...]]]:
    """The instructions that another predicate decides as well, with that."""
    for block in graph_of(mir).blocks:
        choices: dict[str, _Choice] = {}
        for number in block:
            instruction = mir.code[number]
            short = _with_flags(instruction, choices)
            if short is not instruction:
                yield number, (short,)
            what = instruction.what
            found = None
            if isinstance(what, Assign) and instruction.guard is None:
                found = _choice(what, choices)
            for effect in mir.effects[number]:
                if isinstance(effect, Defines):
                    _forget(choices, effect.var.name)
            if found is not None and isinstance(what, Assign) and found.flag != what.var:
                choices[what.var.name] = found


def _forget(choices: dict[str, _Choice], name: str) -> None:
    """A register is set: what it chose, and what it held, are so no more."""
    choices.pop(name, None)
    for other, choice in [*choices.items()]:
        if choice.flag is not None and choice.flag.name == name:
            del choices[other]


def _choice(assign: Assign, choices: Mapping[str, _Choice]) -> _Choice | None:
    """What is assigned, if one predicate decides it."""
    match assign.value:
        case Const(int() as value) if 0 <= value < 1 << assign.var.dtype.bits:
            return _Choice(None, value, value)
        case _:
            pass
    names = {part.name: part for part in walk(assign.value) if isinstance(part, Var)}
    if len(names) != 1:
        return None
    ((name, var),) = names.items()
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
