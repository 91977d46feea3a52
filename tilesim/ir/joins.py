"""Joins for a list of instructions whose branches make any graph (docs/mir.md)."""

from __future__ import annotations

from dataclasses import replace

from tilesim.analysis.cfg import FlowGraph, Loop, graph_of, known
from tilesim.analysis.liveness import carried
from tilesim.analysis.uses_defs import only_computes
from tilesim.ir import effects as fx
from tilesim.ir.expr import Binary, Const, Var
from tilesim.ir.mir import Branch, Instruction, Join, Mir, Trap, condition
from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.renumber import renumbered


def joined(mir: Mir) -> Mir:
    """``mir`` with a `Join` wherever lanes that went different ways may go on together.

    Ways back of loops that wait for others get ``polls``. The instructions are numbered anew.
    """
    graph = graph_of(mir)
    waits = {graph.blocks[x.tail][-1] for x in graph.loops if _waits(graph, x)}
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number in waits:
        branch = mir.code[number].what
        if isinstance(branch, Branch) and not branch.polls:
            instead[number] = (mir.code[number].doing(replace(branch, polls=True)),)
    for number in _places(graph):
        old = mir.code[number]
        join = Instruction(Join(loc=old.loc), None, old.role, left_out=old.left_out)
        instead[number] = (join, *instead.get(number, (old,)))
    return renumbered(mir, instead)


def _places(graph: FlowGraph) -> set[int]:
    """The instructions before which lanes come together: at the latest where those that a branch
    splits must, and early, but not in another turn of a loop."""
    code = graph.mir.code
    heads = {loop.head for loop in graph.loops}
    last = [block[-1] if block else -1 for block in graph.blocks]
    blocks = {b for b in graph.order if len(graph.predecessors[b]) > 1 and b not in heads}
    for block in graph.order:
        cond = condition(code[last[block]]) if last[block] >= 0 else None
        meet = graph.post_dominators[block]
        if len(graph.successors[block]) > 1 and cond is not None and known(cond, 0) is None:
            blocks |= set() if meet is None else {meet}
    starts = {graph.blocks[b].start for b in blocks if graph.blocks[b]}
    return {n for n in starts if not isinstance(code[n].what, Join)}


def _waits(graph: FlowGraph, loop: Loop) -> bool:
    """Whether a loop looks at what others do, and its turns may all be alike; or at nothing, and
    they are."""
    code, effects = graph.mir.code, graph.mir.effects
    back = code[graph.blocks[loop.tail][-1]].what
    if not isinstance(back, Branch) or back.target != graph.blocks[loop.head].start:
        return False
    numbers = [n for block in loop.blocks for n in graph.blocks[block]]
    looks = any(
        isinstance(e, fx.Reads) or (isinstance(e, fx.Waits) and e.poll)
        for n in numbers
        for e in effects[n]
    )
    return not any(_counts(code[n]) for n in numbers) if looks else _alike(graph, loop)


def _alike(graph: FlowGraph, loop: Loop) -> bool:
    """Whether each turn of a loop computes what the one before it did, and does nothing else."""
    what = [graph.mir.code[n].what for block in loop.blocks for n in graph.blocks[block]]
    if any(isinstance(w, Trap) or (isinstance(w, Op) and not only_computes(w)) for w in what):
        return False
    return not carried(graph, loop.head, loop.blocks)


def _counts(instruction: Instruction) -> bool:
    match instruction.what:
        case Assign(var=Var(name), value=Binary("+" | "-", Var(same), Const())):
            return name == same
        case _:
            return False
