"""The control-flow graph of MIR: basic blocks, dominators, post-dominators, loops.

Any graph will do: nothing here asks that branches are nested or that loops have one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType

from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import computed
from tilesim.arith.operators import BINARY, COMPARE, UNARY
from tilesim.ir.expr import Binary, Const, Expr, ScalarParam, Select, Special, Unary, Var
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Branch, Instruction, Join, Mir, Switch
from tilesim.ir.op import Op
from tilesim.records import dataclass


@dataclass(frozen=True)
class Loop:
    """A natural loop: ``head`` dominates its ``blocks``, of which ``tail`` branches back to it."""

    head: int
    tail: int
    blocks: frozenset[int]


class FlowGraph:
    """The basic blocks of a program and what may follow what.

    Blocks are numbered in the order of the code. The last one is empty and stands for the end of
    the warp, be it behind the last instruction or at an ``exit``.

    Args:
        instead: by number, what follows an instruction in place of what it says.
    """

    def __init__(self, mir: Mir, *, instead: Mapping[int, tuple[int, ...]] | None = None) -> None:
        self.mir = mir
        self._instead = instead or {}
        self._sides: dict[int, list[set[int]]] = {}
        end = len(mir.code)
        jumps = {n: self._after(n, i) for n, i in enumerate(mir.code) if _may_jump(i)}
        jumps.update(self._instead)
        starts = {0, end, *(n + 1 for n in jumps), *(n for after in jumps.values() for n in after)}
        bounds = sorted(starts)
        #: the instructions of each block
        self.blocks = (*(range(a, b) for a, b in pairwise(bounds)), range(end, end))
        self.block_of = [k for k, block in enumerate(self.blocks) for _ in block]
        self.block_of.append(len(self.blocks) - 1)
        #: by block, those that may follow, in ascending order
        self.successors: list[tuple[int, ...]] = []
        for block in self.blocks[:-1]:
            after = jumps.get(block[-1], (block.stop,))
            self.successors.append(tuple(sorted({self.block_of[n] for n in after})))
        self.successors.append(())

    def _after(self, number: int, instruction: Instruction) -> tuple[int, ...]:
        match instruction.what:
            case Branch(target=target, cond=None):
                return (target,)
            case Branch(target=target):
                return (number + 1, target)
            case Switch(targets=targets):
                return targets
            case _:
                return (len(self.mir.code),)

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """By block, those that it may follow."""
        return _reversed_edges(self.successors)

    @cached_property
    def order(self) -> list[int]:
        """Blocks that a warp may come to, each before those that follow it but for loops."""
        return reverse_postorder(self.successors, 0)

    @cached_property
    def dominators(self) -> list[int | None]:
        """By block, the last other one that is on every way to it; None where there is none."""
        return dominators(self.order, self.predecessors)

    @cached_property
    def post_dominators(self) -> list[int | None]:
        """By block, the first other one that is on every way from it to the end; None where there
        is none.

        Ways on which all lanes ``exit``, or that never end, do not count if there are others.
        """
        end = len(self.blocks) - 1
        after = [[] if self._exits(b) else [*blocks] for b, blocks in enumerate(self.successors)]
        order = reverse_postorder(_reversed_edges(after), end)
        found = dominators(order, after)
        endless = {*self.order} - {*order}
        exiting = (
            closure(filter(self._exits, self.order), _reversed_edges(after).__getitem__) & endless
        )
        endless -= exiting
        if exiting:
            # all their ways end by an exit: compilers put the one ``ret`` of a kernel in any place
            exits = dominators(
                reverse_postorder(_reversed_edges(self.successors), end), self.successors
            )
            found = [exits[b] if b in exiting else other for b, other in enumerate(found)]
        lost = endless
        while lost:
            # a loop without an end: as if it ended where it was written last
            after[max(lost)].append(end)
            order = reverse_postorder(_reversed_edges(after), end)
            lost = endless - {*order}
        if endless:
            whole = dominators(order, after)
            found = [whole[b] if b in endless else other for b, other in enumerate(found)]
        return found

    def _exits(self, block: int) -> bool:
        """Whether all lanes end in a block, and there is code behind it."""
        numbers = self.blocks[block]
        if not numbers or numbers.stop == len(self.mir.code):
            return False
        last = self.mir.code[numbers[-1]]
        return _may_jump(last) and isinstance(last.what, Op)

    @cached_property
    def reconvergence(self) -> dict[int, int]:
        """By branch: the `Join` (or the end) at which lanes that it splits have met."""
        end = len(self.mir.code)
        joins = {
            b: block.start
            for b, block in enumerate(self.blocks[:-1])
            if isinstance(self.mir.code[block.start].what, Join)
        }
        found = {}
        for block, after in enumerate(self.successors):
            if len(after) > 1:
                at = self.post_dominators[block]
                while at is not None and at not in joins:
                    at = self.post_dominators[at]
                found[self.blocks[block][-1]] = end if at is None else joins[at]
        return found

    def sides(self, number: int) -> list[set[int]]:
        """What may be executed on each side of a branch before its lanes meet."""
        if number not in self._sides:
            starts = (self.blocks[b].start for b in self.successors[self.block_of[number]])
            meet = self.reconvergence[number]
            self._sides[number] = [self.between(start, meet) for start in starts]
        return self._sides[number]

    def inside(self, number: int) -> set[int]:
        """What may be executed behind a branch before its lanes meet."""
        return set[int]().union(*self.sides(number))

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """The natural loops, one per way back, in the order of these."""
        return tuple(
            self._loop(head, tail)
            for tail in sorted(self.order)
            for head in self.successors[tail]
            if self.dominates(head, tail)
        )

    @cached_property
    def back_edges(self) -> frozenset[tuple[int, int]]:
        """The edges that lead to no later block of `order`: whatever may be executed again comes
        along one, also round what is no natural loop, as it has several entries."""
        place = {block: at for at, block in enumerate(self.order)}
        return frozenset(
            (block, after)
            for block in self.order
            for after in self.successors[block]
            if place[after] <= place[block]
        )

    @cached_property
    def repeated(self) -> frozenset[int]:
        """The blocks that a warp may come to more than once: those of which one follows another
        and is followed by it (strongly connected components, by Kosaraju's algorithm)."""
        found, left = set[int](), {*self.order}

        def before(block: int) -> list[int]:
            return [one for one in self.predecessors[block] if one in left]

        for root in self.order:
            if root in left:
                component = closure((root,), before)
                left -= component
                if len(component) > 1 or root in self.successors[root]:
                    found |= component
        return frozenset(found)

    @cached_property
    def innermost(self) -> list[tuple[int, set[int]]]:
        """The head and the blocks of each loop, with all ways back, in which there is no other."""
        blocks: dict[int, set[int]] = {}
        for loop in self.loops:
            blocks.setdefault(loop.head, set()).update(loop.blocks)
        return [
            (head, inside)
            for head, inside in blocks.items()
            if not any(other in inside for other in blocks if other != head)
        ]

    @cached_property
    def ranks(self) -> list[int]:
        """By number (the end included), the place of its block in `order`; last if it has none."""
        place = {block: at for at, block in enumerate(self.order)}
        return [place.get(block, len(self.blocks)) for block in self.block_of]

    def after(self, number: int) -> set[int]:
        """The numbers of what may be executed after an instruction: in a loop, it as well."""
        own = self.block_of[number]
        later = {n for n in self.blocks[own] if n > number}
        found = closure(self.successors[own], self.successors.__getitem__)
        return later.union(*(self.blocks[block] for block in found))

    def between(self, start: int, stop: int) -> set[int]:
        """The numbers of what may be executed from one instruction on, before another one that
        begins a block."""
        end, first = self.block_of[stop], self.block_of[start]
        found = closure([first], lambda b: () if b == end else self.successors[b])
        return {number for block in found - {end} for number in self.blocks[block]}

    def on_paths(self, start: int, stop: int) -> set[int]:
        """What may be executed after ``start`` and before ``stop``, with no ``start`` between."""

        def after(number: int) -> Iterable[int]:
            block = self.block_of[number]
            if number + 1 in self.blocks[block]:
                return (number + 1,)
            return (self.blocks[b].start for b in self.successors[block])

        def before(number: int) -> Iterable[int]:
            block = self.block_of[number]
            if number - 1 in self.blocks[block]:
                return (number - 1,)
            return (self.blocks[b].stop - 1 for b in self.predecessors[block])

        onwards = closure(after(start), lambda n: () if n == start else after(n))
        return onwards & closure(before(stop), lambda n: () if n == start else before(n)) - {start}

    def reaches(self, start: int, number: int) -> bool:
        """Whether instruction ``number`` is executed at ``start``, or may be after it."""
        end = len(self.mir.code)
        if start == end:
            return False
        first, last = self.block_of[start], self.block_of[number]
        if first == last and number >= start:
            return True
        after = (self.blocks[b] for b in self.successors[first])
        return any(number in self.between(b.start, end) for b in after)

    def must_follow(self, number: int, other: int) -> bool:
        """Whether ``other`` is executed on every way from ``number`` to the end."""
        block, at = self.block_of[other], self.block_of[number]
        if at == block:
            return other > number
        first, last = self._post_dominated[block]
        return first <= self._post_dominated[at][0] < last

    def dominates(self, block: int, other: int) -> bool:
        """Whether ``block`` is on every way to ``other``, or is it."""
        first, last = self._dominated[block]
        return first <= self._dominated[other][0] < last

    @cached_property
    def _dominated(self) -> list[tuple[int, int]]:
        return spans(self.dominators)

    @cached_property
    def _post_dominated(self) -> list[tuple[int, int]]:
        return spans(self.post_dominators)

    def _loop(self, head: int, tail: int) -> Loop:
        blocks = closure([tail], lambda b: () if b == head else self.predecessors[b])
        return Loop(head, tail, frozenset(blocks))

    def reached(self) -> Iterator[int]:
        """The numbers of the instructions that a warp may come to, block by block."""
        return (number for block in self.order for number in self.blocks[block])


@cached
def graph_of(mir: Mir) -> FlowGraph:
    """The control flow of a program."""
    return FlowGraph(mir)


def sides_that_compute(graph: FlowGraph, number: int) -> tuple[int, ...] | None:
    """The instructions behind a branch before its lanes meet, if all they do is compute registers,
    without loops; else None."""
    branch = graph.mir.code[number].what
    if not isinstance(branch, Branch) or branch.polls or number not in graph.reconvergence:
        return None
    inside = graph.inside(number)
    blocks = {graph.block_of[n] for n in (number, *inside)}
    if any(block in blocks and after in blocks for block, after in graph.back_edges):
        return None
    return tuple(sorted(inside)) if all(_computes(graph.mir, n) for n in inside) else None


def _computes(mir: Mir, number: int) -> bool:
    match mir.code[number].what:
        case Op():
            return computed(mir.effects[number]) is not None
        case Branch(polls=polls):
            return not polls
        case what:
            return isinstance(what, Join)


def _may_jump(instruction: Instruction) -> bool:
    what = instruction.what
    if isinstance(what, Op):
        return what.mnemonic == "exit" and instruction.guard is None
    return isinstance(what, Branch | Switch)


#: lanes of a warp
LANES = 32


def known(
    expr: Expr, warp: int | None, values: Mapping[str, int] = MappingProxyType({})
) -> int | float | None:
    """The value of an expression that depends on nothing but the number of the warp, if it is
    given, and registers with ``values``; else None."""
    match expr:
        case Var(name):
            return values.get(name)
        case Const(value) | ScalarParam(_, value):
            return value
        case Special("warp_id"):
            return warp
        case Unary(op, operand):
            inner = known(operand, warp, values)
            return None if inner is None else UNARY[op](inner)
        case Binary(op, lhs, rhs):
            left, right = known(lhs, warp, values), known(rhs, warp, values)
            if (left or right) and (op == "or" or (op == "|" and is_truth(expr))):
                return True
            if op in ("and", "&") and 0 in (left, right):
                return 0
            if left is None or right is None or (op in ("//", "%") and not right):
                return None
            return BINARY[op](left, right)
        case Select(cond, then, other):
            chosen = known(cond, warp, values)
            return None if chosen is None else known(then if chosen else other, warp, values)
        case _:
            return None


def is_truth(expr: Expr) -> bool:
    """Whether an expression is true or false, and no other number."""
    match expr:
        case Binary("|" | "&" | "^", lhs, rhs):
            return is_truth(lhs) and is_truth(rhs)
        case Binary(op):
            return op in COMPARE
        case Unary(op):
            return op == "not"
        case _:
            return isinstance(expr, Var) and expr.dtype.kind == "pred"


def _reversed_edges(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    result: list[list[int]] = [[] for _ in edges]
    for source, targets in enumerate(edges):
        for target in targets:
            result[target].append(source)
    return result


def reverse_postorder(edges: Sequence[Sequence[int]], root: int) -> list[int]:
    """What can be reached from ``root``, each before what follows it but for loops.

    Of several that follow, those with lower numbers come first where both may.
    """
    done: list[int] = []
    seen = {root}
    stack = [(root, iter(sorted(edges[root], reverse=True)))]
    while stack:
        node, left = stack[-1]
        for target in left:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(sorted(edges[target], reverse=True))))
                break
        else:
            done.append(node)
            stack.pop()
    return done[::-1]


