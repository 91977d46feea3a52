"""What threads of a warp do on their own, and barriers whose counts change: right and wrong."""

from __future__ import annotations

import pytest

from tilesim.ir.program import Strict

from .shipping import edges
from .shipping.rows import STRICT, Right, Wrong, assert_clean, assert_found, wrong

RIGHT = (
    Right(edges.row_copies, {"rows": 1}),
    Right(edges.row_copies, {"rows": 8}),
    Right(edges.other_lane),
    Right(edges.gathered),
    Right(edges.permuted, verdict="proved"),
    Right(edges.uneven_groups),
    *(Right(edges.histogram, {"size": size}) for size in (2, 4)),
    *(Right(edges.all_to_all, {"size": size}) for size in (2, 4)),
    *(
        Right(edges.some_peers, {"size": size, "mask": mask, "stages": stages, "n": n})
        for size, mask, stages, n in ((4, 0b0101, 2, 5), (4, 0b1110, 1, 3), (3, 0b110, 3, 4))
    ),
    *(
        Right(edges.leaver, {"stages": stages, "n": n, "until": until})
        for stages, n, until in ((1, 5, 1), (2, 6, 3), (2, 5, 2), (3, 9, 5))
    ),
    Right(edges.recycled),
)
WRONG = (
    wrong(edges.row_copies, "one row", "race", "copy", "k.bulk.load(tile[0 if"),
    wrong(edges.row_copies, "one waits", "race", "next", "# BUG: if a lane's store"),
    wrong(edges.other_lane, "wait", "race", "next", "# BUG: if the store still"),
    wrong(edges.other_lane, "commit", "race", "next", "# BUG: if the store still"),
    wrong(edges.gathered, "one lane", "race", "gather, use", "# BUG: if other lanes'"),
    wrong(edges.permuted, "slot", "race", "gather", "k.cp_async.copy(tile[slot]"),
    wrong(edges.permuted, "in flight", "race", "gather, use", "# BUG: if a copy is in flight"),
    wrong(edges.uneven_groups, "inside", "race", "copy, use", "# BUG: if half of the lanes"),
    wrong(edges.histogram, "no start", "race", "", "k.mem.atomic(bins"),
    wrong(edges.histogram, "own", "race", "", "k.mem.load(count, bins"),
    wrong(edges.histogram, "scope", "race", "", "k.mem.atomic(bins"),
    wrong(edges.all_to_all, "bytes", "deadlock", "", "k.mbarrier.wait(mail"),
    wrong(edges.all_to_all, "early", "race", "", "# BUG: if nobody said"),
    wrong(edges.all_to_all, "exit", "peer-exit", "", "k.mem.load(word, own"),
    wrong(
        edges.some_peers,
        "one free",
        "race",
        "send, receive",
        "k.bulk.load(tile[slot], X[i], landed",
    ),
    wrong(edges.some_peers, "unarmed", "deadlock", "receive", "k.mbarrier.wait(landed"),
    wrong(edges.some_peers, "exit", "peer-exit", "receive", "k.mbarrier.arrive(freed"),
    wrong(edges.leaver, "silent", "deadlock", "producer, stays", "k.mbarrier.wait(vacant"),
    wrong(edges.recycled, "phase", "race", "write, read", "# BUG: if the new barrier"),
    wrong(edges.recycled, "no barrier", "barrier-lifetime", "read", "k.mbarrier.wait(b"),
    wrong(edges.recycled, "live", "barrier-lifetime", "", "k.mbarrier.init(b"),
)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("right", RIGHT, ids=str)
def test_right_kernel_is_clean(right: Right, strict: Strict) -> None:
    assert_clean(right, strict)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("fault", WRONG, ids=str)
def test_fault_is_found(fault: Wrong, strict: Strict) -> None:
    assert_found(fault, strict)
