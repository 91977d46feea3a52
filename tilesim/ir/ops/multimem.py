"""Accesses to memory of several devices at once, through one address (SEMANTICS H20 to H22)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from tilesim.arith.types import (
    DType,
    bf16,
    e4m3,
    e5m2,
    f16,
    f32,
    f64,
    numpy_dtype,
    s32,
    s64,
    u32,
    u64,
)
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import GlobalTensor, View
from tilesim.ir.effects import Defines, Effect, Reads, Scope, Writes
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Inputs, Op
from tilesim.ir.ops.bulk import BulkReduce, BulkStore
from tilesim.ir.spelling import element_of
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane

_LANES = 32
MultimemOp = Literal["add", "min", "max", "and", "or", "xor"]

_INTEGERS = (u32, s32, u64, s64)
_SUMS = (u32, s32, u64, f16, bf16, f32, f64)
#: the element types that are loaded and reduced, and those that are reduced in memory (H21)
_LOADED: dict[str, tuple[DType, ...]] = {
    "add": (*_SUMS, e4m3, e5m2), "min": (*_INTEGERS, f16, bf16, e4m3, e5m2),
    "max": (*_INTEGERS, f16, bf16, e4m3, e5m2), "and": _INTEGERS, "or": _INTEGERS,
    "xor": _INTEGERS,
}  # fmt: skip
_REDUCED: dict[str, tuple[DType, ...]] = {
    "add": _SUMS, "min": _INTEGERS, "max": _INTEGERS, "and": _INTEGERS, "or": _INTEGERS,
    "xor": _INTEGERS,
}  # fmt: skip
#: the types of registers that hold a result, and those of packed elements
_HOLDING = {u64: (u64, s64), s64: (u64, s64), f32: (f32,), f64: (f64,)}
_WORDS = (s32, u32)
#: types of which several registers are moved at once
_VECTORS = (f16, bf16, f32, e4m3, e5m2)


def _registers(view: View) -> int:
    """How many registers hold a view's elements: narrow ones are packed into 32 bits."""
    return view.size if view.dtype.bits >= 32 else view.size * view.dtype.bits // 32


def devices_of(view: View) -> int:
    """How many devices hold a view's memory; an address alone does not say it."""
    return view.tensor.devices if isinstance(view.tensor, GlobalTensor) else 1


def _is_multimem(view: View) -> Iterator[str]:
    if not isinstance(view.tensor, AddressedTensor) and devices_of(view) == 1:
        yield (
            f"{view} is not a multimem address: declare the tensor with the number of its devices "
            "(H20)"
        )


def _problems(view: View, count: int, types: tuple[DType, ...], what: str) -> Iterator[str]:
    dtype = view.dtype
    yield from _is_multimem(view)
    if dtype not in types:
        yield f"{what} exists for {', '.join(map(str, types))}, not {dtype} (H21)"
    elif _registers(view) != count or view.size * dtype.bits % 32:
        yield f"{view} fills {view.size * dtype.bits / 32:g} words, {count} registers are given"
    elif count not in ((1, 2, 4) if dtype in _VECTORS else (1,)):
        yield f"{count} registers of {dtype} at once: there are 1, 2 and 4 of narrow floats (H21)"


def _all_of(values: PerLane, op: str, dtype: DType, devices: int) -> PerLane:
    """What the same values of every device give together."""
    import numpy as np

    kind = numpy_dtype(dtype)
    if op == "xor":
        return values if devices % 2 else np.zeros_like(values)
    if op != "add":
        return values
    total: PerLane = values.astype(np.float64) * devices if dtype.kind == "float" else values
    if dtype.kind != "float":
        total = values * np.array(devices).astype(kind)
    return total.astype(kind)


def _packed(values: tuple[Expr, ...], dtype: DType, inputs: Inputs) -> PerLane:
    """Registers as elements: (32, elements)."""
    import numpy as np

    columns = [inputs.lanes(value) for value in values]
    kind = numpy_dtype(dtype)
    if dtype.bits >= 32:
        wide = columns if dtype.kind == "float" else [_bits(c, dtype) for c in columns]
        return np.stack([c.astype(kind) for c in wide], axis=1)
    words = np.stack([_bits(c, u32).astype(np.uint32) for c in columns], axis=1)
    return np.ascontiguousarray(words).view(kind)


def _bits(column: PerLane, dtype: DType) -> PerLane:
    import numpy as np

    return np.array([int(x) & (1 << dtype.bits) - 1 for x in column], dtype=f"u{dtype.bytes}")