def spans(parents: Sequence[int | None]) -> list[tuple[int, int]]:
    """The places of each node of a forest and of what is below it, in one order: from, and up to.

    One node is above another, or is it, if its span has the other's first place.
    """
    below: list[list[int]] = [[] for _ in parents]
    order = [node for node, parent in enumerate(parents) if parent is None]
    for node, parent in enumerate(parents):
        if parent is not None:
            below[parent].append(node)
    found = [(0, 0)] * len(parents)
    sizes = [1] * len(parents)
    for node in order:  # grows: each comes after its parent
        order.extend(below[node])
    for node in reversed(order):
        if (parent := parents[node]) is not None:
            sizes[parent] += sizes[node]
    free = 0
    for node in order:
        if parents[node] is None:
            found[node] = (free, free + sizes[node])
            free += sizes[node]
        first = found[node][0] + 1
        for child in below[node]:
            found[child] = (first, first + sizes[child])
            first += sizes[child]
    return found


def dominators(order: Sequence[int], before: Sequence[Sequence[int]]) -> list[int | None]:
    """Immediate dominators of what ``order``, a reverse postorder, holds (Cooper, Harvey, Kennedy,
    "A simple, fast dominance algorithm", 2001)."""
    place = {node: at for at, node in enumerate(order)}
    found: list[int | None] = [None] * len(before)
    root = order[0]
    found[root] = root

    def common(a: int, b: int) -> int:
        while a != b:
            if place[a] < place[b]:
                a, b = b, a
            up = found[a]
            assert up is not None
            a = up
        return a

    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            new: int | None = None
            for source in before[node]:
                if source in place and found[source] is not None:
                    new = source if new is None else common(source, new)
            if new != found[node]:
                found[node], changed = new, True
    found[root] = None
    return found
