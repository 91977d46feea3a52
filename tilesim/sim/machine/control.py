"""Steps of control flow: branches that split the lanes of a warp, and where they go on together.

A branch that splits the active lanes pushes a frame: where they will have met at the latest
(`tilesim.analysis.cfg`), and the groups of them that wait for their turn. A group that comes to a
`Join` lets those go first that are before it in the graph, and takes along those that wait there.
When all have come to where they meet, or have ended, the frame is popped.

Some lanes come to where a branch meets without having done anything on the way:

    if (threadIdx.x == 0) { produce } else if (threadIdx.x == 32) { consume }

Both ways synchronise, so lanes that the branch splits are agents of their own. But those of warp 0
that are not the first only compute registers up to the end. They go ahead, and the others stay what
they are. What they decide on their way is executed after that as always; it is only looked at
before, on a copy of the warp that evaluates operands and sets registers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from typing import Any, Literal

import numpy as np

from tilesim.analysis.uses_defs import sets_only
from tilesim.ir.arithmetic import INT_MAX, INT_MIN
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Expr
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Join, Switch, Trap
from tilesim.ir.op import Op
from tilesim.sim.machine import divergence
from tilesim.sim.machine.errors import FAULTS, BarrierError, Fault
from tilesim.sim.machine.expression import Evaluate, evaluator
from tilesim.sim.machine.havoc import Undecided, forget, may_be_made_inside
from tilesim.sim.machine.lanes import FULL, Lanes, condition_lanes, mask_array, mask_bits
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.unknown import Open, Unknown, UnknownSteers, content, plain
from tilesim.sim.machine.warp import Blocked, Frame, Lap, Parts

#: instructions that are looked at
_FAR = 64


def do_nothing(w: Warp, lanes: int, pc: int, meet: int) -> bool:
    """Whether ``lanes`` of a warp only compute registers from ``pc`` to ``meet``, as one."""
    ahead, code = shadow(w), w.machine.plan.mir.code
    ahead.mask = lanes
    for _ in range(_FAR):
        if pc == meet:
            return True
        match code[pc].what:
            case Branch(target=target, cond=cond, sense=sense):
                holds = FULL if cond is None else lanes_where(cond, ahead)
                taken = None if holds is None else lanes & (holds if sense else ~holds)
                if taken not in (0, lanes):
                    return False
                pc = target if taken else pc + 1
            case Join(syncs=False):
                pc += 1
            case Op() as op if computes(op, pc, ahead):
                pc += 1
            case _:
                return False
    return False


# ------------------------------------------------------------------ branches and joins


#: cycles between two iterations of a loop that polls
_POLL_CYCLES = 20


class Trapped(Fault):
    """The kernel does what makes no sense; the message says what."""


def finish(w: Warp) -> bool | None:
    """The end of the program: the active lanes end, and others of the warp go on."""
    if not w.frames:
        w.exited_lanes = FULL
        w.machine.exit(w)
        return True
    if w.mask:
        left, w.mask = w.mask, 0
        if divergence.lanes_exit(w, left):
            return True
    frame = w.frames[-1]
    if frame.pending:
        resume(w)
        return None
    if frame.running:
        return _await_others(w, frame)
    if frame.parent is not None:
        divergence.end(w)
        return True
    w.frames.pop()
    if w.live_mask:
        resume(w)
        return None
    w.machine.exit(w.origin)
    return True


def resume(w: Warp) -> None:
    """No lane is active: others of the innermost frame go on, or its lanes meet."""
    if not w.frames:
        w.pc = len(w.machine.plan.steps) - 1
        return
    frame, ranks = w.frames[-1], w.machine.plan.ranks
    while frame.pending:
        group = min(frame.pending, key=lambda waits: ranks[waits[0]])
        frame.pending.remove(group)
        mask = group[1] & ~w.exited_lanes
        if mask:
            w.pc, w.mask = group[0], mask
            w.regroup()
            if frame.arms:
                what = "which side of a lane-divergent branch executes first"
                w.machine.nondeterministic(what, frame.loc, explorable=False)
            return
    w.pc = frame.meet


def join(number: int, *, syncs: bool, ends: bool = False) -> Step:
    """Lanes that come to instruction ``number`` go on with those that wait there, after those that
    may still come; all of them, if it is where they meet. ``syncs``: see `Join`; ``ends``: all that
    they do there is to end."""

    def step(w: Warp) -> bool | None:
        if not w.frames:
            if syncs and w.may_divide:
                w.meet()
            return None
        frame = w.frames[-1]
        if frame.meet == number:
            if ends and frame.pending:
                divergence.lanes_exit(w, w.mask)
            return _meet(w, frame, syncs=syncs)
        if frame.pending:
            _gather(w, frame, number)
        return None

    return step


def _gather(w: Warp, frame: Frame, number: int) -> None:
    ranks = w.machine.plan.ranks
    here = [group for group in frame.pending if group[0] == number]
    for group in here:
        frame.pending.remove(group)
        w.mask |= group[1] & ~w.exited_lanes
    if any(ranks[pc] < ranks[number] for pc, _ in frame.pending):
        frame.pending.append((number, w.mask))
        w.mask = 0
        resume(w)
    elif here:
        w.regroup()


def _meet(w: Warp, frame: Frame, *, syncs: bool) -> bool | None:
    """Lanes of the frame that came here wait for those that are kept; in the end all go on."""
    if frame.running:
        return _await_others(w, frame)
    if frame.pending:
        resume(w)
        if w.pc != frame.meet:
            return None
        w.pc += 1
    if frame.parent is not None:
        _note_meeting(w, frame.parent, "join")
        divergence.end(w)
        return True
    if frame.forked:
        _note_meeting(w, frame, "leave")
    w.frames.pop()
    some, w.mask = w.mask, frame.mask & ~w.exited_lanes
    if not w.mask:
        resume(w)
    elif w.may_divide:
        w.regroup()
        if syncs:
            w.meet()
    elif syncs and some != w.mask and w.exchanges:
        w.meet()
    return None


def _await_others(w: Warp, frame: Frame) -> bool:
    """Blocks until lanes of the frame that are agents of their own have come."""
    frame.waiter = w
    text = "waits for its other lanes at the end of a branch"
    return w.block(frame, text, None, loc=frame.loc)


def _note_meeting(w: Warp, frame: Frame, kind: Literal["join", "leave"]) -> None:
    """For exploration: what goes on at the end of a branch comes after its other lanes."""
    if frame.forked:
        text = "reaches the end of a branch"
        w.machine.note(kind, ("branch", w.index, frame.meet), w, None, text)


def later(compiled: Callable[[], Step]) -> Step:
    """A step that is compiled when it is executed for the first time."""
    known: list[Step] = []

    def step(w: Warp) -> bool | None:
        if not known:
            known.append(compiled())
        return known[0](w)

    return step


def jump(target: int) -> Step:
    """All active lanes go on at ``target``."""

    def step(w: Warp) -> None:
        w.pc = target

    return step


def branch(
    op: Branch, cond: Evaluate, meet: int, end: int, *, alone: int | None, parts: bool,
    undecided: Undecided, divides: bool = True,
) -> Step:  # fmt: skip
    """Active lanes whose condition is as ``op`` says go on at its target; those that it splits have
    met at ``meet``. ``end`` is the end of the program.

    ``alone``: those that are sent on do nothing up to the next meeting of all lanes, the last of
    which was at this instruction. ``parts``: both sides can wait for others. ``undecided``: what
    lanes do if the condition is not known. ``divides``: it is more than a predicate.
    """
    target, sense, arms, loc = op.target, op.sense, op.arms or parts, op.loc
    spared = undecided.spared

    def step(w: Warp) -> None:
        value = cond(w)
        mask = w.mask
        if spared is not None and type(value) is Unknown:
            trap, w.pc = spared
            w.machine.outcome.data_traps[trap] = None
            return
        if w.havoc_region is not None:
            w.havoc_region.branch(w.pc, target, _taken(value, mask, sense=sense))
            return
        if type(value) is int:
            taken = mask if bool(value) is sense else 0
        elif type(value) is Unknown and undecided.goes_on(w, value):
            return
        else:
            lanes = value.bits if type(value) is Lanes else condition_lanes(value)
            taken = mask & (lanes if sense else ~lanes)
        if not taken:
            return
        if taken == mask:
            w.pc = target
            return
        ahead = parts and w.may_divide and meet not in (w.pc, target)
        first = ahead and do_nothing(w, taken, target, meet)
        second = ahead and not first and do_nothing(w, mask & ~taken, w.pc, meet)
        frame = _split(w, meet, arms=arms and not (first or second))
        w.diverged |= divides
        w.mask = mask & ~taken
        if first:
            frame.pending.append((w.pc, w.mask))
            w.mask, w.pc = taken, target
        elif second:
            frame.pending.append((target, taken))
        elif target == meet:
            if meet == end:
                divergence.lanes_exit(w, taken)
        elif w.pc == meet:
            _arrive(w, w.mask, meet, end)
            w.mask, w.pc = taken, target
        elif parts and w.may_divide:
            frame.forked = True
            divergence.split_off(w, taken, target)
        else:
            frame.pending.append((target, taken))
            frame.loc = loc
        if w.may_divide:
            acts_alone = alone is not None and mask == FULL and w.met == alone + 1
            if acts_alone and not w.fences_by_lane:
                w.alone = w.mask
            w.regroup()

    return step


def _taken(value: Any, mask: int, *, sense: bool) -> int | Unknown:
    """The active lanes whose condition is as ``sense`` says, if that is known."""
    if type(value) is Unknown:
        return value
    return mask & (condition_lanes(value) if sense else ~condition_lanes(value))


def ending(step: Step, cond: Evaluate, undecided: Undecided | None = None) -> Step:
    """``step``, with which lanes end of which the condition holds; ``undecided``: what lanes do if
    it is not known."""

    def run(w: Warp) -> bool | None:
        value = cond(w)
        if w.havoc_region is not None:
            w.havoc_region.branch(w.pc, w.havoc_region.end, _taken(value, w.mask, sense=True))
            return None
        if type(value) is Unknown and undecided is not None and undecided.goes_on(w, value):
            return None
        stopped = step(w)
        if not stopped and not w.mask:
            resume(w)  # others of the warp go on
        return stopped

    return run


def switch(op: Switch, index: Evaluate, meet: int, end: int, *, arms: bool) -> Step:
    """Active lanes go on at the target that their index says; see `branch`.

    ``arms``: lanes synchronise behind several of the targets.
    """
    targets, loc = op.targets, op.loc

    def step(w: Warp) -> None:
        value = plain(index(w))
        chosen = np.broadcast_to(value, 32)[mask_array(w.mask)]
        if ((chosen < 0) | (chosen >= len(targets))).any():
            raise Trapped(f"a table of {len(targets)} targets of which lanes want another one")
        groups: dict[int, int] = {}
        for number in {*chosen.tolist()}:
            lanes = w.mask & mask_bits(np.broadcast_to(value == number, 32))
            groups[targets[number]] = groups.get(targets[number], 0) | lanes
        if len(groups) > 1:
            frame = _split(w, meet, arms=arms)
            w.diverged = True
            _arrive(w, groups.pop(meet, 0), meet, end)
            frame.pending += groups.items()
            frame.loc = loc
            resume(w)
        else:
            (w.pc,) = groups

    return step


def _split(w: Warp, meet: int, *, arms: bool) -> Frame:
    """The frame of the active lanes, which are about to go different ways."""
    if not w.frames or w.frames[-1].meet != meet:
        w.frames.append(Frame(w.mask, meet, arms=arms))
    frame = w.frames[-1]
    frame.arms |= arms
    return frame


def _arrive(w: Warp, lanes: int, meet: int, end: int) -> None:
    """``lanes`` have come to where those of the innermost frame meet."""
    if meet == end and lanes:
        divergence.lanes_exit(w, lanes)


def remember(step: Step, head: int, *, tests: bool) -> Step:
    """The head of a loop that polls: notes how things were when the iteration began.

    ``tests``: it is a branch, behind which it goes on.
    """

    def begin(w: Warp) -> None:
        before = w.laps.get(head)
        past = before.past if before is not None and before.again else None
        w.laps[head] = Lap(w.effects, w.machine.version, _frozen(w), past)

    def first(w: Warp) -> bool | None:
        begin(w)
        return step(w)

    def test(w: Warp) -> bool | None:
        stopped = step(w)
        if w.pc == head + 1:
            begin(w)
        else:
            w.laps.pop(head, None)
        return stopped

    return test if tests else first


def poll_again(step: Step, target: int, loc: Loc, *, memory: bool) -> Step:
    """The way back of a loop that polls, if ``step`` takes it; an iteration that changed nothing
    waits until others change something, which may be a word of global ``memory``."""

    def back(w: Warp) -> bool | None:
        here = w.pc
        step(w)
        if w.pc != target or w.pc == here:
            return None
        machine, lap = w.machine, w.laps.get(target)
        if lap is not None:
            lap.again = True
            if (
                lap.effects == w.effects
                and lap.version == machine.version
                and lap.registers == _frozen(w)
            ):
                machine.outcome.waited |= memory
                w.blocked = Blocked(None, "is in a loop that no warp can end", None, loc, True)
                machine.pollers.append(w)
                return True
        machine.pause(w, _POLL_CYCLES)
        return True

    return back


def next_iteration(
    advance: Step, slot: int, by: int, stop_of: Evaluate, head: int, end: int, *, rising: bool
) -> Step:
    """Advances a counter and tests it: what the instruction, the way back and the test do.

    ``advance`` is the instruction alone, for a counter that differs between lanes.
    """

    def step(w: Warp) -> bool | None:
        value, stop = w.registers[slot], stop_of(w)
        if type(value) is not int or type(stop) is not int or not INT_MIN <= value + by <= INT_MAX:
            return advance(w)
        if w.machine.split_groups:  # other lanes may be in another iteration
            return advance(w)
        value += by
        w.registers[slot] = value
        w.pc = head + 1 if (value < stop if rising else value > stop) else end
        return None

    return step


def trap(cond: Evaluate, op: Trap) -> Step:
    """Ends the run where the condition holds; not where data decides that the launch ends there."""
    what, misplaced, aborts, loc = op.what, op.misplaced, op.aborts, op.loc

    def step(w: Warp) -> None:
        value = cond(w)
        if aborts and type(value) is Unknown:
            w.machine.outcome.data_traps[loc] = None
            return
        lanes = condition_lanes(value) & w.mask
        if lanes and aborts and w.havoc_region is not None:
            w.machine.outcome.data_traps[loc] = None
            w.havoc_region.trap(lanes)
        elif lanes:
            if misplaced:
                raise BarrierError("out-of-bounds", what, "align the tensor and the index")
            raise Trapped(what)

    return step


def guarded(
    step: Step, cond: Evaluate, skip: Collection[int] | None = None,
    may_access: Collection[int] | None = None,
) -> Step:  # fmt: skip
    """``step`` in the active lanes in which the condition holds; ``skip``: all that it does is to
    set these registers; ``may_access``: and to access global memory."""

    def run(w: Warp) -> bool | None:
        mask = w.mask
        value = cond(w)
        if skip is not None and type(value) is Unknown:
            forget(w, skip, value)
            return None
        if may_access is not None and type(value) is Unknown:
            may_be_made_inside(w, value, step)
            forget(w, may_access, value)
            return None
        chosen = condition_lanes(value) & mask
        if not chosen:
            return None
        w.mask = chosen
        w.regroup()
        try:
            stopped = step(w)
            w.diverged |= bool(stopped)
            return stopped
        finally:
            w.mask = mask & ~w.exited_lanes
            w.regroup()

    return run


def _frozen(w: Warp) -> list[Any]:
    """A warp's registers in a form that compares by content."""
    return [r if type(r) is int else content(r) for r in w.registers]


