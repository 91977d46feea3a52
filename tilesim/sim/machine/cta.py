"""A CTA and the cluster it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.registers import RegisterPool

if TYPE_CHECKING:
    from tilesim.sim.machine.machine import Machine
    from tilesim.sim.machine.mbarrier import Mbarrier
    from tilesim.sim.machine.misuse import Side
    from tilesim.sim.machine.named_barrier import NamedBarrier
    from tilesim.sim.machine.tmem import Tmem
    from tilesim.sim.machine.warp import Warp


class Cluster:
    """CTAs that are co-scheduled and reach each other's shared memory, by cluster rank (D7)."""

    def __init__(self, number: int) -> None:
        self.number: int = number
        self.ctas: list[Cta] = []
        #: None in programs that never use barrier.cluster
        self.barrier: NamedBarrier | None = None

    @property
    def exited(self) -> bool:
        """True once all CTAs have exited."""
        return all(cta.exited for cta in self.ctas)


class Cta:
    """One CTA: shared memory, barriers, named barriers, registers.

    ``number`` is its place in the grid, ``rank`` in its cluster, ``index`` in the machine.
    """

    def __init__(self, machine: Machine, cluster: Cluster, number: int, index: int) -> None:
        program = machine.program
        gx, gy, _ = program.grid
        self.machine = machine
        self.cluster: Cluster = cluster
        self.number = number
        self.index = index
        self.rank: int = len(cluster.ctas)
        self.coords: tuple[int, int, int] = (number % gx, number // gx % gy, number // (gx * gy))
        self.mbarriers: dict[int, Mbarrier] = {}
        self.memory = Memory(
            "shared" if program.ctas == 1 else f"CTA {number}'s shared",
            np.full(
                -(-max(16, program.smem_used) // 16) * 16, machine.options.garbage, dtype=np.uint8
            ),
            mbarriers=self.mbarriers,
        )
        self.named: dict[int, NamedBarrier] = {}
        self.warps: list[Warp] = []
        self.pool = RegisterPool(machine.plan.mir)
        self.tensor_core_free = 0.0
        #: None in programs without tcgen05
        self.tmem: Tmem | None = None
        #: the query that saw a try_cancel of this CTA fail (D19)
        self.launch_over: Side | None = None
        #: by warp: when it last executed a try_cancel
        self.requests: dict[Warp, int] = {}
        cluster.ctas.append(self)

    @property
    def exited(self) -> bool:
        """True once all warps have exited."""
        return all(w.exited for w in self.warps)
