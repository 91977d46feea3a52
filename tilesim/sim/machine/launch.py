"""Which clusters are still to be launched, for clusterlaunchcontrol (SEMANTICS D.7).

That is up to the hardware. The simulator deals the grid out: the first third of the clusters (at
least one) are resident from the start, and cluster ``i`` of ``r`` resident ones is offered clusters
``i + r``, ``i + 2r``... in turn; then there is no work left. Under a policy that chooses schedules
a request may also fail earlier, and what remains of the share is launched normally.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.machine import Machine
    from tilesim.sim.machine.warp import Warp


_ASSUMPTION = (
    "clusterlaunchcontrol hands every resident cluster its share of the others, a third of the "
    "grid being resident"
)


class LaunchControl:
    """Answers the requests of one machine's clusters.

    ``cancelled`` collects, over all machines of a run, the clusters that will not be launched.
    """

    def __init__(self, machine: Machine, first_cluster: int, cancelled: set[int]) -> None:
        program = machine.program
        total = program.ctas // program.cluster_size
        resident = max(1, total // 3)
        self._machine = machine
        self._cancelled = cancelled
        self._last: tuple[Warp, int] | None = None
        self._share: list[int] = []
        if len(machine.clusters) == 1 and first_cluster < resident:
            share = range(first_cluster + resident, total, resident)
            self._share = list(share[: machine.options.grants])
        self.never_launched = len(machine.clusters) == 1 and first_cluster in cancelled

    def cancel(self, warp: Warp, op: Op) -> tuple[int, int, int] | None:
        """Cancels a pending cluster: its first CTA's coordinates, None if the request fails."""
        machine = self._machine
        machine.outcome.assumptions[_ASSUMPTION] = None
        if self._last is not None:
            before, tick = self._last
            if warp.clock[before.component] < tick:
                machine.nondeterministic("which of two requests cancels which cluster", op)
        self._last = (warp, warp.tick)
        if machine.trace is not None:
            text = f"executes {op.mnemonic}"
            machine.trace.note("write", ("launch", 0), 0, warp, op, text)
        if not self._share:
            return None
        if machine.gives_up():
            self._share.clear()
            return None
        cluster = self._share.pop(0)
        self._cancelled.add(cluster)
        return first_cta(machine, cluster)


def first_cta(machine: Machine, cluster: int) -> tuple[int, int, int]:
    """Coordinates of the first CTA of a cluster (clusters are numbered x fastest)."""
    program = machine.program
    (gx, gy, _), (cx, cy, cz) = program.grid, program.cluster
    wide, high = gx // cx, gy // cy
    return (
        cluster % wide * cx, cluster // wide % high * cy, cluster // (wide * high) * cz,
    )  # fmt: skip
