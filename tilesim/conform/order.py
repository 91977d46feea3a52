"""What has to come before what in every execution of a program, as its machine says.

Of a program whose schedules all do the same, one run tells: an arrival, or bytes, of a phase come
before every wait for that phase passes (A20), whoever joins a round of a barrier comes before
anybody leaves it (E1, E20), and a warp's instructions follow each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import simpy

from tilesim.errors import UsageError
from tilesim.gpu.emit.trace import is_traced
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.sim.machine.machine import Watcher
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.trace import Key, Kind
from tilesim.sim.simulate import Simulation, check_inputs
from tilesim.sim.timeline import Instance

if TYPE_CHECKING:
    from tilesim.sim.machine.machine import Entry, Machine, Step, Warp
    from tilesim.sim.machine.trace import InFlight
    from tilesim.sim.machine.who import Who


@dataclass(frozen=True, slots=True)
class Group:
    """A phase of an mbarrier, or a round of another barrier, counted from 0; ``label`` names it."""

    object: Hashable
    number: int
    label: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.label} {self.number}"


class Actor(NamedTuple):
    """An instruction, or (``engine``) an asynchronous operation that it has started."""

    instance: Instance
    engine: bool


#: in the order of a run: an instruction is entered; it contributes to a group (``issues``: what it
#: has started does so, later); it goes on because a group is complete
Happening = tuple[Literal["enters", "gives", "issues", "takes"], Instance, Group | None]


@dataclass(frozen=True)
class Order:
    """The happenings of a run, in an order in which they can happen, and the instructions by their
    numbers."""

    happenings: tuple[Happening, ...]
    ops: Mapping[int, Op] = field(repr=False)

    def counts(self) -> Counter[tuple[int, int, int]]:
        """How often each warp executes each instruction."""
        return Counter(i[:3] for what, i, _ in self.happenings if what == "enters")


def order_of(
    program: Program, inputs: Mapping[str, Any] | None = None, *, clusters: int = 1
) -> Order:
    """The order of the first ``clusters`` clusters.

    Raises:
        UsageError: what the program executes depends on the schedule, or it fails.
        InvalidProgram: the program is rejected.
    """
    watchers = [Happenings() for _ in range(clusters)]
    mir = watched(program, inputs or {}, watchers, numbers=inputs is not None)
    happenings = tuple(h for watcher in watchers for h in watcher.happenings)
    return Order(happenings, {op.number: op for op in mir.ops() if is_traced(op)})


def watched(
    program: Program | Mir,
    inputs: Mapping[str, Any],
    watchers: Sequence[Happenings],
    *,
    numbers: bool,
) -> Mir:
    """Runs as many clusters as there are watchers, if there are so many; what has been run.

    Raises:
        UsageError: what the program executes depends on the schedule, or it fails.
        InvalidProgram: the program is rejected.
    """
    simulation = Simulation(program, numbers=numbers, strict="practice")
    environments = [_Environment(watcher) for watcher in watchers[: simulation.groups]]
    run = simulation.run_on(check_inputs(simulation.program, inputs), list(enumerate(environments)))
    name = simulation.program.name
    if run.findings:
        raise UsageError(f"{name} fails ({run.findings[0].rule}): there is no order")
    for outcome in run.outcomes:
        for what in (
            *outcome.nondeterminism,
            *(f"who draws from {d.tensor}" for d in outcome.draws),
        ):
            raise UsageError(f"what {name} executes depends on the schedule: {what}")
        if outcome.asked:
            raise UsageError(f"what {name} executes depends on launch control")
    return simulation.code.mir


class _Environment(simpy.Environment):
    """The timed policy, watched."""

    def __init__(self, watcher: Happenings) -> None:
        super().__init__()
        self.trace = watcher


class Happenings(Watcher):
    """Notes the happenings of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.happenings: list[Happening] = []
        self._counts: Counter[tuple[int, int, int]] = Counter()
        #: what each agent executes
        self._now: dict[Who, Instance] = {}
        #: what it waits in
        self._waits: dict[Who, Op] = {}
        self._flying: dict[Key, Instance] = {}
        self._landing: Instance | None = None
        self._machine: Machine | None = None
        self._known: dict[Hashable, Mbarrier | NamedBarrier] = {}

    def begin(self, agent: Key, enabled: tuple[Key, ...]) -> None:
        """The timed policy makes no moves."""

    def watch(self, machine: Machine) -> list[Entry]:
        """The program's steps, those of traced instructions with a note before."""
        self._machine = machine
        steps = list(machine.plan.steps)
        for first, (alone, _) in machine.plan.fused.items():
            steps[first] = alone
        return [
            (self._around(step, origin), sync, cycles)
            if isinstance(origin, Op) and is_traced(origin)
            else (step, sync, cycles)
            for (step, sync, cycles), origin in zip(steps, machine.plan.origins, strict=True)
        ]

    def _around(self, step: Step, op: Op) -> Step:
        def run(w: Warp) -> bool | None:
            if self._waits.get(w) is not op:
                place = w.cta.number, w.number, op.number
                self._now[w] = (*place, self._counts[place])
                self._counts[place] += 1
                self.happenings.append(("enters", self._now[w], None))
            self._waits[w] = op
            stopped = step(w)
            if not stopped:
                del self._waits[w]
            self.settle()
            return stopped

        return run

    def note(
        self, kind: Kind, obj: Hashable, phase: int, warp: Who, op: Op | None, text: str,
        *, loose: bool = False,
    ) -> None:  # fmt: skip
        """A touch of a barrier."""
        label = self._label(obj)
        if not label or op is None:
            return
        group = Group(obj, phase, label)
        if kind in ("credit", "join"):
            by = self.actor(warp)
            if by is not None:
                self.happenings.append(("issues" if by.engine else "gives", by.instance, group))
        elif kind in ("pass", "leave"):
            self.happenings.append(("takes", self._now[warp], group))

    def actor(self, warp: Who) -> Actor | None:
        """Who acts now, if ``warp`` or an operation of it does; None if nobody traces it."""
        if self._landing is not None:
            return Actor(self._landing, engine=True)
        return Actor(self._now[warp], engine=False) if warp in self._now else None

    def spawn(self, operation: InFlight) -> None:
        """An asynchronous operation starts."""
        if operation.warp in self._now:
            self._flying[operation.key] = self._now[operation.warp]

    def lands(self, operation: InFlight) -> None:
        """It is about to take effect."""
        self._landing = self._flying.pop(operation.key, None)

    def landed(self, operation: InFlight) -> None:
        """It has taken effect."""
        self._landing = None
        self.settle()

    def settle(self) -> None:
        """What a step, or an operation that lands, does is done."""

    def _label(self, obj: Hashable) -> str:
        """What a barrier is called with its phases; empty for anything else."""
        barrier = self.barrier(obj)
        if barrier is None:
            return ""
        return f"{barrier.label} {'phase' if isinstance(barrier, Mbarrier) else 'round'}"

    def barrier(self, obj: Hashable) -> Mbarrier | NamedBarrier | None:
        """The barrier that is meant; None if it is anything else."""
        if obj not in self._known and isinstance(obj, int) and self._machine is not None:
            self._known.update((b.component, b) for b in _barriers(self._machine))
        return self._known.get(obj)


def _barriers(machine: Machine) -> Iterator[Mbarrier | NamedBarrier]:
    for cta in machine.ctas:
        yield from cta.mbarriers.values()
        yield from cta.named.values()
    yield from (c.barrier for c in machine.clusters if c.barrier is not None)
