"""Loops of polls that wait between them: what they do there decides nothing.

libcu++ counts its polls, looks at a timer and sleeps the longer the more of both there is. None of
that ends the loop, and nobody uses it behind: what is left is the poll.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tilesim.ir.dataflow import operand_expressions, registers_set, sets_only
from tilesim.ir.expr import Var, walk
from tilesim.ir.flowgraph import FlowGraph, graph_of
from tilesim.ir.mir import Branch, Instruction, Mir, condition
from tilesim.ir.op import Op
from tilesim.ir.renumber import renumbered
from tilesim.ir.waits import Poll


def without_backoff(mir: Mir) -> Mir:
    """``mir`` with loops that repeat one poll until it succeeds, without what else they do."""
    graph = graph_of(mir)
    beside = {n for _, blocks in graph.innermost for n in _detours(graph, blocks)}
    if beside:
        mir = renumbered(mir, dict.fromkeys(beside, ()))
        graph = graph_of(mir)
    instead: dict[int, tuple[Instruction, ...]] = {}
    for head, blocks in graph.innermost:
        instead.update(_poll_alone(graph, head, blocks))
    return renumbered(mir, instead) if instead else mir


def _detours(graph: FlowGraph, blocks: set[int]) -> Iterator[int]:
    """In a loop that polls, branches that only jump over what is as if it had not been, and that:
    a look at the time where the poll has failed, say."""
    mir = graph.mir
    inside = {n for block in blocks for n in graph.blocks[block]}
    if not any(isinstance(mir.code[n].what, Poll) for n in inside):
        return
    for number in sorted(inside):
        branch = mir.code[number].what
        if not isinstance(branch, Branch) or branch.cond is None or branch.target not in inside:
            continue
        over = range(number + 1, branch.target)
        if not over or not all(n in inside and _passes(mir, n, over) for n in over):
            continue
        before = {b for n in over for b in graph.predecessors[graph.block_of[n]]}
        entered = any(graph.blocks[b][-1] not in (number, *over) for b in before)
        if not entered and not _used(graph, over, over):
            yield from (number, *over)


def _passes(mir: Mir, number: int, over: range) -> bool:
    """Whether an instruction is as if it had not been, or goes on towards the end of a detour."""
    match mir.code[number].what:
        case Branch(target=target):
            return number < target <= over.stop
        case _:
            return _alone(mir, number)


def _poll_alone(
    graph: FlowGraph, head: int, blocks: set[int]
) -> dict[int, tuple[Instruction, ...]]:
    """What stands for the instructions of a loop that does nothing but poll, of which only the
    block of the poll is left; nothing if it has another form, or does something that matters."""
    code = graph.mir.code
    inside = sorted(n for block in blocks for n in graph.blocks[block])
    polls = [n for n in inside if isinstance(code[n].what, Poll)]
    if len(polls) != 1:
        return {}
    own = graph.block_of[polls[0]]
    test, first = graph.blocks[own][-1], graph.blocks[head][0]
    idle = [n for n in inside if graph.block_of[n] != own]
    if any(_leaves(graph, blocks, n) for n in idle):
        return {}
    if not all(_alone(graph.mir, n) or isinstance(code[n].what, Branch) for n in idle):
        return {}
    idle += _beside(graph, own, idle)
    if not idle or _used(graph, idle, idle):
        return {}
    instead: dict[int, tuple[Instruction, ...]] = dict.fromkeys(idle, ())
    if len(blocks) == 1:
        return instead
    if own != head:
        # who enters the loop comes to the poll behind what is left out, whatever it did there
        alone = all(loop.tail == own for loop in graph.loops if loop.head == head)
        return instead if alone and inside == [*range(first, test + 1)] else {}
    back = code[test].what
    if not isinstance(back, Branch):
        return {}
    if graph.block_of[back.target] in blocks:
        instead[test] = (code[test].doing(replace(back, target=first)),)
    else:
        again = Branch(target=first, loc=back.loc)
        instead[test] = (code[test], code[test].doing(again))
    return instead


def _beside(graph: FlowGraph, own: int, idle: list[int]) -> list[int]:
    """What the block of the poll does that only itself and what is ``idle`` needs."""
    mir = graph.mir
    found = {n for n in graph.blocks[own] if _alone(mir, n)}
    while True:
        needed = _used(graph, found, {*found, *idle})
        if not needed:
            return sorted(found)
        found -= needed


def _alone(mir: Mir, number: int) -> bool:
    """Whether an instruction sets registers, or does nothing that anybody sees."""
    what = mir.code[number].what
    return (
        isinstance(what, Op)
        and not isinstance(what, Poll)
        and (sets_only(what) or not mir.effects[number])
    )


def _sets(mir: Mir, number: int) -> tuple[Var, ...]:
    what = mir.code[number].what
    return registers_set(what) if isinstance(what, Op) else ()


def _leaves(graph: FlowGraph, blocks: set[int], number: int) -> bool:
    """Whether an instruction may end the loop."""
    block = graph.block_of[number]
    last = graph.blocks[block][-1] == number
    return last and any(after not in blocks for after in graph.successors[block])


def _used(graph: FlowGraph, setters: Collection[int], beside: Collection[int]) -> set[int]:
    """Those of ``setters`` whose registers somebody else than ``beside`` uses as they leave them. A
    compiler has a counter of turns in the register that was a parity before the loop."""
    mir = graph.mir
    names = {var.name for n in setters for var in _sets(mir, n)}
    found = set[int]()
    for n in range(len(mir.code)) if names else ():
        if n not in beside:
            for name in names.intersection(_read(mir, n)):
                found.update(graph.reaching.setters(n, name))
    return found.intersection(setters)


def _read(mir: Mir, number: int) -> Iterator[str]:
    cond, op = condition(mir.code[number]), mir.code[number].what
    expressions = [] if cond is None else [cond]
    if isinstance(op, Op):
        expressions += operand_expressions(op)
    return (part.name for e in expressions for part in walk(e) if isinstance(part, Var))
