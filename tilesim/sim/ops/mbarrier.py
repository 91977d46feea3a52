"""mbarrier instructions other than waits (SEMANTICS section A)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import (
    MAX_COUNT,
    FenceMbarrierInit,
    MbarrierArrive,
    MbarrierArriveDrop,
    MbarrierArriveExpectTx,
    MbarrierCompleteTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierInval,
    MbarrierPendingCount,
)
from tilesim.sim.compile import RULES, Compiler, require_live
from tilesim.sim.expression import plain
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.conditions import Credit
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import NotUniform, uniform
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.warp import Step, Warp, mask_array
from tilesim.sim.ops.scalar import assign


def lane_sum(value: Any, warp: Warp, low: int = 0) -> int:
    """The sum over the active lanes, each of which executes the instruction.

    Raises:
        BarrierError: a lane's count or bytes are outside ``low`` .. 2^20 - 1 (A3).
    """
    if type(value) is int:
        _require_range(value, value, low)
        return value * warp.lanes
    value = plain(value)
    if isinstance(value, np.ndarray):
        lanes = value[mask_array(warp.mask)]
        _require_range(int(lanes.min()), int(lanes.max()), low)
        return int(lanes.sum())
    _require_range(int(value), int(value), low)
    return int(value) * warp.lanes


def _require_range(least: int, most: int, low: int) -> None:
    if low <= least and most <= MAX_COUNT:
        return
    wrong = least if least < low else most
    what = "arrival count" if low else "tx-count"
    raise BarrierError(
        "over-arrival" if low else "tx-mismatch",
        f"{what} {wrong} is outside {low}..{MAX_COUNT} (A3)",
        f"compute a number from {low} to {MAX_COUNT}",
    )


def arrive(
    barrier: Mbarrier, w: Warp, op: Op, arrivals: int, tx: int, sem: str, scope: str,
    *, drop: int = 0, partial: bool = False,
) -> None:  # fmt: skip
    """An arrive-on (with expect-tx) by a warp; a release publishes the warp's clock (A26)."""
    credit = Credit(w, op, arrivals, tx, w.tick, partial=partial)
    visible = sem == "release" and _scopes_reach(barrier, w, scope)
    if sem == "relaxed" and _scopes_reach(barrier, w, scope):
        local = barrier.cta is w.cta or not w.machine.options.ptx
        fenced = w.fences.released("cta" if local else "cluster")
        if fenced is not None:
            barrier.publish(fenced)
    if arrivals and w.machine.options.ptx:
        _check_observed(barrier, w, op)
    barrier.credit(credit, w.clock, visible=visible, drop=drop)
    w.advance()
    w.effects += 1
    if w.machine.pollers:
        w.machine.changed()
    else:
        w.machine.version += 1


def _scopes_reach(barrier: Mbarrier, w: Warp, scope: str) -> bool:
    """True if a release of this scope includes the barrier's CTA (A30, U4)."""
    return scope == "cluster" or barrier.cta is w.cta or not w.machine.options.ptx


def _check_observed(barrier: Mbarrier, w: Warp, op: Op) -> None:
    """Strict reading of A24: some wait saw the previous phase before this arrival (U1)."""
    if barrier.observed_by(w):
        return
    w.machine.report(
        "phase-ambiguity",
        f"{w} arrives on {barrier.label} in phase {barrier.phase} although no wait for "
        f"phase {barrier.phase - 1} is ordered before that (A24)",
        (w.machine.participant(w, f"arrives on {barrier.label}", op),),
        fix="let at least one thread wait for every phase before the next arrival",
    )


def each_lane(step: Step) -> Step:
    """``step`` once for all lanes, or lane by lane where each names a barrier of its own.

    ``step`` evaluates its operands before it does anything else.
    """

    def lanes(w: Warp) -> None:
        try:
            step(w)
        except NotUniform:
            active = w.mask
            try:
                for lane in np.flatnonzero(mask_array(active)).tolist():
                    w.mask = 1 << lane
                    step(w)
            finally:
                w.mask = active

    return lanes


@RULES.rule(MbarrierInit)
def _init(c: Compiler, op: MbarrierInit) -> Step:
    mbar, count = c.mbar(op.mbar), c.expr(op.count)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        for _ in range(w.lanes):
            barrier.start(uniform(count(w), w), Credit(w, op, 0, 0, w.tick))
        _touch(w, barrier, op)
        w.advance()
        w.effects += 1

    return each_lane(step)


def _touch(w: Warp, barrier: Mbarrier, op: Op) -> None:
    """init and inval are generic writes of the object's bytes (A6, A7)."""
    memory = barrier.cta.memory
    low = barrier.address

    def make() -> Footprint:
        return Footprint(
            barrier.label, "", None, np.arange(low, low + 8, dtype=np.int64), 1, low, low + 8
        )

    footprint = memory.table.get(("mbarrier", low), make)
    footprint.barriers = ()
    access = Access(w, op, w.component, w.tick, False, True)
    w.machine.races.write(memory, footprint, access, w.clock)


