"""Lanes of a warp that go on by themselves, and where they wait for each other (E11).

Lanes that a branch has split may go on by themselves. An instruction that several lanes execute
together makes those that come first wait. All lanes that live are one agent again when they have
come to one place; others execute it together and go on as they came. `bar.warp.sync` may be
executed at different places: only the mask has to be the same. But lanes do not meet others at one
that all of them come to later: these would be one meeting ahead for ever.

Lanes whose ways parted execute together what comes behind a branch if all of them come there. But
PTX makes none wait for the others there. So where nothing else can move, those that wait go on
alone (`diverge`), to where they have to meet others.
"""

from __future__ import annotations

from tilesim.analysis.divergence import meets_at
from tilesim.ir import effects as fx
from tilesim.ir.expr import Const, constant
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Join, Mir
from tilesim.ir.op import Op
from tilesim.records import dataclass, fields
from tilesim.sim.machine.errors import FAULTS, BarrierError, Fault
from tilesim.sim.machine.events import Kind
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Machine, Step, Warp
from tilesim.sim.machine.schedule import Move
from tilesim.sim.machine.warp import Frame


@dataclass(slots=True, eq=False)
class Arrival:
    """Lanes of ``agent`` wait at ``op`` for the other lanes of ``mask``.

    ``anywhere``: these may execute another one like it. ``step`` is what they do together.
    ``ends``: all that the others can do is to end.
    """

    agent: Warp
    op: Op
    mask: int
    lanes: int
    step: Step
    anywhere: bool
    ends: bool = False

    def fits(self, other: Arrival) -> bool:
        """Whether both wait for the same."""
        twin = self.agent.machine.plan.twin
        one, two = twin(self.op.number), twin(other.op.number)
        apart = self.anywhere and other.anywhere and _either(self.agent, one, two)
        apart = apart and _kind(self.op) == _kind(other.op)
        return self.mask == other.mask and (one == two or apart)

    def __str__(self) -> str:
        return f"lanes {self.mask:#x} that meet"


def assemble(w: Warp, op: Op, mask: int, step: Step) -> bool | None:
    """Lanes of ``mask`` execute ``op``; True if they wait for others of them.

    Where these cannot come any more, ``step`` is executed at once, and says so.
    """
    if w.assembled:
        w.assembled = False
        _note(w, op, mask, "leave")
        w.regroup()
        return None
    missing = mask & w.live_mask & ~w.mask
    if w.mask & ~mask or not missing:
        return step(w)
    may_come = _may_come(w, op, missing)
    if not may_come and not _may_end(w, missing):
        return step(w)
    origin = w.origin
    anywhere = _kind(op) is not None
    origin.arrivals.append(Arrival(w, op, mask, w.mask, step, anywhere, ends=not may_come))
    _note(w, op, mask, "join")
    text = f"waits for lanes {missing:#x} of its warp to execute {op.mnemonic}"
    w.block(origin.arrivals[-1], text, op)
    release(origin)
    return True


def release(origin: Warp) -> None:
    """Lets lanes go on that have waited for each other and have all come, or ended."""
    for first in origin.arrivals:
        group = [a for a in origin.arrivals if a.fits(first)]
        union = sum(a.lanes for a in group)
        if not first.mask & origin.live_mask & ~union:
            origin.arrivals = [a for a in origin.arrivals if a not in group]
            _together(origin, group, union)
            release(origin)
            return


def _together(origin: Warp, group: list[Arrival], union: int) -> None:
    """All lanes of ``union`` are here."""
    machine, last = origin.machine, group[-1].agent
    if not _meets(last_op := group[-1].op):
        twin = machine.plan.twin
        other = next((a.op for a in group if twin(a.op.number) != twin(last_op.number)), None)
        if other is not None:
            raise BarrierError(
                "unsupported",
                f"{last_op.mnemonic} of {origin} by lanes that execute it at several places, "
                f"{last_op.loc} and {other.loc}, is not modelled",
                "let the lanes reconverge before it",
            )
    guarded = machine.plan.mir.code[last.pc].guard is not None
    if union == origin.live_mask and not guarded and len({a.agent.pc for a in group}) == 1:
        _merge(origin, [a.agent for a in group], last.pc)
        return
    before, last.mask, place = last.mask, union, last.pc
    last.regroup()
    last.pc += 1
    try:
        if group[-1].step(last):
            raise Fault(f"{group[-1].op.mnemonic} by lanes that reach it one by one")
    finally:
        last.pc -= 1
        last.mask = before
    # several instructions in a row may have been executed as one
    further = last.pc - place
    for arrival in group:
        if arrival.agent is not last:
            arrival.agent.pc += further
        arrival.agent.assembled = True
        machine.wake(arrival.agent)


