"""Steps of control flow: branches that split the lanes of a warp, and where they meet again.

An `Open` pushes a frame with the lanes to restore. A branch of some lanes to the meeting point of
a frame drops them until then; one to elsewhere is kept until the others are through. When no lane
is left, the lanes of the innermost frame that are kept go on, or those of the frame meet.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tilesim.ir.arithmetic import INT_MAX, INT_MIN
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Open
from tilesim.sim.expression import Evaluate, plain
from tilesim.sim.machine import forks
from tilesim.sim.machine.agent import Blocked, Frame
from tilesim.sim.machine.errors import Fault
from tilesim.sim.machine.lanes import FULL, Lanes, mask_bits
from tilesim.sim.machine.machine import Step, Warp

#: cycles between two turns of a loop that polls
_POLL_CYCLES = 20


class Trapped(Fault):
    """The kernel does what makes no sense; the message says what."""


def condition_lanes(value: Any) -> int:
    """The lanes in which a condition holds, as a mask."""
    if type(value) is Lanes:
        return int(value.bits)
    if isinstance(value, np.ndarray):
        return mask_bits(value != 0)
    return FULL if value else 0


def finish(w: Warp) -> bool:
    """The end of the program: the warp exits."""
    w.exited_lanes = FULL
    w.machine.exit(w)
    return True


def resume(w: Warp) -> None:
    """No lane is active: others of the innermost frame go on, or its lanes meet."""
    frames = w.frames
    if not frames:
        w.pc = len(w.machine.plan.steps) - 1
        return
    frame = frames[-1]
    while frame.pending:
        pc, mask = frame.pending.pop()
        mask &= ~w.exited_lanes
        if mask:
            w.pc, w.mask = pc, mask
            w.regroup()
            if frame.arms:
                what = "which arm of a lane-divergent branch acts first"
                w.machine.nondeterministic(what, frame.loc, explorable=False)
            return
    w.pc = frame.meet


def open_frame(op: Open) -> Step:
    """Notes the active lanes, to restore them where they meet."""
    meet, arms = op.meet, op.arms

    def step(w: Warp) -> None:
        w.frames.append(Frame(w.mask, meet, arms=arms))

    return step


def close_frame(w: Warp) -> bool | None:
    """Lanes of the frame that came here wait for those that are kept; in the end all go on."""
    frame = w.frames[-1]
    if frame.running:
        frame.waiter = w
        w.pc -= 1
        text = "waits for its other lanes at the end of a branch"
        w.blocked = Blocked(frame, text, None, frame.loc)
        return True
    if frame.pending:
        resume(w)
        if w.pc != frame.meet:
            return None
        w.pc += 1
    if frame.parent is not None:
        _note_meeting(w, frame.parent, "join")
        forks.end(w)
        return True
    _note_meeting(w, frame, "leave")
    w.frames.pop()
    some, w.mask = w.mask, frame.mask & ~w.exited_lanes
    if not w.mask:
        resume(w)
    elif w.parts is not None:
        w.regroup()
    elif some != w.mask and w.exchanges:
        # the others did nothing meanwhile: emitted code has a __syncwarp here
        w.meet()
    return None


def _note_meeting(w: Warp, frame: Frame, kind: Literal["join", "leave"]) -> None:
    """For exploration: who goes on at the end of a branch comes after its other lanes."""
    if w.machine.trace is not None and frame.forked:
        text = "comes to the end of a branch"
        w.machine.trace.note(kind, ("branch", w.index, frame.meet), 0, w, None, text)


def leave(w: Warp, target: int, lanes: int) -> None:
    """These lanes go to the meeting point of a frame further out: the frames inside lose them."""
    for frame in reversed(w.frames):
        if frame.meet == target:
            return
        frame.mask &= ~lanes


def jump(target: int) -> Step:
    """All active lanes go on at ``target``, which is in the innermost frame or is its end."""

    def step(w: Warp) -> None:
        w.pc = target

    return step


def jump_out(target: int) -> Step:
    """All active lanes go to the meeting point of a frame further out (``break``)."""

    def step(w: Warp) -> None:
        leave(w, target, w.mask)
        w.mask = 0
        resume(w)

    return step


def branch(op: Branch, cond: Evaluate, *, out: bool, alone: bool, parts: bool) -> Step:
    """Active lanes whose condition is as ``op`` says go on at its target.

    ``out``: that is the meeting point of a frame further out. ``alone``: they do nothing then up to
    the next meeting of all lanes. ``parts``: both sides can wait for others.
    """
    target, sense, loc = op.target, op.sense, op.loc

    def step(w: Warp) -> None:
        value = cond(w)
        mask = w.mask
        if type(value) is int:
            taken = mask if bool(value) is sense else 0
        else:
            lanes = condition_lanes(value)
            taken = mask & (lanes if sense else ~lanes)
        if not taken:
            return
        if out:
            leave(w, target, taken)
        if taken == mask:
            if out:
                w.mask = 0
                resume(w)
            else:
                w.pc = target
            return
        w.mask = mask & ~taken
        frame = w.frames[-1]
        if parts and frame.meet != target and w.parts is not None:
            frame.forked = True
            forks.fork(w, taken, target)
        elif not out and frame.meet != target:
            frame.pending.append((target, taken))
            frame.loc = loc
        if w.parts is not None:
            # after a meeting of all lanes, the branch comes second
            if alone and mask == FULL and w.met == w.pc - 2:
                w.alone = w.mask
            w.regroup()

    return step


def remember(step: Step) -> Step:
    """The head of a loop that polls: notes how things were when the turn began."""

    def head(w: Warp) -> None:
        step(w)
        if w.mask and w.frames:
            frame = w.frames[-1]
            frame.began = (w.effects, w.machine.version, [_freeze(r) for r in w.registers])

    return head


def poll_again(target: int, loc: Loc, *, memory: bool) -> Step:
    """The way back of a loop that polls; a turn that changed nothing waits until others change
    something, which may be a word of global ``memory``."""

    def step(w: Warp) -> bool:
        machine, began = w.machine, w.frames[-1].began
        w.pc = target
        idle = (
            began is not None
            and began[0] == w.effects
            and began[1] == machine.version
            and began[2] == [_freeze(r) for r in w.registers]
        )
        if idle:
            machine.outcome.waited |= memory
            w.blocked = Blocked(None, "spins in a loop that nothing can end", None, loc, True)
            machine.pollers.append(w)
            return True
        machine.pause(w, _POLL_CYCLES)
        return True

    return step


def next_turn(
    advance: Step, slot: int, by: int, stop_of: Evaluate, head: int, end: int, *, rising: bool
) -> Step:
    """Advances a counter and tests it: what the instruction, the way back and the test do.

    ``advance`` is the instruction alone, for a counter that differs between lanes.
    """

    def step(w: Warp) -> bool | None:
        value, stop = w.registers[slot], stop_of(w)
        if type(value) is not int or type(stop) is not int or not INT_MIN <= value + by <= INT_MAX:
            return advance(w)
        value += by
        w.registers[slot] = value
        w.pc = head + 1 if (value < stop if rising else value > stop) else end
        return None

    return step


def trap(cond: Evaluate, what: str) -> Step:
    """Ends the run where the condition holds."""

    def step(w: Warp) -> None:
        if condition_lanes(cond(w)) & w.mask:
            raise Trapped(what)

    return step


def guarded(step: Step, cond: Evaluate) -> Step:
    """``step`` in the active lanes in which the condition holds."""

    def run(w: Warp) -> bool | None:
        mask = w.mask
        chosen = condition_lanes(cond(w)) & mask
        if not chosen:
            return None
        w.mask = chosen
        w.regroup()
        try:
            return step(w)
        finally:
            w.mask = mask
            w.regroup()

    return run


def _freeze(value: Any) -> Any:
    """A register's value in a form that compares by content."""
    value = plain(value)
    return value.tobytes() if isinstance(value, np.ndarray) else value
