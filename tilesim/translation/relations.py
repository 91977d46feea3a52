"""Relations between synchronisation and accesses that the PTX has, and the SASS must have.

Three statements about events X and Y, each true of every path of the graph: *before*, X is passed
before Y; *between*, X is passed between Y and the next Y; *after*, X is passed between Y and the
end of the kernel. They do not depend on how code is laid out, unrolled, peeled or copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from tilesim.records import dataclass
from tilesim.translation import classes
from tilesim.translation.classes import Kind
from tilesim.translation.flow import Graph
from tilesim.translation.pairing import Event
from tilesim.translation.validation import RelationKind

Statement = Literal["before", "between", "after"]


@dataclass(frozen=True)
class Relation:
    """``statement`` says where X, the event ``first``, is passed with respect to ``second``, Y."""

    kind: RelationKind
    statement: Statement
    first: int
    second: int


class Masks:
    """Sets of events by kind."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.kinds: list[Kind] = [classes.BY_NAME[kind] for _, kind in events]
        self.order = self._of(lambda kind: not kind.access and not kind.expanded)
        self.acquire = self._of(lambda kind: "acquire" in kind.roles)
        self.access = self._of(lambda kind: kind.access)
        self.shared = self._of(lambda kind: kind.name in classes.SHARED)
        self._of_kind = {
            kind.name: self._of(lambda other, kind=kind: other is kind)
            for kind in {one.name: one for one in self.kinds}.values()
        }

    def _of(self, wanted) -> int:
        return sum(1 << number for number, kind in enumerate(self.kinds) if wanted(kind))

    def asked(self, second: int) -> Iterator[tuple[RelationKind, int]]:
        """The kinds of relations that an event can be the second of, and the events that can be
        the first of each."""
        kind = self.kinds[second]
        if kind.access:
            yield "acquire", self.acquire
        elif not kind.expanded:
            order = self.order & ~(1 << second)
            yield "order", order & ~self._of_kind[kind.name] if kind.unordered else order
            if "release" in kind.roles:
                yield "release", self.access
            elif "proxy" in kind.roles:
                yield "release", self.shared


class Facts:
    """What a text says of its events: sets of events that are passed, by event."""

    def __init__(self, graph: Graph, masks: Masks, every: int) -> None:
        self.graph = graph
        self.before = graph.before(every)
        self.after = graph.after(every)
        self._masks = masks
        self._between: dict[tuple[int, ...], int | None] = {}

    def between(self, event: int) -> int | None:
        """What is passed between an event and the next time that it is come to; None if it is not
        come to again."""
        places = tuple(self.graph.copies[event])
        if places not in self._between:
            self._between[places] = self.graph.between(places)
        return self._between[places]


def compare(
    ptx: Facts, sass: Facts, masks: Masks, both: int
) -> tuple[Mapping[RelationKind, int], list[Relation]]:
    """How many relations of each kind the PTX has between events that both texts have (``both``),
    and those that the SASS has not."""
    count: dict[RelationKind, int] = {"acquire": 0, "release": 0, "order": 0}
    missing: list[Relation] = []
    for second in range(len(masks.kinds)):
        if not both >> second & 1:
            continue
        for kind, wanted in masks.asked(second):
            wanted &= both
            for statement, needed, have in _statements(ptx, sass, second, kind):
                needed &= wanted
                count[kind] += needed.bit_count()
                lost = needed & ~have
                missing += [Relation(kind, statement, first, second) for first in _numbers(lost)]
    return count, missing


def _statements(
    ptx: Facts, sass: Facts, second: int, kind: RelationKind
) -> Iterator[tuple[Statement, int, int]]:
    yield "before", ptx.before[second], sass.before[second]
    needed = ptx.between(second)
    have = sass.between(second)
    if needed is not None and have is not None:
        yield "between", needed, have
    if kind == "order":
        yield "after", ptx.after[second], sass.after[second]


def _numbers(events: int) -> Iterator[int]:
    while events:
        lowest = events & -events
        yield lowest.bit_length() - 1
        events ^= lowest
