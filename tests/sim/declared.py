"""What runs record for an instruction: accesses, credits, joins, waits, what a warp learns and what
it comes after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from tilesim import Program
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import Mbar, Mbarriers, View
from tilesim.ir.op import Op
from tilesim.ir.program import Strict
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.clock import GENERIC
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.machine import Entry, Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import Join, NamedBarrier
from tilesim.sim.machine.simulate import Simulation
from tilesim.sim.observers.phase_conditions import Credit
from tilesim.sim.observers.races import RaceDetector

#: what happened, and to what: the name of a tensor, or the place of an mbarrier
Event = tuple[str, object]
#: something at an address that is computed
ANY = "any"
#: what a thread learns comes through one of these (a commit counts what it publishes)
LEARNS = (
    fx.Waits, fx.JoinsBarrier, fx.JoinsCluster, fx.Commits, fx.WaitsGroup, fx.WaitsGrids, fx.Orders,
    fx.Crosses, fx.AllocatesTmem, fx.OrdersTmem, fx.RelinquishesTmem,
)  # fmt: skip


def declared(program: Program, op: Op) -> frozenset[Event]:
    """What the effects of an instruction say that it may do; who learns comes after, too."""
    events = frozenset(_events(program, op.effects()))
    return events | {("follows", None)} if ("learns", None) in events else events


def _events(program: Program, effects: Iterable[fx.Effect]) -> Iterator[Event]:
    for effect in effects:
        match effect:
            case fx.Reads(view=view, sem=sem):
                yield "reads", _name(view)
                if sem != "weak":
                    yield "learns", None
            case fx.Writes(view=view, sem=sem):
                yield "writes", _name(view)
                if sem != "weak":
                    yield "learns", None
            case fx.RemoteStore(view=view):
                yield "writes", _name(view)
            case fx.ReadsMap(map=map_):
                yield "reads", map_.tensor.name
            case fx.WritesMap(map=map_):
                yield "writes", map_.tensor.name
            case fx.Gathers(orders=True):
                yield "learns", None
            case fx.Gathers(whole=False):
                yield "follows", None
            case fx.UsesTmem() | fx.FreesTmem():
                yield "tensor memory", None
            case _ if isinstance(effect, LEARNS):
                yield "learns", None
        mbar = getattr(effect, "mbar", None)
        if isinstance(mbar, Mbar):
            for what in _on_mbarrier(effect):
                yield from ((what, place) for place in _places(program, mbar))
        if isinstance(effect, fx.JoinsBarrier):
            yield "joins", "CTA"
        if isinstance(effect, fx.JoinsCluster) and effect.arrives:
            yield "joins", "cluster"


def _on_mbarrier(effect: fx.Effect) -> Iterator[str]:
    match effect:
        case fx.InitsMbarrier() | fx.InvalidatesMbarrier():
            yield from ("starts or ends", "writes")
        case fx.Arrives(bytes=nbytes, lent=lent):
            yield "arrives"
            if nbytes is not None:
                yield "expects"
            if lent:
                yield "lends"
        case fx.Expects():
            yield "expects"
        case fx.Completes():
            yield "completes"
        case fx.Waits():
            yield "looks"
        case _:
            pass


def _name(view: View) -> str:
    return ANY if isinstance(view.tensor, AddressedTensor) else view.tensor.name


def _places(program: Program, mbar: Mbar) -> Iterator[int | str]:
    if not isinstance(mbar.array, Mbarriers):
        return iter((ANY,))
    base = program.placement[mbar.array.name]
    return (base + 8 * i for i in range(mbar.array.count))


def says(effects: frozenset[Event], event: Event) -> bool:
    """Whether effects include an event."""
    return event in effects or (event[0], ANY) in effects


class Recorded:
    """Patches the machine's parts to note what they are told."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        #: what was recorded for each instruction
        self.events: dict[Op, set[Event]] = {}
        self._patch = patch
        self._accesses()
        self._mbarriers()
        self._joins()

    def _note(self, op: Op, what: str, thing: object = None) -> None:
        self.events.setdefault(op, set()).add((what, thing))

    def _before(self, owner: type, name: str, note: Any) -> None:
        old = getattr(owner, name)

        def noted(*positional: Any, **keywords: Any) -> Any:
            note(*positional)
            return old(*positional, **keywords)

        self._patch.setattr(owner, name, noted)

    def _accesses(self) -> None:
        def access(what: str) -> Any:
            def note(
                _: object, memory: object, footprint: Footprint, made: Access, *__: Any
            ) -> None:
                where = footprint.tensor or footprint.bytes.low
                self._note(made.op, what, where)

            return note

        self._before(RaceDetector, "read", access("reads"))
        self._before(RaceDetector, "write", access("writes"))

    def _mbarriers(self) -> None:
        def credit(barrier: Mbarrier, made: Credit, *_: Any) -> None:
            if made.arrivals:
                self._note(made.op, "arrives" if made.arrivals > 0 else "lends", barrier.address)
            if made.tx:
                self._note(made.op, "expects" if made.tx > 0 else "completes", barrier.address)

        def start(barrier: Mbarrier, count: int, made: Credit) -> None:
            self._note(made.op, "starts or ends", barrier.address)

        def used(what: str) -> Any:
            return lambda barrier, warp, op, *_: self._note(op, what, barrier.address)

        self._before(Mbarrier, "credit", credit)
        self._before(Mbarrier, "start", start)
        self._before(Mbarrier, "stop", used("starts or ends"))
        for name in ("passed", "looked", "check_pass"):
            self._before(Mbarrier, name, used("looks"))

    def _joins(self) -> None:
        def gather(barrier: NamedBarrier, made: Join, *_: Any) -> None:
            of_cluster = not barrier.of_cta
            self._note(made.op, "joins", "cluster" if of_cluster else "CTA")

        self._before(NamedBarrier, "gather", gather)

    def run(self, program: Program, strict: Strict) -> None:
        """Runs a program once."""
        simulation = Simulation(program, numbers=False, strict=strict)
        code = simulation.code
        code.rows.clear()
        code.steps[:] = [
            self._watched(entry, origin) if isinstance(origin, Op) else entry
            for entry, origin in zip(code.steps, code.origins, strict=True)
        ]
        simulation.run({}, lambda cluster: None)

    def _watched(self, entry: Entry, op: Op) -> Entry:
        step, sync, cycles = entry

        def watched(w: Warp) -> bool | None:
            part, before = w.part, w.clock.copy()
            blocked = step(w)
            if w.part is part:
                own = {w.component} if w.inits is None else {w.component, w.inits.component}
                rows, changed = np.divmod(
                    np.flatnonzero(w.clock != before), w.machine.components.size
                )
                if not {*changed[rows >= GENERIC].tolist()} <= own:
                    self._note(op, "learns")
                elif not {*changed.tolist()} <= own:
                    self._note(op, "follows")
            return blocked

        watching: Step = watched
        return watching, sync, cycles
