"""Programs in which some lanes of a warp go on by themselves, for the reference model of warps.

Nothing makes the lanes of a warp wait for each other but what they execute together: an election,
a barrier, an instruction of the whole warp. Between two of these a part of them may be ahead: still
poll while others have passed, arrive twice before others arrive once. Such lanes become one warp
more, which meets the rest at a named barrier of these two wherever the lanes of the warp meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.sim import steps as s
from tests.sim.steps import Small, Step

#: how many lanes go on by themselves
_LANES = (1, 31, 16, 8, 24)
#: what lanes execute one by one, and whose order decides something
_OWN = (s.Wait, s.WaitUnless, s.Peek)


def apart(program: Small) -> Iterator[Small]:
    """The program with lanes of one warp apart, for each warp where that may matter."""
    joins = [x for steps in program.warps for x in s.every(steps) if isinstance(x, s.Join)]
    if any(join.warps > program.width for join in joins):
        return
    meet = s.Join(1 + max((join.id for join in joins), default=-1), 2)
    for warp, steps in enumerate(program.warps):
        if not _matters(tuple(s.unrolled(steps))):
            continue
        size = 128 if any(isinstance(x, s.OF_GROUPS) for x in s.every(steps)) else 32
        for lanes in _LANES:
            halves = _half(steps, meet, size - lanes, True), _half(steps, meet, lanes, False)
            warps = [*program.warps]
            warps[warp] = halves[0]
            width, mine = program.width, warp // program.width
            ctas = (
                (*warps[c * width : (c + 1) * width], halves[1] if c == mine else ())
                for c in range(program.ctas)
            )
            yield replace(program, warps=tuple(w for cta in ctas for w in cta))


def _matters(steps: tuple[Step, ...]) -> bool:
    """Whether lanes do two things that they need not begin together, one of which others see."""
    if any(isinstance(step, s.Poll) for step in steps):
        return False
    alone = arrivals = 0
    for step in steps:
        if _full(step) or isinstance(step, _OWN):
            alone, arrivals = alone + 1, arrivals + _full(step)
            if arrivals and alone > 1:
                return True
        elif not isinstance(step, (s.Fence, s.MemoryFence)):
            alone = arrivals = 0
    return False


def _full(step: Step) -> bool:
    return isinstance(step, s.Arrive) and step.full


def _half(steps: tuple[Step, ...], meet: s.Join, lanes: int, first: bool) -> tuple[Step, ...]:
    """What so many of the lanes execute; the ``first`` ones also what is done once for all."""

    def each(body: tuple[Step, ...]) -> Iterator[Step]:
        for step in body:
            match step:
                case s.Loop() | s.When():
                    yield s.with_parts(step, (tuple(each(step.body)),))
                case s.Arrive(full=True):
                    yield replace(step, lanes=lanes)
                case s.Wait() | s.WaitUnless() | s.Peek() | s.Fence() | s.MemoryFence():
                    yield step
                case s.ClusterArrive() | s.ClusterWait():
                    yield from (meet, step)
                case s.Join(waits=False):
                    yield from (meet, step) if first else (meet,)
                case _:
                    yield from (meet, step, meet) if first else (meet, meet)

    return tuple(each(steps))
