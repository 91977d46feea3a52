"""Arrays of mbarriers: which ones belong together, and the place of each among them.

The DSL declares arrays. PTX has barriers at addresses: those that one statement initialises in one
variable are an array there.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator

from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier

_SLOT = re.compile(r"\[(\d+)[,\]]")
_AT = re.compile(r"\+\d+$")


def array_of(on: object) -> Hashable:
    """What the barriers of one array have in common; None: not an mbarrier."""
    if not isinstance(on, Mbarrier):
        return None
    if _is_declared(on):
        return on.name
    init = None if on.init is None else on.init.op.loc.written
    return _variable(on), init


def array_name(on: Mbarrier, every: Iterable[Mbarrier]) -> str:
    """What reports call the array: its name, or that of the variable if it has no other barriers;
    else the barrier's. ``every``: the barriers of the cluster."""
    if _is_declared(on):
        return on.name
    others = [b for b in every if b.cta is on.cta and _variable(b) == _variable(on)]
    alone = all(array_of(b) == array_of(on) for b in others)
    return _variable(on) if alone and len(others) > 1 else on.label


def number_of(on: Mbarrier | NamedBarrier, every: Iterable[Mbarrier]) -> int | None:
    """The place of a barrier in its array, counted from 0."""
    found = _SLOT.search(on.label)
    if found is not None:
        return int(found[1])
    if not isinstance(on, Mbarrier) or _is_declared(on):
        return None
    return sum(b.address < on.address for b in _array(on, every))


def slots_of(on: Mbarrier, every: Iterable[Mbarrier]) -> int:
    """How many barriers its array has in one CTA."""
    return sum(1 for _ in _array(on, every))


def _array(on: Mbarrier, every: Iterable[Mbarrier]) -> Iterator[Mbarrier]:
    mine = array_of(on)
    return (b for b in every if b.cta is on.cta and array_of(b) == mine)


def _is_declared(on: Mbarrier) -> bool:
    """Whether it is an element of an array that is declared; one at an address is named by that."""
    return bool(on.name) and _AT.search(on.name) is None


def _variable(on: Mbarrier) -> str:
    """The name without the place in the variable."""
    name, plus, _ = (on.name or on.label).rpartition("+")
    return name if plus else on.label.partition("@")[0]
