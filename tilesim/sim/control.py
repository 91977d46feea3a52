"""Steps of structured control flow: regions push a frame with the lane mask to restore.

Lanes of a warp meet again at the end of the region that split them. When no lane is left in a
region, control jumps to the region's end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.ir.loc import Loc
from tilesim.sim.expression import Evaluate, plain
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.warp import Blocked, Fault, Frame, Lanes, Step, Warp, mask_bits


class Label:
    """A position in the code that is known once the region has been compiled."""

    __slots__ = ("pc",)

    def __init__(self) -> None:
        self.pc = -1


class ZeroStep(Fault):
    """A loop whose step is zero."""


def condition_lanes(value: Any) -> int:
    """The lanes in which a condition holds, as a mask."""
    if type(value) is Lanes:
        return int(value.bits)
    if isinstance(value, np.ndarray):
        return mask_bits(value != 0)
    return 0xFFFFFFFF if value else 0


def finish(w: Warp) -> bool:
    """The end of the program: the warp exits."""
    w.exited_lanes = 0xFFFFFFFF
    w.machine.exit(w)
    return True


def skip_unless_member(warps: frozenset[int], end: Label) -> Step:
    """Enters a role, or jumps past it."""

    def step(w: Warp) -> None:
        if w.number not in warps:
            w.pc = end.pc

    return step


def enter_if(cond: Evaluate, orelse: Label, *, arms: bool) -> Step:
    """Splits the active lanes by a condition; ``arms``: both sides synchronise."""

    def step(w: Warp) -> None:
        taken = condition_lanes(cond(w)) & w.mask
        w.frames.append(Frame(w.mask, orelse=w.mask & ~taken, arms=arms))
        w.mask = taken
        if not taken:
            w.pc = orelse.pc

    return step


def enter_else(end: Label, loc: Loc) -> Step:
    """Switches to the lanes in which the condition did not hold."""

    def step(w: Warp) -> None:
        frame = w.frames[-1]
        w.mask = frame.orelse & ~w.exited_lanes
        if not w.mask:
            w.pc = end.pc
        elif frame.arms and frame.mask != frame.orelse:
            w.machine.nondeterministic(
                "which arm of a lane-divergent branch acts first", loc, explorable=False
            )
        frame.orelse = 0

    return step


def leave_if(escape: Label) -> Step:
    """Ends a region: its lanes meet again, less those that left the loop or the kernel."""

    def step(w: Warp) -> None:
        mask = w.frames.pop().mask & ~w.exited_lanes
        for frame in reversed(w.frames):
            if frame.loop:
                mask &= frame.live
                break
        w.mask = mask
        if not mask:
            w.pc = escape.pc

    return step


def enter_for(slot: int, bounds: tuple[Evaluate, Evaluate, Evaluate], end: Label) -> Step:
    """Evaluates the bounds and enters the first iteration, or jumps past the loop."""
    start_of, stop_of, step_of = bounds

    def step(w: Warp) -> None:
        start, stop, by = (uniform(f(w), w) for f in (start_of, stop_of, step_of))
        if by == 0:
            raise ZeroStep
        w.frames.append(Frame(w.mask, live=w.mask, loop=True, value=start, stop=stop, step=by))
        if (start < stop) if by > 0 else (start > stop):
            w.registers[slot] = start
        else:
            w.pc = end.pc

    return step


def next_for(slot: int, head: Label) -> Step:
    """Advances the loop variable and repeats while lanes and iterations are left."""

    def step(w: Warp) -> None:
        frame = w.frames[-1]
        frame.value += frame.step
        w.mask = frame.live & ~w.exited_lanes
        more = frame.value < frame.stop if frame.step > 0 else frame.value > frame.stop
        if more and w.mask:
            w.registers[slot] = frame.value
            w.pc = head.pc

    return step


def enter_while(w: Warp) -> None:
    """Opens a while loop."""
    w.frames.append(Frame(w.mask, live=w.mask, loop=True, value=-1))


def test_while(cond: Evaluate, end: Label) -> Step:
    """Leaves the loop in the lanes whose condition is false."""

    def step(w: Warp) -> None:
        frame = w.frames[-1]
        frame.live &= condition_lanes(cond(w)) & ~w.exited_lanes
        w.mask = frame.live
        if not w.mask:
            w.pc = end.pc
        else:
            frame.value, frame.step = w.effects, w.machine.version
            w.snapshot = [_freeze(r) for r in w.registers]

    return step


def next_while(head: Label, end: Label) -> Step:
    """Repeats; an iteration that changed nothing waits until another agent changes something."""

    def step(w: Warp) -> bool | None:
        frame = w.frames[-1]
        w.mask = frame.live & ~w.exited_lanes
        w.pc = head.pc if w.mask else end.pc
        idle = (
            w.mask
            and frame.value == w.effects
            and frame.step == w.machine.version
            and w.snapshot == [_freeze(r) for r in w.registers]
        )
        if idle:
            origin = w.machine.plan.origins[head.pc]
            loc = origin if not hasattr(origin, "loc") else origin.loc
            w.blocked = Blocked(None, "spins in a loop that nothing can end", None, loc, True)
            w.machine.pollers.append(w)
            return True
        w.machine.pause(w, 20)
        return True

    return step


def leave_loop(escape: Label) -> Step:
    """``break``: the active lanes leave the innermost loop."""

    def step(w: Warp) -> None:
        for frame in reversed(w.frames):
            if frame.loop:
                frame.live &= ~w.mask
                break
        w.mask = 0
        w.pc = escape.pc

    return step


def jump_if_empty(escape: Label) -> Step:
    """Jumps to the end of the region when no lane is left."""

    def step(w: Warp) -> None:
        if not w.mask:
            w.pc = escape.pc

    return step


def _freeze(value: Any) -> Any:
    """A register's value in a form that compares by content."""
    value = plain(value)
    return value.tobytes() if isinstance(value, np.ndarray) else value
