"""Determinacy conditions that failed in a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.findings import Named
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.who import Who

Condition = Literal["A", "B", "C1", "C2", "N", "I", "T", "R", "P"]


@dataclass(frozen=True, slots=True)
class Doubt:
    """A determinacy condition that failed: where, between whom, in which phase.

    ``past`` is the clock of what must have happened before ``op``: the divergent schedule of
    DETERMINACY theorem 2 runs just that, then ``op``. ``harmless``: what ``op`` and ``other`` count
    for is immaterial if the barrier's arrivals may change places.
    """

    condition: Condition
    barrier: Named
    phase: int
    op: Op
    warp: Who
    other: Op | None = None
    other_warp: Who | None = None
    past: Clock | None = None
    harmless: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Doubts with the same key are the same defect in another iteration."""
        return (
            self.condition,
            self.barrier.label,
            self.op.loc,
            self.other and self.other.loc,
            self.harmless,
        )
