"""Attention keeps P in the columns of S and overwrites it behind the product that reads it."""

from __future__ import annotations

import inspect

import pytest

from tests.kernels.evidence import at
from tilesim import Builder, Program, bf16, ds, f32, kernel, u32
from tilesim.checker import check
from tilesim.checker.certificates import certified
from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Strict
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


def test_a_product_is_not_an_operand_before_it_is_complete() -> None:
    report = check(scores(blocks=1, chained=True))
    assert report.verdict == "failed"
    found = {f.rule: {(p.role, p.loc.line) for p in f.participants} for f in report.findings}
    assert found["tcgen05-order"] == {("mma", line("# first")), ("mma", line("# reads"))}


# Clusters on one SM share its tensor memory (G6): what each of them may wait for.


@kernel(warps=1, target="sm_100a")
def in_two_pieces(k: Builder, *, ctas: int = 2, columns: int = 256) -> None:
    """Each CTA holds columns while it asks for as many again."""
    k.launch(grid=ctas)
    slot, address = k.shared("slot", u32, (2,)), [k.var(f"a{i}", dtype=u32) for i in range(2)]
    for i in range(2):
        k.tcgen05.alloc(slot[ds(i, 1)], columns)
        k.mem.load(address[i], slot[i])
    for i in range(2):
        k.tcgen05.dealloc(address[i], columns)


@kernel(warps=16, target="sm_100a")
def in_a_cluster(k: Builder, *, clusters: int = 16, columns: int = 256, kib: int = 1) -> None:
    """A CTA holds columns until the other one of its cluster has some."""
    k.launch(grid=2 * clusters, cluster=2)
    k.shared("rest", u32, (kib * 256,))
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    with k.role("W0", 0):
        k.tcgen05.alloc(slot, columns)
        k.mem.load(address, slot[0])
    k.cluster.sync()
    with k.role("W0", 0):
        k.tcgen05.dealloc(address, columns)


@pytest.mark.parametrize(
    ("program", "right"),
    [(in_two_pieces, {"ctas": 1}), (in_two_pieces, {"columns": 32}),
     (in_a_cluster, {"clusters": 1}), (in_a_cluster, {"columns": 128})],
)  # fmt: skip
def test_columns_that_clusters_on_an_sm_may_hold_from_each_other(
    program: Kernel, right: dict[str, int]
) -> None:
    """G6: each cluster can end by itself, two on an SM may wait for each other for ever."""
    report = check(program.build())
    assert report.verdict == "bounded"
    (why,) = report.reasons
    assert why.startswith("whether CTAs of other clusters on its SM leave columns for a tcgen05")
    assert check(program.build(**right), strict="ptx").verdict == "proved"


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize(
    ("launch", "spread"),
    [({"columns": 512}, True), ({"columns": 256}, False), ({"columns": 512, "kib": 120}, False)],
)  # fmt: skip
def test_ctas_of_a_cluster_are_taken_to_be_on_different_sms(
    launch: dict[str, int], spread: bool, strict: Strict
) -> None:
    """Where two of them fit on one SM and fill its columns, the proof says that it leans on it."""
    report = check(in_a_cluster.build(clusters=1, **launch), strict=strict)
    assert report.verdict == "proved"
    lines = {(one.name, loc.line) for one in report.leanings for loc in one.locs}
    alloc = ("cluster-spread", at(in_a_cluster, "k.tcgen05.alloc(slot, columns)"))
    assert [one for one in lines if one[0] == "cluster-spread"] == [alloc] * spread
    assert certified(in_a_cluster.build(clusters=1, **launch), strict, (), None)[1].verdict == (
        "not covered" if spread else "certified"
    )
