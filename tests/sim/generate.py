"""Random small programs: blind ones, and correct pipelines with a change or two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.sim import steps as s
from tests.sim.code_lanes import Code, IllFormed
from tests.sim.grid_changes import changed_grid
from tests.sim.grid_programs import GRID_STYLES
from tests.sim.lane_changes import changed
from tests.sim.lane_pipelines import LANE_STYLES
from tests.sim.observers import observers
from tests.sim.pipelines import mutated, pipeline
from tests.sim.steps import Family, Small, Step
from tests.sim.strong_pipelines import REDUCTION_STYLES, SCOPE_STYLES, blind
from tests.sim.tensor_pipelines import TENSOR_STYLES
from tests.sim.wgmma_programs import WGMMA_STYLES, changed_wgmma

#: a number below n, from a random generator or from hypothesis
Choose = Callable[[int], int]


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
        self.expected = list(self.counts)
        self.tx = [0] * len(self.counts)

    def credit(self, barrier: int, arrivals: int, tx: int) -> None:
        """What the schedule does to a barrier."""
        self.pending[barrier] -= arrivals
        self.tx[barrier] += tx
        if self.pending[barrier] <= 0 and self.tx[barrier] == 0:
            self.phase[barrier] += 1
            self.pending[barrier] = self.expected[barrier]

    def add(self) -> None:
        """One more step (or a group of steps) for some warp."""
        steps = self.warps[self.choose(len(self.warps))]
        barrier, word = self.choose(len(self.counts)), self.choose(self.words)
        match self.choose(20):
            case 0 | 1 | 2 | 3:
                parity = (self.phase[barrier] & 1) ^ 1
                steps.append(s.Wait(barrier, parity if self.choose(8) else parity ^ 1))
            case 4 | 5 | 6:
                self._arrive(steps, barrier)
            case 7 | 8:
                self._copy(steps, barrier, word)
            case 9 | 10 | 11 | 12 if not self.shares:
                steps.append(s.Wait(barrier, (self.phase[barrier] & 1) ^ 1))
            case 9 | 10:
                steps.append(s.Write(word))
            case 11 | 12:
                steps.append(s.Read(word))
            case 13:
                steps.append(s.Fence())
            case 14:
                self._meet()
            case 15:
                self._bytes(steps, barrier)
            case 16:
                self._look(steps, barrier)
            case 17:
                self._later(steps, barrier, word)
            case _:
                self._odd(steps, barrier, word)

    def _arrive(self, steps: list[Step], barrier: int) -> None:
        arrivals = 1 + self.choose(max(1, self.pending[barrier]))
        drop = not self.choose(8)
        partial = not drop and not self.choose(12)
        if drop:
            self.expected[barrier] -= arrivals
        relaxed = not drop and not partial and not self.choose(10)
        steps.append(s.Arrive(barrier, arrivals, relaxed, partial=partial, drop=drop))
        self.credit(barrier, arrivals, 0)

    def _copy(self, steps: list[Step], barrier: int, word: int) -> None:
        """Expectation and copy, by one warp or by two, in either order."""
        other = steps if self.choose(3) else self.warps[self.choose(len(self.warps))]
        words = self.words if word == 0 and not self.choose(4) else 1
        copy = s.Copy(barrier, word, words)
        if self.choose(3):
            steps.append(s.ArriveExpect(barrier, words))
            other.append(copy)
            self.credit(barrier, 1, 0)
        else:
            first, second = (s.Expect(barrier, words), copy)[:: 1 - 2 * self.choose(2)]
            steps.append(first)
            other.append(second)

    def _bytes(self, steps: list[Step], barrier: int) -> None:
        """Bytes that come from an instruction, or in two parts."""
        words = 1 + self.choose(3)
        expects: list[Step] = [s.ArriveExpect(barrier, words)]
        if words > 1 and self.choose(2):
            expects = [s.ArriveExpect(barrier, words - 1), s.Expect(barrier, 1)]
        other = self.warps[self.choose(len(self.warps))]
        steps.extend(expects)
        other.append(s.Complete(barrier, words))
        self.credit(barrier, 1, 0)

    def _look(self, steps: list[Step], barrier: int) -> None:
        """A peek and a wait with something in between, or a poll with a branch."""
        parity = (self.phase[barrier] & 1) ^ 1
        if self.choose(3):
            wrong = not self.choose(10)
            steps.append(s.Peek(barrier, parity ^ int(wrong)))
            if self.choose(2):
                self._arrive(steps, self.choose(len(self.counts)))
            steps.append(s.WaitUnless(barrier, parity))
        else:
            then = (s.Read(self.choose(self.words)),)
            orelse = (s.Wait(barrier, parity), *then) if self.choose(2) else ()
            steps.append(s.Poll(barrier, parity, then, orelse, blocking=bool(self.choose(2))))

    def _later(self, steps: list[Step], barrier: int, word: int) -> None:
        """An arrival that comes later, or a bulk store and its wait."""
        if self.choose(2):
            inc = bool(self.choose(2))
            steps.append(s.Later(barrier, inc))
            self.credit(barrier, 0 if inc else 1, 0)
            return
        steps += [s.Fence(), s.Store(word, self.choose(2)), s.Commit()]
        if self.choose(4):
            steps.append(s.WaitGroup(self.choose(2), bool(self.choose(2))))

    def _meet(self) -> None:
        """Some warps meet at a named barrier."""
        members = [w for w in self.warps if self.choose(2)]
        id_, some = self.choose(2), len(members)
        for place, steps in enumerate(members):
            steps.append(s.Join(id_, some, waits=place == 0 or bool(self.choose(3))))

    def _odd(self, steps: list[Step], barrier: int, word: int) -> None:
        """A step that fits nothing, or a loop around the last ones."""
        match self.choose(5):
            case 0:
                steps.append(s.Copy(barrier, word))
            case 1:
                steps.append(s.Expect(barrier))
            case 2:
                steps.append(s.Inval(barrier))
                if self.choose(2):
                    steps.append(s.Init(barrier, 1 + self.choose(2)))
            case _:
                length = min(len(steps), 1 + self.choose(3))
                body = tuple(map(_carried, steps[len(steps) - length :]))
                if body and not any(isinstance(x, s.Loop) for x in body):
                    steps[len(steps) - length :] = [s.Loop(2 + self.choose(2), body)]

    def finish(self) -> Small:
        """The program; most of the time the words are known to the async proxy."""
        return Small(
            tuple(map(tuple, self.warps)), tuple(self.counts), self.words, self.choose(8) > 0
        )


def _carried(step: Step) -> Step:
    waits = (s.Wait, s.Peek, s.WaitUnless, s.Poll)
    return replace(step, carried=True) if isinstance(step, waits) else step


def generate(choose: Choose, *, most: int = 14) -> Small:
    """A random program of about ``most`` steps at most."""
    sketch = _Sketch(choose)
    for _ in range(3 + choose(most - 2)):
        sketch.add()
    return sketch.finish()


#: styles of the families that have more than mbarriers
_STYLES: dict[Family, tuple[Callable[[Choose], Small], ...]] = {
    "tensor": TENSOR_STYLES, "scopes": SCOPE_STYLES, "reductions": REDUCTION_STYLES,
    "lanes": LANE_STYLES, "grids": GRID_STYLES, "wgmma": WGMMA_STYLES,
}  # fmt: skip
FAMILIES: tuple[Family, ...] = ("mbarriers", *_STYLES)
#: of as many programs in a row, which are of which family
MIXTURE: tuple[Family, ...] = (
    "mbarriers", "lanes", "grids", "tensor", "lanes", "mbarriers", "reductions", "lanes", "scopes",
    "grids", "lanes", "wgmma",
)  # fmt: skip


def sample(choose: Choose, family: Family = "mbarriers") -> tuple[str, Small]:
    """A program and its kind: ``random``, ``correct`` (a pipeline) or ``mutated`` (a changed one).

    Most random programs fail in every schedule; a pipeline with one thing changed often fails in
    few. Random ones of tensor memory, and some of the others, are pipelines with many changes.
    """
    kind = choose(10)
    if kind < 3 and family == "mbarriers":
        return "random", generate(choose)
    if kind < 2 and family == "scopes" and not choose(3):
        return "random", replace(observers(choose), family=family)
    if kind < 2 and family in ("scopes", "reductions"):
        return "random", replace(blind(choose, flags=family == "scopes"), family=family)
    small = correct(choose, family)
    if kind in (3, 4):
        return "correct", small
    for _ in range(3 + choose(4) if kind < 3 else 1 + choose(2)):
        small = _changed(choose, small)
    return "random" if kind < 3 else "mutated", small


def _changed(choose: Choose, small: Small) -> Small:
    """The program with one thing changed."""
    if small.family == "grids":
        tries = (changed_grid(choose, small) for _ in range(8))
        return next((other for other in tries if other != small), small)
    if small.family == "wgmma":
        return changed_wgmma(choose, small)
    if small.family != "lanes":
        return mutated(choose, small)
    other = changed(choose, small)
    try:
        Code(other)
    except IllFormed:
        return small
    return other


def correct(choose: Choose, family: Family = "mbarriers") -> Small:
    """A pipeline of this family that is right in every schedule."""
    if family == "mbarriers":
        return pipeline(choose)
    styles = _STYLES[family]
    return replace(styles[choose(len(styles))](choose), family=family)
