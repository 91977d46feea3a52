"""Findings of a failing run with their causes: the run is repeated, recorded, and asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simpy import Environment

from tilesim.findings.finding import Finding
from tilesim.mistakes.history import History, key_of
from tilesim.mistakes.mistake import Case, Cause, with_cause
from tilesim.mistakes.table import TABLE
from tilesim.records import replace
from tilesim.sim.machine.events import Trace

#: warp instructions that are executed again to find causes: a few seconds
AFFORDABLE = 300_000
#: whether a diagnosis that raises is an error (for tests) or has nothing to say
RAISES = False


def explained(
    findings: Sequence[Finding],
    repeat: Callable[[Callable[[Environment], Trace]], object] | None,
    cost: int,
) -> tuple[Finding, ...]:
    """The findings of a run, each with its cause where a diagnosis has one.

    Args:
        repeat: runs the same schedule again; what it is given makes what watches a cluster. None:
            causes are not asked for.
        cost: warp instructions of a run; beyond `AFFORDABLE` it is not repeated.
    """
    if repeat is None or not any(finding.participants for finding in findings):
        return tuple(findings)
    if cost > AFFORDABLE:
        first, *others = findings
        why = (
            f"its cause is not looked for: the run executes {cost:,} warp instructions, more than "
            f"{AFFORDABLE:,}"
        )
        return (replace(first, notes=(*first.notes, why)), *others)
    histories: list[History] = []
    numbers = {p.instruction for f in findings for p in f.participants if p.instruction is not None}
    flags = any(finding.rule == "deadlock" for finding in findings)

    def trace(env: Environment) -> Trace:
        histories.append(History(numbers, flags=flags))
        return histories[-1]

    repeat(trace)
    return _causes_first([_explained(finding, histories) for finding in findings])


def _causes_first(findings: list[Finding]) -> tuple[Finding, ...]:
    """Of the findings with the first one's rule, one that has a cause comes first; before one of
    lanes of a warp another one of the same accesses, by which they have met as well."""
    known = [f for f in findings if f.cause and f.rule == findings[0].rule]
    if not known:
        return tuple(findings)
    first = known[0]
    if first.diagnosis == "lanes_of_a_warp":
        lines = {p.loc for p in first.participants}
        others = (
            f for f in known
            if f.diagnosis != first.diagnosis and {p.loc for p in f.participants} == lines
        )  # fmt: skip
        first = next(others, first)
    return (first, *(f for f in findings if f is not first))


def diagnose(case: Case) -> Cause | None:
    """The first cause that the table has for a finding of its rule."""
    about = {case.finding.rule, case.finding.kind}
    for mistake in TABLE:
        if about.intersection(mistake.rules):
            cause = mistake.diagnose(case)
            if cause is not None:
                return replace(cause, diagnosis=cause.diagnosis or mistake.name)
    return None


def _repeated(finding: Finding, history: History) -> Finding:
    """The finding with the moments of the run that is asked, whose clocks are others than those of
    one that skips what repeats."""
    made = history.made.get(key_of(finding))
    return (
        finding if made is None else replace(finding, participants=tuple(p for p, _ in made.sides))
    )


def _explained(finding: Finding, histories: Sequence[History]) -> Finding:
    ctas = {p.cta for p in finding.participants}
    for history in histories:
        if any(cta.number in ctas for cta in history.machine.ctas):
            case = Case(history, _repeated(finding, history))
            try:
                return with_cause(case, diagnose(case))
            except Exception:
                # it only explains: a verdict must not hang on that
                if RAISES:
                    raise
                return finding
    return finding


__all__ = ["Cause", "explained"]
