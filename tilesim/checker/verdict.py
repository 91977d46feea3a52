"""One check: what is run, in which order, and what the verdict is.

1. Whether the launch is possible: all CTAs of a cooperative launch are resident together, so they
   have to fit on the GPU. How many fit is known as far as shared memory and threads say it; how
   many registers ptxas gives a thread may not be, and how many multiprocessors there are is up to
   the GPU.
2. The first run, timed: of all clusters, or of those that stand for all (`first_run`). A finding
   is a failure, and its certificate says whether it stands for every schedule.
3. Residency, of launches that are not cooperative (`one_at_a_time`). Nothing more is promised than
   that a cluster that runs goes on (SEMANTICS 0.4a), so one must be able to end before any other
   has started. If each can, and one run proves the schedules in which all are resident, then each
   wait needs only what its own cluster does, and passes whatever is resident. Nothing has to be
   run where no loop reads what other clusters write. Where it is up to the
   schedule what a cluster waits for, no run with one resident at a time shows that; see
   `tilesim.sim.schedulers.exhaustive`.
4. Runs in which hardware chooses otherwise: the first lane for ``elect.sync``, where it may matter
   (SEMANTICS E12; the machine takes the last one at `ptx`); each number of clusters that launch
   control hands out; the orders in which numbers are drawn; and CTAs whose threads end where data
   may make them.
5. If nothing is left open the kernel is proved. Else schedules are tried that break what failed,
   then all that can differ, then random ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.elected_lane import depends_on_elected
from tilesim.analysis.taint import Dataflow
from tilesim.checker import coverage
from tilesim.checker.assumptions import (
    Leaning,
    aliases,
    earlier_grids,
    early_dependents,
    machine_code,
    program_order,
)
from tilesim.checker.coverage import begin, noted, surely_used, used
from tilesim.checker.options import MANY, NO_LIMITS, Search
from tilesim.checker.report import INTERRUPTED, Report, Stats, whole
from tilesim.checker.witness import Witness, repeat, shorten
from tilesim.findings.finding import Finding, Participant
from tilesim.ir.effects import Reads, Writes
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.program import Program, Strict, Verdict
from tilesim.limits import Timer
from tilesim.records import dataclass, replace
from tilesim.sim.machine.machine import TakesLong, needs
from tilesim.sim.machine.result import Violation
from tilesim.sim.machine.schedule import Chooser, ResidentEnvironment
from tilesim.sim.machine.simulate import Interrupted, Run, Simulation
from tilesim.sim.machine.unknown import UnknownSteers
from tilesim.sim.observers import certificate
from tilesim.sim.schedulers.frontier import MAX_SCHEDULES
from tilesim.wording import count

if TYPE_CHECKING:
    from tilesim.checker.grid import Survey, Surveyed
    from tilesim.checker.launch_control import Plan
    from tilesim.sim.schedulers.exhaustive import Exploration

#: instructions that all clusters together have at most if none of them is to stand for others,
#: and if none does where that leaves anything open; and warp instructions that they then make at
#: most, skipped ones included
_SHORT, _LONG, PATIENCE = 1_280, 16_384, 65_536


@dataclass(frozen=True)
class First:
    """The timed run, of which clusters; what `Surveyed` says of all."""

    run: Run
    clusters: list[int]
    extent: str
    left_open: tuple[str, ...] = ()


def first_run(
    simulation: Simulation, inputs: Mapping[str, NDArray[Any]], clusters: list[int],
    run: Callable[[list[int], int | None], Run], begun: Callable[[Survey | None], None],
) -> First:  # fmt: skip
    """The timed run of ``clusters``, which are all.

    If they have many instructions one of each class is run, as that is faster; all of them where
    this finds anything, or leaves anything open, and they are few enough.

    Args:
        run: runs some clusters, unless they take longer than one has patience for.
        begun: is given the survey that is made, and None when it is over.
    """
    short = all_are_run(simulation) or len(clusters) == 1
    if short:
        with suppress(TakesLong):
            return _all(simulation, clusters, run)
    from tilesim.checker.grid import Survey  # what only several clusters need

    survey = Survey(simulation, inputs, lambda some: run(some, None))
    begun(survey)
    found = survey.look()
    if not short and _have_at_most(simulation, _LONG) and not _proves_all(found):
        followers, simulation.followers = simulation.followers, {}
        with suppress(TakesLong):
            every = _all(simulation, clusters, run)
            begun(None)
            return every
        simulation.followers = followers
    return First(found.run, found.clusters, found.extent, found.left_open)


def all_are_run(simulation: Simulation) -> bool:
    """Whether no cluster has to stand for others, unless loops take long."""
    return _have_at_most(simulation, _SHORT)


def _have_at_most(simulation: Simulation, instructions: int) -> bool:
    clusters = simulation.groups
    return clusters <= MANY and clusters * len(simulation.code.mir.code) <= instructions


def _all(
    simulation: Simulation, clusters: list[int], run: Callable[[list[int], int | None], Run]
) -> First:
    patience = PATIENCE if len(clusters) > 1 else None
    return First(run(clusters, patience), clusters, coverage.whole(simulation))


def _proves_all(surveyed: Surveyed) -> bool:
    """Whether nothing is wrong with those that were run, and all are proved by them."""
    run = surveyed.run
    return not (run.findings or surveyed.left_open or certificate.open_reasons(run))


#: bytes of shared memory that each CTA takes besides its own, and in what units it is given out
_RESERVED, _UNIT = 1024, 128
#: registers that a thread has at most
_MOST_REGISTERS = 256
#: why exploring the schedules of all clusters together is not enough
ANY_ORDER = (
    "clusters wait for each other; which of them are resident together is up to the hardware, as "
    "the launch is not cooperative (0.4a)"
)


@dataclass(frozen=True)
class Residency:
    """``failing``: the run in which cluster ``first`` is resident first, if one fails; else why
    that is not known of all clusters."""

    runs: int
    failing: Run | None = None
    first: int = 0
    left_open: tuple[str, ...] = ()


def resident_ctas(program: Program) -> tuple[int, int]:
    """How many CTAs a GPU of the target holds at once: at least, with as many registers as a thread
    may have on the smallest one; and at most."""
    target = program.target
    threads = 32 * program.warps
    used = max(program.smem_used, program.smem_bytes or 0)
    # an SM has 1 KiB more than a CTA may have, and each CTA takes 1 KiB for itself
    shared = (target.smem + _RESERVED) // (-(-used // _UNIT) * _UNIT + _RESERVED)
    most = min(target.ctas, target.threads // threads, shared)
    # ptxas decides what is not declared; a launch description that says none has all of them
    share = min(_MOST_REGISTERS, target.registers // threads // 8 * 8)
    registers = -(-(program.registers or share) // 8) * 8
    least = max(1, min(most, target.registers // (registers * threads)))
    most = least if registers < share else most
    few, many = target.multiprocessors
    return least * few, most * many


def too_many(simulation: Simulation) -> Finding | None:
    """The finding if no GPU of the target holds the CTAs of a cooperative launch, which may wait
    for each other."""
    program, mir = simulation.program, simulation.code.mir
    _, most = resident_ctas(program)
    if not (program.cooperative and simulation.together) or program.ctas <= most:
        return None
    many = program.target.multiprocessors[1]
    at = next((program.set_at[f] for f in ("grid", "cooperative") if f in program.set_at), None)
    polls = [i for i in mir.code if isinstance(i.what, Branch) and i.what.polls]
    launch = Participant(
        program.name, 0, None, f"launches {program.ctas} CTAs, all to be resident at once",
        at or begin(mir),
    )  # fmt: skip
    waits = [
        Participant(i.role or program.name, 0, None, "may wait for other CTAs", i.loc)
        for i in polls
    ]
    return Finding(
        "deadlock",
        f"a cooperative launch of {program.ctas} CTAs that may wait for each other: no GPU of "
        f"{program.target} holds more than {most} at once, so the driver refuses the launch",
        (launch, *waits[:1]),
        (
            f"{most // many} per multiprocessor, of which there are at most {many}: "
            f"{max(program.smem_used, program.smem_bytes or 0)} bytes of shared memory and "
            f"{32 * program.warps} threads per CTA (0.4a)",
        ),
        fix=f"launch at most {most} CTAs, each of which does more, or use less shared memory",
    )


def device_size(simulation: Simulation) -> Leaning | None:
    """What a proof of a cooperative launch takes for granted of the GPU, if it is anything."""
    program = simulation.program
    least, _ = resident_ctas(program)
    if not (program.cooperative and simulation.together) or program.ctas <= least:
        return None
    text = f"if the GPU holds all {program.ctas} CTAs of the cooperative launch at once"
    return Leaning("device-size", text, (begin(simulation.code.mir),), "assumption")


def may_wait_for_unstarted(simulation: Simulation) -> bool:
    """Whether clusters may wait for others that have not been started."""
    return simulation.together and not simulation.program.cooperative


def reads_again(graph: FlowGraph) -> bool:
    """Whether a thread may read a word of global memory that others change again and again, in a
    loop of any kind: if not, a cluster waits for no other. What it has read once may decide what it
    does; that depends on the order of accesses, of which the certificate speaks."""
    return any(
        isinstance(e, Reads | Writes)
        and e.sem != "weak"
        and e.view.space != "shared"
        and number in graph.after(number)
        for number, effects in enumerate(graph.mir.effects)
        for e in effects
    )


def one_at_a_time(simulation: Simulation, inputs: Mapping[str, NDArray[Any]]) -> Residency:
    """Runs each cluster as if the others had not been started, then all one after another."""
    from tilesim.checker.grid import Survey

    apart = simulation.apart()
    alone = Survey(apart, inputs, lambda some: apart.run(inputs, lambda cluster: None, some))
    surveyed = alone.look(apart=True)
    first = surveyed.clusters[0] if surveyed.run.findings else 0
    run = simulation.run_on(inputs, [(0, ResidentEnvironment(first))])
    if run.findings:
        findings = tuple(map(_not_resident, run.findings))
        return Residency(len(surveyed.clusters) + 1, replace(run, findings=findings), first)
    left_open = surveyed.left_open
    if surveyed.run.findings:
        left_open = (f"cluster {first} fails by itself: {surveyed.run.findings[0].message}",)
    return Residency(len(surveyed.clusters) + 1, left_open=left_open)


def _not_resident(finding: Finding) -> Finding:
    if finding.rule != "deadlock":
        return finding
    note = "only one cluster is resident here: without a cooperative launch, CTAs of other"
    return replace(
        finding,
        notes=(*finding.notes, f"{note} clusters need not run before these exit (0.4a)"),
        fix="launch cooperatively (k.launch(cooperative=True)) if all CTAs fit on the device, or "
        "do not wait for other clusters",
    )


#: how often clusters that turn out to differ are looked at
_LOOKS = 8


class Checking:
    """One check: the compiled program, its inputs, and what has been tried so far."""

    def __init__(
        self, program: Program | Mir | Simulation, strict: Strict, inputs: Mapping[str, Any],
        search: Search, progress: Callable[[int], None] | None, timer: Timer, *,
        explains: bool = True,
    ) -> None:  # fmt: skip
        """``explains``: whether the causes of findings are looked for, which costs another run."""
        self.strict: Strict = strict
        self.inputs = inputs
        self.search = search
        self.progress = progress
        self.timer = timer
        self.explains = explains
        if not isinstance(program, Simulation):
            program = Simulation(program, numbers=False, strict=strict)
        self.simulation = program
        self.simulation.skips = search.skip
        self.program = self.simulation.program
        self.flow = self.simulation.code.flow
        self.steering = self._assumed(self.flow.steering_inputs)
        self.clusters = list(range(self.simulation.groups))
        self.extent = coverage.whole(self.simulation)
        #: the timed run, once it is complete
        self.first: Run | None = None
        self.survey: Survey | None = None
        #: why nothing can be said of the whole grid
        self.left_open: tuple[str, ...] = ()
        self.tried = 0
        self._open_answers: tuple[str, ...] = ()
        self._covered_choices: dict[str, Leaning | None] = {}

    def check(self) -> Report:
        """The report, also if the check is interrupted or the time is up."""
        try:
            return self._check()
        except KeyboardInterrupt as stop:
            return self._stopped(stop)

    def _check(self) -> Report:
        """The timed run, and what its certificate leaves open."""
        refused = too_many(self.simulation)
        if refused is not None:
            nothing = coverage.partial((), None, self.program.cluster_size)
            return self._report("failed", nothing, f"every schedule of {self.extent}", (refused,))
        budget = self.search.limits.budget
        self.simulation.set_options(deadline=self.timer.first_until(budget))
        tried, first = self.tried, self._first()
        if first.findings and self.simulation.name(self._unnamed(first)):
            self.tried = tried  # the same schedules, of all clusters
            self.clusters, self.simulation.followers = list(range(self.simulation.groups)), {}
            first = self._first()
        self.timer.first_ended()
        self.simulation.set_options(deadline=self.timer.until)
        self.first = first
        if first.findings:
            return self._failed(certificate.annotate(first), first)
        if may_wait_for_unstarted(self.simulation) and reads_again(self.simulation.code.graph):
            resident = one_at_a_time(self.simulation, self.inputs)
            self.tried += 1
            if resident.failing is not None:
                return self._failed(
                    resident.failing, first, policy="resident", first=resident.first
                )
            self.left_open += resident.left_open
        failed = self._try_first_lane(first) or self._try_answers(first) or self._try_orders(first)
        if failed is None and self.survey is not None and not self.survey.settled:
            failed, first = self._look_again(self.survey), self.first
        if failed is not None:
            return failed
        self._open_answers += tuple(self._leaving_reasons(first))
        violations = certificate.standing_violations(first.outcomes)
        why = certificate.reasons(first.outcomes, violations)
        if not why:
            self._narrow(first)
        why += self._unknown_inputs() + self._open_answers
        if why:
            return self._try_others(first, violations, why + self.left_open)
        covers = f"every schedule of {self.extent}"
        decided: Verdict = "bounded" if self.left_open else "proved"
        return self._report(decided, first, covers, reasons=self.left_open)

    def _stopped(self, stop: KeyboardInterrupt) -> Report:
        """What is known when the timed run, or what follows at once, is interrupted."""
        why = self.timer.reason() or str(stop) or INTERRUPTED
        if isinstance(stop, Interrupted) and stop.run.findings and not self._unnamed(stop.run):
            self.clusters = stop.clusters
            report = self._failed(stop.run, stop.run)
            return replace(report, reasons=(why, *report.reasons))
        if self.first is not None:
            covers = f"the timed schedule of {self.extent}; not a proof"
            return self._report("bounded", self.first, covers, reasons=(why,))
        runs = [] if self.survey is None else self.survey.runs
        last = stop.run if isinstance(stop, Interrupted) else None
        partial = coverage.partial(runs, last, self.program.cluster_size)
        return self._report(
            "bounded", partial, coverage.so_far(partial, self.extent), reasons=(why,)
        )

    def _unnamed(self, run: Run) -> set[int]:
        """Stores that race if they do not leave the same, which was not looked at."""
        found = {n for outcome in run.outcomes for n in outcome.unnamed}
        return set() if self.simulation.code.named else found

    def _first(self) -> Run:
        """The timed run of all clusters, or of those that stand for all."""
        first = first_run(
            self.simulation, self.inputs, self.clusters,
            lambda some, patience: self._run(lambda cluster: None, some, patience), self._survey,
        )  # fmt: skip
        self.clusters, self.extent, self.left_open = first.clusters, first.extent, first.left_open
        self.tried = 1
        return first.run

    def _survey(self, survey: Survey | None) -> None:
        self.survey = survey

    def _look_again(self, survey: Survey) -> Report | None:
        """The report if clusters fail that differ from those that were run, but not in the timed
        schedule. Those that do not fail are run in all further schedules."""
        for _ in range(_LOOKS):
            surveyed = survey.look_again()
            self.clusters, self.extent = surveyed.clusters, surveyed.extent
            self.left_open += surveyed.left_open
            self.first = surveyed.run
            if self.first.findings:
                return self._failed(certificate.annotate(self.first), self.first)
            failed = self._try_answers(self.first) or self._try_orders(self.first)
            if failed is not None or survey.settled:
                return failed
        self.left_open += survey.again()
        return None

    def _try_others(self, first: Run, violations: list[Violation], why: tuple[str, ...]) -> Report:
        """Directed schedules, then all that can differ, then random ones."""
        from tilesim.sim.schedulers.lane_lag import lagging
        from tilesim.sim.schedulers.sampling import longest

        left, bound = self.search.start, ""
        try:
            with self.simulation.shortly(longest(first)):
                run = self._directed(violations)
            if run is not None:
                return self._failed(run, first, violations)
            found, complete = self._explore(first)
            if found.failure is not None:
                return self._failed(found.failure, first, violations)
            news = () if self.survey is None else self.survey.again()
            if may_wait_for_unstarted(self.simulation) and not found.explored.exact:
                news += (ANY_ORDER,)
            complete = complete and not news
            why += news
            if complete:
                covers = f"every schedule of {self.extent}, by exploring {self.tried}"
                return self._report("exhausted", first, covers, reasons=why)
            left, bound = found.frontier, coverage.bounded_by(found, self.search.limits)
            why += coverage.why_stopped(found, self.search.limits)
            if found.interrupted:
                raise KeyboardInterrupt
            apart = None
            if found.unspanned or not all(one.explorable for one in first.outcomes):
                apart = lagging(
                    self.simulation,
                    first,
                    violations,
                    self.clusters,
                    self.inputs,
                    self.search.limits,
                )
            if apart is not None:
                return self._failed(
                    apart.run, first, violations, apart.simulation, str(apart),
                    apart=(apart.warp, apart.lanes),
                )  # fmt: skip
            with self.simulation.shortly(longest(first)):
                failing = self._sample(first, violations)
            if failing is not None:
                return self._failed(failing, first, violations)
        except KeyboardInterrupt:
            why = (self.timer.reason() or INTERRUPTED, *why)
        tried = count(self.tried, "schedule")
        covers = f"{tried} of {self.extent}{bound}, none failed; not a proof"
        report = self._report("bounded", first, covers, reasons=why)
        return replace(report, frontier=None if left is None else left.to_dict())

    def _try_first_lane(self, first: Run) -> Report | None:
        """The report if a run fails in which elect.sync chooses another lane; none is made where it
        would not differ."""
        if not (self.simulation.options.ptx and depends_on_elected(self.simulation.code.graph)):
            return None
        other = self.simulation.reading(first_lane=True)
        run, how = certificate.annotate(self._timed(other)), "elect.sync chooses the first lane"
        return self._failed(run, first, (), other, how, first_lane=True) if run.findings else None

    def _leaving_reasons(self, first: Run) -> Iterator[str]:
        """Why nothing is proved of executions in which CTAs end where in the ``first`` run they
        stay. What goes wrong there may do so for no data, so it is no finding."""
        leaves = {t: where for outcome in first.outcomes for t, where in outcome.leaves.items()}
        for iteration, (number, value) in leaves.items():
            loc = self.simulation.code.mir.code[number].loc
            other = self._timed(self.simulation.reading(leaves=iteration))
            for finding in other.findings[:1]:
                yield needs(UnknownSteers(value, finding), "control flow", loc)
            yield from certificate.open_reasons(other)
            if any(outcome.draws or outcome.asked for outcome in other.outcomes):
                yield needs(UnknownSteers(value), "control flow", loc)

    def _try_answers(self, first: Run) -> Report | None:
        """The report if some number of clusters that launch control cancels makes a run fail."""
        if not any(outcome.asked for outcome in first.outcomes):
            return None
        from tilesim.checker.launch_control import LaunchPlans

        plans = LaunchPlans(self.simulation, self.clusters, first)
        failed, left_open = self._try_plans(first, plans.runs(self.inputs))
        if failed is None:
            self._open_answers += left_open + plans.reasons()
            self._covered_choices[plans.covers] = plans.assumption
        return failed

    def _try_plans(
        self, first: Run, plans: Iterable[tuple[Plan, Run]]
    ) -> tuple[Report | None, tuple[str, ...]]:
        """The report if one of these runs fails; else why they do not stand for all schedules."""
        left_open: tuple[str, ...] = ()
        for plan, run in plans:
            self.tried += 1
            if run.findings:
                order = None if plan.order is None else plan.order.warps
                return self._failed(
                    certificate.annotate(run), first, how=str(plan), clusters=plan.clusters,
                    answers=plan.answers, order=order,
                ), ()  # fmt: skip
            left_open += certificate.open_reasons(run)
        return None, left_open

    def _try_orders(self, first: Run) -> Report | None:
        """The report if some order of draws from counters makes a run fail.

        Where the orders do not all come out right, it is left to exploration.
        """
        # what a cluster waits for may be up to the order, and what is resident is as well (0.4a)
        waits = may_wait_for_unstarted(self.simulation) and self.simulation.code.polls_memory
        for cluster, outcome in zip(self.clusters, first.outcomes, strict=True):
            if not outcome.draws:
                continue
            from tilesim.checker.ticket_orders import OrderPlans

            executed = first.stats.instructions
            plans = OrderPlans(self.simulation, cluster, outcome, executed, self.inputs)
            failed, left_open = self._try_plans(first, plans.runs())
            if failed is not None:
                return failed
            self._covered_choices[plans.covers] = plans.assumption
            if left_open or not plans.covers or outcome.asked or waits:
                plans.leave_open()
        return None

    def _explore(self, first: Run) -> tuple[Exploration, bool]:
        """Explores the clusters whose timed run leaves something open; whether that was all."""
        from tilesim.sim.schedulers.exhaustive import explore

        unsure = [
            (cluster, outcome)
            for cluster, outcome in zip(self.clusters, first.outcomes, strict=True)
            if certificate.standing_violations([outcome])
            or outcome.nondeterminism
            or outcome.cut_off
        ]
        clusters = [c for c, outcome in unsure if outcome.explorable and not outcome.cut_off]
        result = explore(
            self.simulation, clusters, self.inputs, self.search.limits,
            frontier=self.search.start, progress=self._advance(self.tried),
        )  # fmt: skip
        self.tried += result.explored.schedules
        # exploration neither varies inputs nor what launch control grants
        others = self._unknown_inputs() + self._open_answers + self.left_open
        return result, result.complete and len(clusters) == len(unsure) and not others

    def _directed(self, violations: list[Violation]) -> Run | None:
        """The first failing one of the schedules that are to make failed conditions show."""
        from tilesim.sim.schedulers.sampling import directed

        for chooser in directed(violations, self.search.schedules, self.search.seed):
            run = self._run(chooser, self.clusters)
            if run.findings:
                return run
        return None

    def _sample(self, first: Run, violations: list[Violation]) -> Run | None:
        """The first failing one of some random schedules."""
        from tilesim.sim.schedulers.sampling import first_failing, sampled, worthwhile

        seed, jobs = self.search.seed, self.search.jobs
        schedules = worthwhile(self.search.schedules, first, violations)
        before, result = self.tried, None
        if jobs > 1 and schedules:
            from tilesim.parallel import NotData

            with suppress(NotData):
                result = first_failing(
                    self.simulation, self.inputs, self.clusters,
                    schedules=schedules, seed=seed, jobs=jobs, progress=self._advance(before),
                )  # fmt: skip
        if result is None:
            for attempt in range(schedules):
                run = self._run(sampled(attempt, seed), self.clusters)
                if run.findings:
                    return run
            return None
        if result.failing is not None:
            self.tried = before + result.failing
            return self._run(sampled(result.failing, seed), self.clusters)
        self.tried = before + result.done
        if result.interrupted or result.late:
            raise KeyboardInterrupt
        return None

    def _timed(self, simulation: Simulation) -> Run:
        """The timed run of a variant of the program."""
        self.tried += 1
        return simulation.run(self.inputs, lambda cluster: None, self.clusters)

    def _advance(self, before: int) -> Callable[[int], None]:
        progress = self.progress
        return lambda done: None if progress is None else progress(before + done)

    def _narrow(self, first: Run) -> None:
        """What is read where allocations overlap is what the run has read there: in every schedule,
        as accesses have one order (where no other runs stand for some schedules)."""
        crossed = {pair for outcome in first.outcomes for pair in outcome.crossed}
        if self.simulation.code.overlaid and not self._covered_choices:
            self.flow = Dataflow(self.simulation.code.graph, crossed)
            self.steering = self._assumed(self.flow.steering_inputs)

    def _assumed(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are given or zero; what others hold is not known, and the run says what of
        that it needs."""
        contents = {t.name: t.contents for t in self.program.tensors}
        return tuple(n for n in names if contents[n] is None or n in self.inputs)

    def _zero(self, names: tuple[str, ...]) -> list[str]:
        return [n for n in self._assumed(names) if n not in self.inputs]

    def _unknown_inputs(self) -> tuple[str, ...]:
        """Inputs that steer the kernel and were not given: zeros prove nothing about others; and
        where addresses decide that differ from launch to launch."""
        unknown = tuple(name for name in self.steering if name not in self.inputs)
        outcomes = () if self.first is None else self.first.outcomes
        asked = dict.fromkeys(why for outcome in outcomes for why in outcome.decided_by_bases)
        return coverage.assumed_zero(unknown) + self._decided_by_bases() + (*asked,)

    def _decided_by_bases(self) -> tuple[str, ...]:
        """What addresses may decide; where memory is all that they may reach a decision by, parts
        of it are distinguished by what runs so far have accessed."""
        code, accessed = self.simulation.code, self.simulation.accessed
        found = code.decided_by_bases
        seen = None if accessed is None else accessed.decided_by_bases(code.lanes_asked, code.stays)
        return found if not found or seen is None else seen

    def _run(
        self, chooser: Callable[[int], Chooser | None], clusters: list[int],
        patience: int | None = None,
    ) -> Run:  # fmt: skip
        self.tried += 1
        self._advance(self.tried)(0)
        return self.simulation.run(self.inputs, chooser, clusters, patience=patience)

    def _failed(
        self, run: Run, first: Run, /, violations: Sequence[Violation] = (),
        simulation: Simulation | None = None, how: str = "", **fields: Any,
    ) -> Report:  # fmt: skip
        """The report of a failing ``run`` of a ``simulation``, another than the program's own if
        hardware chooses otherwise than in the ``first`` run: ``how`` says it, and ``fields`` of the
        witness repeat it."""
        from tilesim.ir.text.mir import fingerprint  # what only a failure needs

        chosen = {
            "policy": "replay" if run.choices else "timed",
            "clusters": tuple(sorted(run.choices) or self.clusters),
            "choices": {c: tuple(picks) for c, picks in run.choices.items()},
            "program": fingerprint(self.simulation.code.mir),
        }
        witness = Witness(self.program.name, self.strict, **(chosen | fields))
        simulation = simulation or self.simulation
        if self.explains:
            shorter = partial(shorten, simulation, witness, run, self.inputs)
            witness, run = self.timer.given(shorter, (witness, run))
        causes = certificate.causes(violations, first.outcomes, run.findings)
        which = coverage.schedule_of(witness.policy, self.tried, witness.first)
        which += f" in which {how}" if how else ""
        findings = run.findings
        if self.explains:
            from tilesim.mistakes.diagnose import explained  # what only a failure needs

            again = partial(repeat, simulation, witness, self.inputs)
            diagnosed = partial(explained, findings, again, run.stats.instructions)
            findings = self.timer.given(diagnosed, findings)
        findings += causes
        covers, why = f"{which} of {self.extent}", (INTERRUPTED,) * self.timer.interrupted
        return self._report("failed", run, covers, findings, why, witness=witness.to_dict())

    def _report(
        self, verdict: Verdict, run: Run, covers: str, findings: tuple[Finding, ...] = (),
        reasons: tuple[str, ...] = (), witness: dict[str, Any] | None = None,
    ) -> Report:  # fmt: skip
        if all(f.rule == "unsupported" for f in findings) and findings:
            verdict = "unsupported"
        covers += f"{coverage.scalars(self.program)}; strictness {self.strict}"
        certain = verdict in ("proved", "exhausted")
        taken = tuple(coverage.assumptions(
            run, self.simulation.code.mir, self.simulation.leaned, steering=self.steering,
            certain=certain, zero=self._zero(self.flow.steering_state) if certain else (),
            addressing=self._zero(self.flow.addressing),
        ))  # fmt: skip
        leanings: tuple[Leaning, ...] = ()
        if certain:
            begin = coverage.begin(self.simulation.code.mir)
            order = program_order(begin)
            covers += f"; assumes that {order.text}"
            code = self.simulation.code
            around = (
                device_size(self.simulation), earlier_grids(code.graph),
                early_dependents(code.graph), aliases(code.mir),
            )  # fmt: skip
            taken += tuple(one for one in around if one is not None)
            leanings = (order, machine_code(begin), *filter(None, self._covered_choices.values()))
            leanings += (*taken, *self._practice(verdict))
        if verdict == "proved":
            covers += "".join(f"; {text}" for text in self._covered_choices if text)
        covers += "".join(f"; {one.text}" for one in taken)
        stats = Stats(run.stats.instructions, self.tried, run.stats.ctas)
        report = Report(self.program.name, verdict, covers, findings, reasons, witness, stats)
        return replace(report, leanings=leanings)

    def _practice(self, verdict: Verdict) -> tuple[Leaning, ...]:
        """The switches of `practice` that a proof leans on, in the order of their names."""
        may, own = noted(self.simulation), self.search.limits
        if self.strict == "ptx" or not self.explains or not (may or self.search.start):
            return ()
        surely = surely_used(self.simulation.code.mir, may)
        if verdict == "proved" and surely is not None:
            return surely
        limits = replace(own, schedules=MAX_SCHEDULES) if verdict != "proved" else NO_LIMITS
        search = replace(self.search, schedules=0, limits=limits, start=None)
        strict = Checking(
            self.simulation.at("ptx"), "ptx", self.inputs, search, None, self.timer, explains=False
        )
        said = whole(strict.check())
        return used(strict.simulation.code.mir, may, said, undecided=strict.simulation.ended_early)
