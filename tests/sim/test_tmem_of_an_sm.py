"""Clusters on one SM share its tensor memory (G6): what each of them may wait for."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at
from tilesim import Builder, ds, kernel, u32
from tilesim.checker import check
from tilesim.checker.certificates import certified
from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Strict


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


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize(
    ("program", "right"),
    [(in_two_pieces, {"ctas": 1}), (in_two_pieces, {"columns": 32}),
     (in_a_cluster, {"clusters": 1}), (in_a_cluster, {"columns": 128})],
)  # fmt: skip
def test_columns_that_clusters_on_an_sm_may_hold_from_each_other(
    program: Kernel, right: dict[str, int], strict: Strict
) -> None:
    """G6: each cluster can end by itself, two on an SM may wait for each other for ever."""
    report = check(program.build(), strict=strict)
    assert report.verdict == "bounded"
    (why,) = report.reasons
    assert why.startswith("whether CTAs of other clusters on its SM leave columns for a tcgen05")
    assert check(program.build(**right), strict=strict).verdict == "proved"


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
