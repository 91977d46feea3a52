"""Values of all clusters kept as sums of a column and a row are what they are number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ptx import test_grids
from tilesim.ptx.arithmetic import operation
from tilesim.ptx.lanes import apply
from tilesim.ptx.many import apply_many
from tilesim.sim.expression import ARRAY_BINARY
from tilesim.sim.sums import Column, Sums, combined

LANES = np.arange(32, dtype=np.int64)
NONE = np.zeros(1, dtype=np.int64)


def sums(rng: np.random.Generator, clusters: int = 5) -> Sums:
    """Aligned or not, negative or not, with lanes or without."""
    scale = int(rng.choice([1, 1, 32, 96, 1 << 11, 1 << 40]))
    column = rng.integers(-3 if rng.random() < 0.3 else 0, 50, clusters) * scale
    rows = (NONE, LANES, LANES * 4, LANES - 7, LANES // 8 + 3, LANES * (1 << 30))
    return Sums(Column(column.astype(np.int64)), rows[rng.integers(len(rows))])


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


def test_grids_of_many_ctas(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a hundred CTAs were so many that their values are kept like that."""
    monkeypatch.setattr("tilesim.sim.grid.mirror.MANY", 0)
    test_grids.test_a_cta_that_stores_what_another_one_stores()
    test_grids.test_a_cta_that_reads_what_another_one_stores()
    test_grids.test_where_a_copy_of_nothing_would_read_does_not_tell_ctas_apart()
    test_grids.test_a_cta_that_copies_from_beyond_the_buffer(4)