@RULES.rule(MbarrierInval)
def _inval(c: Compiler, op: MbarrierInval) -> Step:
    mbar = c.mbar(op.mbar)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        barrier.stop(w, op)
        _touch(w, barrier, op)
        w.advance()
        w.effects += 1

    return each_lane(step)


@RULES.rule(MbarrierArrive)
def _arrive(c: Compiler, op: MbarrierArrive) -> Step:
    mbar, count = c.mbar(op.mbar), c.expr(op.count)
    token = None if op.token is None else c.slot(op.token)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        arrivals = lane_sum(count(w), w, 1)
        phase, pending = barrier.phase, barrier.pending
        if op.no_complete and arrivals >= barrier.pending:
            raise BarrierError(
                "over-arrival",
                f"mbarrier.arrive.noComplete on {barrier.label} would end phase {phase}, which "
                f"has {pending} arrivals pending (A.4)",
                "use the plain form for the last arrival",
            )
        arrive(barrier, w, op, arrivals, 0, op.sem, op.scope, partial=op.no_complete)
        if token is not None:
            assign(w, token, _token(phase, pending, noncompleting=op.no_complete))

    return each_lane(step)


def _token(phase: int, pending: int, *, noncompleting: bool) -> int:
    """An opaque phase token; the pending count is only valid from a .noComplete form."""
    return phase << 32 | (pending << 1 | 1 if noncompleting else 0)


@RULES.rule(MbarrierArriveExpectTx)
def _arrive_expect_tx(c: Compiler, op: MbarrierArriveExpectTx) -> Step:
    mbar, nbytes = c.mbar(op.mbar), c.expr(op.bytes)
    token = None if op.token is None else c.slot(op.token)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        phase, pending = barrier.phase, barrier.pending
        arrive(barrier, w, op, w.lanes, lane_sum(nbytes(w), w), op.sem, op.scope)
        if token is not None:
            assign(w, token, _token(phase, pending, noncompleting=False))

    return each_lane(step)


@RULES.rule(MbarrierArriveDrop)
def _arrive_drop(c: Compiler, op: MbarrierArriveDrop) -> Step:
    mbar, count = c.mbar(op.mbar), c.expr(op.count)
    nbytes = None if op.bytes is None else c.expr(op.bytes)
    token = None if op.token is None else c.slot(op.token)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        arrivals = lane_sum(count(w), w, 1)
        tx = 0 if nbytes is None else lane_sum(nbytes(w), w)
        phase, pending = barrier.phase, barrier.pending
        arrive(barrier, w, op, arrivals, tx, op.sem, op.scope, drop=arrivals)
        if token is not None:
            assign(w, token, _token(phase, pending, noncompleting=False))

    return each_lane(step)


@RULES.rule(MbarrierExpectTx)
def _expect_tx(c: Compiler, op: MbarrierExpectTx) -> Step:
    mbar, nbytes = c.mbar(op.mbar), c.expr(op.bytes)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        phase = barrier.phase
        arrive(barrier, w, op, 0, lane_sum(nbytes(w), w), "relaxed", op.scope)
        if barrier.phase != phase:
            w.machine.report(
                "tx-mismatch",
                f"expect_tx on {barrier.label} ends phase {phase} because its bytes had completed "
                "before they were expected and no arrival was pending (U3: undefined by the text)",
                (w.machine.participant(w, f"expects bytes on {barrier.label}", op),),
                fix="expect the bytes before the last arrival, or use arrive.expect_tx",
            )

    return each_lane(step)


@RULES.rule(MbarrierCompleteTx)
def _complete_tx(c: Compiler, op: MbarrierCompleteTx) -> Step:
    mbar, nbytes = c.mbar(op.mbar), c.expr(op.bytes)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        arrive(barrier, w, op, 0, -lane_sum(nbytes(w), w), "relaxed", op.scope)

    return each_lane(step)


@RULES.rule(MbarrierPendingCount)
def _pending_count(c: Compiler, op: MbarrierPendingCount) -> Step:
    token, result = c.expr(op.token), c.slot(op.result)

    def step(w: Warp) -> None:
        bits = uniform(token(w), w)
        if not bits & 1:
            raise BarrierError(
                "phase-alias",
                "mbarrier.pending_count of a token that no .noComplete arrive returned (A.4)",
                "take the token from mbarrier.arrive with no_complete",
            )
        w.machine.nondeterministic("the pending count that a token holds", op)
        assign(w, result, (bits & 0xFFFFFFFF) >> 1)

    return step


@RULES.rule(FenceMbarrierInit)
def _fence_mbarrier_init(c: Compiler, op: FenceMbarrierInit) -> Step:
    def step(w: Warp) -> None:
        assert w.inits is not None
        made = w.machine.components.clock()
        made[w.machine.components.size + w.inits.component] = w.inits.made_by(w.mask)
        w.fences.hand_over("cluster", made)

    return step
