"""Which warp draws next from a counter (an ``atom.add`` whose result is used), in the timed policy.

Once the order of draws is fixed, the results are, and a run is as determinate as one without
counters: each draw comes after the one before. A run may be given the order. Then a warp that comes
to a draw waits until nothing else can move, and one of those that wait goes on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tilesim.sim.machine.schedule import Draw, Order, Word

if TYPE_CHECKING:
    from tilesim.sim.machine.warp import Agent


class Tickets:
    """The draws of one machine so far, and the warps that wait to draw."""

    def __init__(self, order: Order | None) -> None:
        self.drawn: list[Draw] = []
        #: for each draw the warps that could have drawn, if the order was told
        self.contenders: list[tuple[int, ...]] = []
        self.alike: frozenset[int] = order.alike if order else frozenset()
        self._told = order is not None
        self._places: dict[int, list[int]] = {}
        for place, warp in enumerate(order.warps if order else ()):
            self._places.setdefault(warp, []).append(place)
        self._waiting: dict[Agent, Word] = {}
        self._admitted: Agent | None = None
        self._last: Counter[Word] = Counter()
        #: by cluster: the word of which one of its warps is told to be the last
        self._worlds: dict[object, Word] = {}
        #: by word, the warps that have drawn, at which position; and up to which of them a warp
        #: has come after
        self._draws: dict[Word, list[tuple[Agent, int, int, int]]] = {}
        self._seen: dict[tuple[Word, int], int] = {}

    def holds_up(self, warp: Agent, word: Word) -> bool:
        """Whether ``warp`` has to wait before it draws from ``word``."""
        if not self._told or self._admitted is warp:
            self._admitted = None
            return False
        self._waiting[warp] = word
        return True

    def admit(self) -> Agent | None:
        """Nothing else can move: which of those that wait may draw now."""
        if not self._waiting:
            return None
        warp = min(self._waiting, key=self._rank)
        if warp.index in self.alike and not self._last[self._waiting[warp]]:
            word = self._waiting[warp]
            together = [w for w, at in self._waiting.items() if at == word]
            self._last[word] = len(together)
            self._worlds.update((w.cta.cluster, word) for w in together)
        del self._waiting[warp]
        places = self._places.get(warp.index)
        if places:
            del places[0]
        self.contenders.append((warp.index, *sorted(w.index for w in self._waiting)))
        self._admitted = warp
        return warp

    def _rank(self, warp: Agent) -> tuple[bool, float, int]:
        places = self._places.get(warp.index)
        return warp.index in self.alike, places[0] if places else float("inf"), warp.index

    def number(self, warp: Agent, tensor: str, word: Word, value: int) -> int:
        """What ``warp`` draws from a word that holds ``value``."""
        if warp.index in self.alike:
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
        before, size = self._draws.setdefault(word, []), warp.machine.components.size
        for drawer, component, tick, lanes in before[self._seen.get((word, warp.index), 0) :]:
            known = drawer.is_known(warp.clock, 0, component, tick, lanes)
            ordered = drawer.is_known(warp.clock, size, component, tick, lanes)
            if drawer is not warp and known and not ordered:
                return True
        before.append((warp, warp.component, warp.tick, warp.mask))
        self._seen[word, warp.index] = len(before)
        return False

    def apart(self, one: Agent, other: Agent) -> bool:
        """Whether the two are told what they cannot both be told."""
        world = self._worlds.get(one.cta.cluster)
        same = world is not None and world == self._worlds.get(other.cta.cluster)
        return same and one.cta.cluster is not other.cta.cluster
