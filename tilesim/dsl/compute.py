"""``k.wgmma``, ``k.tile``, ``k.mem``: tensor cores, register tiles, scalars (SEMANTICS F, H)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tilesim.dsl.generated import MemMethods
from tilesim.dsl.methods import Namespace, ViewLike, as_view, optional, records
from tilesim.ir.declarations import Fragment
from tilesim.ir.expr import Operand, Var, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.ops import fence, scalar, wgmma

if TYPE_CHECKING:
    pass


class WgmmaOps(Namespace):
    """Warpgroup MMA (SEMANTICS section F)."""

    @records(wgmma.WgmmaFence)
    def fence(self) -> None:
        """Orders register accesses before the following mma_async (F3)."""
        self._k.emit(wgmma.WgmmaFence(loc=caller()))

    @records(wgmma.WgmmaMmaAsync)
    def mma_async(
        self,
        acc: Fragment,
        a: ViewLike | Fragment,
        b: ViewLike,
        *,
        accumulate: Operand = 1,
        a_trans: bool = False,
        b_trans: bool = False,
        a_column: int = 0,
    ) -> None:
        """``acc (+)= a @ b`` asynchronously, m64nNkK per warpgroup (F1-F9); see `WgmmaMmaAsync`."""
        self._k.emit(
            wgmma.WgmmaMmaAsync(
                acc=acc, a=a if isinstance(a, Fragment) else as_view(a), b=as_view(b),
                accumulate=as_expr(accumulate), a_trans=a_trans, b_trans=b_trans,
                a_column=a_column, loc=caller(),
            )
        )  # fmt: skip

    @records(wgmma.WgmmaCommitGroup)
    def commit_group(self) -> None:
        """Closes the warpgroup's wgmma group (F5)."""
        self._k.emit(wgmma.WgmmaCommitGroup(loc=caller()))

    @records(wgmma.WgmmaWaitGroup)
    def wait_group(self, pending: int = 0) -> None:
        """Blocks until at most ``pending`` newest wgmma groups of the warpgroup are unfinished
        (F5).
        """
        self._k.emit(wgmma.WgmmaWaitGroup(pending=pending, loc=caller()))


class MemoryOps(MemMethods):
    """Per-lane loads, stores, atomics and shuffles (`tilesim.ir.ops.scalar`)."""

    @records(scalar.Load)
    def load(
        self,
        var: Var,
        src: ViewLike,
        *,
        sem: scalar.LoadSem = "weak",
        scope: fence.FenceScope = "cta",
        nc: bool = False,
    ) -> None:
        """``ld``: every active lane loads its element of shared or global memory into ``var``.

        ``nc``: as ``__ldg``, of what no thread of the grid writes.
        """
        self._k.emit(
            scalar.Load(var=var, src=as_view(src), sem=sem, scope=scope, nc=nc, loc=caller())
        )

    @records(scalar.Store)
    def store(
        self,
        dst: ViewLike,
        value: Operand,
        *,
        sem: scalar.StoreSem = "weak",
        scope: fence.FenceScope = "cta",
    ) -> None:
        """``st``: every active lane stores ``value`` to its element of shared or global memory."""
        self._k.emit(
            scalar.Store(dst=as_view(dst), value=as_expr(value), sem=sem, scope=scope, loc=caller())
        )

    @records(scalar.Atomic)
    def atomic(
        self,
        dst: ViewLike,
        op: scalar.AtomicOp,
        value: Operand,
        *,
        compare: Operand | None = None,
        result: Var | None = None,
        sem: scalar.AtomicSem = "relaxed",
        scope: fence.FenceScope = "gpu",
    ) -> None:
        """``atom`` (with ``result``) or ``red`` (without): read-modify-write per active
        lane; see `Atomic`.
        """
        self._k.emit(
            scalar.Atomic(
                dst=as_view(dst), op=op, value=as_expr(value), compare=optional(compare),
                result=result, sem=sem, scope=scope, loc=caller(),
            )
        )  # fmt: skip

    @records(scalar.Shuffle)
    def shuffle(
        self,
        result: Var,
        value: Operand,
        lane: Operand,
        mode: Literal["idx", "up", "down", "bfly"] = "idx",
        *,
        mask: Operand | None = None,
    ) -> None:
        """``shfl.sync``: ``value`` of another lane (``lane`` is an index, delta or mask).

        ``mask``: the lanes that execute it; those that do if it is left out.
        """
        self._k.emit(
            scalar.Shuffle(
                result=result, value=as_expr(value), lane=as_expr(lane), mode=mode,
                mask=optional(mask), loc=caller(),
            )
        )  # fmt: skip
