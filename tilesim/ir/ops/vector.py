"""Vector loads and stores: several neighbouring elements per lane at once (SEMANTICS H15)."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from tilesim.arith.types import numpy_dtype, s32, u32
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import GlobalTensor, View
from tilesim.ir.effects import Defines, Effect, Reads, Scope, Writes
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Inputs, Op
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane

_LANES = 32
#: bytes of a cache line, which is what `discard.L2` is about
DISCARDED = 128
#: registers and bytes of vectors
_VECTORS = ((2, 8), (2, 16), (4, 16), (4, 32), (8, 32))


#: qualifiers of loads and stores that are about caches and change nothing
CACHES = frozenset({"ca", "cg", "cs", "cv", "lu", "wb", "wt"})


def registers(view: View) -> int:
    """How many registers hold a view's elements: narrow ones are packed into 32 bits."""
    return view.size * min(view.dtype.bits, 32) // 32 if view.dtype.bits < 32 else view.size


def wide(view: View) -> bool:
    """Whether a view is a vector of 32 bytes."""
    return view.size * view.dtype.bits == 256


def _global(view: View) -> bool:
    tensor = view.tensor
    addressed = isinstance(tensor, AddressedTensor) and tensor.space == "global"
    return addressed or isinstance(tensor, GlobalTensor)


def wrong_vector(view: View, count: int) -> Iterator[str]:
    """Why a view is no vector of so many registers."""
    nbytes = view.size * view.dtype.bytes
    if (registers(view), nbytes) not in _VECTORS:
        yield (
            "a vector has 8 or 16 bytes in 2 or 4 registers, or 32 bytes in 8 registers or 4 of 64 "
            f"bits (H15); {view} has {nbytes} bytes"
        )
    elif wide(view) and not _global(view):
        yield f"a vector of 32 bytes lies in global memory, not in {view} (H15)"
    elif count != registers(view):
        yield f"{view} fills {registers(view)} registers, {count} are given"


def wrong_cache(view: View, sem: str, *, nc: bool) -> Iterator[str]:
    """Why a load is none through the non-coherent cache."""
    if nc and (sem != "weak" or not _global(view)):
        yield f"ld.global.nc is a weak load of global memory, not {sem} of {view} (H25)"


def _strong_elements(view: View, sem: str) -> Iterator[str]:
    """Why a view is no vector of strong accesses."""
    if sem == "weak":
        return
    if view.dtype.bits < 32:
        yield f"a strong vector has elements of 32 or 64 bits, not {view.dtype} (H15)"
    following = view.dtype.bytes
    for extent, stride in zip(view.extents[::-1], view.tensor.byte_strides[::-1], strict=True):
        if extent > 1 and stride != following:
            yield f"elements of {view} are not neighbours in memory: a vector is one piece (H15)"
        following *= extent


@dataclass(frozen=True, kw_only=True)
class LoadVector(Op):
    """``ld.v2`` to ``ld.v8``: every active lane loads neighbouring elements into ``results``.

    Elements of 32 or 64 bits have a register each; narrower ones are packed, the first one in the
    lowest bits of a register of 32 bits. The address is a multiple of the vector's size; 32 bytes
    at once are of global memory, on sm_100 and later. A strong access is as many of one element,
    in an order that PTX leaves open: what one of them acquires does not order the others (H15).
    ``nc``: as for ``ld``.
    """

    mnemonic = "ld.v"
    call = "mem.load_vector(results, src, *, sem, scope, nc)"
    ptx = "ld{.sem}{.scope}{src.space}{.nc}.v{count}.{src.type} {results}, [{src:results*}];"
    hints = CACHES
    cycles = 30

    results: tuple[Var, ...]
    src: View
    sem: Literal["weak", "relaxed", "acquire"] = "weak"
    scope: Scope = "cta"
    nc: bool = False

    @property
    def synchronises(self) -> bool:
        """True for strong accesses: their order decides what is read."""
        return self.sem != "weak"

    @property
    def count(self) -> int:
        """Registers per lane."""
        return len(self.results)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"ld.256bit"}) if wide(self.src) else frozenset()

    def verify(self) -> Iterator[str]:
        yield from wrong_vector(self.src, self.count)
        yield from _strong_elements(self.src, self.sem)
        yield from wrong_cache(self.src, self.sem, nc=self.nc)
        if self.src.dtype.bits < 32 and any(r.dtype not in (s32, u32) for r in self.results):
            yield "packed elements need registers of type s32 or u32"

    def effects(self) -> tuple[Effect, ...]:
        results = (Defines(result) for result in self.results)
        reads = Reads(self.src, lanes=_LANES, sem=self.sem, scope=self.scope, noncoherent=self.nc)
        return (reads, *results)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        rows = np.ascontiguousarray(inputs.memory(self.src))
        if self.src.dtype.bits < 32:
            rows = rows.view(np.uint32)
        return tuple(rows[:, i] for i in range(self.count))


