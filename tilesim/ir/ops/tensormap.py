"""Tensor maps that are made on the device, and the fences of their proxy (SEMANTICS B14)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from tilesim.arith.types import numpy_dtype
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.effects import (
    AcquiresMap,
    Effect,
    Gathers,
    Reads,
    ReleasesMaps,
    Scope,
    Writes,
)
from tilesim.ir.expr import Expr, constant
from tilesim.ir.op import Inputs, Op
from tilesim.ir.tensormap import (
    BY_DIMENSION,
    CODES,
    PACKED_CODES,
    PACKED_NEEDS,
    Field,
    encoded,
    fields_of,
    global_map_problems,
    map_problems,
    replaced_as_tiled,
    used_part,
    whole_maps,
)
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane

_LANES = 32


@dataclass(frozen=True, kw_only=True)
class TensormapReplace(Op):
    """``tensormap.replace.tile``: sets a field of the tensor map in the 128 bytes of ``map``.

    ``new_val``: the number, or for global_address a tensor in global memory, whose address is
    meant. For rank it is one less than the rank, strides are in bytes, and the fields elemtype,
    interleave_layout, swizzle_mode and fill_mode take a code that is known when the kernel is
    built. ``ord``: the dimension, from the innermost on; global_stride 0 is that of dimension 1. It
    is a weak write of the whole map (B14), which has to be one for tiled copies. What it reads is
    the half in which something is.
    """

    mnemonic = "tensormap.replace"
    call = "tensormap.replace(map, field, new_val, ord)"
    features = frozenset({"tensormap.replace"})

    map: View
    field: Field
    new_val: Expr | View
    ord: int | None = None

    @property
    def addresses(self) -> frozenset[str]:
        """The address, dimensions and strides of a tensor do not size copies."""
        where = self.field in ("global_address", "global_dim", "global_stride")
        return frozenset({"new_val"}) if where else frozenset()

    @property
    def needs(self) -> frozenset[str]:
        """Elements of less than a byte exist on later targets only."""
        code = constant(self.new_val) if isinstance(self.new_val, Expr) else None
        packed = self.field == "elemtype" and isinstance(code, int) and code in PACKED_CODES
        return self.features | ({PACKED_NEEDS["load"]} if packed else frozenset())

    @property
    def bits(self) -> int:
        """The size of the new value."""
        return 64 if self.field in ("global_address", "global_stride") else 32

    def verify(self) -> Iterator[str]:
        yield from map_problems(self.map)
        if (self.ord is None) != (self.field not in BY_DIMENSION):
            yield f"{self.field} {'needs' if self.ord is None else 'takes no'} ord (B14)"
        elif self.ord is not None and not 0 <= self.ord < BY_DIMENSION[self.field]:
            yield f"{self.field} has no dimension {self.ord}"
        if isinstance(self.new_val, View):
            if self.field != "global_address" or self.new_val.space != "global":
                yield f"{self.new_val} is not a value of the field {self.field}"
            return
        code = constant(self.new_val)
        limit = CODES.get(self.field)
        if limit is not None and not (isinstance(code, int) and 0 <= code < limit):
            yield f"{self.field} takes a number from 0 to {limit - 1} (B14), not {self.new_val}"

    def effects(self) -> tuple[Effect, ...]:
        return (Reads(self._used, lanes=_LANES), Writes(self.map, lanes=_LANES))

    @cached_property
    def _used(self) -> View:
        return used_part(self.map)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        rows, new = inputs.memory(self._used), self.new_val
        values = inputs.address(new) if isinstance(new, View) else inputs.lanes(new)
        maps = whole_maps(rows)
        return (replaced_as_tiled(maps, self.field, self.ord or 0, values).view(rows.dtype),)


@dataclass(frozen=True, kw_only=True)
class TensormapCopy(Op):
    """Stores a tensor map that is a parameter of the kernel to ``dst``: a template to modify.

    Weak stores of the executing lanes. No instruction of PTX: loads of the parameter and stores.
    """

    mnemonic = "tensormap.copy"
    call = "tensormap.copy"
    features = frozenset({"tma"})

    dst: View
    map: TensorMap

    def verify(self) -> Iterator[str]:
        yield from map_problems(self.dst)

    def effects(self) -> tuple[Effect, ...]:
        return (Writes(self.dst, lanes=_LANES),)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        address = int(inputs.address(self.map.tensor)[0])
        row = encoded(fields_of(self.map), address).view(numpy_dtype(self.dst.dtype))
        return (row.repeat(_LANES, axis=0),)


@dataclass(frozen=True, kw_only=True)
class FenceProxyTensormapRelease(Op):
    """``fence.proxy.tensormap::generic.release``: hands over the maps that its thread has written,
    or knows to be written, to an acquire of the same proxy that it is ordered before (B14)."""

    mnemonic = "fence.proxy.tensormap::generic.release"
    call = "fence.proxy_tensormap_release(scope)"
    ptx = "fence.proxy.tensormap::generic.release.{scope};"
    features = frozenset({"tma"})
    fault = "proxy fence dropped"

    scope: Scope = "gpu"

    def effects(self) -> tuple[Effect, ...]:
        return (ReleasesMaps(self.scope),)


@dataclass(frozen=True, kw_only=True)
class FenceProxyTensormapAcquire(Op):
    """``fence.proxy.tensormap::generic.acquire``: copies that it is ordered before use ``map``,
    in global memory, as releases have handed it over that are ordered before it (B14)."""

    mnemonic = "fence.proxy.tensormap::generic.acquire"
    call = "fence.proxy_tensormap_acquire(map, scope)"
    ptx = "fence.proxy.tensormap::generic.acquire.{scope} [{map:128*b8}], 128;"
    features = frozenset({"tma"})
    fault = "proxy fence dropped"

    map: View
    scope: Scope = "gpu"

    def verify(self) -> Iterator[str]:
        yield from global_map_problems(self.map)

    def effects(self) -> tuple[Effect, ...]:
        return (AcquiresMap(self.map, self.scope),)


@dataclass(frozen=True, kw_only=True)
class TensormapCpFenceproxy(Op):
    """``tensormap.cp_fenceproxy``: copies a map from shared to global memory and releases it.

    All lanes of the warp execute it together (``.sync.aligned``): one copy through the generic
    proxy, and a release of the tensormap proxy for ``dst`` alone (B14). What it reads is the half
    of the map in which something is.
    """

    mnemonic = "tensormap.cp_fenceproxy"
    call = "tensormap.cp_fenceproxy(dst, src, scope)"
    ptx = (
        "tensormap.cp_fenceproxy{dst.space=global}{src.space=shared::cta}."
        "tensormap::generic.release.{scope}.sync.aligned [{dst:128*b8}], [{src:128*b8}], 128;"
    )
    features = frozenset({"tma"})

    dst: View
    src: View
    scope: Scope = "gpu"

    def verify(self) -> Iterator[str]:
        yield from global_map_problems(self.dst)
        yield from map_problems(self.src)
        if self.src.space != "shared" or self.src.cta is not None:
            yield f"the source {self.src} must be in the executing CTA's shared memory"
        elif self.src.dtype != self.dst.dtype:
            yield f"types differ: {self.src} is {self.src.dtype}, {self.dst} {self.dst.dtype}"

    def effects(self) -> tuple[Effect, ...]:
        return (
            Gathers(None, "B14"),
            Reads(self._used, lanes=_LANES),
            Writes(self.dst, lanes=_LANES),
            ReleasesMaps(self.scope, self.dst),
        )

    @cached_property
    def _used(self) -> View:
        return used_part(self.src)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        rows = inputs.memory(self._used)
        return (whole_maps(rows).view(rows.dtype),)
