"""Relations between synchronisation and accesses that the PTX has, and the SASS must have.

Four statements about events X and Y, each true of every path of the graph: *before*, X is passed
before Y; *between*, X is passed between Y and the next Y; *after*, X is passed between Y and the
end of the kernel; *never behind*, X is not passed behind Y. They do not depend on how code is laid
out, unrolled, peeled or copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

from tilesim.records import dataclass
from tilesim.translation import classes
from tilesim.translation.classes import Kind
from tilesim.translation.flow import Graph, Text
from tilesim.translation.pairing import Event
from tilesim.translation.predicates import ELECTED
from tilesim.translation.validation import RelationKind

Passing = Literal["before", "between", "after"]
Statement = Literal["before", "between", "after", "never behind"]
_PASSINGS: tuple[Passing, ...] = ("before", "between", "after")


@dataclass(frozen=True)
class Relation:
    """``statement`` says where X, the event ``first``, is passed with respect to ``second``, Y."""

    kind: RelationKind
    statement: Statement
    first: int
    second: int


class Masks:
    """Sets of events by kind; ``relaxed`` are those that hand nothing on, whatever their kind."""

    def __init__(self, events: Sequence[Event], relaxed: Collection[int]) -> None:
        self.kinds: list[Kind] = [classes.BY_NAME[kind] for _, kind in events]
        self.relaxed = frozenset(relaxed)
        self.order = self._of(lambda kind: kind.is_ordered)
        self.acquire = self._of(lambda kind: "acquire" in kind.roles)
        self.access = self._of(lambda kind: kind.access)
        self.shared = self._of(lambda kind: kind.name in classes.SHARED)
        self.release = self._of(lambda kind: "release" in kind.roles)
        self.release &= ~sum(1 << number for number in self.relaxed)
        self.proxy = self._of(lambda kind: "proxy" in kind.roles)
        self._of_kind: dict[str, int] = {}
        for number, kind in enumerate(self.kinds):
            self._of_kind[kind.name] = self._of_kind.get(kind.name, 0) | 1 << number

    def _of(self, wanted: Callable[[Kind], bool]) -> int:
        return sum(1 << number for number, kind in enumerate(self.kinds) if wanted(kind))

    def asked(self, second: int, statement: Passing) -> Iterator[tuple[RelationKind, int]]:
        """The kinds of relations that an event can be the second of in a statement, and the events
        that can be the first of each.

        An access comes before a release (``before``, ``between``), or a release after an access
        (``after``, ``between``): the second holds of accesses that only some paths make, too.
        """
        kind = self.kinds[second]
        if kind.access:
            if statement != "after":
                yield "acquire", self.acquire
            if statement != "before":
                shared = kind.name in classes.SHARED
                yield "release", self.release | self.proxy if shared else self.release
        elif kind.is_ordered:
            order = self.order & ~(1 << second)
            yield "order", order & ~self._of_kind[kind.name] if kind.unordered else order
            if statement == "after":
                return
            if self.release >> second & 1:
                yield "release", self.access
            elif "proxy" in kind.roles:
                yield "release", self.shared


#: values of conditions that are tried for an event, at most
MOST_VALUES = 48


class Facts:
    """What a text says of its events: sets of events that every path passes, by event.

    What is shown by cases: let a path go on from where a value was last computed. It holds there or
    it does not, and guards and branches that depend on it are as it says.
    """

    def __init__(self, text: Text, every: int) -> None:
        self._every = every
        self.graph = Graph(text, every)
        self.copies = self.graph.copies
        self._before = self.graph.before({})
        self._after = self.graph.after({})
        self._since: dict[tuple[int, ...], dict[int, int]] = {}
        self._given: dict[tuple[Hashable, bool], Graph] = {}
        self._made = {one.value: one.made for one in text.conditions.values()}
        self._cases: dict[tuple[Passing, Hashable, bool, tuple[int, ...]], dict[int, int]] = {}
        #: values on which the execution of an event depends
        self.guards: dict[int, list[Hashable]] = {}
        for event, nodes in self.copies.items():
            found = {text.conditions[node].value: None for node in nodes if node in text.conditions}
            self.guards[event] = [*found]
        self.branches: list[Hashable] = [
            *{
                one.value: None
                for node, one in sorted(text.conditions.items())
                if node in self.graph.live and len(text.nodes[node].successors) > 1
            }
        ]

    def passed(self, statement: Passing, event: int) -> int | None:
        """What is passed by every path that a statement speaks of; None if there is no such path
        from the event to itself (``between``)."""
        nodes = self.copies[event]
        if statement == "between" and not self._comes_again(nodes):
            return None
        found = self._every
        for node in nodes:
            found &= self._plain(statement, node, nodes) | self._same(statement, node, event)
        return found

    def only_if(self, event: int, value: Hashable) -> bool:
        """Whether no copy of an event is executed unless a value holds that never changes."""
        if self._made.get(value) != frozenset():
            return False
        graph = self._graph(value, holds=False)
        conditions = self.graph.text.conditions
        return all(
            node not in graph.live
            or ((one := conditions.get(node)) is not None and one.value == value and one.holds)
            for node in self.copies[event]
        )

    def passed_by_cases(
        self, statement: Passing, event: int, values: Iterable[Hashable],
        holding: Hashable = None,
    ) -> int:  # fmt: skip
        """The same, and what is shown by cases of these values; ``holding`` is one that holds."""
        nodes = self.copies[event]
        found = self._every
        tried = [*values][:MOST_VALUES]
        for node in nodes:
            of_node = self._plain(statement, node, nodes) | self._same(statement, node, event)
            for value in tried:
                of_node |= self._by_case(statement, node, nodes, value, value == holding)
            if statement == "between":
                of_node |= self._since_executed(node, nodes)
            found &= of_node
        return found

    def _comes_again(self, nodes: Sequence[int]) -> bool:
        entry = self._from(nodes)
        return any(self.graph.is_reached_since(node, nodes, entry) for node in nodes)

    def _from(self, nodes: Sequence[int]) -> dict[int, int]:
        key = tuple(nodes)
        if key not in self._since:
            self._since[key] = self.graph.since(nodes, {})
        return self._since[key]

    def _plain(self, statement: Passing, node: int, nodes: Sequence[int]) -> int:
        if statement == "before":
            return self.graph.until(node, self._before)
        if statement == "after":
            return self.graph.onwards(node, self._after)
        return self.graph.until_since(node, nodes, self._from(nodes))

    def shown_if_passed(
        self, statement: Passing, first: int, second: int, places: Iterable[int]
    ) -> bool:
        """Whether a relation would hold if these places (pcs) were copies of its first event."""
        found = self.with_copies(first, places).passed(statement, second)
        return found is None or bool(found >> first & 1)

    @cached_property
    def events(self) -> int:
        """The events that it has."""
        return sum(1 << event for event in self.copies)

    def from_to(self, start: int, end: int) -> int | None:
        """What every path from one event to another one passes, and not the first one again; None
        if no path leads there."""
        nodes = self.copies[start]
        entry = self._from(nodes)
        found: int | None = None
        for node in self.copies[end]:
            if self.graph.is_reached_since(node, nodes, entry):
                passed = self.graph.until_since(node, nodes, entry)
                found = passed if found is None else found & passed
        return found

    def behind(self, event: int) -> int:
        """The events that some path behind an event passes: at least those that an execution does.

        What guards a copy of it holds there, until it is computed anew.
        """
        text = self.graph.text
        found = 0
        seen: set[int] = set()
        for node in self.copies[event]:
            condition = text.conditions.get(node)
            if condition is None or node in condition.made:
                found |= _passed_from(self.graph, self.graph.successors[node], seen)
                continue
            given = self._graph(condition.value, holds=condition.holds)
            ends: set[int] = set()
            found |= _passed_from(given, given.successors[node], set(), ends)
            found |= _passed_from(self.graph, ends, seen)
        return found

    def with_copies(self, event: int, places: Iterable[int]) -> Facts:
        """The same, if these places (pcs) were copies of an event, executed on every path."""
        wanted = {*places}
        text = self.graph.text
        events = [
            (*now, event) if node.place in wanted and event not in now else now
            for node, now in zip(text.nodes, text.events, strict=True)
        ]
        certain = [
            now or node.place in wanted for node, now in zip(text.nodes, text.certain, strict=True)
        ]
        return Facts(text._replace(events=events, certain=certain), self._every)

    def _same(self, statement: Passing, node: int, event: int) -> int:
        """The events of the same node that stand before or behind an event."""
        events = self.graph.text.events[node]
        at = events.index(event)
        others = events[:at] if statement == "before" else events[at + 1 :]
        return sum(1 << one for one in others)

    def _by_case(
        self, statement: Passing, node: int, nodes: Sequence[int], value: Hashable,
        holding: bool,
    ) -> int:  # fmt: skip
        condition = self.graph.text.conditions.get(node)
        found = self._every
        for holds in (True,) if holding else (True, False):
            if (
                condition is None
                or condition.value != value
                or condition.holds == holds
                or node in condition.made
            ):
                found &= self._if(statement, node, nodes, value, holds)
        return found

    def _since_executed(self, node: int, nodes: Sequence[int]) -> int:
        """Between, where one condition guards all copies: it holds from one of them on, until its
        value is computed anew."""
        conditions = [self.graph.text.conditions.get(one) for one in nodes]
        first = conditions[0]
        if first is None or any(one != first for one in conditions):
            return 0
        if not first.made.isdisjoint(nodes):
            return 0
        given = self._graph(first.value, holds=first.holds)
        entry = given.since(nodes, {})
        made = {
            one: given.until_since(one, nodes, entry)
            for one in first.made
            if given.is_reached_since(one, nodes, entry)
        }
        plain = Graph(self.graph.text, self._every, made=first.made)
        return given.until_since(node, nodes, entry) & plain.until(node, plain.since_made(made))

    def _from_made_on(self, value: Hashable, made: Sequence[int]) -> dict[int, int]:
        """What every path passes from each place on where a value is made, that with it: by the
        cases of that value."""
        plain = {n: self.graph.onwards(n, self._after) | self.graph.bits(n) for n in made}
        cases = [self._graph(value, holds=holds) for holds in (True, False)]
        outs = [graph.after(plain) for graph in cases]
        found: dict[int, int] = {}
        for node in made:
            both = self._every
            for graph, out in zip(cases, outs, strict=True):
                both &= graph.onwards(node, out)
            found[node] = plain[node] | both
        return found

    def _graph(self, value: Hashable, *, holds: bool) -> Graph:
        if (value, holds) not in self._given:
            self._given[value, holds] = Graph(
                self.graph.text, self._every, value, holds=holds, made=self._made[value]
            )
        return self._given[value, holds]

    def _if(
        self, statement: Passing, node: int, nodes: Sequence[int], value: Hashable, holds: bool
    ) -> int:  # fmt: skip
        made = self._made[value]
        graph = self._graph(value, holds=holds)
        key = statement, value, holds, tuple(nodes) if statement == "between" else ()
        facts = self._cases.get(key)
        if facts is None:
            live = [one for one in made if one in self.graph.live]
            if statement == "before":
                facts = graph.before({n: self.graph.until(n, self._before) for n in live})
            elif statement == "after":
                facts = graph.after(self._from_made_on(value, live))
            else:
                entry = self._from(nodes)
                facts = graph.since(
                    nodes,
                    {
                        n: self.graph.until_since(n, nodes, entry)
                        for n in live
                        if self.graph.is_reached_since(n, nodes, entry)
                    },
                )
            self._cases[key] = facts
        if statement == "before":
            return graph.until(node, facts)
        if statement == "after":
            return graph.onwards(node, facts)
        return graph.until_since(node, nodes, facts)


def _passed_from(
    graph: Graph, starts: Iterable[int], seen: set[int], ends: set[int] | None = None
) -> int:
    """The events that paths from some nodes on can execute; ``ends`` gets the nodes behind those
    where the value of the graph is computed anew, from which on no path is followed."""
    found = 0
    todo = [*starts]
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        found |= graph.possible(node)
        if ends is not None and node in graph.made:
            ends |= {*graph.text.nodes[node].successors}
        else:
            todo += graph.successors[node]
    return found


def compare(
    ptx: Facts, sass: Facts, masks: Masks, both: int
) -> tuple[Mapping[RelationKind, int], list[Relation]]:
    """How many relations of each kind the PTX has between events that both texts have (``both``),
    and those that the SASS has not."""
    count: dict[RelationKind, int] = {"acquire": 0, "release": 0, "order": 0}
    missing: list[Relation] = []
    guards = {value: None for guards in ptx.guards.values() for value in guards}
    values = [*guards, *(one for one in ptx.branches if one == ELECTED and one not in guards)]
    for second in range(len(masks.kinds)):
        if not both >> second & 1:
            continue
        for statement in _PASSINGS:
            asked = [(kind, wanted & both) for kind, wanted in masks.asked(second, statement)]
            needed = ptx.passed(statement, second)
            if needed is None:
                continue
            if values:
                needed |= ptx.passed_by_cases(statement, second, values)
            have = sass.passed(statement, second)
            if have is None:
                continue
            for kind, wanted in asked:
                count[kind] += (needed & wanted).bit_count()
                lost = needed & wanted & ~have
                if lost:
                    holding = ELECTED if ptx.only_if(second, ELECTED) else None
                    lost &= ~_by_cases(sass, statement, second, lost, holding)
                missing += [Relation(kind, statement, first, second) for first in numbers(lost)]
        never = both & ~ptx.behind(second)
        behind = sass.behind(second) if never else 0
        for kind, wanted in masks.asked(second, "before"):
            before = wanted & never & ~(1 << second)
            count[kind] += before.bit_count()
            lost = before & behind
            missing += [Relation(kind, "never behind", first, second) for first in numbers(lost)]
    return count, missing


def _by_cases(sass: Facts, statement: Passing, second: int, lost: int, holding: Hashable) -> int:
    """What of these events the SASS passes, by cases of values: those of guards first."""
    guards: dict[Hashable, None] = dict.fromkeys(sass.guards[second])
    for first in numbers(lost):
        guards |= dict.fromkeys(sass.guards[first])
    found = sass.passed_by_cases(statement, second, guards, holding) if guards else 0
    if lost & ~found:
        others = [value for value in sass.branches if value not in guards]
        found |= sass.passed_by_cases(statement, second, others, holding) if others else 0
    return found


def numbers(events: int) -> Iterator[int]:
    """The events of a set."""
    while events:
        lowest = events & -events
        yield lowest.bit_length() - 1
        events ^= lowest
