"""What a verdict says it covers."""

from __future__ import annotations

import numpy as np
import pytest

from tilesim import Builder, Program, s32
from tilesim.checker import check


def cluster(size: int) -> Program:
    k = Builder("cluster", warps=1)
    k.launch(grid=2 * size, cluster=size)
    k.cluster.sync()
    return k.finish()


@pytest.mark.parametrize(("size", "portable"), [(2, True), (8, True), (16, False)])
def test_clusters_beyond_eight_ctas_are_flagged(size: int, portable: bool) -> None:
    report = check(cluster(size))
    assert report.verdict == "proved"
    assert f"all 2 clusters of {size} CTAs" in report.covers
    assert ("not portable" in report.covers) is not portable


def steered() -> Program:
    """Waits for ever if the first word of X is not zero."""
    k = Builder("steered", warps=1)
    X, seen, b = k.tensor("X", s32, (1,)), k.var("seen", 0), k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 2)
        k.mem.load(seen, X[0])
        with k.if_(seen.ne(0)):
            k.mbarrier.wait(b, 0)
        k.mbarrier.arrive(b)
    return k.finish()


def test_inputs_that_steer_are_named_and_never_assumed() -> None:
    open_ = check(steered())
    assert open_.verdict == "bounded"
    assert any("contents of X" in reason for reason in open_.reasons)
    zero = check(steered(), inputs={"X": np.zeros(1, np.int32)})
    assert zero.verdict == "proved"
    assert "for these contents of X" in zero.covers
    one = check(steered(), inputs={"X": np.ones(1, np.int32)})
    assert one.rules == {"deadlock"}
