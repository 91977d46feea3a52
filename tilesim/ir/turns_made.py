"""Loops of polls that go on without what they wait for after so many turns.

    again: try_wait p, [b], parity
           branch out, cond=p
           n = n + 1
           branch again, cond=n < 1000000    ->    branch again, cond=n < 2
    out:   load what was waited for

Such a loop does nothing but look, at the same in each turn, and nobody uses how often it has
looked, or what it has seen before the last look. So whoever gives up after a million turns might do
so after two that come later, and who passes earlier might look then: both programs do the same, in
other schedules. Of the second one, some of those are found in which somebody gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from operator import eq, ge, gt, le, lt, ne

from tilesim.ir.dataflow import mentions
from tilesim.ir.expr import Binary, Const, Expr, Unary, Var, constant, walk
from tilesim.ir.flowgraph import FlowGraph, graph_of
from tilesim.ir.live import carried
from tilesim.ir.mir import Branch, Instruction, Mir
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.patience import does_nothing_but_look
from tilesim.ir.renumber import renumbered

#: turns that a loop makes at most, and those of which it is made one of fewer
_FEW, _MANY = 2, 8
_TESTS: Mapping[str, Callable[[int, int], bool]] = {
    "<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne,
}  # fmt: skip


def with_fewer_turns(mir: Mir) -> Mir:
    """``mir`` in which polls that are given up after many turns are given up after a few."""
    graph = graph_of(mir)
    instead: dict[int, tuple[Instruction, ...]] = {}
    for head, blocks in graph.innermost:
        numbers = sorted(n for block in blocks for n in graph.blocks[block])
        if does_nothing_but_look(mir, numbers):
            instead.update(_shortened(graph, numbers, carried(graph, head, blocks)))
    return renumbered(mir, instead) if instead else mir


def _shortened(
    graph: FlowGraph, numbers: Collection[int], kept: Collection[str]
) -> Iterator[tuple[int, tuple[Instruction, ...]]]:
    """What asks in such a loop how many turns it has made, asking for fewer; ``kept`` are the
    registers in which it finds what the turn before has left."""
    code = graph.mir.code
    for number in numbers:
        counts = code[number].what
        if not isinstance(counts, Assign) or code[number].guard is not None:
            continue
        match counts.value:
            case Binary("+", lhs, Const(int() as by)) if lhs == counts.var and by:
                begins, by = _begins(graph, counts.var.name, number), _signed(by, counts.var)
                asked = list(_asked(graph, counts.var.name, number))
            case _:
                continue
        if begins is None or len(asked) != 1 or asked[0] not in numbers:
            continue
        if kept != {counts.var.name}:
            continue  # a turn is not as the one before it: it looks elsewhere, or adds what it sees
        match code[asked[0]].what:
            case Branch(cond=Expr() as cond) as branch:
                sooner = _sooner(cond, counts.var, begins, by)
                if sooner is not None:
                    yield asked[0], (code[asked[0]].doing(replace(branch, cond=sooner)),)
            case Assign(value=Expr() as value) as test:
                sooner = _sooner(value, counts.var, begins, by)
                if sooner is not None:
                    yield asked[0], (code[asked[0]].doing(replace(test, value=sooner)),)
            case _:
                pass


def _signed(number: int, var: Var) -> int:
    """A number that is added to a register of so many bits, where a large one is taken off."""
    bits = var.dtype.bits
    return number - (1 << bits) if number >> (bits - 1) == 1 else number


def _begins(graph: FlowGraph, name: str, counts: int) -> int | None:
    """What a register holds where the loop that counts in it begins; None if that differs."""
    before = [n for n in graph.reaching.setters(counts, name) if n != counts]
    found = {_number(graph, setter) for setter in before}
    return found.pop() if len(found) == 1 else None


def _number(graph: FlowGraph, setter: int, copies: int = 4) -> int | None:
    """The number that an instruction sets its register to, maybe by way of others."""
    instruction = graph.mir.code[setter]
    if not isinstance(instruction.what, Assign) or instruction.guard is not None or not copies:
        return None
    match instruction.what.value:
        case Var(name):
            setters = graph.reaching.setters(setter, name)
            found = {_number(graph, n, copies - 1) for n in setters}
            return found.pop() if len(found) == 1 else None
        case value:
            known = constant(value)
            return known if type(known) is int else None


def _asked(graph: FlowGraph, name: str, counts: int) -> Iterator[int]:
    """The instructions, but for the one that counts, that use what it leaves in a register."""
    for number, named in enumerate(mentions(graph.mir)):
        mentioned = number != counts and (name in named.tested or name in named.used)
        if mentioned and counts in graph.reaching.setters(number, name):
            yield number


def _sooner(cond: Expr, counter: Var, begins: int, by: int) -> Expr | None:
    """A condition that comes out otherwise after a few turns, if it does so after many."""
    tests = [
        part for part in walk(cond)
        if isinstance(part, Binary) and part.op in _TESTS and part.lhs == counter
        and isinstance(part.rhs, Const) and type(part.rhs.value) is int
    ]  # fmt: skip
    uses = sum(part == counter for part in walk(cond))
    if len(tests) != 1 or uses != 1:
        return None
    (test,) = tests
    assert isinstance(test.rhs, Const)
    assert isinstance(test.rhs.value, int)
    turns = _turns(_TESTS[test.op], begins, by, test.rhs.value)
    if turns is None or turns <= _MANY:
        return None
    sooner = replace(test, rhs=Const(test.rhs.value - (turns - _FEW) * by))
    return _with(cond, test, sooner)


def _with(expr: Expr, old: Expr, new: Expr) -> Expr | None:
    """``expr`` with one part in another's place; None if that is where nothing is looked for."""
    match expr:
        case Expr() if expr == old:
            return new
        case Binary(lhs=lhs):  # PTX combines a comparison with what is to its right
            found = _with(lhs, old, new)
            return None if found is None else replace(expr, lhs=found)
        case Unary(operand=operand):
            found = _with(operand, old, new)
            return None if found is None else replace(expr, operand=found)
        case _:
            return None


def _turns(holds: Callable[[int, int], bool], begins: int, by: int, stop: int) -> int | None:
    """After how many steps a comparison comes out otherwise than at first."""
    first = holds(begins, stop)
    near = (stop - begins) // by
    for turns in range(max(near - 1, 1), near + 3):
        if holds(begins + turns * by, stop) is not first:
            return turns
    return None
