"""What is known of the values of guards and of conditions of branches."""

from __future__ import annotations

from collections.abc import Hashable

from tilesim.records import dataclass


@dataclass(frozen=True)
class Condition:
    """An instruction takes effect, or a branch is taken, if and only if ``value`` is ``holds``.

    Conditions of equal ``value`` agree as long as no place of ``made``, where the value is
    computed anew, was passed between them; ``made`` is equal for equal values.
    """

    value: Hashable
    holds: bool
    made: frozenset[int]
