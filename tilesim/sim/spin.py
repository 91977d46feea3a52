"""Loops that do nothing but wait for a word of memory to reach a value, and words that only count.

``while reg < t: reg = ld x`` is a wait if nothing else uses what it loads; so is a loop that polls
before its test. The words of a tensor
are counters if every access to them is such a wait, a reduction by add, or a scalar store. Whether
one run proves what they order is for `tilesim.sim.machine.counter` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tilesim.ir.dataflow import (
    OPERANDS,
    aliases,
    at_addresses,
    expressions_in,
    reached,
    tensors_read,
    tensors_written,
)
from tilesim.ir.effects import Crosses, Effect, Orders
from tilesim.ir.expr import Binary, Const, Expr, Unary, Var, unary, walk
from tilesim.ir.flowgraph import FlowGraph, Loop, representatives
from tilesim.ir.memory import Mbarriers
from tilesim.ir.mir import Branch, Instruction, Join, Mir, condition
from tilesim.ir.op import Op
from tilesim.ir.scalars import WordAccess, word_access

#: a spin ends when the word is ``least`` or more, exactly ``equal``, or anything ``other``
Until = Literal["least", "equal", "other"]
_INTEGERS = ("int", "uint")

_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
#: by the comparison that keeps the loop going: how it ends, and what to add to the bound
_ENDS: dict[str, tuple[Until, int]] = {
    "<": ("least", 0), "<=": ("least", 1), "!=": ("equal", 0), "==": ("other", 0),
}  # fmt: skip


@dataclass(frozen=True)
class Spin:
    """What a poll waits for: until the word is ``until`` the value of ``goal``, plus ``more``.

    ``head``: where the loop begins. ``first``: the poll comes before its loop, which repeats it.
    ``kept``: the loop is entered again with what was loaded, and polls only if that is not enough.
    """

    poll: WordAccess
    until: Until
    goal: Expr
    more: int
    head: int
    first: bool = False
    kept: bool = False


@dataclass(frozen=True)
class _Wait:
    """A loop that is a wait: the numbers of its poll and of the branch that tests what was loaded,
    its way back, and where it goes on. ``first``: the poll before it that it repeats, or -1;
    ``late``: it polls before it tests."""

    spin: Spin
    poll: int
    test: int
    back: int
    past: int
    first: int
    late: bool


def spins(graph: FlowGraph) -> dict[int, Spin]:
    """The polls of all waits on words of memory, by their numbers."""
    waits = [wait for loop in graph.loops if (wait := _wait(graph, loop)) is not None]
    if not waits:
        return {}
    found = {w.poll: w.spin for w in waits}
    for wait in waits:
        before = word_access(graph.mir.effects[wait.first]) if wait.first >= 0 else None
        if before is not None and before.loads:
            found[wait.first] = replace(wait.spin, poll=before, first=True)
    used, kept = _used(graph.mir, waits, found.keys())
    for poll in kept - used:
        if found[poll].until == "least" and found[poll].poll.loads:
            found[poll] = replace(found[poll], kept=True)
        else:
            used.add(poll)
    return {number: spin for number, spin in found.items() if number not in used}


def counters(mir: Mir, found: Mapping[int, Spin]) -> frozenset[str]:
    """Integer tensors of which every access is a wait, an ``atom.add``, or a scalar store.

    Either no addition to a word uses what it finds there, or all of them do: they draw numbers.
    """
    kernel = mir.kernel
    drawing = drawn_tensors(mir)
    polled = {s.poll.view.tensor.name for s in found.values()}
    names = {
        tensor.name
        for tensor in (*kernel.tensors, *kernel.shared)
        if not isinstance(tensor, Mbarriers) and tensor.dtype.kind in _INTEGERS
    } & (polled | drawing)
    names -= {name for pair in (*aliases(kernel), *reached(mir)) for name in pair}
    types = {tensor.name: tensor.dtype for tensor in kernel.tensors}
    names -= {t.name for t in at_addresses(mir) if types.get(t.name) != t.dtype}
    for number, effects in enumerate(mir.effects):
        touched = {n for e in effects for n in (*tensors_read(e), *tensors_written(e))} & names
        if touched and number not in found and not _counts(effects):
            names -= touched
    return frozenset(names)


def drawn_tensors(mir: Mir) -> frozenset[str]:
    """Tensors with an addition whose result is used."""
    return frozenset(
        access.view.tensor.name
        for access in map(word_access, mir.effects)
        if access is not None and access.combine == "add" and access.result is not None
    )


def only_drawn(mir: Mir, name: str) -> bool:
    """Whether the result of every addition to a tensor is used."""
    return not any(
        access is not None
        and access.combine is not None
        and access.result is None
        and access.view.tensor.name == name
        for access in map(word_access, mir.effects)
    )


def _counts(effects: tuple[Effect, ...]) -> bool:
    access = word_access(effects)
    return access is not None and (access.stores or access.combine == "add")


def _wait(graph: FlowGraph, loop: Loop) -> _Wait | None:
    """The wait that a loop is, if it only polls and tests; else None."""
    turn = graph.turn(loop)
    tests = [n for n in turn if isinstance(graph.mir.code[n].what, Branch)]
    polls = [n for n in turn if n not in tests and not _is_fence(graph.mir.effects[n])]
    if len(tests) != 1 or len(polls) != 1 or polls[0] != next(n for n in turn if n not in tests):
        return None
    (test,), (poll,) = tests, polls
    branch = graph.mir.code[test].what
    assert isinstance(branch, Branch)
    assert branch.cond is not None
    past = next(b for b in graph.successors[graph.block_of[test]] if b not in loop.blocks)
    leaves = branch.sense == (graph.block_of[branch.target] == past)
    goes_on = unary("not", branch.cond) if leaves else branch.cond
    spin = _spin(word_access(graph.mir.effects[poll]), goes_on, graph.blocks[loop.head].start)
    if spin is None:
        return None
    late = turn.index(test) > turn.index(poll)
    first = -1 if late else _repeated(graph, loop, poll)
    back, past = graph.blocks[loop.tail][-1], graph.blocks[past].start
    return _Wait(spin, poll, test, back, past, first, late)


def _spin(poll: WordAccess | None, goes_on: Expr, head: int) -> Spin | None:
    """The wait that repeating an access is while a condition holds."""
    if poll is None or poll.result is None:
        return None
    if not (poll.sem != "weak" if poll.loads else poll.keeps):
        return None
    var = poll.result
    bound = _bound(goes_on, var)
    if bound is None or bound[0] not in _ENDS:
        return None
    operands = [bound[1], *expressions_in(poll.view)]
    if poll.value is not None:
        operands.append(poll.value)
    if any(_mentions(e, var) for e in operands):
        return None
    until, more = _ENDS[bound[0]]
    return Spin(poll, until, bound[1], more, head)


def _is_fence(effects: tuple[Effect, ...]) -> bool:
    """Whether an instruction does nothing but order accesses of its own thread."""
    return bool(effects) and all(
        isinstance(e, Crosses) or (isinstance(e, Orders) and (e.acquires or e.releases))
        for e in effects
    )


def _bound(cond: Expr, var: Var) -> tuple[str, Expr] | None:
    """The comparison that ``cond`` makes between the register and something else."""
    match cond:
        case Unary("not", Var() as flag) if flag == var:
            return "==", Const(0)
        case Unary("not", inner):
            found = _bound(inner, var)
            return found and (_NEGATED[found[0]], found[1])
        case Binary(op, lhs, rhs) if op in _MIRRORED and lhs == var:
            return op, rhs
        case Binary(op, lhs, rhs) if op in _MIRRORED and rhs == var:
            return _MIRRORED[op], lhs
        case Binary(op, lhs, rhs) if op in _MIRRORED and var.dtype.kind == "int":
            moved = _moved(lhs, rhs, var)
            return moved and (_MIRRORED[op] if moved[0] else op, moved[1])
        case _:
            return None


def _moved(lhs: Expr, rhs: Expr, var: Var) -> tuple[bool, Expr] | None:
    """Whether ``lhs`` has the register with a minus, and what to compare it with alone."""
    match lhs:
        case Binary("-", other, inner) if inner == var:
            return True, other - rhs
        case Binary("-", inner, other) if inner == var:
            return False, rhs + other
        case Binary("+", inner, other) | Binary("+", other, inner) if inner == var:
            return False, rhs - other
        case _:
            return None


def _mentions(expr: Expr, var: Var) -> bool:
    return any(isinstance(e, Var) and e.name == var.name for e in walk(expr))


def _repeated(graph: FlowGraph, loop: Loop, poll: int) -> int:
    """The poll that is the last instruction before a loop that repeats it; -1 if there is none."""
    code = graph.mir.code
    entries = [b for b in graph.predecessors[loop.head] if b not in loop.blocks]
    if len(entries) != 1:
        return -1
    numbers = (n for n in reversed(graph.blocks[entries[0]]) if not isinstance(code[n].what, Join))
    before = next(numbers, -1)
    if before < 0 or code[before].guard is not None:
        return -1
    first, again = (word_access(graph.mir.effects[n]) for n in (before, poll))
    if again is None or not again.loads or first != again:
        return -1
    return before if again.view.cta is None else -1


def _used(mir: Mir, waits: list[_Wait], polls: Iterable[int]) -> tuple[set[int], set[int]]:
    """The polls whose value is used by anything but the condition of their own loop, and those
    whose loop is entered again with it.

    In the program in which these loops make one trip, what a condition can see is what was there
    before the loop; it may be what the poll before it has seen. One that follows its poll sees
    that.
    """
    used: set[int] = set()
    kept: set[int] = set()
    tests = {wait.test: wait for wait in waits}
    once = {wait.back: (wait.past,) for wait in waits}
    for warp in representatives(mir):
        graph = FlowGraph(mir, warp=warp, instead=once)
        for number in graph.reached():
            seen = _setters(graph, number) & {*polls}
            wait = tests.get(number)
            if wait is not None and wait.late:
                seen -= {wait.poll}
            elif wait is not None:
                again = seen & {wait.poll} if wait.first < 0 else set()
                kept |= again
                seen -= {wait.first, *again}
            used |= seen
    return used, kept


def _setters(graph: FlowGraph, number: int) -> set[int]:
    """What may have set the registers that an instruction uses."""
    instruction = graph.mir.code[number]
    names = {e.name for x in _operands(instruction) for e in walk(x) if isinstance(e, Var)}
    return {setter for name in names for setter in graph.reaching.setters(number, name)}


def _operands(instruction: Instruction) -> Iterator[Expr]:
    """The expressions that an instruction evaluates, results left out."""
    cond, op = condition(instruction), instruction.what
    if cond is not None:
        yield cond
    if isinstance(op, Op):
        for name in OPERANDS[type(op)]:
            yield from expressions_in(getattr(op, name))
