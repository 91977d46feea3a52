"""Garbage is looked for less often while a kernel is checked.

A check makes some hundred thousand objects, most of which stay until it ends. Python looks for
garbage after every 700 of them, and again and again among all that there are, the modules of the
process included: a third of the time of a small check.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: how many new objects there are before garbage is looked for among them
_YOUNG = 10_000


@contextmanager
def patient() -> Iterator[None]:
    """Garbage is looked for less often meanwhile; as before where it is looked for never, or more
    seldom still."""
    young, *older = before = gc.get_threshold()
    if 0 < young < _YOUNG:
        gc.set_threshold(_YOUNG, *older)
    try:
        yield
    finally:
        gc.set_threshold(*before)
