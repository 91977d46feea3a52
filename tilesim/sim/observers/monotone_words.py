"""Words of memory that only grow, and waits for them: when one run proves what they order.

The words of a tensor are counters if every access to them is a wait
(`tilesim.transforms.word_waits`), a reduction by add, or a scalar store (or an exchange whose
result is not used); single words of a tensor may be counters as well.

An increment is a reduction by add, or a store of a larger value. A wait passes when the word has
reached a value. ``G`` of a wait is the increments up to the one that reaches it, in the order of
the run. In every schedule the wait passes when all of ``G`` are made and not before, if

* A: every other increment has all of ``G`` in its past,
* no part of ``G`` that is closed under the past reaches the value, except the whole,
* C: an increment that has not the wait in its past does not make a sum with which it would not
  pass any more, not with all others that need not come after it either.

A word holds the sum modulo two to the power of its bits. So the values with which a wait passes
come again and again; it waits for the first of them that is not below what its past has made.

The lanes of one instruction add one by one, in no order. Where any one of them may be left out of
the last step of ``G``, a wait passes when enough of them are made; all else holds as it is. It is
unknown which of them it has seen, so it learns of that step what each of its lanes releases.

Then the wait learns what ``G`` released, and what the increments released that were in its past
anyway; not what others may have released before it in this run. A wait whose past reaches the value
by itself passes at once. A store comes after all increments before it and is in the past of all
after it. Stores of other values begin a new life of the word: everything before is in their past,
and they are in the past of everything after.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.preimage import Spans, next_run
from tilesim.analysis.taint import aliases, at_addresses, reached, tensors_read, tensors_written
from tilesim.ir.declarations import Mbarriers
from tilesim.ir.effects import Effect, Reads, Writes
from tilesim.ir.expr import constant
from tilesim.ir.mir import Instruction, Mir
from tilesim.ir.op import Op
from tilesim.ir.scalars import WordAccess, word_access, word_accesses
from tilesim.records import dataclass, field
from tilesim.sim.machine.release import Released, add
from tilesim.transforms.word_waits import INTEGERS, WordWait

if TYPE_CHECKING:
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.warp import Agent


@dataclass(slots=True)
class Increment:
    """A step of a counter: which warp made it when, and how many of those before it were in its
    past.

    ``least`` and ``most`` are the smallest and the largest amount that one lane adds; ``own`` what
    the step publishes, after a ``store`` alone, else besides what was published before; ``each``
    what each of its lanes does, None if that is not known.
    """

    component: int
    tick: int
    known: int
    least: int
    own: Released
    store: bool
    most: int = 0
    each: Released | None = None


@dataclass(slots=True)
class _Stop:
    """A wait at ``tick`` that does not pass with a sum of ``at``. ``later`` is added by increments
    that have it in their past, and not the next wait of the same warp."""

    at: int
    tick: int
    later: int = 0


@dataclass(slots=True)
class _Life:
    """A counter from one store that resets it to the next; ``born`` is that store's position."""

    sums: list[int]
    base: Released
    born: tuple[int, int] | None = None
    increments: list[Increment] = field(default_factory=list)
    #: the least amount that one lane has added in so many of them, from the first one on
    least: list[int] = field(default_factory=list)
    #: by component: the ticks of its increments, and how many came before each
    ticks: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    #: a column per component: the ticks of its last two increments, and how many came before the
    #: last one
    latest: NDArray[np.int64] | None = None
    #: so many increments every further one must have in its past (condition A)
    needed: int = 0
    #: increments after which a waiter may learn less than before
    lossy: int = 0
    #: by component: the last wait; and those that some greater sum would keep from passing
    waits: dict[int, int] = field(default_factory=dict)
    #: by warp and component: the tick of its last increment there, and the lanes that made it
    made: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    stops: dict[int, list[_Stop]] = field(default_factory=dict)
    #: by component, the tick of the last of these, or -1; and the least sum that keeps one of them
    #: from passing
    stopped: NDArray[np.int64] | None = None
    lowest: int = 0
    joined: tuple[int, Released] | None = None

    def waited(self, warp: Agent) -> bool:
        """Whether each lane of ``warp`` comes after all waits."""
        return all(warp.passed(*wait) for wait in self.waits.items())


