"""``k.tile``: register tiles (`tilesim.ir.ops.tile`) and cluster copies."""

from __future__ import annotations

from tilesim.dsl.copy_cluster import ClusterCopy, CopyPlan, Kernel, Path, Signal
from tilesim.dsl.methods import MbarLike, Namespace, ViewLike, as_mbar, as_view, records
from tilesim.ir.declarations import Fragment, TensorMap
from tilesim.ir.expr import Operand, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.ops import tile


class TileOps(Namespace):
    """Register tiles (`tilesim.ir.ops.tile`) and cluster copies (`tilesim.dsl.copy_cluster`)."""

    def __init__(self, builder: Kernel) -> None:
        super().__init__(builder)
        self._builder = builder

    @records(tile.TileFill)
    def fill(self, dst: Fragment, value: Operand) -> None:
        """Sets every element of a fragment to ``value``."""
        self._k.emit(tile.TileFill(dst=dst, value=as_expr(value), loc=caller()))

    @records(tile.TileLoad)
    def load(self, dst: Fragment, src: ViewLike) -> None:
        """Loads a 1-D or 2-D view of shared or global memory into a fragment (generic proxy)."""
        self._k.emit(tile.TileLoad(dst=dst, src=as_view(src), loc=caller()))

    @records(tile.TileStore)
    def store(self, dst: ViewLike, src: Fragment, *, column: int | None = None) -> None:
        """Stores a fragment to a 1-D or 2-D view of shared or global memory (generic
        proxy); see `TileStore`.
        """
        self._k.emit(tile.TileStore(dst=as_view(dst), src=src, column=column, loc=caller()))

    @records(tile.TileMap)
    def map(self, dst: Fragment, op: tile.MapOp, src: Fragment) -> None:
        """``dst = op(src)`` elementwise; see `TileMap`."""
        self._k.emit(tile.TileMap(dst=dst, op=op, src=src, loc=caller()))

    @records(tile.TileZip)
    def zip(self, dst: Fragment, op: tile.ZipOp, lhs: Fragment, rhs: Fragment | Operand) -> None:
        """``dst = lhs op rhs`` elementwise; see `TileZip`."""
        other = rhs if isinstance(rhs, Fragment) else as_expr(rhs)
        self._k.emit(tile.TileZip(dst=dst, op=op, lhs=lhs, rhs=other, loc=caller()))

    @records(tile.TileFma)
    def fma(self, dst: Fragment, a: Fragment, b: Fragment | Operand, c: Fragment | Operand) -> None:
        """``dst = a * b + c`` elementwise, rounded once (PTX fma.rn); see `TileFma`."""
        b, c = (x if isinstance(x, Fragment) else as_expr(x) for x in (b, c))
        self._k.emit(tile.TileFma(dst=dst, a=a, b=b, c=c, loc=caller()))

    @records(tile.TileTril)
    def tril(self, dst: Fragment, src: Fragment, diagonal: Operand, value: Operand) -> None:
        """``dst[i, j] = src[i, j]`` where ``j - i <= diagonal``, else ``value``: a causal
        mask; see `TileTril`.
        """
        self._k.emit(
            tile.TileTril(
                dst=dst, src=src, diagonal=as_expr(diagonal), value=as_expr(value), loc=caller()
            )
        )

    @records(tile.TileLeft)
    def left(self, dst: Fragment, src: Fragment, columns: Operand, value: Operand) -> None:
        """``dst[i, j] = src[i, j]`` where ``j < columns``, else ``value``: an edge of the data."""
        self._k.emit(
            tile.TileLeft(
                dst=dst, src=src, columns=as_expr(columns), value=as_expr(value), loc=caller()
            )
        )

    @records(tile.TileCast)
    def cast(self, dst: Fragment, src: Fragment) -> None:
        """``dst = src`` converted to the element type of ``dst`` (round to nearest even)."""
        self._k.emit(tile.TileCast(dst=dst, src=src, loc=caller()))

    @records(tile.TileReduce)
    def reduce(self, dst: Fragment, op: tile.ReduceOp, src: Fragment) -> None:
        """``dst[i, j] = op over n of src[i, j + n * width]``: a row reduction to ``width``
        columns; see `TileReduce`.
        """
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
