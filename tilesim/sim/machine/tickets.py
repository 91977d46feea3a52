"""Which warp draws next from a counter (an ``atom.add`` whose result is used), in the timed policy.

Once the order of draws is fixed, the results are, and a run is as determinate as one without
counters: each draw comes after the one before. A run may be given the order. Then a warp that comes
to a draw waits until nothing else can move, and one of those that wait goes on.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.machine.schedule import Draw, Order, Word

if TYPE_CHECKING:
    from tilesim.sim.machine.warp import Agent


class Tickets:
    """The draws of one machine so far, and the warps that wait to draw."""

    def __init__(self, order: Order | None, warps: Sequence[Agent]) -> None:
        self._warps = warps
        self.drawn: list[Draw] = []
        #: for each draw, if the order was told, the next one in number of the warps that could have
        #: drawn instead
        self.contenders: list[int | None] = []
        self.alike: frozenset[int] = order.alike if order else frozenset()
        self._told = order is not None
        self._number = None if order is None else order.number
        self._places: dict[int, list[int]] = {}
        for place, warp in enumerate(order.warps if order else ()):
            self._places.setdefault(warp, []).append(place)
        self._waiting: dict[Agent, Word] = {}
        #: those that wait: as they are to draw, of one warp as they came; and by their numbers
        self._queue: list[tuple[bool, float, int, int, Agent]] = []
        self._came = 0
        self._indices: list[int] = []
        self._admitted: Agent | None = None
        self._last: Counter[Word] = Counter()
        #: by cluster: the word of which one of its warps is told to be the last
        self._worlds: dict[object, Word] = {}
        #: by word and warp, its draws: how many were made there before, by which agent, where
        self._draws: dict[Word, dict[int, list[tuple[int, Agent, int, int, int]]]] = {}
        #: by word and warp, how many draws were made there when it had drawn last
        self._seen: dict[tuple[Word, int], int] = {}
        #: by word, how many draws were made there
        self._count: Counter[Word] = Counter()
        #: by component, the warp that it is a position of, or -1
        self._owners: NDArray[np.int64] | None = None

    def holds_up(self, warp: Agent, word: Word) -> bool:
        """Whether ``warp`` has to wait before it draws from ``word``."""
        if not self._told or self._admitted is warp:
            self._admitted = None
            return False
        self._waiting[warp] = word
        self._came += 1
        heappush(self._queue, (*self._rank(warp), self._came, warp))
        insort(self._indices, warp.index)
        return True

    def admit(self) -> Agent | None:
        """Nothing else can move: which of those that wait may draw now."""
        if not self._waiting:
            return None
        *rank, came, warp = heappop(self._queue)
        while tuple(rank) != self._rank(warp):  # lanes of its warp have drawn since it came
            heappush(self._queue, (*self._rank(warp), came, warp))
            *rank, came, warp = heappop(self._queue)
        if warp.index in self.alike and not self._last[self._waiting[warp]]:
            word = self._waiting[warp]
            together = [w for w, at in self._waiting.items() if at == word]
            self._last[word] = len(together)
            self._worlds.update((w.cta.cluster, word) for w in together)
        del self._waiting[warp]
        places = self._places.get(warp.index)
        if places:
            del places[0]
        later = bisect_right(self._indices, warp.index)
        self.contenders.append(self._indices[later] if later < len(self._indices) else None)
        del self._indices[later - 1]
        self._admitted = warp
        return warp

    def _rank(self, warp: Agent) -> tuple[bool, float, int]:
        places = self._places.get(warp.index)
        return warp.index in self.alike, places[0] if places else float("inf"), warp.index

    def number(self, warp: Agent, tensor: str, word: Word, value: int) -> int:
        """What ``warp`` draws from a word that holds ``value``."""
        if self._number is not None:
            value = self._number
        elif warp.index in self.alike:
            # those of `alike` that draw before it have raised the word
            value += self._last[word] - 1
            self._last[word] -= 1
        self.drawn.append(Draw(warp.index, tensor, word, value))
        return value

    def led_to(self, warp: Agent, word: Word) -> bool:
        """Whether a draw from ``word`` that ``warp`` makes now comes because of an earlier one by
        another warp, and yet need not come after that one in memory: by PTX the earlier one may
        then find what it leaves ("load buffering"). A warp that has drawn behind that one before
        comes after it, as the word is coherent."""
        draws, size = self._draws.setdefault(word, {}), warp.machine.components.size
        seen = self._seen.get((word, warp.index), 0)
        for index in self._known(warp).intersection(draws):
            for number, drawer, component, tick, lanes in reversed(draws[index]):
                if number < seen:
                    break
                known = drawer.is_known(warp.clock, 0, component, tick, lanes)
                ordered = drawer.is_known(warp.clock, size, component, tick, lanes)
                if drawer is not warp and known and not ordered:
                    return True
        one = self._count[word], warp, warp.component, warp.tick, warp.mask
        draws.setdefault(warp.index, []).append(one)
        self._count[word] += 1
        self._seen[word, warp.index] = self._count[word]
        return False

    def _known(self, warp: Agent) -> set[int]:
        """The warps of which an agent comes after anything that they did."""
        if self._owners is None:
            self._owners = np.full(warp.machine.components.size, -1)
            for one in self._warps:
                own = one.parts.components
                self._owners[own] = one.index
        return {*self._owners[np.flatnonzero(warp.clock[: len(self._owners)])].tolist()}

    def apart(self, one: Agent, other: Agent) -> bool:
        """Whether the two are told what they cannot both be told."""
        world = self._worlds.get(one.cta.cluster)
        same = world is not None and world == self._worlds.get(other.cta.cluster)
        return same and one.cta.cluster is not other.cta.cluster
