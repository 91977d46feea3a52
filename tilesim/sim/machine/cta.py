"""A CTA, its cluster, and which clusters are still to be launched (SEMANTICS D.7).

What clusterlaunchcontrol gets is up to the hardware. Unless a run has given answers, the simulator
deals the grid out: the first third of the clusters (at least one) are resident from the start, and
cluster ``i`` of ``r`` resident ones is offered clusters ``i + r``, ``i + 2r``... in turn; then
there is no work left. Under a policy that chooses schedules a request may also fail earlier, and
what remains of the share is launched normally. `tilesim.checker.launch_control` varies the answers.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.program import Program
from tilesim.sim.machine.errors import BarrierError
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.register_pool import RegisterPool
from tilesim.sim.machine.schedule import Asker
from tilesim.sim.machine.tensor_memory import Tmem, TmemPool

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.errors import Side
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.mbarrier import Mbarrier
    from tilesim.sim.machine.named_barrier import NamedBarrier
    from tilesim.sim.machine.warp import Agent


N = TypeVar("N", int, NDArray[np.int64])
#: shared memory and warps of an SM of the targets that have tensor memory (section I)
_SMEM_PER_SM, _RESERVED_SMEM, _WARPS_PER_SM = 228 * 1024, 1024, 64


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


#: the address of an mbarrier that has none yet
UNPLACED = -8


class _Mbarriers(dict[int, "Mbarrier"]):
    """The mbarriers of a CTA by address; one that is asked for elsewhere is made there."""

    def __init__(self, cta: Cta) -> None:
        super().__init__()
        self._cta = cta

    def __missing__(self, address: int) -> Mbarrier:
        return self._cta.adopt(address)


class Cta:
    """One CTA: shared memory, barriers, named barriers, registers.

    ``number`` is its place in the grid, ``rank`` in its cluster, ``index`` in the machine.
    """

    def __init__(self, machine: Core, cluster: Cluster, number: int, index: int) -> None:
        program = machine.program
        self.machine = machine
        self.cluster: Cluster = cluster
        self.number = number
        self.index = index
        self.rank: int = len(cluster.ctas)
        self.coords = coordinates(program, number)
        self.mbarriers: dict[int, Mbarrier] = _Mbarriers(self)
        #: for addresses at which the program makes mbarriers
        self.spare_mbarriers: list[Mbarrier] = []
        self.memory = Memory(
            "shared" if program.ctas == 1 else f"CTA {number}'s shared",
            np.full(
                -(-max(16, program.smem_used) // 16) * 16, machine.options.garbage, dtype=np.uint8
            ),
            mbarriers=self.mbarriers,
        )
        self.named: dict[int, NamedBarrier] = {}
        self.warps: list[Agent] = []
        self.pool = RegisterPool(machine.plan.mir, self.warps)
        self.tensor_core_free = 0.0
        #: None in programs without tcgen05
        self.tmem: Tmem | None = None
        #: the query that saw a try_cancel of this CTA fail (D19)
        self.launch_over: Side | None = None
        #: by component: when it last executed a try_cancel
        self.requests: dict[int, int] = {}
        cluster.ctas.append(self)

    def adopt(self, address: int) -> Mbarrier:
        """An mbarrier that is not initialised, at an address where nothing declares one.

        Raises:
            BarrierError: there are more of them than the machine has room for.
        """
        numbers = self.machine.plan.adopted
        number = numbers.setdefault(address, len(numbers))
        if number >= len(self.spare_mbarriers):
            raise BarrierError(
                "unsupported",
                f"mbarriers at more than {len(self.spare_mbarriers)} addresses, all of which "
                "registers hold, are not modelled",
                "declare arrays of mbarriers",
            )
        barrier = self.mbarriers[address] = self.spare_mbarriers[number]
        barrier.address = address
        self.memory.table.add_barrier(address)
        return barrier

    @cached_property
    def components(self) -> list[int]:
        """The components of clocks that say what its threads have done, and which copies that they
        wait for are complete."""
        found = [b.component for b in (*self.mbarriers.values(), *self.spare_mbarriers)]
        for warp in self.warps:
            groups = (group.component for group in warp.groups.values())
            found += [*warp.parts.components, *warp.group_components, *groups]
        return found

    @property
    def exited(self) -> bool:
        """True once all warps have exited."""
        return all(w.exited for w in self.warps)


def ctas_of_sm(program: Program) -> int:
    """How many CTAs an SM may hold, as far as shared memory and warps allow."""
    smem = program.smem_requested + _RESERVED_SMEM
    return max(1, min(_SMEM_PER_SM // smem, _WARPS_PER_SM // program.warps))


def place_tmem(program: Program, clusters: list[Cluster]) -> None:
    """Gives every CTA its tensor memory, and CTAs that may share an SM a common pool (G6).

    CTAs of different clusters are put on one SM as far as shared memory and warps allow; that is
    the placement in which an allocation can have to wait for another CTA.
    """
    resident = ctas_of_sm(program)
    pools: dict[tuple[int, int], TmemPool] = {}
    for index, cluster in enumerate(clusters):
        for cta in cluster.ctas:
            pool = pools.setdefault((index // resident, cta.rank), TmemPool(len(pools)))
            cta.tmem = Tmem(cta, pool)


# ------------------------------------------------------------------ launch control


class LaunchControl:
    """Answers the requests of one machine's clusters.

    ``cancelled`` collects, over all machines of a run, the clusters that will not be launched.
    """

    def __init__(
        self, machine: Core, clusters: int, first_cluster: int, cancelled: set[int]
    ) -> None:
        program, answers = machine.program, machine.options.answers
        total = program.ctas // program.cluster_size
        resident = max(1, total // 3)
        self._machine = machine
        self._cancelled = cancelled
        self._dealt = answers is None
        self._share: list[int] = []
        self._left: dict[tuple[int, Asker], list[int]] = {}
        if answers is not None:
            self._left = {(c, a): [*ids] for c, by in answers.items() for a, ids in by.items()}
            cancelled.update(c for ids in self._left.values() for c in ids)
        elif clusters == 1 and first_cluster < resident:
            self._share = [*range(first_cluster + resident, total, resident)]

    def launches(self, cluster: int) -> bool:
        """Whether a cluster is launched, as no request has cancelled it."""
        return cluster not in self._cancelled

    def cancel(self, warp: Agent, op: Op) -> tuple[int, int, int] | None:
        """Cancels a pending cluster: its first CTA's coordinates, None if the request fails."""
        machine, number = self._machine, warp.cta.cluster.number
        asker = warp.cta.rank, warp.number
        machine.note("write", ("launch", 0), warp, op)
        left = self._share if self._dealt else self._left.get((number, asker), [])
        asked = machine.outcome.asked
        if left and self._dealt and machine.gives_up():
            left.clear()
        if not left:
            asked.setdefault((number, asker), 0)
            return None
        asked[number, asker] = asked.get((number, asker), 0) + 1
        cluster = left.pop(0)
        self._cancelled.add(cluster)
        return coordinates_in_cluster(machine.program, cluster, 0)


def coordinates(program: Program, number: int) -> tuple[int, int, int]:
    """``cta_x``, ``cta_y`` and ``cta_z`` of a CTA by its number (x fastest)."""
    gx, gy, _ = program.grid
    return number % gx, number // gx % gy, number // (gx * gy)


def coordinates_in_cluster(program: Program, cluster: N, rank: int) -> tuple[N, N, N]:
    """The same of the CTA of a rank in a cluster, or in each of several (D7)."""
    (gx, gy, _), (cx, cy, cz) = program.grid, program.cluster
    wide, high = gx // cx, gy // cy
    return (
        cluster % wide * cx + rank % cx,
        cluster // wide % high * cy + rank // cx % cy,
        cluster // (wide * high) * cz + rank // (cx * cy),
    )


def cluster_ctas(program: Program, cluster: int) -> tuple[int, ...]:
    """The numbers of the CTAs of a cluster, by rank."""
    gx, gy, _ = program.grid
    ranks = range(program.cluster_size)
    ctas = (coordinates_in_cluster(program, cluster, rank) for rank in ranks)
    return tuple(x + gx * (y + gy * z) for x, y, z in ctas)
