"""mbarrier instructions (PTX 9.7.13.15; SEMANTICS section A)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilesim.ir.declarations import Mbar
from tilesim.ir.effects import (
    Arrives,
    Completes,
    Defines,
    Effect,
    Expects,
    InitsMbarrier,
    InvalidatesMbarrier,
    Orders,
    PendingCount,
    Waits,
)
from tilesim.ir.expr import Const, Expr, Var, constant
from tilesim.ir.op import Op
from tilesim.records import dataclass

ArriveSem = Literal["release", "relaxed"]
WaitSem = Literal["acquire", "relaxed"]
Scope = Literal["cta", "cluster"]

#: largest arrival count and tx-count magnitude (A3)
MAX_COUNT = (1 << 20) - 1
ONE = Const(1)


def _range(value: Expr, low: int, what: str) -> Iterator[str]:
    known = constant(value)
    if known is not None and not low <= known <= MAX_COUNT:
        yield f"{what} {known} is outside {low}..{MAX_COUNT} (A3)"


@dataclass(frozen=True, kw_only=True)
class MbarrierInit(Op):
    """Starts a barrier at phase 0 with ``count`` expected arrivals (A5)."""

    mnemonic = "mbarrier.init"
    call = "mbarrier.init(mbar, count)"
    ptx = "mbarrier.init{mbar.space}.b64 [{mbar}], {count:r};"
    features = frozenset({"mbarrier"})
    sync = True

    mbar: Mbar
    count: Expr

    def verify(self) -> Iterator[str]:
        yield from _range(self.count, 1, "arrival count")
        if self.mbar.remote:
            yield "mbarrier.init works on the executing CTA's own barriers only (A5)"

    def effects(self) -> tuple[Effect, ...]:
        return (InitsMbarrier(self.mbar, self.count),)


@dataclass(frozen=True, kw_only=True)
class MbarrierInval(Op):
    """Ends the lifetime of a barrier so that its bytes can be reused (A6)."""

    mnemonic = "mbarrier.inval"
    call = "mbarrier.inval(mbar)"
    ptx = "mbarrier.inval{mbar.space}.b64 [{mbar}];"
    features = frozenset({"mbarrier"})
    sync = True

    mbar: Mbar

    def verify(self) -> Iterator[str]:
        if self.mbar.remote:
            yield "mbarrier.inval works on the executing CTA's own barriers only (A6)"

    def effects(self) -> tuple[Effect, ...]:
        return (InvalidatesMbarrier(self.mbar),)


@dataclass(frozen=True, kw_only=True)
class MbarrierArrive(Op):
    """Counts ``count`` arrivals per active lane (A.4).

    ``token`` receives the phase the arrival belongs to; the sink form (None) is the only one for
    a remote barrier. ``no_complete`` must not end the phase.
    """

    mnemonic = "mbarrier.arrive"
    call = "mbarrier.arrive(mbar, count, *, sem, scope, token, no_complete)"
    ptx = (
        "mbarrier.arrive{.no_complete=noComplete}{.sem}{.scope}{mbar.space}.b64 "
        "{token:l}, [{mbar}]{,count:r};"
    )
    features = frozenset({"mbarrier"})
    sync = True

    mbar: Mbar
    count: Expr = ONE
    sem: ArriveSem = "release"
    scope: Scope = "cta"
    token: Var | None = None
    no_complete: bool = False

    def verify(self) -> Iterator[str]:
        yield from _range(self.count, 1, "arrival count")
        if self.token is not None and self.mbar.remote:
            yield "a remote arrive has no result token: use the sink form (A.4)"
        if self.no_complete and (self.sem, self.scope) != ("release", "cta"):
            yield "mbarrier.arrive.noComplete exists as .release.cta only (A.4)"
        if self.no_complete and self.mbar.remote:
            yield "mbarrier.arrive.noComplete reaches barriers of its own CTA only (A.4)"

    def effects(self) -> tuple[Effect, ...]:
        arrives = Arrives(
            self.mbar, self.count, sem=self.sem, scope=self.scope, partial=self.no_complete
        )
        return _with_token(arrives, self.token)


@dataclass(frozen=True, kw_only=True)
class MbarrierArriveExpectTx(Op):
    """``expect_tx(bytes)`` then one arrival, atomically, per active lane (A.4, A15)."""

    mnemonic = "mbarrier.arrive.expect_tx"
    call = "mbarrier.arrive_expect_tx(mbar, bytes, *, sem, scope, token)"
    ptx = "mbarrier.arrive.expect_tx{.sem}{.scope}{mbar.space}.b64 {token:l}, [{mbar}], {bytes:r};"
    features = frozenset({"mbarrier"})
    sync = True

    mbar: Mbar
    bytes: Expr
    sem: ArriveSem = "release"
    scope: Scope = "cta"
    token: Var | None = None

    def verify(self) -> Iterator[str]:
        yield from _range(self.bytes, 0, "tx-count")
        if self.token is not None and self.mbar.remote:
            yield "a remote arrive has no result token: use the sink form (A.4)"

    def effects(self) -> tuple[Effect, ...]:
        arrives = Arrives(self.mbar, ONE, self.bytes, sem=self.sem, scope=self.scope)
        return _with_token(arrives, self.token)


@dataclass(frozen=True, kw_only=True)
class MbarrierArriveDrop(Op):
    """Arrives and leaves: later phases expect ``count`` fewer arrivals (A16)."""

    mnemonic = "mbarrier.arrive_drop"
    call = "mbarrier.arrive_drop(mbar, count, *, bytes, sem, scope, token)"
    ptx = (
        "mbarrier.arrive_drop{.bytes=expect_tx}{.sem}{.scope}{mbar.space}.b64 "
        "{token:l}, [{mbar}]{,bytes:r}{,count:r};"
    )
    features = frozenset({"mbarrier"})
    sync = True

    mbar: Mbar
    count: Expr = ONE
    bytes: Expr | None = None
    sem: ArriveSem = "release"
    scope: Scope = "cta"
    token: Var | None = None

    def verify(self) -> Iterator[str]:
        yield from _range(self.count, 1, "arrival count")
        if self.bytes is not None:
            yield from _range(self.bytes, 0, "tx-count")
            if constant(self.count) != 1:
                yield "the .expect_tx form has an implied arrival count of 1 (A15)"
        if self.token is not None and self.mbar.remote:
            yield "a remote arrive has no result token: use the sink form (A.4)"

    def effects(self) -> tuple[Effect, ...]:
        arrives = Arrives(
            self.mbar, self.count, self.bytes, sem=self.sem, scope=self.scope, drop=True
        )
        return _with_token(arrives, self.token)


@dataclass(frozen=True, kw_only=True)
class _CountsBytes(Op):
    """Changes the tx-count by ``bytes`` per active lane."""

    sem = "relaxed"
    features = frozenset({"mbarrier"})
    sync = True

    mbar: Mbar
    bytes: Expr
    scope: Scope = "cta"

    def verify(self) -> Iterator[str]:
        yield from _range(self.bytes, 0, "tx-count")


@dataclass(frozen=True, kw_only=True)
class MbarrierExpectTx(_CountsBytes):
    """Raises the tx-count by ``bytes`` per active lane; no arrival, no ordering (A29)."""

    mnemonic = "mbarrier.expect_tx"
    call = "mbarrier.expect_tx(mbar, bytes, *, scope)"
    ptx = "mbarrier.expect_tx{.sem}{.scope}{mbar.space}.b64 [{mbar}], {bytes:r};"

    def effects(self) -> tuple[Effect, ...]:
        return (Expects(self.mbar, self.bytes, self.scope),)


@dataclass(frozen=True, kw_only=True)
class MbarrierCompleteTx(_CountsBytes):
    """Lowers the tx-count by ``bytes`` as an asynchronous completion would; moves no data (A.4)."""

    mnemonic = "mbarrier.complete_tx"
    call = "mbarrier.complete_tx(mbar, bytes, *, scope)"
    ptx = "mbarrier.complete_tx{.sem}{.scope}{mbar.space}.b64 [{mbar}], {bytes:r};"

    def effects(self) -> tuple[Effect, ...]:
        return (Completes(self.mbar, self.bytes, scope=self.scope),)


@dataclass(frozen=True, kw_only=True)
class MbarrierWait(Op):
    """A loop around ``mbarrier.try_wait`` that ends when the phase has completed (A25).

    ``phase`` is a parity (0 or 1) when ``parity``, otherwise a token from an arrive (A20, A21).
    """

    mnemonic = "mbarrier.wait"
    cycles = 12
    features = frozenset({"mbarrier"})
    sync = True

    mbar: Mbar
    phase: Expr
    parity: bool = True
    sem: WaitSem = "acquire"
    scope: Scope = "cta"

    def verify(self) -> Iterator[str]:
        yield from _wait_problems(self.mbar, self.phase, self.parity)

    def effects(self) -> tuple[Effect, ...]:
        return (Waits(self.mbar, self.phase, self.parity, self.sem, self.scope),)


@dataclass(frozen=True, kw_only=True)
class _Asks(Op):
    """Asks whether the phase has completed."""

    features = frozenset({"mbarrier"})
    sync = True

    result: Var
    mbar: Mbar
    phase: Expr
    parity: bool = True
    sem: WaitSem = "acquire"
    scope: Scope = "cta"

    def verify(self) -> Iterator[str]:
        yield from _wait_problems(self.mbar, self.phase, self.parity)

    def _looks(self, *, suspends: bool) -> tuple[Effect, ...]:
        looks = Waits(
            self.mbar, self.phase, self.parity, self.sem, self.scope, poll=True, suspends=suspends
        )
        return (looks, Defines(self.result, looks))


@dataclass(frozen=True, kw_only=True)
class MbarrierTestWait(_Asks):
    """Asks without blocking whether the phase has completed; ``result`` is 0 or 1 (A.4)."""

    mnemonic = "mbarrier.test_wait"
    ptx = "mbarrier.test_wait{.parity}{.sem}{.scope}{mbar.space}.b64 {result:p}, [{mbar}], {phase};"

    def effects(self) -> tuple[Effect, ...]:
        return self._looks(suspends=False)


@dataclass(frozen=True, kw_only=True)
class MbarrierTryWait(_Asks):
    """Like test_wait, but may suspend, and may answer 0 although the phase completes (A25).

    ``time_hint`` in nanoseconds bounds the suspension.
    """

    mnemonic = "mbarrier.try_wait"
    ptx = (
        "mbarrier.try_wait{.parity}{.sem}{.scope}{mbar.space}.b64 "
        "{result:p}, [{mbar}], {phase}{,time_hint:r};"
    )
    hints = frozenset({"time_hint"})

    time_hint: int | None = None

    def verify(self) -> Iterator[str]:
        yield from super().verify()
        if self.time_hint is not None and not 0 <= self.time_hint < 1 << 32:
            yield f"time hint {self.time_hint} does not fit 32 bits"

    def effects(self) -> tuple[Effect, ...]:
        return self._looks(suspends=True)


@dataclass(frozen=True, kw_only=True)
class MbarrierPendingCount(Op):
    """The pending count captured by the token of a ``.noComplete`` arrive (A.4)."""

    mnemonic = "mbarrier.pending_count"
    call = "mbarrier.pending_count(result, token)"
    ptx = "mbarrier.pending_count.b64 {result:r}, {token:l};"
    features = frozenset({"mbarrier"})

    result: Var
    token: Expr

    def effects(self) -> tuple[Effect, ...]:
        pending = PendingCount(self.token)
        return (pending, Defines(self.result, pending))


@dataclass(frozen=True, kw_only=True)
class FenceMbarrierInit(Op):
    """Orders this thread's earlier mbarrier.init before a cluster barrier arrive (D6)."""

    mnemonic = "fence.mbarrier_init"
    call = "fence.mbarrier_init"
    ptx = "fence.mbarrier_init.release.cluster;"
    fault = "mbarrier_init fence dropped"
    features = frozenset({"mbarrier"})

    def effects(self) -> tuple[Effect, ...]:
        return (Orders(self.mnemonic, inits=True),)


def _with_token(arrives: Arrives, token: Var | None) -> tuple[Effect, ...]:
    return (arrives,) if token is None else (arrives, Defines(token, arrives))


def _wait_problems(mbar: Mbar, phase: Expr, parity: bool) -> Iterator[str]:
    if mbar.remote:
        yield "a wait works on the executing CTA's own barriers only (A17)"
    known = constant(phase)
    if parity and known is not None and known not in (0, 1):
        yield f"parity {known} is neither 0 nor 1 (A21)"