class Counter:
    """One word; ``holds`` is False as soon as a condition fails, and then nothing else counts.

    ``bits`` is how many it has; values are unsigned. ``crowded``: several lanes of one instruction
    wrote it, or some write while others wait, in turns that no move of the machine shows.
    ``open``: it lies beside words that do something else, and no wait has seen it so far.
    """

    def __init__(self, value: int, bits: int, *, open: bool = False) -> None:
        self.crowded = False
        self.open = open
        #: the least value that the last wait finds in any schedule
        self.seen = value
        self.holds = True
        self._size = 1 << bits
        #: whether what additions find is used; None before the first one
        self._drawn: bool | None = None
        #: by warp: the last wait of several of its lanes
        self._looked: dict[int, tuple[int, int]] = {}
        self._life = _Life([value], {})

    @property
    def value(self) -> int:
        """What the word holds by this account."""
        return self._life.sums[-1] % self._size

    def looks(self, warp: Agent) -> None:
        """Lanes of ``warp`` have waited."""
        if warp.lanes > 1:
            self._looked[warp.index] = warp.component, warp.tick

    def writes(self, warp: Agent, lanes: int) -> None:
        """So many lanes of ``warp`` write, while others of it may still wait."""
        position = self._looked.get(warp.index)
        lag = position is not None and not warp.passed(*position)
        self.crowded |= lag or lanes > 1

    # ------------------------------------------------------------------ writes

    def add(
        self, warp: Agent, amounts: Sequence[int], own: Released, each: Released | None = None
    ) -> None:
        """Each lane of ``warp`` adds its amount; all publish ``own``, and each of them ``each``."""
        known, after = self._known(warp, warp.clock), self._life.sums[-1] + sum(amounts)
        self.holds = (
            self._drawn is not True
            and self._alive(warp.clock)
            and self._grows(amounts)
            and self._after_groups(known)
            and self._after_waits(warp, after, sum(amounts))
        )
        step = Increment(
            warp.component, _tick(warp), known, min(amounts), own, store=False, most=max(amounts),
            each=each,
        )  # fmt: skip
        self._append(warp, step, after)
        self._drawn = False

    def draw(self, warp: Agent, before: Clock, amount: int, own: Released) -> None:
        """``warp`` adds and uses what it finds; it knows what all that drew before it knew.

        ``before``: what it knew without that. A draw that is the first after a store has to know
        that one, and no other addition has a place in the order of draws.
        """
        known, after = self._known(warp, warp.clock), self._life.sums[-1] + amount
        self.holds = (
            self._drawn is not False
            and self._since_store(before)
            and self._after_lanes(warp, before)
            and self._grows((amount,))
            and after < self._size // 2
            and self._after_groups(known)
            and self._after_waits(warp, after, amount)
        )
        step = Increment(warp.component, warp.tick, known, amount, own, store=False)
        self._append(warp, step, after)
        self._drawn = True

    def draw_up_to(self, warp: Agent, before: Clock, limit: int, own: Released) -> None:
        """The same by ``atom.inc``: it adds 1, or begins a new life with 0 from ``limit`` on."""
        if self.value < limit:
            self.draw(warp, before, 1, own)
            return
        life = self._life
        self.holds = (
            self._drawn is not False
            and self._since_store(before)
            and self._after_lanes(warp, before)
            and self._last(self._known(warp, warp.clock))
            and life.waited(warp)
        )
        self._life = _Life([0], own, (warp.component, warp.tick))
        self._drawn = True

    def draw_after(
        self, warp: Agent, first: int, stop: int, amount: int, own: Released
    ) -> Released | None:
        """``warp`` adds and uses what it finds, as far as that is ``first`` or more and less than
        ``stop``.

        It is not less in every schedule if the additions up to there are in its past. It is less
        than ``stop`` if all of this round but any one of them make less, or all others come before
        the one that makes more: later ones have these in their past for the same reason. Returns
        what the additions before the round released; None if that depends on the schedule.
        """
        past, sums, steps = warp.clock, self._life.sums, self._life.increments
        turn = sums[-1] - self.value
        first, stop, after = first + turn, stop + turn, sums[-1] + amount
        known, place = self._known(warp, past), bisect_left(sums, first)
        least = min((step.least for step in steps[place:]), default=amount)
        self.holds = known >= place and (self._last(known) or after - least < stop)
        if not self.holds:
            return None
        released = self._learned(warp, place, past)
        self.add(warp, (amount,), own)
        return released if self.holds else None

    def store(self, warp: Agent, values: Sequence[int], own: Released | None) -> None:
        """A lane of ``warp`` stores a value; ``own`` is None for a weak store."""
        life, known, value = self._life, self._known(warp, warp.clock), values[0]
        if len(values) > 1 or not self._last(known) or not self._alive(warp.clock):
            self.holds = False
        elif own is None or value <= self.value:
            self.holds = life.waited(warp)
            self._life = _Life([value], own or {}, (warp.component, _tick(warp)))
        else:
            amount = value - self.value
            after = life.sums[-1] + amount
            self.holds = self._after_waits(warp, after, amount)
            before = self._released(known)
            step = Increment(warp.component, _tick(warp), known, amount, own, store=True)
            self._append(warp, step, after)
            life.needed = len(life.increments)
            if not _covers(own, before):
                life.lossy = life.needed
                self.holds = self.holds and life.waited(warp)

    def _since_store(self, clock: Clock) -> bool:
        """Whether the last store, if no draw has come since, is in the past."""
        steps = self._life.increments
        if not steps:
            return self._alive(clock)
        return not steps[-1].store or bool(clock[steps[-1].component] >= steps[-1].tick)

    def _after_lanes(self, warp: Agent, before: Clock) -> bool:
        """Whether a draw comes after those by other lanes of its warp, without what they tell it:
        the orders that are tried are orders of warps."""
        made = self._life.made.get(warp.index, {})
        return all(
            warp.comes_after(warp.component, before, component, tick, lanes)
            for component, (tick, lanes) in made.items()
        )

    def _grows(self, amounts: Sequence[int]) -> bool:
        return all(a > 0 for a in amounts)

    def _last(self, known: int) -> bool:
        """Whether all increments are in the past of a store that knows so many."""
        return known == len(self._life.increments)

    def _after_groups(self, known: int) -> bool:
        """Condition A for an increment after the wait."""
        return known >= self._life.needed

    def _after_waits(self, warp: Agent, after: int, amount: int) -> bool:
        """Condition C for an increment by ``amount`` that makes the sum ``after``."""
        life = self._life
        if life.stopped is None:
            return True
        past = _of_each_lane(warp, warp.clock[: len(life.stopped)])
        unknown = past < life.stopped
        for component in np.flatnonzero(~unknown & (life.stopped >= 0)).tolist():
            life.stops[component][-1].later += amount
        if after < life.lowest:
            return True
        for component in np.flatnonzero(unknown).tolist():
            known, later = past[component], 0
            for stop in reversed(life.stops[component]):
                later += stop.later
                if known >= stop.tick:
                    break
                if after - later >= stop.at:
                    return False
        return True

    def _append(self, warp: Agent, step: Increment, after: int) -> None:
        life = self._life
        life.made.setdefault(warp.index, {})[step.component] = step.tick, warp.mask
        ticks, places = life.ticks.setdefault(step.component, ([], []))
        ticks.append(step.tick)
        places.append(len(life.increments))
        if life.latest is None:
            life.latest = np.zeros((3, warp.machine.components.size), dtype=np.int64)
        before = ticks[-2] if len(ticks) > 1 else 0
        life.latest[:, step.component] = before, step.tick, len(life.increments)
        life.least.append(min(step.least, life.least[-1]) if life.least else step.least)
        life.increments.append(step)
        life.sums.append(after)

    # ------------------------------------------------------------------ waits

    def wait(
        self, warp: Agent, past: Clock, passing: Spans, value: int, *, kept: bool = False
    ) -> Released | None:
        """``warp`` passes, which had ``past`` before the wait and finds ``value``.

        ``passing``: the values with which it passes. ``kept``: it does not wait if what it found
        the last time is one of them. Returns what it learns of in every schedule; None if that
        depends on the schedule.
        """
        life, place, some = self._life, self._known(warp, past), False
        least = life.sums[place]
        run = next_run(passing, least, self._size)
        self.holds = run is not None and self._alive(past) and value == self.value
        if run is None or not self.holds:
            return None
        goal, stop = run
        if least < goal:
            place = bisect_left(life.sums, goal)
            some = place < len(life.sums) and self._any_lanes(place, goal)
            self.holds = place < len(life.sums) and (some or self._just(place, goal))
            # condition A for increments before the wait
            self.holds = self.holds and all(s.known >= place for s in life.increments[place:])
            life.needed = max(life.needed, place)
        rises = not kept or life.sums[-1] < stop
        self.holds = self.holds and rises and place >= life.lossy
        if not self.holds:
            return None
        self._note_wait(warp, stop)
        # of lanes that add one by one, as few as are needed
        self.seen = (goal if some else life.sums[place]) % self._size
        return self._learned(warp, place, past, some=some)

    def _note_wait(self, warp: Agent, stop: int) -> None:
        life = self._life
        life.waits[warp.component] = warp.tick
        if life.stopped is None:
            life.stopped = np.full(warp.machine.components.size, -1, dtype=np.int64)
            life.lowest = stop
        life.lowest = min(life.lowest, stop)
        life.stopped[warp.component] = warp.tick
        stops = life.stops.setdefault(warp.component, [])
        while stops and stops[-1].at >= stop:
            stops.pop()  # it came earlier, and says nothing more
        stops.append(_Stop(stop, warp.tick))

    def _just(self, place: int, goal: int) -> bool:
        """Whether no part of the first increments reaches ``goal`` without all of them."""
        life = self._life
        last = life.increments[place - 1]
        least = last.least if last.known == place - 1 else life.least[place - 1]
        return life.sums[place] - least < goal

    def _any_lanes(self, place: int, goal: int) -> bool:
        """Whether the last of so many increments, which comes after the others, reaches ``goal``
        without any one of its lanes, so that it is unknown which of them a wait has seen."""
        last = self._life.increments[place - 1]
        enough = self._life.sums[place] - last.most >= goal
        return enough and last.known == place - 1 and last.each is not None

    def _learned(
        self, warp: Agent, place: int, past: Clock, *, some: bool = False
    ) -> Released:  # fmt: skip
        """What ``place`` increments released, ``some`` lanes only of the last one, and those that
        were in the past of the wait."""
        released = self._released(place - some)
        if some:
            released = {key: clock.copy() for key, clock in released.items()}
            _merge(released, self._life.increments[place - 1].each or {})
        extra = [
            step
            for step in self._life.increments[place:]
            if past[step.component] >= step.tick
            and (step.component != warp.component or warp.common >= step.tick)
        ]
        if not extra:
            return released
        result = {key: clock.copy() for key, clock in released.items()}
        for step in extra:
            _merge(result, step.own)
        return result

    def _released(self, place: int) -> Released:
        """What is published after so many increments: a store ends what was before."""
        life = self._life
        start, before = 0, life.base
        if life.joined is not None and life.joined[0] <= place:
            start, before = life.joined
            if start == place:
                return before
        result = {key: clock.copy() for key, clock in before.items()}
        for step in life.increments[start:place]:
            if step.store:
                result.clear()
            _merge(result, step.own)
        life.joined = (place, result)
        return result

    # ------------------------------------------------------------------ the past

    def _alive(self, clock: Clock) -> bool:
        """Whether the store that began this life is in the past."""
        born = self._life.born
        return born is None or bool(clock[born[0]] >= born[1])

    def _known(self, warp: Agent, clock: Clock) -> int:
        """How many increments, from the first on, each lane of ``warp`` with this clock has in its
        past without a gap."""
        life, first = self._life, len(self._life.increments)
        if life.latest is None:
            return first
        before, last, place = life.latest
        row = _of_each_lane(warp, clock[: len(last)])
        missing = row < last
        # of most that have one more in the past than it knows, that is the last one
        several = missing & (row < before)
        for component in np.flatnonzero(several).tolist():
            ticks, places = life.ticks[component]
            first = min(first, places[bisect_right(ticks, row[component])])
        missing &= ~several
        if missing.any():
            first = min(first, int(place[missing].min()))
        return first


