"""Loops that do nothing but wait for a word of memory to reach a value, and words that only count.

``while reg < t: reg = ld x`` is a wait if nothing else uses what it loads; so is a loop that polls
before its test. The words of a tensor are counters if every access to them is such a wait, a
reduction by add, or a scalar store (or an exchange, if nobody looks at what was there). Whether one
run proves what they order is for `tilesim.sim.machine.counter` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilesim.ir.arithmetic import Typing, integer_limits
from tilesim.ir.dataflow import (
    OPERANDS,
    aliases,
    at_addresses,
    expressions_in,
    mentions,
    reached,
    tensors_read,
    tensors_written,
)
from tilesim.ir.effects import Crosses, Defines, Effect, Orders, Reads, Writes
from tilesim.ir.expr import Binary, Expr, Select, Unary, Var, binary, constant, unary, walk
from tilesim.ir.flowgraph import FlowGraph, Loop, representatives
from tilesim.ir.live import carried, live_at
from tilesim.ir.memory import Mbarriers
from tilesim.ir.mir import Branch, Instruction, Join, Mir, condition
from tilesim.ir.op import Op
from tilesim.ir.scalars import WordAccess, word_access
from tilesim.sim.passing import NoWait, Passing

_INTEGERS = ("int", "uint")


@dataclass(frozen=True)
class Spin:
    """What a poll waits for: a value of the word with which its loop ends.

    ``head``: where the loop begins; ``test``: the branch that asks whether it ends. ``first``: the
    poll comes before its loop, which repeats it. ``kept``: the loop is entered again with what was
    loaded, and polls only if that is not enough.
    """

    poll: WordAccess
    passing: Passing
    head: int
    test: int
    first: bool = False
    kept: bool = False


@dataclass(frozen=True)
class _Wait:
    """A loop that is a wait: the numbers of its poll and of the branch that tests what was loaded,
    its way back, and where it goes on. ``first``: the poll before it that it repeats, or -1;
    ``late``: it polls before it tests. ``made``: what computes in a turn with what was loaded."""

    spin: Spin
    poll: int
    test: int
    back: int
    past: int
    first: int
    late: bool
    made: frozenset[int]


def spins(graph: FlowGraph) -> dict[int, Spin]:
    """The polls of all waits on words of memory, by their numbers."""
    waits = [wait for loop in graph.loops if (wait := _wait(graph, loop)) is not None]
    if not waits:
        return {}
    waits += [peeled for wait in waits for peeled in _peeled(graph, wait)]
    found = {w.poll: w.spin for w in waits}
    for wait in waits:
        before = word_access(graph.mir.effects[wait.first]) if wait.first >= 0 else None
        if before is not None and before.loads:
            found[wait.first] = replace(wait.spin, poll=before, first=True)
    used, kept = _used(graph.mir, waits, found.keys())
    for poll in kept - used:
        if found[poll].poll.loads:
            found[poll] = replace(found[poll], kept=True)
        else:
            used.add(poll)
    return {number: spin for number, spin in found.items() if number not in used}


def counters(mir: Mir, found: Mapping[int, Spin]) -> frozenset[str]:
    """Integer tensors of which every access is a wait, an ``atom.add``, or a scalar store.

    Either no addition to a word uses what it finds there, or all of them do: they draw numbers.
    Where nobody waits, ``atom.inc`` draws them as well.
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
    names -= _of_several_sizes(mir)
    for number, effects in enumerate(mir.effects):
        touched = {n for e in effects for n in (*tensors_read(e), *tensors_written(e))} & names
        if touched and number not in found and not _counts(effects):
            names -= touched - (_incremented(effects) - polled)
    return frozenset(names)


def counting_words(mir: Mir, found: Mapping[int, Spin], whole: frozenset[str]) -> frozenset[int]:
    """Instructions that count at words of the CTA's own shared memory, of which other words hold
    other things: waits, additions and exchanges whose result is not used, scalar stores.

    Of tensors whose words all count (``whole``) `counters` says more. Empty if there is no wait for
    such a word, or allocations overlap.
    """
    if any(True for _ in aliases(mir.kernel)):
        return frozenset()

    def counted(access: WordAccess | None) -> bool:
        return (
            access is not None
            and access.element is None
            and access.view.space == "shared"
            and not access.view.remote
            and access.view.dtype.kind in _INTEGERS
            and access.view.tensor.name not in whole
        )

    polls = {number for number, spin in found.items() if counted(spin.poll)}
    if not polls:
        return frozenset()
    written = (
        number
        for number, access in enumerate(map(word_access, mir.effects))
        if access is not None
        and counted(access)
        and (access.stores or (access.combine in ("add", "exch") and access.result is None))
    )
    return frozenset(polls.union(written))


