"""A program in which some lanes of a warp go their own way from the start.

PTX lets lanes of a warp that no instruction keeps together run ahead or lag behind, also where all
execute the same instructions. A machine that moves warps shows no such schedule of the program as
it is, but it does of this one: those lanes execute a copy of it, and the sides of a branch that
both synchronise are agents of their own.
"""

from __future__ import annotations

from dataclasses import replace

from tilesim.ir.expr import Const, Special
from tilesim.ir.mir import Branch, Instruction, Join, Mir, Switch
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import Exit, SyncWarp
from tilesim.ir.renumber import renumbered


def lanes_apart(mir: Mir, warp: int, lanes: int) -> tuple[Mir, tuple[int, ...]]:
    """``mir`` in which ``lanes`` of a warp execute a copy of the code; and by number of the result,
    which instruction of ``mir`` it is, or where it was put in."""
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number, old in enumerate(mir.code):
        if isinstance(old.what, Join) and old.what.syncs:
            join = replace(old, what=replace(old.what, syncs=False))
            instead[number] = (join, replace(old, what=SyncWarp(loc=old.loc)))
    whole = _without_exit(renumbered(mir, instead).code)
    places = tuple(n for n, old in enumerate(mir.code) for _ in instead.get(n, (old,)))
    size, end = len(whole), 2 * len(whole) + 2
    mine = ((Const(lanes) >> Special("lane_id")) & 1).ne(0) & Special("warp_id").eq(warp)
    code = (
        Instruction(Branch(target=size + 2, cond=mine, loc=mir.kernel.loc)),
        *(_moved(i, 1, size, end) for i in whole),
        Instruction(Branch(target=end, loc=mir.kernel.loc)),
        *(_moved(i, size + 2, size, end) for i in whole),
    )
    numbered = tuple(
        replace(i, what=replace(i.what, number=n)) if isinstance(i.what, Op) else i
        for n, i in enumerate(code)
    )
    # lanes of both sides may be in different turns of one loop
    apart = replace(mir, code=numbered, local=frozenset())
    return apart, (0, *places, 0, *places)


def _without_exit(code: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """``code`` that ends by running to its end, not by an exit: behind one that stands in the
    middle, as the first copy's would, lanes are not taken to meet."""
    last = code[-1]
    if not isinstance(last.what, Exit) or last.guard is not None:
        return code
    return (*code[:-1], replace(last, what=Branch(target=len(code), loc=last.what.loc)))


def _moved(instruction: Instruction, by: int, size: int, end: int) -> Instruction:
    """An instruction of a copy that begins at ``by``; its end is that of the program."""

    def to(target: int) -> int:
        return end if target == size else target + by

    match instruction.what:
        case Branch(target=target) as branch:
            return replace(instruction, what=replace(branch, target=to(target)))
        case Switch(targets=targets) as switch:
            return replace(instruction, what=replace(switch, targets=tuple(map(to, targets))))
        case _:
            return instruction
