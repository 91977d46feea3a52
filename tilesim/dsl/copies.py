"""``k.tma``, ``k.bulk``, ``k.cp_async``: asynchronous copies (SEMANTICS B, C)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeGuard

from tilesim.arith.types import u32, u64
from tilesim.dsl.methods import MbarLike, Namespace, ViewLike, as_mbar, as_view, optional, records
from tilesim.errors import reject
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.expr import Expr, Operand, ScalarParam, Var, as_expr, named, select, walk
from tilesim.ir.loc import caller
from tilesim.ir.ops import bulk, cp_async, tma
from tilesim.ir.tensormap import LoadMode, StoreMode

#: bits of a coordinate
_WORD = 32


class TmaOps(Namespace):
    """Tensor copies through a tensor map (SEMANTICS B.4)."""

    @records(tma.TmaLoad)
    def load(
        self,
        map: TensorMap,
        dst: ViewLike,
        coords: Sequence[Operand],
        mbar: MbarLike,
        *,
        multicast: Operand | None = None,
        cta_group: Literal[1, 2] = 1,
        mode: LoadMode = "tile",
        info: Sequence[Operand] = (),
        at: ViewLike | None = None,
    ) -> None:
        """``cp.async.bulk.tensor`` global to shared; completes its bytes on ``mbar``
        (B.2); see `TmaLoad`.
        """
        self._k.emit(
            tma.TmaLoad(
                map=map, dst=as_view(dst), coords=_coords(coords), mbar=as_mbar(mbar),
                multicast=optional(multicast), cta_group=cta_group, mode=mode, info=_coords(info),
                at=_place(at), loc=caller(),
            )
        )  # fmt: skip

    @records(tma.TmaStore)
    def store(
        self,
        map: TensorMap,
        src: ViewLike,
        coords: Sequence[Operand],
        *,
        mode: StoreMode = "tile",
        at: ViewLike | None = None,
    ) -> None:
        """``cp.async.bulk.tensor`` shared to global, in the thread's bulk group
        (B.2); see `TmaStore`.
        """
        self._k.emit(
            tma.TmaStore(
                map=map, src=as_view(src), coords=_coords(coords), mode=mode, at=_place(at),
                loc=caller(),
            )
        )  # fmt: skip

    @records(tma.TmaReduce)
    def reduce(
        self,
        map: TensorMap,
        src: ViewLike,
        coords: Sequence[Operand],
        op: bulk.ReduceOp = "add",
        *,
        mode: Literal["tile", "im2col_no_offs"] = "tile",
        at: ViewLike | None = None,
    ) -> None:
        """``cp.reduce.async.bulk.tensor`` shared to global: ``op`` per element, relaxed.gpu
        (B.2).
        """
        self._k.emit(
            tma.TmaReduce(
                map=map, src=as_view(src), coords=_coords(coords), op=op, mode=mode, at=_place(at),
                loc=caller(),
            )
        )  # fmt: skip

    @records(tma.TmaPrefetch)
    def prefetch(
        self,
        map: TensorMap,
        coords: Sequence[Operand],
        *,
        mode: LoadMode = "tile",
        info: Sequence[Operand] = (),
    ) -> None:
        """``cp.async.bulk.prefetch.tensor``: an L2 hint without visible effect (B13)."""
        self._k.emit(
            tma.TmaPrefetch(
                map=map, coords=_coords(coords), mode=mode, info=_coords(info), loc=caller()
            )
        )


def _place(at: ViewLike | None) -> View | None:
    return None if at is None else as_view(at)


def _coords(coords: Sequence[Operand]) -> tuple[Expr, ...]:
    if not isinstance(coords, Sequence):
        raise reject(f"the coordinates are {named(coords)}, not a tuple of one per dimension",
                     caller())  # fmt: skip
    return tuple(_signed(as_expr(c)) for c in coords)


def _signed(coordinate: Expr) -> Expr:
    """A coordinate as a copy takes it, a signed number of 32 bits (B19): an unsigned variable holds
    -1 as the largest number."""
    unsigned = [x.dtype.bits for x in walk(coordinate) if _is_unsigned(x)]
    if not unsigned:
        return coordinate
    word = coordinate if max(unsigned) == _WORD else coordinate & (1 << _WORD) - 1
    return select(word >= 1 << _WORD - 1, word - (1 << _WORD), word)


def _is_unsigned(part: Expr) -> TypeGuard[Var | ScalarParam]:
    return isinstance(part, Var | ScalarParam) and part.dtype in (u32, u64)


class BulkOps(Namespace):
    """Non-tensor bulk copies and the bulk groups of both kinds (SEMANTICS B.3, B.6)."""

    @records(bulk.BulkLoad)
    def load(
        self, dst: ViewLike, src: ViewLike, mbar: MbarLike, *, multicast: Operand | None = None
    ) -> None:
        """``cp.async.bulk`` global to shared of a contiguous range; completes on ``mbar``."""
        self._k.emit(
            bulk.BulkLoad(
                dst=as_view(dst), src=as_view(src), mbar=as_mbar(mbar),
                multicast=optional(multicast), loc=caller(),
            )
        )  # fmt: skip

    @records(bulk.BulkLoadIgnoring)
    def load_ignoring(
        self, dst: ViewLike, src: ViewLike, mbar: MbarLike, left: Operand = 0, right: Operand = 0
    ) -> None:
        """``cp.async.bulk`` with ``.ignore_oob``: a `BulkLoad` of which up to 15 bytes at either
        end of ``src`` may lie outside of its tensor (B38); see `BulkLoadIgnoring`.
        """
        self._k.emit(
            bulk.BulkLoadIgnoring(
                dst=as_view(dst), src=as_view(src), mbar=as_mbar(mbar), left=as_expr(left),
                right=as_expr(right), loc=caller(),
            )
        )  # fmt: skip

    @records(bulk.BulkStore)
    def store(self, dst: ViewLike, src: ViewLike, *, mask: Operand | None = None) -> None:
        """``mask``: which bytes of each 16 are copied (``.cp_mask``)."""
        self._k.emit(
            bulk.BulkStore(dst=as_view(dst), src=as_view(src), mask=optional(mask), loc=caller())
        )

    @records(bulk.BulkReduce)
    def reduce(self, dst: ViewLike, src: ViewLike, op: bulk.ReduceOp = "add") -> None:
        """``cp.reduce.async.bulk`` shared to global: ``op`` per element, relaxed.gpu (B.2)."""
        self._k.emit(bulk.BulkReduce(dst=as_view(dst), src=as_view(src), op=op, loc=caller()))

    @records(bulk.BulkCopy)
    def copy(self, dst: ViewLike, src: ViewLike, mbar: MbarLike) -> None:
        """Own shared memory to a peer's: ``dst`` and ``mbar`` with ``.at(rank)``."""
        self._k.emit(
            bulk.BulkCopy(dst=as_view(dst), src=as_view(src), mbar=as_mbar(mbar), loc=caller())
        )

    @records(bulk.BulkReducePeer)
    def reduce_peer(
        self, dst: ViewLike, src: ViewLike, mbar: MbarLike, op: bulk.ReduceOp = "add"
    ) -> None:
        """Own shared memory combined into a peer's: ``dst`` and ``mbar`` with ``.at(rank)``."""
        self._k.emit(
            bulk.BulkReducePeer(
                dst=as_view(dst), src=as_view(src), mbar=as_mbar(mbar), op=op, loc=caller()
            )
        )

    @records(bulk.BulkPrefetch)
    def prefetch(self, src: ViewLike) -> None:
        """``cp.async.bulk.prefetch``: an L2 hint without visible effect (B13)."""
        self._k.emit(bulk.BulkPrefetch(src=as_view(src), loc=caller()))

    @records(bulk.BulkCommitGroup)
    def commit_group(self) -> None:
        """Closes the executing thread's bulk group; an empty group is complete (B29)."""
        self._k.emit(bulk.BulkCommitGroup(loc=caller()))

    @records(bulk.BulkWaitGroup)
    def wait_group(self, pending: int = 0, *, read: bool = False) -> None:
        """Blocks until at most ``pending`` newest bulk groups of this thread are unfinished
        (B29); see `BulkWaitGroup`.
        """
        self._k.emit(bulk.BulkWaitGroup(pending=pending, read=read, loc=caller()))


