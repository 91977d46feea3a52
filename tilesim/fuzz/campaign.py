"""Campaigns: many cases, in this process, in several, or on a distributed engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tilesim.fuzz.cases import Case, Outcome, run_case
from tilesim.parallel import Opener, WorkersLost, opener, serial, work

__all__ = ["Campaign", "Check", "opener", "run"]

#: what becomes of a case
Check = Callable[[Case], Outcome]


@dataclass
class Campaign:
    """What has been done so far; ``interrupted`` by the user, or ended by the time limit.

    ``stopped`` says why nobody is left to check the other cases.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    interrupted: bool = False
    stopped: str = ""

    def sorted(self) -> list[Outcome]:
        """The outcomes in the order of the cases, whoever finished first."""
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
