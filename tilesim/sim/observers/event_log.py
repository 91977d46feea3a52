"""What a run did: instructions, and events of barriers.

`watch` says which instructions warps execute, what these give to barriers, and which warps go on
because of that. Of a program whose schedules all do the same one run tells what happens in every
one, if not when.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tilesim.errors import UsageError
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.sim.machine.events import Event, Key
from tilesim.sim.machine.machine import Watcher
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.schedule import TimedEnvironment
from tilesim.sim.machine.simulate import Simulation, check_inputs
from tilesim.sim.machine.warp import Barrier

if TYPE_CHECKING:
    from tilesim.sim.machine.events import InFlight
    from tilesim.sim.machine.labels import AgentLike
    from tilesim.sim.machine.machine import Entry, Machine, Step, Warp


E = TypeVar("E")


def watch(
    program: Program | Mir,
    inputs: Mapping[str, Any],
    watchers: Mapping[int, Happenings[Any]],
    *,
    numbers: bool,
) -> Simulation:
    """Runs clusters, each with the watcher that is given with its number, if there are so many.

    Raises:
        UsageError: what the program executes depends on the schedule, or it fails.
        InvalidProgram: the program is rejected.
    """
    simulation = Simulation(program, numbers=numbers, strict="practice")
    name = simulation.program.name
    environments = [
        (index, TimedEnvironment(watcher)) for index, watcher in watchers.items()
        if index < simulation.groups
    ]  # fmt: skip
    run = simulation.run_on(check_inputs(simulation.program, inputs), [*environments])
    if run.findings:
        raise UsageError(f"{name} fails ({run.findings[0].rule})")
    for outcome in run.outcomes:
        for what in (
            *outcome.nondeterminism,
            *(f"the ticket order of {d.tensor}" for d in outcome.draws),
        ):
            raise UsageError(f"what {name} executes depends on the schedule: {what}")
        if outcome.asked:
            raise UsageError(f"what {name} executes depends on launch control")
    return simulation


class EventLog(Watcher):
    """Looks at the steps of a program, and at what happens to its barriers."""

    def __init__(self) -> None:
        super().__init__()
        self._machine: Machine | None = None
        #: by component; None: that of anything else
        self._objects: dict[Hashable, Barrier | None] = {}

    @abstractmethod
    def around(self, step: Step, number: int, origin: Op | Loc, cycles: int) -> Step:
        """The step of instruction ``number`` with what notes it, or as it is; ``cycles`` is how
        long it takes at least."""

    def begin(self, agent: Key, enabled: tuple[Key, ...]) -> None:
        """A move: what it does is noted, not that it is chosen."""

    def watch(self, machine: Machine) -> list[Entry]:
        """The program's steps, each instruction by itself, with what notes them."""
        self._machine = machine
        entries = zip(machine.plan.alone, machine.plan.origins, strict=True)
        return [
            (self.around(step, number, origin, cycles), sync, cycles)
            for number, ((step, sync, cycles), origin) in enumerate(entries)
        ]

    def object(self, obj: Hashable) -> Barrier | None:
        """The barrier that an event is of; None for anything else."""
        first = not self._objects
        if (first or (isinstance(obj, int) and obj not in self._objects)) and self._machine:
            self._objects.update((b.component, b) for b in _barriers(self._machine))
            self._objects.setdefault(obj)
        return self._objects.get(obj)


def _barriers(machine: Machine) -> Iterator[Barrier]:
    for cta in machine.ctas:
        yield from cta.mbarriers.values()
        yield from cta.spare_mbarriers
        yield from cta.named.values()
    yield from (w.warpgroup for w in machine.warps if w.number % 4 == 0)
    yield from (c.barrier for c in machine.clusters if c.barrier is not None)


class Actor(NamedTuple, Generic[E]):
    """An instruction as it is executed, or (``engine``) the operation that it has started."""

    executed: E
    engine: bool


class Happenings(EventLog, Generic[E]):
    """Notes what happens in a run; ``E`` stands for an instruction that a warp executes."""

    def __init__(self) -> None:
        super().__init__()
        #: what each agent executes
        self._now: dict[AgentLike, E] = {}
        #: what it waits in
        self._waits: dict[AgentLike, Op] = {}
        self._flying: dict[Key, E] = {}
        self._landing: E | None = None

    # ------------------------------------------------------------------ what is noted

    @abstractmethod
    def watches(self, op: Op, cycles: int) -> bool:
        """Whether the instruction is of interest; ``cycles`` is how long it takes at least."""

    @abstractmethod
    def enters(self, w: Warp, op: Op) -> E:
        """A warp begins with an instruction."""

    @abstractmethod
    def gives(self, by: Actor[E], barrier: Mbarrier | NamedBarrier, number: int) -> None:
        """Something is contributed to a phase or round."""

    @abstractmethod
    def takes(self, executed: E, barrier: Mbarrier | NamedBarrier, number: int) -> None:
        """A warp goes on because a phase or round is complete."""

    def settle(self) -> None:
        """What a step, or an operation that lands, does is done."""

    # ------------------------------------------------------------------ hooks of the machine

    def around(self, step: Step, number: int, origin: Op | Loc, cycles: int) -> Step:
        """The steps of interest with a note before."""
        if not isinstance(origin, Op) or not self.watches(origin, cycles):
            return step
        op = origin

        def run(w: Warp) -> bool | None:
            if self._waits.get(w) is not op:
                self._now[w] = self.enters(w, op)
            self._waits[w] = op
            stopped = step(w)
            if not stopped:
                del self._waits[w]
            self.settle()
            return stopped

        return run

    def note(self, event: Event) -> None:
        """A touch of a barrier."""
        barrier = self.barrier(event.object)
        if barrier is None or event.op is None:
            return
        by = self.actor(event.warp)
        if event.kind in ("credit", "join") and by is not None:
            self.gives(by, barrier, event.phase)
        elif event.kind in ("pass", "leave"):
            self.takes(self._now[event.warp], barrier, event.phase)

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

    # ------------------------------------------------------------------ what acts, and on what

    def actor(self, warp: AgentLike) -> Actor[E] | None:
        """What acts now, if ``warp`` or an operation of it does; None if it is of no interest."""
        if self._landing is not None:
            return Actor(self._landing, engine=True)
        return Actor(self._now[warp], engine=False) if warp in self._now else None

    def barrier(self, obj: Hashable) -> Mbarrier | NamedBarrier | None:
        """The barrier that is meant; None if it is anything else."""
        found = self.object(obj)
        return found if isinstance(found, Mbarrier | NamedBarrier) else None
