"""How long a check may take."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import isfinite
from time import monotonic
from typing import TypeVar

from tilesim.errors import UsageError

T = TypeVar("T")
#: longer times are this one, to which others can be added
_FOREVER = timedelta(days=36_500)


def duration(name: str, given: timedelta | float) -> timedelta:
    """What ``given`` for ``name`` says: a duration, or seconds.

    Raises:
        UsageError: it is neither, or not positive.
    """
    time: object = given
    if isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given):
        try:
            time = timedelta(seconds=given)
        except OverflowError:
            time = _FOREVER if given > 0 else None
    if not isinstance(time, timedelta) or time <= timedelta(0):
        raise UsageError(
            f"{name} must be positive, in seconds or as a datetime.timedelta, not {given!r}"
        )
    return min(time, _FOREVER)


class Timer:
    """A clock that starts now; ``limit`` is for the whole check, None for as long as it takes."""

    def __init__(self, limit: timedelta | None) -> None:
        self._start = monotonic()
        self._limit = limit
        self._budget: timedelta | None = None
        #: whether the user has ended a step
        self.interrupted = False

    @property
    def until(self) -> float | None:
        """When the check has to end, in seconds of `time.monotonic`."""
        return None if self._limit is None else self._start + self._limit.total_seconds()

    def first_until(self, budget: int | timedelta) -> float | None:
        """When the first run has to end, if exploring may cost ``budget``; 0 is no exploration."""
        if not isinstance(budget, timedelta) or not budget:
            return self.until
        self._budget = budget
        end = self._start + budget.total_seconds()
        return end if self.until is None else min(end, self.until)

    def first_ended(self) -> None:
        """The first run has ended: its budget is the exploration's from now on."""
        self._budget = None

    def given(self, step: Callable[[], T], otherwise: T) -> T:
        """What ``step`` makes; ``otherwise`` if the deadline or the user ends it, who is noted."""
        try:
            return step()
        except KeyboardInterrupt:
            self.interrupted |= not self.reason()
            return otherwise

    def reason(self) -> str:
        """Which limit has passed, as the reason of a verdict; empty if none."""
        now = monotonic() - self._start
        for limit, name in ((self._limit, "time limit"), (self._budget, "budget")):
            if limit is not None and now >= limit.total_seconds():
                return f"its {name} of {limit.total_seconds():g} s is used up"
        return ""
