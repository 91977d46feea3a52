"""Loops that only wait, as the waits that they are (A25, docs/soundness/counters.md).

    again: ...                                   mbarrier.wait [b], parity
           mbarrier.try_wait p, [b], parity  ->  mov p, 1
           add n, n, 1; nanosleep n
           branch again, cond=not p

An *await* is a loop that looks at one thing, an mbarrier or a word of memory, changes nothing that
others see, and ends when a condition holds of what it has seen. How often it looks is up to the
schedule, so nothing else may depend on that. Of its turn only what the condition, the look, or code
behind the loop needs is left (dead code elimination with control dependences); that is a straight
line, and each turn computes the same. What counts turns, looks at the time and sleeps is gone. A
loop that traps after so many turns, or so long, waits without that (``no-timeout``); one that goes
on after many turns does so after a few.

An earlier poll that jumps over the wait, a *peek* (``flag = try_wait(b, p)`` and, later, ``if not
flag: wait(b, p)``), becomes the guard of the wait (DETERMINACY section 6): the two are one wait
that starts to look early. Whatever the first look answers, the warp goes on when the phase has
completed. The timed run makes the second wait alone; what the first could have seen is checked with
the clock it had (condition C1), and whether the phase can be missed at the second (C2). That both
ask the same is seen when they are executed (`tilesim.sim.machine.execute.mbarrier`). A chosen
schedule makes the first look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from operator import eq, ge, gt, le, lt, ne

from tilesim.analysis.cfg import FlowGraph, graph_of, known
from tilesim.analysis.liveness import carried, live_at
from tilesim.analysis.solver import closure
from tilesim.analysis.ssa import reaching
from tilesim.analysis.uses_defs import mentions, reads, sets
from tilesim.ir.arithmetic import integer_limits
from tilesim.ir.effects import Crosses, Defines, Orders
from tilesim.ir.expr import Binary, Const, Expr, Unary, Var, constant, walk
from tilesim.ir.frozen import cached
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Control, Instruction, Join, Mir, Trap
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MbarrierTestWait, MbarrierTryWait, MbarrierWait
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import If, While
from tilesim.ir.scalars import word_accesses
from tilesim.records import dataclass, replace
from tilesim.transforms.rewrite import renumbered

Poll = MbarrierTryWait | MbarrierTestWait


def second_wait(stmt: If) -> tuple[Var, MbarrierWait] | None:
    """The flag and the wait of ``if not flag: wait``, else None."""
    match stmt:
        case If(cond=cond, then=(MbarrierWait() as wait,), orelse=()):
            pass
        case _:
            return None
    flag = polled_flag(cond)
    return None if flag is None else (flag, wait)


def polled_flag(cond: Expr) -> Var | None:
    """The flag of ``not flag``, else None."""
    match cond:
        case Unary("not", Var() as flag) | Binary("==", Var() as flag, Const(0)):
            return flag
        case _:
            return None


def spin_wait(stmt: While) -> tuple[MbarrierWait, Assign] | None:
    """The blocking wait a canonical ``while not try_wait`` loop stands for (A25), else None."""
    if len(stmt.body) != 1 or not isinstance(stmt.body[0], Poll):
        return None
    poll = stmt.body[0]
    flag = polled_flag(stmt.cond)
    if flag is None or flag != poll.result:
        return None
    return repeated(poll, stmt.loc)


def repeated(poll: Poll, loc: Loc) -> tuple[MbarrierWait, Assign]:
    """What repeating a poll until it succeeds does; ``loc``: where that is."""
    wait = MbarrierWait(
        mbar=poll.mbar, phase=poll.phase, parity=poll.parity, sem=poll.sem, scope=poll.scope,
        loc=poll.loc,
    )  # fmt: skip
    return wait, Assign(var=poll.result, value=Const(1), loc=loc)


#: attempts after which a loop gives up, and those of which it is made one of fewer
_FEW, _MANY = 2, 8
_TESTS: Mapping[str, Callable[[int, int], bool]] = {
    "<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne,
}  # fmt: skip


def with_awaits(mir: Mir) -> Mir:
    """``mir`` with a wait in place of each loop that only repeats a poll until it succeeds, and
    loops that only wait for a word without what else they do."""
    mir = _answered(_with_few_attempts(_without_timeouts(mir)))
    graph = graph_of(mir)
    instead: dict[int, tuple[Instruction, ...]] = {}
    for found in awaits(graph):
        instead.update(_plain(graph, found))
    return _guarded(renumbered(mir, instead) if instead else mir)


# ---------------------------------------------------------------------- awaits


@dataclass(frozen=True)
class Await:
    """A loop that is executed until a condition holds of what it looks at, and does nothing else.

    ``head``: its first instruction, ``past``: where it goes on. ``look``: the instruction that
    looks, ``test``: the branch that leaves. ``turn``: what is needed of a turn, these two among it,
    in the order in which each turn executes it.
    """

    head: int
    blocks: frozenset[int]
    look: int
    test: int
    past: int
    iteration: tuple[int, ...]

    @property
    def looks_first(self) -> bool:
        """Whether a turn looks before it tests."""
        return self.iteration.index(self.look) < self.iteration.index(self.test)


def awaits(graph: FlowGraph) -> Iterator[Await]:
    """The loops of a program that only wait, of each head at most one.

    Loops that share their head are one inside the other, or ways back of one loop: the smallest one
    that only waits counts.
    """
    loops = {(loop.head, loop.blocks) for loop in graph.loops}
    loops |= {(head, frozenset(blocks)) for head, blocks in graph.innermost}
    done = set[int]()
    for head, blocks in sorted(loops, key=lambda loop: (loop[0], len(loop[1]))):
        found = None if head in done else _await(graph, head, blocks)
        if found is not None:
            done.add(head)
            yield found


def _await(graph: FlowGraph, head: int, blocks: frozenset[int]) -> Await | None:
    mir = graph.mir
    inside = _numbers(graph, blocks)
    looks = _only_looks(mir, inside)
    leaving = [b for b in blocks if not blocks.issuperset(graph.successors[b])]
    if (
        len(looks) != 1
        or len(leaving) != 1
        or not all(n in looks or is_idle(mir, n) for n in inside)
    ):
        return None
    past = [b for b in graph.successors[leaving[0]] if b not in blocks]
    look, test = looks[0], graph.blocks[leaving[0]][-1]
    if len(past) != 1 or not _each_iteration(graph, head, blocks, graph.block_of[look]):
        return None
    needed = _needed(graph, blocks, past[0], (look, test))
    iteration = tuple(sorted(needed, key=lambda n: (graph.ranks[n], n)))
    branches = [n for n in iteration if not isinstance(mir.code[n].what, Op)]
    if branches != [test] or any(
        mir.code[n].guard is not None or _is_oracle(mir, n) for n in iteration
    ):
        return None
    return Await(
        graph.blocks[head].start, blocks, look, test, graph.blocks[past[0]].start, iteration
    )


def _numbers(graph: FlowGraph, blocks: Iterable[int]) -> list[int]:
    return sorted(n for block in blocks for n in graph.blocks[block])


def _each_iteration(graph: FlowGraph, head: int, blocks: Collection[int], block: int) -> bool:
    """Whether every way round in a loop goes through one of its blocks."""
    back = [(b, after) for b, after in graph.back_edges if b in blocks and after in blocks]
    return all(after == head and graph.dominates(block, b) for b, after in back)


def _needed(
    graph: FlowGraph, blocks: Collection[int], past: int, roots: Collection[int]
) -> set[int]:
    """What ``roots`` and code behind a loop need of it: what sets registers for that, what orders
    accesses, and the branches by which that is executed or not."""
    mir, setters = graph.mir, reaching(graph).setters
    inside = {*_numbers(graph, blocks)}
    deciding: dict[int, list[int]] = {}
    for block in (b for b in blocks if len(graph.successors[b]) > 1):
        for number in _decided(graph, block):
            deciding.setdefault(number, []).append(graph.blocks[block][-1])
    behind = graph.blocks[past].start
    new = {*roots, *(n for n in inside if mir.effects[n] and not sets(mir, n))}
    new.update(n for name in live_at(graph, behind) for n in setters(behind, name))

    def before(number: int) -> set[int]:
        made = {setter for name in reads(mir, number) for setter in setters(number, name)}
        return inside & (made.union(deciding.get(number, ())))

    return closure(new & inside, before)


def _decided(graph: FlowGraph, block: int) -> set[int]:
    """The instructions that are executed or not as the branch behind a block decides."""
    meet = graph.post_dominators[block]
    stop = len(graph.mir.code) if meet is None else graph.blocks[meet].start
    starts = [graph.blocks[after].start for after in graph.successors[block]]
    return {n for start in starts for n in graph.between(start, stop)}


def _looks(mir: Mir, number: int) -> bool:
    """Whether an instruction reads what others change, and changes nothing."""
    if isinstance(mir.code[number].what, Poll):
        return True
    access = word_accesses(mir)[number]
    if access is None or access.result is None:
        return False
    return access.sem != "weak" if access.loads else access.keeps


def _only_looks(mir: Mir, numbers: Iterable[int]) -> list[int]:
    """The instructions that read what others change, if these change nothing but registers."""
    looks: list[int] = []
    for n in numbers:
        if _looks(mir, n):
            looks.append(n)
        elif not is_idle(mir, n):
            return []
    return looks


def is_idle(mir: Mir, number: int) -> bool:
    """Whether an instruction only computes registers, looks at the time, goes on, or orders
    accesses of its own thread."""
    what = mir.code[number].what
    if not isinstance(what, Op):
        return isinstance(what, Branch) or (isinstance(what, Join) and not what.syncs)
    return all(
        isinstance(e, Defines | Crosses) or (isinstance(e, Orders) and (e.acquires or e.releases))
        for e in mir.effects[number]
    )


def _is_oracle(mir: Mir, number: int) -> bool:
    """Whether an instruction sets a register to what no operand says."""
    return any(isinstance(e, Defines) and e.oracle for e in mir.effects[number])


# ---------------------------------------------------------------------- what stands for an await


def _plain(graph: FlowGraph, found: Await) -> dict[int, tuple[Instruction, ...]]:
    """An await without what is not needed of it: one of an mbarrier whose poll has to answer yes is
    a wait, one of a word a loop that loads and tests. Nothing if it has another form."""
    mir, code, iteration = graph.mir, graph.mir.code, found.iteration
    look, branch = code[found.look].what, code[found.test].what
    if (
        iteration[-1] != found.test
        or not is_loop_independent(mir, iteration)
        or not isinstance(branch, Branch)
    ):
        return {}
    inside, at = _numbers(graph, found.blocks), iteration.index(found.look)
    leaves = branch.sense is (branch.target == found.past)
    line = [code[n] for n in iteration[:-1]]
    if isinstance(look, Poll):
        no, yes = (
            _left(mir, iteration[at + 1 : -1], {look.result.name: answer}) for answer in (0, 1)
        )
        ends = _holds(branch.cond, no), _holds(branch.cond, yes)
        if ends != (not leaves, leaves) or not all(sets(mir, n) for n in iteration[:-1]):
            return {}
        line[at + 1 :] = [_with_answer(code[n], yes) for n in iteration[at + 1 : -1]]
        line[at : at + 1] = [line[at].doing(what) for what in repeated(look, look.loc)]
    elif all(n in iteration or _only_goes_on(code[n]) for n in inside):
        return {}
    else:
        again = Branch(target=found.head, cond=branch.cond, sense=not leaves, loc=branch.loc)
        line.append(code[found.test].doing(again))
    if found.past < found.head or not {*inside}.issuperset(range(found.head, found.past)):
        line.append(code[found.test].doing(Branch(target=found.past, loc=branch.loc)))
    return {**dict.fromkeys(inside, ()), found.head: tuple(line)}


def _with_answer(instruction: Instruction, values: Mapping[str, int]) -> Instruction:
    """An instruction that sets a register to a number, if these have it."""
    match instruction.what:
        case Assign(var=var, loc=loc) if var.name in values:
            return instruction.doing(Assign(var=var, value=Const(values[var.name]), loc=loc))
        case _:
            return instruction


def _only_goes_on(instruction: Instruction) -> bool:
    return isinstance(instruction.what, Join) or (
        isinstance(instruction.what, Branch) and instruction.what.cond is None
    )


def is_loop_independent(mir: Mir, iteration: Iterable[int]) -> bool:
    """Whether no instruction of a turn reads what an earlier turn has left."""
    left = {name for n in iteration for name in sets(mir, n)}
    for n in iteration:
        if not left.isdisjoint(reads(mir, n)):
            return False
        left -= sets(mir, n)
    return True


def _left(mir: Mir, numbers: Iterable[int], values: dict[str, int]) -> dict[str, int]:
    """What registers hold behind instructions that set them, as far as ``values`` decide it."""
    for n in numbers:
        match mir.code[n].what:
            case Assign(var=var, value=value) if (number := _number(value, values)) is not None:
                low, high = integer_limits(var.dtype)
                values[var.name] = (number - low) % (high - low + 1) + low
            case _:
                values = {name: held for name, held in values.items() if name not in sets(mir, n)}
    return values


def _number(expr: Expr, values: Mapping[str, int]) -> int | None:
    """The number that an expression is, before it is brought into a type; None if other registers
    decide it, or a part of it may leave 64 bits."""
    parts = [known(part, None, values) for part in walk(expr)]
    if any(isinstance(part, float) or (part is not None and abs(part) >> 63) for part in parts):
        return None
    return None if parts[0] is None else int(parts[0])


def _holds(cond: Expr | None, values: Mapping[str, int]) -> bool | None:
    """Whether a condition holds; None: other registers decide."""
    number = None if cond is None else _number(cond, values)
    return None if number is None else bool(number)


# ---------------------------------------------------------------------- answers, and peeks


def _answered(mir: Mir) -> Mir:
    """Answers of polls that are only copied, right behind them and by nothing that comes another
    way, are set where they are copied to."""
    uses, graph = _uses(mir), graph_of(mir)
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number, (one, after) in enumerate(pairwise(mir.code)):
        poll, copy = one.what, after.what
        if (
            not isinstance(poll, Poll)
            or not isinstance(copy, Assign)
            or not (one.guard is None is after.guard)
            or graph.blocks[graph.block_of[number + 1]].start > number
        ):
            continue
        name = poll.result.name
        if uses[name] == 1 and [_number(copy.value, {name: n}) for n in (0, 1)] == [0, 1]:
            instead[number] = (one.doing(replace(poll, result=copy.var)),)
            instead[number + 1] = ()
    return _answered(renumbered(mir, instead)) if instead else mir


def _uses(mir: Mir) -> Counter[str]:
    """By register, how many instructions use it."""
    return Counter(name for n in range(len(mir.code)) for name in reads(mir, n))


def _guarded(mir: Mir) -> Mir:
    """A branch on the answer of a poll that only jumps over a wait, as the guard of the wait."""
    flags = _flags(mir)
    if not flags:
        return mir
    graph, uses = graph_of(mir), _uses(mir)
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number, instruction in enumerate(mir.code):
        branch = instruction.what
        if not isinstance(branch, Branch) or branch.cond is None:
            continue
        inside = _jumped_over(graph, number, branch.target, uses)
        if not inside:
            continue
        cond, setters = _tested(graph, number, branch.cond, uses)
        for flag in flags:
            if [_holds(cond, {flag.name: n}) for n in (0, 1)] != [not branch.sense, branch.sense]:
                continue
            # what is computed of the wait's answer, and not used behind it
            idle = [n for n in range(inside[0], branch.target) if n not in inside]
            left = uses - Counter(name for n in idle for name in reads(mir, n))
            kept = [
                replace(mir.code[n], guard=Unary("not", flag)) for n in inside
                if not _is_unused(mir.code[n].what, flag, left)
            ]  # fmt: skip
            kept.sort(key=lambda i: isinstance(i.what, Assign) and i.what.var == flag)
            instead.update((n, ()) for n in (number, *setters, *idle, *inside))
            instead[inside[0]] = tuple(kept)
    return renumbered(mir, instead) if instead else mir


def _is_unused(what: Op | Control, flag: Var, uses: Counter[str]) -> bool:
    """Whether an instruction sets an answer that is not used: it need not be set."""
    return isinstance(what, Assign) and what.var != flag and not uses[what.var.name]


def _flags(mir: Mir) -> set[Var]:
    """Registers with the answers of polls, and nothing but 0 and 1 otherwise."""
    polled = {i.what.result for i in mir.code if isinstance(i.what, Poll)}
    for instruction, effects in zip(mir.code, mir.effects, strict=True) if polled else ():
        op = instruction.what
        whole = isinstance(op, Assign) and op.value in (Const(0), Const(1))
        if not whole and not isinstance(op, Poll):
            polled -= {e.var for e in effects if isinstance(e, Defines)}
    return polled


def _tested(
    graph: FlowGraph, number: int, cond: Expr, uses: Counter[str]
) -> tuple[Expr, tuple[int, ...]]:
    """What the register that a branch tests was set to right before, and the instruction that set
    it, if only the branch uses that; otherwise the register."""
    before = graph.mir.code[number - 1]
    if not isinstance(cond, Var) or number - 1 not in graph.blocks[graph.block_of[number]]:
        return cond, ()
    match before.what:
        case Assign(var=var, value=value) if var == cond and uses[var.name] == 1:
            return (cond, ()) if before.guard is not None else (value, (number - 1,))
        case _:
            return cond, ()


def _jumped_over(graph: FlowGraph, number: int, target: int, uses: Counter[str]) -> list[int]:
    """The wait that the other way of a branch is, and what sets constants; nothing if it is more.

    What is computed there for the wait alone may be computed always, or not behind it, if none of
    it is of another time.
    """
    code, block, inside = graph.mir.code, graph.block_of[number + 1], range(number + 1, target)
    if graph.blocks[block] != inside or graph.predecessors[block] != [graph.block_of[number]]:
        return []
    within = Counter(name for n in inside for name in reads(graph.mir, n))

    def alone(what: object) -> bool:
        return isinstance(what, Assign) and within[what.var.name] == uses[what.var.name]

    found = [n for n in inside if not alone(code[n].what)]
    wait, *answers = (code[n].what for n in found) if found else (None,)
    right = (
        isinstance(wait, MbarrierWait)
        and all(isinstance(a, Assign) and isinstance(a.value, Const) for a in answers)
        and all(code[n].guard is None for n in inside)
        and is_loop_independent(graph.mir, inside)
    )
    return found if right else []


@cached
def peek_flags(mir: Mir) -> frozenset[str]:
    """Variables that only carry the answer of a poll to such a wait, or to a loop of polls."""
    polled: set[str] = set()
    deciding: set[str] = set()
    used: set[str] = set()
    for instruction, mentioned in zip(mir.code, mentions(mir), strict=True):
        op = instruction.what
        flag = None if instruction.guard is None else polled_flag(instruction.guard)
        if flag is not None and isinstance(op, MbarrierWait):
            deciding.add(flag.name)
        elif flag is not None and isinstance(op, Assign) and (op.var, op.value) == (flag, Const(1)):
            polled.add(flag.name)  # the end of a loop of polls
        else:
            used |= mentioned.tested
        if isinstance(op, Poll):
            polled.add(op.result.name)
        if isinstance(op, Assign) and not isinstance(op.value, Const):
            used.add(op.var.name)
        used |= mentioned.used
    return frozenset(polled & deciding - used)


# ---------------------------------------------------------------------- loops that give up


def _without_timeouts(mir: Mir) -> Mir:
    """``mir`` without the ways on which loops that look trap after so many turns, or so long.

    How often a loop looks, and how long that takes, no program says. With the trap the launch ends,
    and what the others do until then they also do where the wait goes on
    (docs/soundness/data.md, traps). The verdict says that it is not gone.
    """
    if not any(isinstance(i.what, Trap) and i.what.aborts for i in mir.code):
        return mir
    graph = graph_of(mir)
    given_up = [found for loop in graph.innermost for found in _timeouts(graph, *loop)]
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


def _timeouts(
    graph: FlowGraph, head: int, blocks: Collection[int]
) -> Iterator[tuple[int, int, Loc]]:
    """The branches at which a loop that only looks traps when it has looked often or long enough:
    their numbers, where the loop goes on otherwise, and the places of the traps.

    Such a loop is no wait if what it looks at, or what ends it, depends on earlier turns: it goes
    through memory, or adds up what it sees there.
    """
    mir, doomed = graph.mir, _doomed(graph)
    numbers = _numbers(graph, (b for b in blocks if b not in doomed))
    if not _only_looks(mir, numbers):
        return
    leaving = {
        graph.blocks[block][-1]
        for block in blocks
        if any(way not in blocks and way not in doomed for way in graph.successors[block])
    }
    decides = {name for n in numbers if _looks(mir, n) for name in mentions(mir)[n].used}
    decides |= {name for n in numbers if n in leaving for name in mentions(mir)[n].tested}
    sources_of = _sources_of(mir, numbers)
    if not carried(graph, head, blocks).isdisjoint(_closure(sources_of, decides)):
        return
    for block in sorted({graph.block_of[n] for n in numbers}):
        last = graph.blocks[block][-1]
        branch, successors = mir.code[last].what, graph.successors[block]
        traps = [doomed[way] for way in successors if way in doomed]
        if isinstance(branch, Branch) and len(successors) == 2 and traps:
            taken = graph.block_of[branch.target] in doomed
            if _counts(mir, numbers, sources_of, mentions(mir)[last].tested):
                yield last, last + 1 if taken else branch.target, traps[0]


def _doomed(graph: FlowGraph) -> dict[int, Loc]:
    """The blocks from which every way traps, each with the place of a trap."""
    found = {
        block: trap.loc
        for block in graph.order
        for n in graph.blocks[block]
        if isinstance(trap := graph.mir.code[n].what, Trap) and trap.aborts and constant(trap.cond)
    }
    size = -1
    while size != len(found):
        size = len(found)
        for block in reversed(graph.order):
            successors = graph.successors[block]
            if block not in found and successors and all(way in found for way in successors):
                found[block] = found[successors[0]]
    return found


def _counts(
    mir: Mir, numbers: Collection[int], sources_of: Mapping[str, set[str]], tested: Collection[str]
) -> bool:
    """Whether a test asks nothing but how many turns a loop has made, or how long it took."""
    asked = _closure(sources_of, tested)
    if any(not asked.isdisjoint(sets(mir, n)) for n in numbers if _looks(mir, n)):
        return False
    times = {name for n in numbers if _is_oracle(mir, n) for name in sets(mir, n)}
    return any(
        name in times or name in _closure(sources_of, sources_of.get(name, ())) for name in asked
    )


def _sources_of(mir: Mir, numbers: Collection[int]) -> dict[str, set[str]]:
    """By register that these instructions set, those of which they make it."""
    found: dict[str, set[str]] = {}
    for n in numbers:
        for name in sets(mir, n):
            found.setdefault(name, set()).update(mentions(mir)[n].used)
    return found


def _closure(sources_of: Mapping[str, set[str]], names: Collection[str]) -> set[str]:
    """These registers, and those that they are made of."""
    return closure(names, lambda name: sources_of.get(name, ()))


def _with_few_attempts(mir: Mir) -> Mir:
    """``mir`` in which loops that look many times and then go on look a few times.

    If each turn is as the one before it, and how often it has looked is not used, then what gives
    up after a million turns might do so after two that come later, and what passes earlier might
    look then: both programs do the same, in other schedules. Of the second one, some of those are
    found in which it gives up.
    """
    graph = graph_of(mir)
    instead: dict[int, tuple[Instruction, ...]] = {}
    for head, blocks in graph.innermost:
        numbers, left = _numbers(graph, blocks), carried(graph, head, blocks)
        if len(left) == 1 and _only_looks(mir, numbers):
            (name,) = left
            instead.update(_shortened(graph, numbers, name))
    return renumbered(mir, instead) if instead else mir


def _shortened(
    graph: FlowGraph, numbers: Collection[int], name: str
) -> Iterator[tuple[int, tuple[Instruction, ...]]]:
    """What asks how many turns a loop has made, which it counts in a register, asking for fewer."""
    code, setters = graph.mir.code, reaching(graph).setters
    for number in numbers:
        match code[number]:
            case Instruction(Assign(var=var, value=Binary("+", lhs, Const(int() as by))), None) if (
                var.name == name and lhs == var and by
            ):
                begins = {_first(graph, n) for n in setters(number, name) if n != number}
            case _:
                continue
        asks = [
            n for n in range(len(code))
            if n != number and name in reads(graph.mir, n) and number in setters(n, name)
        ]  # fmt: skip
        begin = begins.pop() if len(begins) == 1 else None
        if begin is None or len(asks) != 1 or asks[0] not in numbers:
            continue
        if by >> (var.dtype.bits - 1) == 1:  # a large number is taken off
            by -= 1 << var.dtype.bits
        match code[asks[0]].what:
            case Branch(cond=Expr() as cond) as asking if sooner := _sooner(cond, var, begin, by):
                yield asks[0], (code[asks[0]].doing(replace(asking, cond=sooner[0])),)
            case Assign(value=value) as making if sooner := _sooner(value, var, begin, by):
                yield asks[0], (code[asks[0]].doing(replace(making, value=sooner[0])),)
            case _:
                pass


def _first(graph: FlowGraph, setter: int, copies: int = 4) -> int | None:
    """The number that an instruction sets its register to, maybe by way of others."""
    match graph.mir.code[setter]:
        case Instruction(Assign(value=Var(name)), None) if copies:
            setters = reaching(graph).setters(setter, name)
            found = {_first(graph, n, copies - 1) for n in setters}
            return found.pop() if len(found) == 1 else None
        case Instruction(Assign(value=value), None) if copies:
            return _number(value, {})
        case _:
            return None


def _sooner(cond: Expr, counter: Var, begins: int, by: int) -> tuple[Expr, ...]:
    """A condition that comes out otherwise after a few turns, if it does so after many."""
    parts = [*walk(cond)]
    tests = [
        part for part in parts
        if isinstance(part, Binary) and part.op in _TESTS and part.lhs == counter
        and isinstance(part.rhs, Const) and type(part.rhs.value) is int
    ]  # fmt: skip
    if len(tests) != 1 or parts.count(counter) != 1:
        return ()
    holds, stop = _TESTS[tests[0].op], constant(tests[0].rhs)
    assert isinstance(stop, int)
    near, first = (stop - begins) // by, holds(begins, stop)
    tried = range(max(near - 1, 1), near + 3)
    iterations = next((n for n in tried if holds(begins + n * by, stop) is not first), 0)
    if iterations <= _MANY:
        return ()
    return _with(cond, tests[0], replace(tests[0], rhs=Const(stop - (iterations - _FEW) * by)))


def _with(expr: Expr, old: Expr, new: Expr) -> tuple[Expr, ...]:
    """``expr`` with one part in another's place; nothing if it is where PTX puts none."""
    match expr:
        case Expr() if expr == old:
            return (new,)
        case Binary(lhs=lhs):  # PTX combines a comparison with what is to its right
            return tuple(replace(expr, lhs=found) for found in _with(lhs, old, new))
        case Unary(operand=operand):
            return tuple(replace(expr, operand=found) for found in _with(operand, old, new))
        case _:
            return ()
