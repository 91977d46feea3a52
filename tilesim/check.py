"""`check`: one simulated run with a certificate, further schedules where it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from tilesim.errors import UsageError
from tilesim.ir.dataflow import steering_inputs
from tilesim.ir.expr import Expr, Special, walk
from tilesim.ir.program import For, If, Program, Verdict, While, instructions
from tilesim.ir.program import walk as walk_statements
from tilesim.sim import certificate
from tilesim.sim.findings import Finding
from tilesim.sim.machine.mbarrier import Doubt
from tilesim.sim.schedule import Chooser, CutChooser, PctChooser, RandomChooser, ReplayChooser
from tilesim.sim.simulate import Run, Simulation, Strict, check_inputs

#: schedules tried for each failed condition, and conditions tried
_PER_DOUBT = 8
_DOUBTS = 6
#: clusters of a grid that are simulated at most
_MAX_CLUSTERS = 64
MAX_SCHEDULES = 1_000_000


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
    seed: int = 0,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Checks ``program`` for deadlocks, races and misuse, for every schedule where it can.

    Runs the timed schedule once. If it shows a defect the verdict is ``failed``; if the
    certificate holds, ``proved``. Otherwise up to ``schedules`` further ones are tried (directed
    at the failed conditions, then random): ``failed`` with a witness, or ``bounded``.

    Args:
        strict: ``"ptx"`` (the text as written) or ``"practice"`` (SEMANTICS 0.3).
        inputs: global tensors that control flow depends on (zeros where missing).
        progress: called with (schedules done, schedules planned).

    Raises:
        InvalidProgram: the program is rejected before it runs.
        UsageError: an argument is out of range.
    """
    if not 0 <= schedules <= MAX_SCHEDULES:
        raise UsageError(f"schedules must be in 0..{MAX_SCHEDULES}, not {schedules}")
    checker = _Checker(program, strict, check_inputs(program, inputs or {}))
    return checker.check(schedules, seed, progress)


def replay(program: Program, witness: Mapping[str, Any]) -> Run:
    """Repeats the schedule of a witness and returns the run.

    Raises:
        UsageError: the witness belongs to another kernel or is malformed.
    """
    if witness.get("schema") != 1 or witness.get("kernel") != program.name:
        raise UsageError(f"the witness is not one of kernel {program.name} (schema 1)")
    simulation = Simulation(program, numbers=False, strict=witness.get("strict", "practice"))
    recorded = witness.get("choices", {})
    if not isinstance(recorded, dict) or not all(
        isinstance(v, list) and all(isinstance(c, int) and c >= 0 for c in v)
        for v in recorded.values()
    ):
        raise UsageError("the witness's choices are not lists of non-negative integers")
    chosen = {int(k): v for k, v in recorded.items()}
    clusters = sorted(chosen) or [int(c) for c in witness.get("clusters", [0])]
    return simulation.run({}, lambda c: ReplayChooser(chosen[c]) if c in chosen else None, clusters)


class _Checker:
    """One check: the compiled program, its inputs, and what has been tried so far."""

    def __init__(
        self, program: Program, strict: Strict, inputs: Mapping[str, NDArray[Any]]
    ) -> None:
        self.program = program
        self.strict: Strict = strict
        self.inputs = inputs
        self.simulation = Simulation(program, numbers=False, strict=strict)
        self.steering = steering_inputs(program)
        self.clusters, self.extent = _choose_clusters(self.simulation)
        self.tried = 0

    def check(
        self, schedules: int, seed: int, progress: Callable[[int, int], None] | None
    ) -> Report:
        first = self._run(lambda cluster: None, self.clusters)
        if first.findings:
            return self._failed(first, first, [], None)
        doubts = certificate.standing_doubts(first.outcomes)
        why = certificate.reasons(first.outcomes, doubts) + self._untold()
        if not why:
            return self._report("proved", first, f"every schedule of {self.extent}")
        try:
            for index, chooser in enumerate(self._plans(doubts, schedules, seed)):
                run = self._run(chooser, self.clusters)
                if progress is not None:
                    progress(index + 1, schedules)
                if run.findings:
                    return self._failed(run, first, doubts, chooser)
        except KeyboardInterrupt:
            why = ("interrupted by the user", *why)
        covers = f"{self.tried} schedules of {self.extent}, none failed; not a proof"
        return self._report("bounded", first, covers, reasons=why)

    def _untold(self) -> tuple[str, ...]:
        """Inputs that steer the kernel and were not given: zeros prove nothing about others."""
        return tuple(
            f"control flow depends on the contents of {name}, which were not given (zeros assumed)"
            for name in self.steering
            if name not in self.inputs
        )

    def _run(self, chooser: Callable[[int], Chooser | None], clusters: list[int]) -> Run:
        self.tried += 1
        return self.simulation.run(self.inputs, chooser, clusters)

    def _plans(
        self, doubts: list[Doubt], schedules: int, seed: int
    ) -> Iterator[Callable[[int], Chooser]]:
        """Directed schedules for the failed conditions first, then random and PCT ones."""
        count = 0
        for attempt in range(_PER_DOUBT):
            for doubt in doubts[:_DOUBTS]:
                if count >= schedules:
                    return
                count += 1
                yield _directed(doubt, attempt, seed)
        for attempt in range(count, schedules):
            kind = PctChooser if attempt % 2 else RandomChooser
            yield lambda cluster, kind=kind, a=attempt: kind(  # type: ignore[misc]
                seed * 1_000_003 + a * 4099 + cluster
            )

    def _failed(
        self, run: Run, first: Run, doubts: list[Doubt],
        chooser: Callable[[int], Chooser] | None,
    ) -> Report:  # fmt: skip
        causes = tuple(certificate.explain(d, first.outcomes[0]) for d in doubts)
        known = {(f.rule, f.locations) for f in run.findings}
        causes = tuple(f for f in causes if (f.rule, f.locations) not in known)
        witness: dict[str, Any] = {
            "schema": 1,
            "kernel": self.program.name,
            "strict": self.strict,
            "policy": "timed" if chooser is None else "replay",
            "clusters": self.clusters,
            "choices": {str(c): picks for c, picks in run.choices.items()},
        }
        which = "the timed schedule" if chooser is None else f"schedule {self.tried}"
        covers = f"{which} of {self.extent}"
        return self._report("failed", run, covers, run.findings + causes, witness=witness)

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
        if verdict == "proved":
            covers += (
                "; assumes that synchronising instructions of a warp act in program order and "
                "that the lanes of a warp meet again after a branch"
            )
        if self.steering:
            covers += f"; for these contents of {', '.join(self.steering)}"
        stats = Stats(run.stats.instructions, self.tried, run.stats.ctas)
        return Report(self.program.name, verdict, covers, findings, reasons, witness, stats)


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
        return list(range(total)), f"the {what}" if total == 1 else f"all {total} {what}s"
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