@dataclass(frozen=True, kw_only=True)
class Discard(Op):
    """``discard.L2``: the 128 bytes at ``dst`` of every active lane lose what they hold.

    A weak write of unknown values, and that may differ from read to read: what is
    discarded is written again before it is read (PTX 9.7.9.17).
    """

    mnemonic = "discard"
    call = "mem.discard(dst)"
    ptx = "discard{dst.space=global}.L2 [{dst:128*b8}], 128;"
    #: a generic address has to be one of global memory (PTX 9.7.9.17)
    synonyms = MappingProxyType({"discard.L2": "discard.global.L2"})
    cycles = 8

    dst: View

    def verify(self) -> Iterator[str]:
        if self.dst.space != "global" or self.dst.nbytes != DISCARDED:
            yield f"discard.L2 takes {DISCARDED} bytes of global memory, not {self.dst}"

    def effects(self) -> tuple[Effect, ...]:
        return (Writes(self.dst, lanes=_LANES, lost="what discard.L2 leaves"),)


@dataclass(frozen=True, kw_only=True)
class StoreVector(Op):
    """``st.v2`` to ``st.v8``: every active lane stores ``values`` to neighbouring elements.

    Registers, alignment and strong accesses as for ``ld.v``: each element releases what came before
    the vector, and none of the others (H15).
    """

    mnemonic = "st.v"
    call = "mem.store_vector(dst, values, *, sem, scope)"
    ptx = "st{.sem}{.scope}{dst.space}.v{count}.{dst.type} [{dst:values*}], {values};"
    hints = CACHES
    cycles = 8
    data = frozenset({"values"})

    dst: View
    values: tuple[Expr, ...]
    sem: Literal["weak", "relaxed", "release"] = "weak"
    scope: Scope = "cta"

    @property
    def synchronises(self) -> bool:
        """True for strong accesses: their order decides what is read."""
        return self.sem != "weak"

    @property
    def count(self) -> int:
        """Registers per lane."""
        return len(self.values)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"ld.256bit"}) if wide(self.dst) else frozenset()

    def verify(self) -> Iterator[str]:
        yield from wrong_vector(self.dst, self.count)
        yield from _strong_elements(self.dst, self.sem)

    def effects(self) -> tuple[Effect, ...]:
        return (Writes(self.dst, lanes=_LANES, sem=self.sem, scope=self.scope),)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        columns = [inputs.lanes(value) for value in self.values]
        if self.dst.dtype.kind == "float" and self.dst.dtype.bits >= 32:
            return (np.stack([c.astype(numpy_dtype(self.dst.dtype)) for c in columns], axis=1),)
        words = [c.astype(np.int64).astype(f"u{max(self.dst.dtype.bytes, 4)}") for c in columns]
        packed = np.ascontiguousarray(np.stack(words, axis=1))
        return (packed.view(numpy_dtype(self.dst.dtype)),)
