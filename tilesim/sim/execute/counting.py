"""Accesses to counters in the timed run, for their part of the certificate (machine.counter)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.drawn import Drawn
from tilesim.sim.expression import plain
from tilesim.sim.machine.counter import Counter
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.release import Released
from tilesim.sim.machine.strength import observe
from tilesim.sim.spin import Spin, Until, only_drawn

if TYPE_CHECKING:
    from tilesim.ir.memory import View
    from tilesim.ir.op import Op
    from tilesim.ir.ops.fence import FenceScope
    from tilesim.ir.scalars import WordAccess
    from tilesim.ir.types import DType
    from tilesim.sim.execute.compose import Operands
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.machine import Warp
    from tilesim.sim.machine.storage import Memory

Addresses = NDArray[np.int64]
#: what a poll does with the memory and the addresses of the active lanes; the least value that it
#: finds in any schedule, where the loop is entered again with it
Look = Callable[["Warp", "Memory", Addresses], int | None]

_ENDED: dict[Until, Callable[[Any, Any], Any]] = {
    "least": np.greater_equal, "equal": np.equal, "other": np.not_equal,
}  # fmt: skip


def touch(w: Warp, memory: Memory, address: int, dtype: DType) -> Counter:
    """The counter at an address; it starts with what is there now."""
    key = (id(memory), address)
    found = w.machine.counters.get(key)
    if found is None:
        value = int(memory.typed(dtype)[address // dtype.bytes])
        # a register of the same width may be signed
        found = w.machine.counters[key] = Counter(value, (1 << dtype.bits - 1) - 1)
    return found


def by_address(addresses: Addresses, values: NDArray[Any]) -> dict[int, list[int]]:
    """What each lane has for its address."""
    found: dict[int, list[int]] = {}
    for address, value in zip(addresses.tolist(), values.tolist(), strict=True):
        found.setdefault(address, []).append(int(value))
    return found


def doubtful(w: Warp, op: Op, counter: Counter) -> None:
    """Notes that the order of accesses may matter if a condition of the counter has failed."""
    if not counter.holds and not w.machine.tickets.alike:
        w.machine.nondeterministic(
            "unordered strong accesses to one location", op, explorable=not counter.crowded
        )


def counts(c: Operands, view: View) -> bool:
    """Whether the words of a view are counters."""
    return view.tensor.name in c.code.counters


def look(c: Operands, op: Op, access: WordAccess) -> Look | None:
    """What a poll does if it is a wait: lanes that pass learn what they do in every schedule."""
    spin = c.spins.get(op.number)
    if spin is None or not counts(c, access.view):
        return None
    goal_of, dtype = c.expr(spin.goal), access.view.dtype
    acquires, scope = access.acquires, access.scope

    def step(w: Warp, memory: Memory, addresses: Addresses) -> int | None:
        least: int | None = None
        values = memory.typed(dtype)[addresses // dtype.bytes].astype(np.int64)
        goals = np.broadcast_to(plain(goal_of(w)), 32)[mask_array(w.mask)] + spin.more
        passed = _ENDED[spin.until](values, goals)
        lanes = sorted(set(zip(*(a.tolist() for a in (addresses, goals, passed)), strict=True)))
        past = _past(w, spin)
        sure = goals.dtype.kind == "i" and (not (spin.first or spin.kept) or len(lanes) == 1)
        for address, goal, through in lanes:
            counter = touch(w, memory, address, dtype)
            value = int(memory.typed(dtype)[address // dtype.bytes])
            counter.holds = counter.holds and sure
            released = None
            if through:
                counter.looks(w)
            if counter.holds and through:
                released = counter.wait(w, past, spin.until, goal, value)
                least = counter.seen if spin.kept else None
            doubtful(w, op, counter)
            if not counter.holds:
                released = w.machine.released.get((id(memory), address))
            if released is not None:
                near = memory.mbarriers is not None
                observe(released, w, scope, acquires=acquires, near=near, together=len(lanes) == 1)
        return least

    return step


def added(
    w: Warp, op: Op, memory: Memory, addresses: Addresses, amounts: NDArray[Any],
    own: Released, dtype: DType,
) -> None:  # fmt: skip
    """A reduction by add is about to be made."""
    words = by_address(addresses, amounts)
    w.apart = int(len(words) > 1)
    for address, values in words.items():
        counter = touch(w, memory, address, dtype)
        counter.writes(w, len(values))
        if counter.holds:
            counter.add(w, values, own)
        doubtful(w, op, counter)
    w.apart = 0


def draws_in_turns(c: Operands, view: View) -> Callable[[int], int] | None:
    """The first number that decides what a given one does, for words that are waited for as well.

    A barrier of the grid: every CTA draws a number, and waits until all of its round are drawn. It
    does not matter which one of the round it was.
    """
    name = view.tensor.name
    polled = any(spin.poll.view.tensor.name == name for spin in c.spins.values())
    if not polled or not only_drawn(c.mir, name):
        return None
    drawn = Drawn(c.code.graph, (name,))
    if name in drawn.steers:
        return None
    bounds = sorted(drawn.bounds.get(name, ()))
    periods = tuple(drawn.periods.get(name, ()))

    def first(number: int) -> int:
        below = [b for b in bounds if b <= number]
        return max([*below, *(number - (number + d) % n for n, d in periods)], default=0)

    return first


def drawn_in_turns(
    w: Warp, op: Op, memory: Memory, address: int, first: Callable[[int], int], amount: int,
    own: Released, dtype: DType, scope: FenceScope, *, acquires: bool,
) -> None:  # fmt: skip
    """A lane is about to add to a word and to use in which range what it finds is."""
    counter = touch(w, memory, address, dtype)
    released = None
    if counter.holds:
        released = counter.draw_after(w, first(counter.value), amount, own)
    doubtful(w, op, counter)
    if not counter.holds:
        what = f"the result of {op.mnemonic}.add on {memory.label}"
        w.machine.nondeterministic(what, op)
        released = w.machine.released.get((id(memory), address))
    if released is not None:
        observe(released, w, scope, acquires=acquires)


def drawn(
    w: Warp, op: Op, memory: Memory, address: int, before: Clock, amount: int,
    own: Released, dtype: DType,
) -> None:  # fmt: skip
    """A lane is about to add to a word and to use what it finds there."""
    counter = touch(w, memory, address, dtype)
    if counter.holds:
        counter.draw(w, before, amount, own)
    doubtful(w, op, counter)


def stored(
    w: Warp, op: Op, memory: Memory, addresses: Addresses, values: NDArray[Any],
    own: Released | None, dtype: DType,
) -> None:  # fmt: skip
    """A scalar store is about to be made; ``own`` is None if it is weak."""
    words = by_address(addresses, values)
    w.apart = int(len(words) > 1 and own is not None)
    for address, lanes in words.items():
        counter = touch(w, memory, address, dtype)
        counter.writes(w, len(lanes))
        if counter.holds:
            counter.store(w, lanes, own)
        doubtful(w, op, counter)
    w.apart = 0


def _past(w: Warp, spin: Spin) -> Clock:
    """What the warp came after when it entered the loop."""
    lap = None if spin.first else w.laps.get(spin.head)
    if lap is None:
        return w.clock.copy()
    if lap.past is None:
        lap.past = w.clock.copy()
    return lap.past
