"""MIR of PTX without detours: predicates that went through a number, registers nobody reads.

    selp r, 1, 0, p
    setp q, r == 0        ->    branch ..., cond=p, sense=False
    branch ..., cond=q

Inline assembly hands its predicates on so, `elect.sync` and polls among them. What an instruction
that only sets registers from others sets, and nobody reads, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilesim.ir.blocking import evaluated
from tilesim.ir.dataflow import mentions
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Const, Expr, Unary, Var, walk
from tilesim.ir.flowgraph import graph_of
from tilesim.ir.mir import Branch, Instruction, Mir
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.renumber import renumbered


@dataclass(frozen=True)
class _Choice:
    """What a register holds: ``then`` where a predicate holds, ``other`` where it does not."""

    flag: Var
    then: int
    other: int

    @property
    def predicate(self) -> Expr | None:
        """What is true where the register is not 0; None if the predicate does not decide that."""
        match bool(self.then), bool(self.other):
            case True, False:
                return self.flag
            case False, True:
                return Unary("not", self.flag)
            case _:
                return None


def simple(mir: Mir) -> Mir:
    """``mir`` with predicates in place of what they are told by. It does the same."""
    mir = renumbered(mir, dict(_shortened(mir)))
    while unread := _unread(mir):
        mir = renumbered(mir, dict.fromkeys(unread, ()))
    return mir


def _unread(mir: Mir) -> list[int]:
    """What sets a register that nobody reads."""
    read = {name for one in mentions(mir) for name in (*one.tested, *one.used)}
    return [
        number
        for number, instruction in enumerate(mir.code)
        if isinstance(instruction.what, Assign) and instruction.what.var.name not in read
    ]


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
    for other in [n for n, choice in choices.items() if choice.flag.name == name]:
        del choices[other]


def _choice(assign: Assign, choices: Mapping[str, _Choice]) -> _Choice | None:
    """What is assigned, if one predicate decides it."""
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
