"""Programs of warpgroups that are right, and random changes of them."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim import steps as s
from tests.sim.pipelines import mutated
from tests.sim.steps import Small, Step

Choose = Callable[[int], int]
Steps = tuple[Step, ...]
#: what a warpgroup of these programs may do
_GROUP = (*s.OF_GROUPS, s.Wait, s.Arrive, s.Loop, s.Fence)


def _wait(barrier: int, parity: int, stages: int) -> s.Wait:
    return s.Wait(barrier, parity, carried=True, stages=stages)


def _small(full: bool, groups: int, stages: int, *warps: Steps) -> Small:
    counts = (1,) * stages + ((128 if full else 1) * groups,) * stages
    return Small(warps, counts, stages, family="wgmma")


def _gemm(choose: Choose) -> Small:
    """Copies into a ring; warpgroups multiply, wait, and release."""
    stages, trips, groups, full = 1 + choose(2), 1 + choose(3), 1 + choose(2), not choose(4)
    fill = (s.ArriveExpect(0, stages=stages), s.Copy(0, 0, stages=stages))
    producer = (_wait(stages, 1, stages), *fill[:: 1 - 2 * choose(2)])
    use: Steps = (s.WgUse(0),) if choose(2) else ()
    body = (
        _wait(0, 0, stages), s.WgFence(), s.WgMma(0, 0, stages), s.WgCommit(), s.WgWait(0),
        s.Arrive(stages, full=full, stages=stages), *use,
    )  # fmt: skip
    return _small(full, groups, stages, (s.Loop(trips, producer),),
                  *[(s.Loop(trips, body), s.WgUse(0))] * groups)  # fmt: skip


def _ahead(choose: Choose) -> Small:
    """One product stays in flight: its stage is released an iteration later."""
    trips, full = 2 + choose(2), not choose(4)
    producer = (_wait(2, 1, 2), s.ArriveExpect(0, stages=2), s.Copy(0, 0, stages=2))
    consumer: list[Step] = []
    for trip in range(trips):
        stage, parity = trip % 2, trip // 2 & 1
        consumer += [s.Wait(stage, parity), s.WgFence(), s.WgMma(stage, 0), s.WgCommit()]
        if trip:
            consumer += [s.WgWait(1), s.Arrive(2 + (trip - 1) % 2, full=full)]
    consumer += [s.WgWait(0), s.WgUse(0)]
    return _small(full, 1, 2, (s.Loop(trips, producer),), tuple(consumer))


def _two(choose: Choose) -> Small:
    """Two accumulators, used in turns."""
    full = not choose(4)
    producer = (s.ArriveExpect(0), s.Copy(0, 0), s.ArriveExpect(1), s.Copy(1, 1))
    first = (s.Wait(0, 0), s.WgFence(), s.WgMma(0, 0), s.WgCommit())
    second = (s.Wait(1, 0), s.WgMma(1, 1), s.WgCommit())
    ends: tuple[Steps, ...] = (
        (s.WgWait(1), s.WgUse(0), s.WgWait(0), s.WgUse(1)),
        (s.WgWait(0), s.WgUse(1), s.WgUse(0)),
    )
    consumer = (*first, *second, *ends[choose(2)], s.Arrive(2, full=full))
    return _small(full, 1, 2, (*producer, s.Wait(2, 0), s.Write(0)), consumer)


#: how to make a program of warpgroups that is right
WGMMA_STYLES: tuple[Callable[[Choose], Small], ...] = (_gemm, _gemm, _ahead, _two)


def changed_wgmma(choose: Choose, small: Small) -> Small:
    """The program with one thing changed: a step of a warpgroup, or any other."""
    other = mutated(choose, small)
    for warp, steps in enumerate(other.warps):
        whole = any(isinstance(x, s.OF_GROUPS) for x in s.every(steps))
        inside = [isinstance(x, _GROUP) for x in s.every(steps)]
        before = any(isinstance(x, s.OF_GROUPS) for x in s.every(small.warps[warp]))
        joins = any(isinstance(x, s.Join) for x in s.every(steps))
        if whole != before or (whole and not all(inside)) or joins:
            return small
    return other
