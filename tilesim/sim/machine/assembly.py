"""Lanes of a warp that come one by one to where they wait for each other (E11).

Lanes that a branch has split may go on by themselves. An instruction that several lanes execute
together makes those that come first wait. All lanes that live are one agent again when they have
come to one place; others execute it together and go on as they came. `bar.warp.sync` may be
executed at different places: only the mask has to be the same. But lanes do not meet others at one
that all of them come to later: these would be one meeting ahead for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesim.ir import effects as fx
from tilesim.ir.expr import constant
from tilesim.ir.op import Op
from tilesim.sim.machine.agent import Blocked, Frame
from tilesim.sim.machine.errors import FAULTS, Fault
from tilesim.sim.machine.machine import Machine, Step, Warp


@dataclass(slots=True, eq=False)
class Arrival:
    """Lanes of ``agent`` wait at ``op`` for the other lanes of ``mask``.

    ``anywhere``: these may execute another one like it. ``step`` is what they do together.
    """

    agent: Warp
    op: Op
    mask: int
    lanes: int
    step: Step
    anywhere: bool

    def fits(self, other: Arrival) -> bool:
        """Whether both wait for the same."""
        twin = self.agent.machine.plan.twin
        one, two = twin(self.op.number), twin(other.op.number)
        apart = self.anywhere and other.anywhere and _either(self.agent, one, two)
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
    if w.mask & ~mask or not missing or not _may_come(w, op, missing):
        return step(w)
    origin = w.origin
    origin.arrivals.append(Arrival(w, op, mask, w.mask, step, _meets(op)))
    _note(w, op, mask, "join")
    text = f"waits for lanes {missing:#x} of its warp to execute {op.mnemonic}"
    w.pc -= 1
    w.blocked = Blocked(origin.arrivals[-1], text, op, op.loc)
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
    guarded = machine.plan.mir.code[last.pc].guard is not None
    if union == origin.live_mask and not guarded and len({a.agent.pc for a in group}) == 1:
        _merge(origin, [a.agent for a in group], last.pc)
        return
    before, last.mask, place = last.mask, union, last.pc
    last.regroup()
    last.pc += 1
    try:
        if group[-1].step(last):
            raise Fault(f"{group[-1].op.mnemonic} by lanes that come to it one by one")
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
            machine.forks.remove(agent)
    origin.blocked = None
    origin.frames, origin.pc, origin.mask, origin.alone = [], pc, origin.live_mask, 0
    origin.regroup()
    machine.wake(origin)


def report_missing(machine: Machine) -> None:
    """At the end: lanes that wait for others of their warp, which do not come.

    Nothing is said where somebody waits for something else, which may be what keeps them.

    Raises:
        Stop: there were such lanes.
    """
    agents = [w for w in (*machine.warps, *machine.forks) if not w.exited and w.blocked is not None]
    if any(not isinstance(w.blocked and w.blocked.on, Frame | Arrival) for w in agents):
        return
    for arrival in (a for w in machine.warps for a in w.arrivals):
        arrival.agent.pc += 1
        try:
            arrival.step(arrival.agent)
        except FAULTS as fault:
            machine.fault(arrival.agent, fault)


def _meets(op: Op) -> bool:
    """Whether an instruction only lets lanes meet: others may execute another one like it."""
    effects = op.effects()
    return len(effects) == 1 and isinstance(effects[0], fx.Gathers) and effects[0].orders


def ends_lanes(op: Op) -> bool:
    """Whether the lanes that execute an instruction end there."""
    return any(isinstance(effect, fx.Exits) for effect in op.effects())


def _alike(op: Op, other: Op) -> bool:
    """Whether two meetings may be of the same lanes."""
    (one,), two = op.effects(), other.effects()
    if not _meets(other) or not isinstance(one, fx.Gathers) or not isinstance(two[0], fx.Gathers):
        return False
    known = [None if e.mask is None else constant(e.mask) for e in (one, two[0])]
    return None in known or known[0] == known[1]


def _either(w: Warp, one: int, two: int) -> bool:
    """Whether no lane has to come to both instructions."""
    graph = w.machine.plan.graph
    return not graph.must_follow(one, two) and not graph.must_follow(two, one)


def _may_come(w: Warp, op: Op, missing: int) -> bool:
    """Whether lanes that are elsewhere can still execute ``op``, or one that does as well, or
    leave early."""
    if w.parts is None:
        return False
    plan = w.machine.plan
    code, graph = plan.mir.code, plan.graph
    # nobody waits for lanes that have ended (U22): early, not where these lanes end as well
    exits = (n for n, i in enumerate(code) if isinstance(i.what, Op) and ends_lanes(i.what))
    fitting = {n for n in exits if not graph.must_follow(op.number, n)}
    fitting |= {n for n in range(len(code)) if plan.twin(n) == plan.twin(op.number)}
    if _meets(op):
        sites = (n for n, i in enumerate(code) if isinstance(i.what, Op) and _alike(op, i.what))
        fitting |= {n for n in sites if _either(w, plan.twin(op.number), plan.twin(n))}
    places = set()
    for agent in (w.origin, *(f for f in w.machine.forks if f.origin is w.origin)):
        if agent is not w and agent.mask & missing:
            places.add(agent.pc)
        for frame in agent.frames:
            places |= {pc for pc, mask in frame.pending if mask & missing}
            places |= {frame.meet} if frame.mask & missing else set()
    return any(graph.reaches(place, number) for place in places for number in fitting)


def _note(w: Warp, op: Op, mask: int, kind: str) -> None:
    """For exploration: who goes on comes after those who have come."""
    if w.machine.trace is not None:
        text = f"{'comes to' if kind == 'join' else 'leaves'} {op.mnemonic}"
        what = ("lanes", w.origin.index, mask)
        w.machine.trace.note("join" if kind == "join" else "leave", what, 0, w, op, text)
