"""A second, deliberately simple opinion: every interleaving of a small program, one by one.

An explicit-state model of one CTA that shares nothing with ``tilesim.sim``. A state is where each
warp stands, what the barriers count, which copies are in flight and which accesses each warp knows
of; every enabled move is followed from every state. SEMANTICS rules are cited where they apply:
A.3 (mbarriers), A21 and A22 (parity), A26 to A29 (what is published), B1 to B3 (copies), E1 to E7
(named barriers), H6 and H11 (races and proxy fences).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

#: bytes of one word: what a copy writes and completes
WORD = 16


@dataclass(frozen=True)
class Arrive:
    """mbarrier.arrive with a count; ``relaxed`` publishes nothing."""

    barrier: int
    count: int = 1
    relaxed: bool = False


@dataclass(frozen=True)
class ArriveExpect:
    """mbarrier.arrive.expect_tx for this many words."""

    barrier: int
    words: int = 1


@dataclass(frozen=True)
class Expect:
    """mbarrier.expect_tx for this many words."""

    barrier: int
    words: int = 1


@dataclass(frozen=True)
class Copy:
    """cp.async.bulk into one word, tracked by a barrier."""

    barrier: int
    word: int


@dataclass(frozen=True)
class Wait:
    """A wait for a parity; ``carried``: in a loop it alternates with the iteration."""

    barrier: int
    parity: int
    carried: bool = False


@dataclass(frozen=True)
class Read:
    """A load of one word."""

    word: int


@dataclass(frozen=True)
class Write:
    """A store to one word."""

    word: int


@dataclass(frozen=True)
class Fence:
    """fence.proxy.async."""


@dataclass(frozen=True)
class Join:
    """bar.sync, or (not ``waits``) bar.arrive, of this many warps."""

    id: int
    warps: int
    waits: bool = True


@dataclass(frozen=True)
class Loop:
    """A run-time loop."""

    trips: int
    body: tuple[Step, ...]


Step = Arrive | ArriveExpect | Expect | Copy | Wait | Read | Write | Fence | Join | Loop


@dataclass(frozen=True)
class Small:
    """A program: the steps of each warp and the arrival count of each mbarrier.

    Words are written by warp 0 before everything else; ``fenced``: and made known to the async
    proxy.
    """

    warps: tuple[tuple[Step, ...], ...]
    counts: tuple[int, ...]
    words: int = 1
    fenced: bool = True

    @property
    def size(self) -> int:
        """Number of steps."""
        return sum(_size(steps) for steps in self.warps)


def _size(steps: tuple[Step, ...]) -> int:
    return sum(1 + _size(s.body) if isinstance(s, Loop) else 1 for s in steps)


def unrolled(steps: tuple[Step, ...]) -> Iterator[Step]:
    """The steps as executed."""
    for step in steps:
        if isinstance(step, Loop):
            for trip in range(step.trips):
                for inner in step.body:
                    if isinstance(inner, Wait) and inner.carried:
                        yield Wait(inner.barrier, inner.parity ^ (trip & 1))
                    else:
                        yield from unrolled((inner,))
        else:
            yield replace(step, carried=False) if isinstance(step, Wait) else step


@dataclass(frozen=True)
class Knowledge:
    """Accesses (bits) that are ordered before: as the generic and as the async proxy sees it."""

    generic: int = 0
    fenced: int = 0

    def __or__(self, other: Knowledge) -> Knowledge:
        return Knowledge(self.generic | other.generic, self.fenced | other.fenced)


NOTHING = Knowledge()


@dataclass(frozen=True)
class Barrier:
    """An mbarrier: completed phases, pending and expected arrivals, tx-count, what it publishes."""

    phase: int
    pending: int
    expected: int
    tx: int = 0
    open: Knowledge = NOTHING
    closed: Knowledge = NOTHING


@dataclass(frozen=True)
class Named:
    """The open round of a named barrier."""

    count: int = 0
    members: int = 0
    waiting: int = 0
    open: Knowledge = NOTHING


@dataclass(frozen=True)
class Flight:
    """A copy in flight: its place in the program and what its issuer knew."""

    warp: int
    at: int
    issued: Knowledge


@dataclass(frozen=True)
class State:
    """Everything; ``parked`` are warps that wait at a named barrier, ``done`` executed accesses."""

    at: tuple[int, ...]
    knows: tuple[Knowledge, ...]
    barriers: tuple[Barrier, ...]
    named: tuple[Named, ...]
    flights: frozenset[Flight] = frozenset()
    parked: int = 0
    done: int = 0


class Undefined(Exception):
    """A move that breaks a rule: the rule's name."""


