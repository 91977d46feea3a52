"""``k.mbarrier`` (SEMANTICS section A)."""

from __future__ import annotations

from tilesim.dsl.methods import MbarLike, Namespace, as_mbar, optional, records
from tilesim.errors import reject
from tilesim.ir.expr import Expr, Operand, Var, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.ops import mbarrier


class MbarrierOps(Namespace):
    """``mbarrier.*`` (SEMANTICS section A)."""

    @records(mbarrier.MbarrierInit)
    def init(self, mbar: MbarLike, count: Operand) -> None:
        """Starts a barrier at phase 0 with ``count`` expected arrivals (A5)."""
        self._k.emit(mbarrier.MbarrierInit(mbar=as_mbar(mbar), count=as_expr(count), loc=caller()))

    @records(mbarrier.MbarrierInval)
    def inval(self, mbar: MbarLike) -> None:
        """Ends the lifetime of a barrier so that its bytes can be reused (A6)."""
        self._k.emit(mbarrier.MbarrierInval(mbar=as_mbar(mbar), loc=caller()))

    @records(mbarrier.MbarrierArrive)
    def arrive(
        self,
        mbar: MbarLike,
        count: Operand = 1,
        *,
        sem: mbarrier.ArriveSem = "release",
        scope: mbarrier.Scope = "cta",
        token: Var | None = None,
        no_complete: bool = False,
    ) -> None:
        """Counts ``count`` arrivals per active lane (A.4); see `MbarrierArrive`."""
        self._k.emit(
            mbarrier.MbarrierArrive(
                mbar=as_mbar(mbar), count=as_expr(count), sem=sem, scope=scope, token=token,
                no_complete=no_complete, loc=caller(),
            )
        )  # fmt: skip

    @records(mbarrier.MbarrierArriveExpectTx)
    def arrive_expect_tx(
        self,
        mbar: MbarLike,
        bytes: Operand,
        *,
        sem: mbarrier.ArriveSem = "release",
        scope: mbarrier.Scope = "cta",
        token: Var | None = None,
    ) -> None:
        """``expect_tx(bytes)`` then one arrival, atomically, per active lane (A.4, A15)."""
        self._k.emit(
            mbarrier.MbarrierArriveExpectTx(
                mbar=as_mbar(mbar), bytes=as_expr(bytes), sem=sem, scope=scope, token=token,
                loc=caller(),
            )
        )  # fmt: skip

    @records(mbarrier.MbarrierArriveDrop)
    def arrive_drop(
        self,
        mbar: MbarLike,
        count: Operand = 1,
        *,
        bytes: Operand | None = None,
        sem: mbarrier.ArriveSem = "release",
        scope: mbarrier.Scope = "cta",
        token: Var | None = None,
    ) -> None:
        """Arrives and leaves: later phases expect ``count`` fewer arrivals (A16)."""
        self._k.emit(
            mbarrier.MbarrierArriveDrop(
                mbar=as_mbar(mbar), count=as_expr(count), bytes=optional(bytes), sem=sem,
                scope=scope, token=token, loc=caller(),
            )
        )  # fmt: skip

    @records(mbarrier.MbarrierExpectTx)
    def expect_tx(self, mbar: MbarLike, bytes: Operand, *, scope: mbarrier.Scope = "cta") -> None:
        """Raises the tx-count by ``bytes`` per active lane; no arrival, no ordering (A29)."""
        self._k.emit(
            mbarrier.MbarrierExpectTx(
                mbar=as_mbar(mbar), bytes=as_expr(bytes), scope=scope, loc=caller()
            )
        )

    @records(mbarrier.MbarrierCompleteTx)
    def complete_tx(self, mbar: MbarLike, bytes: Operand, *, scope: mbarrier.Scope = "cta") -> None:
        """Lowers the tx-count by ``bytes`` as an asynchronous completion would; moves no data
        (A.4).
        """
        self._k.emit(
            mbarrier.MbarrierCompleteTx(
                mbar=as_mbar(mbar), bytes=as_expr(bytes), scope=scope, loc=caller()
            )
        )

    @records(mbarrier.MbarrierWait)
    def wait(
        self,
        mbar: MbarLike,
        parity: Operand | None = None,
        *,
        token: Expr | None = None,
        sem: mbarrier.WaitSem = "acquire",
        scope: mbarrier.Scope = "cta",
    ) -> None:
        """Loops on try_wait until the phase named by ``parity`` (or ``token``) has completed."""
        phase, is_parity = _phase(parity, token)
        self._k.emit(
            mbarrier.MbarrierWait(
                mbar=as_mbar(mbar),
                phase=phase,
                parity=is_parity,
                sem=sem,
                scope=scope,
                loc=caller(),
            )
        )

    @records(mbarrier.MbarrierTestWait)
    def test_wait(
        self,
        result: Var,
        mbar: MbarLike,
        parity: Operand | None = None,
        *,
        token: Expr | None = None,
        sem: mbarrier.WaitSem = "acquire",
        scope: mbarrier.Scope = "cta",
    ) -> None:
        """Asks without blocking whether the phase has completed; ``result`` is 0 or 1 (A.4)."""
        phase, is_parity = _phase(parity, token)
        self._k.emit(
            mbarrier.MbarrierTestWait(
                result=result, mbar=as_mbar(mbar), phase=phase, parity=is_parity, sem=sem,
                scope=scope, loc=caller(),
            )
        )  # fmt: skip

    @records(mbarrier.MbarrierTryWait)
    def try_wait(
        self,
        result: Var,
        mbar: MbarLike,
        parity: Operand | None = None,
        *,
        token: Expr | None = None,
        sem: mbarrier.WaitSem = "acquire",
        scope: mbarrier.Scope = "cta",
        time_hint: int | None = None,
    ) -> None:
        """Like test_wait, but may suspend, and may answer 0 although the phase completes
        (A25); see `MbarrierTryWait`.
        """
        phase, is_parity = _phase(parity, token)
        self._k.emit(
            mbarrier.MbarrierTryWait(
                result=result, mbar=as_mbar(mbar), phase=phase, parity=is_parity, sem=sem,
                scope=scope, time_hint=time_hint, loc=caller(),
            )
        )  # fmt: skip

    @records(mbarrier.MbarrierPendingCount)
    def pending_count(self, result: Var, token: Expr) -> None:
        """The pending count captured by the token of a ``.noComplete`` arrive (A.4)."""
        self._k.emit(mbarrier.MbarrierPendingCount(result=result, token=token, loc=caller()))


def _phase(parity: Operand | None, token: Expr | None) -> tuple[Expr, bool]:
    if (parity is None) == (token is None):
        raise reject("a wait needs either a parity or a token", caller())
    return (
        (as_expr(parity), True)
        if parity is not None
        else (as_expr(0 if token is None else token), False)
    )
