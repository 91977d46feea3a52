"""The solver against going round until nothing changes, on random graphs."""

from __future__ import annotations

from operator import or_
from random import Random

import pytest

from tilesim.analysis.cfg import reverse_postorder
from tilesim.analysis.solver import Worklist, bits, closure, states


def graph(rng: Random) -> list[list[int]]:
    size = rng.randrange(1, 9)
    return [rng.sample(range(size), rng.randrange(min(3, size) + 1)) for _ in range(size)]


@pytest.mark.parametrize("seed", range(60))
def test_what_holds_before_each_node(seed: int) -> None:
    rng = Random(seed)
    after = graph(rng)
    order, size = reverse_postorder(after, 0), len(after)
    before = [[n for n in order if node in after[n]] for node in range(size)]
    kept, added = ([rng.randrange(16) for _ in after] for _ in range(2))
    held = dict.fromkeys(order, 0)
    for _ in range(5 * size):
        for node in order:
            for other in before[node]:
                held[node] |= held[other] & kept[other] | added[other]
    found = bits(order, before, kept, added)
    assert {node: found[node] for node in order} == held
    assert states(order, after, lambda n, s: s & kept[n] | added[n], or_, 0) == held
    assert closure([0], after.__getitem__) == {*order}


def test_a_worklist_begins_again_where_something_has_grown() -> None:
    work, seen = Worklist([3, 1, 2]), []
    for node in work:
        seen.append(node)
        if len(seen) == 3:
            work.again((1, 3))
    assert seen == [3, 1, 2, 3, 1]
    assert [*Worklist([])] == []
