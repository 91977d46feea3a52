"""``k.mbarrier`` (SEMANTICS section A)."""

from __future__ import annotations

from tilesim.dsl.generated import MbarrierMethods
from tilesim.dsl.methods import MbarLike, as_mbar, records
from tilesim.errors import reject
from tilesim.ir.expr import Expr, Operand, Var, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.ops import mbarrier


class MbarrierOps(MbarrierMethods):
    """``mbarrier.*`` (SEMANTICS section A)."""

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


def _phase(parity: Operand | None, token: Expr | None) -> tuple[Expr, bool]:
    if (parity is None) == (token is None):
        raise reject("a wait needs either a parity or a token", caller())
    return (
        (as_expr(parity), True)
        if parity is not None
        else (as_expr(0 if token is None else token), False)
    )
