"""Arrays of mbarriers: which ones belong together, and the place of each among them.

The DSL declares arrays. PTX has barriers at addresses: those that one statement initialises in one
variable are an array there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier


def array_of(on: object) -> Hashable:
    """What the barriers of one array have in common; None: not an mbarrier."""
    if not isinstance(on, Mbarrier):
        return None
    if on.slot is not None:
        return on.name
    init = None if on.init is None else on.init.op.loc.written
    return on.variable, init


def array_name(on: Mbarrier, every: Iterable[Mbarrier]) -> str:
    """What reports call the array: its name, or that of the variable if it has no other barriers;
    else the barrier's. ``every``: the barriers of the cluster."""
    if on.slot is not None:
        return on.name
    others = [b for b in every if b.cta is on.cta and b.variable == on.variable]
    alone = all(array_of(b) == array_of(on) for b in others)
    return on.variable if alone and len(others) > 1 else on.label


def number_of(on: Mbarrier | NamedBarrier, every: Iterable[Mbarrier]) -> int | None:
    """The place of a barrier in its array, counted from 0."""
    if not isinstance(on, Mbarrier):
        return None
    if on.slot is not None:
        return on.slot
    return sum(b.address < on.address for b in _array(on, every))


def slots_of(on: Mbarrier, every: Iterable[Mbarrier]) -> int:
    """How many barriers its array has in one CTA."""
    return sum(1 for _ in _array(on, every))


def _array(on: Mbarrier, every: Iterable[Mbarrier]) -> Iterator[Mbarrier]:
    mine = array_of(on)
    return (b for b in every if b.cta is on.cta and array_of(b) == mine)