def polls_memory(instruction: Instruction) -> bool:
    """Whether an instruction reads a word of global memory that others may change."""
    what = instruction.what
    access = word_access(what.effects()) if isinstance(what, Op) else None
    if access is None or access.result is None or access.view.space == "shared":
        return False
    if access.combine == "add" and access.value is not None and constant(access.value):
        return False  # a turn of the loop changes the word: nobody else needs to
    return access.sem != "weak"


def _of_several_sizes(mir: Mir) -> frozenset[str]:
    """Tensors with accesses at addresses, if not all accesses are to words of one size."""
    sizes: dict[str, set[int]] = {}
    for tensor in at_addresses(mir):
        sizes.setdefault(tensor.name, set()).add(tensor.dtype.bits)
    for effects in mir.effects:
        for effect in effects:
            if isinstance(effect, Reads | Writes) and effect.view.tensor.name in sizes:
                sizes[effect.view.tensor.name].add(effect.view.dtype.bits)
    return frozenset(name for name, found in sizes.items() if len(found) > 1)


def drawn_tensors(mir: Mir) -> frozenset[str]:
    """Tensors with an addition, or an increment up to a limit, whose result is used."""
    return frozenset(
        access.view.tensor.name
        for access in map(word_access, mir.effects)
        if access is not None and access.combine in ("add", "inc") and access.result is not None
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
    if access is None:
        return False
    replaces = access.combine == "exch" and access.result is None
    return access.stores or replaces or access.combine == "add"


def _incremented(effects: tuple[Effect, ...]) -> set[str]:
    """The tensor of a word that is increased up to a limit, where what was found is used."""
    access = word_access(effects)
    draws = access is not None and access.combine == "inc" and access.result is not None
    return {access.view.tensor.name} if access is not None and draws else set()


def _wait(graph: FlowGraph, loop: Loop) -> _Wait | None:
    """The wait that a loop is, if it only polls and tests; else None."""
    turn = graph.turn(loop)
    mir = graph.mir
    tests = [n for n in turn if isinstance(mir.code[n].what, Branch)]
    polls = [n for n in turn if n not in tests and not _is_idle(mir.effects[n])]
    if len(tests) != 1 or len(polls) != 1:
        return None
    (test,), (poll,) = tests, polls
    branch = mir.code[test].what
    assert isinstance(branch, Branch)
    assert branch.cond is not None
    past = next(b for b in graph.successors[graph.block_of[test]] if b not in loop.blocks)
    leaves = branch.sense == (graph.block_of[branch.target] == past)
    late = turn.index(test) > turn.index(poll)
    turned = _Turn(mir, turn if late else [n for n in turn if n != test], poll)
    ends = turned.at_end(branch.cond if leaves else unary("not", branch.cond), late=late)
    access = turned.at_poll(word_access(mir.effects[poll]))
    if ends is None or access is None or _tells_turns(graph, loop, past, access):
        return None
    spin = _spin(access, ends, graph.blocks[loop.head].start, test, mir.typing)
    if spin is None:
        return None
    first = -1 if late else _repeated(graph, loop, poll)
    back, past = graph.blocks[loop.tail][-1], graph.blocks[past].start
    return _Wait(spin, poll, test, back, past, first, late, turned.made)


def _tells_turns(graph: FlowGraph, loop: Loop, past: int, poll: WordAccess) -> bool:
    """Whether what is used behind a loop is made of what earlier turns have left, besides what they
    have polled: it says how many there were, which is up to the schedule."""
    polled = set() if poll.result is None else {poll.result.name}
    left = carried(graph, loop.head, loop.blocks) - polled
    made: dict[str, set[str]] = {}
    for number in (n for block in loop.blocks for n in graph.blocks[block]):
        for name in _registers_set(graph.mir, number):
            made.setdefault(name, set()).update(mentions(graph.mir)[number].used)
    found, new = set[str](), {*live_at(graph, graph.blocks[past].start)} & made.keys()
    while new:
        found |= new
        new = {part for name in new for part in made.get(name, ())} - found
    return not left.isdisjoint(found)


def _peeled(graph: FlowGraph, wait: _Wait) -> Iterator[_Wait]:
    """Polls in front of a loop that only they, or what is right behind the loop, come before: the
    loop repeats them, as compilers write it that turn loops upside down."""
    if not wait.late:
        return
    mir, head = graph.mir, graph.block_of[wait.spin.head]
    past = _through_jumps(graph, wait.past)
    for block in _entries(graph, head):
        *body, test = graph.blocks[block] or (-1,)
        branch = mir.code[test].what
        if not isinstance(branch, Branch) or branch.cond is None:
            continue
        sides = {branch.target: branch.sense, test + 1: not branch.sense}
        leaves = [sense for n, sense in sides.items() if _through_jumps(graph, n) == past]
        polls = [n for n in body if not _is_idle(mir.effects[n])]
        if len(leaves) != 1 or not polls or mir.code[polls[-1]].guard is not None:
            continue
        turn = _Turn(mir, [n for n in body if n >= polls[-1]], polls[-1])
        ends = turn.at_end(branch.cond if leaves[0] else unary("not", branch.cond), late=True)
        access = turn.at_poll(word_access(mir.effects[polls[-1]]))
        if ends is None or access is None or access.result is None:
            continue
        spin = _spin(access, ends, wait.spin.head, test, mir.typing)
        if spin is not None and _alike(spin, wait.spin):
            first = replace(spin, first=True)
            yield replace(wait, spin=first, poll=polls[-1], test=test, back=-1, made=turn.made)


def _entries(graph: FlowGraph, head: int) -> Iterator[int]:
    """The blocks with a branch from which a loop is entered without anything in between but
    registers."""
    for block in graph.predecessors[head]:
        while not graph.dominates(head, block):
            if len(graph.successors[block]) > 1:
                yield block
                break
            if len(graph.predecessors[block]) != 1 or not all(
                _is_idle(graph.mir.effects[n]) for n in graph.blocks[block]
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


def _alike(one: Spin, other: Spin) -> bool:
    """Whether two polls read one word in one way, and end their waits with the same values."""
    if one.poll.result is None or other.poll.result is None:
        return False
    same = replace(one.poll, result=other.poll.result) == other.poll
    return same and one.passing.renamed(other.poll.result) == other.passing.cond


class _Turn:
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
                tainted |= _registers_set(mir, number)
                self._values.update((name, None) for name in tainted)
                access = word_access(mir.effects[number])
                if access is not None and access.result is not None:
                    self._values[access.result.name] = access.result
                continue
            used = {
                e.name for x in _operands(mir.code[number]) for e in walk(x) if isinstance(e, Var)
            }
            if at > place and used & tainted:
                made.add(number)
                tainted |= _registers_set(mir, number)
            for effect in mir.effects[number]:
                if isinstance(effect, Defines):
                    value = effect.value
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
        """An expression in which registers stand for what they hold."""
        match expr:
            case Var(name):
                return values.get(name, expr)
            case Unary(op, operand):
                inner = self._with(operand, values)
                return None if inner is None else unary(op, inner)
            case Binary(op, lhs, rhs):
                left, right = self._with(lhs, values), self._with(rhs, values)
                return None if left is None or right is None else binary(op, left, right)
            case Select():
                named = any(isinstance(e, Var) and e.name in values for e in walk(expr))
                return None if named else expr
            case _:
                return expr

    def _fitted(self, value: Expr, var: Var) -> Expr | None:
        """What a register holds to which a value is assigned."""
        if var.dtype.kind not in (*_INTEGERS, "pred"):
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


def _registers_set(mir: Mir, number: int) -> set[str]:
    return {e.var.name for e in mir.effects[number] if isinstance(e, Defines)}


def _spin(poll: WordAccess, ends: Expr, head: int, test: int, typing: Typing) -> Spin | None:
    """The wait that repeating an access is until a condition holds."""
    if poll.result is None or not (poll.sem != "weak" if poll.loads else poll.keeps):
        return None
    operands = [e for e in (*expressions_in(poll.view), poll.value) if e is not None]
    if any(_mentions(e, poll.result) for e in operands) or not _mentions(ends, poll.result):
        return None
    try:
        return Spin(poll, Passing(ends, poll.result, typing), head, test)
    except NoWait:
        return None


def _is_idle(effects: tuple[Effect, ...]) -> bool:
    """Whether an instruction only computes registers, or orders accesses of its own thread."""
    return all(
        isinstance(e, Crosses)
        or (isinstance(e, Orders) and (e.acquires or e.releases))
        or (isinstance(e, Defines) and isinstance(e.value, Expr | None) and not e.chance)
        for e in effects
    )


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
    that, or what the turn has made of it.
    """
    used: set[int] = set()
    kept: set[int] = set()
    tests = {wait.test: wait for wait in waits}
    once = {wait.back: (wait.past,) for wait in waits if wait.back >= 0}
    #: where a poll's value may come from: from itself, or from what its turn makes of it
    of = {number: number for number in polls}
    of.update((number, wait.poll) for wait in waits for number in wait.made)
    for warp in representatives(mir):
        graph = FlowGraph(mir, warp=warp, instead=once)
        for number in graph.reached():
            seen = {of[n] for n in _setters(graph, number) & of.keys()}
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
