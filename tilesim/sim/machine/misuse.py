"""What an instruction raises when its operation has no meaning in the state it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilesim.ir.ops.mbarrier import MAX_COUNT
from tilesim.sim.findings import Rule
from tilesim.sim.machine.warp import Fault

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.conditions import Credit, Wait
    from tilesim.sim.machine.mbarrier import Mbarrier
    from tilesim.sim.machine.warp import Warp


class Side(NamedTuple):
    """The other operation of a misuse."""

    warp: Warp
    op: Op


class BarrierError(Fault):
    """Undefined behaviour of a barrier operation: the run stops with this finding."""

    def __init__(
        self,
        rule: Rule,
        message: str,
        fix: str,
        other: Side | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.rule: Rule = rule
        self.message = message
        self.fix = fix
        self.other = other
        self.notes = notes


def over_arrival(barrier: Mbarrier, credit: Credit) -> BarrierError:
    """More arrivals than the phase has pending (A13); the other side is its last arrival."""
    arrived = [c for c in barrier.current.credits if c.arrivals > 0]
    bytes_ = f" and still waits for {barrier.tx} bytes" if barrier.tx else ""
    return BarrierError(
        "over-arrival",
        f"{credit.arrivals} arrival(s) on {barrier.label} in phase {barrier.phase}, which has "
        f"{barrier.pending} of {barrier.expected} pending{bytes_} (A13)",
        "make the init count the number of arrivals of one phase, and wait for a phase "
        "before arriving on the next one",
        Side(arrived[-1].warp, arrived[-1].op) if arrived else None,
        tuple(barrier.contributions()),
    )


def overfull(barrier: Mbarrier, credit: Credit) -> BarrierError:
    """An instruction adds an arrival to a phase that expects as many as can be counted (A3)."""
    init = barrier.init
    return BarrierError(
        "over-arrival",
        f"{credit.op.mnemonic} makes {barrier.label} expect {barrier.pending} arrivals in phase "
        f"{barrier.phase}, more than {MAX_COUNT} (A3, C6)",
        "use .noinc and count these arrivals in mbarrier.init",
        None if init is None else Side(init.warp, init.op),
    )


def unordered_end(barrier: Mbarrier, warp: Warp, op: Op, use: Credit | Wait) -> None:
    """mbarrier.inval is a write, and nothing makes ``use`` happen before it but time (A6)."""
    machine = warp.machine
    machine.report(
        "barrier-lifetime",
        f"{warp} invalidates {barrier.label}, and nothing orders that after {use.op.mnemonic} of "
        f"{use.warp}, although it comes later (A6)",
        (
            machine.participant(warp, f"executes {op.mnemonic}", op),
            machine.participant(use.warp, f"executes {use.op.mnemonic}", use.op),
        ),
        fix="hand over from each user to the warp that invalidates it: release after the last use, "
        "acquire before mbarrier.inval",
    )