def _merge(origin: Warp, agents: list[Warp], pc: int) -> None:
    """All lanes that live are at ``pc``: the warp is one agent again."""
    machine = origin.machine
    for agent in agents:
        agent.blocked = None
        if agent is not origin:
            origin.executed += agent.executed
            origin.cluster_round = origin.cluster_round or agent.cluster_round
            machine.split_groups.remove(agent)
    origin.blocked = None
    origin.frames, origin.pc, origin.mask, origin.alone = [], pc, origin.live_mask, 0
    origin.regroup()
    machine.wake(origin)


def report_missing(machine: Machine) -> None:
    """At the end: lanes that wait for others of their warp, which do not come.

    Nothing is said where a warp waits for something else, which may be what keeps them; unless
    these are the others, which could only end.

    Raises:
        Stop: there were such lanes.
    """
    agents = [
        w for w in (*machine.warps, *machine.split_groups) if not w.exited and w.blocked is not None
    ]
    kept = any(not isinstance(w.blocked and w.blocked.on, Frame | Arrival) for w in agents)
    for arrival in (a for w in machine.warps for a in w.arrivals):
        # lanes that could only end wait for something else first, and not for lanes elsewhere
        if kept and not (arrival.ends and _waits_for_blocked_lanes(arrival, agents)):
            continue
        arrival.agent.pc += 1
        try:
            arrival.step(arrival.agent)
        except FAULTS as fault:
            machine.fault(arrival.agent, fault)


def _waits_for_blocked_lanes(arrival: Arrival, agents: list[Warp]) -> bool:
    """Whether lanes that are waited for wait themselves."""
    origin = arrival.agent.origin
    missing = arrival.mask & origin.live_mask & ~arrival.lanes
    return any(a.origin is origin and a is not arrival.agent and a.mask & missing for a in agents)


def _meets(op: Op) -> bool:
    """Whether an instruction only lets lanes meet: others may execute another one like it."""
    effects = op.effects()
    return len(effects) == 1 and isinstance(effects[0], fx.Gathers) and effects[0].orders


@cached
def _kind(op: Op) -> tuple[object, ...] | None:
    """What instructions have in common of which lanes may execute different ones, to wait for each
    other: the same qualifiers (PTX 9.7.9.6, 9.7.13); None if all execute the same one."""
    gathers = next((e for e in op.effects() if isinstance(e, fx.Gathers)), None)
    if gathers is None or gathers.mask is None:
        return None
    if _meets(op):
        return ("E11",)
    qualifiers = {f.name: getattr(op, f.name) for f in fields(op) if f.name != "loc"}
    plain = [(name, value) for name, value in qualifiers.items() if isinstance(value, str | bool)]
    # a shuffle within parts of a warp is another operation than one of all, but not for PTX
    return (gathers.rule, op.mnemonic if gathers.rule != "E27" else "", *sorted(plain))


def ends_lanes(op: Op) -> bool:
    """Whether the lanes that execute an instruction end there."""
    return any(isinstance(effect, fx.Exits) for effect in op.effects())


def ends_at(mir: Mir, meet: int) -> int:
    """Where lanes have ended that come there: the end of the program, or where they ``meet``, if
    they do nothing there but ``exit``, as at the one ``ret`` of a kernel."""
    first = next((i for i in mir.code[meet:] if not isinstance(i.what, Join)), None)
    what = None if first is None or first.guard is not None else first.what
    return meet if isinstance(what, Op) and ends_lanes(what) else len(mir.code)


def _may_execute_together(op: Op, other: Op) -> bool:
    """Whether two instructions may be executed by lanes that wait for each other."""
    if _kind(op) != _kind(other):
        return False
    gathers = [e for o in (op, other) for e in o.effects() if isinstance(e, fx.Gathers)]
    known = [None if e.mask is None else constant(e.mask) for e in gathers]
    return None in known or known[0] == known[1]


