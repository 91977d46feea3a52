"""Puts a `Join` wherever lanes that a branch may split go on together."""

from __future__ import annotations

from dataclasses import replace

from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.mir import Branch, Instruction, Join, Mir, Switch
from tilesim.ir.op import Op


def joined(mir: Mir) -> Mir:
    """``mir`` with a `Join` at the first place that is on every way from a branch to the end, and
    where ways forward come together."""
    graph = FlowGraph(mir)
    places = set()
    for block, after in enumerate(graph.successors):
        at = graph.post_dominators[block]
        if len(after) > 1 and at is not None:
            places.add(graph.blocks[at].start)
    for block, before in enumerate(graph.predecessors):
        if sum(source < block for source in before) > 1:
            places.add(graph.blocks[block].start)
    places.discard(len(mir.code))
    starts, moved = {}, 0
    for number in range(len(mir.code) + 1):
        starts[number] = number + moved
        moved += number in places
    code: list[Instruction] = []
    for number, instruction in enumerate(mir.code):
        if number in places:
            join = Join(loc=instruction.loc)
            code.append(Instruction(join, None, instruction.role, instruction.warps))
        code.append(_retargeted(instruction, starts, len(code)))
    return replace(mir, code=tuple(code))


def _retargeted(instruction: Instruction, starts: dict[int, int], number: int) -> Instruction:
    match instruction.what:
        case Branch(target=target) as branch:
            return replace(instruction, what=replace(branch, target=starts[target]))
        case Switch(targets=targets) as switch:
            places = tuple(starts[t] for t in targets)
            return replace(instruction, what=replace(switch, targets=places))
        case Op() as op:
            return replace(instruction, what=replace(op, number=number))
        case _:
            return instruction
