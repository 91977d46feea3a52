"""What becomes of a mutant of a correct kernel: found, or equivalent, or something to look at.

A mutant that passes is proved deterministic: all its schedules give the same numbers. It is
equivalent if these are the original's; if not, it computes something else in good order, which is
for `tilesim run` and the kernel's reference to find. Further schedules are run as well: they must
neither give other numbers nor a finding, or the proof is false.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from time import perf_counter
from typing import Any, Literal

from numpy.typing import NDArray

from tilesim.checker import Report, check
from tilesim.errors import InvalidProgram
from tilesim.fuzz.cases import Case, Outcome, Params, kernel_of
from tilesim.fuzz.faults import Mutant, mutants
from tilesim.ir.kernel import Kernel
from tilesim.ir.ops.clc import ClcTryCancel
from tilesim.ir.program import Program, instructions
from tilesim.loader import Target
from tilesim.sim.simulate import Policy, Run, simulate

#: found and refused: the fault is seen; equivalent: it changes nothing; silent: it changes numbers
#: and breaks no rule; open: neither a failing schedule nor a proof; contradicted: a false proof
Kind = Literal["found", "refused", "equivalent", "silent", "open", "contradicted", "error"]

_SAME, _OTHER = "same", "other"
_PASSED = ("proved", "exhausted")
#: schedules on which the numbers of a proved mutant are compared
_NUMBERED: tuple[tuple[Policy, int], ...] = (("timed", 0), ("pct", 1), ("random", 2))
#: further ones, without numbers, that must not show a finding
_UNNUMBERED: tuple[tuple[Policy, int], ...] = (("pct", 3), ("random", 4))


@dataclass(frozen=True)
class Base:
    """A correct kernel, its mutants, and what it computes."""

    kernel: Kernel
    params: Params
    program: Program
    mutants: tuple[Mutant, ...]

    @cached_property
    def steering(self) -> dict[str, NDArray[Any]] | None:
        """The kernel's own inputs, which control flow may depend on."""
        return None if self.kernel.inputs is None else self.inputs

    @cached_property
    def inputs(self) -> dict[str, NDArray[Any]]:
        """Numbers to compute with: the kernel's own, or small integers."""
        target = Target(self.kernel.name, "", self.kernel, params=dict(self.params))
        return target.inputs(self.program, 0)

    @cached_property
    def outputs(self) -> dict[str, bytes]:
        """What the kernel computes from `inputs`."""
        return _bytes(simulate(self.program, self.inputs))

    @cached_property
    def length(self) -> int:
        """Warp instructions that a CTA executes."""
        stats = simulate(self.program, self.inputs, numbers=False).stats
        return stats.instructions // stats.ctas

    @cached_property
    def clean_in_ptx(self) -> bool:
        """Whether the kernel is right by the text of PTX as well."""
        return self.check(self.program, "ptx").verdict in _PASSED

    def check(self, program: Program, strict: Any, **settings: Any) -> Report:
        """Checks a mutant with the inputs of the kernel."""
        return check(program, strict=strict, inputs=self.steering, **settings)


@lru_cache(maxsize=16)
def base_of(target: str, params: Params) -> Base:
    """The correct kernel that ``target`` names, with ``params``."""
    kernel = kernel_of(target)
    program = kernel.build(**dict(params))
    return Base(kernel, params, program, tuple(mutants(program)))


def judge(case: Case) -> Outcome:
    """Checks the mutant ``case.fault``; whatever goes wrong becomes an outcome."""
    start = perf_counter()
    base = base_of(case.target, case.params)
    assert case.fault is not None
    mutant = base.mutants[case.fault]
    try:
        outcome = _judged(case, base, mutant)
    except Exception as error:
        outcome = Outcome(case, "error", message=f"{type(error).__name__}: {error}")
    seconds = perf_counter() - start
    return replace(outcome, fault=mutant.fault, where=str(mutant), seconds=seconds)


def kind(outcome: Outcome) -> Kind:
    """The class of a judged mutant."""
    match outcome.verdict:
        case "failed":
            return "found"
        case "rejected":
            return "refused"
        case "bounded" | "unsupported":
            return "open"
        case "error" | "refused":
            return "error"
        case _ if outcome.numbers == _SAME:
            return "equivalent"
        case _:
            return "silent" if outcome.numbers == _OTHER else "contradicted"


def _judged(case: Case, base: Base, mutant: Mutant) -> Outcome:
    settings = case.settings
    try:
        report = base.check(
            mutant.program, settings.strict, schedules=settings.schedules, budget=settings.budget,
            seed=case.seed,
        )  # fmt: skip
    except InvalidProgram as error:
        rules = tuple(dict.fromkeys(d.rule for d in error.diagnostics))
        first = error.diagnostics[0]
        return Outcome(case, "rejected", rules, (str(first.loc),), first.message)
    rules = tuple(dict.fromkeys(f.rule for f in report.findings))
    head = report.findings[0] if report.findings else None
    lines = tuple(map(str, head.locations)) if head else ()
    message = head.message if head else "; ".join(report.reasons)
    outcome = Outcome(
        case, report.verdict, rules, lines, message, schedules=report.stats.schedules
    )  # fmt: skip
    if report.verdict != "failed":
        numbers = _compared(base, mutant.program)
        equivalent = report.verdict in _PASSED and numbers == _SAME
        ptx = _in_ptx(base, mutant.program) if equivalent else ()
        outcome = replace(outcome, numbers=numbers, ptx=ptx)
    return outcome


def _compared(base: Base, program: Program) -> str:
    """``same``, ``other``, or how a schedule contradicts the proof."""
    seen: list[dict[str, bytes]] = []
    for policy, seed in _NUMBERED:
        run = simulate(program, base.inputs, policy=policy, seed=seed)
        if run.findings:
            return f"{run.findings[0].rule} in schedule {policy} {seed}"
        seen.append(_bytes(run))
    for policy, seed in _UNNUMBERED:
        run = simulate(program, base.inputs, numbers=False, policy=policy, seed=seed)
        if run.findings:
            return f"{run.findings[0].rule} in schedule {policy} {seed}"
    if any(outputs != seen[0] for outputs in seen):
        return _OTHER if _steals(program) else "numbers that depend on the schedule"
    return _SAME if seen[0] == base.outputs else _OTHER


def _steals(program: Program) -> bool:
    """Whether the hardware decides which CTA gets which work, and so what a wrong CTA computes."""
    return any(isinstance(op, ClcTryCancel) for op in instructions(program))


def _in_ptx(base: Base, program: Program) -> tuple[str, ...]:
    """What the text of PTX forbids in an equivalent mutant of a kernel that the text allows."""
    if not base.clean_in_ptx:
        return ()
    return tuple(dict.fromkeys(f.rule for f in base.check(program, "ptx").findings))


def _bytes(run: Run) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in run.outputs.items()}
