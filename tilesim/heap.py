"""Garbage is looked for less often while a kernel is checked.

A check makes some hundred thousand objects, most of which stay until it ends. Python looks for
garbage after every 700 of them, and again and again among all that there are, the modules of the
process included: a third of the time of a small check. Next to nothing of it is garbage, so a
look is worth its while after so many that one finds what a long check leaves behind: some ten
megabytes at a time. A command looks so seldom from its beginning to its end, as what a check is
made of lives on from one to the next of its steps.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

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


@contextmanager
def patient() -> Iterator[None]:
    """Garbage is looked for less often meanwhile; as before where it is looked for never, or more
    seldom still."""
    _patience.begin()
    try:
        yield
    finally:
        _patience.end()
