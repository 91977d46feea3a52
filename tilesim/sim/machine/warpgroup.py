"""What the four warps of a warpgroup do together: wgmma groups (SEMANTICS F1, F5).

A wgmma is one operation of the warpgroup: it has run only when all four warps have issued it, so a
wait for its group is also a wait for the other warps to have committed that group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilesim.sim.machine.clock import Clock, join

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.machine import Machine
    from tilesim.sim.machine.warp import Warp


@dataclass(slots=True)
class Round:
    """The n-th commit of the warpgroup: how many warps have made it, what they had done."""

    clock: Clock
    commits: int = 0
    waits: int = 0


class Warpgroup:
    """The wgmma groups of four consecutive warps; ``component`` publishes completed operations."""

    def __init__(self, machine: Machine, label: str) -> None:
        self.machine = machine
        self.label = label
        self.component = machine.components.new()
        self.warps: list[Warp] = []
        self.waiters: list[Warp] = []
        self._rounds: dict[int, Round] = {}
        self._commits: dict[Warp, int] = {}

    def commit(self, warp: Warp, op: Op) -> None:
        """``warp`` closes its next group."""
        number = self._commits.get(warp, 0)
        self._commits[warp] = number + 1
        current = self._rounds.get(number)
        if current is None:
            current = self._rounds[number] = Round(self.machine.components.clock())
        size = self.machine.components.size
        join(current.clock[:size], warp.clock[:size])
        current.commits += 1
        if self.machine.trace is not None:
            text = f"commits wgmma group {number}"
            self.machine.trace.note("join", self.component, number, warp, op, text)
        warp.advance()
        if current.commits == len(self.warps):
            waiters, self.waiters = self.waiters, []
            for waiter in waiters:
                self.machine.wake(waiter)

    def missing(self, warp: Warp, pending: int) -> list[Warp]:
        """The warps that have not committed the group that ``warp`` waits for."""
        number = self._commits.get(warp, 0) - pending
        return [w for w in self.warps if self._commits.get(w, 0) < number]

    def passed(self, warp: Warp, pending: int, op: Op) -> None:
        """``warp`` knows that all but its ``pending`` newest groups have run."""
        number = self._commits.get(warp, 0) - 1 - pending
        current = self._rounds.get(number)
        if current is None:
            return
        size = self.machine.components.size
        join(warp.clock[:size], current.clock[:size])
        if self.machine.trace is not None:
            text = f"has waited for wgmma group {number}"
            self.machine.trace.note("leave", self.component, number, warp, op, text)
        current.waits += 1
        if current.waits == len(self.warps):
            self._rounds = {n: r for n, r in self._rounds.items() if n > number}

    def __str__(self) -> str:
        counts = ", ".join(f"{w}: {self._commits.get(w, 0)}" for w in self.warps)
        return f"wgmma groups committed by {self.label}: {counts}"
