"""Campaigns: many cases, in this process, in several, or on an engine; and their outcomes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilesim.fuzz.cases import Case, Outcome, run_case
from tilesim.fuzz.judge import Kind, kind
from tilesim.parallel import Opener, WorkersLost, opener, serial, work
from tilesim.records import dataclass, field
from tilesim.report.document import SCHEMA

__all__ = ["Campaign", "Check", "opener", "run"]

#: what becomes of a case
Check = Callable[[Case], Outcome]


@dataclass
class Campaign:
    """What has been done so far; ``interrupted`` by the user, or ended by the time limit.

    ``stopped`` says why no worker is left to check the other cases.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    interrupted: bool = False
    stopped: str = ""

    def sorted(self) -> list[Outcome]:
        """The outcomes in the order of the cases, whichever ended first."""
        return sorted(self.outcomes, key=lambda o: o.case.number)


def run(
    cases: Iterable[Case],
    opener: Opener = serial,
    *,
    check: Check | None = None,
    workers: int = 1,
    seconds: float | None = None,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> Campaign:
    """Checks ``cases`` until they end, ``seconds`` have passed, or the user interrupts.

    A cluster without workers stops the campaign as well. ``check`` is what becomes of a case,
    `run_case` by default; it must not raise.
    """
    campaign = Campaign()

    def add(outcome: Outcome) -> None:
        campaign.outcomes.append(outcome)
        on_outcome(outcome)

    try:
        campaign.interrupted = not work(
            check or run_case, cases, opener,
            workers=workers, seconds=seconds, lost=_lost, on_result=add,
        )  # fmt: skip
    except WorkersLost as error:
        campaign.stopped = str(error)
    return campaign


def _lost(case: Case, reason: str) -> Outcome:
    return Outcome(case, "error", message=reason)


def render(document: Mapping[str, Any]) -> str:
    """The document as text, ending with a newline."""
    return json.dumps({"schema": SCHEMA, **document}, indent=2) + "\n"


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """What became of a case; every entry has the same keys. ``fault`` is null for the original."""
    case = outcome.case
    return {
        "target": case.target,
        "params": dict(case.params),
        "seed": case.seed,
        "fault": outcome.where or None,
        "verdict": outcome.verdict,
        "rules": list(outcome.rules),
        "locations": list(outcome.lines),
        "message": outcome.message,
        "schedules": outcome.schedules,
    }


#: what counts if the kinds differ between parameters: a defect that shows with some is found
_ORDER: tuple[Kind, ...] = (
    "contradicted", "error", "found", "refused", "wrong result", "open", "silent", "equivalent",
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """One fault at one place of a kernel, and what became of it with each set of parameters.

    ``number`` counts equal changes of one line: a Python loop may make several instructions.
    """

    target: str
    where: str
    number: int
    outcomes: tuple[Outcome, ...]

    @property
    def fault(self) -> str:
        """The kind of fault."""
        return self.outcomes[0].fault

    @property
    def kernel(self) -> str:
        """The kernel as the gallery calls it, without the package."""
        return self.target.removeprefix("tilesim.kernels.")

    @property
    def kind(self) -> Kind:
        """What became of it."""
        return kind(self.decisive)

    @property
    def decisive(self) -> Outcome:
        """The outcome that decides; among equal ones that of the fewest schedules."""
        return min(self.outcomes, key=lambda o: (_ORDER.index(kind(o)), o.schedules))


def sites(outcomes: Iterable[Outcome]) -> tuple[Site, ...]:
    """The sites of judged mutants, in the order in which they appear."""
    seen: Counter[tuple[object, ...]] = Counter()
    found: dict[tuple[str, str, int], list[Outcome]] = {}
    for outcome in outcomes:
        case = outcome.case
        one = (case.target, case.params, outcome.where)
        found.setdefault((case.target, outcome.where, seen[one]), []).append(outcome)
        seen[one] += 1
    return tuple(Site(*key, tuple(group)) for key, group in found.items())
