"""What lanes do to an mbarrier: start and end it, arrive, expect and complete bytes (A.3, A.4)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tilesim.arith.byte_set import ByteSet
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MAX_COUNT
from tilesim.sim.execute.compose import Act, Give, Operands, executor
from tilesim.sim.expression import plain
from tilesim.sim.findings import Deed, Participant, Stated
from tilesim.sim.machine.access import EVERY, Access
from tilesim.sim.machine.conditions import Credit
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.mbarrier_misuse import over_arrival
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.misuse import BarrierError, Side
from tilesim.sim.machine.tokens import Token


def require_live(barrier: Mbarrier, warp: Warp, op: Op) -> None:
    """Raises unless ``barrier`` is initialised, visibly to ``warp`` (A6, A7)."""
    require_initialised(barrier, op)
    if warp.index not in barrier.visible_to:
        barrier.check_visible(warp, op)


def require_initialised(barrier: Mbarrier, op: Op) -> None:
    """Raises unless ``barrier`` is live (A6), as where ``op`` completes that has been issued: what
    its thread knew then was looked at there."""
    if not barrier.live:
        if barrier.ended is not None:
            raise BarrierError(
                "barrier-lifetime",
                f"{op.mnemonic} on {barrier.label} after its mbarrier.inval (A6)",
                "invalidate a barrier only after its last use, and synchronise in between",
                barrier.ended,
                facts=Stated((barrier.named,)),
            )
        raise BarrierError(
            "uninitialised-barrier",
            f"{op.mnemonic} on {barrier.label}, which has not been initialised yet (A6)",
            "initialise it in one thread and synchronise (__syncthreads, or a cluster barrier "
            "after fence.mbarrier_init) before any other use",
            facts=Stated((barrier.named,)),
        )


@executor(fx.InitsMbarrier)
def _inits(c: Operands, op: Op, effect: fx.InitsMbarrier) -> Act:
    mbar, count = c.mbar(effect.mbar), c.expr(effect.count)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        for _ in range(w.lanes):
            barrier.start(uniform(count(w), w), Credit(w, op, 0, 0, w.tick))
        _touch(w, barrier, op)
        w.advance()
        w.effects += 1

    return Act(step, at=lambda w: (mbar(w), uniform(count(w), w)))


@executor(fx.InvalidatesMbarrier)
def _invalidates(c: Operands, op: Op, effect: fx.InvalidatesMbarrier) -> Act:
    mbar = c.mbar(effect.mbar)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        for _ in range(w.lanes):
            require_live(barrier, w, op)
            barrier.stop(w, op)
        _touch(w, barrier, op)
        w.advance()
        w.effects += 1

    return Act(step, at=mbar)


def _touch(w: Warp, barrier: Mbarrier, op: Op) -> None:
    """init and inval are generic writes of the object's bytes (A6, A7)."""
    memory = w.machine.ctas[barrier.cta.index].memory
    low = barrier.address

    def make() -> Footprint:
        return Footprint(
            barrier.label,
            "",
            ByteSet.interval(low, low + 8),
            np.arange(low, low + 8, dtype=np.int64),
            1,
        )

    footprint = memory.table.get(("mbarrier", low), make)
    footprint.name, footprint.barriers = barrier.label, ()
    footprint.place = barrier.name or barrier.label, barrier.slot
    access = Access(w, op, w.component, w.tick, False, True, lanes=w.mask, among=EVERY)
    w.machine.races.write(memory, footprint, access, w.clock)


def shares(w: Warp, count: Any, nbytes: Any) -> list[tuple[int, int, int]]:
    """What the active lanes contribute, each of which executes the instruction: arrivals and bytes
    of one lane, and in how many lanes they are that. No ``count`` (None): no arrivals.

    Raises:
        BarrierError: a lane's arrivals are not 1 .. 2^20 - 1, or its bytes not 0 .. 2^20 - 1 (A3).
    """
    if type(nbytes) is int and (count is None or type(count) is int):
        if 0 <= nbytes <= MAX_COUNT and (count is None or 1 <= count <= MAX_COUNT):
            return [(count or 0, nbytes, w.mask.bit_count())]
        result = [(count or 0, nbytes, w.lanes)]
    else:
        mask = mask_array(w.mask)
        both = (np.broadcast_to(plain(0 if x is None else x), 32) for x in (count, nbytes))
        arrivals, expected = (x[mask].astype(np.int64).tolist() for x in both)
        lanes = Counter(zip(arrivals, expected, strict=True))
        result = [(*share, times) for share, times in lanes.items()]
    for arrivals, expected, _ in result:
        if count is not None and not 1 <= arrivals <= MAX_COUNT:
            raise _out_of_range(arrivals, 1)
        if not 0 <= expected <= MAX_COUNT:
            raise _out_of_range(expected, 0)
    return result


