"""What lanes do to an mbarrier: arrivals, bytes, waits and polls (SEMANTICS section A).

Some polls only spare the wait behind them (`tilesim.transforms.await_condition`, DETERMINACY
section 6). The timed run leaves such a poll out, so that the wait stands for both; what the poll
could have seen is checked when the wait has passed. It does poll where the answer must be yes.
Under a chosen schedule it always does: a try_wait that gives up is a test_wait made at another
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilesim.arith.byte_set import ByteSet
from tilesim.findings.finding import Deed, Stated
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Var
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MAX_COUNT
from tilesim.records import dataclass
from tilesim.sim.machine.async_groups import LaneGroups, Promise
from tilesim.sim.machine.clock import GENERIC, Clock, join
from tilesim.sim.machine.compose import Act, Give, executor
from tilesim.sim.machine.errors import BarrierError, Side
from tilesim.sim.machine.expression import assign
from tilesim.sim.machine.footprint import EVERY, Access, Footprint
from tilesim.sim.machine.interface import Acts
from tilesim.sim.machine.lanes import condition_lanes, mask_array
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier, Token, over_arrival, token_number
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.unknown import plain
from tilesim.sim.machine.view_access import uniform
from tilesim.sim.observers.phase_conditions import Credit

if TYPE_CHECKING:
    from tilesim.sim.machine.labels import Place


#: bytes of a variable that may have been declared for mbarriers alone
_OF_BARRIERS = 512


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
            raise barrier.misuse(
                "barrier-lifetime",
                f"{op.mnemonic} on {barrier.label} after its mbarrier.inval (A6)",
                "invalidate a barrier only after its last use, and synchronise in between",
                barrier.ended,
            )
        raise barrier.misuse(
            "uninitialised-barrier",
            f"{op.mnemonic} on {barrier.label}, which has not been initialised yet (A6)",
            "initialise it in one thread and synchronise (__syncthreads, or a cluster barrier "
            "after fence.mbarrier_init) before any other use",
        )


@dataclass(slots=True, eq=False)
class Landing:
    """An operation of ``warp`` that is under way, which ``barrier`` tracks: when it is over,
    ``move`` is done, its accesses have ``landed``, and its ``credit`` counts.

    ``issued``: the clock of its issue.
    """

    warp: Warp
    op: Op
    barrier: Mbarrier
    credit: Credit
    issued: Clock
    move: Callable[[], object] | None = None
    landed: Sequence[Access] = ()

    def launch(self, cycles: float) -> None:
        """It is under way for so long, or as a schedule has it."""
        self.warp.machine.launch_async(self.op, self.warp, cycles, self.land)

    def land(self) -> None:
        """It is over."""
        require_initialised(self.barrier, self.op)
        if self.move is not None:
            self.move()
        self.barrier.landed.extend(self.landed)
        if self.credit.arrivals:
            _require_observed(self.barrier, self.warp, self.op, self.issued)
        self.barrier.credit(self.credit, self.issued, visible=False)
        self.warp.machine.changed()


def _name(barrier: Mbarrier, warp: Warp, loc: Loc) -> None:
    """Calls an mbarrier that PTX initialises as the source calls it. Where the source says no name,
    an mbarrier in memory that holds other data as well is called by the line that initialises it;
    one in a variable for mbarriers keeps the name of that."""
    place = loc.around
    if barrier.live or barrier.made_at == place:
        return
    every = [b for b in warp.cta.mbarriers.values() if b is not barrier]
    number = sum(b.made_at == place for b in every)
    names = warp.machine.plan.written
    if (place, number) not in names:
        from tilesim.findings.source_names import barrier_name  # what only PTX needs

        names[place, number] = barrier_name(loc, number)
    name = names[place, number] or ""
    by_source = bool(name) and all(b.name != name for b in every)
    allocations, address = warp.machine.plan.allocations, barrier.address
    if not by_source and (member := allocations.written(address)) != allocations.name(address):
        name, by_source = member, True
    if not by_source:
        shared = allocations.size(address) > _OF_BARRIERS
        name = f"mbarrier {number} of {loc.short}" if shared else ""
    barrier.call_as_written(place, name, by_source=by_source)


@executor(fx.InitsMbarrier)
def _inits(c: Operands, op: Op, effect: fx.InitsMbarrier) -> Act:
    mbar, count = c.mbar(effect.mbar), c.expr(effect.count)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        if op.loc.behind is not None:
            _name(barrier, w, op.loc)
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
        # a warp that waits is in the barrier's CTA: the fence has to reach it, in practice as well
        fenced = w.fences.released("cta" if barrier.cta is w.cta else "cluster")
        if fenced is not None:
            barrier.publish(fenced, w.cta)
    if count is not None:
        _require_observed(barrier, w, op, w.clock)
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
    """True if a release of this scope includes the barrier's CTA (A30), as scope ``.cta`` does in
    practice for a barrier of another one (U4)."""
    if scope == "cluster" or barrier.cta is w.cta:
        return True
    practice = not w.machine.options.ptx
    if practice:
        w.machine.lean("U4", op)
    _leave_open(w, op)
    return practice


def _leave_open(w: Warp, op: Op) -> None:
    """Scope ``.cta`` between CTAs orders nothing in the strict reading (U4), not operations on
    tensor memory either, of which the machine knows the order in time alone (G24)."""
    if w.machine.options.ptx and w.machine.tmem is not None:
        w.machine.tmem.narrow = op


def _side(barrier: Mbarrier, w: Warp, verb: str, op: Op) -> Acts:
    """What a warp does to a barrier, as one side of a finding."""
    action = f"{verb} on {barrier.label}"
    return w, action, op, Deed("touches", barrier.named)


def _require_observed(barrier: Mbarrier, w: Warp, op: Op, clock: Clock) -> None:
    """Strict reading of A24: some wait saw the previous phase before this arrival (U1).

    ``clock`` is that of the arrival; of an asynchronous one, that of its issue.
    """
    if barrier.observed_at(clock) or w.machine.accepts("U1", op):
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
    raise barrier.misuse(
        "over-arrival",
        f"{op.mnemonic}.noComplete on {barrier.label} would end phase {barrier.phase}, which has "
        f"{barrier.pending} arrivals pending (A.4)",
        "use the plain form for the last arrival",
    )


def _token(barrier: Mbarrier, w: Warp, op: Op, *, counted: bool = False) -> Any:
    """The token of an arrive that is about to be made by every active lane (A20), all of them in
    one phase (A32)."""
    phase, pending = barrier.base + barrier.phase, barrier.pending
    barrier.by_count = False
    if counted and w.lanes > 1:
        # each lane is told another count, and no move of the machine shows which
        w.machine.outcome.explorable = False
    tokens = w.machine.tokens
    number = token_number(len(tokens))
    tokens[number] = Token(barrier, phase, pending, counted, Side(w, op))
    return number


def _arrives_later(c: Operands, op: Op, effect: fx.Arrives) -> Act:
    """One arrival of every lane, when its operations of a group are complete (C6)."""
    kind, mbar, lent = effect.group, c.mbar(effect.mbar), effect.lent
    if kind != "cp.async" or effect.multicast is not None:
        raise TypeError(f"{op.mnemonic}: only cp.async arrives later, on one barrier")

    def step(w: Warp) -> None:
        barrier, lanes = mbar(w), w.lanes
        require_live(barrier, w, op)
        if lent:
            raised = Credit(w, op, -lanes, 0, w.tick + w.apart, lanes=lanes)
            barrier.credit(raised, w.clock, visible=False)
            w.advance()
        credit = Credit(w, op, lanes, 0, 0, asynchronous=True, lent=lent, lanes=lanes)
        group = w.lane_groups.get(kind)
        tell = None if group is None else partial(_tell, barrier, group, group.track_by(w.mask))
        landing = Landing(w, op, barrier, credit, w.clock.copy(), tell)
        landing.launch(w.machine.copy_cycles(0))
        w.advance()
        w.effects += 1

    return Act(step)


def _tell(barrier: Mbarrier, group: LaneGroups, promise: Promise) -> None:
    """An arrival tells warps that wait which copies are complete."""
    components = barrier.machine.components
    published = components.clock()
    for component, done in group.tell(barrier.component, barrier.base + barrier.phase, promise):
        components.rows(published, component)[GENERIC] = done
    barrier.publish(published, barrier.cta)


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
        found = w.machine.tokens.get(uniform(token(w), w))
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


# ------------------------------------------------------------------ waits and polls (A17 to A30)


#: what a wait or a poll asks of: a barrier, and the parity of one of its phases
Asked: TypeAlias = Callable[[Warp], tuple[Mbarrier, int]]


def asking(c: Operands, op: Op, effect: fx.Waits) -> Asked:
    """What a wait or a poll asks of: a barrier, which has to be live, and the parity that it names
    by a parity or a token."""
    mbar, phase, by_parity = c.mbar(effect.mbar), c.expr(effect.phase), effect.parity

    def asked(w: Warp) -> tuple[Mbarrier, int]:
        barrier = mbar(w)
        if not barrier.live or w.index not in barrier.visible_to:
            require_live(barrier, w, op)
        value = phase(w)
        if type(value) is not int:
            value = uniform(value, w)
        if not by_parity:
            return barrier, _of_token(w.machine.tokens.get(value), barrier)
        if value in (0, 1):
            return barrier, value
        if w.machine.accepts("A21", op):  # hardware looks at the last bit
            return barrier, value & 1
        raise barrier.misuse(
            "phase-alias", f"wait on {barrier.label} with parity {value} (A21)",
            "a parity is 0 or 1: mask the phase counter with 1",
        )  # fmt: skip

    return asked


def _of_token(token: Token | None, barrier: Mbarrier) -> int:
    """The parity of the phase that a token names, if the wait may name it (A19, A20)."""
    if token is None:
        wrong, fix = "a number that no arrive has returned", "pass on a token as it is"
    elif token.barrier is not barrier:
        wrong = f"a token of {token.barrier.label}"
        fix = "wait with a token of an arrive on this barrier"
    elif token.phase < barrier.base:
        wrong = "a token from before its mbarrier.inval"
        fix = "arrive again after a new mbarrier.init, and wait with the token of that"
    elif (phase := token.phase - barrier.base) in (barrier.phase, barrier.phase - 1):
        return phase & 1
    else:
        wrong = f"a token of phase {phase} while the barrier is in phase {barrier.phase}"
        fix = "wait with the token of the current or the preceding phase"
    raise barrier.misuse(
        "phase-alias", f"wait on {barrier.label} with {wrong} (A19)", fix,
        None if token is None else token.by,
    )  # fmt: skip


def acquire(barrier: Mbarrier, w: Warp, op: Op, effect: fx.Waits) -> None:
    """A wait that returned true: joins what the phase published (A27) in its scope (A30)."""
    barrier.passed(w, op)
    if barrier.phase == 0:
        return
    published, size = barrier.completed, w.machine.components.size
    practice = not w.machine.options.ptx
    w.follows(published.own)
    if barrier.senders and effect.scope != "cluster":
        _leave_open(w, op)
    if effect.sem == "acquire":
        known = w.clock.item(size + barrier.component)
        w.learns(published.own)
        reaches = practice or effect.scope == "cluster"
        if published.away is not None and reaches:
            skipped = _skipped_away(barrier, w)
            w.learns(published.away)
            for component, tick in skipped.items():
                w.machine.races.skip(barrier, w, tick, (component,))
        elif published.away is not None:
            barrier.by_count = False
        if practice and barrier.senders and effect.scope != "cluster":
            w.machine.lean("U4", op)
        if known < barrier.done_before:
            barrier.by_count = False
        known = max(known, barrier.handed_on[reaches])
        if known < barrier.done_before:
            w.machine.races.skip(barrier, w, known)
    else:
        barrier.by_count = False
        join(w.clock[:size], published.own[:size])
        row, handed = size + barrier.component, barrier.handed_on[practice]
        if max(w.clock[row], handed, w.fences.seen(w.cta, row)) < barrier.done_before:
            what = (
                f"what a fence after a relaxed wait that skipped a phase of {barrier.label} gives"
            )
            w.machine.nondeterministic(what, op, explorable=False)
        _observe(barrier, w, op, effect)


def _observe(barrier: Mbarrier, w: Warp, op: Op, effect: fx.Waits) -> None:
    """A relaxed wait has observed what a fence behind it acquires, of the CTAs in its scope (H3).

    In practice ``.cta`` is accepted for a peer's as well (U4): of the wait, and of the fence behind
    it where a copy of the peer has completed the phase.
    """
    ptx, published = w.machine.options.ptx, barrier.completed
    if not ptx and barrier.senders:
        w.machine.lean("U4", op)
    seen: dict[Place, Clock] = {w.cta: published.own}
    if published.by is not None and (effect.scope == "cluster" or not ptx):
        if effect.scope != "cluster":
            w.machine.lean("U4", op)
        if published.away is not None:
            seen[published.by] = published.away
    for cta, known in seen.items():
        w.fences.saw(cta, known)
        if w.machine.components.in_shared:
            w.fences.saw(cta, known, in_shared=True)


def _skipped_away(barrier: Mbarrier, w: Warp) -> dict[int, int]:
    """By component, up to where a warp has acquired what landed for waits of cluster scope, where
    that leaves out a phase before the last one: it has waited for that at another scope (U7)."""
    skipped: dict[int, int] = {}
    for component, (before, handed) in barrier.away_before.items():
        known = max(w.rows(component).item(GENERIC), handed)
        if known < before:
            skipped[component] = known
    return skipped


@executor(fx.Waits)
def _waits(c: Operands, op: Op, effect: fx.Waits) -> Act | Give:
    if effect.poll:
        return Give(effect, _poll(c, op, effect), blocks=effect.suspends)
    return Act(wait_step(c, op, effect), blocks=True)


def wait_step(c: Operands, op: Op, effect: fx.Waits) -> Step:
    """A wait that blocks."""
    asked = asking(c, op, effect)

    def step(w: Warp) -> bool:
        barrier, parity = asked(w)
        if (barrier.phase & 1) != parity:
            acquire(barrier, w, op, effect)
            return False
        return _park(w, barrier, parity, op)

    return step


def _park(w: Warp, barrier: Mbarrier, parity: int, op: Op, *, polling: bool = False) -> bool:
    """The warp blocks until the phase of this parity has completed."""
    named = barrier.named
    if w.machine.trace is not None:
        barrier.note("block", w, op, f"waits on {{}} parity {parity}")
    if w.machine.views is not None:
        w.machine.views.looks(w, barrier.component, passes=False, answers=False)
    return w.block(barrier, "waits on", op, polling=polling, named=named, parity=parity)


@dataclass(slots=True)
class Polled:
    """A suspended try_wait: what it waits for, and whether the system limit has passed."""

    mbarrier: Mbarrier
    expired: bool = False


def surely(w: Warp, barrier: Mbarrier, parity: int) -> bool:
    """True if a look answers yes in every schedule in which the phase is not missed (C2)."""
    return barrier.has_completed(parity) and barrier.knows_completion(w)


def poll_result(
    w: Warp, barrier: Mbarrier, parity: int, op: Op, effect: fx.Waits, *, peeks: bool = False
) -> int:
    """What all lanes are told. They look one by one and need not get the same answer, which no move
    of the machine shows; that is immaterial where it only spares a wait (``peeks``)."""
    done = barrier.has_completed(parity)
    if not surely(w, barrier, parity):
        what = f"the answer of {op.mnemonic} on {barrier.name}"
        w.machine.nondeterministic(what, op, explorable=peeks or w.lanes == 1)
    barrier.note("poll", w, op, f"{op.mnemonic} on {{}} answers {int(done)}")
    if w.machine.views is not None:
        w.machine.views.looks(w, barrier.component, passes=done, answers=not peeks)
    if done:
        acquire(barrier, w, op, effect)
    return int(done)


def _poll(c: Operands, op: Op, effect: fx.Waits) -> Callable[[Warp], int | None]:
    """A look at a barrier; one that suspends (try_wait) may first wait, and give up."""
    asked, suspends = asking(c, op, effect), effect.suspends

    def read(w: Warp) -> int | None:
        barrier, parity = asked(w)
        if suspends and not barrier.has_completed(parity):
            gave_up = w.polled is not None and w.polled.expired
            if not (gave_up or w.machine.gives_up()):
                w.polled = Polled(barrier)
                _park(w, barrier, parity, op, polling=True)
                return None
        w.polled = None
        return poll_result(w, barrier, parity, op, effect)

    return read


# ------------------------------------------------------------------ polls that only spare a wait


def peeked(op: Op) -> tuple[fx.Waits, Var] | None:
    """What an instruction polls, and the register that gets the answer; None if it does not."""
    for effect in op.effects():
        match effect:
            case fx.Defines(var=var, value=fx.Waits() as looks):
                return looks, var
            case _:
                pass
    return None


@dataclass(slots=True, eq=False)
class Peek:
    """A peek of the timed run: what it asked, with which clock, the flag it left unanswered, and
    the ``lanes`` that made it and have not waited since."""

    asked: tuple[object, ...]
    op: Op
    flag: object
    clock: Clock
    common: int
    lanes: int
    used: bool = False


class _Unanswered(int):
    """The flag of a peek that was not made: a zero like no other."""


def peek(c: Operands, op: Op, effect: fx.Waits, flag: Var) -> Step:
    """A poll that only decides whether a later wait is made."""
    asked, result = asking(c, op, effect), c.slot(flag)

    def step(w: Warp) -> None:
        barrier, parity = asked(w)
        sure = not effect.suspends and surely(w, barrier, parity)
        if sure or not w.machine.timed:
            assign(w, result, poll_result(w, barrier, parity, op, effect, peeks=True))
            return
        barrier.looked(w, op)
        before = _standing(w, result)
        assign(w, result, _Unanswered())
        for look in w.looks.get(result, ()):
            if look not in before and not look.used and look.lanes & ~w.mask:
                _note_unchecked_wait(w, look, barrier)
        for look in before:  # their lanes keep their answer beside the new one
            look.lanes, look.flag = look.lanes & ~w.mask, w.registers[result]
        question = (barrier, parity, effect.sem, effect.scope)
        new = Peek(question, op, w.registers[result], w.clock.copy(), w.common, w.mask)
        w.looks[result] = (*(look for look in before if look.lanes), new)
        w.advance()

    return step


def _standing(w: Warp, slot: int) -> list[Peek]:
    """The looks whose flags are as they left them."""
    return [look for look in w.looks.get(slot, ()) if w.registers[slot] is look.flag]


def _note_unchecked_wait(w: Warp, look: Peek, barrier: Mbarrier) -> None:
    """Notes that it is not checked which of the waits after it a peek lets out."""
    name, alone = look.op.mnemonic, look.lanes & (look.lanes - 1) == 0
    what = f"whether {name} lets the wait on {barrier.name} out"
    w.machine.nondeterministic(what, look.op, explorable=alone)


def wait_unless(c: Operands, cond: Expr, flag: Var, op: Op, effect: fx.Waits) -> Step:
    """``if not flag: wait`` after a peek."""
    wait, holds, slot = wait_step(c, op, effect), c.expr(cond), c.slot(flag)
    asked = asking(c, op, effect)

    def step(w: Warp) -> bool | None:
        if not condition_lanes(holds(w)) & w.mask:
            return None
        barrier, parity = asked(w)
        stopped = wait(w)
        looks = w.looks.get(slot, ())
        if stopped or not looks:
            return stopped
        standing = [look for look in _standing(w, slot) if look.lanes & w.mask]
        if not standing and w.registers[slot] is not looks[-1].flag:
            # some lanes may still hold an answer, unless all have got another value
            if not looks[-1].used and isinstance(w.registers[slot], np.ndarray):
                _note_unchecked_wait(w, looks[-1], barrier)
            return None
        question = (barrier, parity, effect.sem, effect.scope)
        without = w.mask & ~sum(look.lanes for look in standing)
        for look in standing or looks:
            if look.used or look.asked != question or without:
                _note_unchecked_wait(w, look, barrier)
            else:
                barrier.check_pass(w, look.op, look.clock, look.common)
            look.used = True
        return None

    return step
