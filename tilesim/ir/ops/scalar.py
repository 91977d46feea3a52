"""Per-lane scalars: assignment, loads and stores, atomics, shuffles (SEMANTICS H)."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Literal

from tilesim.arith.types import DType, bf16, f16, f32, f64, s16, s32, s64, u16, u32, u64
from tilesim.ir.declarations import View
from tilesim.ir.effects import Defines, Effect, Gathers, Reads, Shuffles, Writes
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.ops.vector import CACHES, wrong_cache
from tilesim.ir.scalars import EACH
from tilesim.records import dataclass

LoadSem = Literal["weak", "relaxed", "acquire"]
StoreSem = Literal["weak", "relaxed", "release"]
AtomicSem = Literal["relaxed", "acquire", "release", "acq_rel"]
#: of what an asynchronous operation releases
AsyncScope = Literal["gpu", "sys"]
AtomicOp = Literal["add", "inc", "dec", "min", "max", "and", "or", "xor", "exch", "cas"]


#: the element types of each operation of `Atomic` (PTX atom; exch and cas: their widths)
_INTEGERS = (u32, s32, u64, s64)
_ATOMIC: dict[str, tuple[DType, ...]] = {
    "add": (*_INTEGERS, f16, bf16, f32, f64), "inc": (u32,), "dec": (u32,),
    "min": _INTEGERS, "max": _INTEGERS,
    "and": _INTEGERS, "or": _INTEGERS, "xor": _INTEGERS,
    "exch": (*_INTEGERS, f32, f64), "cas": (u16, s16, f16, bf16, *_INTEGERS, f32, f64),
}  # fmt: skip


#: elements of the widest vector, 32 bytes
_MOST_ELEMENTS = 32


def _one_element(view: View) -> Iterator[str]:
    if view.size != 1:
        yield f"a scalar access needs one element per lane, {view} has {view.size}"


def _in_vector(element: tuple[int, int] | None) -> Iterator[str]:
    if element is not None and not 0 <= element[0] < element[1] <= _MOST_ELEMENTS:
        yield f"no vector has an element {element[0]} of {element[1]} (H15)"


def _to_global(op: StAsyncRelease | RedAsyncRelease) -> Iterator[str]:
    yield from _one_element(op.dst)
    if op.dst.space == "shared":
        yield f"{op.mnemonic} writes global memory, {op.dst} is not there (D14)"


@dataclass(frozen=True, kw_only=True)
class Assign(Op):
    """``var = value`` in the active lanes."""

    mnemonic = "mov"
    data = frozenset({"value"})

    var: Var
    value: Expr

    def effects(self) -> tuple[Effect, ...]:
        return (Defines(self.var, self.value),)


@dataclass(frozen=True, kw_only=True)
class Load(Op):
    """``ld``: every active lane loads its element of shared or global memory into ``var``.

    ``nc``: through a cache that is not coherent, for what no thread of the grid writes (H25).
    """

    mnemonic = "ld"
    call = "mem.load(var, src, *, sem, scope, nc)"
    ptx = "ld{.sem}{.scope}{src.space}{.nc}.{src.type} {var}, [{src}];"
    synonyms = MappingProxyType({
        "ld.volatile": "ld.relaxed.sys", "ld.mmio.relaxed.sys": "ld.relaxed.sys",
    })  # fmt: skip
    hints = CACHES
    cycles = 30

    var: Var
    src: View
    sem: LoadSem = "weak"
    scope: FenceScope = "cta"
    nc: bool = False
    #: not an operand of kernels: which one of how many elements of a vector that acquires (H15)
    element: tuple[int, int] | None = None

    @property
    def synchronises(self) -> bool:
        """True for relaxed and stronger accesses: their order decides what is read."""
        return self.sem != "weak"

    def verify(self) -> Iterator[str]:
        yield from _one_element(self.src)
        yield from _in_vector(self.element)
        yield from wrong_cache(self.src, self.sem, nc=self.nc)

    def effects(self) -> tuple[Effect, ...]:
        reads = Reads(
            self.src, lanes=EACH, sem=self.sem, scope=self.scope, element=self.element,
            noncoherent=self.nc,
        )  # fmt: skip
        return (reads, Defines(self.var, self.src))


@dataclass(frozen=True, kw_only=True)
class Store(Op):
    """``st``: every active lane stores ``value`` to its element of shared or global memory."""

    mnemonic = "st"
    call = "mem.store(dst, value, *, sem, scope)"
    ptx = "st{.sem}{.scope}{dst.space}.{dst.type} [{dst}], {value};"
    synonyms = MappingProxyType({
        "st.volatile": "st.relaxed.sys", "st.mmio.relaxed.sys": "st.relaxed.sys",
    })  # fmt: skip
    hints = CACHES
    cycles = 8
    data = frozenset({"value"})

    dst: View
    value: Expr
    sem: StoreSem = "weak"
    scope: FenceScope = "cta"
    #: as for ``ld``, of a vector that releases
    element: tuple[int, int] | None = None

    @property
    def synchronises(self) -> bool:
        """True for relaxed and stronger accesses: their order decides what is read."""
        return self.sem != "weak"

    def verify(self) -> Iterator[str]:
        yield from _one_element(self.dst)
        yield from _in_vector(self.element)

    def effects(self) -> tuple[Effect, ...]:
        writes = Writes(
            self.dst, lanes=EACH, sem=self.sem, scope=self.scope, value=self.value,
            element=self.element,
        )  # fmt: skip
        return (writes,)


@dataclass(frozen=True, kw_only=True)
class Atomic(Op):
    """``atom`` (with ``result``) or ``red`` (without): read-modify-write per active lane.

    ``compare`` is the comparand of ``cas``. ``inc`` counts from 0 up to ``value`` and begins again,
    ``dec`` down to 0 and begins again at ``value``.
    """

    mnemonic = "atom"
    call = "mem.atomic(dst, op, value, *, compare, result, sem, scope)"
    ptx = "atom{.sem}{.scope}{dst.space}.{op}.{dst.reduced} {result}, [{dst}]{,compare}, {value};"
    also = ("red{.sem}{.scope}{dst.space}.{op}.{dst.reduced} [{dst}], {value};",)
    hints = frozenset({"noftz"})
    cycles = 200
    sync = True
    data = frozenset({"value", "compare"})

    dst: View
    op: AtomicOp
    value: Expr
    compare: Expr | None = None
    result: Var | None = None
    sem: AtomicSem = "relaxed"
    scope: FenceScope = "gpu"

    def verify(self) -> Iterator[str]:
        yield from _one_element(self.dst)
        if (self.op == "cas") != (self.compare is not None):
            yield "cas needs a comparand, and no other operation takes one"
        if self.dst.dtype not in _ATOMIC[self.op]:
            types = ", ".join(t.name for t in _ATOMIC[self.op])
            yield f"atom.{self.op} exists for {types}, not {self.dst.dtype}"

    def effects(self) -> tuple[Effect, ...]:
        reads = Reads(self.dst, lanes=EACH, sem=self.sem, scope=self.scope)
        writes = Writes(
            self.dst, lanes=EACH, sem=self.sem, scope=self.scope, value=self.value,
            combine=self.op, compare=self.compare,
        )  # fmt: skip
        results = () if self.result is None else (Defines(self.result, self.dst),)
        return (reads, writes, *results)


@dataclass(frozen=True, kw_only=True)
class StAsyncRelease(Op):
    """``st.async.release``: every active lane has ``value`` stored to its word of global memory.

    It is stored at any later time, after what the lane did before, which it releases at ``scope``,
    and in no order with what the lane does next. It completes on no mbarrier: only a strong read
    observes it (D14).
    """

    mnemonic = "st.async.release"
    call = "mem.store_async(dst, value, *, scope)"
    ptx = "st.async.release{.scope}{dst.space}.{dst.type} [{dst}], {value};"
    synonyms = MappingProxyType({"st.async.mmio": "st.async"})
    cycles = 8
    engine = "st.async"
    sync = True
    features = frozenset({"st.async.release"})
    data = frozenset({"value"})

    dst: View
    value: Expr
    scope: AsyncScope = "gpu"

    def verify(self) -> Iterator[str]:
        yield from _to_global(self)

    def effects(self) -> tuple[Effect, ...]:
        writes = Writes(
            self.dst, asynchronous=True, lanes=EACH, sem="release", scope=self.scope,
            value=self.value,
        )  # fmt: skip
        return (writes,)


@dataclass(frozen=True, kw_only=True)
class RedAsyncRelease(Op):
    """``red.async.release``: like ``st.async.release``, but ``value`` is added to the element."""

    mnemonic = "red.async.release"
    call = "mem.reduce_async(dst, value, *, scope)"
    ptx = "red.async.release{.scope}{dst.space}.add.{dst.element} [{dst}], {value};"
    synonyms = MappingProxyType({"red.async.mmio": "red.async"})
    cycles = 8
    engine = "st.async"
    sync = True
    features = frozenset({"st.async.release"})
    data = frozenset({"value"})

    dst: View
    value: Expr
    scope: AsyncScope = "gpu"

    def verify(self) -> Iterator[str]:
        yield from _to_global(self)
        if self.dst.dtype not in _INTEGERS:
            types = ", ".join(t.name for t in _INTEGERS)
            yield f"{self.mnemonic} adds numbers of {types}, not {self.dst.dtype} (D14)"

    def effects(self) -> tuple[Effect, ...]:
        reads = Reads(
            self.dst, asynchronous=True, lanes=EACH, sem="release", scope=self.scope
        )  # fmt: skip
        writes = Writes(
            self.dst, asynchronous=True, lanes=EACH, sem="release", scope=self.scope,
            value=self.value, combine="add",
        )  # fmt: skip
        return (reads, writes)


@dataclass(frozen=True, kw_only=True)
class Shuffle(Op):
    """``shfl.sync``: ``value`` of another lane (``lane`` is an index, delta or mask).

    The lanes of ``mask`` that have not exited execute it together; it orders nothing in memory
    (E27). Without a mask it is of the lanes that execute it.
    """

    mnemonic = "shfl.sync"
    call = "mem.shuffle(result, value, lane, mode, *, mask)"
    data = frozenset({"value"})

    result: Var
    value: Expr
    mode: Literal["idx", "up", "down", "bfly"] = "idx"
    lane: Expr
    mask: Expr | None = None

    def effects(self) -> tuple[Effect, ...]:
        shuffles = Shuffles(self.value, self.lane, self.mode)
        gathers = () if self.mask is None else (Gathers(self.mask, "E27"),)
        return (*gathers, shuffles, Defines(self.result, shuffles))