def _out_of_range(value: int, low: int) -> BarrierError:
    what = "arrival count" if low else "tx-count"
    return BarrierError(
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
    machine = w.machine
    reaches = _scopes_reach(barrier, w, op, scope)
    visible = reaches and sem == "release"
    position, moment = w.marks.get(w.component, 0), w.moments.get(w.component, 0)
    tick = w.moment + w.apart
    contributions = shares(w, count, nbytes)
    if reaches and not visible and sem == "relaxed":
        # whoever waits is in the barrier's CTA: the fence has to reach it, in practice as well
        fenced = w.fences.released("cta" if barrier.cta is w.cta else "cluster")
        if fenced is not None:
            barrier.publish(fenced, w.cta)
    if count is not None and machine.options.ptx:
        _check_observed(barrier, w, op)
    if len(contributions) > 1:
        _require_room(barrier, w, op, contributions)
    for each, tx, lanes in contributions:
        credit = Credit(
            w, op, each * lanes, (-tx if completes else tx) * lanes, tick,
            partial=partial, lanes=lanes, releases=visible, position=position,
            moment=moment,
        )  # fmt: skip
        barrier.credit(credit, w.clock, visible=visible, drop=credit.arrivals if drop else 0)
    w.advance()
    w.effects += 1
    if machine.pollers:
        machine.changed()
    else:
        machine.version += 1


def _require_room(
    barrier: Mbarrier, w: Warp, op: Op, contributions: list[tuple[int, int, int]]
) -> None:
    """Lanes that differ must not end the phase in between: what is left depends on their order."""
    arrivals = sum(each * lanes for each, _, lanes in contributions)
    if arrivals > barrier.pending:
        raise over_arrival(barrier, Credit(w, op, arrivals, 0, 0))


def _scopes_reach(barrier: Mbarrier, w: Warp, op: Op, scope: str) -> bool:
    """True if a release of this scope includes the barrier's CTA (A30, U4)."""
    return scope == "cluster" or barrier.cta is w.cta or _leans_on_scope(w, op)


def _leans_on_scope(w: Warp, op: Op) -> bool:
    """Whether a release of scope ``.cta`` is accepted for a barrier of another CTA (U4)."""
    if w.machine.options.ptx:
        return False
    w.machine.lean("U4", op)
    return True


def _side(barrier: Mbarrier, w: Warp, verb: str, op: Op) -> Participant:
    """What a warp does to a barrier, as one side of a finding."""
    action = f"{verb} on {barrier.label}"
    return w.machine.participant(w, action, op, Deed("touches", barrier.named))


def _check_observed(barrier: Mbarrier, w: Warp, op: Op) -> None:
    """Strict reading of A24: some wait saw the previous phase before this arrival (U1)."""
    if barrier.observed_by(w):
        return
    w.machine.report(
        "phase-ambiguity",
        f"{w} arrives on {barrier.label} in phase {barrier.phase} although no wait for "
        f"phase {barrier.phase - 1} is ordered before that (A24)",
        (_side(barrier, w, "arrives", op),),
        fix="let at least one thread wait for every phase before the next arrival",
        facts=Stated((barrier.named,)),
    )


@executor(fx.Arrives)
def _arrives(c: Operands, op: Op, effect: fx.Arrives) -> Act | Give:
    if effect.asynchronous:
        return _arrives_later(c, op, effect)
    mbar, count = c.mbar(effect.mbar), c.expr(effect.count)
    nbytes = None if effect.bytes is None else c.expr(effect.bytes)
    sem, scope, drop, partial = effect.sem, effect.scope, effect.drop, effect.partial
    if effect.multicast is not None:
        raise TypeError(f"{op.mnemonic}: only asynchronous arrivals reach several CTAs")

    def make(w: Warp, barrier: Mbarrier, each: Any) -> None:
        tx = 0 if nbytes is None else nbytes(w)
        if partial:
            _require_more_to_come(barrier, w, op, each)
        arrive(barrier, w, op, each, tx, sem, scope, drop=drop, partial=partial)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        if not barrier.live or w.index not in barrier.visible_to:
            require_live(barrier, w, op)
        make(w, barrier, count(w))

    def answer(w: Warp) -> Any:
        barrier, each = mbar(w), count(w)
        require_live(barrier, w, op)
        token = _token(barrier, w, op, counted=partial)
        make(w, barrier, each)
        return token

    if any(isinstance(e, fx.Defines) and e.value == effect for e in op.effects()):
        return Give(effect, answer, at=mbar, signals=True)
    return Act(step, at=mbar, signals=True)


def _require_more_to_come(barrier: Mbarrier, w: Warp, op: Op, count: Any) -> None:
    """A partial arrival does not end the phase (A.4)."""
    if sum(a * lanes for a, _, lanes in shares(w, count, 0)) < barrier.pending:
        return
    raise BarrierError(
        "over-arrival",
        f"{op.mnemonic}.noComplete on {barrier.label} would end phase {barrier.phase}, which has "
        f"{barrier.pending} arrivals pending (A.4)",
        "use the plain form for the last arrival",
        facts=Stated((barrier.named,)),
    )


def _token(barrier: Mbarrier, w: Warp, op: Op, *, counted: bool = False) -> Any:
    """The token of an arrive that is about to be made by every active lane (A20), all of them in
    one phase (A32)."""
    phase, pending = barrier.base + barrier.phase, barrier.pending
    barrier.by_count = False
    if counted and w.lanes > 1:
        # each lane is told another count, and no move of the machine shows which
        w.machine.outcome.explorable = False
    return w.machine.tokens.issue(Token(barrier, phase, pending, counted, Side(w, op)))


def _arrives_later(c: Operands, op: Op, effect: fx.Arrives) -> Act:
    """One arrival of every lane, when its operations of a group are complete (C6)."""
    kind, mbar, lent = effect.group, c.mbar(effect.mbar), effect.lent
    if kind != "cp.async" or effect.multicast is not None:
        raise TypeError(f"{op.mnemonic}: only cp.async arrives later, on one barrier")

    def step(w: Warp) -> None:
        machine, barrier = w.machine, mbar(w)
        require_live(barrier, w, op)
        lanes = w.lanes
        if lent:
            raised = Credit(w, op, -lanes, 0, w.tick + w.apart, lanes=lanes)
            barrier.credit(raised, w.clock, visible=False)
            w.advance()
        issued = w.clock.copy()
        credit = Credit(w, op, lanes, 0, 0, asynchronous=True, lent=lent, lanes=lanes)
        group = w.lane_groups.get(kind)
        promise = None if group is None else group.track_by(w.mask)

        def land() -> None:
            require_initialised(barrier, op)
            if group is not None and promise is not None:
                published = machine.components.clock()
                for component, done in group.tell(
                    barrier.component, barrier.base + barrier.phase, promise
                ):
                    published[machine.components.size + component] = done
                barrier.publish(published, barrier.cta)
            barrier.credit(credit, issued, visible=False)
            machine.changed()

        machine.launch_async(op, w, machine.copy_cycles(0), land)
        w.advance()
        w.effects += 1

    return Act(step)


@executor(fx.Expects)
def _expects(c: Operands, op: Op, effect: fx.Expects) -> Act:
    mbar, nbytes, scope = c.mbar(effect.mbar), c.expr(effect.bytes), effect.scope

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        phase = barrier.phase
        arrive(barrier, w, op, None, nbytes(w), "relaxed", scope)
        if barrier.phase != phase:
            w.machine.report(
                "tx-mismatch",
                f"expect_tx on {barrier.label} ends phase {phase} because its bytes had completed "
                "before they were expected and no arrival was pending (U3: undefined by the text)",
                (_side(barrier, w, "expects bytes", op),),
                fix="expect the bytes before the last arrival, or use arrive.expect_tx",
                facts=Stated((barrier.named,)),
            )

    return Act(step, at=mbar, signals=True)


@executor(fx.Completes)
def _completes(c: Operands, op: Op, effect: fx.Completes) -> Act:
    if effect.asynchronous or effect.bytes is None or effect.multicast is not None:
        raise TypeError(f"{op.mnemonic}: bytes that complete later have no executor of their own")
    mbar, nbytes, scope = c.mbar(effect.mbar), c.expr(effect.bytes), effect.scope

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        arrive(barrier, w, op, None, nbytes(w), "relaxed", scope, completes=True)

    return Act(step, at=mbar, signals=True)


@executor(fx.PendingCount)
def _pending_count(c: Operands, op: Op, effect: fx.PendingCount) -> Give:
    token = c.expr(effect.token)

    def answer(w: Warp) -> int:
        found = w.machine.tokens.find(uniform(token(w), w))
        if found is None or not found.counted:
            raise BarrierError(
                "phase-alias",
                f"{op.mnemonic} of a token that no .noComplete arrive returned (A.4)",
                "take the token from mbarrier.arrive with no_complete",
                None if found is None else found.by,
            )
        w.machine.nondeterministic("the pending count that a token holds", op)
        return found.pending

    return Give(effect, answer)
