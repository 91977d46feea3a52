"""Random changes of programs of several clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.sim import steps as s
from tests.sim.steps import Small, Step

Choose = Callable[[int], int]
Steps = tuple[Step, ...]
_SCOPES: tuple[s.Scope, ...] = ("gpu", "cluster", "cta", "sys")


def changed_grid(choose: Choose, small: Small) -> Small:
    """The program with one thing changed."""
    if small.cooperative and not choose(4):
        return replace(small, cooperative=False)
    if small.counts and not choose(8):
        at = choose(len(small.counts))
        n = max(1, small.counts[at] + 1 - 2 * choose(2))
        return replace(small, counts=(*small.counts[:at], n, *small.counts[at + 1 :]))
    sizes = [sum(1 for _ in s.every(steps)) for steps in small.warps]
    place = choose(max(1, sum(sizes)))
    everywhere = not choose(3)
    for warp, size in enumerate(sizes):
        if place < size:
            old = small.warps[warp]
            new = _at(choose, small, old, place)
            warps = tuple(
                new if i == warp or (everywhere and x == old) else x
                for i, x in enumerate(small.warps)
            )
            return replace(small, warps=warps)
        place -= size
    return small


def _at(choose: Choose, small: Small, steps: Steps, place: int) -> Steps:
    """The steps with an edit at the one that comes ``place``-th."""
    for i, step in enumerate(steps):
        if place == 0:
            return (*steps[:i], *_edit(choose, small, steps[i:]))
        place -= 1
        for body in s.parts(step):
            size = sum(1 for _ in s.every(body))
            if place < size:
                new = _at(choose, small, body, place)
                return (*steps[:i], s.with_parts(step, (new,)), *steps[i + 1 :])
            place -= size
    return steps


def _edit(choose: Choose, small: Small, steps: Steps) -> Steps:
    step, after = steps[0], steps[1:]
    if isinstance(step, (s.Leave, s.Query, s.Forever)):
        return steps
    match choose(6):
        case 0 | 1:
            return after
        case 2 if after and not isinstance(after[0], (s.Leave, s.Query, s.Forever)):
            return (after[0], step, *after[1:])
        case 3:
            flag = choose(max(1, small.flags))
            extra: Steps = (
                s.Put(choose(3)), s.Get(choose(3)), s.Add(flag, scope="gpu"), s.MemoryFence("gpu"),
                s.Ticket(flag), s.Spin(flag, 1, scope="gpu"),
            )  # fmt: skip
            return (extra[choose(len(extra))], step, *after)
        case _:
            return (*_altered(choose, small, step), *after)


def _altered(choose: Choose, small: Small, step: Step) -> Steps:
    """The step with another operand, or in another form."""
    up, scope = 1 - 2 * choose(2), _SCOPES[choose(4)]
    match step:
        case s.Put(by=by) | s.Get(by=by):
            options: Steps = (
                replace(step, place=choose(3)), replace(step, by=by and not choose(2)),
                s.Put(step.place, by), s.Get(step.place, by),
            )  # fmt: skip
        case s.Ticket():
            sems: tuple[s.Sem, ...] = ("relaxed", "acquire", "release", "acq_rel")
            options = (
                replace(step, sem=sems[choose(4)]), replace(step, scope=scope),
                s.Add(step.flag, scope="gpu"), replace(step, sem="relaxed"),
            )  # fmt: skip
        case s.If(value=value):
            options = (replace(step, value=max(0, value + up)),)
        case s.Tiles(limit=limit):
            options = (replace(step, limit=max(1, limit + up)),)
        case s.Set(release=release) | s.Add(release=release):
            options = (replace(step, release=not release), replace(step, scope=scope))
        case s.Spin(acquire=acquire, least=least):
            options = (
                replace(step, acquire=not acquire), replace(step, scope=scope),
                replace(step, least=max(0, least + up)),
            )  # fmt: skip
        case s.Wait(parity=parity, carried=carried):
            options = (replace(step, parity=parity ^ 1), replace(step, carried=not carried))
        case s.ArriveExpect(words=words):
            options = (replace(step, words=words + 1), s.Arrive(step.barrier, stages=step.stages))
        case _:
            options = (step,)
    return (options[choose(len(options))],)
