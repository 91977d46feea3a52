"""When one run proves all schedules (DETERMINACY sections 2 and 6).

The conditions themselves are checked while the run goes on, where the state is (``mbarrier`` and
``named_barrier``); this module judges what failed: what cannot be observed is sliced away, the
rest becomes reasons, findings and directed schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tilesim.findings.finding import Deed, Finding, Named, Participant, Rule, Stated, together
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.records import replace
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.result import Condition, Outcome, Violation

if TYPE_CHECKING:
    from tilesim.sim.machine.simulate import Run

#: doubts listed with a finding of the timed schedule
_NOTED = 6

#: what a failed condition means, as a clause
MEANING: dict[Condition, str] = {
    "A": "an arrival or a completing copy could count for an earlier phase",
    "B": "the phase could complete before everything that belongs to it is expected",
    "C1": "a wait could pass on a phase two before the intended one",
    "C2": "a wait could miss its phase, because the next one can complete before it looks",
    "N": "a warp could join an earlier round of the barrier",
    "I": "an operation could come after the barrier's mbarrier.inval",
    "T": "the tx-count could leave its range",
    "R": "more arrivals than the barrier can count could be pending",
    "P": "an arrival that must not end the phase could come last",
}

_RULE: dict[Condition, Rule] = {
    "A": "phase-ambiguity",
    "B": "phase-ambiguity",
    "C1": "phase-alias",
    "C2": "phase-alias",
    "N": "named-barrier",
    "I": "barrier-lifetime",
    "T": "tx-mismatch",
    "R": "over-arrival",
    "P": "over-arrival",
}

_FIX: dict[Condition, str] = {
    "A": "make every arrival of a phase wait for the phase before (directly, or through another "
    "barrier), or use a barrier for each warp",
    "B": "expect bytes (and late arrivals) before the arrival that can end the phase",
    "C1": "wait for every phase in order: phase n has parity n & 1",
    "C2": "let the next phase need an arrival from this waiter, made after its wait",
    "N": "use two barrier ids in alternation, or make the next join wait for this round",
    "I": "synchronise every user of the barrier with the warp that invalidates it",
    "T": "keep the bytes of one phase below 2^20",
    "R": "use .noinc and count these arrivals in mbarrier.init",
    "P": "use the plain arrive, or order another arrival of the phase after this one",
}


def standing_violations(outcomes: Iterable[Outcome]) -> list[Violation]:
    """The failed conditions that can be observed, in the order they were found."""
    result: dict[tuple[object, ...], Violation] = {}
    for outcome in outcomes:
        for violation, barrier in outcome.violations.values():
            if not _unobservable(violation, barrier):
                result.setdefault(violation.key, violation)
    return list(result.values())


def _unobservable(violation: Violation, barrier: object) -> bool:
    """True if it cannot be observed which phase the credit counts for (DETERMINACY section 4)."""
    if violation.condition != "A" or not isinstance(barrier, Mbarrier):
        return False
    return barrier.hides_order or (violation.harmless and may_change_places(barrier))


def reasons(outcomes: Iterable[Outcome], violations: list[Violation]) -> tuple[str, ...]:
    """Why one run does not cover every schedule, one sentence each; empty if it does."""
    lines: dict[object, str] = {}
    for d in violations:
        # copies of one line of the source say it once
        key = d.barrier, d.phase, d.condition, d.op.loc, d.other and d.other.loc
        lines.setdefault(key, f"{d.barrier.label} phase {d.phase}: {MEANING[d.condition]} "
                         f"(condition {d.condition}, {_place(d.op)}"
                         + (f", against {_place(d.other)})" if d.other else ")"))  # fmt: skip
    for outcome in outcomes:
        for what, loc in outcome.nondeterminism.items():
            lines.setdefault((what, loc), may_depend(what, loc))
        if outcome.cut_off:
            lines.setdefault(outcome.cut_off, outcome.cut_off)
    return tuple(dict.fromkeys(lines.values()))


def open_reasons(run: Run) -> tuple[str, ...]:
    """Why a run does not cover every schedule; see `reasons`."""
    return reasons(run.outcomes, standing_violations(run.outcomes))


def may_depend(what: str, loc: Loc) -> str:
    """That something at a line may depend on the schedule."""
    return f"{what} may depend on the schedule ({', '.join(loc.chain)})"


def _place(op: Op) -> str:
    return f"{op.mnemonic} at {op.loc.whole}"


def annotate(run: Run) -> Run:
    """A failing run whose first finding also says which phases were in doubt: often the cause."""
    if not run.findings:
        return run
    violations = standing_violations(run.outcomes)
    head, *rest = run.findings
    notes = (*head.notes, *_noted(violations))
    lines = (op.loc for d in violations for op in (d.op, d.other) if op is not None)
    said = Stated(tuple(d.barrier for d in violations), tuple(lines))
    noted = together((head.noted, said))
    return replace(run, findings=(replace(head, notes=notes, noted=noted), *rest))


def _noted(violations: Iterable[Violation]) -> Iterator[str]:
    """The first of them, a sentence for all barriers of an array."""
    alike: dict[object, list[Violation]] = {}
    for violation in violations:
        other = violation.other and violation.other.loc
        key = violation.barrier.name, violation.condition, violation.op.loc, other
        alike.setdefault(key, []).append(violation)
    for first, *others in [*alike.values()][:_NOTED]:
        (line,) = reasons((), [first])
        labels = dict.fromkeys(d.barrier.label for d in others if d.barrier != first.barrier)
        also = ", ".join(labels)
        yield f"{line}; so for {also}" if also else line


def causes(
    violations: Iterable[Violation], outcomes: Sequence[Outcome], findings: Iterable[Finding]
) -> tuple[Finding, ...]:
    """The doubts that led to a failing schedule, but for those that are ``findings`` already."""
    known = {(f.rule, f.locations) for f in findings}
    every = (explain(violation, outcomes[0]) for violation in violations)
    return tuple(f for f in every if (f.rule, f.locations) not in known)


def explain(violation: Violation, outcome: Outcome) -> Finding:
    """A failed condition as the finding that explains a failing schedule."""
    on = violation.barrier
    sides = [_side(violation.op, violation.warp, on)]
    if violation.other is not None and violation.other_warp is not None:
        sides.append(_side(violation.other, violation.other_warp, on))
    return Finding(
        _RULE[violation.condition],
        f"{on.label}, phase {violation.phase}: {MEANING[violation.condition]}",
        tuple(sides),
        (f"determinacy condition {violation.condition} does not hold",),
        _FIX[violation.condition],
        facts=Stated((on,)),
    )


def _side(op: object, warp: object, on: Named) -> Participant:
    assert isinstance(op, Op)
    assert isinstance(warp, Warp)
    action = f"executes {op.mnemonic} on {on.label}"
    return warp.machine.participant(warp, action, op, Deed("touches", on))


def may_change_places(barrier: Mbarrier) -> bool:
    """True if it cannot be observed which of its arrivals have counted for a phase, once they are
    enough.

    They then are all alike, each of them releases, and their number alone decides: no bytes, no
    drops, no .noComplete, no tokens, one life. Every wait acquires, and knows of the phase before
    by having waited for it (``Mbarrier.by_count``). And the CTA outlives the arrivals of others.
    """
    return barrier.counts_only and barrier.by_count and barrier.base == 0 and _outlives(barrier)


def _outlives(barrier: Mbarrier) -> bool:
    """True if no arrival of another CTA can come after the end of the barrier's (D9)."""
    warps = barrier.warps
    if not barrier.current.credits and any(
        w.clock[barrier.component] >= barrier.phase for w in warps
    ):
        return True
    return all(
        any(w.clock[sender] > tick for w in warps) for sender, tick in barrier.senders.items()
    )
