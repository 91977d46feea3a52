"""Random small programs: generation, translation to tilesim's IR, and shrinking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from tests.sim.reference import (
    WORD,
    Arrive,
    ArriveExpect,
    Copy,
    Expect,
    Fence,
    Join,
    Loop,
    Read,
    Small,
    Step,
    Wait,
    Write,
)
from tilesim import Builder, Program, u32
from tilesim.ir.expr import Expr
from tilesim.ir.loc import Loc
from tilesim.ir.memory import GlobalTensor, Mbarriers, SharedTensor
from tilesim.ir.op import Op
from tilesim.ir.program import Stmt, rewrite

#: a number below n, from a random generator or from hypothesis
Choose = Callable[[int], int]


# ------------------------------------------------------------------ translation


class _Translation:
    """The IR of one small program."""

    def __init__(self, small: Small) -> None:
        self.k = k = Builder("small", "sm_90a", len(small.warps))
        self.source: GlobalTensor = k.tensor("source", u32, (WORD // 4,))
        self.words: SharedTensor = k.shared("words", u32, (small.words, WORD // 4))
        self.barriers: list[Mbarriers] = [k.mbarriers(f"b{i}") for i, _ in enumerate(small.counts)]
        self.loaded = k.var("loaded", dtype=u32)
        with k.one_thread():
            for word in range(small.words):
                # a copy writes 16 bytes; one lane stores four of them, all in one footprint
                k.mem.store(self.words[word, 0], 0)
            if small.fenced:
                k.fence.proxy_async()
            for barrier, expected in zip(self.barriers, small.counts, strict=True):
                k.mbarrier.init(barrier, expected)
        k.sync_threads()
        for warp, steps in enumerate(small.warps):
            with k.role(f"w{warp}", warp):
                for step in steps:
                    self.emit(step, None)

    def emit(self, step: Step, trip: Expr | None) -> None:
        """One step, in iteration ``trip`` of the innermost loop."""
        k = self.k
        match step:
            case Loop(trips=trips, body=body):
                with k.loop(trips) as i:
                    for inner in body:
                        self.emit(inner, i)
            case Wait(barrier=barrier, parity=parity, carried=carried):
                value = (trip & 1) ^ parity if carried and trip is not None else parity
                k.mbarrier.wait(self.barriers[barrier], value)
            case Join(id=id_, warps=warps, waits=True):
                k.bar.sync(id_ + 1, 32 * warps)
            case Join(id=id_, warps=warps):
                k.bar.arrive(id_ + 1, 32 * warps)
            case Fence():
                k.fence.proxy_async()
            case _:
                with k.elected():
                    self._one_lane(step)

    def _one_lane(self, step: Step) -> None:
        k = self.k
        match step:
            case Arrive(barrier=barrier, count=arrivals, relaxed=relaxed):
                sem = "relaxed" if relaxed else "release"
                k.mbarrier.arrive(self.barriers[barrier], arrivals, sem=sem)  # type: ignore[arg-type]
            case ArriveExpect(barrier=barrier, words=words):
                k.mbarrier.arrive_expect_tx(self.barriers[barrier], words * WORD)
            case Expect(barrier=barrier, words=words):
                k.mbarrier.expect_tx(self.barriers[barrier], words * WORD)
            case Copy(barrier=barrier, word=word):
                k.bulk.load(self.words[word], self.source[:], self.barriers[barrier])
            case Read(word=word):
                k.mem.load(self.loaded, self.words[word, 0])
            case Write(word=word):
                k.mem.store(self.words[word, 0], 1)
            case _:
                raise AssertionError(step)


def translate(small: Small, *, one_line: bool = False) -> Program:
    """The program in tilesim's IR; every instruction on a line of its own unless ``one_line``."""
    program = _Translation(small).k.finish()
    if one_line:
        return program
    lines = count(1)

    def place(stmt: Stmt) -> tuple[Stmt, ...]:
        return (replace(stmt, loc=Loc("small", next(lines))),) if isinstance(stmt, Op) else (stmt,)

    return replace(program, body=rewrite(program.body, place))


# ------------------------------------------------------------------ generation


