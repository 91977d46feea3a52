"""Clusters: the cluster barrier, remote asynchronous stores, dependent launch (SEMANTICS D)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilesim.arith.types import DType, s32, s64, u32, u64
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.effects import Completes, Effect, JoinsCluster, RemoteStore, WaitsGrids
from tilesim.ir.expr import Const, Expr
from tilesim.ir.op import Op
from tilesim.records import dataclass

AsyncReduceOp = Literal["inc", "dec", "add", "min", "max", "and", "or", "xor"]

#: element types of each red.async operation (D12)
_REDUCIBLE: dict[str, tuple[DType, ...]] = {
    "inc": (u32,), "dec": (u32,), "add": (u32, s32, u64, s64), "min": (u32, s32),
    "max": (u32, s32), "and": (u32, s32), "or": (u32, s32), "xor": (u32, s32),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ClusterArrive(Op):
    """``barrier.cluster.arrive``: counts this warp's threads in the current round (D1-D4)."""

    mnemonic = "barrier.cluster.arrive"
    call = "cluster.arrive(*, sem, aligned)"
    ptx = "barrier.cluster.arrive{.sem}{.aligned};"
    features = frozenset({"cluster"})
    sync = True

    sem: Literal["release", "relaxed"] = "release"
    aligned: bool = True

    def effects(self) -> tuple[Effect, ...]:
        return (JoinsCluster(arrives=True, sem=self.sem, aligned=self.aligned),)


@dataclass(frozen=True, kw_only=True)
class ClusterWait(Op):
    """``barrier.cluster.wait``: blocks until all live threads of the cluster have arrived (D2)."""

    mnemonic = "barrier.cluster.wait"
    call = "cluster.wait(*, aligned)"
    ptx = "barrier.cluster.wait{.sem}{.aligned};"
    sem = "acquire"
    features = frozenset({"cluster"})
    sync = True

    aligned: bool = True

    def effects(self) -> tuple[Effect, ...]:
        return (JoinsCluster(arrives=False, aligned=self.aligned),)


def _remote_problems(mnemonic: str, dst: View, mbar: Mbar) -> Iterator[str]:
    if dst.space != "shared" or not dst.remote:
        yield f"{mnemonic} writes a peer's shared memory: name the CTA with .at(rank) (D11)"
    if not mbar.remote:
        yield f"the mbarrier of {mnemonic} is in the destination CTA: use .at(rank) (D11)"
    elif dst.cta is not None and mbar.cta is not None and dst.cta != mbar.cta:
        yield f"destination CTA {dst.cta} and mbarrier CTA {mbar.cta} differ (D11)"


@dataclass(frozen=True, kw_only=True)
class StAsync(Op):
    """``st.async``: every active lane stores ``value`` to its 4- or 8-byte element of a peer's
    shared memory; each completes its bytes on ``mbar`` of that peer (D11, D13)."""

    mnemonic = "st.async"
    call = "cluster.st_async(dst, value, mbar)"
    ptx = (
        "st.async{.sem}{dst.space=shared::cluster}.mbarrier::complete_tx::bytes.{dst.type} "
        "[{dst}], {value:dst}, [{mbar}];"
    )
    sem = "weak"
    engine = "st.async"
    features = frozenset({"cluster"})
    data = frozenset({"value"})

    dst: View
    value: Expr
    mbar: Mbar

    def verify(self) -> Iterator[str]:
        yield from _remote_problems(self.mnemonic, self.dst, self.mbar)
        if self.dst.size != 1:
            yield f"st.async stores one element per lane, {self.dst} has {self.dst.size}"
        if self.dst.dtype.bits not in (32, 64):
            yield f"st.async stores 32- or 64-bit elements, not {self.dst.dtype} (D11)"

    def effects(self) -> tuple[Effect, ...]:
        nbytes = Const(self.dst.dtype.bytes)
        return (RemoteStore(self.dst, self.value), Completes(self.mbar, nbytes, asynchronous=True))


@dataclass(frozen=True, kw_only=True)
class RedAsync(Op):
    """``red.async``: like `StAsync`, but ``op`` combines ``value`` with the element (D12)."""

    mnemonic = "red.async"
    call = "cluster.red_async(dst, op, value, mbar)"
    ptx = (
        "red.async.relaxed.cluster{dst.space=shared::cluster}.mbarrier::complete_tx::bytes.{op}."
        "{dst.reduced} [{dst}], {value:dst}, [{mbar}];"
    )
    engine = "st.async"
    features = frozenset({"cluster"})
    data = frozenset({"value"})

    dst: View
    op: AsyncReduceOp
    value: Expr
    mbar: Mbar

    def verify(self) -> Iterator[str]:
        yield from _remote_problems(self.mnemonic, self.dst, self.mbar)
        if self.dst.size != 1:
            yield f"red.async reduces one element per lane, {self.dst} has {self.dst.size}"
        if self.dst.dtype not in _REDUCIBLE[self.op]:
            types = ", ".join(t.name for t in _REDUCIBLE[self.op])
            yield f"red.async.{self.op} exists for {types}, not {self.dst.dtype} (D12)"

    def effects(self) -> tuple[Effect, ...]:
        nbytes = Const(self.dst.dtype.bytes)
        store = RemoteStore(self.dst, self.value, self.op)
        return (store, Completes(self.mbar, nbytes, asynchronous=True))


@dataclass(frozen=True, kw_only=True)
class GriddepWait(Op):
    """``griddepcontrol.wait``: blocks until the grids this one depends on have completed (D17)."""

    mnemonic = "griddepcontrol.wait"
    call = "griddep.wait"
    ptx = "griddepcontrol.wait;"
    features = frozenset({"cluster"})
    sync = True

    def effects(self) -> tuple[Effect, ...]:
        return (WaitsGrids(),)


@dataclass(frozen=True, kw_only=True)
class GriddepLaunchDependents(Op):
    """``griddepcontrol.launch_dependents``: dependent grids may start; publishes nothing (D16)."""

    mnemonic = "griddepcontrol.launch_dependents"
    call = "griddep.launch_dependents"
    ptx = "griddepcontrol.launch_dependents;"
    features = frozenset({"cluster"})
