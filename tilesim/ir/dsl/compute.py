"""``k.wgmma``, ``k.tile``, ``k.mem``: tensor cores, register tiles, scalars (SEMANTICS F, H)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tilesim.ir.copy_cluster import ClusterCopy, CopyPlan, Path, Signal
from tilesim.ir.dsl.common import MbarLike, Namespace, ViewLike, as_mbar, as_view, optional, records
from tilesim.ir.dsl.generated import MemMethods
from tilesim.ir.expr import Operand, Var, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.memory import Fragment, TensorMap
from tilesim.ir.ops import fence, scalar, tile, wgmma

if TYPE_CHECKING:
    from tilesim.ir.builder import Builder


class WgmmaOps(Namespace):
    """Warpgroup MMA (SEMANTICS section F)."""

    @records(wgmma.WgmmaFence)
    def fence(self) -> None:
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
        self._k.emit(
            wgmma.WgmmaMmaAsync(
                acc=acc, a=a if isinstance(a, Fragment) else as_view(a), b=as_view(b),
                accumulate=as_expr(accumulate), a_trans=a_trans, b_trans=b_trans,
                a_column=a_column, loc=caller(),
            )
        )  # fmt: skip

    @records(wgmma.WgmmaCommitGroup)
    def commit_group(self) -> None:
        self._k.emit(wgmma.WgmmaCommitGroup(loc=caller()))

    @records(wgmma.WgmmaWaitGroup)
    def wait_group(self, pending: int = 0) -> None:
        self._k.emit(wgmma.WgmmaWaitGroup(pending=pending, loc=caller()))


class TileOps(Namespace):
    """Register tiles (`tilesim.ir.ops.tile`) and cluster copies (`tilesim.ir.copy_cluster`)."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self._builder = builder

    @records(tile.TileFill)
    def fill(self, dst: Fragment, value: Operand) -> None:
        self._k.emit(tile.TileFill(dst=dst, value=as_expr(value), loc=caller()))

    @records(tile.TileLoad)
    def load(self, dst: Fragment, src: ViewLike) -> None:
        self._k.emit(tile.TileLoad(dst=dst, src=as_view(src), loc=caller()))

    @records(tile.TileStore)
    def store(self, dst: ViewLike, src: Fragment, *, column: int | None = None) -> None:
        self._k.emit(tile.TileStore(dst=as_view(dst), src=src, column=column, loc=caller()))

    @records(tile.TileMap)
    def map(self, dst: Fragment, op: tile.MapOp, src: Fragment) -> None:
        self._k.emit(tile.TileMap(dst=dst, op=op, src=src, loc=caller()))

    @records(tile.TileZip)
    def zip(self, dst: Fragment, op: tile.ZipOp, lhs: Fragment, rhs: Fragment | Operand) -> None:
        other = rhs if isinstance(rhs, Fragment) else as_expr(rhs)
        self._k.emit(tile.TileZip(dst=dst, op=op, lhs=lhs, rhs=other, loc=caller()))

    @records(tile.TileFma)
    def fma(self, dst: Fragment, a: Fragment, b: Fragment | Operand, c: Fragment | Operand) -> None:
        b, c = (x if isinstance(x, Fragment) else as_expr(x) for x in (b, c))
        self._k.emit(tile.TileFma(dst=dst, a=a, b=b, c=c, loc=caller()))

    @records(tile.TileTril)
    def tril(self, dst: Fragment, src: Fragment, diagonal: Operand, value: Operand) -> None:
        self._k.emit(
            tile.TileTril(
                dst=dst, src=src, diagonal=as_expr(diagonal), value=as_expr(value), loc=caller()
            )
        )

    @records(tile.TileCast)
    def cast(self, dst: Fragment, src: Fragment) -> None:
        self._k.emit(tile.TileCast(dst=dst, src=src, loc=caller()))

    @records(tile.TileReduce)
    def reduce(self, dst: Fragment, op: tile.ReduceOp, src: Fragment) -> None:
        self._k.emit(tile.TileReduce(dst=dst, op=op, src=src, loc=caller()))

    def copy_cluster(
        self,
        src: ViewLike,
        dst: ViewLike,
        *,
        cluster_mask: Operand | None = None,
        dst_cta: Operand | None = None,
        barrier: MbarLike | None = None,
        map: TensorMap | None = None,
        path: Path | None = None,
        signal: Signal | None = None,
    ) -> CopyPlan:
        """Copies ``src`` into the shared memory ``dst`` of CTAs of the cluster; by one whole warp.

        ``cluster_mask``: ``src`` is global; the lowest rank of the mask loads it (through ``map``
        if given) into ``dst`` of every masked CTA, ranks outside the mask load their own ``src``.
        ``dst_cta``: ``src`` is shared and goes to ``dst`` of that CTA. ``barrier`` is the one at
        the destination; arm it from the `CopyPlan`. ``path`` forces a path; ``signal`` is the
        contract that the barrier relies on: ``bytes`` or an ``arrival``.

        Raises:
            InvalidProgram: the operands contradict each other, or no path can do it.
        """
        mbar = None if barrier is None else as_mbar(barrier)
        return ClusterCopy(
            as_view(src), as_view(dst), dst_cta, cluster_mask, mbar, map, path, signal
        ).emit(self._builder)

    def plan_cluster_copy(
        self,
        src: ViewLike,
        dst: ViewLike,
        *,
        cluster_mask: Operand | None = None,
        dst_cta: Operand | None = None,
        barrier: MbarLike | None = None,
        map: TensorMap | None = None,
        path: Path | None = None,
        signal: Signal | None = None,
    ) -> CopyPlan:
        """The plan that `copy_cluster` would follow, for what must be armed before the copy."""
        mbar = None if barrier is None else as_mbar(barrier)
        return ClusterCopy(
            as_view(src), as_view(dst), dst_cta, cluster_mask, mbar, map, path, signal
        ).plan(self._builder)


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
    ) -> None:
        self._k.emit(scalar.Load(var=var, src=as_view(src), sem=sem, scope=scope, loc=caller()))

    @records(scalar.Store)
    def store(
        self,
        dst: ViewLike,
        value: Operand,
        *,
        sem: scalar.StoreSem = "weak",
        scope: fence.FenceScope = "cta",
    ) -> None:
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
    ) -> None:
        self._k.emit(
            scalar.Shuffle(
                result=result, value=as_expr(value), lane=as_expr(lane), mode=mode, loc=caller()
            )
        )
