"""Frozen objects: cached answers about them.

Answers about objects that never change are kept in these objects: no table, nothing to clear.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    pass


K = TypeVar("K")
R = TypeVar("R")

#: names of what is kept begin so, as those of fields cannot
_MARK = "."


def cached(function: Callable[[K], R]) -> Callable[[K], R]:
    """``function`` of one object, which is asked once: the object has the answer from then on.

    The object has a ``__dict__``. What `dataclasses.replace` makes of it begins without answers.
    """
    key = f"{_MARK}{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def answer(owner: K) -> R:
        known: dict[str, R] = owner.__dict__
        if key not in known:
            known[key] = function(owner)
        return known[key]

    return answer


class Keeper:
    """Base of what many answers are kept in: its copies and pickles go without them."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith(_MARK)}
