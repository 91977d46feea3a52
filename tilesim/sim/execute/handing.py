"""What strong accesses of lanes to words hand over to each other, and learn (SEMANTICS H3, H4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.ops.fence import FenceScope
from tilesim.sim.execute.apart import in_groups
from tilesim.sim.machine import elements
from tilesim.sim.machine.clock import Clock
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.release import Released, add
from tilesim.sim.machine.storage import Memory
from tilesim.sim.machine.strength import observe


def observe_value(
    w: Warp, memory: Memory, addresses: NDArray[np.int64], scope: FenceScope, *, acquires: bool,
    element: elements.Element | None = None,
) -> None:  # fmt: skip
    """Joins what the releases to these addresses published to this warp (H3, H4); of a vector that
    acquires, after its last ``element`` (H15)."""

    def learn(address: int) -> None:
        released = w.machine.released.get((id(memory), address))
        if element is not None:
            elements.gather(released or {}, w, scope)
            if elements.ends(element):
                elements.acquire(w)
        elif released is not None:
            observe(released, w, scope, acquires=acquires, near=memory.mbarriers is not None)

    in_groups(w, addresses.tolist(), learn)


def _release(
    w: Warp, memory: Memory, released: Released, scope: FenceScope, clock: Clock, *, releases: bool
) -> None:
    """What an acquire of a strong write by ``w`` will learn, besides what is ``released``."""
    size = w.machine.components.size
    add(released, (scope, w.cta), clock, slice(None if releases else size))
    if not releases:
        near = memory.mbarriers is not None
        w.fences.publish(released, scope, w.cta, size, near=near)


def released_by(
    w: Warp, memory: Memory, scope: FenceScope, *, releases: bool, clock: Clock | None = None
) -> Released:
    """What a strong write by ``w`` releases of its own: of its ``clock``, if not another one."""
    own: Released = {}
    _release(w, memory, own, scope, w.clock if clock is None else clock, releases=releases)
    return own


def released_at(
    w: Warp, memory: Memory, addresses: Sequence[int], scope: FenceScope,
    *, releases: bool, clock: Clock,
) -> dict[int, Released]:  # fmt: skip
    """The same of a store, by address: where its thread has released before, that as well."""
    found = {a: released_by(w, memory, scope, releases=releases, clock=clock) for a in addresses}
    patterns = w.machine.release_patterns
    if patterns is not None:
        for address, lane in _sole_writers(w, addresses).items():
            patterns.carry((id(memory), address, w.index, lane), found[address], scope)
    return found


def publish_value(
    w: Warp, memory: Memory, addresses: Sequence[int], scope: FenceScope,
    *, releases: bool, chain: bool, clock: Clock | None = None,
) -> None:  # fmt: skip
    """What an acquire of these addresses will learn, of the warp's ``clock`` if not another one; an
    RMW continues the release sequence."""
    different = set(addresses)
    if clock is None:
        clock = w.clock
    # of lanes at several words each tells what all of them know
    if len(different) > 1 and w.lanes > 1:
        clock = w.shared_by_lanes(clock)
    for address in different:
        released = w.machine.released.setdefault((id(memory), address), {})
        if not chain:
            released.clear()
        _release(w, memory, released, scope, clock, releases=releases)
    patterns = w.machine.release_patterns
    if patterns is None:
        return
    for address, lane in _sole_writers(w, addresses).items():
        thread = (id(memory), address, w.index, lane)
        patterns.carry(thread, w.machine.released[id(memory), address], scope)
        if releases:
            patterns.note(thread, scope, w.cta, clock)


def _sole_writers(w: Warp, addresses: Sequence[int]) -> dict[int, int]:
    """By address, which lane writes there, if it is one of those that are active and no other."""
    if len(addresses) != w.lanes:
        return {}
    lanes = np.flatnonzero(mask_array(w.mask)).tolist()
    once = {address for address in addresses if addresses.count(address) == 1}
    return {a: lane for a, lane in zip(addresses, lanes, strict=True) if a in once}
