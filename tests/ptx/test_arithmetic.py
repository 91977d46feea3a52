"""Arithmetic of PTX: values by hand from the ISA's text, and 32 lanes at once like one by one."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesim.arith.bit_vectors import Value, apply, apply_many
from tilesim.arith.opcodes import operation
from tilesim.ptx.rules.registers import is_data


def f32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def compute(opcode: str, *values: Value) -> Value:
    found = operation(opcode)
    assert found is not None, opcode
    return apply(found, values)[0]


M32, M64 = (1 << 32) - 1, (1 << 64) - 1


@pytest.mark.parametrize(
    ("opcode", "sources", "result"),
    [
        ("add.s32", (M32, 2), 1),
        ("add.u16", (0xFFFF, 2), 1),
        ("sub.s64", (0, 1), M64),
        ("mul.lo.s32", (0x10000, 0x10000), 0),
        ("mul.hi.u32", (M32, M32), M32 - 1),
        ("mul.hi.s32", (M32, M32), 0),
        ("mul.wide.s32", (M32, 4), M64 - 3),
        ("mul.wide.u32", (M32, 4), 4 * M32),
        ("mul.hi.u64", (M64, 2), 1),
        ("mad.lo.s32", (3, 4, M32), 11),
        ("mad.wide.u16", (0xFFFF, 2, 1), 0x1FFFF),
        ("mad.hi.sat.s32", (1 << 30, 1 << 30, (1 << 31) - 1), (1 << 31) - 1),
        ("mad.hi.sat.s32", (1 << 30, M32 - (1 << 30), 1 << 31), 1 << 31),
        ("mad.hi.sat.s32", (1 << 30, 8, M32), 1),
        ("add.sat.s32", ((1 << 31) - 1, 1), (1 << 31) - 1),
        ("add.sat.s32", (1 << 31, M32), 1 << 31),
        ("add.sat.s32", (M32, 3), 2),
        ("sub.sat.s32", (0, 1 << 31), (1 << 31) - 1),
        ("sub.sat.s32", (1 << 31, 1), 1 << 31),
        ("mul24.lo.u32", (0xFFFFFF, 0xFFFFFF), 0xFE000001),
        ("mul24.lo.s32", (0xFFFFFF, 0xFFFFFF), 1),
        ("mul24.lo.u32", (0x7F000003, 0xFF000005), 15),
        ("mul24.lo.s32", (0x7FFFFFFD, 5), M32 - 14),
        ("mul24.hi.u32", (0xFFFFFF, 0xFFFFFF), 0xFFFFFE00),
        ("mul24.hi.s32", (0xFFFFFF, 1), M32),
        ("mul24.hi.s32", (0x800000, 0x800000), 1 << 30),
        ("mad24.lo.s32", (0xFFFFFF, 5, 7), 2),
        ("mad24.hi.u32", (0xFFFFFF, 0xFFFFFF, 0x200), 0),
        ("mad24.hi.sat.s32", (0x800000, 0x800000, 1 << 30), (1 << 31) - 1),
        ("mad24.hi.sat.s32", (0x800000, 0x7FFFFF, 1 << 31), 1 << 31),
        ("mad24.hi.sat.s32", (1 << 16, 3, M32), 2),
        ("div.s32", (M32 - 6, 2), M32 - 2),
        ("rem.s32", (M32 - 6, 2), M32),
        ("div.u32", (7, 2), 3),
        ("div.s64", (5, 0), M64),
        ("rem.u32", (7, 0), M32),
        ("rem.s16", (7, 0), 0xFFFF),
        ("shl.b32", (1, 32), 0),
        ("shl.b32", (1, M32), 0),
        ("shr.s32", (1 << 31, 40), M32),
        ("shr.u32", (1 << 31, 31), 1),
        ("shf.l.wrap.b32", (0x80000000, 1, 33), 3),
        ("shf.r.clamp.b32", (0, 5, 40), 5),
        ("bfe.u32", (0xABCD, 4, 8), 0xBC),
        ("bfe.s32", (0xF0, 4, 4), M32),
        ("bfe.s32", (1 << 31, 30, 8), M32 - 1),
        ("bfi.b32", (0xFF, 0, 4, 8), 0xFF0),
        ("popc.b64", (M64,), 64),
        ("clz.b32", (1,), 31),
        ("bfind.u32", (0,), M32),
        ("bfind.s32", (M32 - 1,), 0),
        ("bfind.shiftamt.u32", (1,), 31),
        ("brev.b32", (1,), 1 << 31),
        ("prmt.b32", (0x44332211, 0x88776655, 0x7531), 0x88664422),
        ("prmt.b32", (0x80, 0, 0x8888), M32),
        ("prmt.f4e.b32", (0x44332211, 0x88776655, 1), 0x55443322),
        ("lop3.b32", (0xF0F0, 0xFF00, 0, 0xC0), 0xF000),
        ("lop3.and.b32", (0xF0F0, 0xFF00, 0, 0xC0, 1), 0xF000),
        ("fns.b32", (0b1101_0000, 0, 1), 4),
        ("fns.b32", (0b1101_0000, 4, 1), 4),
        ("fns.b32", (0b1101_0000, 5, 2), 7),
        ("fns.b32", (0b1101_0000, 6, M32), 6),
        ("fns.b32", (0b1101_0000, 5, M32), 4),
        ("fns.b32", (0b1101_0000, 3, M32), M32),
        ("fns.b32", (0b1101_0000, 0, 4), M32),
        ("fns.b32", (0b1101_0000, 6, 0), 6),
        ("fns.b32", (0b1101_0000, 5, 0), M32),
        ("fns.b32", (M32, 32, 1), M32),
        ("fns.b32", (M32, 0, 1 << 31), M32),
        ("min.s32", (M32, 1), M32),
        ("min.s32.relu", (M32, 1), 0),
        ("max.relu.s32", (M32, M32 - 1), 0),
        ("max.s32.relu", (M32, 7), 7),
        ("min.u32", (M32, 1), 1),
        ("abs.s32", (M32,), 1),
        ("neg.s16", (1,), 0xFFFF),
        ("cnot.b32", (0,), 1),
        ("selp.b32", (5, 6, 0), 6),
        ("slct.u32.s32", (5, 6, 1 << 31), 6),
        ("cvt.s64.s32", (M32,), M64),
        ("cvt.u64.u32", (M32,), M32),
        ("cvt.u32.u8", (0x1FF,), 0xFF),
        ("cvt.s32.s8", (0x80,), M32 - 127),
        ("cvt.sat.u8.s32", (M32,), 0),
        ("cvt.rzi.s32.f32", (f32(-1.9),), M32),
        ("cvt.rzi.u32.f32", (f32(-1.9),), 0),
        ("cvt.rni.s32.f32", (f32(2.5),), 2),
        ("cvt.rzi.s32.f32", (f32(math.nan),), 0),
        ("cvt.rzi.s32.f32", (f32(1e20),), 0x7FFFFFFF),
        ("cvt.rn.f32.s32", (M32,), f32(-1.0)),
        ("cvt.rn.sat.f32.s32", (7,), f32(1.0)),
        ("cvt.rn.sat.f32.s32", (M32,), 0),
        ("cvt.rn.sat.f64.u16", (1,), 0x3FF0 << 48),
        ("cvt.sat.f32.f32", (f32(-0.0),), 0),
        ("cvt.sat.f32.f32", (f32(math.nan),), 0),
        ("cvt.sat.f32.f32", (f32(2.5),), f32(1.0)),
        ("cvt.rn.f32.u64", ((1 << 60) + (1 << 36) + 1,), f32(float(1 << 60) * (1 + 2**-23))),
        ("cvt.f32.f16", (0x3C00,), f32(1.0)),
        ("cvt.rn.bf16.f32", (f32(1.0),), 0x3F80),
        ("add.f32", (f32(1.0), f32(2.5)), f32(3.5)),
        ("add.rn.ftz.f32", (1, 1), 0),
        ("div.rn.f32", (f32(1.0), f32(0.0)), f32(math.inf)),
        ("max.f32", (f32(math.nan), f32(1.0)), f32(1.0)),
        ("max.NaN.f32", (f32(math.nan), f32(1.0)), 0x7FFFFFFF),
        ("setp.lt.s32", (M32, 0), 1),
        ("setp.lt.u32", (M32, 0), 0),
        ("setp.lo.u32", (M32, 0), 0),
        ("setp.eq.and.s32", (1, 1, 0), 0),
        ("setp.neu.f32", (f32(math.nan), 0), 1),
        ("setp.ne.f32", (f32(math.nan), 0), 0),
        ("setp.nan.f32", (f32(math.nan), 0), 1),
        ("set.eq.u32.s32", (1, 1), M32),
        ("dp4a.u32.u32", (0x01020304, 0x01010101, 5), 15),
        ("dp4a.s32.u32", (0xFF, 2, 0), M32 - 1),
        ("sad.s32", (M32, 1, 10), 12),
        ("bmsk.clamp.b32", (4, 40), 0xFFFFFFF0),
        ("szext.wrap.s32", (0x80, 8), M32 - 127),
    ],
)  # fmt: skip
def test_one_lane(opcode: str, sources: tuple[int, ...], result: int) -> None:
    assert compute(opcode, *sources) == result


def test_the_second_result_of_setp_is_the_opposite() -> None:
    found = operation("setp.lt.or.s32")
    assert found is not None
    assert found(1, 2, 0) == (1, 0)
    assert found(2, 1, 0) == (0, 1)
    assert found(1, 2, 1) == (1, 1)


def test_lop3_combines_its_result_with_a_predicate() -> None:
    """``p = (d != 0) BoolOp q`` (PTX 9.7.8.6)."""
    for name in ("and", "or"):
        found = operation(f"lop3.{name}.b32")
        assert found is not None
        for a in (0, 6):
            for q in (0, 1):
                holds = bool(a) & q if name == "and" else bool(a) | q
                assert found(a, M32, 0, 0xC0, q) == (a, holds)
    assert operation("lop3.xor.b32") is None


OPCODES = (
    "add.s32", "add.s64", "add.u16", "sub.s32", "sub.s64", "mul.lo.s32", "mul.lo.u64", "mul.hi.s32",
    "mul.hi.u32", "mul.hi.s64", "mul.hi.u16", "mul.wide.s32", "mul.wide.u32", "mul.wide.u16",
    "mad.lo.s32", "mad.hi.s32", "mad.wide.s32", "mad.lo.u64", "div.s32", "rem.u64", "and.b32",
    "or.b64", "xor.b16", "not.b32", "not.b64", "and.pred", "not.pred", "shl.b32", "shl.b64",
    "shl.b16", "shr.u32", "shr.s32", "shr.s64", "shr.u16", "shr.s16", "setp.lt.s32", "setp.ge.u64",
    "setp.lt.s64", "setp.eq.b32", "setp.gt.and.s16", "setp.ls.xor.u32", "selp.b32", "selp.b64",
    "min.s32", "min.s32.relu",
    "min.u64", "max.s64", "max.u16", "cvt.s64.s32", "cvt.u32.u64", "cvt.s32.s8",
    "cvt.u16.s16", "cvt.sat.s8.s32", "mov.b32", "mov.b64", "bfe.s32", "bfi.b64", "prmt.b32",
    "lop3.b32", "lop3.or.b32", "fns.b32", "popc.b32", "bfind.s64",
    "shf.l.wrap.b32", "sad.u32", "abs.s16", "abs.s64", "neg.s32", "neg.s64", "cnot.b32", "popc.b64",
    "mul24.lo.s32", "mul24.lo.u32", "mul24.hi.s32", "mul24.hi.u32", "mad24.lo.s32", "mad24.hi.u32",
    "mad24.hi.sat.s32", "mad.hi.sat.s32", "add.sat.s32", "sub.sat.s32",
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(0, M64), st.integers(0, 70), st.sampled_from([M32, M64, 1 << 31, 1 << 63, 1 << 15])
)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(OPCODES), st.data())
def test_lanes_compute_what_each_of_them_computes(opcode: str, data: st.DataObject) -> None:
    found = operation(opcode)
    assert found is not None
    values: list[Value] = []
    rows = []
    for width in found.sources:
        if data.draw(st.booleans()):
            number = data.draw(NUMBERS)
            values.append(number)
            column = [number] * 32
        else:
            column = data.draw(st.lists(NUMBERS, min_size=32, max_size=32))
            values.append(np.array(column, dtype=np.uint64))
        rows.append([v & (1 << width) - 1 for v in column])
    got = apply(found, tuple(values))
    for lane, sources in enumerate(zip(*rows, strict=True)):
        wanted = found(*sources)
        results = [r if isinstance(r, int) else int(r[lane]) for r in got if r is not None]
        assert tuple(results) == wanted


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(OPCODES), st.data())
def test_warps_at_once_compute_what_each_lane_computes(opcode: str, data: st.DataObject) -> None:
    """Numbers give numbers, also a comparison of two; arrays, what their shapes broadcast to."""
    found = operation(opcode)
    assert found is not None
    shapes = [data.draw(st.sampled_from([(), (), (3, 1), (3, 32), (32,)])) for _ in found.sources]
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    values: list[Any] = []
    for shape in shapes:
        drawn = data.draw(st.integers(-(1 << 63), M64) | st.sampled_from([0, 1, 1 << 63, M64]))
        numbers = rng.integers(-(1 << 63), (1 << 63) - 1, shape, dtype=np.int64)
        values.append(numbers if shape else drawn)
    got = apply_many(found, tuple(values))
    if got is None:
        return
    whole = np.broadcast_shapes(*shapes)
    for index in np.ndindex(whole):
        own = [v if isinstance(v, int) else int(np.broadcast_to(v, whole)[index]) for v in values]
        cut = [v & (1 << width) - 1 for v, width in zip(own, found.sources, strict=True)]
        wanted = found(*cut)
        assert all(type(r) is int if not whole else np.shape(r) in (whole, ()) for r in got)
        results = tuple(int(np.broadcast_to(r, whole)[index]) for r in got)
        assert results == wanted


def test_something_unknown_stays_unknown_unless_the_rest_decides() -> None:
    assert compute("add.s32", None, 1) is None
    assert compute("and.b32", None, 0) == 0
    assert compute("mul.lo.s32", 0, None) == 0
    assert compute("or.b32", None, M32) == M32
    assert compute("selp.b32", 7, None, 1) == 7
    assert compute("selp.b32", 7, None, 0) is None
    assert compute("selp.b32", 7, 8, None) is None
    assert compute("setp.lt.and.s32", None, 1, 0) == 0
    assert compute("setp.lt.and.s32", None, 1, 1) is None
    assert compute("setp.lt.s32", None, 1) is None


@pytest.mark.parametrize(
    "opcode",
    [
        "fma.rn.f32", "ex2.approx.ftz.f32", "cvt.rn.bf16x2.f32", "add.f32x2", "mma.sync.x",
        "max.bf16x2", "div.full.f32", "cvt.rna.tf32.f32", "add.rz.f32", "add.cc.u32", "addc.s32",
        "mad.lo.cc.u32", "madc.hi.u32", "subc.cc.u32",
    ],
)  # fmt: skip
def test_arithmetic_on_elements_is_data(opcode: str) -> None:
    assert operation(opcode) is None
    assert is_data(opcode)


@pytest.mark.parametrize(
    "opcode",
    ["frob.s32", "add.sat.u32", "mad24.lo.sat.s32", "mul24.lo.s64", "shl.s32",
     "ld.global.f32", "mul.s32", "shf.l.b32", "cvt.rn.s32.s32", "bar.sync", "vadd.s32"],
)  # fmt: skip
def test_what_is_not_known_is_neither(opcode: str) -> None:
    assert operation(opcode) is None
    assert not is_data(opcode)
