"""mma.sync in all its shapes and types, against NumPy; what it refuses (SEMANTICS E24)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilesim as ts
from tilesim import Builder, InvalidProgram, f32, f64, s32, u32
from tilesim.ir.ops.mma_sync import Kind

#: kind, columns of a, its rows, bits of an element: the shapes that PTX has
SHAPES: list[tuple[Kind, int, int, int]] = [
    ("f16", 8, 16, 16), ("f16", 16, 16, 16), ("bf16", 8, 16, 16), ("bf16", 16, 16, 16),
    ("tf32", 4, 16, 32), ("tf32", 8, 16, 32),
    ("f64", 4, 8, 64), ("f64", 4, 16, 64), ("f64", 8, 16, 64), ("f64", 16, 16, 64),
    ("e4m3", 16, 16, 8), ("e5m2", 32, 16, 8), ("e3m2", 32, 16, 8), ("e2m3", 32, 16, 8),
    ("e2m1", 32, 16, 8),
    ("s8", 16, 8, 8), ("s8", 16, 16, 8), ("u8", 32, 16, 8),
    ("s4", 32, 8, 4), ("s4", 32, 16, 4), ("u4", 64, 16, 4),
    ("b1", 128, 8, 1), ("b1", 128, 16, 1), ("b1", 256, 16, 1),
]  # fmt: skip
_FLOATS = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
_WHOLE = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}


def _matrix(kind: str, rows: int, columns: int, seed: int) -> NDArray[Any]:
    """Numbers that the type holds and whose sums are exact."""
    random = np.random.default_rng(seed)
    if kind in _WHOLE:
        return random.integers(*_WHOLE[kind], (rows, columns))
    return random.integers(-2, 3, (rows, columns)).astype(np.float64)


def _bits(kind: str, value: Any, width: int) -> int:
    """How an element lies in its place in a register."""
    if kind in _WHOLE:
        return int(value) & (1 << width) - 1
    octets = np.array([value]).astype(_FLOATS[kind]).tobytes()
    return int.from_bytes(octets, "little") << (2 if kind == "e2m1" else 0)


def _registers(kind: str, matrix: NDArray[Any], width: int, *, second: bool) -> NDArray[Any]:
    """The registers of each lane. PTX 9.7.14.5: of a the element i of a lane is in row g or g + 8
    and in column t w + i % w, w being how many lie next to each other in a register; the upper half
    of the columns comes last. Of b rows and columns change places, and there is one group of 8."""
    count = max(1, 32 // width)
    long, wide = matrix.shape[::-1] if second else matrix.shape
    groups = 1 if second or long == 8 else 2
    found = np.zeros((32, groups * wide // (4 * count)), np.float64 if width == 64 else np.uint32)
    for lane in range(32):
        for i in range(found.shape[1] * count):
            register, place = divmod(i, count)
            row = lane // 4 + 8 * (register % groups)
            column = lane % 4 * count + place + 4 * count * (register // groups)
            value = matrix[column, row] if second else matrix[row, column]
            if width == 64:
                found[lane, register] = value
            else:
                found[lane, register] |= _bits(kind, value, width) << width * place
    return found


def _product(
    kind: Kind, a: NDArray[Any], b: NDArray[Any], rows: int, *, kind_b: Kind | None = None,
    half: bool = False, satfinite: bool = False, start: int = 0, bits: Any = None,
) -> NDArray[Any]:  # fmt: skip
    """What a kernel leaves that multiplies these registers."""
    k = Builder("product", "sm_120a", warps=1)
    held = f64 if kind == "f64" else u32
    sums = {"f64": f64}.get(kind, s32 if kind in _WHOLE else u32 if half else f32)
    A, B = k.tensor("A", held, a.shape), k.tensor("B", held, b.shape)
    count = rows // 4 // (2 if half else 1)
    D = k.tensor("D", sums, (32, count))
    x = [k.var(f"x{i}", 0, held) for i in range(a.shape[1])]
    y = [k.var(f"y{i}", 0, held) for i in range(b.shape[1])]
    d = [k.var(f"d{i}", start, sums) for i in range(count)]
    for registers, tensor in ((x, A), (y, B)):
        for i, register in enumerate(registers):
            k.mem.load(register, tensor[k.lane_id, i])
    k.matrix.mma(d, x, y, d, kind, kind_b=kind_b, half=half, satfinite=satfinite, bits=bits)
    for i, register in enumerate(d):
        k.mem.store(D[k.lane_id, i], register)
    found = ts.simulate(k.finish(), {"A": a, "B": b}).outputs["D"]
    if half:
        found = np.ascontiguousarray(found).view(np.float16)
    matrix = np.zeros((rows, 8), found.dtype)
    for lane in range(32):
        for i in range(rows // 4):
            matrix[lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2] = found[lane, i]
    return matrix


@pytest.mark.parametrize(("kind", "depth", "rows", "width"), SHAPES)
def test_products_are_those_of_numpy(kind: Kind, depth: int, rows: int, width: int) -> None:
    a, b = _matrix(kind, rows, depth, 1), _matrix(kind, depth, 8, 2)
    x = _registers(kind, a, width, second=False)
    y = _registers(kind, b, width, second=True)
    if kind == "b1":
        assert (_product(kind, x, y, rows, bits="and") == a @ b).all()
        differ = (a[:, :, None] != b[None, :, :]).sum(axis=1)
        assert (_product(kind, x, y, rows, bits="xor") == differ).all()
        return
    assert (_product(kind, x, y, rows) == a @ b).all()
    if kind in ("f16", "e4m3", "e2m1"):
        assert (_product(kind, x, y, rows, half=True) == a @ b).all()


def test_two_types_may_be_multiplied() -> None:
    a, b = _matrix("s8", 16, 32, 3), _matrix("u8", 32, 8, 4)
    x = _registers("s8", a, 8, second=False)
    y = _registers("u8", b, 8, second=True)
    assert (_product("s8", x, y, 16, kind_b="u8") == a @ b).all()


def test_sums_of_integers_wrap_or_stay_at_the_end() -> None:
    a, b = np.full((16, 32), 1), np.full((32, 8), 1)
    x = _registers("s8", a, 8, second=False)
    y = _registers("s8", b, 8, second=True)
    most = 2**31 - 1
    assert (_product("s8", x, y, 16, start=most) == most + 32 - 2**32).all()
    assert (_product("s8", x, y, 16, start=most, satfinite=True) == most).all()


@pytest.mark.parametrize(
    ("kind", "registers", "more", "why"),
    [
        ("f16", 1, {}, "a of f16 has 2 or 4 registers per lane, not 1 (E24)"),
        ("s8", 8, {}, "a of s8 has 1 or 2 or 4 registers per lane, not 8 (E24)"),
        ("s8", 4, {"kind_b": "e4m3"}, "mma.sync multiplies no s8 with e4m3 (E24)"),
        ("e4m3", 2, {"kind_b": "e2m1"}, "a of e4m3 has 4 registers per lane, not 2 (E24)"),
        ("bf16", 4, {"half": True}, "products of bf16 are not summed as f16 (E24)"),
        ("s8", 4, {"half": True}, "products of s8 are not summed as f16 (E24)"),
        ("tf32", 4, {"satfinite": True}, "sums of products of tf32 have no .satfinite (E24)"),
        ("b1", 4, {}, ".xor and .and are needed for b1, and exist for b1 only (E24)"),
        ("u4", 4, {"bits": "and"}, ".xor and .and are needed for b1, and exist for b1 only (E24)"),
    ],
)
def test_other_forms_are_refused(kind: Kind, registers: int, more: Any, why: str) -> None:
    k = Builder("refused", "sm_120a", warps=1)
    sums = s32 if kind in _WHOLE else f32
    d = [k.var(f"d{i}", 0, sums) for i in range(4)]
    r = [k.var(f"r{i}", 0, u32) for i in range(8)]
    k.matrix.mma(d, r[:registers], r[: (registers + 1) // 2], d, kind, **more)
    with pytest.raises(InvalidProgram) as refused:
        ts.check(k.finish())
    assert [d.message for d in refused.value.diagnostics] == [f"mma.sync: {why}"]


def test_types_below_8_bits_need_a_target_that_has_them() -> None:
    k = Builder("refused", "sm_100a", warps=1)
    d, r = [k.var(f"d{i}", 0.0, f32) for i in range(4)], [k.var(f"r{i}", 0, u32) for i in range(4)]
    k.matrix.mma(d, r, r[:2], d, "e2m1")
    with pytest.raises(InvalidProgram) as refused:
        ts.check(k.finish())
    assert [x.rule for x in refused.value.diagnostics] == ["target"]
