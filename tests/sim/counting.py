"""A model of counters, apart from the simulator: every interleaving of a small program.

Warps of one CTA add to words, store to them, wait for them, read and write data, fence and meet at
``__syncthreads``. Strong accesses follow SEMANTICS H2 to H4; all scopes include everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

from tilesim import Builder
from tilesim.arith.types import s32
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.expr import Var
from tilesim.ir.ops.scalar import AtomicSem
from tilesim.ir.program import Program


@dataclass(frozen=True)
class Add:
    """red.add."""

    word: int
    amount: int = 1
    release: bool = True


@dataclass(frozen=True)
class Set:
    """A store: release, relaxed or weak."""

    word: int
    value: int
    sem: Literal["release", "relaxed", "weak"] = "release"


@dataclass(frozen=True)
class Spin:
    """A wait until a word is at least, just, or not ``value``."""

    word: int
    value: int
    until: Literal["least", "equal", "other"] = "least"
    acquire: bool = True


@dataclass(frozen=True)
class Touch:
    """A weak access of data."""

    word: int
    write: bool


@dataclass(frozen=True)
class Fence:
    """fence.acq_rel.gpu."""


@dataclass(frozen=True)
class Meet:
    """__syncthreads."""


Step = Add | Set | Spin | Touch | Fence | Meet
Warps = tuple[tuple[Step, ...], ...]
WORDS, DATA = 2, 2


class Word(NamedTuple):
    """Its value and the events that an acquire of it learns of."""

    value: int = 0
    sent: int = 0


class State(NamedTuple):
    """Where the warps are, what each knows, saw without acquiring, and has fenced; the words; by
    warp, what it has released through each word."""

    at: tuple[int, ...]
    knows: tuple[int, ...]
    saw: tuple[int, ...]
    fenced: tuple[int, ...]
    words: tuple[Word, ...]
    told: tuple[tuple[int, ...], ...]


class TooLarge(Exception):
    """More states than asked for."""


class Model:
    """All interleavings of ``warps``; an event is a bit, numbered by warp and place."""

    def __init__(self, warps: Warps) -> None:
        self.warps = warps
        self.events: dict[tuple[int, int], int] = {}
        for warp, steps in enumerate(warps):
            for place in range(len(steps)):
                self.events[warp, place] = 1 << len(self.events)

    def failures(self, limit: int) -> set[str]:
        """The rules that some interleaving breaks: ``race``, ``deadlock``."""
        n = len(self.warps)
        start = State(
            (0,) * n, (0,) * n, (0,) * n, (0,) * n, (Word(),) * WORDS, ((0,) * WORDS,) * n
        )  # fmt: skip
        seen, todo = {start}, [start]
        found: set[str] = set()
        while todo:
            state = todo.pop()
            moves = [m for w in range(n) for m in self.moves(state, w, found)]
            if not moves and any(a < len(s) for a, s in zip(state.at, self.warps, strict=True)):
                found.add("deadlock")
            for following in moves:
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
            if len(seen) > limit:
                raise TooLarge
        return found

    def moves(self, state: State, warp: int, found: set[str]) -> list[State]:
        """The state after the next step of ``warp``; none if it cannot move."""
        steps, place = self.warps[warp], state.at[warp]
        if place == len(steps):
            return []
        step = steps[place]
        if isinstance(step, Meet):
            return self._meet(state, warp)
        if isinstance(step, Spin) and not _through(step, state.words[step.word].value):
            return []
        if self._races(state, warp, step):
            found.add("race")
            return []
        return [self._act(state, warp, step, self.events[warp, place])]

    def _meet(self, state: State, warp: int) -> list[State]:
        """All warps that have not ended leave together."""
        live = [w for w, steps in enumerate(self.warps) if state.at[w] < len(steps)]
        if warp != live[0] or any(not isinstance(self.warps[w][state.at[w]], Meet) for w in live):
            return []
        knows = saw = fenced = 0
        for w in live:
            knows |= state.knows[w]
            saw |= state.saw[w]
            fenced |= state.fenced[w]
        at, all_knows, all_saw, all_fenced = map(list, state[:4])
        for w in live:
            at[w] += 1
            all_knows[w], all_saw[w], all_fenced[w] = knows, saw, fenced
        return [
            state._replace(
                at=tuple(at), knows=tuple(all_knows), saw=tuple(all_saw), fenced=tuple(all_fenced)
            )
        ]

    def _races(self, state: State, warp: int, step: Step) -> bool:
        """Whether the step conflicts with one that was made and that its warp does not know."""
        for other, steps in enumerate(self.warps):
            for place in range(state.at[other]):
                unknown = not state.knows[warp] & self.events[other, place]
                if other != warp and unknown and _conflict(step, steps[place]):
                    return True
        return False

    def _act(self, state: State, warp: int, step: Step, event: int) -> State:
        at, knows, saw, fenced = map(list, state[:4])
        words, told = list(state.words), [list(row) for row in state.told]
        at[warp] += 1
        knows[warp] |= event
        match step:
            case Add(word, amount, release):
                # whoever has released here before does so again, as after a fence (H3)
                told[warp][word] |= knows[warp] if release else 0
                sent = words[word].sent | told[warp][word] | fenced[warp]
                words[word] = Word(words[word].value + amount, sent)
            case Set(word, value, sem):
                told[warp][word] |= knows[warp] if sem == "release" else 0
                sent = 0 if sem == "weak" else told[warp][word] | fenced[warp]
                words[word] = Word(value, sent)
            case Spin(word=word, acquire=True):
                knows[warp] |= words[word].sent
            case Spin(word=word):
                saw[warp] |= words[word].sent
            case Fence():
                knows[warp] |= saw[warp]
                fenced[warp] = knows[warp]
            case _:
                pass
        rows = tuple(map(tuple, told))
        return State(tuple(at), tuple(knows), tuple(saw), tuple(fenced), tuple(words), rows)


def _through(step: Spin, value: int) -> bool:
    match step.until:
        case "least":
            return value >= step.value
        case "equal":
            return value == step.value
        case _:
            return value != step.value


def _conflict(one: Step, two: Step) -> bool:
    """One place, one of them a write, and not both strong."""
    first, second = _access(one), _access(two)
    if first is None or second is None or first[0] != second[0]:
        return False
    return (first[1] or second[1]) and not (first[2] and second[2])


def _access(step: Step) -> tuple[tuple[str, int], bool, bool] | None:
    """What a step touches, whether it writes, and whether it is strong."""
    match step:
        case Touch(word, write):
            return ("data", word), write, False
        case Add(word=word):
            return ("word", word), True, True
        case Set(word=word, sem=sem):
            return ("word", word), True, sem != "weak"
        case Spin(word=word):
            return ("word", word), False, True
        case _:
            return None


# ------------------------------------------------------------------ as a program


def translate(warps: Warps) -> Program:
    """The program for the simulator."""
    k = Builder("small", "sm_90a", len(warps))
    words, data = k.tensor("words", s32, (WORDS,)), k.tensor("data", s32, (DATA,))
    seen, got = k.var("seen", 0), k.var("got", 0)
    for number, steps in enumerate(warps):
        with k.role(f"w{number}", number):
            for step in steps:
                if isinstance(step, Meet):
                    k.bar.sync(0, 32 * len(warps), aligned=False)
                else:
                    with k.elected():
                        emit(k, step, words, data, seen, got)
    return k.finish()


def emit(
    k: Builder, step: Step, words: GlobalTensor, data: GlobalTensor, seen: Var, got: Var
) -> None:
    """One step of a thread."""
    match step:
        case Add(word, amount, release):
            order: AtomicSem = "release" if release else "relaxed"
            k.mem.atomic(words[word], "add", amount, sem=order, scope="gpu")
        case Set(word, value, sem):
            k.mem.store(words[word], value, sem=sem, scope="cta" if sem == "weak" else "gpu")
        case Spin(word, value, until, acquire):
            start = {"least": value - 1, "equal": value + 1, "other": value}[until]
            k.assign(seen, start)
            conds = {"least": seen < value, "equal": seen.ne(value), "other": seen.eq(value)}
            with k.while_(conds[until]):
                k.mem.load(seen, words[word], sem="acquire" if acquire else "relaxed", scope="gpu")
        case Touch(word, write):
            if write:
                k.mem.store(data[word], k.thread_id)
            else:
                k.mem.load(got, data[word])
        case Fence():
            k.fence.memory("acq_rel", scope="gpu")
        case _:
            pass


# ------------------------------------------------------------------ random programs


def sample(rng: Random) -> Warps:
    """Two or three warps, made along one schedule so that it goes through most of the time."""
    warps: list[list[Step]] = [[] for _ in range(rng.choice((2, 2, 3)))]
    values = [0] * WORDS
    for _ in range(rng.randrange(4, 11)):
        step = _fitting(rng, values)
        if not rng.randrange(14):
            for steps in warps:
                steps.append(Meet())
        rng.choice(warps).append(step)
    return tuple(map(tuple, warps))


def _fitting(rng: Random, values: list[int]) -> Step:
    """A step, and what it makes of the words."""
    word = 0 if rng.randrange(3) else rng.randrange(WORDS)
    now, kind = values[word], rng.randrange(100)
    if kind < 28:
        amount = 1 if rng.randrange(5) else rng.randrange(1, 4)
        values[word] += amount
        return Add(word, amount, rng.randrange(5) > 0)
    if kind < 36:
        values[word] = now + rng.randrange(1, 3) if rng.randrange(2) else rng.randrange(4)
        return Set(word, values[word], rng.choice(("release", "release", "relaxed", "weak")))
    if kind < 62:
        acquire = rng.randrange(5) > 0
        match rng.randrange(8):
            case 0 if now:
                return Spin(word, now - 1, "other", acquire)
            case 1 | 2:
                return Spin(word, now, "equal", acquire)
            case _:
                return Spin(word, max(0, now - (not rng.randrange(4))), "least", acquire)
    if kind < 90:
        return Touch(rng.randrange(DATA), write=bool(rng.randrange(2)))
    return Fence()
