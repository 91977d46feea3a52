"""Machine code with instructions put in and taken out: jumps lead to where they led."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesim.ir.mir import Branch, Instruction, Mir, Switch
from tilesim.ir.op import Op


def renumbered(mir: Mir, instead: Mapping[int, tuple[Instruction, ...]]) -> Mir:
    """``mir`` with some instructions, by number, replaced by others.

    Targets are numbers of ``mir``, also in what is new; a jump to an instruction that is replaced
    leads to the first of those in its place, or to what follows if there are none.
    """
    code = [instead.get(number, (old,)) for number, old in enumerate(mir.code)]
    first = [0]
    for group in code:
        first.append(first[-1] + len(group))
    moved = (instruction for group in code for instruction in group)
    return replace(mir, code=tuple(_moved(i, n, first) for n, i in enumerate(moved)))


def _moved(instruction: Instruction, number: int, first: list[int]) -> Instruction:
    match instruction.what:
        case Branch(target=target) as branch:
            return instruction.doing(replace(branch, target=first[target]))
        case Switch(targets=targets) as switch:
            return instruction.doing(replace(switch, targets=tuple(first[t] for t in targets)))
        case Op() as op if op.number != number:
            return instruction.doing(op.as_number(number))
        case _:
            return instruction
