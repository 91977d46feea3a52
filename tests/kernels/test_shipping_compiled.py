"""Protocols that compilers generate are clean; the faults that were reported in them are found."""

from __future__ import annotations

import pytest

from tilesim.checker import check
from tilesim.ir.program import Strict

from .shipping import compiled
from .shipping.rows import STRICT, Right, Wrong, assert_clean, assert_found, rings, wrong

POLLS = ("try_wait", "test_wait")
RIGHT = (
    *rings(compiled.leader),
    *(
        Right(compiled.leader, {"n": n, "poll": p})
        for n in (1, 5)
        for p in ("try_wait", "test_wait")
    ),
    *rings(compiled.store_token),
    *(
        Right(compiled.mosaic, {"tiles": t, "depth": d, "steps": s})
        for t, d, s in ((1, 1, 2), (2, 3, 2), (3, 2, 2), (5, 3, 1))
    ),
    *(Right(compiled.shared_columns, {"n": n}) for n in (1, 3)),
    *(
        Right(compiled.output_over_input, {"tiles": t, "depth": d, "stages": s})
        for t, d, s in ((1, 3, 2), (3, 3, 2), (3, 4, 3), (2, 2, 1))
    ),
    *(Right(compiled.previous_slot, {"stages": s, "n": n}) for s in (2, 3) for n in (0, 1, s, 7)),
    *(Right(compiled.predicated_rows, {"rows": r}) for r in (1, 4, 5, 9)),
    Right(compiled.predicated_rows, {"rows": 4, "fault": "wait"}),
    Right(compiled.three_roles),
    *(Right(compiled.pair_masks, {"pairs": p}) for p in (1, 2)),
    # hidden: the first uses of the slots, or stages enough
    Right(compiled.leader, {"stages": 3, "n": 3, "fault": "no barrier"}),
    Right(compiled.store_token, {"stages": 2, "n": 5, "fault": "wait first"}),
    Right(compiled.mosaic, {"tiles": 2, "fault": "not stored"}),
    Right(compiled.output_over_input, {"tiles": 2, "depth": 3, "fault": "iteration"}),
)
WRONG = (
    wrong(compiled.leader, "no barrier", "phase-alias", "consumer, producer", "# BUG: if a warp i"),
    *(
        wrong(compiled.leader, "no barrier", "phase-alias", "consumer, producer",
              "# BUG: if a warp polls", poll=poll)
        for poll in POLLS
    ),
    wrong(compiled.store_token, "wait first", "deadlock", "epilogue, store", "# BUG: if its slot"),
    wrong(compiled.mosaic, "late", "over-arrival", "load", "# BUG: if it is in use", tiles=3),
    wrong(compiled.mosaic, "not stored", "tcgen05-order", "mma", "# BUG: if read", tiles=3),
    wrong(compiled.shared_columns, "no barrier", "tcgen05-order", "compute 0, compute 1",
          "# BUG: if the other warps' P"),
    wrong(compiled.output_over_input, "iteration", "race", "producer", "# BUG: if it is stored"),
    wrong(compiled.previous_slot, "all warps", "deadlock", "producer", "# BUG: if a warp that"),
    wrong(compiled.previous_slot, "this slot", "race", "producer", "# BUG: if it is multiplied"),
    wrong(compiled.previous_slot, "", "deadlock", "producer, consumer", "# BUG: if a warp that",
          stages=1),
    wrong(compiled.predicated_rows, "wait", "deadlock", "compute 1", "# BUG: if the row"),
    wrong(compiled.pair_masks, "mask", "deadlock", "", "# BUG: if other pairs signal it"),
)  # fmt: skip


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("right", RIGHT, ids=str)
def test_compiled_protocol_is_clean(right: Right, strict: Strict) -> None:
    assert_clean(right, strict)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("fault", WRONG, ids=str)
def test_fault_of_compiler_is_found(fault: Wrong, strict: Strict) -> None:
    assert_found(fault, strict)


@pytest.mark.parametrize(("strict", "verdict"), [("practice", "proved"), ("ptx", "failed")])
def test_one_line_in_three_roles_is_three_aligned_barriers(strict: Strict, verdict: str) -> None:
    """A Python loop over roles writes an instruction for each of them (U16)."""
    report = check(compiled.three_roles.build(aligned=True), strict=strict)
    assert report.verdict == verdict
    assert report.rules == (frozenset() if verdict == "proved" else {"participation"})
