"""``k.bar``, ``k.cluster``, ``k.griddep``, ``k.fence``: synchronisation (SEMANTICS D, E, H)."""

from __future__ import annotations

from typing import Literal

from tilesim.dsl.generated import FenceMethods
from tilesim.dsl.methods import MbarLike, Namespace, Recorder, ViewLike, as_mbar, as_view, records
from tilesim.dsl.warps import NamedBarriers
from tilesim.ir.expr import Operand, Var, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.ops import bar, cluster, mbarrier


class BarOps(Namespace):
    """Named barriers (SEMANTICS E.1)."""

    def __init__(self, builder: Recorder, barriers: NamedBarriers) -> None:
        super().__init__(builder)
        self._barriers = barriers

    @records(bar.BarSync)
    def sync(self, id: Operand, threads: Operand | None = None, *, aligned: bool = True) -> None:
        """``barrier.sync``: joins named barrier ``id`` and waits for ``threads`` threads
        (E1-E4); see `BarSync`.
        """
        self._barriers.pick(id, caller())
        count = None if threads is None else as_expr(threads)
        self._k.emit(bar.BarSync(id=as_expr(id), threads=count, aligned=aligned, loc=caller()))

    @records(bar.BarArrive)
    def arrive(self, id: Operand, threads: Operand, *, aligned: bool = True) -> None:
        """``barrier.arrive``: counts this warp on named barrier ``id`` without waiting (E2, E4)."""
        self._barriers.pick(id, caller())
        count = as_expr(threads)
        self._k.emit(bar.BarArrive(id=as_expr(id), threads=count, aligned=aligned, loc=caller()))

    @records(bar.BarRed)
    def red(
        self,
        result: Var,
        id: Operand,
        value: Operand,
        *,
        op: Literal["and", "or", "popc"] = "or",
        threads: Operand | None = None,
        aligned: bool = True,
    ) -> None:
        """``barrier.red``: joins named barrier ``id`` and reduces a predicate over its threads
        (E5).
        """
        self._barriers.pick(id, caller())
        self._k.emit(
            bar.BarRed(
                result=result, id=as_expr(id), value=as_expr(value), op=op,
                threads=None if threads is None else as_expr(threads), aligned=aligned,
                loc=caller(),
            )
        )  # fmt: skip


class ClusterOps(Namespace):
    """The cluster barrier and remote asynchronous stores (SEMANTICS D.1, D.4)."""

    @records(cluster.ClusterArrive)
    def arrive(
        self, *, sem: Literal["release", "relaxed"] = "release", aligned: bool = True
    ) -> None:
        """``barrier.cluster.arrive``: counts this warp's threads in the current round (D1-D4)."""
        self._k.emit(cluster.ClusterArrive(sem=sem, aligned=aligned, loc=caller()))

    @records(cluster.ClusterWait)
    def wait(self, *, aligned: bool = True) -> None:
        """``barrier.cluster.wait``: blocks until all live threads of the cluster have arrived
        (D2).
        """
        self._k.emit(cluster.ClusterWait(aligned=aligned, loc=caller()))

    @records(cluster.ClusterArrive, cluster.ClusterWait)
    def sync(self) -> None:
        """``arrive.release`` and ``wait.acquire``."""
        self.arrive()
        self.wait()

    @records(cluster.StAsync)
    def st_async(self, dst: ViewLike, value: Operand, mbar: MbarLike) -> None:
        """``st.async``: every active lane stores ``value`` to its 4- or 8-byte element of a peer's
        shared memory; each completes its bytes on ``mbar`` of that peer (D11, D13).
        """
        self._k.emit(
            cluster.StAsync(
                dst=as_view(dst), value=as_expr(value), mbar=as_mbar(mbar), loc=caller()
            )
        )

    @records(cluster.RedAsync)
    def red_async(
        self, dst: ViewLike, op: cluster.AsyncReduceOp, value: Operand, mbar: MbarLike
    ) -> None:
        """``red.async``: like `StAsync`, but ``op`` combines ``value`` with the element (D12)."""
        self._k.emit(
            cluster.RedAsync(
                dst=as_view(dst), op=op, value=as_expr(value), mbar=as_mbar(mbar), loc=caller()
            )
        )


class GriddepOps(Namespace):
    """Programmatic dependent launch (SEMANTICS D.6)."""

    @records(cluster.GriddepWait)
    def wait(self) -> None:
        """``griddepcontrol.wait``: blocks until the grids this one depends on have completed
        (D17).
        """
        self._k.emit(cluster.GriddepWait(loc=caller()))

    @records(cluster.GriddepLaunchDependents)
    def launch_dependents(self) -> None:
        """``griddepcontrol.launch_dependents``: dependent grids may start; publishes nothing
        (D16).
        """
        self._k.emit(cluster.GriddepLaunchDependents(loc=caller()))


class FenceOps(FenceMethods):
    """Memory and proxy fences (SEMANTICS H.3, D6)."""

    @records(mbarrier.FenceMbarrierInit)
    def mbarrier_init(self) -> None:
        """Orders this thread's earlier mbarrier.init before a cluster barrier arrive (D6)."""
        self._k.emit(mbarrier.FenceMbarrierInit(loc=caller()))
