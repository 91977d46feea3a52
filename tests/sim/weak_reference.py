"""PTX's memory model by its axioms, for small shapes: all candidate executions are enumerated.

Written from the text of the PTX ISA, chapter 8 (relations of 8.7 to 8.9, axioms of 8.10), and
sharing nothing with the simulator. An execution is, for each read, the write that it reads from,
for each word the order of its writes (coherence), and an order of ``fence.sc``. It is one of the
program if it fulfils the axioms; the program is wrong if some execution has a race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations, product

from tests.sim.weak_shapes import Fence, Get, Meet, Set, Shape, Step, Swap, Touch

Edges = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class _Event:
    """A step of a thread (-1: the word's initial value), or the store to data."""

    number: int
    thread: int
    step: Step | None
    word: str

    @property
    def reads(self) -> bool:
        return isinstance(self.step, Get | Swap)

    @property
    def writes(self) -> bool:
        return isinstance(self.step, Set | Swap) or self.thread < 0

    @property
    def weak(self) -> bool:
        """A store to data."""
        return self.thread >= 0 and (self.step is None or isinstance(self.step, Touch))

    @property
    def releases(self) -> bool:
        return isinstance(self.step, Set | Swap) and self.step.sem in ("release", "acq_rel")

    @property
    def acquires(self) -> bool:
        return isinstance(self.step, Get | Swap) and self.step.sem in ("acquire", "acq_rel")

    @property
    def fences(self) -> bool:
        return isinstance(self.step, Fence)


class Reference:
    """The executions of one shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        words = shape.words
        self.events = [_Event(n, -1, None, word) for n, word in enumerate(words)]
        self.data: dict[int, _Event] = {}
        for thread, body in enumerate(shape.threads):
            for step in body.steps:
                word = step.word if isinstance(step, Set | Get | Swap) else ""
                self.events.append(_Event(len(self.events), thread, step, word))
        for thread, body in enumerate(shape.threads):
            if body.enters is not None:
                event = _Event(len(self.events), thread, None, "data")
                self.events.append(event)
                self.data[thread] = event
        self.reads = [e for e in self.events if e.reads]
        self.writes = {w: [e for e in self.events if e.writes and e.word == w] for w in words}
        #: how often the thread of an event has met the others before it
        met = {
            e.number: sum(
                isinstance(other.step, Meet) for other in self.events
                if other.thread == e.thread and other.number < e.number
            )
            for e in self.events
        }  # fmt: skip
        #: program order, and what comes before a meeting and behind it
        self.order: Edges = frozenset(
            (a.number, b.number)
            for a in self.events for b in self.events
            if (a.thread < 0 <= b.thread) or (a.thread == b.thread >= 0 and a.number < b.number)
            or (a.thread >= 0 and b.thread >= 0 and met[a.number] < met[b.number])
        )  # fmt: skip

    def wrong(self) -> bool:
        """Whether some execution has a race."""
        return any(self.races(causes, values) for causes, values in self.executions())

    def executions(self) -> Iterator[tuple[Edges, dict[int, int]]]:
        """Of each, causality order and what each event has read."""
        fences = [e for e in self.events if isinstance(e.step, Fence) and e.step.sem == "sc"]
        sources = [[w for w in self.writes[r.word] if w is not r] for r in self.reads]
        coherence = [
            [(self.writes[word][0], *rest) for rest in permutations(self.writes[word][1:])]
            for word in self.writes
        ]
        for chosen in product(*sources):
            found = dict(zip((r.number for r in self.reads), chosen, strict=True))
            values = self._values(found)
            if values is None:
                continue  # a value out of thin air
            for orders in product(*coherence):
                places = {e.number: n for order in orders for n, e in enumerate(order)}
                if not self._coherent(found, places):
                    continue
                for fenced in permutations(fences):
                    causes = self._causality(found, fenced)
                    if causes is not None and self._agree(found, places, causes):
                        yield causes, values

    # ------------------------------------------------------------------ axioms

    def _values(self, found: dict[int, _Event]) -> dict[int, int] | None:
        """What each event reads, where an addition writes more than it has read (No-Thin-Air)."""
        read: dict[int, int] = {}
        left = list(found)
        while left:
            ready = [n for n in left if self._left(found[n], read) is not None]
            if not ready:
                return None
            for number in ready:
                left.remove(number)
                read[number] = self._left(found[number], read) or 0
        return read

    @staticmethod
    def _left(write: _Event, read: dict[int, int]) -> int | None:
        """What a write leaves; None if that is not known yet."""
        match write.step:
            case Swap(adds=True, value=value):
                return None if write.number not in read else read[write.number] + value
            case Set(value=value) | Swap(value=value):
                return value
            case _:
                return 0

    def _coherent(self, found: dict[int, _Event], places: dict[int, int]) -> bool:
        """Atomicity, of read-modify-writes that are morally strong with what they read."""
        return all(
            not isinstance(self.events[n].step, Swap)
            or places[n] == places[source.number] + 1
            for n, source in found.items()
        )  # fmt: skip

    def _causality(
        self, found: dict[int, _Event], fenced: tuple[_Event, ...]
    ) -> Edges | None:  # fmt: skip
        """Base causality with an observation before it (8.9.5); None if FenceSC is violated."""
        observed = self._observed(found)
        synchronises = {
            (first.number, last.number)
            for write, read in observed
            for first in self._release_patterns(write)
            for last in self._acquire_patterns(read)
            if self._strong(first, last)
        }
        ordered = {
            (a.number, b.number)
            for i, a in enumerate(fenced) for b in fenced[i + 1 :]
            if self._strong(a, b)
        }  # fmt: skip
        base = _closed(self.order | synchronises | ordered)
        if any(a == b for a, b in base):
            return None
        seen = {(w.number, r.number) for w, r in observed}
        return base | {(w, b) for w, r in seen for a, b in base if a == r} | seen

    def _observed(self, found: dict[int, _Event]) -> list[tuple[_Event, _Event]]:
        """Observation order (8.9.3): a read of the write, or of an RMW that has observed it."""
        result = []
        for number, source in found.items():
            after = read = self.events[number]
            write = source
            while self._strong(write, after):
                if write.thread >= 0:
                    result.append((write, read))
                if write.number not in found:
                    break
                after, write = write, found[write.number]
        return result

    def _release_patterns(self, write: _Event) -> Iterator[_Event]:
        """Where a release pattern on the word begins that ends with this write (8.8)."""
        if write.releases:
            yield write
        for before in self.events:
            earlier = before.thread == write.thread and before.number < write.number
            # a release, then a strong write to the same word; a fence, then a strong write
            if earlier and (before.fences or (before.releases and before.word == write.word)):
                yield before

    def _acquire_patterns(self, read: _Event) -> Iterator[_Event]:
        """Where an acquire pattern ends that begins with this read."""
        if read.acquires:
            yield read
        for after in self.events:
            later = read.thread == after.thread and read.number < after.number
            if later and (after.fences or (after.acquires and after.word == read.word)):
                yield after

    def _agree(self, found: dict[int, _Event], places: dict[int, int], causes: Edges) -> bool:
        """Coherence, SC-per-Location, and Causality."""
        communicates: set[tuple[int, int]] = set()
        for word, writes in self.writes.items():
            for a in writes:
                for b in writes:
                    if a is not b and places[a.number] < places[b.number]:
                        communicates.add((a.number, b.number))
            for number, source in found.items():
                if self.events[number].word == word:
                    communicates.add((source.number, number))
                    communicates |= {
                        (number, w.number) for w in writes
                        if places[w.number] > places[source.number] and w.number != number
                    }  # fmt: skip
        if any((b, a) in causes for a, b in communicates):
            return False
        same = {
            (a, b) for a, b in self.order
            if self.events[a].word == self.events[b].word != ""
            and self.events[a].thread in (-1, self.events[b].thread)
        }  # fmt: skip
        strong = {
            (a, b) for a, b in communicates if self._strong(self.events[a], self.events[b])
        }  # fmt: skip
        return all(a != b for a, b in _closed(frozenset(same | strong)))

    # ------------------------------------------------------------------ races

    def races(self, causes: Edges, values: dict[int, int]) -> bool:
        """Whether two threads enter, or accesses to a word are not morally strong, in no order."""
        entered = [e for t, e in self.data.items() if self._enters(t, values)]
        entered += [e for e in self.events if isinstance(e.step, Touch)]
        pairs = [
            (a, b) for i, a in enumerate(entered) for b in entered[i + 1 :] if a.thread != b.thread
        ]  # fmt: skip
        for word in self.writes:
            touch = [e for e in self.events if e.word == word and e.thread >= 0]
            pairs += [
                (a, b) for i, a in enumerate(touch) for b in touch[i + 1 :]
                if a.thread != b.thread and (a.writes or b.writes) and not self._strong(a, b)
            ]  # fmt: skip
        return any(
            (a.number, b.number) not in causes and (b.number, a.number) not in causes
            for a, b in pairs
        )

    def _enters(self, thread: int, values: dict[int, int]) -> bool:
        body = self.shape.threads[thread]
        held = {
            e.step.into: values[e.number] for e in self.reads
            if e.thread == thread and isinstance(e.step, Get | Swap)
        }  # fmt: skip
        return all(held[into] == value for into, value in body.enters or ())

    def _strong(self, a: _Event, b: _Event) -> bool:
        """Morally strong (8.7): both strong, and each scope has the other's thread."""
        if a.thread < 0 or b.thread < 0 or a.thread == b.thread:
            return True
        return not (a.weak or b.weak) and all(
            not self.shape.grid
            or (isinstance(e.step, Set | Get | Swap | Fence) and e.step.scope != "cta")
            for e in (a, b)
        )


def _closed(edges: Iterable[tuple[int, int]]) -> Edges:
    """The transitive closure."""
    after: dict[int, set[int]] = {}
    for a, b in edges:
        after.setdefault(a, set()).add(b)
    changed = True
    while changed:
        changed = False
        for reached in after.values():
            more = set().union(*(after.get(b, set()) for b in reached)) - reached
            if more:
                reached |= more
                changed = True
    return frozenset((a, b) for a, bs in after.items() for b in bs)
