"""Named barriers, warp barriers, election, exit (SEMANTICS section E)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.ir.op import Op
from tilesim.ir.ops.bar import (
    BarArrive,
    BarRed,
    BarSync,
    ElectSync,
    Exit,
    SyncWarp,
)
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.execute.registers import assign, per_lane
from tilesim.sim.machine.forks import lanes_exit
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.named_barrier import Gathering, Generation, Join, NamedBarrier
from tilesim.sim.machine.warp import FULL, Lanes, Step, Warp


def _named(w: Warp, number: int) -> NamedBarrier:
    if not 0 <= number <= 15:
        raise BarrierError(
            "named-barrier", f"named barrier id {number} is outside 0..15 (E1)",
            "use ids 0 to 15; allocate them from one counter",
        )  # fmt: skip
    return w.cta.named[number]


def require_converged(w: Warp, op: Op, *, aligned: bool) -> None:
    """Aligned barriers, and collectives, need every live lane of the warp (E2, E8)."""
    if w.mask == w.live_mask:
        return
    form = "an aligned barrier" if aligned else "barrier.sync/arrive"
    raise BarrierError(
        "participation",
        f"{op.mnemonic} by {w.lanes} of the {w.live_mask.bit_count()} live lanes of {w}: {form} "
        "is executed by all of them (E2, E8)",
        "execute it outside the divergent region",
    )


def require_whole_warp(w: Warp, op: Op) -> None:
    """What all 32 lanes of a warp execute together, none of which has ended (F1, G4, G13)."""
    if w.mask == FULL:
        return
    if w.exited_lanes & ~w.mask:
        gone = w.exited_lanes.bit_count()
        why = f"{gone} of its lanes have exited: it needs all 32"
    else:
        why = f"only {w.lanes} of its 32 lanes execute it"
    raise BarrierError(
        "participation",
        f"{op.mnemonic} by {w}: {why} (E15, F1, G4, G13)",
        "execute it with the whole warp, outside the divergent region",
    )


def _require_one_site(barrier: NamedBarrier, w: Warp, op: Any) -> None:
    """Strict reading of .aligned (U16): one round, one static instruction."""
    joins = barrier.current.joins
    if not op.aligned or not w.machine.options.ptx or not joins:
        return
    other = joins[0]
    if getattr(other.op, "aligned", False) and other.op is not op:
        w.machine.report(
            "participation",
            f"one round of {barrier.label} is joined by aligned barriers at two places in the "
            "code (E8)",
            (
                w.machine.participant(w, f"joins {barrier.label}", op),
                w.machine.participant(other.warp, f"joins {barrier.label}", other.op),
            ),
            fix="use the non-aligned form (aligned=False) when roles meet at a barrier",
        )


def wait_for(
    w: Warp, barrier: NamedBarrier, generation: Generation | Gathering, op: Op
) -> bool | None:
    """Parks until ``generation`` completes, then joins what it published."""
    if generation.complete:
        w.generation = None
        w.learns(generation.joined)
        if generation.fences is not None:
            w.fences.learn(generation.fences)
        barrier.note_leave(w, generation, op)
        return None
    w.generation = generation
    barrier.waiters.append(w)
    return w.machine.block(w, barrier, f"waits at {barrier.label}", op)


def _join(
    w: Warp, barrier: NamedBarrier, op: Any, threads: int | None, *, waits: bool,
    reduction: bool = False, value: int = 0,
) -> Generation | Gathering:  # fmt: skip
    if op.aligned:
        require_converged(w, op, aligned=True)
    total = 32 * w.machine.program.warps
    if threads is not None and threads > total:
        raise BarrierError(
            "named-barrier",
            f"{barrier.label} is joined with {threads} threads, the CTA has {total} (E1)",
            "the count cannot exceed the threads of the CTA",
        )
    _require_one_site(barrier, w, op)
    if waits:
        w.meet()
    entry = Join(w.origin, op, w.component, w.tick, waits, reduction, w.lanes, value)
    generation = barrier.gather(entry, threads, w.published, w.mask, visible=True)
    w.advance()
    w.effects += 1
    w.machine.changed()
    return generation


@RULES.rule(BarSync)
def _sync(c: Compiler, op: BarSync) -> Step:
    number = c.expr(op.id)

    def step(w: Warp) -> bool | None:
        barrier = _named(w, uniform(number(w), w))
        generation = w.generation
        if generation is None:
            generation = _join(w, barrier, op, op.threads, waits=True)
        return wait_for(w, barrier, generation, op)

    return step


@RULES.rule(BarArrive)
def _arrive(c: Compiler, op: BarArrive) -> Step:
    number = c.expr(op.id)

    def step(w: Warp) -> None:
        _join(w, _named(w, uniform(number(w), w)), op, op.threads, waits=False)

    return step


@RULES.rule(BarRed)
def _red(c: Compiler, op: BarRed) -> Step:
    number, value, slot = c.expr(op.id), c.expr(op.value), c.slot(op.result)

    def step(w: Warp) -> bool | None:
        barrier = _named(w, uniform(number(w), w))
        generation = w.generation
        if generation is None:
            votes = int(np.count_nonzero(per_lane(w, value(w))))
            generation = _join(w, barrier, op, op.threads, waits=True, reduction=True, value=votes)
        if wait_for(w, barrier, generation, op):
            return True
        votes = sum(j.value for j in generation.joins)
        total = sum(j.lanes for j in generation.joins)
        results = {"popc": votes, "or": int(votes > 0), "and": int(votes == total)}
        assign(w, slot, results[op.op])
        return None

    return step


@RULES.rule(SyncWarp)
def _sync_warp(c: Compiler, op: SyncWarp) -> Step:
    def step(w: Warp) -> None:
        if w.mask & ~op.mask:
            raise BarrierError(
                "participation",
                f"bar.warp.sync with mask {op.mask:#x} by lanes outside it (E11)",
                "the mask must name every lane that executes the barrier",
            )
        if op.mask & w.live_mask & ~w.mask:
            raise BarrierError(
                "participation",
                f"bar.warp.sync waits for lanes {op.mask & w.live_mask & ~w.mask:#x} of {w}, "
                "which do not execute it (E11)",
                "name only the lanes that reach the barrier, or move it out of the branch",
            )
        w.meet()

    return step


@RULES.rule(ElectSync)
def _elect(c: Compiler, op: ElectSync) -> Step:
    slot = c.slot(op.result)

    def step(w: Warp) -> None:
        members = op.mask & w.mask
        if w.mask & ~op.mask or op.mask & w.live_mask & ~w.mask:
            raise BarrierError(
                "participation",
                f"elect.sync with mask {op.mask:#x} while lanes {w.mask:#x} of {w} execute it "
                "(E12)",
                "execute elect.sync with exactly the lanes of its mask",
            )
        if op.warp_sync:
            w.meet()
        # which lane is unspecified; an H200 takes the first, and code that relies on that shows
        # with the last
        first, last = members & -members, 1 << members.bit_length() - 1
        w.registers[slot] = Lanes(last if w.machine.options.ptx else first)

    return step


@RULES.rule(Exit)
def _exit(c: Compiler, op: Exit) -> Step:
    def step(w: Warp) -> bool | None:
        left, w.mask = w.mask, 0
        lanes_exit(w, left)
        if w.live_mask:
            return None
        w.machine.exit(w.origin)
        return True

    return step
