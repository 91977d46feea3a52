"""Random changes of programs of lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.sim import steps as s
from tests.sim.code_lanes import LANES
from tests.sim.steps import Small, Step
from tests.sim.steps_lanes import Gathering

Choose = Callable[[int], int]
Steps = tuple[Step, ...]


def changed(choose: Choose, small: Small) -> Small:
    """The program with one thing changed: a step, or an arrival count."""
    if small.counts and not choose(8):
        at = choose(len(small.counts))
        n = max(1, (small.counts[at] + 1, small.counts[at] - 1, small.counts[at] // 2)[choose(3)])
        return replace(small, counts=(*small.counts[:at], n, *small.counts[at + 1 :]))
    sizes = [sum(1 for _ in s.every(steps)) for steps in small.warps]
    place = choose(max(1, sum(sizes)))
    for warp, size in enumerate(sizes):
        if place < size:
            steps = _at(choose, small, small.warps[warp], place, whole=True)
            return replace(small, warps=(*small.warps[:warp], steps, *small.warps[warp + 1 :]))
        place -= size
    return small


_GATHERING: tuple[Gathering, ...] = ("any", "ballot", "match", "redux", "shfl", "elect")


def gathering(choose: Choose) -> s.Gather:
    """An instruction that gathers lanes."""
    return s.Gather(_GATHERING[choose(len(_GATHERING))], used=not choose(3))


def _at(choose: Choose, small: Small, steps: Steps, place: int, *, whole: bool) -> Steps:
    """The steps with an edit at the one that comes ``place``-th; ``whole``: the warp is here."""
    for i, step in enumerate(steps):
        if place == 0:
            return (*steps[:i], *_edit(choose, small, steps[i:], whole=whole))
        place -= 1
        bodies = list(s.parts(step))
        inside = whole and not isinstance(step, (s.Lanes, s.Elect))
        for which, body in enumerate(bodies):
            size = sum(1 for _ in s.every(body))
            if place < size:
                bodies[which] = _at(choose, small, body, place, whole=inside)
                return (*steps[:i], s.with_parts(step, tuple(bodies)), *steps[i + 1 :])
            place -= size
    return steps


def _edit(choose: Choose, small: Small, steps: Steps, *, whole: bool) -> Steps:
    step, after = steps[0], steps[1:]
    if isinstance(step, (s.ClusterArrive, s.ClusterWait, s.Join)):
        return steps
    match choose(7):
        case 0 | 1:
            return after
        case 2:
            return (step, step, *after)
        case 3 if after and (whole or not isinstance(after[0], (s.ClusterArrive, s.Join))):
            return (after[0], step, *after[1:])
        case 4:
            barrier, lane = choose(len(small.counts)), choose(4)
            extra: Steps = (
                s.Wait(barrier, choose(2)), s.Arrive(barrier), s.Expect(barrier, 1),
                s.Complete(barrier, 1), s.Fence(), s.Write(0), s.Read(0), s.WarpSync(),
                s.Lanes(lane, lane + 1 + choose(2), (s.Arrive(barrier),)),
                s.Lanes(lane, lane + 1, (s.Write(0),)),
                s.Lanes(lane, lane + 1, (s.Read(0, cell=0),)), gathering(choose),
            )  # fmt: skip
            return (extra[choose(len(extra))], step, *after)
        case _:
            return (*_altered(choose, small, step, whole=whole), *after)


def _altered(choose: Choose, small: Small, step: Step, *, whole: bool) -> Steps:
    """The step with another operand, for other lanes, or in another form."""
    barrier, up = choose(len(small.counts)), 1 - 2 * choose(2)
    match step:
        case s.Lanes(low=low, high=high, body=body):
            options: tuple[Steps, ...] = (
                (replace(step, high=max(low + 1, high + up)),) if high < LANES else (step,),
                (replace(step, low=low + 1, high=high + 1),) if high < LANES else (step,),
                body, (s.Elect(body),) if whole else (s.Lanes(low, low + 1, body),),
                (replace(step, meets=not step.meets),),
            )  # fmt: skip
        case s.Elect(body=body):
            options = (
                (s.Lanes(0, 1, body),), (s.Lanes(0, 2, body),), (s.Lanes(1, 2, body),), body,
                (replace(step, meets=not step.meets),),
            )  # fmt: skip
        case s.WarpSync():
            options = ((gathering(choose),),)
        case s.Gather():
            options = ((gathering(choose),), (s.WarpSync(),))
        case s.Wait(parity=parity):
            one = choose(3)
            options = (
                (replace(step, parity=parity ^ 1),), (replace(step, barrier=barrier),),
                (s.Lanes(one, one + 1, (step,)),),
            )  # fmt: skip
        case s.Arrive(count=count):
            options = (
                (replace(step, count=count + 1),), (replace(step, barrier=barrier),),
                (replace(step, drop=not step.drop),), (replace(step, relaxed=True, drop=False),),
                (s.Lanes(choose(3), 3 + choose(2), (step,)),),
            )  # fmt: skip
        case s.ArriveExpect(words=words):
            options = (
                (replace(step, words=max(1, words + up)),),
                (s.Expect(step.barrier, words), s.Arrive(step.barrier)),
                (s.Arrive(step.barrier), s.Expect(step.barrier, words)),
            )  # fmt: skip
        case s.Expect(words=words) | s.Complete(words=words):
            options = ((replace(step, words=max(1, words + up)),), (s.Lanes(0, 2, (step,)),))
        case s.Later(inc=inc):
            options = ((replace(step, inc=not inc),), (s.Lanes(0, 1 + choose(3), (step,)),))
        case s.Read() | s.Write():
            options = (
                (s.Read(0),), (s.Lanes(choose(2), 2 + choose(3), (step,)),), (s.Read(0, cell=0),),
            )  # fmt: skip
        case s.Own(step=inner):
            options = ((inner,),)
        case s.WaitGroup() | s.CpWait() | s.Commit():
            options = ((s.Lanes(0, 1, (step,)),), (s.Lanes(1, 2, (step,)),))
        case _:
            options = ((step,),)
    return options[choose(len(options))]
