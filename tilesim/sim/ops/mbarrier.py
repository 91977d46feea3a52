"""mbarrier instructions other than waits (SEMANTICS section A)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
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
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.execute.apart import each_lane
from tilesim.sim.execute.credits import require_live
from tilesim.sim.execute.registers import assign
from tilesim.sim.expression import plain
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.conditions import Credit
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.mbarrier_misuse import over_arrival
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.misuse import BarrierError, Side
from tilesim.sim.machine.tokens import Token


def shares(w: Warp, count: Any, nbytes: Any) -> list[tuple[int, int, int]]:
    """What the active lanes contribute, each of which executes the instruction: arrivals and bytes
    of one lane, and in how many lanes they are that. No ``count`` (None): no arrivals.

    Raises:
        BarrierError: a lane's arrivals are not 1 .. 2^20 - 1, or its bytes not 0 .. 2^20 - 1 (A3).
    """
    if type(nbytes) is int and (count is None or type(count) is int):
        result = [(count or 0, nbytes, w.lanes)]
    else:
        mask = mask_array(w.mask)
        both = (np.broadcast_to(plain(0 if x is None else x), 32) for x in (count, nbytes))
        arrivals, expected = (x[mask].astype(np.int64).tolist() for x in both)
        lanes = Counter(zip(arrivals, expected, strict=True))
        result = [(*share, times) for share, times in lanes.items()]
    for arrivals, expected, _ in result:
        if count is not None:
            _require_range(arrivals, 1)
        _require_range(expected, 0)
    return result


def _require_range(value: int, low: int) -> None:
    if low <= value <= MAX_COUNT:
        return
    what = "arrival count" if low else "tx-count"
    raise BarrierError(
        "over-arrival" if low else "tx-mismatch",
        f"{what} {value} is outside {low}..{MAX_COUNT} (A3)",
        f"compute a number from {low} to {MAX_COUNT}",
    )


def arrive(
    barrier: Mbarrier, w: Warp, op: Op, count: Any, nbytes: Any, sem: str, scope: str,
    *, drop: bool = False, partial: bool = False, completes: bool = False,
) -> None:  # fmt: skip
    """An arrive-on (with expect-tx) of every active lane; a release publishes the warp's clock
    (A26). ``completes``: the bytes are completed, not expected."""
    visible = sem == "release" and _scopes_reach(barrier, w, scope)
    position = w.marks.get(w.component, 0)
    credits = [
        Credit(
            w, op, arrivals * lanes, (-tx if completes else tx) * lanes, w.tick + w.apart,
            partial=partial, lanes=lanes, releases=visible, position=position,
        )
        for arrivals, tx, lanes in shares(w, count, nbytes)
    ]  # fmt: skip
    if sem == "relaxed" and _scopes_reach(barrier, w, scope):
        local = barrier.cta is w.cta or not w.machine.options.ptx
        fenced = w.fences.released("cta" if local else "cluster")
        if fenced is not None:
            barrier.publish(fenced)
    if credits[0].arrivals and w.machine.options.ptx:
        _check_observed(barrier, w, op)
    arrivals = sum(credit.arrivals for credit in credits)
    if len(credits) > 1 and arrivals > barrier.pending:
        # lanes that differ must not end the phase in between: what is left depends on their order
        raise over_arrival(barrier, replace(credits[0], arrivals=arrivals))
    for credit in credits:
        barrier.credit(credit, w.clock, visible=visible, drop=credit.arrivals if drop else 0)
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
    memory = w.machine.ctas[barrier.cta.index].memory
    low = barrier.address

    def make() -> Footprint:
        return Footprint(
            barrier.label, "", np.arange(low, low + 8, dtype=np.int64), 1, (low, low + 8)
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
        phase, pending = barrier.phase, barrier.pending
        each = count(w)
        stamp = None if token is None else _token(barrier, w, op, each, counted=op.no_complete)
        if op.no_complete and sum(a * lanes for a, _, lanes in shares(w, each, 0)) >= pending:
            raise BarrierError(
                "over-arrival",
                f"mbarrier.arrive.noComplete on {barrier.label} would end phase {phase}, which "
                f"has {pending} arrivals pending (A.4)",
                "use the plain form for the last arrival",
            )
        arrive(barrier, w, op, each, 0, op.sem, op.scope, partial=op.no_complete)
        if token is not None:
            assign(w, token, stamp)

    return each_lane(step, signals=True)


def _token(barrier: Mbarrier, w: Warp, op: Op, count: Any, *, counted: bool = False) -> Any:
    """The token of an arrive that is about to be made by every active lane (A20).

    A phase that ends between the lanes gives the others a token of the next one: which lanes these
    are is up to the schedule.
    """
    machine, phase, pending = w.machine, barrier.base + barrier.phase, barrier.pending
    barrier.by_count = False

    def issue(later: int) -> int:
        return machine.tokens.issue(Token(barrier, phase + later, pending, counted, Side(w, op)))

    if type(count) is not int or count * w.lanes <= pending or w.lanes == 1:
        return issue(0)
    machine.nondeterministic("which lanes arrive in the next phase", op, explorable=False)
    beyond = np.cumsum(mask_array(w.mask)) * count - pending
    later = np.maximum(beyond + barrier.expected - 1, 0) // barrier.expected
    return np.array([issue(n) for n in range(int(later.max()) + 1)])[later]


@RULES.rule(MbarrierArriveExpectTx)
def _arrive_expect_tx(c: Compiler, op: MbarrierArriveExpectTx) -> Step:
    mbar, nbytes = c.mbar(op.mbar), c.expr(op.bytes)
    token = None if op.token is None else c.slot(op.token)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        stamp = None if token is None else _token(barrier, w, op, 1)
        arrive(barrier, w, op, 1, nbytes(w), op.sem, op.scope)
        if token is not None:
            assign(w, token, stamp)

    return each_lane(step, signals=True)


@RULES.rule(MbarrierArriveDrop)
def _arrive_drop(c: Compiler, op: MbarrierArriveDrop) -> Step:
    mbar, count = c.mbar(op.mbar), c.expr(op.count)
    nbytes = None if op.bytes is None else c.expr(op.bytes)
    token = None if op.token is None else c.slot(op.token)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        tx = 0 if nbytes is None else nbytes(w)
        each = count(w)
        stamp = None if token is None else _token(barrier, w, op, each)
        arrive(barrier, w, op, each, tx, op.sem, op.scope, drop=True)
        if token is not None:
            assign(w, token, stamp)

    return each_lane(step, signals=True)


@RULES.rule(MbarrierExpectTx)
def _expect_tx(c: Compiler, op: MbarrierExpectTx) -> Step:
    mbar, nbytes = c.mbar(op.mbar), c.expr(op.bytes)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        phase = barrier.phase
        arrive(barrier, w, op, None, nbytes(w), "relaxed", op.scope)
        if barrier.phase != phase:
            w.machine.report(
                "tx-mismatch",
                f"expect_tx on {barrier.label} ends phase {phase} because its bytes had completed "
                "before they were expected and no arrival was pending (U3: undefined by the text)",
                (w.machine.participant(w, f"expects bytes on {barrier.label}", op),),
                fix="expect the bytes before the last arrival, or use arrive.expect_tx",
            )

    return each_lane(step, signals=True)


@RULES.rule(MbarrierCompleteTx)
def _complete_tx(c: Compiler, op: MbarrierCompleteTx) -> Step:
    mbar, nbytes = c.mbar(op.mbar), c.expr(op.bytes)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        arrive(barrier, w, op, None, nbytes(w), "relaxed", op.scope, completes=True)

    return each_lane(step, signals=True)


@RULES.rule(MbarrierPendingCount)
def _pending_count(c: Compiler, op: MbarrierPendingCount) -> Step:
    token, result = c.expr(op.token), c.slot(op.result)

    def step(w: Warp) -> None:
        found = w.machine.tokens.find(uniform(token(w), w))
        if found is None or not found.counted:
            raise BarrierError(
                "phase-alias",
                "mbarrier.pending_count of a token that no .noComplete arrive returned (A.4)",
                "take the token from mbarrier.arrive with no_complete",
                None if found is None else found.by,
            )
        w.machine.nondeterministic("the pending count that a token holds", op)
        assign(w, result, found.pending)

    return step


@RULES.rule(FenceMbarrierInit)
def _fence_mbarrier_init(c: Compiler, op: FenceMbarrierInit) -> Step:
    def step(w: Warp) -> None:
        assert w.inits is not None
        made = w.machine.components.clock()
        made[w.machine.components.size + w.inits.component] = w.inits.made_by(w.mask)
        w.fences.hand_over("cluster", made)

    return step
