"""Attention keeps P in the columns of S and overwrites it behind the product that reads it."""

from __future__ import annotations

import inspect
from typing import Literal

import pytest

from tilesim import Builder, Program, bf16, f32
from tilesim.checker import check
from tilesim.lib.tensor_memory import TensorMemory


def scores(*, blocks: int = 3, chained: bool = False) -> Program:
    """S = Q K and O += P V by one thread; ``chained`` feeds S to the second product unread."""
    k = Builder("scores", "sm_100a", 5)
    s_full, p_full, done = k.mbarriers("s_full"), k.mbarriers("p_full"), k.mbarriers("done")
    filled = k.mbarriers("filled")
    memory = TensorMemory(k, 64)
    memory.allocate()
    a, b = k.shared("a", bf16, (128, 16), swizzle=32), k.shared("b", bf16, (32, 16), swizzle=32)
    a_map = k.tensor_map(k.tensor("A", bf16, (128, 16)), (128, 16), swizzle=32)
    b_map = k.tensor_map(k.tensor("B", bf16, (32, 16)), (32, 16), swizzle=32)
    with k.one_thread():
        for barrier, count in ((filled, 1), (s_full, 1), (p_full, 128), (done, 1)):
            k.mbarrier.init(barrier, count)
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(filled, a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, a, (0, 0), filled)
        k.tma.load(b_map, b, (0, 0), filled)
    k.mbarrier.wait(filled, 0)
    at = memory.address()
    s, o = k.tcgen05.tensor(at, f32, (128, 32)), k.tcgen05.tensor(at + 32, f32, (128, 32))
    p = k.tcgen05.tensor(at, bf16, (128, 16), name="p")
    x, y = (
        k.fragment("x", f32, (128, 32), "warpgroup"),
        k.fragment("y", bf16, (128, 16), "warpgroup"),
    )
    with k.role("mma", 4), k.elected():
        k.tcgen05.mma(s, a, b, accumulate=0)  # first
        k.tcgen05.commit(s_full)
        with k.loop(blocks) as i:
            if not chained:
                k.mbarrier.wait(p_full, i & 1)
                k.tcgen05.fence_after_thread_sync()
            k.tcgen05.mma(o, p, b, accumulate=i > 0)  # reads
            with k.if_(i + 1 < blocks):
                k.tcgen05.mma(s, a, b, accumulate=0)  # overwrites
                k.tcgen05.commit(s_full)
        k.tcgen05.commit(done)
    if not chained:
        with k.role("softmax", range(4)), k.loop(blocks) as i:
            k.tile.fill(y, 1.0)
            k.mbarrier.wait(s_full, i & 1)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(x, s)
            k.tcgen05.wait_ld()
            k.tcgen05.st(p, y)
            k.tcgen05.wait_st()
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(p_full)
    k.mbarrier.wait(done, 0)
    memory.free()
    return k.finish()


def line(mark: str) -> int:
    lines, first = inspect.getsourcelines(scores)
    return first + next(n for n, text in enumerate(lines) if text.rstrip().endswith(mark))


def test_in_practice_an_operand_may_be_overwritten_in_issue_order() -> None:
    report = check(scores(), strict="practice")
    assert (report.verdict, report.findings) == ("proved", ())


def test_by_the_text_products_of_different_accumulators_are_unordered() -> None:
    report = check(scores(), strict="ptx")
    assert report.verdict == "failed"
    (finding,) = report.findings
    assert finding.rule == "tcgen05-order"
    assert {(p.role, p.loc.line) for p in finding.participants} == {
        ("mma", line("# reads")), ("mma", line("# overwrites")),
    }  # fmt: skip


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_a_product_is_not_an_operand_before_it_is_complete(
    strict: Literal["practice", "ptx"],
) -> None:
    report = check(scores(blocks=1, chained=True), strict=strict)
    assert report.verdict == "failed"
    found = {f.rule: {(p.role, p.loc.line) for p in f.participants} for f in report.findings}
    assert found["tcgen05-order"] == {("mma", line("# first")), ("mma", line("# reads"))}