def _either(w: Warp, one: int, two: int) -> bool:
    """Whether no lane has to come to both instructions."""
    graph = w.machine.plan.graph
    return not graph.must_follow(one, two) and not graph.must_follow(two, one)


def _may_come(w: Warp, op: Op, missing: int) -> bool:
    """Whether lanes that are elsewhere can still execute ``op``, or one that does as well, or
    leave early."""
    if not w.may_divide:
        return False
    plan = w.machine.plan
    code, graph = plan.mir.code, plan.graph
    # no instruction waits for lanes that have ended (U22): early, not where these lanes end as well
    exits = (n for n, i in enumerate(code) if isinstance(i.what, Op) and ends_lanes(i.what))
    fitting = {n for n in exits if not graph.must_follow(op.number, n)}
    fitting |= {n for n in range(len(code)) if plan.twin(n) == plan.twin(op.number)}
    if _kind(op) is not None:
        sites = (
            n
            for n, i in enumerate(code)
            if isinstance(i.what, Op) and _may_execute_together(op, i.what)
        )
        fitting |= {n for n in sites if _either(w, plan.twin(op.number), plan.twin(n))}
    places = set()
    for agent in (w.origin, *(f for f in w.machine.split_groups if f.origin is w.origin)):
        if agent is not w and agent.mask & missing:
            places.add(agent.pc)
        for frame in agent.frames:
            places |= {pc for pc, mask in frame.pending if mask & missing}
            places |= {frame.meet} if frame.mask & missing else set()
    return any(graph.reaches(place, number) for place in places for number in fitting)


def _may_end(w: Warp, missing: int) -> bool:
    """Whether lanes that are in another arm of a branch, behind which there is only the end, leave
    from there: no instruction waits for lanes that have ended (U22)."""
    if not w.may_divide:
        return False
    mir = w.machine.plan.mir
    for agent in (w.origin, *(f for f in w.machine.split_groups if f.origin is w.origin)):
        for frame in agent.frames:
            lanes = agent.mask if agent is not w else 0
            lanes |= sum(mask for _, mask in frame.pending)
            if lanes & missing and ends_at(mir, frame.meet) == frame.meet:
                return True
    return False


def _note(w: Warp, op: Op, mask: int, kind: Kind) -> None:
    """For exploration: what goes on comes after the lanes that have come."""
    text = f"{'comes to' if kind == 'join' else 'leaves'} {op.mnemonic}"
    w.machine.note(kind, ("lanes", w.origin.index, mask), w, op, text)


# -------------------------------------------------------- lanes that go on as an agent of their own


def split_off(warp: Warp, lanes: int, pc: int) -> None:
    """``lanes`` of ``warp``, which a branch has split off, go on at ``pc``."""
    _split_off(warp, lanes, pc, warp.frames[-1])


def _split_off(warp: Warp, lanes: int, pc: int, frame: Frame) -> Warp:
    """An agent that ends where the lanes of ``frame`` meet."""
    machine = warp.machine
    other = warp.split_off(lanes, pc, frame)
    machine.split_groups.append(other)
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
    machine.split_groups.remove(warp)
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
    for agent in (origin, *(f for f in warp.machine.split_groups if f.origin is origin)):
        agent.exited_lanes |= lanes
    for barrier in (*warp.cta.named.values(), warp.cta.cluster.barrier):
        if barrier is not None:
            barrier.lanes_left(origin)
    release(origin)
    return warp.frames is not frames


# ---------------------------------------------------------------------- where nothing can move


def diverge(machine: Machine) -> bool:
    """Lanes that wait for others of their warp behind a branch or in one wait, or for their turn,
    go on without them; True if there are any. Only where nothing else can move."""
    for warp in (*machine.warps, *machine.split_groups):
        if warp.exited or not warp.may_divide or warp.blocked is None:
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
    passed = warp.mask & ~warp.left if warp.left and not warp.stage else 0
    if not passed:
        return False
    if not warp.frames:
        warp.frames.append(Frame(warp.live_mask, len(warp.machine.plan.mir.code)))
    frame = warp.frames[-1]
    _split_off(warp, passed, warp.pc + 1, frame if frame.parent is None else frame.parent)
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
            _split_off(warp, mask & ~warp.exited_lanes, pc, frame)
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
    others = [f for f in warp.machine.split_groups if f.frames and f.frames[0].parent is frame]
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
        _split_off(warp, come, frame.meet, outer)
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
