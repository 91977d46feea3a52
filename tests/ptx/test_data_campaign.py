"""Random kernels with branches on data: what is proved of them holds whatever the data is."""

from __future__ import annotations

import pytest

from tests.ptx.data_campaign import judged, kernel


@pytest.mark.parametrize("seed", [0, 1003, 1006, 1008, 1011])
def test_no_words_contradict_a_proof(seed: int) -> None:
    found = judged(seed, 2, ctas=1 + seed % 2)
    assert not found.wrong
    assert found.said in ("proved", "bounded", "failed")


def test_kernels_have_branches_and_loops_in_branches() -> None:
    texts = [kernel(seed) for seed in range(40)]
    for part in ("bra", "ret;", "%p3 bra", "atom.shared", "bar.warp.sync"):
        assert any(part in text for text in texts)