def _tick(warp: Agent) -> int:
    """The interval of a write: lanes at different words do not come after each other."""
    return warp.tick + warp.apart


def _of_each_lane(warp: Agent, row: Clock) -> Clock:
    """Of this row of a clock of ``warp``, what each of its lanes has in its past."""
    own, common = warp.component, warp.common
    if row[own] > common:
        row = row.copy()
        row[own] = common
    return row


def _merge(released: Released, own: Released) -> None:
    for key, clock in own.items():
        add(released, key, clock)


def _covers(more: Released, less: Released) -> bool:
    """Whether what learns ``more`` learns all of ``less``."""
    return all(key in more and bool((more[key] >= clock).all()) for key, clock in less.items())


# ------------------------------------------------------------------ which words only count


def counters(mir: Mir, found: Mapping[int, WordWait]) -> frozenset[str]:
    """Integer tensors of which every access is a wait, an ``atom.add``, or a scalar store.

    Either no addition to a word uses what it finds there, or all of them do: they draw numbers.
    Where no thread waits, ``atom.inc`` draws them as well.
    """
    kernel = mir.kernel
    drawing = ticket_tensors(mir)
    polled = {w.poll.view.tensor.name for w in found.values()}
    names = {
        tensor.name
        for tensor in (*kernel.tensors, *kernel.shared)
        if not isinstance(tensor, Mbarriers) and tensor.dtype.kind in INTEGERS
    } & (polled | drawing)
    names -= {name for pair in (*aliases(kernel), *reached(mir)) for name in pair}
    names -= _of_several_sizes(mir)
    for number, effects in enumerate(mir.effects):
        touched = {n for e in effects for n in (*tensors_read(e), *tensors_written(e))} & names
        if touched and number not in found and not _counts(effects):
            names -= touched - (_incremented(effects) - polled)
    return frozenset(names)


