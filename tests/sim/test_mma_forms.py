"""mma.sync by groups of 8 lanes and with scales, against NumPy; what it refuses (SEMANTICS E24)."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilesim as ts
from tilesim import Builder, InvalidProgram, f32, u32
from tilesim.ir.ops.mma_sync import Order

RANDOM = np.random.default_rng(24)


def _run(k: Builder, d: list[Any], **inputs: NDArray[Any]) -> NDArray[Any]:
    """The registers that the lanes have in the end."""
    out = k.tensor("out", d[0].dtype, (32, len(d)))
    for i, register in enumerate(d):
        k.mem.store(out[k.lane_id, i], register)
    return ts.simulate(k.finish(), inputs).outputs["out"]


def _loaded(k: Builder, name: str, count: int, dtype: Any = u32) -> list[Any]:
    """Registers that hold a row of a tensor each lane."""
    held = [k.var(f"{name}{i}", 0, dtype) for i in range(count)]
    tensor = k.tensor(name, dtype, (32, count))
    for i, register in enumerate(held):
        k.mem.load(register, tensor[k.lane_id, i])
    return held


def _place(what: Literal["row", "turned"], lane: int, i: int) -> tuple[int, int]:
    """PTX 9.7.14.5.1: where element i of a lane lies in an operand, whose rows the lanes hold, or
    whose columns ("turned")."""
    upper = 0 if lane < 16 else 4
    return (lane % 4 + upper, i) if what == "row" else (i % 4 + upper, lane % 4)


def _sum_place(lane: int, i: int, *, half: bool) -> tuple[int, int]:
    upper = 0 if lane < 16 else 4
    if half:
        return lane % 4 + upper, i
    return (lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1)


@pytest.mark.parametrize(("half", "half_c"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize(("order_a", "order_b"), [*product(("row", "col"), repeat=2)])
def test_groups_of_lanes_multiply_by_themselves(
    order_a: Order, order_b: Order, half: bool, half_c: bool
) -> None:
    a, b, c = (RANDOM.integers(-4, 5, (4, *shape)) for shape in ((8, 4), (4, 8), (8, 8)))
    x, y = np.zeros((32, 4), np.float16), np.zeros((32, 4), np.float16)
    z = np.zeros((32, 8), np.float16 if half_c else np.float32)
    for lane in range(32):
        group = lane // 4 % 4
        for i in range(4):
            row, column = _place("row" if order_a == "row" else "turned", lane, i)
            x[lane, i] = a[group, row, column]
            column, row = _place("row" if order_b == "col" else "turned", lane, i)
            y[lane, i] = b[group, row, column]
        for i in range(8):
            z[lane, i] = c[(group, *_sum_place(lane, i, half=half_c))]
    k = Builder("product", "sm_90a", warps=1)
    registers = _loaded(k, "a", 2), _loaded(k, "b", 2)
    starts = _loaded(k, "c", 4) if half_c else _loaded(k, "c", 8, f32)
    d = [k.var(f"d{i}", 0, u32 if half else f32) for i in range(4 if half else 8)]
    k.matrix.mma_groups(d, *registers, starts, order_a=order_a, order_b=order_b)
    found = _run(
        k, d, a=x.view(np.uint32), b=y.view(np.uint32), c=z.view(np.uint32) if half_c else z
    )
    found = np.ascontiguousarray(found).view(np.float16 if half else np.float32)
    wanted = a @ b + c
    for lane, i in product(range(32), range(8)):
        assert found[lane, i] == wanted[(lane // 4 % 4, *_sum_place(lane, i, half=half))]


#: group, elements, elements that share a scale, scales, and where these begin
SCALED = [
    ("mxf8f6f4", ("e4m3", "e5m2"), 32, "ue8m0", (3, 1), (1, 3)),
    ("mxf8f6f4", ("e2m1", "e3m2"), 32, "ue8m0", (0, 0), (2, 0)),
    ("mxf4", ("e2m1", "e2m1"), 32, "ue8m0", (2, 1), (0, 2)),
    ("mxf4nvf4", ("e2m1", "e2m1"), 32, "ue8m0", (0, 1), (2, 1)),
    ("mxf4nvf4", ("e2m1", "e2m1"), 16, "ue4m3", (0, 0), (0, 3)),
]
_TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn,
}  # fmt: skip


def _bits(kind: str, value: float) -> int:
    return int(np.array([value]).astype(_TYPES[kind]).view(np.uint8)[0])


def _registers(matrix: NDArray[Any], kind: str, *, packed: bool, groups: int) -> NDArray[Any]:
    """PTX 9.7.14.5: rows as registers of the lanes; bytes, or 4 bits each where they are packed."""
    width, per = (4, 8) if packed else (8, 4)
    count = groups * matrix.shape[1] // (4 * per)
    found = np.zeros((32, count), np.uint32)
    for lane, register, i in product(range(32), range(count), range(per)):
        row, column = lane // 4 + 8 * (register % groups), per * (lane % 4) + i
        value = _bits(kind, matrix[row, column + 4 * per * (register // groups)])
        value <<= 2 if kind == "e2m1" and not packed else 0
        found[lane, register] |= np.uint32(value << width * i)
    return found


@pytest.mark.parametrize(("group", "kinds", "each", "scale", "at_a", "at_b"), SCALED)
def test_rows_and_columns_have_scales(
    group: Any, kinds: Any, each: int, scale: Any, at_a: Any, at_b: Any
) -> None:
    packed = group != "mxf8f6f4"
    depth = 64 if packed else 32
    a, b = RANDOM.integers(-2, 3, (16, depth)), RANDOM.integers(-2, 3, (8, depth))
    pieces: Any = depth // each
    by_a, by_b = (2.0 ** RANDOM.integers(-2, 3, (rows, pieces)) for rows in (16, 8))
    held_a, held_b = np.zeros((32, 4), np.uint8), np.zeros((32, 4), np.uint8)
    for g, piece in product(range(8), range(pieces)):
        for upper in range(2):
            place = 4 * g + 2 * at_a[1] + upper, at_a[0] + piece
            held_a[place] = _bits(scale, by_a[g + 8 * upper, piece])
        held_b[4 * g + at_b[1], at_b[0] + piece] = _bits(scale, by_b[g, piece])
    k = Builder("product", "sm_120a", warps=1)
    x, y = _loaded(k, "a", 4), _loaded(k, "b", 2)
    s, t = _loaded(k, "s", 1), _loaded(k, "t", 1)
    d = [k.var(f"d{i}", 1.0, f32) for i in range(4)]
    k.matrix.mma_scaled(
        d, x, y, d, s[0], t[0], group, kind=kinds[0], kind_b=kinds[1], vectors=pieces, scale=scale,
        at_a=at_a, at_b=at_b,
    )  # fmt: skip
    found = _run(
        k, d, a=_registers(a, kinds[0], packed=packed, groups=2),
        b=_registers(b, kinds[1], packed=packed, groups=1),
        s=held_a.view(np.uint32), t=held_b.view(np.uint32),
    )  # fmt: skip
    wanted = (a * np.repeat(by_a, each, 1)) @ (b * np.repeat(by_b, each, 1)).T + 1
    for lane, i in product(range(32), range(4)):
        assert found[lane, i] == wanted[lane // 4 + i // 2 * 8, lane % 4 * 2 + i % 2]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            {"group": "mxf4", "kind": "e4m3", "vectors": 2},
            "mxf4 multiplies e2m1, not e4m3 and e2m1",
        ),
        ({"vectors": 2}, "mxf8f6f4 has no 2 scales of ue8m0 per row"),
        ({"scale": "ue4m3"}, "mxf8f6f4 has no 1 scales of ue4m3 per row"),
        ({"group": "mxf4", "vectors": 2, "at_b": (1, 0)}, "2 scales begin at byte (0, 2), not 1"),
        ({"at_a": (0, 2)}, "lane 2 of the scales is outside 0..1"),
    ],
)
def test_scales_that_do_not_fit_are_refused(more: Any, why: str) -> None:
    k = Builder("refused", "sm_120a", warps=1)
    d, r = [k.var(f"d{i}", 0.0, f32) for i in range(4)], [k.var(f"r{i}", 0, u32) for i in range(4)]
    k.matrix.mma_scaled(d, r, r[:2], d, r[0], r[1], **more)
    with pytest.raises(InvalidProgram) as refused:
        ts.check(k.finish())
    assert [x.message for x in refused.value.diagnostics] == [f"mma.sync.block_scale: {why} (E24)"]


def test_scales_need_a_target_that_has_them() -> None:
    k = Builder("refused", "sm_100a", warps=1)
    d, r = [k.var(f"d{i}", 0.0, f32) for i in range(4)], [k.var(f"r{i}", 0, u32) for i in range(4)]
    k.matrix.mma_scaled(d, r, r[:2], d, r[0], r[1])
    with pytest.raises(InvalidProgram) as refused:
        ts.check(k.finish())
    assert [x.rule for x in refused.value.diagnostics] == ["target"]
