"""The tensormap proxy: what copies see of tensor maps that a kernel has written (SEMANTICS B14).

A write of a map is seen by a copy if the write comes before a release, the release before an
acquire of this map, and the acquire before the copy. All of that is order, not time: releases and
acquires are positions in clocks, with what they cover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tilesim.findings.finding import Kind, Stated
from tilesim.records import dataclass
from tilesim.sim.machine.release import mutual
from tilesim.sim.observers.lane_races import known_as_one, lanes_at
from tilesim.sim.observers.race_text import describe, report_access

if TYPE_CHECKING:
    from tilesim.ir.effects import Scope
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.footprint import Access, Footprint
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.labels import Place
    from tilesim.sim.machine.memory import Memory
    from tilesim.sim.machine.warp import Agent

_FENCE = "fence.proxy.tensormap::generic"
#: the 128 bytes of a map: the name of its memory, and where it begins
Where: TypeAlias = tuple[str, int]
#: what releases, how far, and what (None: all maps)
_Releaser: TypeAlias = "tuple[int, Scope, Place, Where | None]"


@dataclass(frozen=True, slots=True)
class _Event:
    """A fence of some ``lanes`` at a position of a component; ``covers``, row G of a clock, is what
    it hands over."""

    warp: Agent
    lanes: int
    component: int
    tick: int
    covers: Clock

    def known(self, clock: Clock, warp: Agent, lanes: int) -> bool:
        """Whether it comes before what these lanes do, which have this clock: they may have
        executed it themselves, or know of it."""
        if warp.origin is self.warp.origin and not lanes & ~self.lanes:
            return True
        return bool(clock[len(self.covers) + self.component] >= self.tick)


class MapProxy:
    """The fences of the tensormap proxy that have been executed."""

    def __init__(self, machine: Core) -> None:
        self._machine = machine
        self._released: dict[_Releaser, list[_Event]] = {}
        self._acquired: dict[tuple[Where, int], list[_Event]] = {}

    def release(self, w: Agent, scope: Scope, place: Where | None) -> None:
        """``w`` hands over the maps that it knows to be written, or the one at ``place``."""
        size = self._machine.components.size
        covers = w.published[size : 2 * size].copy()
        for component, tick in w.positions:
            event = _Event(w, w.mask, component, tick, covers)
            self._released.setdefault((component, scope, w.cta, place), []).append(event)
        w.advance()

    def acquire(self, w: Agent, scope: Scope, place: Where) -> None:
        """Copies after this use the map at ``place`` as it was released before this."""
        covers = np.zeros(self._machine.components.size, dtype=np.int64)
        for (_, sent, cta, what), events in self._released.items():
            if what in (None, place) and mutual(scope, w.cta, sent, cta):
                _learn(covers, events, w.clock, w, w.mask)
        for component, tick in w.positions:
            event = _Event(w, w.mask, component, tick, covers)
            self._acquired.setdefault((place, component), []).append(event)
        w.advance()

    def check(self, footprint: Footprint, place: Where, access: Access, clock: Clock) -> None:
        """Reports writes of a map that come before a copy through it, but not for its proxy."""
        size = self._machine.components.size
        covers = np.zeros(size, dtype=np.int64)
        for (where, _), events in self._acquired.items():
            if where == place:
                _learn(covers, events, clock, access.warp, access.lanes)
        for other in footprint.overlaps:
            for record in other.writes:
                lanes = lanes_at(record, other, footprint)
                ordered = record.warp.is_known(
                    clock, size, record.component, record.tick, lanes
                ) or known_as_one(record, other, clock, size)
                if ordered and covers[record.component] < record.tick:
                    self._report(footprint, place, access, other, record)

    def _report(
        self, footprint: Footprint, place: Where, access: Access, other: Footprint, record: Access
    ) -> None:
        kind: Kind
        released = any(
            event.covers[record.component] >= record.tick
            for (*_, what), events in self._released.items() if what in (None, place)
            for event in events
        )  # fmt: skip
        if released:
            kind, fence = "proxy-fence/map-acquire", f"{_FENCE}.acquire"
            why = f"no {fence} of it in the scope of its release"
            fix = (
                "execute fence.proxy.tensormap::generic.acquire on the map between the "
                "synchronisation that leads here and the copy"
            )
        else:
            kind, fence = "proxy-fence/map-release", f"{_FENCE}.release"
            why = f"no {fence} or tensormap.cp_fenceproxy"
            fix = (
                "execute fence.proxy.tensormap::generic.release after the last write of the map, "
                "or copy it there by tensormap.cp_fenceproxy"
            )
        report_access(
            "proxy-fence", access, footprint,
            f" as a tensor map after {describe(record, past=True)} {other.name}: they are "
            f"synchronised, but {why} lies between the generic and the tensormap proxy (B14)",
            fix, (record, other), notes=(f"memory: {place[0]}",), kind=kind,
            facts=Stated(fence=fence),
        )  # fmt: skip


def _learn(covers: Clock, events: list[_Event], clock: Clock, warp: Agent, lanes: int) -> None:
    """Joins what the last of these fences covers that comes before what some lanes do."""
    known = next((event for event in reversed(events) if event.known(clock, warp, lanes)), None)
    if known is not None:
        np.maximum(covers, known.covers, out=covers)


def place_of(memory: Memory, footprint: Footprint) -> Where:
    """Where a map lies."""
    return memory.label, footprint.bytes.low
