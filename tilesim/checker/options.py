"""How far a check looks for a failing schedule, as its caller says it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, SupportsIndex

from tilesim.errors import UsageError
from tilesim.limits import MAX_JOBS
from tilesim.records import dataclass
from tilesim.sim.machine.schedule import require_seed
from tilesim.sim.schedulers.frontier import MAX_SCHEDULES, Frontier, Limits

#: clusters that are run whatever they cost
MANY = 64
#: of an exploration that is not made
NO_LIMITS = Limits(0, 0, None)


@dataclass(frozen=True)
class Search:
    """How far to look for a failing schedule; see `tilesim.check`."""

    schedules: int
    limits: Limits
    seed: int
    jobs: int
    start: Frontier | None
    skip: bool = True


def searching(
    schedules: int,
    budget: int | timedelta,
    max_schedules: int,
    preemptions: int | None,
    jobs: int,
    seed: int,
    frontier: Mapping[str, Any] | None,
    *,
    skip: bool = True,
) -> Search:
    """The arguments of `tilesim.check` as a `Search`.

    Raises:
        UsageError: one is out of range, or the frontier is none.
    """
    _require_range("schedules", schedules, 0, MAX_SCHEDULES)
    _require_range("max_schedules", max_schedules, 0, MAX_SCHEDULES)
    if preemptions is not None:
        _require_range("preemptions", preemptions, 0, MAX_SCHEDULES)
    _require_range("jobs", jobs, 1, MAX_JOBS)
    require_seed(seed)
    if not isinstance(budget, timedelta | int) or isinstance(budget, bool):
        raise UsageError(
            f"budget must be a number of warp instructions or a datetime.timedelta, not {budget!r}"
        )
    if (budget.total_seconds() if isinstance(budget, timedelta) else budget) < 0:
        raise UsageError(f"budget must not be negative, not {budget}")
    start = None if frontier is None else Frontier.from_dict(frontier)
    return Search(schedules, Limits(budget, max_schedules, preemptions), seed, jobs, start, skip)


def _require_range(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise UsageError(f"{name} must be an integer in {low}..{high}, not {value!r}")
    if not low <= value <= high:
        raise UsageError(f"{name} must be in {low}..{high}, not {value}")
