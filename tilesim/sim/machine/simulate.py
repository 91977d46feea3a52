"""`simulate`: run a program once under one schedule, with or without numbers.

At the end of the run, what is left undone there is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import simpy
from numpy.typing import NDArray

from tilesim.analysis.elected_lane import depends_on_elected
from tilesim.analysis.taint import names_addresses, written_by
from tilesim.arith.types import numpy_dtype
from tilesim.dsl.kernel import Kernel, built, public
from tilesim.errors import UsageError
from tilesim.findings.finding import Finding
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.ir.scalars import communicates
from tilesim.ir.verify import verify
from tilesim.records import dataclass, field, replace
from tilesim.sim.machine.cta import cluster_ctas
from tilesim.sim.machine.divergence import diverge, report_missing
from tilesim.sim.machine.errors import CutOff
from tilesim.sim.machine.execute import not_judged
from tilesim.sim.machine.footprint import Unskippable
from tilesim.sim.machine.interface import Options, Stop
from tilesim.sim.machine.load import Compiler
from tilesim.sim.machine.machine import Code, Machine, TakesLong, TimeIsUp
from tilesim.sim.machine.memory import GlobalMemory, array_of
from tilesim.sim.machine.result import Leant, Outcome
from tilesim.sim.machine.schedule import (
    Answers,
    ChoiceEnvironment,
    Chooser,
    Move,
    PctChooser,
    RandomChooser,
    TimedEnvironment,
    require_seed,
)
from tilesim.sim.machine.unknown import UnknownSteers
from tilesim.sim.observers.accessed_bytes import Accessed, is_asked_for
from tilesim.sim.observers.at_exit import report_exit
from tilesim.sim.observers.uninitialised_reads import Garbage
from tilesim.transforms.lower import lower
from tilesim.transforms.rewrite import lanes_apart

if TYPE_CHECKING:
    from tilesim.sim.affine.cluster_classes import Follower
    from tilesim.sim.affine.cluster_plan import Integers, Plan


def run_machine(machine: Machine) -> None:
    """Runs to the end, to quiescence, or to undefined behaviour."""
    _start(machine)
    if all(w.exited for w in machine.warps):
        return
    try:
        machine.env.run()
        while _admit_draw(machine) or _release_pollers(machine) or diverge(machine):
            machine.env.run()
        if any(not w.exited for w in machine.warps):
            from tilesim.sim.observers.deadlock import report_deadlock  # what only a failure needs

            report_missing(machine)
            report_deadlock(machine)
        else:
            report_exit(machine)
    except Stop:
        machine.outcome.undefined = True
    except CutOff as why:
        machine.outcome.cut_off = str(why)
    except UnknownSteers as steers:  # where no instruction is executed
        machine.outcome.cut_off = f"a value that is not known decides: {steers.value}"


def _start(machine: Machine) -> None:
    """Makes every warp runnable."""
    for warp in machine.warps:
        if machine.launch.launches(warp.cta.cluster.number):
            Move(machine.env, warp.run, 0, warp)
        else:
            warp.exited = True


def _admit_draw(machine: Machine) -> bool:
    """At quiescence one of those that wait to draw from a counter does."""
    warp = machine.tickets.admit()
    if warp is not None:
        machine.wake(warp)
    return warp is not None


def _release_pollers(machine: Machine) -> bool:
    """At quiescence a suspended try_wait gives up once; True if a warp was woken."""
    if machine.options.rounds is not None and _brings_nothing(machine, machine.options.rounds):
        return False
    woken = False
    for warp in (*machine.warps, *machine.split_groups):
        polled = warp.polled
        if polled is not None and warp.blocked is not None and not polled.expired:
            polled.expired = True
            polled.mbarrier.waiters.remove(warp)
            machine.wake(warp)
            woken = True
    return woken


def _brings_nothing(machine: Machine, rounds: int) -> bool:
    """Whether no mbarrier has changed in so many rounds in which try_waits have given up."""
    state = tuple(
        (one.phase, one.pending, one.tx) for cta in machine.ctas for one in cta.mbarriers.values()
    )
    before, times = machine.given_up
    machine.given_up = state, times + 1 if state == before else 0
    return machine.given_up[1] >= rounds


# ------------------------------------------------------------------ one run of a program


Policy = Literal["timed", "random", "pct"]


@dataclass(frozen=True)
class Stats:
    """What a run cost: warp instructions executed, CTAs simulated, simulated cycles. ``skipped`` of
    the instructions are repetitions that were not executed one by one. ``by_parts``: how often
    lanes of a warp that act apart have executed one for themselves."""

    instructions: int = 0
    ctas: int = 0
    cycles: int = 0
    skipped: int = 0
    by_parts: int = 0


@dataclass(frozen=True)
class Run:
    """The result of one run: what was found, the final global tensors, and what it cost.

    ``outputs`` has the tensors that hold numbers (all of them unless ``numbers`` is off).
    ``outcomes`` holds, per cluster, what the certificate judges;
    ``choices`` the schedule picks per cluster (empty under ``timed``).
    """

    findings: tuple[Finding, ...]
    outputs: dict[str, NDArray[Any]] = field(repr=False)
    stats: Stats
    outcomes: tuple[Outcome, ...] = field(repr=False, default=())
    choices: dict[int, list[int]] = field(repr=False, default_factory=dict)


class Interrupted(KeyboardInterrupt):
    """A run was interrupted, by the user or by the clock: what it did, and of which clusters."""

    def __init__(self, run: Run, clusters: list[int]) -> None:
        super().__init__()
        self.run = run
        self.clusters = clusters


class Simulation:
    """A compiled program that can be run many times."""

    def __init__(self, program: Program | Mir, *, numbers: bool, strict: Strict) -> None:
        _require_level(strict)
        verify(program, to_run=True)
        whole = lower(program) if isinstance(program, Program) else program
        mir, decided_by_bases, lanes_asked, stays, mixed = _located(whole)
        #: the launch and the declarations
        self.program = mir.kernel
        self.options = Options(ptx=strict == "ptx", numbers=numbers)
        compiler = Compiler(mir, numbers=numbers, stays=stays)
        self.code: Code = compiler.compile()
        self.code.decided_by_bases, self.code.lanes_asked = decided_by_bases, lanes_asked
        self.code.mixed = mixed
        #: the global tensors that instructions name which write them, and all that may be written
        self.named = frozenset(_named_as_written(mir))
        self.written = frozenset(_written(mir))
        #: whether the whole grid is simulated together: CTAs of different clusters synchronise
        self.together = communicates(mir)
        #: by the cluster that runs: what follows the others
        self.followers: dict[int, Follower] = {}
        #: judges reads of bytes that nothing has filled; None where they do not matter
        self.garbage: Garbage | None = Garbage(mir.kernel, self.code.flow, self._results)
        #: switches of SEMANTICS 0.3 that runs so far may have used, with instructions
        self.leaned: set[Leant] = set()
        #: undefined behaviour or a deadlock has ended a run before the kernel did
        self.ended_early = False
        #: what instructions have accessed in all runs, if hardware answers or hands out numbers
        asked = is_asked_for(mir, decided=bool(decided_by_bases))
        self.accessed = Accessed(mir) if asked else None
        #: whether repetitions are skipped where a run is in a steady state
        self.skips = False
        #: what looks for them, if not a `Skipper`
        self.skipper: Callable[[Machine], object] | None = None
        #: is told of every machine that is going to run
        self.watches: Callable[[Machine], object] | None = None
        #: whether runs keep what a global tensor holds, by its name
        self.holds = compiler.holds
        self._numbers = compiler.numbers

    def with_numbers(self) -> Simulation:
        """The same program, computing tile data."""
        strict: Strict = "ptx" if self.options.ptx else "practice"
        other = Simulation(self.code.mir, numbers=True, strict=strict)
        other.set_options(first_lane=self.options.first_lane)
        return other

    def at(self, strict: Strict) -> Simulation:
        """The same program at another strictness, which is up to the machine that runs it: what
        was compiled is shared."""
        if self.code.named:
            return Simulation(self.code.mir, numbers=self._numbers, strict=strict)
        other = self.reading(ptx=strict == "ptx")
        other.leaned, other.watches, other.ended_early = set(), None, False
        return other

    def reading(self, **options: Any) -> Simulation:
        """The same program with other `Options`."""
        other = copy(self)
        other.followers = {}
        other.set_options(**options)
        other.garbage = Garbage(self.program, self.code.flow, other._results)
        return other

    def set_options(self, **options: Any) -> None:
        """From now on, runs have other `Options`."""
        self.options = replace(self.options, **options)

    def anew(self, strict: Strict) -> Simulation:
        """The same program as if it had just been compiled: nothing of earlier runs is known."""
        other = self.at(strict)
        other.accessed = None if self.accessed is None else Accessed(self.code.mir)
        return other

    def lanes_apart(self, warp: int, lanes: int) -> Simulation:
        """The same program; these lanes of a warp of each CTA are an agent of their own."""
        strict: Strict = "ptx" if self.options.ptx else "practice"
        mir, places = lanes_apart(self.code.mir, warp, lanes)
        apart = Simulation(mir, numbers=False, strict=strict)
        apart.code.places = places
        apart.set_options(deadline=self.options.deadline)
        return apart

    def name(self, stores: Iterable[int]) -> bool:
        """From now on, looks at what these stores leave; whether that can be said of any."""
        from tilesim.sim.observers.value_numbers import number_stores

        number_stores(self.code, stores)
        return bool(self.code.named)

    @property
    def groups(self) -> int:
        """How many groups of clusters are simulated one after another."""
        return 1 if self.together else self.program.ctas // self.program.cluster_size

    def group(self, index: int) -> tuple[tuple[int, ...], ...]:
        """The clusters of a group, which are simulated together, each as its CTAs in rank order."""
        program = self.program
        members = range(program.ctas // program.cluster_size) if self.together else (index,)
        return tuple(cluster_ctas(program, i) for i in members)

    @contextmanager
    def shortly(self, steps: int) -> Iterator[None]:
        """Ends runs at so many scheduling points meanwhile."""
        before = self.options.max_steps
        self.set_options(max_steps=min(steps, before))
        try:
            yield
        finally:
            self.set_options(max_steps=before)

    def require_time(self) -> None:
        """Raises `TimeIsUp` after that time: for what is done between runs."""
        deadline = self.options.deadline
        if deadline is not None and monotonic() >= deadline:
            raise TimeIsUp

    def apart(self) -> Simulation:
        """The same program with each cluster by itself, as if the others had not been started."""
        alone = copy(self)
        alone.together = False
        alone.followers = {}
        return alone

    def plans(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[int, Plan]:
        """What to look at to know which clusters take the same steps."""
        from tilesim.sim.affine.cluster_plan import plans  # what only several clusters need

        return plans(
            self.code, self.holds, numbers=self._numbers, written=self.written,
            given=inputs.keys() | {t.name for t in self.program.tensors if t.contents},
        )  # fmt: skip

    def follow(self, clusters: Integers, plan: Mapping[int, Plan]) -> Follower:
        """From now on, what runs the first of ``clusters`` follows the others."""
        from tilesim.sim.affine.cluster_classes import Follower

        far = (p.far.written for p in plan.values() if p.far is not None)
        follower = Follower(self.program, plan, clusters, self.named.union(*far))
        self.followers[int(clusters[0])] = follower
        return follower

    def run(
        self,
        inputs: Mapping[str, NDArray[Any]],
        chooser: Callable[[int], Chooser | None],
        clusters: list[int] | None = None,
        **options: Any,
    ) -> Run:
        """Runs the clusters (all by default) one after another on one global memory.

        ``chooser(cluster)`` picks the schedule; None is the timed policy. ``options``: `Options` of
        these runs.

        Raises:
            TakesLong: all together make more than their ``patience`` in instructions, it seems.
        """
        indices = range(self.groups) if clusters is None else clusters
        environments = []
        for index in indices:
            policy = chooser(index)
            env = TimedEnvironment() if policy is None else ChoiceEnvironment(policy)
            environments.append((index, env))
        return self.run_on(inputs, environments, **options)

    def run_on(
        self,
        inputs: Mapping[str, NDArray[Any]],
        environments: Sequence[tuple[int, simpy.Environment]],
        **options: Any,
    ) -> Run:
        """Runs clusters (see `groups`) one after another, each in an environment of the caller's.

        Raises:
            Interrupted: by Ctrl-C, or at the deadline.
            TakesLong: they make more than their ``patience`` in instructions together, it seems.
        """
        of_runs = replace(self.options, **options)
        followers = [self.followers[i] for i, _ in environments if i in self.followers]
        restore: list[Callable[[], None]] = []
        if followers:
            from tilesim.sim.affine.cluster_classes import checkpoint

            restore = [checkpoint(follower) for follower in followers]
        try:
            # in repetitions left out no read is compared with what an earlier one discarded
            skips = self.skips and not self.code.losing
            return self._run_on(inputs, environments, of_runs, skips=skips)
        except Unskippable:
            for forget in restore:
                forget()
        anew = [(index, TimedEnvironment()) for index, _ in environments]
        return self._run_on(inputs, anew, of_runs, skips=False)

    def _run_on(
        self,
        inputs: Mapping[str, NDArray[Any]],
        environments: Sequence[tuple[int, simpy.Environment]],
        options: Options,
        *,
        skips: bool,
    ) -> Run:
        patience = options.patience
        memory = GlobalMemory(
            self.program, inputs, self.written, self.holds, by_bytes=not self.code.global_by_name
        )
        findings: dict[Finding, None] = {}
        outcomes: list[Outcome] = []
        choices: dict[int, list[int]] = {}
        executed = skipped = by_parts = cycles = count = 0
        interrupted = False
        for number, (index, env) in enumerate(environments, 1):
            group = self.group(index)
            if patience is not None:
                # those to come take as long as those before, most likely
                share = min(patience, patience * number // len(environments) + patience // 8)
                options = replace(options, patience=share - executed)
            machine = Machine(self.program, self.code, group, memory, env, options, index)
            follower = self.followers.get(index)
            if follower is not None:
                follower.watch(machine)
            if self.watches is not None:
                self.watches(machine)
            if self.accessed is not None:
                self.accessed.watch(machine)
            # what repetitions leave is named by all of them
            if skips and not (self._numbers or self.code.named):
                from tilesim.sim.affine.loop_skipping import Skipper, can_skip

                if can_skip(machine):
                    (self.skipper or Skipper)(machine)
            try:
                run_machine(machine)
            except KeyboardInterrupt:
                interrupted = True
            self._note_open(machine)
            unfilled, judge = machine.outcome.unfilled, self.garbage
            if (
                unfilled
                and judge is not None
                and not judge.is_hidden(index, inputs, options.answers)
            ):
                machine.outcome.findings += unfilled
            findings.update(dict.fromkeys(machine.outcome.findings))
            outcomes.append(machine.outcome)
            self.leaned |= machine.outcome.leaned
            self.ended_early |= any(not w.exited for w in machine.warps)
            if isinstance(env, ChoiceEnvironment):
                choices[index] = env.choices
            executed += sum(w.executed for w in machine.warps)
            skipped += machine.skipped.instructions
            by_parts += machine.by_parts
            if patience is not None and executed > share:
                raise TakesLong
            cycles = max(cycles, int(env.now + machine.skipped.cycles))
            count += sum(map(len, group))
            machine.release()
            if interrupted:
                break
        outputs = {
            t.name: array_of(t, memory.memories[t.name])
            for t in self.program.tensors
            if self.holds(t.name)
        }
        stats = Stats(executed, count, cycles, skipped, by_parts)
        run = Run(tuple(findings), outputs, stats, tuple(outcomes), choices)
        if interrupted:
            raise Interrupted(run, [index for index, _ in environments[: len(outcomes)]])
        return run

    def _note_open(self, machine: Machine) -> None:
        """What another execution may have that this run does not show: other addresses of
        allocations, where they decide; other elected lanes, where it matters (E12); and what
        effects of a new kind leave."""
        code, note = self.code.mir.code, partial(machine.nondeterministic, explorable=False)
        for number, op in machine.outcome.allocated.items():
            if self.accessed is None or self.accessed.decides(number):
                note("the address that tcgen05.alloc returns", op)
        for number in depends_on_elected(self.code.graph) if self.options.ptx else ():
            note("what follows from which lane elect.sync chooses (E12)", code[number].loc)
        for number, kind in not_judged(self.code.mir).items():
            note(f"what the effect {kind} leaves", code[number].loc)

    def _results(
        self, fill: int, group: int, inputs: Mapping[str, NDArray[Any]], answers: Answers | None
    ) -> dict[str, bytes] | None:
        """What global memory holds in the end if shared memory starts with bytes ``fill``."""
        simulation = self.with_numbers()
        simulation.set_options(garbage=fill)
        simulation.garbage = None
        with np.errstate(all="ignore"):
            run = simulation.run_on(inputs, [(group, TimedEnvironment())], answers=answers)
        if run.findings or any(outcome.cut_off for outcome in run.outcomes):
            return None
        return {name: array.tobytes() for name, array in run.outputs.items()}


@public
def simulate(
    program: Program | Mir | Kernel,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    *,
    numbers: bool = True,
    strict: Strict = "practice",
    policy: Policy = "timed",
    seed: int = 0,
) -> Run:
    """Runs ``program`` once.

    Args:
        program: what to run; of a kernel that with the defaults of its parameters.
        inputs: initial content of global tensors by name (zeros where missing).
        numbers: compute tile data; off, only data that scalar loads can observe is moved.
        strict: ``"practice"`` or ``"ptx"`` (docs/semantics.md).
        policy: ``"timed"`` (latency model), ``"random"`` or ``"pct"`` with ``seed``.

    Raises:
        InvalidProgram: the program is rejected before it runs.
        UsageError: an argument is out of range, or an input does not fit its tensor.
    """
    program = built(program)
    checked = check_inputs(kernel_of(program), inputs or {})
    _require_level(strict)
    known = _compiled(program)
    if numbers not in known:
        known[numbers] = Simulation(program, numbers=numbers, strict=strict)
    return known[numbers].anew(strict).run(checked, chooser_for(policy, seed))


@cached
def _compiled(program: Program | Mir) -> dict[bool, Simulation]:
    """By ``numbers``, what `simulate` has compiled: many seeds of a program are run."""
    return {}


def _require_level(strict: str) -> None:
    if strict not in get_args(Strict):
        raise UsageError(f"strict must be 'ptx' or 'practice', not {strict!r}")


def kernel_of(program: Program | Mir) -> Program:
    """The launch and the declarations of a program."""
    return program.kernel if isinstance(program, Mir) else program


def chooser_for(policy: Policy, seed: int) -> Callable[[int], Chooser | None]:
    """Per cluster, the chooser of a named policy."""
    require_seed(seed)
    match policy:
        case "timed":
            return lambda cluster: None
        case "random":
            return lambda cluster: RandomChooser(seed * 1_000_003 + cluster)
        case "pct":
            return lambda cluster: PctChooser(seed * 1_000_003 + cluster)
        case _:
            raise UsageError(f"policy must be timed, random or pct, not {policy!r}")


def check_inputs(program: Program, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The inputs as arrays of the right dtype and shape; `UsageError` if one does not fit."""
    if not isinstance(inputs, Mapping):
        raise UsageError(f"inputs must be arrays by the names of their tensors, not {inputs!r}")
    tensors = {t.name: t for t in program.tensors}
    result: dict[str, NDArray[Any]] = {}
    for name, value in inputs.items():
        if name not in tensors:
            raise UsageError(f"{program.name} has no tensor {name!r}; it has {', '.join(tensors)}")
        array = np.asarray(value)
        if array.shape != tensors[name].shape:
            raise UsageError(f"input {name} has shape {array.shape}, not {tensors[name].shape}")
        try:
            result[name] = array.astype(numpy_dtype(tensors[name].dtype))
        except (TypeError, ValueError) as error:
            kind = tensors[name].dtype
            raise UsageError(f"input {name} of {array.dtype} is not an array of {kind}") from error
    return result


def _located(
    mir: Mir,
) -> tuple[Mir, tuple[str, ...], Mapping[int, int], Mapping[int, Expr], frozenset[int]]:
    """See `tilesim.analysis.pointer_table.Located`; most programs name no address."""
    if not names_addresses(mir):
        return mir, (), {}, {}, frozenset()
    from tilesim.analysis.pointer_table import located  # what only addresses need

    return located(mir)


def _written(mir: Mir) -> Iterator[str]:
    """The global tensors that a program writes: any, if it does so at addresses."""
    for name in _named_as_written(mir):
        if name in (".global", ".generic"):
            yield from (tensor.name for tensor in mir.kernel.tensors)
        yield name


def _named_as_written(mir: Mir) -> Iterator[str]:
    for effects in mir.effects:
        for effect in effects:
            if isinstance(effect, fx.Writes | fx.WritesMap):
                yield from written_by(effect)
