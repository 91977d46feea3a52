"""Loops of polls that trap when what they wait for takes too long.

    again: try_wait p, [b], parity           again: try_wait p, [b], parity
           n = n + 1                                n = n + 1
           branch on, cond=n < 1000    ->
           trap
    on:    branch again, cond=not p                 branch again, cond=not p

How often a loop looks, and how long that takes, no program says. With the trap the launch ends, and
what the others do until then they also do where the wait goes on (docs/soundness.md, "Accesses that
data decides"). So the way to the trap is left out, and the verdict says that it is not gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tilesim.ir.dataflow import mentions
from tilesim.ir.effects import Crosses, Defines, Orders
from tilesim.ir.expr import constant
from tilesim.ir.flowgraph import FlowGraph, graph_of
from tilesim.ir.live import carried
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Instruction, Join, Mir, Trap
from tilesim.ir.op import Op
from tilesim.ir.renumber import renumbered
from tilesim.ir.scalars import word_access
from tilesim.ir.waits import Poll


def with_patience(mir: Mir) -> Mir:
    """``mir`` without the ways on which its loops of polls trap after so many turns, or so long."""
    if not any(isinstance(i.what, Trap) and i.what.aborts for i in mir.code):
        return mir
    graph = graph_of(mir)
    given_up = [found for loop in graph.innermost for found in _given_up(graph, *loop)]
    if not given_up:
        return mir
    onwards = {number: (target,) for number, target, _ in given_up}
    left = {*FlowGraph(mir, instead=onwards).reached()}
    instead: dict[int, tuple[Instruction, ...]] = {n: () for n in graph.reached() if n not in left}
    for number, target, _ in given_up:
        jump = Branch(target=target, loc=mir.code[number].loc)
        # no jump over what is left out: the poll stays in one block with its test
        over = range(number + 1, target)
        falls = target > number and all(instead.get(n) == () for n in over)
        instead[number] = () if falls else (mir.code[number].doing(jump),)
    traps = tuple(dict.fromkeys(trap for _, _, trap in given_up))
    return replace(renumbered(mir, instead), gives_up=traps)


def _given_up(
    graph: FlowGraph, head: int, blocks: Collection[int]
) -> Iterator[tuple[int, int, Loc]]:
    """The branches at which a loop that does nothing but look at what others do gives up: their
    numbers, where who is patient goes on, and where the others trap."""
    mir, doomed = graph.mir, _doomed(graph)
    numbers = [n for block in blocks if block not in doomed for n in graph.blocks[block]]
    if not does_nothing_but_look(mir, numbers) or _goes_on(graph, head, blocks, numbers):
        return
    for block in sorted({graph.block_of[n] for n in numbers}):
        last = graph.blocks[block][-1]
        branch, ways = mir.code[last].what, graph.successors[block]
        traps = [doomed[way] for way in ways if way in doomed]
        if isinstance(branch, Branch) and len(ways) == 2 and traps and _counts(mir, last, numbers):
            taken = graph.block_of[branch.target] in doomed
            yield last, last + 1 if taken else branch.target, traps[0]


def does_nothing_but_look(mir: Mir, numbers: Collection[int]) -> bool:
    """Whether instructions read what others change, and change nothing themselves but registers."""
    looks = [n for n in numbers if _looks(mir, n)]
    return bool(looks) and all(n in looks or _idle(mir, n) for n in numbers)


def _goes_on(
    graph: FlowGraph, head: int, blocks: Collection[int], numbers: Collection[int]
) -> bool:
    """Whether what a loop looks at, or what ends it, depends on earlier turns: it is no wait then,
    but goes through memory, or adds up what it sees there."""
    mir, doomed = graph.mir, _doomed(graph)
    leaving = {
        graph.blocks[block][-1]
        for block in blocks
        if any(way not in blocks and way not in doomed for way in graph.successors[block])
    }
    decides = set[str]()
    for n in numbers:
        decides |= mentions(mir)[n].used if _looks(mir, n) else set()
        decides |= mentions(mir)[n].tested if n in leaving else set()
    return not carried(graph, head, blocks).isdisjoint(_all_of(_made_of(mir, numbers), decides))


def _doomed(graph: FlowGraph) -> dict[int, Loc]:
    """The blocks from which every way traps, each with the place of a trap."""
    found = {
        block: trap.loc
        for block in graph.order
        for n in graph.blocks[block]
        if isinstance(trap := graph.mir.code[n].what, Trap) and trap.aborts and constant(trap.cond)
    }
    changed = True
    while changed:
        changed = False
        for block in reversed(graph.order):
            ways = graph.successors[block]
            if block not in found and ways and all(way in found for way in ways):
                found[block] = found[ways[0]]
                changed = True
    return found


def _looks(mir: Mir, number: int) -> bool:
    """Whether an instruction reads what others change, and changes nothing."""
    if isinstance(mir.code[number].what, Poll):
        return True
    access = word_access(mir.effects[number])
    return access is not None and access.loads and access.sem != "weak"


def _idle(mir: Mir, number: int) -> bool:
    """Whether an instruction only computes registers, looks at the time, goes on, or orders
    accesses of its own thread."""
    what = mir.code[number].what
    if not isinstance(what, Op):
        return isinstance(what, Branch | Join)
    effects = mir.effects[number]
    return all(isinstance(e, Defines | Orders | Crosses) for e in effects)


def _counts(mir: Mir, branch: int, numbers: Collection[int]) -> bool:
    """Whether a branch asks nothing but how many turns a loop has made, or how long it took."""
    made_of = _made_of(mir, numbers)
    effects = [(n, e) for n in numbers for e in mir.effects[n] if isinstance(e, Defines)]
    asked = _all_of(made_of, mentions(mir)[branch].tested)
    if any(e.var.name in asked for n, e in effects if _looks(mir, n)):
        return False
    times = {e.var.name for _, e in effects if e.chance}
    return any(name in times or name in _all_of(made_of, made_of.get(name, ())) for name in asked)


def _made_of(mir: Mir, numbers: Collection[int]) -> dict[str, set[str]]:
    """By register that these instructions set, those of which they make it."""
    found: dict[str, set[str]] = {}
    for n in numbers:
        for effect in mir.effects[n]:
            if isinstance(effect, Defines):
                found.setdefault(effect.var.name, set()).update(mentions(mir)[n].used)
    return found


def _all_of(made_of: Mapping[str, set[str]], names: Collection[str]) -> set[str]:
    """These registers, and those that they are made of."""
    found, new = set[str](), {*names}
    while new:
        found |= new
        new = {part for name in new for part in made_of.get(name, ())} - found
    return found