def counting_words(
    mir: Mir, found: Mapping[int, WordWait], whole: frozenset[str]
) -> frozenset[int]:
    """Instructions that count at words of the CTA's own shared memory, of which other words hold
    other things: waits, additions and exchanges whose result is not used, scalar stores.

    Of tensors whose words all count (``whole``) `counters` says more. Empty if there is no wait for
    such a word, or allocations overlap.
    """
    if any(True for _ in aliases(mir.kernel)):
        return frozenset()

    def counted(access: WordAccess | None) -> bool:
        return (
            access is not None
            and access.element is None
            and access.view.space == "shared"
            and not access.view.remote
            and access.view.dtype.kind in INTEGERS
            and access.view.tensor.name not in whole
        )

    polls = {number for number, wait in found.items() if counted(wait.poll)}
    if not polls:
        return frozenset()
    written = (
        number
        for number, access in enumerate(word_accesses(mir))
        if access is not None
        and counted(access)
        and (access.stores or (access.combine in ("add", "exch") and access.result is None))
    )
    return frozenset(polls.union(written))


def polls_memory(instruction: Instruction) -> bool:
    """Whether an instruction reads a word of global memory that others may change."""
    what = instruction.what
    access = word_access(what.effects()) if isinstance(what, Op) else None
    if access is None or access.result is None or access.view.space == "shared":
        return False
    if access.combine == "add" and access.value is not None and constant(access.value):
        return False  # a turn of the loop changes the word: no other thread needs to
    return access.sem != "weak"