@dataclass(frozen=True, kw_only=True)
class MultimemLdReduce(Op):
    """``multimem.ld_reduce``: what ``src`` holds in all devices, combined by ``op``.

    ``results`` hold 32 or 64 bits each; narrow floats are packed. ``acc``: the precision of sums of
    narrow floats. One device is simulated: the result is that of devices which all hold the same,
    and what it decides is at most ``bounded``; acquiring orders nothing (H22).
    """

    mnemonic = "multimem.ld_reduce"
    features = frozenset({"mbarrier"})
    call = "multimem.ld_reduce(results, op, src, *, acc, sem, scope)"
    ptx = (
        "multimem.ld_reduce{.sem}{.scope}{src.space=global}.{op}{.acc=acc::*}{results.vec}."
        "{src.element} {results:src!}, [{src:results*}];"
    )
    cycles = 200

    results: tuple[Var, ...]
    op: MultimemOp
    src: View
    acc: Literal["f16", "f32"] | None = None
    sem: Literal["weak", "relaxed", "acquire"] = "weak"
    scope: Scope = "sys"

    @property
    def needs(self) -> frozenset[str]:
        """Bytes, and sums of bytes in f16, exist on later targets only."""
        narrow = self.src.dtype in (e4m3, e5m2)
        return self.features | ({"multimem.fp8"} if narrow else frozenset())

    def verify(self) -> Iterator[str]:
        what = f"multimem.ld_reduce.{self.op}"
        yield from _problems(self.src, len(self.results), _LOADED[self.op], what)
        exact = {16: "f32", 8: "f16"}.get(self.src.dtype.bits)
        if self.acc is not None and (self.acc != exact or self.src.dtype.kind != "float"):
            yield f"sums of {self.src.dtype} are not accumulated in {self.acc} (H21)"
        wide = self.src.dtype.bits >= 32
        wrong = [r for r in self.results if r.dtype not in ((self.src.dtype,) if wide else _WORDS)]
        if wrong and wide and self.src.dtype.kind != "float":
            wrong = [
                r for r in wrong if r.dtype.kind == "float" or r.dtype.bits < self.src.dtype.bits
            ]
        if wrong:
            held = element_of(self.src.dtype)
            yield f"{wrong[0]} of type {wrong[0].dtype} cannot hold {held} (H21)"

    def effects(self) -> tuple[Effect, ...]:
        oracle = f"the contents on other devices of {self.src.tensor.name}"
        results = (Defines(r, divergent=True, oracle=oracle, elsewhere=True) for r in self.results)
        read = Reads(self.src, lanes=_LANES, sem=self.sem, scope=self.scope, elsewhere=True)
        return (read, *results)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        dtype, devices = self.src.dtype, devices_of(self.src)
        rows = _all_of(np.ascontiguousarray(inputs.memory(self.src)), self.op, dtype, devices)
        if dtype.bits < 32:
            rows = np.ascontiguousarray(rows).view(np.uint32)
        return tuple(rows[:, i] for i in range(len(self.results)))


@dataclass(frozen=True, kw_only=True)
class MultimemSt(Op):
    """``multimem.st``: stores ``values`` to ``dst`` in all devices; registers as for ``ld_reduce``.

    Releasing orders nothing: only other devices could tell (H22).
    """

    mnemonic = "multimem.st"
    features = frozenset({"mbarrier"})
    call = "multimem.store(dst, values, *, sem, scope)"
    ptx = (
        "multimem.st{.sem}{.scope}{dst.space=global}{values.vec}.{dst.element} "
        "[{dst:values*}], {values:dst!};"
    )
    cycles = 8
    data = frozenset({"values"})

    dst: View
    values: tuple[Expr, ...]
    sem: Literal["weak", "relaxed", "release"] = "weak"
    scope: Scope = "sys"

    def verify(self) -> Iterator[str]:
        types = (*_INTEGERS, f16, bf16, f32, f64)
        yield from _problems(self.dst, len(self.values), types, "multimem.st")

    def effects(self) -> tuple[Effect, ...]:
        write = Writes(self.dst, lanes=_LANES, sem=self.sem, scope=self.scope, elsewhere=True)
        return (write,)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        return (_packed(self.values, self.dst.dtype, inputs),)


@dataclass(frozen=True, kw_only=True)
class MultimemRed(Op):
    """``multimem.red``: combines ``values`` with what ``dst`` holds, in all devices.

    One device is simulated: its memory gets what equal operations of all devices leave (H22).
    """

    mnemonic = "multimem.red"
    features = frozenset({"mbarrier"})
    call = "multimem.red(dst, op, values, *, sem, scope)"
    ptx = (
        "multimem.red{.sem}{.scope}{dst.space=global}.{op}{values.vec}.{dst.element} "
        "[{dst:values*}], {values:dst!};"
    )
    cycles = 8
    data = frozenset({"values"})

    dst: View
    op: MultimemOp
    values: tuple[Expr, ...]
    sem: Literal["relaxed", "release"] = "relaxed"
    scope: Scope = "sys"

    def verify(self) -> Iterator[str]:
        what = f"multimem.red.{self.op}"
        yield from _problems(self.dst, len(self.values), _REDUCED[self.op], what)

    def effects(self) -> tuple[Effect, ...]:
        write = Writes(
            self.dst, lanes=_LANES, sem=self.sem, scope=self.scope, combine=self.op, elsewhere=True
        )
        return (write,)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        dtype = self.dst.dtype
        values = _packed(self.values, dtype, inputs)
        return (_all_of(values, self.op, dtype, devices_of(self.dst)),)


@dataclass(frozen=True, kw_only=True)
class MultimemCpAsyncBulk(BulkStore):
    """``multimem.cp.async.bulk``: as ``cp.async.bulk.store``, to ``dst`` in all devices (H22)."""

    mnemonic = "multimem.cp.async.bulk"
    call = "multimem.copy(dst, src, *, mask)"
    ptx = f"multimem.{BulkStore.ptx}"

    def verify(self) -> Iterator[str]:
        yield from _is_multimem(self.dst)
        yield from super().verify()


@dataclass(frozen=True, kw_only=True)
class MultimemCpReduceAsyncBulk(BulkReduce):
    """``multimem.cp.reduce.async.bulk``: as ``cp.reduce.async.bulk``, with ``dst`` in all devices.

    One device is simulated: its memory gets what equal operations of all devices leave (H22).
    """

    mnemonic = "multimem.cp.reduce.async.bulk"
    call = "multimem.reduce(dst, src, op)"
    ptx = f"multimem.{BulkReduce.ptx}"

    def verify(self) -> Iterator[str]:
        yield from _is_multimem(self.dst)
        yield from super().verify()

    def effects(self) -> tuple[Effect, ...]:
        return self._reduces(devices_of(self.dst))