class TooLarge(Exception):
    """More states than allowed."""


@dataclass
class Verdict:
    """What happens in some interleaving: broken rules, each with the moves that lead there."""

    states: int = 0
    failures: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Nothing goes wrong in any interleaving."""
        return not self.failures


def explore(program: Small, limit: int = 100_000) -> Verdict:
    """Every interleaving of ``program``.

    Raises:
        TooLarge: there are more than ``limit`` states.
    """
    return _Model(program).explore(limit)


class _Model:
    """The moves of one program."""

    def __init__(self, program: Small) -> None:
        self.program = program
        self.steps = [tuple(unrolled(steps)) for steps in program.warps]
        starts = [1 + sum(map(len, self.steps[:w])) for w in range(len(self.steps))]
        #: bit 0 is the initial store to all words
        self.bit = [
            [1 << (start + i) for i in range(len(steps))]
            for start, steps in zip(starts, self.steps, strict=True)
        ]
        self.writes = [1] * program.words
        self.reads = [0] * program.words
        self.copies = 0
        for warp, steps in enumerate(self.steps):
            for i, step in enumerate(steps):
                match step:
                    case Read(word=word):
                        self.reads[word] |= self.bit[warp][i]
                    case Write(word=word):
                        self.writes[word] |= self.bit[warp][i]
                    case Copy(word=word):
                        self.writes[word] |= self.bit[warp][i]
                        self.copies |= self.bit[warp][i]
                    case _:
                        pass

    def explore(self, limit: int) -> Verdict:
        """Depth-first over states."""
        verdict = Verdict()
        first = self._first()
        reached: dict[State, tuple[State | None, str]] = {first: (None, "")}
        todo = [first]
        while todo:
            state = todo.pop()
            moves = 0
            for label, target in self._moves(state):
                moves += 1
                if isinstance(target, str):
                    verdict.failures.setdefault(target, (*_story(reached, state), label))
                elif target not in reached:
                    reached[target] = (state, label)
                    todo.append(target)
            if not moves:
                rule = self._at_rest(state)
                if rule:
                    verdict.failures.setdefault(rule, tuple(_story(reached, state)))
            if len(reached) > limit:
                raise TooLarge
        verdict.states = len(reached)
        return verdict

    def _first(self) -> State:
        start = Knowledge(1, 1 if self.program.fenced else 0)
        ids = 1 + max(
            (s.id for steps in self.steps for s in steps if isinstance(s, Join)), default=-1
        )
        return State(
            (0,) * len(self.steps), (start,) * len(self.steps),
            tuple(Barrier(0, n, n) for n in self.program.counts), (Named(),) * ids, done=1,
        )  # fmt: skip

    def _at_rest(self, state: State) -> str:
        """What is wrong with a state in which nothing can move."""
        if state.parked or state.at != tuple(map(len, self.steps)):
            return "deadlock"
        known = 0
        for knowledge in state.knows:
            known |= knowledge.generic
        return "async-at-exit" if self.copies & ~known else ""

    def _moves(self, state: State) -> Iterator[tuple[str, State | str]]:
        for flight in state.flights:
            step = self.steps[flight.warp][flight.at]
            assert isinstance(step, Copy)
            yield f"lands: {step} of warp {flight.warp}", self._try(self._land, state, flight)
        for warp, at in enumerate(state.at):
            if at == len(self.steps[warp]) or state.parked >> warp & 1:
                continue
            step = self.steps[warp][at]
            if isinstance(step, Wait) and state.barriers[step.barrier].phase & 1 == step.parity:
                continue
            yield f"warp {warp}: {step}", self._try(self._execute, state, warp)

    @staticmethod
    def _try(move: object, *args: object) -> State | str:
        try:
            result = move(*args)  # type: ignore[operator]
        except Undefined as error:
            return str(error)
        assert isinstance(result, State)
        return result

    # ------------------------------------------------------------------ moves

    def _land(self, state: State, flight: Flight) -> State:
        step = self.steps[flight.warp][flight.at]
        assert isinstance(step, Copy)
        bit = self.bit[flight.warp][flight.at]
        earlier = (self.writes[step.word] | self.reads[step.word]) & state.done
        if earlier & ~flight.issued.generic:
            raise Undefined("race")
        if earlier & self.writes[step.word] & ~self.copies & ~flight.issued.fenced:
            raise Undefined("proxy-fence")
        state = replace(state, flights=state.flights - {flight}, done=state.done | bit)
        # the completion publishes the copy's own write and nothing else (A28)
        return _credit(state, step.barrier, 0, -WORD, Knowledge(bit, bit))

    def _execute(self, state: State, warp: int) -> State:
        at, knows = state.at[warp], state.knows[warp]
        step, bit = self.steps[warp][at], self.bit[warp][at]
        after = replace(state, at=_put(state.at, warp, at + 1))
        match step:
            case Arrive(barrier=barrier, count=count, relaxed=relaxed):
                return _credit(after, barrier, count, 0, NOTHING if relaxed else knows)
            case ArriveExpect(barrier=barrier, words=words):
                return _credit(after, barrier, 1, words * WORD, knows)
            case Expect(barrier=barrier, words=words):
                expected = _credit(after, barrier, 0, words * WORD, NOTHING)
                if expected.barriers[barrier].phase != state.barriers[barrier].phase:
                    raise Undefined("tx-mismatch")
                return expected
            case Copy():
                return replace(after, flights=after.flights | {Flight(warp, at, knows)})
            case Wait(barrier=barrier):
                seen = state.barriers[barrier].closed
                return replace(after, knows=_put(after.knows, warp, knows | seen))
            case Read(word=word) | Write(word=word):
                conflicts = self.writes[word]
                if isinstance(step, Write):
                    conflicts |= self.reads[word]
                if conflicts & state.done & ~knows.generic:
                    raise Undefined("race")
                knows |= Knowledge(bit, 0)
                return replace(after, done=state.done | bit, knows=_put(after.knows, warp, knows))
            case Fence():
                knows |= Knowledge(0, knows.generic)
                return replace(after, knows=_put(after.knows, warp, knows))
            case Join():
                return _join(after, step, warp)
            case _:
                raise AssertionError(step)


def _credit(state: State, index: int, arrivals: int, tx: int, publishes: Knowledge) -> State:
    """A.3: arrivals and bytes in one step, and the end of the phase if both are used up."""
    b = state.barriers[index]
    if arrivals > b.pending:
        raise Undefined("over-arrival")
    b = replace(b, pending=b.pending - arrivals, tx=b.tx + tx, open=b.open | publishes)
    if b.pending == 0 and b.tx == 0:
        b = Barrier(b.phase + 1, b.expected, b.expected, 0, NOTHING, b.open)
    return replace(state, barriers=_put(state.barriers, index, b))


def _join(state: State, step: Join, warp: int) -> State:
    """E2 to E7: the last of a round releases the waiting ones."""
    named = state.named[step.id]
    mixed = named.members and named.count != step.warps
    if named.members >> warp & 1 or mixed or step.warps > len(state.at):
        raise Undefined("named-barrier")
    named = Named(
        step.warps,
        named.members | 1 << warp,
        named.waiting | int(step.waits) << warp,
        named.open | state.knows[warp],
    )
    parked, knows = state.parked | int(step.waits) << warp, state.knows
    if named.members.bit_count() >= step.warps:
        for other in range(len(knows)):
            if named.waiting >> other & 1:
                knows = _put(knows, other, knows[other] | named.open)
        parked &= ~named.waiting
        named = Named()
    return replace(state, knows=knows, parked=parked, named=_put(state.named, step.id, named))


T = TypeVar("T")


def _put(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])


def _story(reached: dict[State, tuple[State | None, str]], state: State) -> Iterator[str]:
    """The moves that lead to ``state``."""
    labels = []
    at: State | None = state
    while at is not None:
        at, label = reached[at]
        labels.append(label)
    yield from (label for label in reversed(labels) if label)
