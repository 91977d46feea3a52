"""Products of a warpgroup that follow each other are one step: findings and records are of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilesim import Builder, Program, bf16, f32
from tilesim.checker import check
from tilesim.sim.machine.simulate import simulate
from tilesim.sim.observers.timeline import record
from tilesim.transforms.lower import lower

K = 64
#: lines of the products, from the first
PRODUCTS = 4


def product(*, third: str = "right") -> tuple[Program, int]:
    """C (64, 64) = A @ B.T in four products, and the line of the first one.

    The ``third`` is "right", has its B where the number of the "warp" says, or is "outside" of B
    from the second turn on.
    """
    k = Builder("product", "sm_90a", 4)
    A, B = k.tensor("A", bf16, (64, K)), k.tensor("B", bf16, (64, K))
    C = k.tensor("C", f32, (64, 64))
    a_map, b_map = k.tensor_map(A, (64, K), swizzle=128), k.tensor_map(B, (64, K), swizzle=128)
    a = k.shared("a", bf16, (64, K), swizzle=128)
    b = k.shared("b", bf16, (2, 64, K), swizzle=128)
    full = k.mbarriers("full")
    c = k.fragment("c", f32, (64, 64), "warpgroup")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.fence.mbarrier_init()
        k.mbarrier.arrive_expect_tx(full, a_map.box_bytes + 2 * b_map.box_bytes)
        k.tma.load(a_map, a, (0, 0), full)
        for copy in range(2):
            k.tma.load(b_map, b[copy], (0, 0), full)
    k.sync_threads()
    k.mbarrier.wait(full, 0)
    with k.loop(2, name="turn") as turn:
        half: Any = {"right": 0, "warp": k.warp_id & 1, "outside": 2 * turn}[third]
        k.wgmma.fence()
        k.wgmma.mma_async(c, a[:, 0:16], b[0, :, 0:16], accumulate=0)
        k.wgmma.mma_async(c, a[:, 16:32], b[0, :, 16:32], accumulate=1)
        k.wgmma.mma_async(c, a[:, 32:48], b[half, :, 32:48], accumulate=1)
        k.wgmma.mma_async(c, a[:, 48:64], b[0, :, 48:64], accumulate=1)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)
    k.tile.store(C, c)
    program = k.finish()
    lines = [op.loc.line for op in lower(program).ops() if op.mnemonic == "wgmma.mma_async"]
    assert len(lines) == PRODUCTS
    return program, lines[0]


def test_products_in_a_row_are_right() -> None:
    program, _ = product()
    assert check(program).verdict == "proved"
    rng = np.random.default_rng(0)
    inputs = {name: rng.integers(-3, 4, (64, K)).astype(np.float32) for name in "AB"}
    run = simulate(program, inputs)
    np.testing.assert_array_equal(run.outputs["C"], inputs["A"] @ inputs["B"].T)
    assert run.stats == simulate(program, numbers=False).stats


@pytest.mark.parametrize(
    ("third", "rule", "message"),
    [
        ("warp", "participation", "execute wgmma.mma_async on different shared operands"),
        ("outside", "out-of-bounds", "elements 2..2 of dimension 0 of b, which has 2"),
    ],
)
def test_a_finding_names_the_product_that_it_is_about(third: str, rule: str, message: str) -> None:
    program, line = product(third=third)
    report = check(program)
    (found,) = report.findings
    assert (report.verdict, found.rule) == ("failed", rule)
    assert message in found.message
    assert {who.loc.line for who in found.participants} == {line + 2}


def test_each_product_is_recorded() -> None:
    program, line = product()
    (timeline,) = record(program).timelines
    slices = [s for s in timeline.slices if s.name == "wgmma.mma_async" and s.kind == "run"]
    per_line = [sum(s.loc.line == line + n for s in slices) for n in range(PRODUCTS)]
    assert per_line == [2 * 4] * PRODUCTS
