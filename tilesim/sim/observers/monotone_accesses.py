"""Accesses to counters in the timed run, for their part of the certificate (machine.counter)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.preimage import ALL
from tilesim.analysis.taint import Taint
from tilesim.ir.arithmetic import integer_limits
from tilesim.sim.machine.compose import in_groups
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.release import Released, add
from tilesim.sim.machine.unknown import Unknown, UnknownSteers, plain
from tilesim.sim.machine.word_order import UNORDERED, observe
from tilesim.sim.observers.monotone_words import Counter, are_all_results_used
from tilesim.transforms.word_waits import WordWait

if TYPE_CHECKING:
    from tilesim.ir.declarations import View
    from tilesim.ir.op import Op
    from tilesim.ir.scalars import WordAccess
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.machine import Warp
    from tilesim.sim.machine.memory import Memory
    from tilesim.sim.machine.operands import Operands

Addresses = NDArray[np.int64]
#: what a poll does with the memory and the addresses of the active lanes: whether all pass, and the
#: least value that it finds in any schedule, where the loop is entered again with it
Poll = Callable[["Warp", "Memory", Addresses], "tuple[bool, int | None]"]

#: the first of the numbers that do what a given one does when it is drawn, and the first one behind
#: them; None if that is not known for numbers as large as it
Round = Callable[[int], "tuple[int, int] | None"]


class CountedWords:
    """What an instruction does to words that count, at the addresses of its lanes."""

    def __init__(self, c: Operands, op: Op, access: WordAccess) -> None:
        self._op, self._dtype = op, access.view.dtype
        self._scope, self._acquires, self._releases = access.scope, access.acquires, access.releases
        #: it counts at words that have others beside them which do something else
        self.beside = access.view.tensor.name not in c.code.counters
        self._crowded = access.element is not None

    def touch(self, w: Warp, memory: Memory, address: int) -> Counter:
        """The counter at an address; it starts with what is there now."""
        key = (id(memory), address)
        found = w.machine.counters.get(key)
        if found is None:
            found = Counter(self.there(memory, address), self._dtype.bits, open=self.beside)
            w.machine.counters[key] = found
        return found

    def lose(self, w: Warp, memory: Memory, addresses: Addresses, why: Unknown) -> None:
        """What counts at these addresses is not known from now on.

        Raises:
            UnknownSteers: a wait has seen one of them.
        """
        for address in {*addresses.tolist()}:
            counter = self.touch(w, memory, address)
            if not counter.open:
                raise UnknownSteers(why)
            counter.holds = False

    def there(self, memory: Memory, address: int) -> int:
        """The unsigned number that a word holds."""
        dtype = self._dtype
        return int(memory.typed(dtype)[address // dtype.bytes]) % (1 << dtype.bits)

    def signed(self, value: int) -> int:
        """An unsigned number as an element of the type."""
        dtype = self._dtype
        return value - (1 << dtype.bits) if value > integer_limits(dtype)[1] else value

    def _by_address(self, addresses: Addresses, values: NDArray[Any]) -> dict[int, list[int]]:
        """What each lane has for its address, as unsigned numbers."""
        found: dict[int, list[int]] = {}
        for address, value in zip(addresses.tolist(), values.tolist(), strict=True):
            found.setdefault(address, []).append(int(value) % (1 << self._dtype.bits))
        return found

    def check(self, w: Warp, counter: Counter) -> None:
        """Notes that the order of accesses may matter if a condition of the counter has failed."""
        if not counter.holds and not counter.open and not w.machine.tickets.alike:
            w.machine.nondeterministic(UNORDERED, self._op, explorable=not counter.crowded)

    def already(self, w: Warp, memory: Memory, addresses: Addresses) -> list[bool]:
        """By lane, whether its word has counted so far: of memory with other words beside it."""
        known, place = w.machine.counters, id(memory)
        return [(place, address) in known for address in addresses.tolist()]

    # ------------------------------------------------------------------ writes

    def added(
        self, w: Warp, memory: Memory, addresses: Addresses, how: str, amounts: NDArray[Any],
        own: Released,
    ) -> None:  # fmt: skip
        """Lanes are about to add, or to increase up to a limit, of which no order is known."""
        # a wait that one lane has ended by itself has seen all of its step
        each = self._of_each(w, own, releases=self._releases) if w.lanes > 1 else None
        words = self._by_address(addresses, amounts)
        w.apart = int(len(words) > 1)
        for address, values in words.items():
            counter = self.touch(w, memory, address)
            counter.writes(w, len(values))
            counter.holds = counter.holds and how == "add"
            if counter.holds:
                counter.add(w, values, own, each)
            self.check(w, counter)
        w.apart = 0

    @staticmethod
    def _of_each(w: Warp, own: Released, *, releases: bool) -> Released | None:
        """What each of the active lanes publishes where all publish ``own``: nothing of what others
        did since they met. None if fences have a part in it, which each lane has for itself."""
        if not releases and w.fences:
            return None
        return {key: w.shared_by_lanes(clock) for key, clock in own.items()}

    def draw_from_ranges(
        self, w: Warp, memory: Memory, address: int, rounds: Round, amount: int, own: Released
    ) -> None:
        """A lane is about to add to a word and to use in which range what it finds is."""
        counter = self.touch(w, memory, address)
        numbers = rounds(counter.value) if counter.holds else None
        released = None if numbers is None else counter.draw_after(w, *numbers, amount, own)
        counter.holds = released is not None
        self.check(w, counter)
        if released is None:
            what = f"the result of {self._op.mnemonic}.add on {memory.label}"
            w.machine.nondeterministic(what, self._op)
            released = w.machine.released.get((id(memory), address))
        if released is not None:
            observe(released, w, self._scope, acquires=self._acquires)

    def draw_ticket(
        self, w: Warp, memory: Memory, address: int, before: Clock, how: str, amount: int,
        own: Released,
    ) -> None:  # fmt: skip
        """A lane is about to add to a word, or to increase it up to a limit, and to use what it
        finds there."""
        counter = self.touch(w, memory, address)
        if counter.holds:
            draw = counter.draw_up_to if how == "inc" else counter.draw
            draw(w, before, amount, own)
        self.check(w, counter)

    def stored(
        self, w: Warp, memory: Memory, addresses: Addresses, values: NDArray[Any],
        own: dict[int, Released] | None, *, releases: bool,
    ) -> None:  # fmt: skip
        """A scalar store is about to be made; ``own``, by address, is None if it is weak."""
        words = self._by_address(addresses, values)
        w.apart = int(len(words) > 1 and own is not None)
        for address, lanes in words.items():
            counter = self.touch(w, memory, address)
            counter.writes(w, len(lanes))
            counter.crowded |= self._crowded
            if counter.holds:
                handed = None if own is None else own[address]
                if handed is not None and len(lanes) > 1:
                    # of lanes that store the same, one stays, and hands on what it has released
                    handed = self._of_each(w, handed, releases=releases)
                    counter.holds = handed is not None and len({*lanes}) == 1
                    lanes = lanes[:1]
                if counter.holds:
                    counter.store(w, lanes, handed)
            self.check(w, counter)
        w.apart = 0

    def replaced(
        self, w: Warp, memory: Memory, addresses: Addresses, values: NDArray[Any], own: Released
    ) -> None:
        """A word is about to be exchanged for another one, and what was there is not looked at: it
        is a store that hands on what was released there before (H4)."""
        handed: dict[int, Released] = {}
        for address in {*addresses.tolist()}:
            handed[address] = {key: clock.copy() for key, clock in own.items()}
            for key, clock in w.machine.released.get((id(memory), address), {}).items():
                add(handed[address], key, clock)
        self.stored(w, memory, addresses, values, handed, releases=False)


def counted_words(c: Operands, op: Op, access: WordAccess) -> CountedWords | None:
    """The words that an instruction accesses, if they count."""
    counts = access.view.tensor.name in c.code.counters or op.number in c.code.counting
    return CountedWords(c, op, access) if counts else None


def look(c: Operands, op: Op, access: WordAccess, words: CountedWords | None) -> Poll | None:
    """What a poll does if it is a wait: lanes that pass learn what they do in every schedule."""
    wait = c.word_waits.get(op.number)
    if wait is None or words is None:
        return None
    passing, dtype = wait.ends, access.view.dtype
    leaves_of = [c.expr(leaf) for leaf in passing.leaves]
    acquires, scope = access.acquires, access.scope

    def leaves(w: Warp) -> list[tuple[int, ...]]:
        """By active lane, what it compares with."""
        columns = []
        for evaluate in leaves_of:
            value = plain(evaluate(w))
            if type(value) is Unknown:
                raise UnknownSteers(value)
            columns.append(np.broadcast_to(value, 32)[mask_array(w.mask)].tolist())
        return [*zip(*columns, strict=True)] if columns else [()] * w.lanes

    def step(w: Warp, memory: Memory, addresses: Addresses) -> tuple[bool, int | None]:
        least: int | None = None
        ends = True
        keys = [*zip(addresses.tolist(), leaves(w), strict=True)]
        past, uniform = _past(w, wait), len(set(keys)) == 1

        def poll(key: tuple[int, tuple[int, ...]]) -> None:
            nonlocal least, ends
            address, compared = key
            counter = words.touch(w, memory, address)
            counter.open = False
            value = words.there(memory, address)
            spans = passing.spans(compared)
            counter.holds = counter.holds and spans is not None
            wanted = ALL if spans is None else passing.of_word(spans, dtype)
            if wait.first or wait.kept:
                counter.holds = counter.holds and uniform
            released = None
            passes = any(a <= value < b for a, b in wanted)
            ends = ends and passes
            if passes:
                counter.looks(w)
            if counter.holds and passes:
                released = counter.wait(w, past, wanted, value, kept=wait.kept)
                least = words.signed(counter.seen) if wait.kept else None
            words.check(w, counter)
            if not counter.holds:
                released = w.machine.released.get((id(memory), address))
            if released is not None:
                observe(
                    released, w, scope, acquires=acquires, in_shared=memory.mbarriers is not None,
                    settles=counter.holds,
                )  # fmt: skip

        in_groups(w, keys, poll)
        return ends, least

    return step


def draws_in_turns(c: Operands, view: View) -> Round | None:
    """The numbers that do what a given one does, for words that are waited for as well.

    A barrier of the grid: every CTA draws a number, and waits until all of its round are drawn. It
    does not matter which one of the round it was.
    """
    name = view.tensor.name
    polled = any(wait.poll.view.tensor.name == name for wait in c.word_waits.values())
    if not polled or not are_all_results_used(c.mir, name):
        return None
    waits = {wait.test: wait.ends.decides for wait in c.word_waits.values()}
    drawn = Taint(c.code.graph, (name,), instead=waits)
    if name in drawn.steers:
        return None
    bounds = sorted(drawn.bounds.get(name, ()))
    periods = tuple(drawn.periods.get(name, ()))
    size = 1 << view.dtype.bits
    wraps = not bounds and all(not d and size % n == 0 for n, d in periods)

    def alike(number: int) -> tuple[int, int] | None:
        if number >= size // 2 and not wraps:
            return None  # a register may hold it as a negative number
        starts = [number - (number + d) % n for n, d in periods]
        first = max([*(b for b in bounds if b <= number), *starts], default=0)
        ends = [start + n for start, (n, _) in zip(starts, periods, strict=True)]
        last = size if wraps else size // 2
        return first, min([*(b for b in bounds if b > number), *ends, last])

    return alike


def _past(w: Warp, wait: WordWait) -> Clock:
    """What the warp came after when it entered the loop: row S of its clock."""
    lap = None if wait.first else w.laps.get(wait.head)
    past = None if lap is None else lap.past
    if past is None:
        past = w.components.in_time(w.clock).copy()
        if lap is not None:
            lap.past = past
    return past
