"""`check`: one simulated run with a certificate, further schedules where it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from numpy.typing import NDArray

from tilesim.errors import UsageError
from tilesim.ir.dataflow import steering_inputs, steering_state
from tilesim.ir.expr import Expr, Special, walk
from tilesim.ir.program import For, If, Program, Verdict, While, instructions
from tilesim.ir.program import walk as walk_statements
from tilesim.sim import certificate
from tilesim.sim.explore import explore
from tilesim.sim.findings import Finding
from tilesim.sim.machine.mbarrier import Doubt
from tilesim.sim.schedule import (
    Chooser,
    CutChooser,
    PctChooser,
    RandomChooser,
    ResidentEnvironment,
)
from tilesim.sim.simulate import Run, Simulation, Strict, check_inputs
from tilesim.witness import GRANTS, Policy, Witness, replay, shorten

__all__ = ["DEFAULT_BUDGET", "MAX_SCHEDULES", "Report", "Stats", "check", "replay"]

#: schedules tried for each failed condition, and conditions tried
_PER_DOUBT = 8
_DOUBTS = 6
#: clusters of a grid that are simulated at most
_MAX_CLUSTERS = 64
MAX_SCHEDULES = 1_000_000
#: warp instructions the systematic exploration may execute by default: about a second
DEFAULT_BUDGET = 50_000


@dataclass(frozen=True)
class Stats:
    """What a check cost: warp instructions executed, schedules run, CTAs simulated in the first."""

    instructions: int = 0
    schedules: int = 0
    ctas: int = 0


@dataclass(frozen=True)
class Report:
    """The result of `check`.

    ``covers`` says what the verdict extends to (schedules, CTAs, strictness, assumptions);
    ``reasons`` why it is not stronger; ``witness`` replays the failing schedule (see `replay`).
    """

    kernel: str
    verdict: Verdict
    covers: str
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    witness: dict[str, Any] | None = None
    stats: Stats = field(default_factory=Stats)

    @property
    def rules(self) -> frozenset[str]:
        """The rules of the findings."""
        return frozenset(f.rule for f in self.findings)


def check(
    program: Program,
    *,
    strict: Strict = "practice",
    schedules: int = 64,
    budget: int = DEFAULT_BUDGET,
    seed: int = 0,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Checks ``program`` for deadlocks, races and misuse, for every schedule where it can.

    Runs the timed schedule once. If it shows a defect the verdict is ``failed``; if the
    certificate holds, ``proved``. Otherwise schedules directed at the failed conditions are tried,
    then all of them that can differ (``exhausted`` if that succeeds within ``budget``), then
    ``schedules`` random ones: ``failed`` with a witness, or ``bounded``.

    Args:
        strict: ``"ptx"`` (the text as written) or ``"practice"`` (SEMANTICS 0.3).
        schedules: directed and random schedules to try.
        budget: warp instructions to execute at most in the systematic exploration.
        inputs: global tensors that control flow depends on (zeros where missing).
        progress: called with the number of schedules done.

    Raises:
        InvalidProgram: the program is rejected before it runs.
        UsageError: an argument is out of range.
    """
    if not 0 <= schedules <= MAX_SCHEDULES:
        raise UsageError(f"schedules must be in 0..{MAX_SCHEDULES}, not {schedules}")
    if budget < 0:
        raise UsageError(f"budget must not be negative, not {budget}")
    checker = _Checker(program, strict, check_inputs(program, inputs or {}), progress)
    return checker.check(schedules, budget, seed)


