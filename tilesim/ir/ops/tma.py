"""Bulk asynchronous copies by a tensor map: loads, stores, reductions, hints (SEMANTICS B)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal

from tilesim.arith.types import tf32
from tilesim.ir.declarations import Mbar, TensorMap, View
from tilesim.ir.effects import (
    Completes,
    Effect,
    Issues,
    Prefetches,
    Reads,
    ReadsMap,
    Writes,
    WritesMap,
)
from tilesim.ir.expr import Const, Expr
from tilesim.ir.op import Op
from tilesim.ir.ops.bulk import REDUCIBLE, ReduceOp, own_source_problems, reduction_problems
from tilesim.ir.tensormap import (
    NEEDS,
    LoadMode,
    StoreMode,
    coordinate_problems,
    copied_shape,
    direction_problems,
    global_map_problems,
    halo_of,
    info_problems,
    mode_problem,
    needs,
    tile_problems,
)
from tilesim.records import dataclass

#: the same of a tensor copy, whose type is the map's
_TENSOR_REDUCIBLE = {**REDUCIBLE, "add": (*REDUCIBLE["add"], tf32)}


def _place_problems(at: View | None) -> Iterator[str]:
    if at is not None:
        yield from global_map_problems(at)


def _map_reads(at: View | None) -> tuple[Effect, ...]:
    """A copy reads its tensor map, if that lies in memory that can change."""
    return () if at is None else (Reads(at, "tensormap", asynchronous=True),)


@dataclass(frozen=True, kw_only=True)
class TmaLoad(Op):
    """``cp.async.bulk.tensor`` global to shared; completes its bytes on ``mbar`` (B.2).

    ``coords`` in elements, in the order of the tensor's shape (slowest first). ``multicast`` is
    the 16-bit mask of destination CTAs (B9). With ``cta_group`` 2 the barrier may be in the other
    CTA of the pair (B26), and a multicast signals in every pair the CTA that ``mbar`` has in its
    own (B27). ``mode``: ``tile::gather4`` takes four rows, ``coords`` are their numbers and the
    first column (B22); the im2col modes take pixels along a pixel box (B23), ``info`` are their
    offsets, in the order of the shape, or (wHalo, wOffset). ``at``: the 128 bytes of global memory
    that hold the map, made on the device: what is copied is what they say, ``map`` says over which
    tensor, and is what the tile is checked against (B14).
    """

    mnemonic = "cp.async.bulk.tensor.load"
    engine = "TMA"
    cycles = 16
    features = frozenset({"tma"})

    map: TensorMap
    dst: View
    coords: tuple[Expr, ...]
    mbar: Mbar
    multicast: Expr | None = None
    cta_group: Literal[1, 2] = 1
    mode: LoadMode = "tile"
    info: tuple[Expr, ...] = ()
    at: View | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Some modes exist on later targets only."""
        return self.features | NEEDS.get(self.mode, frozenset()) | needs(self.map, "load")

    @property
    def nbytes(self) -> int:
        """The bytes that a copy leaves in shared memory, outside elements included (B20)."""
        halo = halo_of(self.mode, self.info)
        shape = copied_shape(self.map.box, self.map.element_strides, self.mode, halo)
        return prod(shape) * self.map.element_bits // 8

    def verify(self) -> Iterator[str]:
        yield from direction_problems(self.map.packing, "load")
        yield from info_problems(self.map, self.mode, self.info)
        halo = halo_of(self.mode, self.info)
        yield from tile_problems(self.map, self.dst, self.coords, self.mode, halo)
        yield from _place_problems(self.at)
        if self.cta_group == 1 and self.mbar.cta != self.dst.cta:
            yield "the mbarrier must be in the CTA of the tile, or use cta_group 2 (B26)"

    def effects(self) -> tuple[Effect, ...]:
        return (
            ReadsMap(self.map, self.coords, self.mode, self.info),
            *_map_reads(self.at),
            Writes(self.dst, "async", asynchronous=True),
            Completes(
                self.mbar,
                Const(self.nbytes) if self.at is None else None,
                self.multicast,
                asynchronous=True,
                pair=self.cta_group == 2,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class TmaStore(Op):
    """``cp.async.bulk.tensor`` shared to global, in the thread's bulk group (B.2).

    ``mode``: ``tile::scatter4`` leaves four rows at ``coords``, their numbers and the first column
    (B22); ``im2col_no_offs`` leaves pixels along a pixel box (B23). ``at`` as for `TmaLoad`.
    """

    mnemonic = "cp.async.bulk.tensor.store"
    engine = "TMA"
    cycles = 16
    features = frozenset({"tma"})

    map: TensorMap
    src: View
    coords: tuple[Expr, ...]
    mode: StoreMode = "tile"
    at: View | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Some modes exist on later targets only."""
        return self.features | NEEDS.get(self.mode, frozenset()) | needs(self.map, "store")

    def verify(self) -> Iterator[str]:
        yield from direction_problems(self.map.packing, "store")
        yield from _store_problems(self.map, self.src, self.coords, self.mode)
        yield from _place_problems(self.at)

    def effects(self) -> tuple[Effect, ...]:
        return (
            Reads(self.src, "async", asynchronous=True),
            *_map_reads(self.at),
            WritesMap(self.map, self.coords, self.mode),
            Issues("bulk"),
        )


def _store_problems(
    map_: TensorMap, src: View, coords: tuple[Expr, ...], mode: str
) -> Iterator[str]:
    yield from own_source_problems(src)
    yield from tile_problems(map_, src, coords, mode)
    corners = (*(map_.lower or ()), *(-x for x in map_.upper or ()))
    if mode == "im2col_no_offs" and any(x < 0 for x in corners):
        yield (
            f"the pixel box from {map_.lower} to {map_.upper} leaves the tensor, in which stores "
            "must stay along D, H and W (B19)"
        )


@dataclass(frozen=True, kw_only=True)
class TmaReduce(Op):
    """``cp.reduce.async.bulk.tensor`` shared to global: ``op`` per element, relaxed.gpu (B.2)."""

    mnemonic = "cp.reduce.async.bulk.tensor"
    engine = "TMA"
    features = frozenset({"tma"})

    map: TensorMap
    src: View
    coords: tuple[Expr, ...]
    op: ReduceOp = "add"
    mode: Literal["tile", "im2col_no_offs"] = "tile"
    at: View | None = None

    def verify(self) -> Iterator[str]:
        if self.map.packing is not None:
            yield from direction_problems(self.map.packing, None)
            return
        yield from _store_problems(self.map, self.src, self.coords, self.mode)
        yield from _place_problems(self.at)
        yield from reduction_problems(self.op, self.map.tensor.dtype, _TENSOR_REDUCIBLE)

    def effects(self) -> tuple[Effect, ...]:
        return (
            Reads(self.src, "async", asynchronous=True),
            *_map_reads(self.at),
            WritesMap(self.map, self.coords, self.mode, self.op),
            Issues("bulk"),
        )


@dataclass(frozen=True, kw_only=True)
class TmaPrefetch(Op):
    """``cp.async.bulk.prefetch.tensor``: an L2 hint without visible effect (B13)."""

    mnemonic = "cp.async.bulk.prefetch.tensor"
    engine = "TMA"
    features = frozenset({"tma"})

    map: TensorMap
    coords: tuple[Expr, ...]
    mode: LoadMode = "tile"
    info: tuple[Expr, ...] = ()

    @property
    def needs(self) -> frozenset[str]:
        """Some modes exist on later targets only."""
        return self.features | NEEDS.get(self.mode, frozenset())

    def verify(self) -> Iterator[str]:
        if (problem := mode_problem(self.map, self.mode)) is not None:
            yield problem
        else:
            yield from coordinate_problems(self.map, self.coords, self.mode)
            yield from info_problems(self.map, self.mode, self.info)

    def effects(self) -> tuple[Effect, ...]:
        return (Prefetches(map=self.map, coords=self.coords, mode=self.mode, info=self.info),)
