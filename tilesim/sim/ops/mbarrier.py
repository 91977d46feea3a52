"""mbarrier instructions (SEMANTICS section A)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import (
    FenceMbarrierInit,
    MbarrierArrive,
    MbarrierArriveDrop,
    MbarrierArriveExpectTx,
    MbarrierCompleteTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierInval,
    MbarrierPendingCount,
    MbarrierTestWait,
    MbarrierTryWait,
    MbarrierWait,
)
from tilesim.sim.compile import RULES, Compiler, require_live
from tilesim.sim.control import condition_lanes
from tilesim.sim.expression import Evaluate, plain
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.clock import Clock, join
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.mbarrier import BarrierError, Credit, Mbarrier
from tilesim.sim.machine.memory import NotUniform, uniform
from tilesim.sim.machine.warp import Step, Warp, mask_array
from tilesim.sim.ops.scalar import assign
from tilesim.sim.peek import Poll


def lane_sum(value: Any, warp: Warp) -> int:
    """The sum over the active lanes: each lane executes the instruction."""
    if type(value) is int:
        return value * warp.lanes
    value = plain(value)
    if isinstance(value, np.ndarray):
        return int(value[mask_array(warp.mask)].sum())
    return int(value) * warp.lanes


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

    return step


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

    return step


@RULES.rule(MbarrierArrive)
def _arrive(c: Compiler, op: MbarrierArrive) -> Step:
    mbar, count = c.mbar(op.mbar), c.expr(op.count)
    token = None if op.token is None else c.slot(op.token)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        arrivals = lane_sum(count(w), w)
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
        arrivals = lane_sum(count(w), w)
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


class Phase:
    """Resolves which parity a wait names, from a parity or a token operand."""

    def __init__(self, c: Compiler, phase: Expr, parity: bool) -> None:
        self._value: Evaluate = c.expr(phase)
        self._parity = parity

    def __call__(self, w: Warp, barrier: Mbarrier) -> int:
        value = self._value(w)
        if type(value) is not int:
            value = uniform(value, w)
        if not self._parity:
            return self._of_token(value >> 32, barrier)
        if value not in (0, 1):
            raise BarrierError(
                "phase-alias", f"wait on {barrier.label} with parity {value} (A21)",
                "a parity is 0 or 1: mask the phase counter with 1",
            )  # fmt: skip
        return int(value)

    @staticmethod
    def _of_token(phase: int, barrier: Mbarrier) -> int:
        if phase not in (barrier.phase, barrier.phase - 1):
            raise BarrierError(
                "phase-alias",
                f"wait on {barrier.label} with a token of phase {phase} while the barrier is in "
                f"phase {barrier.phase} (A19)",
                "wait with the token of the current or the preceding phase",
            )
        return phase & 1


def acquire(barrier: Mbarrier, w: Warp, op: Op, sem: str, scope: str) -> None:
    """A wait that returned true: joins what the phase published (A27) in its scope (A30)."""
    barrier.passed(w, op)
    if barrier.phase == 0:
        return
    completed = barrier.completed
    if sem == "acquire":
        _check_gap(barrier, w, op)
        join(w.clock, completed)
        if barrier.remote is not None and scope == "cluster":
            join(w.clock, barrier.remote)
    else:
        size = w.machine.components.size
        join(w.clock[:size], completed[:size])
        w.fences.saw(w.cta, completed)


def _check_gap(barrier: Mbarrier, w: Warp, op: Op) -> None:
    """An acquire of one phase gives only that phase (U7): not modelled after a relaxed wait."""
    before, size = barrier.base + barrier.phase - 1, w.machine.components.size
    if w.clock[barrier.component] >= before > w.clock[size + barrier.component]:
        w.machine.nondeterministic(
            f"what a relaxed wait on {barrier.label} before an acquiring one makes visible",
            op,
            explorable=False,
        )


@RULES.rule(MbarrierWait)
def _wait(c: Compiler, op: MbarrierWait) -> Step:
    mbar, parity_of = c.mbar(op.mbar), Phase(c, op.phase, op.parity)

    def step(w: Warp) -> bool | None:
        barrier = mbar(w)
        if not barrier.live or w.index not in barrier.visible_to:
            require_live(barrier, w, op)
        parity = parity_of(w, barrier)
        if (barrier.phase & 1) != parity:
            acquire(barrier, w, op, op.sem, op.scope)
            return None
        barrier.waiters.append(w)
        text = f"waits on {barrier.label} parity {parity}"
        if w.machine.trace is not None:
            phase = barrier.base + barrier.phase
            w.machine.trace.note("block", barrier.component, phase, w, op, text)
        return w.machine.block(w, barrier, text, op)

    return step


class Polled:
    """A suspended try_wait: what it waits for, and whether the system limit has passed."""

    __slots__ = ("expired", "mbarrier")

    def __init__(self, mbarrier: Mbarrier) -> None:
        self.mbarrier = mbarrier
        self.expired = False


def _surely(w: Warp, barrier: Mbarrier, parity: int) -> bool:
    """True if a look answers yes in every schedule in which the phase is not missed (C2)."""
    return barrier.has_completed(parity) and barrier.knows_completion(w.clock)


def _poll_result(w: Warp, barrier: Mbarrier, parity: int, op: Poll) -> int:
    done = barrier.has_completed(parity)
    if not _surely(w, barrier, parity):
        w.machine.nondeterministic(f"the answer of {op.mnemonic} on {barrier.name}", op)
    if w.machine.trace is not None:
        text = f"{op.mnemonic} on {barrier.label} answers {int(done)}"
        phase = barrier.base + barrier.phase
        w.machine.trace.note("poll", barrier.component, phase, w, op, text)
    if done:
        acquire(barrier, w, op, op.sem, op.scope)
    return int(done)


class Look:
    """A peek of the timed run: what it asked, with which clock, and the flag it left unanswered."""

    __slots__ = ("asked", "clock", "flag", "op", "used")

    def __init__(self, asked: tuple[object, ...], clock: Clock, op: Poll, flag: object) -> None:
        self.asked = asked
        self.clock = clock
        self.op = op
        self.flag = flag
        self.used = False


class _Unanswered(int):
    """The flag of a peek that was not made: a zero like no other."""


def _peek(c: Compiler, op: Poll) -> Step:
    """A poll that only decides whether a later wait is made (`tilesim.sim.peek`).

    The timed run leaves it out, so that the wait stands for both; what the poll could have seen is
    checked by `wait_unless`. It does poll where the answer must be yes. Under a chosen schedule it
    always does: a try_wait that gives up is a test_wait made at another time.
    """
    mbar, parity_of = c.mbar(op.mbar), Phase(c, op.phase, op.parity)
    result = c.slot(op.result)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        parity = parity_of(w, barrier)
        surely = op.mnemonic == "mbarrier.test_wait" and _surely(w, barrier, parity)
        if surely or not w.machine.timed:
            assign(w, result, _poll_result(w, barrier, parity, op))
            return
        barrier.looked(w, op)
        assign(w, result, _Unanswered())
        asked = (barrier, parity, op.sem, op.scope)
        w.looks[result] = Look(asked, w.clock.copy(), op, w.registers[result])
        w.advance()

    return step


def wait_unless(c: Compiler, cond: Expr, flag: Var, op: MbarrierWait) -> Step:
    """``if not flag: wait`` after a peek."""
    wait, holds, slot = _wait(c, op), c.expr(cond), c.slot(flag)
    mbar, parity_of = c.mbar(op.mbar), Phase(c, op.phase, op.parity)

    def step(w: Warp) -> bool | None:
        if not condition_lanes(holds(w)) & w.mask:
            return None
        barrier = mbar(w)
        stopped = wait(w)
        look = w.looks.get(slot)
        if stopped or look is None or w.registers[slot] is not look.flag:
            return stopped
        if look.used or look.asked != (barrier, parity_of(w, barrier), op.sem, op.scope):
            name = look.op.mnemonic
            w.machine.nondeterministic(f"whether {name} lets the wait on {barrier.name} out", op)
        else:
            barrier.peeked(w, look.op, look.clock)
        look.used = True
        return None

    return step


@RULES.rule(MbarrierTestWait)
def _test_wait(c: Compiler, op: MbarrierTestWait) -> Step:
    if op.result.name in c.peek_flags:
        return _peek(c, op)
    mbar, parity_of = c.mbar(op.mbar), Phase(c, op.phase, op.parity)
    result = c.slot(op.result)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        assign(w, result, _poll_result(w, barrier, parity_of(w, barrier), op))

    return step


@RULES.rule(MbarrierTryWait)
def _try_wait(c: Compiler, op: MbarrierTryWait) -> Step:
    if op.result.name in c.peek_flags:
        return _peek(c, op)
    mbar, parity_of = c.mbar(op.mbar), Phase(c, op.phase, op.parity)
    result = c.slot(op.result)

    def step(w: Warp) -> bool | None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        parity = parity_of(w, barrier)
        gave_up = w.polled is not None and w.polled.expired
        if barrier.has_completed(parity) or gave_up or w.machine.gives_up():
            w.polled = None
            assign(w, result, _poll_result(w, barrier, parity, op))
            return None
        w.polled = Polled(barrier)
        barrier.waiters.append(w)
        text = f"waits on {barrier.label} parity {parity}"
        if w.machine.trace is not None:
            phase = barrier.base + barrier.phase
            w.machine.trace.note("block", barrier.component, phase, w, op, text)
        return w.machine.block(w, barrier, text, op, polling=True)

    return step


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
        for barrier in w.cta.mbarriers.values():
            if barrier.live and barrier.init is not None and barrier.init.warp is w:
                barrier.init_fenced = True

    return step
