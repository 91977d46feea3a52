"""What hardware chooses, and a run may be told: answers of launch control, orders of draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tilesim.records import dataclass

#: what sends requests: the rank of its CTA and the number of the warp in it
Asker: TypeAlias = tuple[int, int]


#: by cluster and asker: the clusters that its requests cancel, one after the other
Answers: TypeAlias = Mapping[int, Mapping[Asker, tuple[int, ...]]]


#: a word: the memory it is in, and its address
Word: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Order:
    """In which order warps (by their index) draw; one that is not named comes last.

    ``alike``: warps that are all told to be the last one of their counter. No schedule does that,
    but each of them sees with those that are not named what it sees in one; what two of them do is
    not compared.
    """

    warps: tuple[int, ...] = ()
    alike: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Draw:
    """A number that a warp has drawn, by its index, from a word of a tensor."""

    warp: int
    tensor: str
    word: Word
    number: int
