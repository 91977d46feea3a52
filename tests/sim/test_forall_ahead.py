"""Proofs for every trip count of loops that read ahead, up to the last there is."""

from __future__ import annotations

import pytest

import tilesim as ts
from tilesim.lib import Pipeline, open_cta


def ahead(n: int, *, last: int = 1) -> ts.Program:
    """A ring of rows; the consumer also loads the row of the next turn by itself, after the last
    that one again. With ``last=0`` the row behind the last one."""
    k = ts.Builder("ahead", warps=2)
    data, ring = k.tensor("data", ts.f32, (n, 32)), k.shared("ring", ts.f32, (2, 32))
    row = k.fragment("row", ts.f32, (1, 32))
    pipe = Pipeline(k, 2)
    open_cta(k, pipe)
    with k.role("load", 0), k.elected(), k.loop(n) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(128)
        k.bulk.load(ring[slot.stage], data[i], slot.full)
    with k.role("use", 1), k.loop(n) as i:
        slot = pipe[i]
        k.tile.load(row, data[ts.minimum(i + 1, n - last)])
        slot.wait()
        with k.elected():
            slot.release()
    return k.finish()


def test_what_is_read_ahead_ends_with_the_data() -> None:
    """In the last turn both operands of the minimum are the same, and grow alike with ``n``."""
    report = ts.check(ahead, for_all={"n": None})
    assert report.for_all is not None
    assert report.for_all.proved


@pytest.mark.parametrize("values", [None, "3..9"])
def test_a_row_behind_the_last_is_found(values: str | None) -> None:
    report = ts.check(lambda n: ahead(n, last=0), for_all={"n": values})
    assert report.verdict == "failed"
    assert report.rules == {"out-of-bounds"}
