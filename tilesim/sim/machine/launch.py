"""Which clusters are still to be launched, for clusterlaunchcontrol (SEMANTICS D.7).

That is up to the hardware. Unless a run is told what is answered, the simulator deals the grid
out: the first third of the clusters (at least one) are resident from the start, and cluster ``i``
of ``r`` resident ones is offered clusters ``i + r``, ``i + 2r``... in turn; then there is no work
left. Under a policy that chooses schedules a request may also fail earlier, and what remains of the
share is launched normally. `tilesim.search.answers` varies the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesim.sim.machine.chance import Asker

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.agent import Agent
    from tilesim.sim.machine.core import Core


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
        """Whether a cluster is launched, as nobody has cancelled it."""
        return cluster not in self._cancelled

    def cancel(self, warp: Agent, op: Op) -> tuple[int, int, int] | None:
        """Cancels a pending cluster: its first CTA's coordinates, None if the request fails."""
        machine, number = self._machine, warp.cta.cluster.number
        asker = warp.cta.rank, warp.number
        if machine.trace is not None:
            text = f"executes {op.mnemonic}"
            machine.trace.note("write", ("launch", 0), 0, warp, op, text)
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
        return first_cta(machine, cluster)


def first_cta(machine: Core, cluster: int) -> tuple[int, int, int]:
    """Coordinates of the first CTA of a cluster (clusters are numbered x fastest)."""
    program = machine.program
    (gx, gy, _), (cx, cy, cz) = program.grid, program.cluster
    wide, high = gx // cx, gy // cy
    return (
        cluster % wide * cx, cluster // wide % high * cy, cluster // (wide * high) * cz,
    )  # fmt: skip
