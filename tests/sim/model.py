"""What the reference models share: the search; of that of warps, barriers and conflicts, too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tests.sim import steps as s
from tests.sim.code import END, Code, Strength
from tests.sim.states import Barrier, Flight, Next, State, Undefined

#: a state of a model, and what can happen in one
S = TypeVar("S")
M = TypeVar("M")

#: phases of barriers that were never initialised, and that were invalidated
UNBORN, DEAD = -1, -2


class TooLarge(Exception):
    """More states than allowed."""


@dataclass
class Verdict:
    """What happens in some interleaving: broken rules, each with the moves that lead there.

    ``whole``: every interleaving was followed.
    """

    states: int = 0
    whole: bool = True
    failures: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Nothing goes wrong in any interleaving."""
        return not self.failures


#: rules of which hardware knows nothing: an execution that breaks one goes on
DATA = frozenset({"race", "proxy-fence", "uninitialised-read", "tcgen05-order"})


class Search(ABC, Generic[S, M]):
    """All executions of a program: every move from every state that one of them reaches.

    A broken rule ends an execution, but for those about data that are looked ``beyond``.
    """

    beyond: frozenset[str] = frozenset()

    def __init__(self, program: s.Small) -> None:
        self.program = program
        #: rules that the last move broke without ending its execution
        self.passing: list[str] = []
        #: by state, which one it was reached from, and by which move
        self._reached: dict[S, tuple[S, M] | None] = {}

    def broken(self, rule: str) -> None:
        """A rule about data is broken."""
        if rule not in self.beyond:
            raise Undefined(rule)

    @abstractmethod
    def first(self) -> S:
        """The state before any move."""

    @abstractmethod
    def moves(self, state: S) -> Iterator[M]:
        """All that can happen next."""

    @abstractmethod
    def after(self, state: S, move: M) -> S:
        """What a move leads to.

        Raises:
            Undefined: the execution ends with it.
        """

    def rests(self, moves: Sequence[M]) -> bool:
        """Whether nothing goes on where these are all moves."""
        return not moves

    @abstractmethod
    def at_rest(self, state: S) -> Iterator[str]:
        """What is wrong with a state in which nothing goes on."""

    @abstractmethod
    def label(self, state: S, move: M) -> str:
        """A move, in words."""

    def explore(self, limit: int, until: str, beyond: frozenset[str]) -> Verdict:
        """Depth-first over states; see `tests.sim.reference.explore`."""
        self.beyond = beyond
        verdict, first = Verdict(), self.first()
        self._reached = {first: None}
        todo = [first]
        while todo and until not in verdict.failures:
            state = todo.pop()
            moves = list(self.moves(state))
            for move in moves:
                self.passing.clear()
                try:
                    target = self.after(state, move)
                    if target not in self._reached:
                        self._reached[target] = state, move
                        todo.append(target)
                except Undefined as error:
                    self.passing.append(str(error))
                self._note(verdict, self.passing, state, move)
            if self.rests(moves):
                self._note(verdict, self.at_rest(state), state)
            if len(self._reached) > limit:
                raise TooLarge
        verdict.states = len(self._reached)
        return verdict

    def _note(self, verdict: Verdict, rules: Iterable[str], state: S, *last: M) -> None:
        """Rules are broken in a state, or by the last move: the first time that is kept."""
        for rule in rules:
            if rule not in verdict.failures:
                ends = (self.label(state, move) for move in last)
                verdict.failures[rule] = (*self._story(state), *ends)

    def _story(self, state: S) -> Iterator[str]:
        """The moves that lead to ``state``."""
        labels = []
        while came := self._reached[state]:
            labels.append(self.label(*came))
            state, _ = came
        yield from reversed(labels)


