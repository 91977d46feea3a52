"""Instruction namespaces of the builder: ``k.mbarrier``, ``k.tma``, ``k.bulk``, ``k.wgmma``...

Each method appends one PTX instruction; the class docstring of the instruction has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from tilesim.errors import reject
from tilesim.ir.expr import Expr, Operand, Var, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.memory import (
    Fragment,
    GlobalTensor,
    Mbar,
    Mbarriers,
    SharedTensor,
    TensorMap,
    View,
)
from tilesim.ir.op import Op
from tilesim.ir.ops import bar, cluster, cp_async, fence, mbarrier, scalar, tile, tma, wgmma

Tensor = GlobalTensor | SharedTensor
MbarLike = Mbar | Mbarriers
ViewLike = View | GlobalTensor | SharedTensor


class _Recorder(Protocol):
    def emit(self, op: Op) -> None: ...


def _mbar(target: MbarLike) -> Mbar:
    match target:
        case Mbar():
            return target
        case Mbarriers(count=1):
            return target[0]
        case Mbarriers():
            raise reject(f"{target.name} has {target.count} mbarriers: index one", caller())
        case _:
            raise reject(f"{target!r} is not an mbarrier", caller(),
                         fix="declare it with k.mbarriers(...)")  # fmt: skip


def _view(target: ViewLike) -> View:
    match target:
        case View():
            return target
        case GlobalTensor() | SharedTensor():
            return target.view()
        case _:
            raise reject(f"{target!r} is not a tensor or a slice of one", caller())


def _optional(value: Operand | None) -> Expr | None:
    return None if value is None else as_expr(value)


class _Namespace:
    def __init__(self, builder: _Recorder) -> None:
        self._k = builder


class MbarrierOps(_Namespace):
    """``mbarrier.*`` (SEMANTICS section A)."""

    def init(self, mbar: MbarLike, count: Operand) -> None:
        self._k.emit(mbarrier.MbarrierInit(mbar=_mbar(mbar), count=as_expr(count), loc=caller()))

    def inval(self, mbar: MbarLike) -> None:
        self._k.emit(mbarrier.MbarrierInval(mbar=_mbar(mbar), loc=caller()))

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
        self._k.emit(
            mbarrier.MbarrierArrive(
                mbar=_mbar(mbar), count=as_expr(count), sem=sem, scope=scope, token=token,
                no_complete=no_complete, loc=caller(),
            )
        )  # fmt: skip

    def arrive_expect_tx(
        self,
        mbar: MbarLike,
        bytes: Operand,
        *,
        sem: mbarrier.ArriveSem = "release",
        scope: mbarrier.Scope = "cta",
        token: Var | None = None,
    ) -> None:
        self._k.emit(
            mbarrier.MbarrierArriveExpectTx(
                mbar=_mbar(mbar), bytes=as_expr(bytes), sem=sem, scope=scope, token=token,
                loc=caller(),
            )
        )  # fmt: skip

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
        self._k.emit(
            mbarrier.MbarrierArriveDrop(
                mbar=_mbar(mbar), count=as_expr(count), bytes=_optional(bytes), sem=sem,
                scope=scope, token=token, loc=caller(),
            )
        )  # fmt: skip

    def expect_tx(self, mbar: MbarLike, bytes: Operand, *, scope: mbarrier.Scope = "cta") -> None:
        self._k.emit(
            mbarrier.MbarrierExpectTx(
                mbar=_mbar(mbar), bytes=as_expr(bytes), scope=scope, loc=caller()
            )
        )

    def complete_tx(self, mbar: MbarLike, bytes: Operand, *, scope: mbarrier.Scope = "cta") -> None:
        self._k.emit(
            mbarrier.MbarrierCompleteTx(
                mbar=_mbar(mbar), bytes=as_expr(bytes), scope=scope, loc=caller()
            )
        )

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
                mbar=_mbar(mbar), phase=phase, parity=is_parity, sem=sem, scope=scope, loc=caller()
            )
        )

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
        phase, is_parity = _phase(parity, token)
        self._k.emit(
            mbarrier.MbarrierTestWait(
                result=result, mbar=_mbar(mbar), phase=phase, parity=is_parity, sem=sem,
                scope=scope, loc=caller(),
            )
        )  # fmt: skip

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
        phase, is_parity = _phase(parity, token)
        self._k.emit(
            mbarrier.MbarrierTryWait(
                result=result, mbar=_mbar(mbar), phase=phase, parity=is_parity, sem=sem,
                scope=scope, time_hint=time_hint, loc=caller(),
            )
        )  # fmt: skip

    def pending_count(self, result: Var, token: Expr) -> None:
        self._k.emit(mbarrier.MbarrierPendingCount(result=result, token=token, loc=caller()))


def _phase(parity: Operand | None, token: Expr | None) -> tuple[Expr, bool]:
    if (parity is None) == (token is None):
        raise reject("a wait needs either a parity or a token", caller())
    return (as_expr(parity), True) if parity is not None else (as_expr(token or 0), False)


class TmaOps(_Namespace):
    """Tensor copies through a tensor map (SEMANTICS B.4)."""

    def load(
        self,
        map: TensorMap,
        dst: ViewLike,
        coords: Sequence[Operand],
        mbar: MbarLike,
        *,
        multicast: Operand | None = None,
    ) -> None:
        self._k.emit(
            tma.TmaLoad(
                map=map, dst=_view(dst), coords=_coords(coords), mbar=_mbar(mbar),
                multicast=_optional(multicast), loc=caller(),
            )
        )  # fmt: skip

    def store(self, map: TensorMap, src: ViewLike, coords: Sequence[Operand]) -> None:
        self._k.emit(tma.TmaStore(map=map, src=_view(src), coords=_coords(coords), loc=caller()))

    def reduce(
        self, map: TensorMap, src: ViewLike, coords: Sequence[Operand], op: tma.ReduceOp = "add"
    ) -> None:
        self._k.emit(
            tma.TmaReduce(map=map, src=_view(src), coords=_coords(coords), op=op, loc=caller())
        )

    def prefetch(self, map: TensorMap, coords: Sequence[Operand]) -> None:
        self._k.emit(tma.TmaPrefetch(map=map, coords=_coords(coords), loc=caller()))


def _coords(coords: Sequence[Operand]) -> tuple[Expr, ...]:
    return tuple(as_expr(c) for c in coords)


class BulkOps(_Namespace):
    """Non-tensor bulk copies and the bulk groups of both kinds (SEMANTICS B.3, B.6)."""

    def load(
        self, dst: ViewLike, src: ViewLike, mbar: MbarLike, *, multicast: Operand | None = None
    ) -> None:
        self._k.emit(
            tma.BulkLoad(
                dst=_view(dst), src=_view(src), mbar=_mbar(mbar), multicast=_optional(multicast),
                loc=caller(),
            )
        )  # fmt: skip

    def store(self, dst: ViewLike, src: ViewLike) -> None:
        self._k.emit(tma.BulkStore(dst=_view(dst), src=_view(src), loc=caller()))

    def reduce(self, dst: ViewLike, src: ViewLike, op: tma.ReduceOp = "add") -> None:
        self._k.emit(tma.BulkReduce(dst=_view(dst), src=_view(src), op=op, loc=caller()))

    def prefetch(self, src: ViewLike) -> None:
        self._k.emit(tma.BulkPrefetch(src=_view(src), loc=caller()))

    def commit_group(self) -> None:
        self._k.emit(tma.BulkCommitGroup(loc=caller()))

    def wait_group(self, pending: int = 0, *, read: bool = False) -> None:
        self._k.emit(tma.BulkWaitGroup(pending=pending, read=read, loc=caller()))


class CpAsyncOps(_Namespace):
    """Non-bulk cp.async (SEMANTICS section C)."""

    def copy(
        self, dst: ViewLike, src: ViewLike, *, size: int = 16, src_bytes: Operand | None = None
    ) -> None:
        self._k.emit(
            cp_async.CpAsync(
                dst=_view(dst), src=_view(src), size=size, src_bytes=_optional(src_bytes),
                loc=caller(),
            )
        )  # fmt: skip

    def commit_group(self) -> None:
        self._k.emit(cp_async.CpAsyncCommitGroup(loc=caller()))

    def wait_group(self, pending: int = 0) -> None:
        self._k.emit(cp_async.CpAsyncWaitGroup(pending=pending, loc=caller()))

    def wait_all(self) -> None:
        self._k.emit(cp_async.CpAsyncWaitAll(loc=caller()))

    def mbarrier_arrive(self, mbar: MbarLike, *, noinc: bool = False) -> None:
        self._k.emit(cp_async.CpAsyncMbarrierArrive(mbar=_mbar(mbar), noinc=noinc, loc=caller()))


class BarOps(_Namespace):
    """Named barriers (SEMANTICS E.1)."""

    def sync(self, id: Operand, threads: int | None = None, *, aligned: bool = True) -> None:
        self._k.emit(bar.BarSync(id=as_expr(id), threads=threads, aligned=aligned, loc=caller()))

    def arrive(self, id: Operand, threads: int, *, aligned: bool = True) -> None:
        self._k.emit(bar.BarArrive(id=as_expr(id), threads=threads, aligned=aligned, loc=caller()))

    def red(
        self,
        result: Var,
        id: Operand,
        value: Operand,
        *,
        op: Literal["and", "or", "popc"] = "or",
        threads: int | None = None,
        aligned: bool = True,
    ) -> None:
        self._k.emit(
            bar.BarRed(
                result=result, id=as_expr(id), value=as_expr(value), op=op, threads=threads,
                aligned=aligned, loc=caller(),
            )
        )  # fmt: skip


class ClusterOps(_Namespace):
    """The cluster barrier (SEMANTICS D.1)."""

    def arrive(
        self, *, sem: Literal["release", "relaxed"] = "release", aligned: bool = True
    ) -> None:
        self._k.emit(cluster.ClusterArrive(sem=sem, aligned=aligned, loc=caller()))

    def wait(self, *, aligned: bool = True) -> None:
        self._k.emit(cluster.ClusterWait(aligned=aligned, loc=caller()))

    def sync(self) -> None:
        """``arrive.release`` and ``wait.acquire``."""
        self.arrive()
        self.wait()


class FenceOps(_Namespace):
    """Memory and proxy fences (SEMANTICS H.3, D6)."""

    def proxy_async(
        self, space: Literal["global", "shared::cta", "shared::cluster"] | None = None
    ) -> None:
        self._k.emit(fence.FenceProxyAsync(space=space, loc=caller()))

    def proxy_async_generic(self, sem: Literal["release", "acquire"]) -> None:
        self._k.emit(fence.FenceProxyAsyncGeneric(sem=sem, loc=caller()))

    def mbarrier_init(self) -> None:
        self._k.emit(mbarrier.FenceMbarrierInit(loc=caller()))

    def memory(
        self,
        sem: Literal["acq_rel", "sc", "acquire", "release"] = "acq_rel",
        scope: fence.FenceScope = "cta",
    ) -> None:
        self._k.emit(fence.Fence(sem=sem, scope=scope, loc=caller()))


class WgmmaOps(_Namespace):
    """Warpgroup MMA (SEMANTICS section F)."""

    def fence(self) -> None:
        self._k.emit(wgmma.WgmmaFence(loc=caller()))

    def mma_async(
        self,
        acc: Fragment,
        a: ViewLike | Fragment,
        b: ViewLike,
        *,
        accumulate: Operand = 1,
        a_trans: bool = False,
        b_trans: bool = False,
    ) -> None:
        self._k.emit(
            wgmma.WgmmaMmaAsync(
                acc=acc, a=a if isinstance(a, Fragment) else _view(a), b=_view(b),
                accumulate=as_expr(accumulate), a_trans=a_trans, b_trans=b_trans, loc=caller(),
            )
        )  # fmt: skip

    def commit_group(self) -> None:
        self._k.emit(wgmma.WgmmaCommitGroup(loc=caller()))

    def wait_group(self, pending: int = 0) -> None:
        self._k.emit(wgmma.WgmmaWaitGroup(pending=pending, loc=caller()))


class TileOps(_Namespace):
    """Register tiles (`tilesim.ir.ops.tile`)."""

    def fill(self, dst: Fragment, value: Operand) -> None:
        self._k.emit(tile.TileFill(dst=dst, value=as_expr(value), loc=caller()))

    def load(self, dst: Fragment, src: ViewLike) -> None:
        self._k.emit(tile.TileLoad(dst=dst, src=_view(src), loc=caller()))

    def store(self, dst: ViewLike, src: Fragment) -> None:
        self._k.emit(tile.TileStore(dst=_view(dst), src=src, loc=caller()))

    def map(self, dst: Fragment, op: tile.MapOp, src: Fragment) -> None:
        self._k.emit(tile.TileMap(dst=dst, op=op, src=src, loc=caller()))

    def zip(self, dst: Fragment, op: tile.ZipOp, lhs: Fragment, rhs: Fragment | Operand) -> None:
        other = rhs if isinstance(rhs, Fragment) else as_expr(rhs)
        self._k.emit(tile.TileZip(dst=dst, op=op, lhs=lhs, rhs=other, loc=caller()))

    def cast(self, dst: Fragment, src: Fragment) -> None:
        self._k.emit(tile.TileCast(dst=dst, src=src, loc=caller()))

    def reduce(self, dst: Fragment, op: tile.ReduceOp, src: Fragment) -> None:
        self._k.emit(tile.TileReduce(dst=dst, op=op, src=src, loc=caller()))


class MemoryOps(_Namespace):
    """Per-lane loads, stores, atomics and shuffles (`tilesim.ir.ops.scalar`)."""

    def load(
        self,
        var: Var,
        src: ViewLike,
        *,
        sem: scalar.LoadSem = "weak",
        scope: fence.FenceScope = "cta",
    ) -> None:
        self._k.emit(scalar.Load(var=var, src=_view(src), sem=sem, scope=scope, loc=caller()))

    def store(
        self,
        dst: ViewLike,
        value: Operand,
        *,
        sem: scalar.StoreSem = "weak",
        scope: fence.FenceScope = "cta",
    ) -> None:
        self._k.emit(
            scalar.Store(dst=_view(dst), value=as_expr(value), sem=sem, scope=scope, loc=caller())
        )

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
                dst=_view(dst), op=op, value=as_expr(value), compare=_optional(compare),
                result=result, sem=sem, scope=scope, loc=caller(),
            )
        )  # fmt: skip

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
