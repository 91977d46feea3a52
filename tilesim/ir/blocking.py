"""Loops of polls as the blocking waits that they are (A25), in any control-flow graph.

    again: try_wait p, [b], parity           wait [b], parity
           branch again, cond=not p    ->    mov p, 1

What is computed from the answer in between, or for the poll, and a poll before that jumps over the
loop, are kept: the latter becomes the guard of the wait (`tilesim.ir.waits`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilesim.ir.backoff import without_backoff
from tilesim.ir.dataflow import OPERANDS, expressions_in, mentions, sets_only
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Binary as BinaryExpr
from tilesim.ir.expr import Const, Expr, Select, Unary, Var, binary, select, unary
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.flowgraph import FlowGraph, Loop, graph_of
from tilesim.ir.mir import Branch, Instruction, Mir, condition
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MbarrierWait
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.patience import with_patience
from tilesim.ir.renumber import renumbered
from tilesim.ir.turns_made import with_fewer_turns
from tilesim.ir.waits import Poll


def blocking(mir: Mir) -> Mir:
    """``mir`` with a wait in place of each loop that only repeats a poll until it succeeds."""
    mir = _answered(without_backoff(with_fewer_turns(with_patience(mir))))
    graph = graph_of(mir)
    instead: dict[int, tuple[Instruction, ...]] = {}
    for loop in graph.loops:
        instead.update(_as_wait(graph, loop))
    return _guarded(renumbered(mir, instead) if instead else mir)


# ---------------------------------------------------------------------- answers


def _answered(mir: Mir) -> Mir:
    """Answers of polls that are only copied are set where they are copied to."""
    polls = [n for n, i in enumerate(mir.code[:-1]) if isinstance(i.what, Poll)]
    uses = Counter(v for i in mir.code for v in _used(i)) if polls else Counter[str]()
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number in polls:
        instruction, after = mir.code[number], mir.code[number + 1]
        poll = instruction.what
        always = instruction.guard is None and after.guard is None
        if isinstance(poll, Poll) and always and isinstance(after.what, Assign):
            copy = after.what
            if _copies(copy.value, poll.result) and uses[poll.result.name] == 1:
                result = replace(poll, result=copy.var)
                instead[number] = (replace(instruction, what=result),)
                instead[number + 1] = ()
    return _answered(renumbered(mir, instead)) if instead else mir


def _copies(value: Expr, flag: Var) -> bool:
    one = evaluated(value, {flag.name: Const(1)})
    zero = evaluated(value, {flag.name: Const(0)})
    return (one, zero) == (Const(1), Const(0))


def _used(instruction: Instruction) -> Iterator[str]:
    cond, op = condition(instruction), instruction.what
    expressions = [] if cond is None else [cond]
    if isinstance(op, Op):
        expressions += [e for name in OPERANDS[type(op)] for e in expressions_in(getattr(op, name))]
    return (x.name for e in expressions for x in walk_expr(e) if isinstance(x, Var))


def evaluated(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """``expr`` with these values of registers, as far as they decide it."""
    match expr:
        case Var(name):
            return values.get(name, expr)
        case Unary(op, operand):
            return unary(op, evaluated(operand, values))
        case BinaryExpr(op, lhs, rhs):
            return binary(op, evaluated(lhs, values), evaluated(rhs, values))
        case Select(cond, then, other):
            parts = (evaluated(e, values) for e in (cond, then, other))
            return select(*parts)
        case _:
            return expr


# ---------------------------------------------------------------------- loops


def _as_wait(graph: FlowGraph, loop: Loop) -> dict[int, tuple[Instruction, ...]]:
    """What stands for a loop that only polls; nothing if it does more."""
    code = graph.mir.code
    turn = graph.turn(loop)
    # what has no effect, as a nanosleep, may stay
    turn = [n for n in turn if graph.mir.effects[n] or isinstance(code[n].what, Branch)]
    turn = turn[_prepared(graph, turn) :]
    if len(turn) < 2:
        return {}
    number, *copies, test = turn
    poll, branch = code[number].what, code[test].what
    if not isinstance(poll, Poll) or not isinstance(branch, Branch):
        return {}
    again, done = ({poll.result.name: Const(n)} for n in (0, 1))
    if not all(_copy(code[n], again) and _copy(code[n], done) for n in copies):
        return {}
    inside = graph.block_of[branch.target] in loop.blocks
    goes_on = [_taken(branch, values) is inside for values in (again, done)]
    known = all(_taken(branch, values) is not None for values in (again, done))
    changed = {poll.result.name, *again} & {*_used(code[number])}
    if not known or goes_on != [True, False] or changed:
        return {}
    wait = MbarrierWait(
        mbar=poll.mbar, phase=poll.phase, parity=poll.parity, sem=poll.sem, scope=poll.scope,
        loc=poll.loc,
    )  # fmt: skip
    answer = Assign(var=poll.result, value=Const(1), loc=poll.loc)
    leave = replace(branch, cond=None, sense=True, polls=False)
    # nobody comes behind a test that always leaves: the way back, if it is a jump of its own
    dead = () if inside else _way_back(graph, loop, test)
    gone = inside or branch.target == test + 1 + len(dead)
    instead: dict[int, tuple[Instruction, ...]] = {
        number: tuple(replace(code[number], what=what) for what in (wait, answer)),
        test: () if gone else (replace(code[test], what=leave),),
        **dict.fromkeys(dead, ()),
    }
    for n in copies:
        copy = code[n].what
        if isinstance(copy, Assign):
            instead[n] = (replace(code[n], what=replace(copy, value=done[copy.var.name])),)
    return instead


def _way_back(graph: FlowGraph, loop: Loop, test: int) -> tuple[int, ...]:
    """The jump to the head of a loop that stands right behind its test, if it does."""
    match graph.mir.code[test + 1].what:
        case Branch(cond=None) if graph.blocks[loop.tail] == range(test + 1, test + 2):
            return (test + 1,)
        case _:
            return ()


def _prepared(graph: FlowGraph, turn: list[int]) -> int:
    """How many instructions at the beginning of a turn set registers, each turn to the same."""
    code, effects = graph.mir.code, graph.mir.effects
    sets = Counter(e.var.name for n in turn for e in effects[n] if isinstance(e, Defines))
    before: set[str] = set()
    for place, number in enumerate(turn):
        what, own = code[number].what, effects[number]
        results = {e.var.name for e in own if isinstance(e, Defines) and not e.chance}
        if not isinstance(what, Op) or not sets_only(what) or len(results) < len(own):
            return place
        read = mentions(graph.mir)[number].used
        if any(sets[name] > 1 for name in results) or any(sets[n] for n in read - before):
            return place
        before |= results
    return len(turn)


def _copy(instruction: Instruction, values: dict[str, Const]) -> bool:
    """Follows an assignment of what is known; False for any other instruction."""
    if instruction.guard is not None or not isinstance(instruction.what, Assign):
        return False
    value = evaluated(instruction.what.value, values)
    if not isinstance(value, Const):
        return False
    values[instruction.what.var.name] = value
    return True


def _taken(branch: Branch, values: Mapping[str, Const]) -> bool | None:
    """Whether a branch is taken; None if that is not known."""
    value = None if branch.cond is None else evaluated(branch.cond, values)
    return bool(value.value) is branch.sense if isinstance(value, Const) else None


# ---------------------------------------------------------------------- polls before


def _guarded(mir: Mir) -> Mir:
    """A branch on the answer of a poll that only jumps over a wait, as the guard of the wait."""
    graph = graph_of(mir)
    flags = _flags(mir)
    if not flags:
        return mir
    uses = Counter(v for i in mir.code for v in _used(i))
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number, instruction in enumerate(mir.code):
        branch = instruction.what
        if not isinstance(branch, Branch):
            continue
        inside = _jumped_over(graph, number, branch.target, uses)
        if not inside:
            continue
        tested, setters = _tested(graph, number, branch, uses)
        for flag in (f for f in flags if _unless(tested, f)):
            # what is computed of the wait's answer, and not used behind it
            idle = [n for n in range(inside[0], branch.target) if n not in inside]
            left = uses - Counter(v for n in idle for v in _used(mir.code[n]))
            instead.update((n, ()) for n in (number, *setters, *idle))
            for n in inside:
                what = mir.code[n].what
                # an answer that nobody looks at need not be set
                unused = isinstance(what, Assign) and what.var != flag and not left[what.var.name]
                guarded = replace(mir.code[n], guard=Unary("not", flag))
                instead[n] = () if unused else (guarded,)
    return renumbered(mir, instead) if instead else mir


def _tested(
    graph: FlowGraph, number: int, branch: Branch, uses: Counter[str]
) -> tuple[Branch, tuple[int, ...]]:
    """A branch with what its register was set to right before, and the instruction that set it, if
    nobody else uses that; otherwise the branch."""
    before = number - 1
    code = graph.mir.code
    if not isinstance(branch.cond, Var) or before not in graph.blocks[graph.block_of[number]]:
        return branch, ()
    made = code[before].what
    if not isinstance(made, Assign) or made.var != branch.cond or code[before].guard is not None:
        return branch, ()
    if uses[made.var.name] != 1:
        return branch, ()
    return replace(branch, cond=made.value), (before,)


def _flags(mir: Mir) -> set[Var]:
    """Registers with the answers of polls, and nothing but 0 and 1 otherwise."""
    polled = {i.what.result for i in mir.code if isinstance(i.what, Poll)}
    if not polled:
        return polled
    for instruction, effects in zip(mir.code, mir.effects, strict=True):
        op = instruction.what
        whole = isinstance(op, Assign) and op.value in (Const(0), Const(1))
        if not whole and not isinstance(op, Poll):
            polled -= {e.var for e in effects if isinstance(e, Defines)}
    return polled


def _jumped_over(graph: FlowGraph, number: int, target: int, uses: Counter[str]) -> list[int]:
    """The wait that the other way of a branch is, and what sets constants; nothing if it is more.

    What is computed there for the wait alone may be computed always.
    """
    code, block = graph.mir.code, graph.block_of[number + 1]
    inside = range(number + 1, target)
    if graph.blocks[block] != inside:
        return []
    if graph.predecessors[block] != [graph.block_of[number]]:
        return []
    within = Counter(v for n in inside for v in _used(code[n]))

    def alone(what: object) -> bool:
        return isinstance(what, Assign) and within[what.var.name] == uses[what.var.name]

    found = [n for n in inside if not alone(code[n].what)]
    wait, *answers = (code[n] for n in found) if found else (code[number],)
    right = (
        isinstance(wait.what, MbarrierWait)
        and all(isinstance(a.what, Assign) and isinstance(a.what.value, Const) for a in answers)
        and all(code[n].guard is None for n in inside)
    )
    return found if right else []


def _unless(branch: Branch, flag: Var) -> bool:
    """Whether a branch is taken exactly if a poll has succeeded."""
    return [_taken(branch, {flag.name: Const(n)}) for n in (0, 1)] == [False, True]
