"""Waits on an mbarrier: parity and token forms, polls, and polls that only spare a wait."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MbarrierTestWait, MbarrierTryWait, MbarrierWait
from tilesim.ir.waits import Poll
from tilesim.sim.compile import PEEKED, RULES, Compiler
from tilesim.sim.control import condition_lanes
from tilesim.sim.execute.credits import require_live
from tilesim.sim.execute.registers import assign
from tilesim.sim.expression import Evaluate
from tilesim.sim.machine.clock import Clock, join
from tilesim.sim.machine.errors import NotUniform
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.tokens import Token


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
            return self._of_token(w.machine.tokens.find(value), barrier)
        if value not in (0, 1):
            raise BarrierError(
                "phase-alias", f"wait on {barrier.label} with parity {value} (A21)",
                "a parity is 0 or 1: mask the phase counter with 1",
            )  # fmt: skip
        return int(value)

    @staticmethod
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
        )  # fmt: skip


def acquire(
    barrier: Mbarrier, w: Warp, op: Op, sem: str, scope: str, *, looked: Clock | None = None
) -> None:
    """A wait that returned true: joins what the phase published (A27) in its scope (A30).

    ``looked``: the clock with which the warp began to look, if that was not just now.
    """
    barrier.passed(w, op, w.clock if looked is None else looked)
    if barrier.phase == 0:
        return
    completed, size = barrier.completed, w.machine.components.size
    if sem == "acquire":
        known = w.clock[size + barrier.component]
        w.learns(completed)
        if known < barrier.done_before:
            barrier.by_count = False
        if max(known, barrier.handed_on) < barrier.done_before:
            w.machine.races.skip(barrier, w, max(known, barrier.handed_on))
        if barrier.remote is not None:
            if scope == "cluster":
                join(w.clock, barrier.remote)
            else:
                barrier.by_count = False
    else:
        barrier.by_count = False
        join(w.clock[:size], completed[:size])
        row = size + barrier.component
        if max(w.clock[row], barrier.handed_on, w.fences.seen(w.cta, row)) < barrier.done_before:
            what = (
                f"what a fence after a relaxed wait that skipped a phase of {barrier.label} gives"
            )
            w.machine.nondeterministic(what, op, explorable=False)
        w.fences.saw(w.cta, completed)
        if w.machine.components.near:
            w.fences.saw(w.cta, completed, near=True)


@RULES.rule(MbarrierWait)
def _wait(c: Compiler, op: MbarrierWait) -> Step:
    mbar, parity_of = c.mbar(op.mbar), Phase(c, op.phase, op.parity)

    def wait(w: Warp, looked: Clock | None) -> bool:
        barrier = mbar(w)
        if not barrier.live or w.index not in barrier.visible_to:
            require_live(barrier, w, op)
        parity = parity_of(w, barrier)
        if (barrier.phase & 1) != parity:
            acquire(barrier, w, op, op.sem, op.scope, looked=looked)
            return False
        barrier.waiters.append(w)
        text = f"waits on {barrier.label} parity {parity}"
        if w.machine.trace is not None:
            phase = barrier.base + barrier.phase
            w.machine.trace.note("block", barrier.component, phase, w, op, text)
        return w.machine.block(w, barrier, text, op)

    def step(w: Warp) -> bool:
        waits: LaneWaits | None = w.lane_waits
        if waits is None:
            try:
                return wait(w, None)
            except NotUniform:
                waits = w.lane_waits = LaneWaits(w)
        return waits.resume(wait)

    return step


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
        w.machine.outcome.explorable = False

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


def _surely(w: Warp, barrier: Mbarrier, parity: int) -> bool:
    """True if a look answers yes in every schedule in which the phase is not missed (C2)."""
    return barrier.has_completed(parity) and barrier.knows_completion(w.clock)


def _poll_result(w: Warp, barrier: Mbarrier, parity: int, op: Poll, *, peeks: bool = False) -> int:
    """What all lanes are told. A whole warp agrees on the answer. Some of its lanes look one by one
    and need not get the same; that is immaterial where it only spares a wait (``peeks``)."""
    done = barrier.has_completed(parity)
    if not _surely(w, barrier, parity):
        what = f"the answer of {op.mnemonic} on {barrier.name}"
        whole = w.lanes == 1 or w.mask == w.live_mask
        w.machine.nondeterministic(what, op, explorable=peeks or whole)
    if w.machine.trace is not None:
        text = f"{op.mnemonic} on {barrier.label} answers {int(done)}"
        phase = barrier.base + barrier.phase
        w.machine.trace.note("poll", barrier.component, phase, w, op, text)
    if done:
        acquire(barrier, w, op, op.sem, op.scope)
    return int(done)


class Look:
    """A peek of the timed run: what it asked, with which clock, the flag it left unanswered, and
    the ``lanes`` that made it and have not waited since."""

    __slots__ = ("asked", "clock", "flag", "lanes", "op", "used")

    def __init__(
        self, asked: tuple[object, ...], clock: Clock, op: Poll, flag: object, lanes: int
    ) -> None:
        self.asked = asked
        self.clock = clock
        self.op = op
        self.flag = flag
        self.lanes = lanes
        self.used = False


class _Unanswered(int):
    """The flag of a peek that was not made: a zero like no other."""


def _peek(c: Compiler, op: Poll) -> Step:
    """A poll that only decides whether a later wait is made (`tilesim.ir.waits`).

    The timed run leaves it out, so that the wait stands for both; what the poll could have seen is
    checked by `_wait_unless`. It does poll where the answer must be yes. Under a chosen schedule it
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
            assign(w, result, _poll_result(w, barrier, parity, op, peeks=True))
            return
        barrier.looked(w, op)
        assign(w, result, _Unanswered())
        before = w.looks.get(result)
        if before is not None and not before.used and before.lanes & ~w.mask:
            _doubtful(w, before, barrier)
        asked = (barrier, parity, op.sem, op.scope)
        w.looks[result] = Look(asked, w.clock.copy(), op, w.registers[result], w.mask)
        w.advance()

    return step


def _doubtful(w: Warp, look: Look, barrier: Mbarrier) -> None:
    """Notes that nobody checks which of the waits after it a peek lets out."""
    name = look.op.mnemonic
    w.machine.nondeterministic(f"whether {name} lets the wait on {barrier.name} out", look.op)


@PEEKED.rule(MbarrierWait)
def _wait_unless(c: Compiler, cond: Expr, flag: Var, op: MbarrierWait) -> Step:
    """``if not flag: wait`` after a peek."""
    wait, holds, slot = _wait(c, op), c.expr(cond), c.slot(flag)
    mbar, parity_of = c.mbar(op.mbar), Phase(c, op.phase, op.parity)

    def step(w: Warp) -> bool | None:
        if not condition_lanes(holds(w)) & w.mask:
            return None
        barrier = mbar(w)
        stopped = wait(w)
        look = w.looks.get(slot)
        if stopped or look is None:
            return stopped
        if w.registers[slot] is not look.flag:
            # some lanes may still hold the answer, unless all have got another value
            if not look.used and isinstance(w.registers[slot], np.ndarray):
                _doubtful(w, look, barrier)
            return None
        asked = (barrier, parity_of(w, barrier), op.sem, op.scope)
        if look.used or look.asked != asked or w.mask & ~look.lanes:
            _doubtful(w, look, barrier)
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
