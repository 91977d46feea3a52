"""Findings about operations on an mbarrier that have no meaning in the state they find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilesim.ir.ops.mbarrier import MAX_COUNT
from tilesim.sim.findings import Stated
from tilesim.sim.machine.clock import GENERIC, Clock
from tilesim.sim.machine.misuse import BarrierError, Side
from tilesim.words import count

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.agent import Agent
    from tilesim.sim.machine.conditions import Credit, Wait
    from tilesim.sim.machine.mbarrier_state import MbarrierState


def _init_of(barrier: MbarrierState) -> Side | None:
    """The initialisation of a barrier's present life."""
    return None if barrier.init is None else Side(barrier.init.warp, barrier.init.op)


def not_visible(barrier: MbarrierState, warp: Agent, op: Op) -> BarrierError:
    """An operation by a warp that need not know of the initialisation (A7)."""
    init = _init_of(barrier)
    where = "" if init is None else f" at {init.op.loc}"
    return BarrierError(
        "init-visibility",
        f"{op.mnemonic} on {barrier.label} by {warp}, for which the mbarrier.init{where} is not "
        "ordered before it (A7)",
        "put a __syncthreads (or, for other CTAs, fence.mbarrier_init and a cluster barrier) "
        "between the initialisation and the first use",
        init,
        facts=Stated((barrier.named,)),
    )


def landed_late(barrier: MbarrierState, credit: Credit) -> BarrierError:
    """An asynchronous operation completes on an object that is not the one it was issued for."""
    return BarrierError(
        "barrier-lifetime",
        f"{credit.op.mnemonic} of {credit.warp} completes on {barrier.label} after that was "
        "invalidated and initialised again (A6)",
        "wait for the operation before the barrier is invalidated",
        _init_of(barrier),
        facts=Stated((barrier.named,)),
    )


def over_arrival(barrier: MbarrierState, credit: Credit) -> BarrierError:
    """More arrivals than the phase has pending (A13); the other side is its last arrival."""
    arrived = [c for c in barrier.current.credits if c.arrivals > 0]
    bytes_ = f" and still waits for {barrier.tx} bytes" if barrier.tx else ""
    return BarrierError(
        "over-arrival",
        f"{count(credit.arrivals, 'arrival')} on {barrier.label} in phase {barrier.phase}, which "
        f"has {barrier.pending} of {barrier.expected} pending{bytes_} (A13)",
        "make the init count the number of arrivals of one phase, and wait for a phase "
        "before arriving on the next one",
        Side(arrived[-1].warp, arrived[-1].op) if arrived else None,
        tuple(barrier.contributions()),
        facts=Stated(
            (barrier.named,),
            arrivals=(credit.arrivals,),
            bytes=(abs(barrier.tx),) if barrier.tx else (),
        ),
        noted=barrier.current.facts,
    )


def ends_between_lanes(barrier: MbarrierState, credit: Credit, inside: int) -> BarrierError:
    """Some lanes of one instruction end the phase, by the text; hardware adds up what all do (A32).

    Then there are more arrivals than are pending, or bytes whose balance passes zero.
    """
    if credit.arrivals > 0:
        return BarrierError(
            "over-arrival",
            f"{credit.lanes} lanes make {credit.arrivals} arrivals on {barrier.label} by one "
            f"instruction, in phase {barrier.phase}, which has {barrier.pending} of "
            f"{barrier.expected} pending: by the text it ends after {inside} lanes, an H200 adds "
            "up all of them and stops (A32)",
            "make the init count the number of arrivals of one phase, or let fewer lanes arrive",
            None,
            tuple(barrier.contributions()),
            facts=Stated((barrier.named,), arrivals=(credit.arrivals,)),
            noted=barrier.current.facts,
        )
    moved = abs(credit.tx)
    return BarrierError(
        "tx-mismatch",
        f"{credit.op.mnemonic} by {credit.lanes} lanes counts {moved} bytes on {barrier.label}, "
        f"whose balance is {barrier.tx}: by the text phase {barrier.phase} ends after {inside} "
        "lanes, an H200 adds up all of them and leaves it open (A32)",
        "let the lanes of one instruction together count no more than the phase still expects",
        facts=Stated((barrier.named,), bytes=(moved,)),
    )


def overfull(barrier: MbarrierState, credit: Credit) -> BarrierError:
    """An instruction adds an arrival to a phase that expects as many as can be counted (A3)."""
    return BarrierError(
        "over-arrival",
        f"{credit.op.mnemonic} makes {barrier.label} expect {barrier.pending} arrivals in phase "
        f"{barrier.phase}, more than {MAX_COUNT} (A3, C6)",
        "use .noinc and count these arrivals in mbarrier.init",
        _init_of(barrier),
        facts=Stated((barrier.named,), arrivals=(barrier.pending,)),
    )


def late_uses(
    barrier: MbarrierState, warp: Agent, clock: Clock
) -> Iterator[tuple[Credit | Wait, bool]]:
    """What was done with a barrier and does not happen before a mbarrier.inval with ``clock``, and
    whether it at least comes before it in time.

    mbarrier.inval is an ordinary write (A6). What its warp has waited for on this barrier comes
    before it anyhow.
    """
    row = GENERIC * barrier.machine.components.size
    known = clock[row:]
    uses: list[Credit | Wait] = [*barrier.looks.values()]
    for record, phase in (
        (barrier.current, barrier.phase + 1),
        (barrier.previous, barrier.phase),
    ):
        uses += record.waits
        own = any(w.warp is warp and known[w.component] >= w.tick for w in record.waits)
        if not own and known[barrier.component] < barrier.base + phase:
            uses += record.credits
    for use in uses:
        late = clock[use.component] < use.tick and not use.known_by_parts(clock)
        if getattr(use, "asynchronous", False) or late:
            yield use, False
        elif known[use.component] < use.tick and not use.known_by_parts(clock, row):
            yield use, True


def unordered_end(barrier: MbarrierState, warp: Agent, op: Op, use: Credit | Wait) -> None:
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
        facts=Stated((barrier.named,)),
    )
