"""Which accesses of a memory are compared: as many as by a list of all of them, byte by byte.

So are those of clusters, each of which accesses what one does, moved."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from tilesim.proof.memory import Memory, Record, Where, apart
from tilesim.proof.rules import NotCovered, Refuted

NBYTES, ACCESSES = 24, 30


class Listed:
    """What a `Memory` does, with a list of all accesses, and the bytes of each that count."""

    def __init__(self) -> None:
        self.last: dict[int, int] = {}
        self.beside: list[tuple[int, bool, set[int]]] = []

    def access(self, number: int, at: set[int], kind: str, before: set[int]) -> bool:
        """Whether the access comes after all that it conflicts with: those ``before`` it. What
        comes after a read comes after the write before that."""
        write = kind != "read"
        met = [x for x, wrote, own in self.beside if (write or wrote) and own & at]
        vouched = {byte for _, wrote, own in self.beside if write and not wrote for byte in own}
        met += [self.last[byte] for byte in at - vouched if byte in self.last]
        if not set(met) <= before:
            return False
        if kind == "write":
            self.beside = [(x, wrote, own - at) for x, wrote, own in self.beside]
            self.last |= dict.fromkeys(at, number)
        else:
            self.beside.append((number, write, at))
        return True


def _some_bytes(random: Random) -> list[int]:
    first, step = random.randrange(NBYTES), random.choice((1, 1, 2, 3))
    at = list(range(first, NBYTES, step))[: random.randrange(1, 8)]
    return random.choice((at, at, at[::-1]))


@pytest.mark.parametrize("number", range(100))
def test_accesses_are_compared_with_all_that_count(number: int) -> None:
    random, memory, listed = Random(number), Memory("it", NBYTES), Listed()
    wrong = random.choice((0, 0.01, 0.05))
    shapes = [_some_bytes(random) for _ in range(5)]
    for n in range(ACCESSES):
        at, kind = random.choice(shapes), random.choice(("read", "read", "write", "strong"))
        before = {x for x in range(n) if random.random() >= wrong}
        strong = (4, "cta") if kind == "strong" else None
        where = Where(n, "it", 0, 0)
        record = Record(np.array(at), kind != "read", "async", strong, where)

        def ordered(_y: Record, x: Record, _own: Any, _theirs: Any, some: Any = before) -> bool:
            return x.where.number in some

        expected = listed.access(n, set(at), kind, before)
        try:
            memory.access(record, ordered)
        except (Refuted, NotCovered):
            assert not expected
            return
        assert expected


@pytest.mark.parametrize("number", range(200))
def test_what_clusters_access_is_compared(number: int) -> None:
    random = Random(number)
    forms = [("read", None), ("read", None), ("write", None), ("atomic", (4, "gpu"))]
    accessed: dict[int, list[tuple[int, set[object]]]] = {}
    some, clusters = [], 0
    for _ in range(random.randrange(1, 4)):
        memory, how = Memory("it", 4 * NBYTES, shared_by_clusters=True), dict[int, set[object]]()
        for n in range(random.randrange(3)):
            at, (kind, strong) = _some_bytes(random), random.choice(forms)
            y = Record(np.array(at), kind != "read", "async", strong, Where(n, "it", 0, 0))
            memory.access(y, lambda *_: True)
            for byte in at:
                how.setdefault(byte, set()).add(kind)
        moves = [0, *random.sample(range(1, 3 * NBYTES), random.randrange(3))]
        some.append(memory.ranges(np.array(moves)))
        for by in moves:
            clusters += 1
            for byte, kinds in how.items():
                accessed.setdefault(byte + by, []).append((clusters, kinds))
    meets = any(len(found) > 1 and set[object]().union(*(kinds for _, kinds in found)) not in
                ({"read"}, {"atomic"}) for found in accessed.values())  # fmt: skip
    if meets:
        with pytest.raises(Refuted):
            apart("it", some, exact=True)
    else:
        apart("it", some, exact=True)
