"""The Hopper matmuls of other operands: FP8 with scales, and groups of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilesim.checker import check
from tilesim.errors import UsageError
from tilesim.ir.expr import Const
from tilesim.ir.ops.bulk import BulkCommitGroup
from tilesim.ir.program import If, Program, Stmt, rewrite
from tilesim.kernels.hopper import matmul_fp8, matmul_fp8_blocks, matmul_grouped
from tilesim.sim.machine.simulate import simulate

from .evidence import participating
from .mutate import Arrays, changed, inputs, line

ONE = {"ctas": 1, "m": 256}


def wrong(program: Program, given: Arrays, expected: Arrays) -> Any:
    """Which elements of C differ."""
    run = simulate(program, given)
    assert run.findings == ()
    return run.outputs["C"] != expected["C"]


def of(kernel: Any, **params: Any) -> tuple[Program, Arrays, Arrays]:
    """A kernel with its inputs and the results that are expected."""
    program = kernel.build(**params)
    given = inputs(kernel, program, params)
    return program, given, kernel.reference(given, **{**kernel.params, **params})


# ------------------------------------------------------------------ scales of rows and columns


def test_scales_of_rows_are_for_the_rows_and_those_of_columns_for_the_columns() -> None:
    program, given, expected = of(matmul_fp8.matmul, **ONE)
    given["SA"][70] *= 2
    given["SB"][0, 9] *= 2
    rows, columns = np.nonzero(wrong(program, given, expected))
    assert set(rows[columns != 9]) == {70}
    assert set(columns[rows != 70]) == {9}


def test_a_k_tile_of_fp8_has_twice_the_elements_in_the_same_bytes() -> None:
    program = matmul_fp8.matmul.build(**ONE)
    halved = changed(program, "mbarrier.arrive.expect_tx", bytes=Const(16384))
    assert "race" in check(halved).rules
    assert sum(m.box_bytes for m in program.maps[:2]) == 32768


# ------------------------------------------------------------------ scales of blocks


def test_scales_of_blocks_change_with_the_k_tile() -> None:
    program, given, expected = of(matmul_fp8_blocks.matmul, **ONE, depth=256)
    given["A"][5, :128] = 0
    expected = matmul_fp8_blocks.reference(given)
    given["SA"][0, 5] *= 4  # of zeros
    assert not np.any(wrong(program, given, expected))
    given["SA"][1, 5] *= 4
    assert set(np.nonzero(wrong(program, given, expected))[0]) == {5}
    given["SA"][1, 5] /= 4
    given["SB"][1, 0] *= 4
    assert set(np.nonzero(wrong(program, given, expected))[1]) == set(range(128, 256))


# ------------------------------------------------------------------ groups


@pytest.mark.parametrize(
    ("sizes", "ctas"), [((1,), 1), ((65, 63, 129), 5), ((0, 0, 5), 5), ((200, 0, 0, 56), 2)]
)
def test_groups_of_any_height_are_computed(sizes: tuple[int, ...], ctas: int) -> None:
    program, given, expected = of(
        matmul_grouped.matmul, sizes=sizes, ctas=ctas, depth=64, n=128, stages=2
    )
    assert not np.any(wrong(program, given, expected))


def test_other_heights_need_no_other_kernel() -> None:
    """Where groups end is read from memory."""
    program, given, _ = of(matmul_grouped.matmul, sizes=(100, 60, 96), depth=64, n=128)
    given["ends"] = np.array([7, 200, 256], np.int32)
    assert check(program, inputs=given).verdict == "proved"
    assert not np.any(wrong(program, given, matmul_grouped.reference(given)))


def _guards(program: Program, text: str) -> Program:
    """The kernel with the conditions of one line always met."""

    def visit(stmt: Stmt) -> tuple[Stmt, ...]:
        at = line(matmul_grouped.matmul, text)
        return (
            (replace(stmt, cond=Const(1)),)
            if isinstance(stmt, If) and stmt.loc.line == at
            else (stmt,)
        )

    return replace(program, body=rewrite(program.body, visit))


def test_a_tile_that_is_stored_whole_reaches_into_the_next_group() -> None:
    program, given, _ = of(matmul_grouped.matmul, sizes=(100, 156), depth=64, n=128)
    whole = _guards(program, "with k.if_(row + ROWS <= end):")
    race = next(f for f in check(whole, inputs=given).findings if f.rule == "race")
    assert line(matmul_grouped.matmul, "k.tma.store(self.c_map") in participating(race)


def test_rows_that_threads_store_end_with_the_group() -> None:
    program, given, _ = of(matmul_grouped.matmul, sizes=(100, 156), depth=64, n=128)
    every = _guards(program, "with k.if_(row + own + start < end):")
    race = next(f for f in check(every, inputs=given).findings if f.rule == "race")
    assert line(matmul_grouped.matmul, "k.mem.store_vector(self.C") in participating(race)


def test_a_piece_that_threads_store_counts_as_a_group_of_copies() -> None:
    """Without an empty group for it, the ring waits for too few of the copies before."""
    program, given, _ = of(matmul_grouped.matmul, sizes=(192, 64), depth=64, n=128, ctas=1)

    def visit(stmt: Stmt) -> tuple[Stmt, ...]:
        if isinstance(stmt, BulkCommitGroup):
            return ()
        if isinstance(stmt, If) and stmt.loc.line == line(
            matmul_grouped.matmul, "row + ROWS <= end"
        ):
            return (replace(stmt, then=(*stmt.then, commit)),)
        return (stmt,)

    commit = BulkCommitGroup()
    late = replace(program, body=rewrite(program.body, visit))
    race = next(f for f in check(late, inputs=given).findings if f.rule == "race")
    assert participating(race) == [
        line(matmul_grouped.matmul, "k.tile.store(piece"),
        line(matmul_grouped.matmul, "k.tma.store(self.c_map"),
    ]


@pytest.mark.parametrize("sizes", [(), (0, 0), (4, -1)])
def test_groups_without_rows_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="groups have 0 rows or more, one of them has some"):
        matmul_grouped.matmul.build(sizes=sizes)
