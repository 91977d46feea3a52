"""``k.bar`` and ``k.cluster``: barriers (SEMANTICS D.1, E.1)."""

from __future__ import annotations

from typing import Literal

from tilesim.dsl.generated import ClusterMethods
from tilesim.dsl.methods import Namespace, Recorder, records
from tilesim.dsl.warps import NamedBarriers
from tilesim.ir.expr import Operand, Var, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.ops import bar, cluster


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


class ClusterOps(ClusterMethods):
    """The cluster barrier and remote asynchronous stores (SEMANTICS D.1, D.4)."""

    @records(cluster.ClusterArrive, cluster.ClusterWait)
    def sync(self) -> None:
        """``arrive.release`` and ``wait.acquire``."""
        self.arrive()
        self.wait()