class _Checker:
    """One check: the compiled program, its inputs, and what has been tried so far."""

    def __init__(
        self,
        program: Program,
        strict: Strict,
        inputs: Mapping[str, NDArray[Any]],
        progress: Callable[[int], None] | None,
    ) -> None:
        self.program = program
        self.strict: Strict = strict
        self.inputs = inputs
        self.progress = progress
        self.simulation = Simulation(program, numbers=False, strict=strict)
        self.steering = steering_inputs(program)
        self.clusters, self.extent = _choose_clusters(self.simulation)
        self.tried = 0
        self._ungranted: tuple[str, ...] = ()

    def check(self, schedules: int, budget: int, seed: int) -> Report:
        """The timed run, and what its certificate leaves open."""
        first = self._run(lambda cluster: None, self.clusters)
        if first.findings:
            return self._failed(certificate.annotate(first), first, [])
        alone = self._resident()
        if alone is not None:
            return self._failed(alone, first, [], "resident")
        doubts = certificate.standing_doubts(first.outcomes)
        why = certificate.reasons(first.outcomes, doubts) + self._untold()
        variant = self._fewer_grants(first)
        if variant is not None:
            return self._failed(variant[1], first, [], variant[0])
        why += self._ungranted
        if not why:
            return self._report("proved", first, f"every schedule of {self.extent}")
        try:
            for chooser in self._directed(doubts, schedules, seed):
                run = self._run(chooser, self.clusters)
                if run.findings:
                    return self._failed(run, first, doubts)
            failure, complete = self._explore(first, budget)
            if failure is not None:
                return self._failed(failure, first, doubts)
            if complete and not self._untold():
                covers = f"every schedule of {self.extent}, by exploring {self.tried}"
                return self._report("exhausted", first, covers, reasons=why)
            for chooser in self._random(schedules, seed):
                run = self._run(chooser, self.clusters)
                if run.findings:
                    return self._failed(run, first, doubts)
        except KeyboardInterrupt:
            why = ("interrupted by the user", *why)
        covers = f"{self.tried} schedules of {self.extent}, none failed; not a proof"
        return self._report("bounded", first, covers, reasons=why)

    def _fewer_grants(self, first: Run) -> tuple[Policy, Run] | None:
        """A run in which clusterlaunchcontrol cancels fewer clusters, if one fails.

        How many it cancels is up to the hardware (D18): none, one and a fair share are tried.
        """
        if not any(outcome.assumptions for outcome in first.outcomes):
            return None
        for policy, grants in GRANTS.items():
            self.tried += 1
            run = self.simulation.run(self.inputs, lambda cluster: None, self.clusters, grants)
            if run.findings:
                return policy, certificate.annotate(run)
            doubts = certificate.standing_doubts(run.outcomes)
            self._ungranted += certificate.reasons(run.outcomes, doubts)
        return None

    def _explore(self, first: Run, budget: int) -> tuple[Run | None, bool]:
        """Explores the clusters whose timed run leaves something open."""
        complete = True
        before = self.tried
        for cluster, outcome in zip(self.clusters, first.outcomes, strict=True):
            if (
                not certificate.standing_doubts([outcome])
                and not outcome.nondeterminism
                and not outcome.step_limit
            ):
                continue
            if not outcome.explorable or outcome.step_limit:
                complete = False
                continue
            result = explore(
                self.simulation, cluster, self.inputs,
                budget=budget, max_schedules=MAX_SCHEDULES, progress=self._advance(before),
            )  # fmt: skip
            budget -= result.instructions
            before += result.schedules
            self.tried = before
            if result.failure is not None:
                return result.failure, False
            complete = complete and result.complete
        return None, complete

    def _advance(self, before: int) -> Callable[[int], None] | None:
        progress = self.progress
        return None if progress is None else lambda done: progress(before + done)

    def _resident(self) -> Run | None:
        """The run with one cluster at a time, if it fails: nothing more is promised (0.4a)."""
        several = len(self.simulation.groups()[0]) > 1
        if not several or self.program.cooperative:
            return None
        self.tried += 1
        run = self.simulation.run_in(ResidentEnvironment(), 0, self.inputs)
        if not run.findings:
            return None
        return replace(run, findings=tuple(map(_not_resident, run.findings)))

    def _untold(self) -> tuple[str, ...]:
        """Inputs that steer the kernel and were not given: zeros prove nothing about others."""
        return tuple(
            f"control flow depends on the contents of {name}, which were not given (zeros assumed)"
            for name in self.steering
            if name not in self.inputs
        )

    def _run(self, chooser: Callable[[int], Chooser | None], clusters: list[int]) -> Run:
        self.tried += 1
        if self.progress is not None:
            self.progress(self.tried)
        return self.simulation.run(self.inputs, chooser, clusters)

    def _directed(
        self, doubts: list[Doubt], schedules: int, seed: int
    ) -> Iterator[Callable[[int], Chooser]]:
        """Schedules built to make the failed conditions show."""
        plans = ((a, d) for a in range(_PER_DOUBT) for d in doubts[:_DOUBTS])
        for attempt, doubt in islice(plans, schedules):
            yield _directed(doubt, attempt, seed)

    def _random(self, schedules: int, seed: int) -> Iterator[Callable[[int], Chooser]]:
        """Random and PCT schedules in alternation."""
        for attempt in range(schedules):
            yield partial(_sampled, attempt, seed)

    def _failed(
        self, run: Run, first: Run, doubts: list[Doubt], policy: Policy | None = None
    ) -> Report:
        witness = Witness(
            self.program.name, self.strict, policy or ("replay" if run.choices else "timed"),
            tuple(sorted(run.choices) or self.clusters),
            {c: tuple(picks) for c, picks in run.choices.items()},
        )  # fmt: skip
        witness, run = shorten(self.simulation, witness, run, self.inputs)
        causes = tuple(certificate.explain(d, first.outcomes[0]) for d in doubts)
        known = {(f.rule, f.locations) for f in run.findings}
        causes = tuple(f for f in causes if (f.rule, f.locations) not in known)
        which = {
            "timed": "the timed schedule",
            "replay": f"schedule {self.tried}",
            "resident": "the schedule with one cluster resident at a time",
            "refused": "the schedule in which no clusterlaunchcontrol request succeeds",
            "granted-1": "the schedule in which one clusterlaunchcontrol request succeeds",
        }[witness.policy]
        findings = run.findings + causes
        covers = f"{which} of {self.extent}"
        return self._report("failed", run, covers, findings, witness=witness.to_dict())

    def _report(
        self,
        verdict: Verdict,
        run: Run,
        covers: str,
        findings: tuple[Finding, ...] = (),
        reasons: tuple[str, ...] = (),
        witness: dict[str, Any] | None = None,
    ) -> Report:
        if all(f.rule == "unsupported" for f in findings) and findings:
            verdict = "unsupported"
        covers += f"; strictness {self.strict}"
        if verdict in ("proved", "exhausted"):
            covers += (
                "; assumes that synchronising instructions of a warp act in program order and "
                "that the lanes of a warp meet again after a branch"
            )
        for assumption in dict.fromkeys(a for o in run.outcomes for a in o.assumptions):
            covers += f"; {assumption}, or one or none of it"
        state = tuple(n for n in steering_state(self.program) if n not in self.inputs)
        if state and verdict in ("proved", "exhausted"):
            covers += f"; with {', '.join(state)} zero at the start"
        if self.steering:
            covers += f"; for these contents of {', '.join(self.steering)}"
        if self.program.cluster_size > self.program.target.portable_cluster:
            covers += f"; clusters of {self.program.cluster_size} CTAs are not portable (D15)"
        stats = Stats(run.stats.instructions, self.tried, run.stats.ctas)
        return Report(self.program.name, verdict, covers, findings, reasons, witness, stats)


