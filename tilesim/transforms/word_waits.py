"""Loops that do nothing but wait for a word of memory to reach a value.

``while reg < t: reg = ld x`` is a wait if nothing else uses what it loads; so is a loop that polls
before its test, and with it a poll in front of the loop that decides whether it is entered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.executing_warps import executing
from tilesim.analysis.liveness import live_at
from tilesim.analysis.preimage import NoPreimage, Preimage
from tilesim.analysis.ssa import reaching
from tilesim.analysis.uses_defs import expressions_in, mentioned, reads, replaced, sets
from tilesim.ir.arithmetic import Typing, integer_limits
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Expr, Var, binary, unary
from tilesim.ir.mir import Branch, Join, Mir
from tilesim.ir.scalars import WordAccess, word_accesses
from tilesim.records import dataclass, replace
from tilesim.transforms.await_condition import Await, awaits, is_idle, is_loop_independent

#: kinds of words
INTEGERS = ("int", "uint")


@dataclass(frozen=True)
class WordWait:
    """What a poll waits for: a value of the word with which its loop ends.

    ``head``: where the loop begins; ``test``: the branch that asks whether it ends. ``first``: the
    poll comes before its loop, which repeats it. ``kept``: the loop is entered again with what was
    loaded, and polls only if that is not enough.
    """

    poll: WordAccess
    ends: Preimage
    head: int
    test: int
    first: bool = False
    kept: bool = False


@dataclass(frozen=True)
class _Wait:
    """A poll of an await: its number and that of the branch that tests what was loaded. ``first``:
    the poll before the loop that it repeats, or -1; ``late``: it polls before it tests. ``made``:
    what computes in a turn with what was loaded. ``peeled``: it comes before the loop itself."""

    wait: WordWait
    loop: Await
    poll: int
    test: int
    first: int
    late: bool
    made: frozenset[int]
    peeled: bool = False


def word_waits(graph: FlowGraph) -> dict[int, WordWait]:
    """The polls of all waits on words of memory, by their numbers."""
    waits = [wait for loop in awaits(graph) if (wait := _wait(graph, loop)) is not None]
    if not waits:
        return {}
    waits += [peeled for wait in waits for peeled in _peeled(graph, wait)]
    found = {w.poll: w.wait for w in waits}
    for wait in waits:
        before = word_accesses(graph.mir)[wait.first] if wait.first >= 0 else None
        if before is not None and before.loads:
            found[wait.first] = replace(wait.wait, poll=before, first=True)
    used, kept = _used(graph, waits, found.keys())
    for poll in kept - used:
        if found[poll].poll.loads:
            found[poll] = replace(found[poll], kept=True)
        else:
            used.add(poll)
    return {number: wait for number, wait in found.items() if number not in used}


def _wait(graph: FlowGraph, found: Await) -> _Wait | None:
    """An await, if it is one of a word."""
    mir, look, test = graph.mir, found.look, found.test
    branch, access = mir.code[test].what, word_accesses(mir)[look]
    if access is None or access.result is None:
        return None
    assert isinstance(branch, Branch)
    assert branch.cond is not None
    late = found.looks_first
    numbers = [n for n in found.iteration if late or n != test]
    behind = found.iteration[found.iteration.index(test) :]
    left = {name for n in behind for name in sets(mir, n)} & {*live_at(graph, found.past)}
    if not is_loop_independent(mir, numbers) or left - {access.result.name}:
        return None  # what is used behind the loop would tell how many turns there were
    iteration = _Iteration(mir, numbers, look)
    leaves = branch.sense == (branch.target == found.past)
    ends = iteration.at_end(branch.cond if leaves else unary("not", branch.cond), late=late)
    polled = iteration.at_poll(access)
    if ends is None or polled is None:
        return None
    wait = _waiting(polled, ends, found.head, test, mir.typing)
    first = -1 if late else _repeated(graph, found, look)
    return None if wait is None else _Wait(wait, found, look, test, first, late, iteration.made)


def _peeled(graph: FlowGraph, wait: _Wait) -> Iterator[_Wait]:
    """Polls in front of a loop that only they, or what is right behind the loop, come before: the
    loop repeats them, as compilers write it that turn loops upside down."""
    mir, past = graph.mir, _through_jumps(graph, wait.loop.past)
    if not wait.late:
        return
    for block in _entries(graph, graph.block_of[wait.loop.head]):
        *body, test = graph.blocks[block] or (-1,)
        branch = mir.code[test].what
        if not isinstance(branch, Branch) or branch.cond is None:
            continue
        sides = {branch.target: branch.sense, test + 1: not branch.sense}
        leaves = [sense for n, sense in sides.items() if _through_jumps(graph, n) == past]
        polls = [n for n in body if not is_idle(mir, n)]
        if len(leaves) != 1 or not polls or mir.code[polls[-1]].guard is not None:
            continue
        iteration = _Iteration(mir, [n for n in body if n >= polls[-1]], polls[-1])
        ends = iteration.at_end(branch.cond if leaves[0] else unary("not", branch.cond), late=True)
        access = iteration.at_poll(word_accesses(mir)[polls[-1]])
        if ends is None or access is None or access.result is None:
            continue
        same = _waiting(access, ends, wait.loop.head, test, mir.typing)
        if same is not None and _is_same(same, wait.wait):
            first = replace(same, first=True)
            yield replace(
                wait, wait=first, poll=polls[-1], test=test, made=iteration.made, peeled=True
            )


def _entries(graph: FlowGraph, head: int) -> Iterator[int]:
    """The blocks with a branch from which a loop is entered without anything in between but
    registers."""
    for block in graph.predecessors[head]:
        while not graph.dominates(head, block):
            if len(graph.successors[block]) > 1:
                yield block
                break
            if len(graph.predecessors[block]) != 1 or not all(
                is_idle(graph.mir, n) for n in graph.blocks[block]
            ):
                break
            (block,) = graph.predecessors[block]


def _through_jumps(graph: FlowGraph, number: int) -> int:
    """Where one gets from an instruction without doing anything."""
    code = graph.mir.code
    for _ in code:
        if number == len(code):
            break
        what = code[number].what
        if isinstance(what, Branch) and what.cond is None:
            number = what.target
        elif isinstance(what, Join) and not what.syncs:
            number += 1
        else:
            break
    return number


def _is_same(one: WordWait, other: WordWait) -> bool:
    """Whether two polls read one word in one way, and end their waits with the same values."""
    if one.poll.result is None or other.poll.result is None:
        return False
    same = replace(one.poll, result=other.poll.result) == other.poll
    return same and one.ends.renamed(other.poll.result) == other.ends.cond


class _Iteration:
    """A turn of a loop: what its registers hold where it polls and where it ends, made of what they
    hold before the loop and of the register that is polled."""

    def __init__(self, mir: Mir, numbers: Sequence[int], poll: int) -> None:
        self._typing = mir.typing
        #: by register that the turn sets: what it holds, None where that is left over or not said
        self._before: dict[str, Expr | None] = {}
        self._values: dict[str, Expr | None] = {}
        tainted: set[str] = set()
        made: set[int] = set()
        place = numbers.index(poll)
        for number in numbers:
            for effect in mir.effects[number]:
                if isinstance(effect, Defines):
                    self._values[effect.var.name] = self._before[effect.var.name] = None
        for at, number in enumerate(numbers):
            if at == place:
                self._before = dict(self._values)
                tainted |= sets(mir, number)
                self._values.update((name, None) for name in tainted)
                access = word_accesses(mir)[number]
                if access is not None and access.result is not None:
                    self._values[access.result.name] = access.result
                continue
            if at > place and reads(mir, number) & tainted:
                made.add(number)
                tainted |= sets(mir, number)
            for effect in mir.effects[number]:
                if isinstance(effect, Defines):
                    # under a guard a register may keep what it held
                    value = effect.value if mir.code[number].guard is None else None
                    inner = self._with(value, self._values) if isinstance(value, Expr) else None
                    held = None if inner is None else self._fitted(inner, effect.var)
                    self._values[effect.var.name] = held
        self.made = frozenset(made)

    def at_end(self, cond: Expr, *, late: bool) -> Expr | None:
        """A condition behind the turn; None if it is not made of what it may be made of.

        Not ``late``: it is asked before the first turn as well.
        """
        if not late and self.made:
            return None
        return self._with(cond, self._values)

    def at_poll(self, access: WordAccess | None) -> WordAccess | None:
        """What is done to the word, with what the registers hold there."""
        if access is None or access.element is not None:
            return None  # others of its vector are not read in this order
        if any(self._with(e, self._before) is None for e in expressions_in(access.view)):
            return None
        if access.value is None:
            return access
        value = self._with(access.value, self._before)
        if value is None or access.compare is None:
            return None if value is None else replace(access, value=value)
        compare = self._with(access.compare, self._before)
        return None if compare is None else replace(access, value=value, compare=compare)

    def _with(self, expr: Expr, values: Mapping[str, Expr | None]) -> Expr | None:
        """An expression in which registers stand for what they hold; None if that is not said."""
        held = {name: values[name] for name in mentioned(expr) if name in values}
        known = {name: value for name, value in held.items() if value is not None}
        return replaced(expr, known) if len(known) == len(held) else None

    def _fitted(self, value: Expr, var: Var) -> Expr | None:
        """What a register holds to which a value is assigned."""
        if var.dtype.kind not in (*INTEGERS, "pred"):
            return None
        known, (low, high) = self._typing.interval(value), integer_limits(var.dtype)
        if known is None:
            return None
        if low <= known[0] and known[1] <= high:
            return value
        if var.dtype.kind == "pred":
            return binary("!=", value, 0)
        masked = binary("&", value, (1 << var.dtype.bits) - 1)
        return masked if var.dtype.kind == "uint" else None


def _waiting(poll: WordAccess, ends: Expr, head: int, test: int, typing: Typing) -> WordWait | None:
    """The wait that repeating an access is until a condition holds."""
    if poll.result is None or not (poll.sem != "weak" if poll.loads else poll.keeps):
        return None
    operands = [e for e in (*expressions_in(poll.view), poll.value) if e is not None]
    name = poll.result.name
    if any(name in mentioned(e) for e in operands) or name not in mentioned(ends):
        return None
    try:
        return WordWait(poll, Preimage(ends, poll.result, typing), head, test)
    except NoPreimage:
        return None


def _repeated(graph: FlowGraph, loop: Await, poll: int) -> int:
    """The poll that is the last instruction before a loop that repeats it; -1 if there is none."""
    code = graph.mir.code
    entries = [b for b in graph.predecessors[graph.block_of[loop.head]] if b not in loop.blocks]
    if len(entries) != 1:
        return -1
    numbers = (n for n in reversed(graph.blocks[entries[0]]) if not isinstance(code[n].what, Join))
    before = next(numbers, -1)
    if before < 0 or code[before].guard is not None:
        return -1
    first, again = (word_accesses(graph.mir)[n] for n in (before, poll))
    if again is None or not again.loads or first != again:
        return -1
    return before if again.view.cta is None else -1


def _used(graph: FlowGraph, waits: list[_Wait], polls: Iterable[int]) -> tuple[set[int], set[int]]:
    """The polls whose value is used by anything but the condition of their own loop, and those
    whose loop is entered again with it.

    In the program in which these loops make one trip, what a condition can see is what was there
    before the loop; it may be what the poll before it has seen. One that follows its poll sees
    that, or what the turn has made of it.
    """
    used: set[int] = set()
    kept: set[int] = set()
    tests = {wait.test: wait for wait in waits}
    once = {n: after for wait in waits if not wait.peeled for n, after in _once(graph, wait.loop)}
    inside = {n for wait in waits for block in wait.loop.blocks for n in graph.blocks[block]}
    idle = inside.difference(*(wait.loop.iteration for wait in waits))
    #: where a poll's value may come from: from itself, or from what its turn makes of it
    of = {number: number for number in polls}
    of.update((number, wait.poll) for wait in waits for number in wait.made)
    own, warps = FlowGraph(graph.mir, instead=once), [set(w) for w in executing(graph.mir)]
    for number in own.reached():
        if number in idle:
            continue
        setters = (reaching(own).setters(number, name) for name in reads(own.mir, number))
        set_to = {n for found in setters for n in found if n in of}
        seen = {of[n] for n in set_to if not warps[n].isdisjoint(warps[number])}
        wait = tests.get(number)
        if number in of:
            seen -= {of[number]}
        elif wait is not None and wait.late:
            seen -= {wait.poll}
        elif wait is not None:
            again = seen & {wait.poll} if wait.first < 0 else set()
            kept |= again
            seen -= {wait.first, *again}
        used |= seen
    return used, kept


def _once(graph: FlowGraph, loop: Await) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The ways back of a loop, leading on instead."""
    for block in loop.blocks:
        after = [graph.blocks[b].start for b in graph.successors[block]]
        if loop.head in after:
            once = (loop.past if start == loop.head else start for start in after)
            yield graph.blocks[block][-1], tuple(once)
