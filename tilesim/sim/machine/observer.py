"""Who may look on while a machine accesses memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.footprint import Footprint
    from tilesim.sim.machine.storage import Memory


class Observer(Protocol):
    """Is shown every access to global memory."""

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """``access`` to ``footprint`` is about to be checked and recorded."""
        ...


class Witness(Protocol):
    """Is shown every access to memory of which places are noted."""

    def note(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """``access`` to ``footprint`` is about to be checked and recorded."""
        ...
