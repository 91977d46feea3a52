"""What becomes of a mutant of a correct kernel: found, or equivalent, or something to look at.

A mutant that passes is proved deterministic: all its schedules give the same numbers. It is
equivalent if these are the original's. If not, it computes something else in good order, and one
run decides whether ``tilesim run`` finds that: its outputs are compared with the kernel's reference
in the same way. Further schedules are run as well: they must neither give other numbers nor a
finding, or the proof is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from time import perf_counter
from typing import Any, Literal

from numpy.typing import NDArray

from tilesim.checker import Report
from tilesim.dsl.kernel import Kernel
from tilesim.errors import InvalidProgram, UsageError
from tilesim.fuzz.cases import (
    Case,
    Outcome,
    Params,
    check_whole,
    kernel_of,
    outcome_of,
    rejected,
)
from tilesim.ir import effects as fx
from tilesim.ir.program import Program, instructions
from tilesim.loader import Target
from tilesim.mistakes.table import Mutant, mutants
from tilesim.records import dataclass, replace
from tilesim.report.compare import compare
from tilesim.sim.machine.simulate import Policy, simulate

Outputs = Mapping[str, NDArray[Any]]

#: found and refused: the fault is seen; wrong result: it breaks no rule, and ``tilesim run`` sees
#: other numbers than the reference's; silent: other numbers that it does not see; equivalent: the
#: fault changes nothing; open: neither a failing schedule nor a proof; contradicted: a false proof
Kind = Literal[
    "found", "refused", "wrong result", "equivalent", "silent", "open", "contradicted", "error"
]

#: `Outcome.numbers`: the original's; others that the reference rejects; others
_SAME, _WRONG, _OTHER = "same", "wrong", "other"
_KINDS: Mapping[str, Kind] = {_SAME: "equivalent", _WRONG: "wrong result", _OTHER: "silent"}
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
    mutants: tuple[Mutant[Program], ...]

    @cached_property
    def steering(self) -> dict[str, NDArray[Any]] | None:
        """The kernel's own inputs, which control flow may depend on."""
        return None if self.kernel.inputs is None else self.inputs

    @cached_property
    def target(self) -> Target:
        """The kernel with its parameters, as ``tilesim run`` has it."""
        return Target(self.kernel.name, "", self.kernel, params=dict(self.params))

    @cached_property
    def inputs(self) -> dict[str, NDArray[Any]]:
        """Numbers to compute with: the kernel's own, or small integers."""
        return self.target.inputs(self.program, 0)

    @cached_property
    def expected(self) -> dict[str, NDArray[Any]]:
        """What the kernel's reference computes from `inputs`; nothing without a reference.

        Raises:
            UsageError: the kernel computes something else itself.
        """
        expected = self.target.expected(self.inputs) or {}
        if wrong := _wrong(self.outputs, expected):
            raise UsageError(f"{self.kernel.name} itself: {wrong}")
        return expected

    @cached_property
    def outputs(self) -> Outputs:
        """What the kernel computes from `inputs`."""
        return simulate(self.program, self.inputs).outputs

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
        return check_whole(program, strict=strict, inputs=self.steering, **settings)


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
        case _:
            return _KINDS.get(outcome.numbers, "contradicted")


def _judged(case: Case, base: Base, mutant: Mutant[Program]) -> Outcome:
    settings = case.settings
    try:
        report = base.check(
            mutant.program, settings.strict, schedules=settings.schedules, budget=settings.budget,
            seed=case.seed,
        )  # fmt: skip
    except InvalidProgram as error:
        return rejected(case, error)
    outcome = outcome_of(case, report, "; ".join(report.reasons))
    return outcome if report.verdict == "failed" else _run(outcome, base, mutant.program)


def _run(outcome: Outcome, base: Base, program: Program) -> Outcome:
    """The outcome of a check without findings, with what the numbers of the mutant say."""
    numbers, outputs = _compared(base, program)
    if outcome.verdict not in _PASSED:
        return replace(outcome, numbers=numbers)
    if numbers == _OTHER and (wrong := _wrong(outputs, base.expected)):
        return replace(outcome, numbers=_WRONG, message=wrong)
    ptx = _in_ptx(base, program) if numbers == _SAME else ()
    return replace(outcome, numbers=numbers, ptx=ptx)


def _compared(base: Base, program: Program) -> tuple[str, Outputs]:
    """``same``, ``other``, or how a schedule contradicts the proof; outputs of the first one."""
    seen: list[Outputs] = []
    for policy, seed in (*_NUMBERED, *_UNNUMBERED):
        numbers = (policy, seed) in _NUMBERED
        run = simulate(program, base.inputs, numbers=numbers, policy=policy, seed=seed)
        if run.findings:
            return f"{run.findings[0].rule} in schedule {policy} {seed}", {}
        if numbers:
            seen.append(run.outputs)
    first = _bytes(seen[0])
    if any(_bytes(outputs) != first for outputs in seen):
        return _OTHER if _steals(program) else "numbers that depend on the schedule", seen[0]
    return _SAME if first == _bytes(base.outputs) else _OTHER, seen[0]


def _steals(program: Program) -> bool:
    """Whether the hardware decides which CTA gets which work, and so what a wrong CTA computes."""
    every = (effect for op in instructions(program) for effect in op.effects())
    return any(isinstance(effect, fx.Cancels) for effect in every)


def _in_ptx(base: Base, program: Program) -> tuple[str, ...]:
    """What the text of PTX forbids in an equivalent mutant of a kernel that the text allows."""
    if not base.clean_in_ptx:
        return ()
    return tuple(dict.fromkeys(f.rule for f in base.check(program, "ptx").findings))


def _wrong(outputs: Outputs, expected: Outputs) -> str:
    """The first output that ``tilesim run`` reports as different from the reference, if any."""
    return next((str(c) for c in compare(outputs, expected) if not c.equal), "")


def _bytes(outputs: Outputs) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in outputs.items()}