class _Sketch:
    """A program in the making, with the state of one of its schedules.

    Steps are chosen so that this schedule goes through, most of the time: programs made blindly
    nearly all deadlock in every schedule, which tests little.
    """

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.warps: list[list[Step]] = [[] for _ in range(2 + choose(3))]
        self.counts = [1 + choose(3) for _ in range(1 + choose(3))]
        self.words = 1 + choose(2)
        self.shares = choose(3) > 0
        self.phase = [0] * len(self.counts)
        self.pending = list(self.counts)
        self.tx = [0] * len(self.counts)

    def credit(self, barrier: int, arrivals: int, tx: int) -> None:
        """What the schedule does to a barrier."""
        self.pending[barrier] -= arrivals
        self.tx[barrier] += tx
        if self.pending[barrier] <= 0 and self.tx[barrier] == 0:
            self.phase[barrier] += 1
            self.pending[barrier] = self.counts[barrier]

    def add(self) -> None:
        """One more step (or a group of steps) for some warp."""
        steps = self.warps[self.choose(len(self.warps))]
        barrier, word = self.choose(len(self.counts)), self.choose(self.words)
        match self.choose(16):
            case 0 | 1 | 2 | 3:
                parity = (self.phase[barrier] & 1) ^ 1
                steps.append(Wait(barrier, parity if self.choose(8) else parity ^ 1))
            case 4 | 5 | 6:
                arrivals = 1 + self.choose(max(1, self.pending[barrier]))
                steps.append(Arrive(barrier, arrivals, relaxed=not self.choose(10)))
                self.credit(barrier, arrivals, 0)
            case 7 | 8:
                self._copy(steps, barrier, word)
            case 9 | 10 | 11 | 12 if not self.shares:
                steps.append(Wait(barrier, (self.phase[barrier] & 1) ^ 1))
            case 9 | 10:
                steps.append(Write(word))
            case 11 | 12:
                steps.append(Read(word))
            case 13:
                steps.append(Fence())
            case 14:
                self._meet()
            case _:
                self._odd(steps, barrier, word)

    def _copy(self, steps: list[Step], barrier: int, word: int) -> None:
        """Expectation and copy, by one warp or by two, in either order."""
        other = steps if self.choose(3) else self.warps[self.choose(len(self.warps))]
        if self.choose(3):
            steps.append(ArriveExpect(barrier))
            other.append(Copy(barrier, word))
            self.credit(barrier, 1, 0)
        else:
            first, second = (Expect(barrier), Copy(barrier, word))[:: 1 - 2 * self.choose(2)]
            steps.append(first)
            other.append(second)

    def _meet(self) -> None:
        """Some warps meet at a named barrier."""
        members = [w for w in self.warps if self.choose(2)]
        id_, some = self.choose(2), len(members)
        for place, steps in enumerate(members):
            steps.append(Join(id_, some, waits=place == 0 or bool(self.choose(3))))

    def _odd(self, steps: list[Step], barrier: int, word: int) -> None:
        """A step that fits nothing, or a loop around the last ones."""
        match self.choose(4):
            case 0:
                steps.append(Copy(barrier, word))
            case 1:
                steps.append(Expect(barrier))
            case _:
                length = min(len(steps), 1 + self.choose(3))
                body = tuple(_carried(s) for s in steps[len(steps) - length :])
                if body and not any(isinstance(s, Loop) for s in body):
                    steps[len(steps) - length :] = [Loop(2 + self.choose(2), body)]

    def finish(self) -> Small:
        """The program; most of the time copies are waited for at the end."""
        return Small(
            tuple(map(tuple, self.warps)), tuple(self.counts), self.words, self.choose(8) > 0
        )


def _carried(step: Step) -> Step:
    return replace(step, carried=True) if isinstance(step, Wait) else step


def generate(choose: Choose, *, most: int = 14) -> Small:
    """A random program of about ``most`` steps at most."""
    sketch = _Sketch(choose)
    for _ in range(3 + choose(most - 2)):
        sketch.add()
    return sketch.finish()


# ------------------------------------------------------------------ shrinking


def smaller(small: Small) -> Iterator[Small]:
    """Programs with one thing less."""
    if len(small.warps) > 1:
        for warp in range(len(small.warps)):
            yield replace(small, warps=small.warps[:warp] + small.warps[warp + 1 :])
    for warp, steps in enumerate(small.warps):
        for fewer in _fewer(steps):
            yield replace(small, warps=(*small.warps[:warp], fewer, *small.warps[warp + 1 :]))
    for barrier, expected in enumerate(small.counts):
        if expected > 1:
            counts = (*small.counts[:barrier], expected - 1, *small.counts[barrier + 1 :])
            yield replace(small, counts=counts)


def _fewer(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    for i, step in enumerate(steps):
        yield steps[:i] + steps[i + 1 :]
        if isinstance(step, Loop):
            yield steps[:i] + step.body + steps[i + 1 :]
            if step.trips > 1:
                yield (*steps[:i], replace(step, trips=step.trips - 1), *steps[i + 1 :])
            for body in _fewer(step.body):
                yield (*steps[:i], replace(step, body=body), *steps[i + 1 :])
        if isinstance(step, Arrive) and step.count > 1:
            yield (*steps[:i], replace(step, count=step.count - 1), *steps[i + 1 :])


def shrink(small: Small, fails: Callable[[Small], bool]) -> Small:
    """The smallest program found by removing things while ``fails`` holds."""
    todo = True
    while todo:
        todo = False
        for candidate in smaller(small):
            if fails(candidate):
                small, todo = candidate, True
                break
    return small