class Core(Search[State, Flight | int]):
    """One program, and the rules that several kinds of step need.

    Knowledge is an int: an event's bit says that the generic proxy sees it, ``shift`` higher that
    the async proxy does, ``2 * shift`` higher that tcgen05 fences have handed it over, and
    ``3 * shift`` higher that a write may be overwritten: an asynchronous read of what it wrote is
    over, which publishes nothing else (A28), ``4 * shift`` higher that half a fence has begun to
    hand it over (H10).
    """

    def __init__(self, program: s.Small) -> None:
        super().__init__(program)
        self.code = code = Code(program)
        self.shift = code.events
        self.generic = (1 << code.events) - 1
        self.handed = self.generic << 2 * code.events
        self.count = len(program.counts)

    def index(self, warp: int, barrier: int) -> int:
        """The place of a barrier of the warp's CTA."""
        return self.code.cta[warp] * self.count + barrier

    def over(self, n: Next, cta: int) -> bool:
        """Whether all warps of the CTA have ended."""
        return all(at == END for at, c in zip(n.at, self.code.cta, strict=True) if c == cta)

    def reach(self, n: Next, warp: int, cta: int | None) -> int:
        """The CTA that is meant, which must not have ended if it is a peer (D9)."""
        own = self.code.cta[warp]
        if cta is None or cta == own:
            return own
        if self.over(n, cta):
            self.passing.append("peer-exit")
        return cta

    def use(self, n: Next, index: int, known: int) -> Barrier:
        """The barrier, if it may be used (A6, A7)."""
        barrier = n.barriers[index]
        if barrier.phase < 0:
            raise Undefined(
                "uninitialised-barrier" if barrier.phase == UNBORN else "barrier-lifetime"
            )
        if barrier.event & ~known:
            raise Undefined("init-visibility")
        return barrier

    def credit(
        self, n: Next, index: int, arrivals: int, tx: int, publishes: int, drop: int = 0
    ) -> None:
        """A.3; what sees a phase end has observed all that counted until then, also before (H5)."""
        carried = self.code.credits.get(index, 0)
        n.barriers[index] = n.barriers[index].credited(arrivals, tx, publishes, drop, carried)

    def spent(self, writes: int) -> int:
        """What is known of writes when an asynchronous read of the same word is over."""
        return writes << 3 * self.shift

    def overwrites(self, writes: int, reads: int, known: int) -> int:
        """What a write conflicts with."""
        return reads | writes & ~(known >> 3 * self.shift)

    def covered(self, n: Next, goal: int, words: Iterable[int], known: int) -> int:
        """What a write of whole words comes after: who knows the write is over knows it of these.

        They were before it, and nothing that comes after it can see them.
        """
        events = 0
        for word in words:
            events |= self.code.writes[goal][word] | self.code.reads[goal][word]
        return events & n.done & known

    def clash(self, conflicts: int, done: int, known: int, event: int = 0) -> None:
        """A race with what was done and is not known, unless both are strong enough (H2, H6)."""
        unordered = conflicts & done & ~known
        if not unordered:
            return
        mine = self.code.strength.get(event)
        while unordered:
            other = unordered & -unordered
            unordered ^= other
            theirs = self.code.strength.get(other)
            if mine is None or theirs is None or not morally_strong(mine, theirs):
                self.broken("race")
                return

    def async_access(self, writes: int, reads: int, done: int, known: int, event: int = 0) -> None:
        """An access of the async proxy: generic writes must be fenced as well (H6, H11)."""
        self.clash(writes | reads, done, known, event)
        if writes & done & known & ~self.code.asynchronous & ~(known >> self.shift):
            self.broken("proxy-fence")


def mutual(one: s.Scope, cta: int, two: s.Scope, other: int) -> bool:
    """Whether scopes of threads of two CTAs of a cluster include each other (H1, H2)."""
    return cta == other or (one != "cta" and two != "cta")


def morally_strong(one: Strength, two: Strength) -> bool:
    """H2: in one proxy, and each scope includes the other's thread."""
    same = one.asynchronous == two.asynchronous
    return same and mutual(one.scope, one.cta, two.scope, two.cta)
