"""``k.tma``: copies through tensor maps (SEMANTICS B.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeGuard

from tilesim.arith.types import u32, u64
from tilesim.dsl.methods import MbarLike, Namespace, ViewLike, as_mbar, as_view, optional, records
from tilesim.errors import reject
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.expr import Expr, Operand, ScalarParam, Var, as_expr, named, select, walk
from tilesim.ir.loc import caller
from tilesim.ir.ops import bulk, tma
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
