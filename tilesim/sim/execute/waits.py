"""Waits on an mbarrier: parity and token forms, and polls (A17 to A30)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import Act, Give, Operands, executor
from tilesim.sim.execute.credits import require_live
from tilesim.sim.findings import Stated
from tilesim.sim.machine.clock import Clock, join
from tilesim.sim.machine.errors import NotUniform
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.tokens import Token

if TYPE_CHECKING:
    from tilesim.sim.machine.who import Place

#: which parity a wait on a barrier names
ParityOf: TypeAlias = Callable[[Warp, Mbarrier], int]


def parity_of(c: Operands, op: Op, effect: fx.Waits) -> ParityOf:
    """Which parity a wait names, from a parity or a token operand."""
    value_of = c.expr(effect.phase)

    def of_token(w: Warp, barrier: Mbarrier) -> int:
        return _of_token(w.machine.tokens.find(uniform(value_of(w), w)), barrier)

    def of_parity(w: Warp, barrier: Mbarrier) -> int:
        value = value_of(w)
        if type(value) is not int:
            value = uniform(value, w)
        if value in (0, 1):
            return int(value)
        if not w.machine.options.ptx:  # hardware looks at the last bit
            w.machine.lean("A21", op)
            return int(value) & 1
        raise BarrierError(
            "phase-alias", f"wait on {barrier.label} with parity {value} (A21)",
            "a parity is 0 or 1: mask the phase counter with 1",
            facts=Stated((barrier.named,)),
        )  # fmt: skip

    return of_parity if effect.parity else of_token


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
    raise BarrierError(
        "phase-alias", f"wait on {barrier.label} with {wrong} (A19)", fix,
        None if token is None else token.by,
        facts=Stated((barrier.named,)),
    )  # fmt: skip


def acquire(
    barrier: Mbarrier, w: Warp, op: Op, effect: fx.Waits, *, looked: Clock | None = None
) -> None:
    """A wait that returned true: joins what the phase published (A27) in its scope (A30).

    ``looked``: the clock with which the warp began to look, if that was not just now.
    """
    barrier.passed(w, op, w.clock if looked is None else looked)
    if barrier.phase == 0:
        return
    completed, size = barrier.completed, w.machine.components.size
    w.follows(completed)
    if effect.sem == "acquire":
        known = w.clock.item(size + barrier.component)
        handed = barrier.handed_on
        w.learns(completed)
        if barrier.remote is not None and effect.scope == "cluster":
            handed = max(handed, barrier.handed_on_away)
            skipped = _skipped_away(barrier, w)
            w.learns(barrier.remote)
            for component, tick in skipped.items():
                w.machine.races.skip(barrier, w, tick, (component,))
        elif barrier.remote is not None:
            barrier.by_count = False
        elif barrier.senders and effect.scope != "cluster":
            w.machine.lean("U4", op)
        if known < barrier.done_before:
            barrier.by_count = False
        if max(known, handed) < barrier.done_before:
            w.machine.races.skip(barrier, w, max(known, handed))
    else:
        barrier.by_count = False
        join(w.clock[:size], completed[:size])
        row = size + barrier.component
        if max(w.clock[row], barrier.handed_on, w.fences.seen(w.cta, row)) < barrier.done_before:
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
    ptx = w.machine.options.ptx
    if not ptx and barrier.senders:
        w.machine.lean("U4", op)
    own = barrier.completed if barrier.own is None else barrier.own
    seen: dict[Place, Clock] = {w.cta: own}
    if barrier.by is not None and (effect.scope == "cluster" or not ptx):
        if effect.scope != "cluster":
            w.machine.lean("U4", op)
        away = barrier.remote if ptx else barrier.completed
        if away is not None:
            seen[barrier.by] = away
    for cta, known in seen.items():
        w.fences.saw(cta, known)
        if w.machine.components.near:
            w.fences.saw(cta, known, near=True)


def _skipped_away(barrier: Mbarrier, w: Warp) -> dict[int, int]:
    """By component, up to where a warp has acquired what landed for waits of cluster scope, where
    that leaves out a phase before the last one: it has waited for that at another scope (U7)."""
    skipped: dict[int, int] = {}
    for component, (before, handed) in barrier.away_before.items():
        known = max(w.clock.item(w.machine.components.size + component), handed)
        if known < before:
            skipped[component] = known
    return skipped


@executor(fx.Waits)
def _waits(c: Operands, op: Op, effect: fx.Waits) -> Act | Give:
    if effect.poll:
        return Give(effect, _try(c, op, effect) if effect.suspends else _test(c, op, effect),
                    blocks=effect.suspends)  # fmt: skip
    return Act(wait_step(c, op, effect), blocks=True)


def wait_step(c: Operands, op: Op, effect: fx.Waits) -> Step:
    """A wait that blocks."""
    mbar, parity_at = c.mbar(effect.mbar), parity_of(c, op, effect)

    def wait(w: Warp, looked: Clock | None) -> bool:
        barrier = mbar(w)
        if not barrier.live or w.index not in barrier.visible_to:
            require_live(barrier, w, op)
        parity = parity_at(w, barrier)
        if (barrier.phase & 1) != parity:
            acquire(barrier, w, op, effect, looked=looked)
            return False
        return _park(w, barrier, parity, op)

    def step(w: Warp) -> bool:
        waits: LaneWaits | None = w.lane_waits
        if waits is None:
            try:
                return wait(w, None)
            except NotUniform:
                waits = w.lane_waits = LaneWaits(w)
        return waits.resume(wait)

    return step


def _park(w: Warp, barrier: Mbarrier, parity: int, op: Op, *, polling: bool = False) -> bool:
    """The warp blocks until the phase of this parity has completed."""
    barrier.waiters.append(w)
    named = barrier.named
    if w.machine.trace is not None:
        phase = barrier.base + barrier.phase
        text = f"waits on {named.seen_from(w.cta.number)} parity {parity}"
        w.machine.trace.note("block", barrier.component, phase, w, op, text)
    if w.machine.views is not None:
        w.machine.views.looks(w, barrier.component, passes=False, answers=False)
    return w.machine.block(w, barrier, "waits on", op, polling=polling, named=named, parity=parity)


class LaneWaits:
    """A wait whose lanes name barriers or parities of their own: it passes when all have.

    The lanes are taken in turn, but they look at the same time: each may pass by what the warp knew
    at the start. Exploration has this order of the lanes only, so it does not show every outcome.
    """

    def __init__(self, w: Warp) -> None:
        self._warp = w
        self._left = w.mask
        self._looked = w.clock.copy() if w.parts is None else None
        #: of each lane, if they have clocks of their own
        self._parts = [] if w.parts is None else w.parts.shatter(w.mask)
        w.diverged = True
        w.machine.outcome.explorable = False

    @property
    def passed(self) -> int:
        """The lanes of the warp that need not wait any more."""
        return self._warp.mask & ~self._left

    def resume(self, wait: Callable[[Warp, Clock | None], bool]) -> bool:
        """Goes on with the lanes that have not passed; True if the warp blocks again."""
        w = self._warp
        active = w.mask
        try:
            while self._left:
                w.mask = self._left & -self._left
                for part in self._parts:
                    if part.mask == w.mask:
                        w.act_as(part)
                if wait(w, self._looked):
                    return True
                self._left &= ~w.mask
        finally:
            w.mask = active
        w.lane_waits = None
        w.regroup()
        return False


class Polled:
    """A suspended try_wait: what it waits for, and whether the system limit has passed."""

    __slots__ = ("expired", "mbarrier")

    def __init__(self, mbarrier: Mbarrier) -> None:
        self.mbarrier = mbarrier
        self.expired = False


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
    if w.machine.trace is not None:
        label = barrier.named.seen_from(w.cta.number)
        text = f"{op.mnemonic} on {label} answers {int(done)}"
        phase = barrier.base + barrier.phase
        w.machine.trace.note("poll", barrier.component, phase, w, op, text)
    if w.machine.views is not None:
        w.machine.views.looks(w, barrier.component, passes=done, answers=not peeks)
    if done:
        acquire(barrier, w, op, effect)
    return int(done)


def _test(c: Operands, op: Op, effect: fx.Waits) -> Callable[[Warp], int]:
    mbar, parity_at = c.mbar(effect.mbar), parity_of(c, op, effect)

    def read(w: Warp) -> int:
        barrier = mbar(w)
        require_live(barrier, w, op)
        return poll_result(w, barrier, parity_at(w, barrier), op, effect)

    return read


def _try(c: Operands, op: Op, effect: fx.Waits) -> Callable[[Warp], int | None]:
    mbar, parity_at = c.mbar(effect.mbar), parity_of(c, op, effect)

    def read(w: Warp) -> int | None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        parity = parity_at(w, barrier)
        gave_up = w.polled is not None and w.polled.expired
        if barrier.has_completed(parity) or gave_up or w.machine.gives_up():
            w.polled = None
            return poll_result(w, barrier, parity, op, effect)
        w.polled = Polled(barrier)
        _park(w, barrier, parity, op, polling=True)
        return None

    return read