# ------------------------------------------------- what a warp would do next, found on a copy of it


#: what cannot be told of an operand: it holds something that is not known, or makes no sense
_LOST = (*FAULTS, UnknownSteers, TypeError, ValueError, ArithmeticError)


def shadow(warp: Any) -> Any:
    """A copy that nothing else sees."""
    other = copy(warp)
    other.registers = list(warp.registers)
    other.frames, other.parts = [], Parts(other)
    return other


def value_of(expr: Expr, w: Any) -> Any:
    """An operand's value, one number if all active lanes have the same; None if it is not known."""
    try:
        found = evaluator(w.machine.loaded, expr)(w)
    except _LOST:
        return None
    value = plain(found)
    if type(found) is Open or type(value) is Unknown:
        return None
    if isinstance(value, np.ndarray):
        chosen = np.broadcast_to(value, 32)[mask_array(w.mask)]
        same = chosen.size and chosen.dtype.kind in "iub" and (chosen == chosen[0]).all()
        return int(chosen[0]) if same else value
    return value


def lanes_where(expr: Expr, w: Any) -> int | None:
    """The lanes in which a condition holds; None if that is not known."""
    value = value_of(expr, w)
    if value is None:
        return None
    try:
        return condition_lanes(value)
    except _LOST:
        return None


def computes(op: Op, number: int, w: Any) -> bool:
    """Whether all that an instruction does is known and sets registers, which a copy then has."""
    if not sets_only(op) or any(isinstance(e, Defines) and e.oracle for e in op.effects()):
        return False
    w.pc = number + 1
    try:
        w.machine.loaded.alone[number][0](w)
    except _LOST:
        return False
    return True
