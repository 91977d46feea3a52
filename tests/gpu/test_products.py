"""The numbers of mma.sync in all forms of sm_90a: on the GPU what the simulator says (E24)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tilesim import Builder, f32, f64, s32, u32
from tilesim.arith.types import DType
from tilesim.gpu.crosscheck import Crosscheck, Options
from tilesim.gpu.watchdog import Executor
from tilesim.ir.expr import Var

from . import needs

pytestmark = [pytest.mark.gpu, needs.driver, needs.compiler]

Array = NDArray[Any]
RANDOM = np.random.default_rng(24)
_PACKED = {
    "f16": (np.float16, 2), "bf16": (ml_dtypes.bfloat16, 2), "tf32": (np.float32, 1),
    "e4m3": (ml_dtypes.float8_e4m3fn, 4), "e5m2": (ml_dtypes.float8_e5m2, 4),
}  # fmt: skip


def _small(count: int) -> Array:
    return RANDOM.integers(-4, 5, (32, count))


def _registers(kind: str, count: int) -> Array:
    """Registers of all lanes that hold small numbers, or any integers: (32, count)."""
    if kind not in _PACKED:
        return RANDOM.integers(0, 1 << 32, (32, count), dtype=np.uint64).astype(np.uint32)
    dtype, each = _PACKED[kind]
    return _small(count * each).astype(np.float32).astype(dtype).view(np.uint32)


class _Product:
    """A program of one product; its operands are inputs, its result is the output."""

    def __init__(self) -> None:
        self.k = Builder("product", "sm_90a", warps=1)
        self.inputs: dict[str, Array] = {}

    def operand(self, name: str, values: Array, dtype: DType = u32) -> list[Var]:
        """Registers that hold a row of ``values`` in each lane."""
        held = [self.k.var(f"{name}{i}", 0, dtype) for i in range(values.shape[1])]
        tensor = self.k.tensor(name, dtype, values.shape)
        for i, register in enumerate(held):
            self.k.mem.load(register, tensor[self.k.lane_id, i])
        self.inputs[name] = values
        return held

    def result(self, count: int, dtype: DType) -> list[Var]:
        """Registers for the result."""
        return [self.k.var(f"d{i}", 0, dtype) for i in range(count)]

    def store(self, d: list[Var]) -> None:
        """Makes registers the output."""
        out = self.k.tensor("out", d[0].dtype, (32, len(d)))
        for i, register in enumerate(d):
            self.k.mem.store(out[self.k.lane_id, i], register)


@pytest.fixture(scope="module")
def checker() -> Iterator[Crosscheck]:
    with Executor() as executor:
        yield Crosscheck(executor, Options())


def _agrees(checker: Crosscheck, made: _Product) -> None:
    found = checker.check(made.k.finish(), made.inputs)
    assert found.result == "equal", found.detail


def _forms() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Type of a, its registers, and what else tells a form."""
    for kind, a in product(_PACKED, (2, 4)):
        yield kind, a, {}
        if kind not in ("bf16", "tf32"):
            yield kind, a, {"half": True}
    yield "e4m3", 4, {"kind_b": "e5m2"}
    yield "e5m2", 4, {"kind_b": "e4m3"}
    for kinds, a in product((("s8", "u8"), ("s4", "u4")), (1, 2, 4)):
        for kind, other in product(kinds, repeat=2):
            yield kind, a, {"kind_b": other, "satfinite": a == 2}
    for bits, a in product(("and", "xor"), (1, 2, 4)):
        yield "b1", a, {"bits": bits}
    for a in (1, 2, 4, 8):
        yield "f64", a, {}


@pytest.mark.parametrize(("kind", "count", "form"), [*_forms()])
def test_products_of_a_warp(
    checker: Crosscheck, kind: Any, count: int, form: dict[str, Any]
) -> None:
    made, other = _Product(), form.get("kind_b", kind)
    if kind == "f64":
        sums, dtype, starts = 2 if count == 1 else 4, f64, _small(4).astype(float)
        a, b = (
            made.operand(name, _small(n).astype(float), f64)
            for name, n in (("a", count), ("b", (count + 1) // 2))
        )
    else:
        whole = kind not in _PACKED
        few = (count == 1) if whole else form.get("half", False)
        sums, dtype = 2 if few else 4, s32 if whole else u32 if few else f32
        starts = _registers("f16", 4) if dtype is u32 else _small(4).astype(dtype.numpy)
        a = made.operand("a", _registers(kind, count))
        b = made.operand("b", _registers(other, (count + 1) // 2))
    c, d = made.operand("c", starts[:, :sums], dtype), made.result(sums, dtype)
    form = {"kind_b": other, **form} if kind != "b1" else form
    made.k.matrix.mma(d, a, b, c, kind, **form)
    made.store(d)
    _agrees(checker, made)


@pytest.mark.parametrize(("half", "half_c"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize(("order_a", "order_b"), [*product(("row", "col"), repeat=2)])
def test_products_of_groups_of_lanes(
    checker: Crosscheck, order_a: Any, order_b: Any, half: bool, half_c: bool
) -> None:
    made = _Product()
    a, b = (made.operand(name, _registers("f16", 2)) for name in "ab")
    if half_c:
        c = made.operand("c", _registers("f16", 4))
    else:
        c = made.operand("c", _small(8).astype(np.float32), f32)
    d = made.result(4, u32) if half else made.result(8, f32)
    made.k.matrix.mma_groups(d, a, b, c, order_a=order_a, order_b=order_b)
    made.store(d)
    _agrees(checker, made)