def _sampled(attempt: int, seed: int, cluster: int) -> Chooser:
    kind = PctChooser if attempt % 2 else RandomChooser
    return kind(seed * 1_000_003 + attempt * 4099 + cluster)


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


def _directed(doubt: Doubt, attempt: int, seed: int) -> Callable[[int], Chooser]:
    """A schedule built to make a failed condition show (DETERMINACY theorem 2)."""
    early = doubt.condition in ("A", "C1", "N", "I")
    victim = doubt.warp.index
    if attempt % 4 == 3:
        early = not early
    return lambda cluster: CutChooser(
        doubt.cut, victim, early=early, seed=seed * 1_000_003 + attempt * 97 + cluster
    )


def _choose_clusters(simulation: Simulation) -> tuple[list[int], str]:
    """Which clusters to run, and how to say so."""
    program = simulation.program
    groups = simulation.groups()
    total = len(groups)
    if total <= _MAX_CLUSTERS:
        what = "CTA" if program.cluster_size == 1 else f"cluster of {program.cluster_size} CTAs"
        if len(groups[0]) > 1:
            return [0], f"the whole grid of {program.ctas} CTAs"
        plural = "CTAs" if program.cluster_size == 1 else what.replace("cluster", "clusters", 1)
        return list(range(total)), f"the {what}" if total == 1 else f"all {total} {plural}"
    if depends_on_cta(program):
        step = total / _MAX_CLUSTERS
        picks = sorted({int(i * step) for i in range(_MAX_CLUSTERS)} | {total - 1})
        return picks, f"{len(picks)} of {total} clusters, whose control flow may differ"
    picks = sorted({0, 1, total // 2, total - 1})
    return picks, f"{len(picks)} of {total} clusters, which all have the same control flow"


def depends_on_cta(program: Program) -> bool:
    """True if a loop bound, condition, barrier index, parity or variable depends on the CTA."""
    names = {"cta_x", "cta_y", "cta_z", "cluster_id"}
    for stmt in walk_statements(program.body):
        match stmt:
            case For(start=start, stop=stop, step=step):
                if any(_mentions(e, names) for e in (start, stop, step)):
                    return True
            case While(cond=cond) | If(cond=cond):
                if _mentions(cond, names):
                    return True
            case _:
                pass
    for op in instructions(program):
        if op.mnemonic == "mov" or op.mnemonic.startswith("mbarrier"):
            operands = [v for v in vars(op).values() if isinstance(v, Expr)]
            if any(_mentions(e, names) for e in operands):
                return True
    return False


def _mentions(expr: Expr, names: set[str]) -> bool:
    return any(isinstance(e, Special) and e.name in names for e in walk(expr))
