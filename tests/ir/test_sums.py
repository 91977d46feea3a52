"""Values of all clusters kept as sums of a column and a row are what they are number by number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.ptx import test_grids
from tests.ptx.test_check import report
from tilesim.arith.array_operators import ARRAY_BINARY
from tilesim.arith.bit_vectors import apply, apply_many
from tilesim.arith.opcodes import operation
from tilesim.arith.operators import BINARY
from tilesim.arith.sums import Column, Sums, combined
from tilesim.arith.types import s64
from tilesim.checker import Report
from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Binary, Const, Var
from tilesim.ptx.launch import Pointer, Scalar
from tilesim.sim.machine.expression import compile_expr
from tilesim.sim.machine.machine import Warp

LANES = np.arange(32, dtype=np.int64)
NONE = np.zeros(1, dtype=np.int64)


def sums(rng: np.random.Generator, clusters: int = 5) -> Sums:
    """Aligned or not, negative or not, with lanes or without."""
    scale = int(rng.choice([1, 1, 32, 96, 1 << 11, 1 << 40]))
    column = rng.integers(-3 if rng.random() < 0.3 else 0, 50, clusters) * scale
    rows = (NONE, LANES, LANES * 4, LANES - 7, LANES // 8 + 3, LANES * (1 << 30))
    return Sums(Column(column.astype(np.int64)), rows[rng.integers(len(rows))])


def bitwise(value: Any, mask: int) -> Any:
    """``value & mask`` as the machine computes it of a register."""
    evaluate = compile_expr(Binary("&", Var("x", s64), Const(mask)), {"x": 0}, Typing())
    return evaluate(cast(Warp, SimpleNamespace(registers=[value])))


def dense(value: Any) -> Any:
    return value.dense if isinstance(value, Sums) else value


@pytest.mark.parametrize("op", sorted(ARRAY_BINARY))
def test_operators(op: str) -> None:
    rng = np.random.default_rng(len(op) * 1000 + ord(op[0]))
    kept = 0
    for _ in range(400):
        numbers = [int(rng.choice([0, 1, 2, 7, 31, 32, 128, 1 << 20, -5])), LANES, LANES * 64]
        a: Any = sums(rng)
        b: Any = ([sums(rng)] * 3 + numbers)[rng.integers(6)]
        if op in ("<<", ">>") and (not isinstance(b, int) or not 0 <= b < 32):
            b = 3
        elif op in ("//", "%") and (not isinstance(b, int) or b <= 0):
            b = 32
        elif op not in ("<<", ">>", "//", "%") and rng.random() < 0.3:
            a, b = b, a
        found = combined(op, ARRAY_BINARY[op], a, b)
        if found is None:
            continue
        kept += 1
        expected = np.asarray(ARRAY_BINARY[op](dense(a), dense(b))).astype(np.int64)
        assert (np.broadcast_to(dense(found), expected.shape) == expected).all(), (op, a, b)
    assert kept > 5


def test_masks_of_64_bits() -> None:
    """What a conversion to 64 bits without a sign does; its mask is in no array of numbers."""
    rng = np.random.default_rng(64)
    kept = 0
    for _ in range(400):
        value, mask = sums(rng), (63, (1 << 32) - 1, (1 << 64) - 1, 3 << 62)[rng.integers(4)]
        expected = [[v & mask for v in row] for row in value.dense.tolist()]
        found = combined("&", np.bitwise_and, mask, value)
        kept += found is value
        if found is not None:
            assert found.dense.tolist() == expected, (value.dense, mask)
        at_once = bitwise(value.dense, mask)
        assert at_once.tolist() == expected, (value.dense, mask)
        assert at_once.dtype == (object if max(map(max, expected)) >> 63 else np.int64)
    assert kept > 5


def test_types() -> None:
    rng = np.random.default_rng(7)
    kept = 0
    for _ in range(400):
        value = sums(rng)
        low, high = [(0, 255), (0, (1 << 32) - 1), (-128, 127)][rng.integers(3)]
        found = value.wrapped(low, high)
        if found is not None:
            kept += 1
            assert (found.dense == (value.dense - low) % (high - low + 1) + low).all()
    assert kept > 5


@pytest.mark.parametrize("opcode", ["setp.lt.s32", "setp.ge.u64", "setp.eq.s64", "setp.gt.s64",
                                    "add.s32", "min.s32", "shr.s32", "selp.b32"])  # fmt: skip
def test_instructions(opcode: str) -> None:
    rng = np.random.default_rng(len(opcode))
    op = operation(opcode)
    assert op is not None
    kept = 0
    for _ in range(100):
        values: list[Any] = [sums(rng) for _ in op.sources]
        if rng.random() < 0.5:
            values[1] = int(rng.integers(0, 1 << 12))
        found = apply_many(op, tuple(values))
        if found is None:
            continue
        kept += 1
        for cluster in range(5):
            own = [v if isinstance(v, int) else np.broadcast_to(v[cluster], 32) for v in values]
            expected = apply(op, tuple(v if isinstance(v, int) else v.view(np.uint64) for v in own))
            for one, other in zip(found, expected, strict=True):
                assert other is not None
                row = one[cluster] if np.ndim(one) == 2 else one
                assert (np.broadcast_to(row, 32) == np.broadcast_to(other, 32)).all()
    assert kept > 5


def test_what_a_conversion_costs_does_not_depend_on_the_grid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An index of 64 bits: no number is computed by itself, and the last CTA is looked at."""
    monkeypatch.setattr("tilesim.sim.affine.cluster_values.SEVERAL", 0)

    def one_by_one(*_: object) -> int:
        raise AssertionError("computed of numbers of Python")

    for wrong in (False, True):
        with monkeypatch.context() as patched:
            patched.setitem(BINARY, "&", one_by_one)
            found = copies(4096, rows=4096 - wrong)
        assert found.verdict == ("failed" if wrong else "proved"), found
        if wrong:
            assert found.rules == {"out-of-bounds"}
            assert found.findings[0].participants[0].cta == 4095


def copies(ctas: int, *, rows: int) -> Report:
    """Each CTA stores to a row of its own."""
    text = (
        "ld.param.u64 %rd1, [c]; ld.param.u64 %rd2, [n]; mov.u32 %r0, %ctaid.x;"
        "mov.u32 %r1, %tid.x; mad.lo.s32 %r2, %r0, 32, %r1; cvt.s64.s32 %rd3, %r2;"
        "setp.gt.s64 %p1, %rd2, %rd3; mul.wide.s32 %rd4, %r2, 4; add.s64 %rd5, %rd1, %rd4;\n"
        "@%p1 st.global.u32 [%rd5], %r1;\n"
    )
    return report(
        text, warps=1, grid=ctas, params=(".param .u64 c", ".param .u64 n"),
        values=(Pointer("c", rows * 128), Scalar("n", "s64", ctas * 32)),
    )  # fmt: skip


def test_grids_of_many_ctas(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a hundred CTAs were so many that their values are kept like that."""
    monkeypatch.setattr("tilesim.sim.affine.cluster_values.MANY", 0)
    test_grids.test_a_cta_that_stores_what_another_one_stores()
    test_grids.test_a_cta_that_reads_what_another_one_stores()
    test_grids.test_where_a_copy_of_nothing_would_read_does_not_tell_ctas_apart()
    test_grids.test_a_cta_that_copies_from_beyond_the_buffer(4)