class CpAsyncOps(Namespace):
    """Non-bulk cp.async (SEMANTICS section C)."""

    @records(cp_async.CpAsync)
    def copy(
        self, dst: ViewLike, src: ViewLike, *, size: int = 16, src_bytes: Operand | None = None
    ) -> None:
        """Copies ``src`` to ``dst`` in chunks of ``size`` bytes spread over the active lanes
        (C1); see `CpAsync`.
        """
        self._k.emit(
            cp_async.CpAsync(
                dst=as_view(dst), src=as_view(src), size=size, src_bytes=optional(src_bytes),
                loc=caller(),
            )
        )  # fmt: skip

    @records(cp_async.CpAsyncCommitGroup)
    def commit_group(self) -> None:
        """Closes the executing thread's cp.async group (C4)."""
        self._k.emit(cp_async.CpAsyncCommitGroup(loc=caller()))

    @records(cp_async.CpAsyncWaitGroup)
    def wait_group(self, pending: int = 0) -> None:
        """Blocks until at most ``pending`` cp.async groups of this thread are unfinished (C4)."""
        self._k.emit(cp_async.CpAsyncWaitGroup(pending=pending, loc=caller()))

    @records(cp_async.CpAsyncWaitAll)
    def wait_all(self) -> None:
        """Commits and waits for every cp.async of this thread (C4)."""
        self._k.emit(cp_async.CpAsyncWaitAll(loc=caller()))

    @records(cp_async.CpAsyncMbarrierArrive)
    def mbarrier_arrive(self, mbar: MbarLike, *, noinc: bool = False) -> None:
        """Arrives on ``mbar``, per lane, once the thread's earlier cp.async are complete
        (C6); see `CpAsyncMbarrierArrive`.
        """
        self._k.emit(cp_async.CpAsyncMbarrierArrive(mbar=as_mbar(mbar), noinc=noinc, loc=caller()))
