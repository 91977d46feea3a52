"""Lanes of a warp that go on as an agent of their own, from a branch to where its lanes meet.

Lanes whose ways parted execute together what comes behind a branch if all of them come there. But
PTX makes none wait for the others there. So where nothing else can move, those that wait go on
alone (`part_ways`), to where they have to meet others (`tilesim.sim.machine.assembly`).
"""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.expr import Const
from tilesim.ir.op import Op
from tilesim.ir.splitting import meets_at
from tilesim.sim.machine.agent import Frame
from tilesim.sim.machine.assembly import release
from tilesim.sim.machine.errors import Fault
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Machine, Warp
from tilesim.sim.schedule import Move


def fork(warp: Warp, lanes: int, pc: int) -> None:
    """``lanes`` of ``warp``, which a branch has split off, go on at ``pc``."""
    _fork(warp, lanes, pc, warp.frames[-1])


def _fork(warp: Warp, lanes: int, pc: int, frame: Frame) -> Warp:
    """An agent that ends where the lanes of ``frame`` meet."""
    machine = warp.machine
    other = warp.fork(lanes, pc, frame)
    machine.forks.append(other)
    if machine.trace is not None:
        if machine.trace.steps:
            machine.trace.steps[-1].spawned.append(other.key)
        else:  # no move of this schedule made it: exploring moves says nothing about it
            machine.outcome.explorable = False
    Move(machine.env, other.run, 0, other)
    return other


def end(warp: Warp) -> None:
    """Such lanes have come to where the lanes of the branch meet; the last let the rest go on."""
    machine, parent = warp.machine, warp.frames[-1].parent
    assert parent is not None
    parent.running -= 1
    warp.origin.executed += warp.executed
    machine.forks.remove(warp)
    if not parent.running and parent.waiter is not None:
        waiter, parent.waiter = parent.waiter, None
        machine.wake(waiter)


def lanes_exit(warp: Warp, lanes: int) -> bool:
    """``lanes`` of ``warp`` have ended: barriers do not wait for them.

    Returns:
        Whether they were the last that others of their warp waited for, and ``warp`` has become all
        of these: it goes on with them in a move of its own, and this one is over.
    """
    origin, frames = warp.origin, warp.frames
    for agent in (origin, *(f for f in warp.machine.forks if f.origin is origin)):
        agent.exited_lanes |= lanes
    for barrier in (*warp.cta.named.values(), warp.cta.cluster.barrier):
        if barrier is not None:
            barrier.lanes_left(origin)
    release(origin)
    return warp.frames is not frames


# ---------------------------------------------------------------------- where nothing can move


def part_ways(machine: Machine) -> bool:
    """Lanes that wait for others of their warp behind a branch or in one wait, or for their turn,
    go on without them; True if there are any. Only where nothing else can move."""
    for warp in (*machine.warps, *machine.forks):
        if warp.exited or warp.parts is None or warp.blocked is None:
            continue
        try:
            if _leave_wait(warp):
                machine.outcome.explorable = False
                return True
            for place in reversed(range(len(warp.frames))):
                if _take_turns(warp, place) or _go_on(warp, place):
                    machine.outcome.explorable = False
                    return True
        except Fault as fault:
            machine.fault(warp, fault)
    return False


def _leave_wait(warp: Warp) -> bool:
    """Lanes that have passed a wait go on without those that wait at barriers of their own."""
    passed = 0 if warp.lane_waits is None or warp.stage else warp.lane_waits.passed
    if not passed:
        return False
    if not warp.frames:
        warp.frames.append(Frame(warp.live_mask, len(warp.machine.plan.mir.code)))
    frame = warp.frames[-1]
    _fork(warp, passed, warp.pc + 1, frame if frame.parent is None else frame.parent)
    if frame.parent is not None:
        frame.mask &= ~passed
    warp.mask &= ~passed
    return True


def _take_turns(warp: Warp, place: int) -> bool:
    """Groups of a frame that wait until others have come to its end."""
    frame = warp.frames[place]
    groups, frame.pending = frame.pending, []
    for pc, mask in groups:
        if mask & ~warp.exited_lanes:
            _fork(warp, mask & ~warp.exited_lanes, pc, frame)
    return bool(groups)


def _go_on(warp: Warp, place: int) -> bool:
    """Lanes that have come to the end of a frame leave it, unless all meet right behind it."""
    frame = warp.frames[place]
    plan = warp.machine.plan
    behind = plan.mir.code[frame.meet + 1 : frame.meet + 2]
    if any(isinstance(i.what, Op) and _meets_all(i.what) for i in behind):
        return False
    # a barrier that follows waits for all lanes, but for those that execute a copy of it
    if behind and not plan.places and meets_at(plan.graph, frame.meet):
        return False
    others = [f for f in warp.machine.forks if f.frames and f.frames[0].parent is frame]
    away = sum(f.frames[0].mask for f in others)
    here = warp.blocked is not None and warp.blocked.on is frame
    inside = warp.frames[place + 1].mask if place + 1 < len(warp.frames) else warp.mask
    come = frame.mask & ~warp.exited_lanes & ~away & ~(0 if here else inside)
    if not come or frame.parent is not None:
        # of lanes that are an agent already, those that have come are as good as ended
        frame.mask &= ~come
        return False
    outer = _outer(warp, place)
    if not here:
        _fork(warp, come, frame.meet, outer)
        _leave(warp, frame, come)
        return True
    for other in others:
        other.frames[0].parent, other.frames[0].meet = outer, outer.meet
    outer.running += len(others)
    frame.running, frame.waiter = 0, None
    _leave(warp, frame, away)
    warp.machine.wake(warp)
    return True


def _meets_all(op: Op) -> bool:
    """Whether an instruction does nothing but let all lanes of a warp meet."""
    return op.effects() == (fx.Gathers(Const(FULL), "E11", orders=True),)


def _outer(warp: Warp, place: int) -> Frame:
    """The frame that lanes are in which leave this one: that of an agent, as it has one."""
    if not place:
        end = Frame(warp.live_mask, len(warp.machine.plan.mir.code))
        warp.frames.insert(0, end)
        return end
    outer = warp.frames[place - 1]
    return outer if outer.parent is None else outer.parent


def _leave(warp: Warp, frame: Frame, lanes: int) -> None:
    """Lanes are no longer in this frame, nor of this agent if it is not the whole warp."""
    frame.mask &= ~lanes
    if warp.frames[0].parent is not None:
        warp.frames[0].mask &= ~lanes
