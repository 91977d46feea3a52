"""What a run did: instructions, and events of barriers.

`watch` says which instructions warps execute, what these give to barriers, and which warps go on
because of that. Of a program whose schedules all do the same one run tells what happens in every
one, if not when.

`record` runs a program under the timed policy; `tilesim.checker.witness.retrace` repeats a witness.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from numpy.typing import NDArray

from tilesim.errors import UsageError
from tilesim.findings.finding import Finding
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Strict
from tilesim.sim.machine.events import Key, Kind
from tilesim.sim.machine.machine import Watcher
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.schedule import TimedEnvironment
from tilesim.sim.machine.simulate import Run, Simulation, Stats, check_inputs, kernel_of
from tilesim.sim.observers.timeline import LIMIT, Timeline, recorded, timeline_of

if TYPE_CHECKING:
    from tilesim.sim.machine.events import InFlight
    from tilesim.sim.machine.labels import Who
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


class Actor(NamedTuple, Generic[E]):
    """An instruction as it is executed, or (``engine``) the operation that it has started."""

    executed: E
    engine: bool


class Happenings(Watcher, Generic[E]):
    """Notes what happens in a run; ``E`` stands for an instruction that a warp executes."""

    def __init__(self) -> None:
        super().__init__()
        #: what each agent executes
        self._now: dict[Who, E] = {}
        #: what it waits in
        self._waits: dict[Who, Op] = {}
        self._flying: dict[Key, E] = {}
        self._landing: E | None = None
        self._machine: Machine | None = None
        #: by component; None: that of anything else
        self._barriers: dict[Hashable, Mbarrier | NamedBarrier | None] = {}

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

    def begin(self, agent: Key, enabled: tuple[Key, ...]) -> None:
        """The timed policy makes no moves."""

    def watch(self, machine: Machine) -> list[Entry]:
        """The program's steps, those of interest with a note before."""
        self._machine = machine
        return [
            (self._around(step, origin), sync, cycles)
            if isinstance(origin, Op) and self.watches(origin, cycles)
            else (step, sync, cycles)
            for (step, sync, cycles), origin in zip(
                machine.plan.alone, machine.plan.origins, strict=True
            )
        ]

    def _around(self, step: Step, op: Op) -> Step:
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

    def note(
        self, kind: Kind, obj: Hashable, phase: int, warp: Who, op: Op | None, text: str,
        *, loose: bool = False, alike: tuple[bool, int] | None = None,
    ) -> None:  # fmt: skip
        """A touch of a barrier."""
        barrier = self.barrier(obj)
        if barrier is None or op is None:
            return
        by = self.actor(warp)
        if kind in ("credit", "join") and by is not None:
            self.gives(by, barrier, phase)
        elif kind in ("pass", "leave"):
            self.takes(self._now[warp], barrier, phase)

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

    def actor(self, warp: Who) -> Actor[E] | None:
        """What acts now, if ``warp`` or an operation of it does; None if it is of no interest."""
        if self._landing is not None:
            return Actor(self._landing, engine=True)
        return Actor(self._now[warp], engine=False) if warp in self._now else None

    def barrier(self, obj: Hashable) -> Mbarrier | NamedBarrier | None:
        """The barrier that is meant; None if it is anything else."""
        if obj not in self._barriers and isinstance(obj, int) and self._machine is not None:
            self._barriers.update((b.component, b) for b in _barriers(self._machine))
            self._barriers.setdefault(obj)
        return self._barriers.get(obj)


def _barriers(machine: Machine) -> Iterator[Mbarrier | NamedBarrier]:
    for cta in machine.ctas:
        yield from cta.mbarriers.values()
        yield from cta.named.values()
    yield from (c.barrier for c in machine.clusters if c.barrier is not None)


# ------------------------------------------------------------------ recorded runs


@dataclass(frozen=True)
class Recording:
    """What a run has shown and cost, and the timelines of the clusters that were recorded.

    Plain data, without the machine that ran: results of checks have it, which go from process to
    process. ``cut_off``: why it ended before the kernel did; empty if it did not.
    """

    findings: tuple[Finding, ...]
    stats: Stats
    timelines: tuple[Timeline, ...]
    cut_off: str = ""

    @classmethod
    def of(cls, run: Run, timelines: Iterable[Timeline | None]) -> Recording:
        """What is kept of a run."""
        cut_off = next((o.cut_off for o in run.outcomes if o.cut_off), "")
        recorded_of = tuple(t for t in timelines if t is not None)
        return cls(run.findings, run.stats, recorded_of, cut_off)

    def of_cta(self, cta: int) -> Timeline | None:
        """The timeline in which a CTA appears."""
        return next((t for t in self.timelines if cta in t.ctas), None)


def record(
    program: Program | Mir,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    *,
    strict: Strict = "practice",
    numbers: bool = False,
    clusters: int = 1,
    limit: int = LIMIT,
    steps: int | None = None,
) -> Recording:
    """Runs the first ``clusters`` clusters under the timed policy and records them.

    ``steps``: scheduling points at which each is cut off, if not where checks are.

    Raises:
        InvalidProgram: the program is rejected before it runs.
        UsageError: an input does not fit its tensor.
    """
    checked = check_inputs(kernel_of(program), inputs or {})
    simulation = Simulation(program, numbers=numbers, strict=strict)
    if steps is not None:
        simulation.cut_off_at(steps)
    count = min(clusters, simulation.groups)
    environments = [(index, recorded(TimedEnvironment(), limit)) for index in range(count)]
    run = simulation.run_on(checked, [*environments])
    return Recording.of(run, (timeline_of(env) for _, env in environments))
