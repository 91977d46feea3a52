"""Limits of a check: how long it may take, and how often garbage is looked for.

How long a check may take.

Garbage is looked for less often while a kernel is checked.

A check makes some hundred thousand objects, most of which stay until it ends. Python looks for
garbage after every 700 of them, and again and again among all that there are, the modules of the
process included: a third of the time of a small check. Next to nothing of it is garbage, so a
look is worth its while after so many that one finds what a long check leaves behind: some ten
megabytes at a time. A command looks so seldom from its beginning to its end, as what a check is
made of lives on from one to the next of its steps.
"""

from __future__ import annotations

import atexit
import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import isfinite
from threading import Lock, current_thread, main_thread
from time import monotonic
from typing import TypeVar

from tilesim.errors import UsageError

T = TypeVar("T")
#: seconds after which a step that goes on is interrupted when its time is up
_MOMENT = 0.3
#: processes at most that work side by side
MAX_JOBS = 512
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
        self._start = self._first = monotonic()
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
        self._first = monotonic()
        end = self._first + budget.total_seconds()
        return end if self.until is None else min(end, self.until)

    def first_ended(self) -> None:
        """The first run has ended: its budget is the exploration's from now on."""
        self._budget = None

    def given(self, step: Callable[[], T], otherwise: T) -> T:
        """What ``step`` makes; ``otherwise`` if the deadline or the user ends it, as noted."""
        try:
            return step()
        except KeyboardInterrupt:
            self.interrupted |= not self.reason()
            return otherwise

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """What is done within it is interrupted, as by Ctrl-C, when the time has been up for a
        moment: a step that looks at the clock ends before.

        Only in the main thread, on systems that have alarms, and if nothing else has set one.
        """
        if self.until is None or not _can_be_alarmed():
            yield
            return
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, max(self.until - monotonic(), 0) + _MOMENT)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def reason(self) -> str:
        """Which limit has passed, as the reason of a verdict; empty if none."""
        now = monotonic()
        limits = (self._start, self._limit, "time limit"), (self._first, self._budget, "budget")
        for start, limit, name in limits:
            if limit is not None and now >= start + limit.total_seconds():
                return f"its {name} of {limit.total_seconds():g} s is used up"
        return ""


def _can_be_alarmed() -> bool:
    """Whether an alarm is heard here, and disturbs nothing."""
    return (
        hasattr(signal, "SIGALRM")
        and current_thread() is main_thread()
        and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )


#: how many new objects there are before garbage is looked for among them
_YOUNG = 300_000


class _Patience:
    """How many checks of this process are under way, in all of its threads: the thresholds are of
    the process, and those from before the first one count again after the last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._checks = 0
        self._before = gc.get_threshold()

    def begin(self) -> None:
        with self._lock:
            self._checks += 1
            if self._checks > 1:
                return
            young, *older = self._before = gc.get_threshold()
            if 0 < young < _YOUNG:
                gc.set_threshold(_YOUNG, *older)

    def end(self) -> None:
        with self._lock:
            self._checks -= 1
            if not self._checks:
                gc.set_threshold(*self._before)


_patience = _Patience()


def patient_process() -> None:
    """The same until the process ends, and then no garbage is looked for: the process ends.

    A third of the time of a small check was for garbage in what modules define.
    """
    _patience.begin()
    atexit.register(gc.freeze)


@contextmanager
def patient() -> Iterator[None]:
    """Garbage is looked for less often meanwhile; as before where it is looked for never, or more
    seldom still."""
    _patience.begin()
    try:
        yield
    finally:
        _patience.end()