def _of_several_sizes(mir: Mir) -> frozenset[str]:
    """Tensors with accesses at addresses, if not all accesses are to words of one size."""
    sizes: dict[str, set[int]] = {}
    for tensor in at_addresses(mir):
        sizes.setdefault(tensor.name, set()).add(tensor.dtype.bits)
    for effects in mir.effects:
        for effect in effects:
            if isinstance(effect, Reads | Writes) and effect.view.tensor.name in sizes:
                sizes[effect.view.tensor.name].add(effect.view.dtype.bits)
    return frozenset(name for name, found in sizes.items() if len(found) > 1)


def ticket_tensors(mir: Mir) -> frozenset[str]:
    """Tensors with an addition, or an increment up to a limit, whose result is used."""
    return frozenset(
        access.view.tensor.name
        for access in word_accesses(mir)
        if access is not None and access.combine in ("add", "inc") and access.result is not None
    )


def are_all_results_used(mir: Mir, name: str) -> bool:
    """Whether the result of every addition to a tensor is used."""
    return not any(
        access is not None
        and access.combine is not None
        and access.result is None
        and access.view.tensor.name == name
        for access in word_accesses(mir)
    )


def _counts(effects: tuple[Effect, ...]) -> bool:
    access = word_access(effects)
    if access is None:
        return False
    replaces = access.combine == "exch" and access.result is None
    return access.stores or replaces or access.combine == "add"


def _incremented(effects: tuple[Effect, ...]) -> set[str]:
    """The tensor of a word that is increased up to a limit, where what was found is used."""
    access = word_access(effects)
    draws = access is not None and access.combine == "inc" and access.result is not None
    return {access.view.tensor.name} if access is not None and draws else set()
