"""What the four warps of a warpgroup do together: wgmma groups (SEMANTICS F1, F5).

A wgmma is one operation of the warpgroup: it has run only when all four warps have issued it, so a
wait for its group is also a wait for the other warps to have committed that group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tilesim.findings.finding import Named
from tilesim.records import dataclass, field
from tilesim.sim.machine.clock import Clock, join
from tilesim.sim.machine.warp import Barrier

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.footprint import Access
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.register_pool import Adjustment
    from tilesim.sim.machine.warp import Agent


#: a warpgroup is four consecutive warps, the number of the first a multiple of four (F1)
WARPS = 4


@dataclass(slots=True)
class Round:
    """The n-th commit of the warpgroup: how many warps have made it, what they had done (row S of
    their clocks)."""

    clock: Clock
    commits: int = 0
    waits: int = 0


@dataclass(slots=True)
class Collective:
    """Instructions of the warpgroup as its first warp executes them, one after the other.

    ``operands``: those of the first instruction, then of the next, as many of each. ``accesses``:
    each of the instructions is one operation of all warps, and one access to memory; ``values`` are
    what the operands hold.
    """

    warp: Agent
    ops: Sequence[Op]
    operands: tuple[object, ...]
    warps: int = 1
    accesses: list[Access] = field(default_factory=list)
    values: list[NDArray[Any]] = field(default_factory=list)


class Warpgroup(Barrier):
    """The wgmma groups of four consecutive warps; ``component`` publishes completed operations."""

    def __init__(self, machine: Core, label: str) -> None:
        super().__init__(machine, Named(label, label), machine.components.new())
        self.warps: list[Agent] = []
        #: of each warp, what publishes for which operations that warp itself has waited (F5)
        self.waited: list[int] = []
        self._rounds: dict[int, Round] = {}
        self._commits: dict[Agent, int] = {}
        #: which warps have made the n-th setmaxnreg; the last two rounds
        self.adjustments: dict[int, list[Adjustment]] = {}
        #: what the first warp executed where not all have, by number; None once they have differed
        self._first: dict[int, Collective] | None = {}

    def together(
        self, warp: Agent, ops: Sequence[Op], operands: tuple[object, ...] = ()
    ) -> Collective:
        """``warp`` executes instructions of the warpgroup, which all four warps execute with the
        same operands (F1). Each place in the program has ``ops`` of its own."""
        number, known = warp.collective, self._first
        warp.collective = number + 1
        warp.last_collective = ops[-1]
        if known is None:
            return Collective(warp, ops, operands)
        first = known.get(number)
        if first is None:
            first = known[number] = Collective(warp, ops, operands)
            if len(self.warps) < WARPS:
                self._first = None
                self._report_incomplete(warp, ops[0])
            return first
        if first.ops is not ops or first.operands != operands:
            self._first = None
            self._report(first, warp, ops, operands)
            return Collective(warp, ops, operands)
        first.warps += 1
        if first.warps == WARPS:
            del known[number]
        return first

    @property
    def ahead(self) -> bool:
        """True if some of its warps have executed what others of them still have to."""
        return bool(self._first)

    @property
    def disagree(self) -> bool:
        """True if its warps have been found to execute different instructions."""
        return self._first is None

    def _report_incomplete(self, warp: Agent, op: Op) -> None:
        self.machine.report(
            "participation",
            f"{op.mnemonic} of {warp}: its warpgroup has {len(self.warps)} warps in this CTA, and "
            f"{WARPS} execute it together (F1)",
            ((warp, f"executes {op.mnemonic}", op),),
            fix="launch a multiple of four warps, and execute it in a whole warpgroup",
        )

    def _report(
        self, first: Collective, warp: Agent, ops: Sequence[Op], operands: tuple[object, ...]
    ) -> None:
        op, other = ops[0], first.ops[0]
        if first.ops is ops:
            pairs = enumerate(zip(first.operands, operands, strict=True))
            differing = next(number for number, (a, b) in pairs if a != b)
            op = other = ops[differing * len(ops) // len(operands)]
            what = f"execute {op.mnemonic} on different shared operands: the matrix descriptors"
            what += " are the same in all four warps (F10)"
            fix = "compute the operands from what the four warps have in common"
        else:
            what = f"execute different instructions, {other.mnemonic} and {op.mnemonic}: the"
            what += " four warps execute the same one together (F1)"
            fix = "execute one instruction of the program in all four warps of the warpgroup"
        self.machine.report(
            "participation",
            f"the warps of {self.label} {what}",
            (
                (warp, f"executes {op.mnemonic}", op),
                (first.warp, f"executes {other.mnemonic}", other),
            ),
            fix=fix,
        )

    def commit(self, warp: Agent, op: Op) -> None:
        """``warp`` closes its next group."""
        number = self._commits.get(warp, 0)
        self._commits[warp] = number + 1
        current = self._rounds.get(number)
        known = warp.clock[: self.machine.components.size]
        if current is None:
            current = self._rounds[number] = Round(known.copy())
        else:
            join(current.clock, known)
        current.commits += 1
        if self.machine.trace is not None:
            text = f"commits wgmma group {number}"
            self.machine.note("join", self.component, warp, op, text, phase=number)
        warp.advance()
        if current.commits == len(self.warps):
            self.wake_waiters()

    def holds_up(self, warp: Agent, pending: int) -> bool:
        """Whether a warp has not committed the group that ``warp`` waits for."""
        current = self._rounds.get(self._commits.get(warp, 0) - pending - 1)
        return current is not None and current.commits < len(self.warps)

    def missing(self, warp: Agent, pending: int) -> list[Agent]:
        """The warps that have not committed the group that ``warp`` waits for."""
        number = self._commits.get(warp, 0) - pending
        return [w for w in self.warps if self._commits.get(w, 0) < number]

    def passed(self, warp: Agent, pending: int, op: Op) -> None:
        """``warp`` knows that all but its ``pending`` newest groups have run."""
        number = self._commits.get(warp, 0) - 1 - pending
        current = self._rounds.get(number)
        if current is None:
            return
        join(warp.clock[: self.machine.components.size], current.clock)
        if self.machine.trace is not None:
            text = f"has waited for wgmma group {number}"
            self.machine.note("leave", self.component, warp, op, text, phase=number)
        current.waits += 1
        if current.waits == len(self.warps):
            self._rounds = {n: r for n, r in self._rounds.items() if n > number}

    def state(self, cta: int | None = None) -> str:
        """How many groups each warp has committed; the text speaks of one ``cta``, or of none."""
        counts = ", ".join(
            f"{w.called(w.role, cta)}: {self._commits.get(w, 0)}" for w in self.warps
        )
        return f"wgmma groups committed by {self.label}: {counts}"
