"""The cluster barrier, remote asynchronous stores, dependent launch (SEMANTICS section D)."""

from __future__ import annotations

from tilesim.gpu.emit.emitter import EMIT, Emitter
from tilesim.gpu.emit.memory import mbar_address, shared_address
from tilesim.gpu.emit.scalar import stored_value
from tilesim.gpu.emit.watch import blocking
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.expr import Expr
from tilesim.ir.ops.cluster import (
    ClusterArrive,
    ClusterWait,
    GriddepLaunchDependents,
    GriddepWait,
    RedAsync,
    StAsync,
)

_TRACKED = "shared::cluster.mbarrier::complete_tx::bytes"


def _aligned(aligned: bool) -> str:
    return ".aligned" if aligned else ""


@EMIT.rule(ClusterArrive)
def _arrive(e: Emitter, op: ClusterArrive) -> None:
    e.asm(f"barrier.cluster.arrive.{op.sem}{_aligned(op.aligned)};")


@EMIT.rule(ClusterWait)
def _wait(e: Emitter, op: ClusterWait) -> None:
    with blocking(e, "the cluster barrier"):
        e.asm(f"barrier.cluster.wait.acquire{_aligned(op.aligned)};")


def _send(e: Emitter, form: str, dst: View, value: Expr, mbar: Mbar) -> None:
    """A remote store or reduction of one element, which completes its bytes on a barrier."""
    target = ("r", shared_address(e, dst, swizzle=True))
    operands = [target, stored_value(e, dst.dtype, value), ("r", mbar_address(e, mbar))]
    e.asm(f"{form} [%0], %1, [%2];", operands)


@EMIT.rule(StAsync)
def _st_async(e: Emitter, op: StAsync) -> None:
    kind = f"f{op.dst.dtype.bits}" if op.dst.dtype.kind == "float" else f"b{op.dst.dtype.bits}"
    _send(e, f"st.async.weak.{_TRACKED}.{kind}", op.dst, op.value, op.mbar)


@EMIT.rule(RedAsync)
def _red_async(e: Emitter, op: RedAsync) -> None:
    dtype = op.dst.dtype
    kind = f"b{dtype.bits}" if op.op in ("and", "or", "xor") else dtype.name
    if kind == "s64":
        kind = "u64"  # the same sum in two's complement
    form = f"red.async.relaxed.cluster.{_TRACKED}.{op.op}.{kind}"
    _send(e, form, op.dst, op.value, op.mbar)


@EMIT.rule(GriddepWait)
def _griddep_wait(e: Emitter, op: GriddepWait) -> None:
    e.asm("griddepcontrol.wait;")


@EMIT.rule(GriddepLaunchDependents)
def _griddep_launch(e: Emitter, op: GriddepLaunchDependents) -> None:
    e.asm("griddepcontrol.launch_dependents;")
