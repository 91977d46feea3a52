"""`wgmma.mma_async` with columns of a fragment as A, and with B in blocks of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilesim import Builder, InvalidProgram, Program, bf16, f32
from tilesim.checker import check
from tilesim.gpu.emit import emit
from tilesim.ir.text import parse, to_text
from tilesim.ir.verify import diagnose
from tilesim.sim.machine.simulate import simulate

K, N = 48, 128


def product(
    column: int = 0, *, width: int = 64, k_block: int = 16, a_column: Any = None
) -> Program:
    """C (64, 128) = A[:, column : column + 16] @ B; B is kept in blocks of ``width`` columns."""
    k = Builder("product", "sm_90a", 4)
    A, B, C = (
        k.tensor("A", bf16, (64, K)),
        k.tensor("B", bf16, (16, N)),
        k.tensor("C", f32, (64, N)),
    )
    b_map = k.tensor_map(B, (k_block, width), swizzle=128)
    sB = k.shared("sB", bf16, (N // width, k_block, width), swizzle=128)
    full = k.mbarriers("full")
    a = k.fragment("a", bf16, (64, K), "warpgroup")
    c = k.fragment("c", f32, (64, N), "warpgroup")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.fence.mbarrier_init()
        k.mbarrier.arrive_expect_tx(full, N // width * b_map.box_bytes)
        for block in range(N // width):
            k.tma.load(b_map, sB[block], (0, block * width), full)
    k.sync_threads()
    k.mbarrier.wait(full, 0)
    k.tile.load(a, A)
    k.wgmma.fence()
    at = column if a_column is None else a_column
    k.wgmma.mma_async(c, a, sB, accumulate=0, b_trans=True, a_column=at)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)
    k.tile.store(C, c)
    return k.finish()


@pytest.mark.parametrize("column", [0, 16, 32])
def test_a_is_some_columns_and_b_lies_in_blocks(column: int) -> None:
    program = product(column)
    assert check(program).verdict == "proved"
    assert parse(to_text(program)) == program
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((64, K), (16, N)))
    run = simulate(program, {"A": a, "B": b})
    np.testing.assert_array_equal(run.outputs["C"], a[:, column : column + 16] @ b)


def test_registers_and_descriptor() -> None:
    """8 of A's 24 registers per 16 columns; blocks of 16 rows of 128 bytes are 2048 bytes apart."""
    text = emit(product(32)).text
    assert "reinterpret_cast<u32 (&)[4]>(a[16])" in text
    assert "matrix_descriptor(smem + 0, 0, 2048, 1024, 1)" in text


@pytest.mark.parametrize("column", [8, 48, -16])
def test_columns_that_a_does_not_have_are_rejected(column: int) -> None:
    (found,) = diagnose(product(a_column=column))
    assert found.message.startswith(
        f"wgmma.mma_async: A is 16 columns of a from column {column} on, which is no"
    )


def test_a_column_of_a_view_is_rejected() -> None:
    k = Builder("kernel", "sm_90a", 4)
    a, b = (k.shared(name, bf16, (64, 16), swizzle=32) for name in "ab")
    c = k.fragment("c", f32, (64, 64), "warpgroup")
    k.wgmma.fence()
    k.wgmma.mma_async(c, a, b, accumulate=0, a_column=16)
    messages = [found.message.partition(": ")[2] for found in diagnose(k.finish())]
    assert messages == ["a_column is for an A in registers; index the view instead"]


def test_blocks_make_up_n() -> None:
    k = Builder("kernel", "sm_90a", 4)
    a, b = k.shared("a", bf16, (64, 16), swizzle=32), k.shared("b", bf16, (2, 16, 64), swizzle=128)
    c = k.fragment("c", f32, (64, 64), "warpgroup")
    k.wgmma.fence()
    k.wgmma.mma_async(c, a, b, accumulate=0, b_trans=True)
    k.wgmma.mma_async(c, a, b[:, :, 0:32], accumulate=0)
    messages = [found.message.partition(": ")[2] for found in diagnose(k.finish())]
    assert messages == [
        "B is (2, 16, 64), expected (16, 64) (F9)", "B is (2, 16, 32), expected (64, 16) (F9)",
    ]  # fmt: skip


def test_blocks_are_as_wide_as_the_swizzle() -> None:
    k = Builder("kernel", "sm_90a", 4)
    a, b = k.shared("a", bf16, (64, 16), swizzle=32), k.shared("b", bf16, (2, 16, 64), swizzle=128)
    c = k.fragment("c", f32, (64, 64), "warpgroup")
    k.wgmma.fence()
    k.wgmma.mma_async(c, a, b[:, :, 0:32], accumulate=0, b_trans=True)
    with pytest.raises(InvalidProgram, match="are not as wide as the swizzle, 128 bytes"):
        emit(k.finish())
