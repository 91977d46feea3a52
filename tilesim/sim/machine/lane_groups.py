"""The parts of a warp: lanes that have not been ordered since their ways parted (MACHINE 2).

Only `bar.warp.sync`, and barriers that both have passed, order what the lanes of a warp do. A warp
is one part as long as it acts as one. Where a branch splits it, each part gets a clock of its own:
what it knows, and whose it is. All parts know what the warp had done up to its last
synchronisation; of what came after that, each knows its own. That others learn of a part's accesses
is therefore seen at the part's component; what all lanes did before they parted, at the components
of all parts that have come of it.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Protocol

import numpy as np

from tilesim.records import dataclass
from tilesim.sim.machine.clock import SHARED, Clock, Components, join, limited
from tilesim.sim.machine.errors import Fault
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.release import Fences

#: partings of one component that are remembered
_REMEMBERED = 256


@dataclass(slots=True)
class Part:
    """Lanes that act as one: their clock, whose own component is ``component``.

    ``settled``: by components of the warp, up to where all of these lanes know what they have done.
    """

    mask: int
    component: int
    clock: Clock
    fences: Fences
    settled: dict[int, int]


@dataclass(frozen=True, slots=True)
class Parting:
    """A part was split: what its lanes did in ticks ``since + 1`` to ``until`` of its component is
    known to those that know the first tick of the parts that these lanes then belonged to.

    ``until`` is per row of a clock: up to there, proxy fences have handed it over.
    """

    since: int
    until: tuple[int, ...]
    parts: tuple[tuple[int, int, int], ...]  #: lanes, component, first tick


class Owner(Protocol):
    """What there is to know of the warp whose lanes are divided."""

    base: int
    component: int
    clock: Clock
    fences: Fences
    settled: dict[int, int]
    marks: dict[int, int]
    moments: dict[int, int]
    followed: dict[int, int]
    components: Components

    @property
    def fences_by_lane(self) -> bool:
        """Fences act for relaxed operations of their own thread only, also after a meeting."""
        ...

    @property
    def group_components(self) -> list[int]:
        """Components that publish which copies of its lanes are complete, and its inits."""
        ...

    def act_as_one(self, part: Part) -> None:
        """All lanes have met: the warp is one part again."""
        ...


class Parts:
    """How the lanes of one warp are divided, and what there is to know of it later."""

    def __init__(self, warp: Owner, spares: list[int]) -> None:
        self._warp = warp
        #: components that no part has, and up to which tick one had them before
        self._spares = dict.fromkeys(spares, 0)
        #: the parts there are now; a single one if the warp acts as one
        self.leaves: list[Part] = []
        #: parts that have been split since the last synchronisation of all of their lanes
        self._split: list[Part] = []
        #: by component, the latest last
        self._partings: dict[int, deque[Parting]] = {}
        self._top = 0

    @property
    def components(self) -> list[int]:
        """All components of the warp's parts, whether one has them now or not."""
        own = (part.component for part in (*self.leaves, *self._split))
        return sorted({self._warp.base, *self._spares, *own})

    @property
    def _size(self) -> int:
        """Entries of a row of a clock."""
        return self._warp.components.size

    def divide(self, mask: int) -> list[Part]:
        """The parts that the lanes of ``mask`` are; other lanes become parts of their own."""
        if not self.leaves:
            w = self._warp
            self._top = int(w.clock[w.component])
            self.leaves.append(Part(FULL, w.component, w.clock, w.fences, w.settled))
        for part in [p for p in self.leaves if p.mask & mask and p.mask & ~mask]:
            self._part(part, [part.mask & mask, part.mask & ~mask])
        return [p for p in self.leaves if p.mask & mask]

    def shatter(self, mask: int) -> list[Part]:
        """Each lane of ``mask`` becomes a part of its own."""
        for part in self.divide(mask):
            lanes = [1 << n for n in range(32) if part.mask >> n & 1]
            if len(lanes) > 1:
                self._part(part, lanes)
        return sorted((p for p in self.leaves if p.mask & mask), key=lambda p: p.mask)

    def _part(self, part: Part, masks: list[int]) -> None:
        """Splits a part: of each other, its lanes then know what is settled."""
        size = self._size
        known = {c: part.clock[c::size].tolist() for c in part.settled}
        children = [self._child(part, mask) for mask in masks]
        self.leaves.remove(part)
        self.leaves += children
        self._split.append(part)
        starts = tuple((c.mask, c.component, c.settled[c.component] + 1) for c in children)
        since = part.settled[part.component]
        # a clock that knows the first tick of a child in such a row knows it by way of the other
        # one (H10)
        begun = [
            (row, first)
            for row, first in self._warp.components.begun
            if part.clock[row * size + part.component] <= since
        ]
        for component, rows in known.items():
            if component != part.component:
                rows[0] = rows[1]  # what is known of copies is known in memory
            for row, first in begun:
                rows[row] = max(rows[row], rows[first])
            if rows[0] > part.settled[component]:
                self._remember(component, Parting(part.settled[component], tuple(rows), starts))

    def _remember(self, component: int, parting: Parting) -> None:
        self._partings.setdefault(component, deque(maxlen=_REMEMBERED)).append(parting)

    def note_waited(self, part: Part, component: int, number: int, *, both: bool) -> None:
        """The lanes of ``part`` have waited for their copies among the first ``number`` there,
        which other lanes made as well; ``both`` proxies know what these have left."""
        rows = part.clock[part.component :: self._size]
        until = (number, number, *((number if both else 0) for _ in rows[SHARED:]))
        start = (part.mask, part.component, int(rows[0]))
        self._remember(component, Parting(0, until, (start,)))

    def _child(self, part: Part, mask: int) -> Part:
        component = self._spare(part)
        clock = limited(part.clock, part.settled, self._size)
        # in time it comes after what all of them had done, although it knows less of memory
        done = self._warp.followed.get(part.component, 0)
        clock[part.component] = max(clock[part.component], done)
        own = part.fences.of(mask)
        fences = own.mapped(lambda known: self._fenced(part, component, known))
        settled = {c: tick for c, tick in part.settled.items() if c != part.component}
        child = Part(mask, component, clock, fences, settled)
        self.advance(child)
        settled[component] = self._top - 1
        size = self._size
        for row in range(SHARED * size, len(clock), size):
            if part.clock[row + part.component] > part.settled[part.component]:
                clock[row + component] = self._top
        self.advance(child)
        marks = self._warp.marks
        if marks.get(part.component, 0) > part.settled[part.component]:
            # what knows the first tick knows what these lanes did before
            marks[component] = settled[component] + 1
        moments = self._warp.moments
        if moments.get(part.component, 0) > max(part.settled[part.component], done):
            moments[component] = settled[component] + 1
        return child

    def _fenced(self, part: Part, component: int, known: Clock) -> Clock:
        """What a fence of ``part`` hands over in those of its lanes that go on at ``component``."""
        clock, size = limited(known, part.settled, self._size), self._size
        since, marks, moments = part.settled[part.component], self._warp.marks, self._warp.moments
        last = marks.get(part.component, 0), moments.get(part.component, 0)
        for row in range(0, len(clock), size):
            # all that they did before they parted, where they have done nothing since the fence
            if known[row + part.component] >= max(last[0] if row else max(last), since + 1):
                clock[row + component] = self._top + 1
        return clock

    def _spare(self, part: Part) -> int:
        """A component for a child: what knows the child knows all that was done there before."""
        clock, size = part.clock, self._size
        since = part.settled[part.component]
        others = range(SHARED * size, len(clock), size)
        rows = [0, size, *(row for row in others if clock[row + part.component] > since)]
        for component, last in reversed(self._spares.items()):
            if all(clock[row + component] >= last for row in rows):
                del self._spares[component]
                return component
        raise Fault(
            "lanes of a warp that part again and again before all of them have met, each time in "
            "other groups, are not modelled. Let all lanes meet in between (bar.warp.sync -1, "
            "k.sync_warp()), or divide them in the same way each time"
        )

    def advance(self, part: Part) -> None:
        """Starts a new interval of a part; ticks of a warp's parts are all different."""
        size = self._size
        self._top += 1
        part.clock[part.component] = part.clock[size + part.component] = self._top

    def together(self, mask: int) -> Part:
        """What all lanes of ``mask`` have published when each of them does."""
        parts = self.divide(mask)
        clock = parts[0].clock.copy()
        for part in [*parts[1:], *(p for p in self._split if not p.mask & ~mask)]:
            join(clock, part.clock)
        fences = Fences()
        for part in parts:
            fences.learn(part.fences)
        return Part(mask, parts[0].component, clock, fences, {})

    def common(self, mask: int) -> Clock:
        """What each lane of ``mask`` knows."""
        clocks = [part.clock for part in self.divide(mask)]
        clock: Clock = np.minimum.reduce(clocks)
        return clock

    def synchronise(self, mask: int) -> Part | None:
        """The lanes of ``mask`` meet; what they are then, None if that is the warp as one."""
        if self._warp.fences_by_lane:
            self._tell_fences_apart(mask)
        merged = self.together(mask)
        if self._warp.fences_by_lane:
            merged.fences = self._fences_of_each(mask)
        over = [p for p in (*self.leaves, *self._split) if not p.mask & ~mask]
        self.leaves = [p for p in self.leaves if p.mask & ~mask]
        self._split = [p for p in self._split if p.mask & ~mask]
        base = self._warp.base
        components = {p.component: int(p.clock[p.component]) for p in over}
        merged.component = base if base in components else over[0].component
        self._spares |= {c: tick for c, tick in components.items() if c != merged.component}
        self.advance(merged)
        size = self._size
        merged.settled = {c: int(merged.clock[size + c]) for c in self._warp.group_components}
        merged.settled[merged.component] = self._top - 1
        if not self.leaves and merged.component == base:
            self._warp.act_as_one(merged)
            return None
        self.leaves.append(merged)
        return merged

    def _tell_fences_apart(self, mask: int) -> None:
        """Lanes that have fenced together what each has done become parts, if there may be so
        many: after their meeting, the fence of one does not cover what others did."""
        for part in self.divide(mask):
            lanes = part.mask.bit_count()
            if (
                lanes > 1
                and 2 * lanes <= len(self._spares) + 2
                and part.fences.differ(partial(limited, settled=part.settled, size=self._size))
            ):
                self.shatter(part.mask)

    def _fences_of_each(self, mask: int) -> Fences:
        """The fences of lanes that meet, each for itself."""
        parts, size = [p for p in self.leaves if p.mask & mask], self._size
        each = [
            (p.mask, p.fences.of_each(partial(limited, settled=p.settled, size=size)))
            for p in parts
        ]
        if len(each) == 1:
            return each[0][1]
        fences = Fences()
        for lanes, own in each:
            fences.add(lanes, own)
        return fences

    def released(self, clock: Clock, component: int, tick: int) -> tuple[int, int]:
        """Lanes that made an access which ``clock`` does not know, and those of them that have
        released since to the one that has this clock, be it as parts of a part."""
        for parting in self._partings.get(component, ()):
            if parting.since < tick <= parting.until[0]:
                made = released = 0
                for mask, then, first in parting.parts:
                    made |= mask
                    known = clock[then] >= first
                    released |= mask if known else mask & self.released(clock, then, first)[1]
                return made, released
        return 0, 0

    def acquired(self, entry: int, tick: int) -> int:
        """The lanes whose clock has an entry at ``tick`` or later."""
        found = 0
        for part in self.leaves:
            if part.clock[entry] >= tick:
                found |= part.mask
        return found

    def lanes_known(self, clock: Clock, row: int, component: int, tick: int, lanes: int) -> bool:
        """Whether ``clock`` (from ``row`` on) knows what all of ``lanes`` did at a tick of one of
        the warp's components, be it through the parts that they have belonged to since."""
        if clock[row + component] >= tick:
            return True
        for parting in self._partings.get(component, ()):
            if parting.since < tick <= parting.until[0]:
                covered = tick <= parting.until[row // self._size]
                for mask, then, first in parting.parts:
                    since = first + (not covered)
                    if mask & lanes and self.lanes_known(clock, row, then, since, lanes & mask):
                        lanes &= ~mask
        return not lanes
