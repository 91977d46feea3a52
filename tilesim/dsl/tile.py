"""``k.tile``: register tiles (`tilesim.ir.ops.tile`) and cluster copies."""

from __future__ import annotations

from tilesim.dsl.copy_cluster import ClusterCopy, CopyPlan, Kernel, Path, Signal
from tilesim.dsl.generated import TileMethods
from tilesim.dsl.methods import MbarLike, ViewLike, as_mbar, as_view
from tilesim.ir.declarations import TensorMap
from tilesim.ir.expr import Operand


class TileOps(TileMethods):
    """Register tiles (`tilesim.ir.ops.tile`) and cluster copies (`tilesim.dsl.copy_cluster`)."""

    def __init__(self, builder: Kernel) -> None:
        super().__init__(builder)
        self._builder = builder

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
