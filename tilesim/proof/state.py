"""What decides how a cluster goes on, written down so that two such states can be compared.

Each class that a machine consists of has a method ``state`` which tells a `State` all its members
that decide anything; tests hold these methods against the members.

Two states are the same if their ``exact`` values are, and their numbers but for a *renaming*: each
number belongs to a component of the vectors of `tilesim.proof.order` (a position of a lane, or the
phases of an mbarrier that are over); of a component, numbers up to some one stay, and those beyond
have grown by as much as the component itself. Such a renaming keeps the order of the numbers of a
component, that one follows another, and 0. The kernel does nothing else with these numbers, so from
two such states it goes on in the same way. Of the facts by which an asynchronous access is known to
be over, only that matters in which rows of what is known, or handed over, one of them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilesim.proof.rules import NotCovered, rule

#: larger than all numbers of a component
_NEVER = 1 << 40


class Access(Protocol):
    """An access that later ones are compared with, or a part of the ``whole`` one."""

    @property
    def whole(self) -> Access: ...
    @property
    def asynchronous(self) -> bool: ...
    @property
    def facts(self) -> list[int]: ...


class State:
    """What is told of a machine: ``now`` is how far each component has come."""

    def __init__(self, width: int, kinds: Sequence[int] = (-1,)) -> None:
        """``kinds``: facts of which it is told apart which ones are known."""
        self.now, self._kinds = np.zeros(width, np.int64), kinds
        self.exact: list[object] = [width]
        self._numbers: list[tuple[NDArray[Any], NDArray[Any]]] = []  # components, values
        self._knowing: list[list[int]] = []
        self._accesses: list[Access] = []

    def same(self, *values: object) -> None:
        """Values that have to be equal."""
        self.exact += values

    def numbers(self, components: Any, values: Any) -> None:
        """Numbers of components, in an order of which nothing but the state decides."""
        components, values = np.array(components, np.int64), np.array(values, np.int64)
        self.exact.append(components.tobytes())
        self._numbers.append((components, values))

    def points(self, pairs: Iterable[tuple[int, int]]) -> None:
        """The same, as pairs."""
        found = np.array(list(pairs), np.int64).reshape(-1, 2)
        self.numbers(found[:, 0], found[:, 1])

    def vectors(self, rows: NDArray[Any]) -> None:
        """A vector of all components, or of the first ones, or several."""
        self.exact.append(rows.shape)
        self._numbers.append((np.broadcast_to(np.arange(rows.shape[-1]), rows.shape), rows.copy()))

    def facts(self, facts: list[int]) -> None:
        """The facts that are known, or handed over, by row."""
        self._knowing.append(list(facts))

    def access(self, x: Access) -> None:
        """An access."""
        self._accesses.append(x)
        self.same(x.asynchronous)

    def places(self) -> dict[int, int]:
        """By its identity, which one of the accesses told so far a whole access is."""
        return {id(x.whole): n for n, x in enumerate(self._accesses)}

    def over(self) -> None:
        """All is told: of each asynchronous access, in which rows it is known to be over."""
        for x in self._accesses:
            if x.asynchronous:
                self.same([[[bool(row & part & of) for row in known for of in self._kinds]
                            for known in self._knowing] for part in x.whole.facts])  # fmt: skip

    @rule("comes back", "behind a repetition the state is what it was, but for a renaming")
    def comes_back(self, before: State) -> None:
        """Raises: NotCovered: it is not."""
        if self.exact != before.exact:
            raise NotCovered("a repetition behind which the state is another one")
        grown = self.now - before.now
        stays, moves = np.zeros(len(grown), np.int64), np.full(len(grown), _NEVER)
        for (at, old), (_, new) in zip(before._numbers, self._numbers, strict=True):
            same = new == old
            if not (same | (new == old + grown[at])).all():
                raise NotCovered("a repetition behind which the order is another one")
            growing = same & (grown[at] > 0)
            np.maximum.at(stays, at[growing], old[growing])
            np.minimum.at(moves, at[~same], old[~same])
        if not (stays < moves).all():
            raise NotCovered("a repetition in which numbers that stay and numbers that grow meet")
