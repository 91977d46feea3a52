"""Accesses to another CTA's shared memory: the CTA must have started and not have exited (D8, D9).
So must the other CTA of a pair that allocates tensor memory together (G9).

Both are questions of order, not of time: something of the target CTA must be ordered before the
access, and the access before the end of the target CTA. The second is asked when the run ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilesim.findings.finding import Stated
from tilesim.ir.loc import Loc
from tilesim.sim.machine.footprint import Access

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.cta import Cta
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.labels import Place
    from tilesim.sim.machine.warp import Agent


class PeerLog:
    """The latest access per target CTA, agent, lanes and source line: it implies those before."""

    def __init__(self, machine: Core, ctas: Sequence[Cta]) -> None:
        self._machine = machine
        self._ctas = ctas
        self._started: set[tuple[int, int]] = set()
        self._latest: dict[tuple[int, int, int, Loc], tuple[Place, Access]] = {}

    def touch(self, warp: Agent, cta: Place) -> None:
        """``warp`` executes an instruction on ``cta``'s shared memory."""
        op = self._machine.plan.origins[warp.pc - 1]
        if isinstance(op, Loc) or cta is warp.cta:
            return
        # the instruction's own effect has this position, if it has one: it is not marked here
        now = int(warp.clock[warp.component])
        access = Access(warp, op, warp.component, now, False, False, lanes=warp.mask)
        self.note(cta, access)
        if self._first(warp, cta):
            self._machine.report(
                "peer-start",
                f"{warp} accesses the shared memory of CTA {cta.number} by {op.mnemonic} before "
                f"it has observed that this CTA has started (D8)",
                ((warp, f"executes {op.mnemonic} remotely", op),),
                fix="let all CTAs of the cluster pass a cluster barrier before the first remote "
                "access",
            )

    def meet(self, warp: Agent, cta: Place, op: Op) -> None:
        """``warp`` executes an instruction that a warp of ``cta`` executes with it (G9)."""
        if self._first(warp, cta):
            self._machine.report(
                "peer-start",
                f"{warp} executes {op.mnemonic}.cta_group::2 before it has observed that the "
                f"other CTA of the pair, CTA {cta.number}, has started (G9)",
                ((warp, f"executes {op.mnemonic}.cta_group::2", op),),
                fix="let the CTAs of the pair pass a cluster barrier before it",
            )

    def _first(self, warp: Agent, cta: Place) -> bool:
        """Whether nothing of ``cta`` is known to have happened, for the first time."""
        key = (warp.index, cta.index)
        if key in self._started:
            return False
        known = any(
            warp.clock[component]
            for w in self._ctas[cta.index].warps
            for component in w.parts.components
        )
        if not known or not warp.may_divide:  # what some lanes know, others may not
            self._started.add(key)
        return not known

    def note(self, cta: Place, access: Access) -> None:
        """An access that may still be under way after its instruction (a copy that lands)."""
        self._latest[cta.index, access.component, access.lanes, access.op.loc] = (cta, access)

    def report_exits(self) -> None:
        """At the end of a run: accesses that the end of their target CTA does not wait for."""
        for cta, access in self._latest.values():
            warps = self._ctas[cta.index].warps
            if any(w.knows_to(access.component) >= access.tick for w in warps):
                continue
            if any(_knows_by_parts(w, access) for w in warps):
                continue
            op, warp = access.op, access.warp
            what = "land" if access.asynchronous else "execute"
            self._machine.report(
                "peer-exit",
                f"CTA {cta.number} can exit before {op.mnemonic} of {warp} has {_PAST[what]} on "
                "its shared memory (D9)",
                ((warp, f"{what}s {op.mnemonic} remotely", op),),
                fix="end the kernel with a cluster barrier after the last remote access, or let "
                f"CTA {cta.number} wait for it before it exits",
                facts=Stated(cta=cta.number),
            )


def _knows_by_parts(warp: Agent, access: Access) -> bool:
    """Whether lanes of a warp know what each lane did after an access, in parts of its warp."""
    if access.asynchronous or access.engine:
        return False
    return any(
        access.warp.is_known(clock, 0, access.component, access.tick, access.lanes)
        for clock in (warp.clock, *(part.clock for part in warp.parts.leaves))
    )


_PAST = {"land": "landed", "execute": "executed"}
