"""Faults that were reported in public: found at both levels, and their fixes are proved.

Beside each row, where it was reported. A kernel of a few lines has the same protocol
(`tests.kernels.published`), and a finding names its line with ``BUG``.
"""

from __future__ import annotations

import pytest

from tilesim import InvalidProgram, check
from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Strict

from . import published
from .shipping.rows import STRICT, Right, Wrong, assert_clean, assert_found, wrong

RIGHT = (
    *(
        Right(each)
        for each in (
            published.tile_without_keys,
            published.pairs_and_group,
            published.clamped_box,
            published.work_numbers,
            published.copy_by_one,
            published.copy_ring,
            published.staged_waves,
            published.fused_residual,
            published.split_barrier,
            published.table_and_rows,
            published.filled_tail,
            published.last_accumulator,
            published.late_allocation,
            published.answer_as_barrier,
            published.answers_to_all,
            published.stored_in_turn,
            published.two_groups,
            published.both_sides,
        )
    ),
    Right(published.grid_rounds, verdict="exhausted"),
    # hidden: the tile is no larger than the box, one CTA, a store that has read before
    Right(published.clamped_box, {"rows": 16, "fault": "tile"}),
    Right(published.split_barrier, {"splits": 1, "cooperative": False}),
    Right(published.copy_ring, {"n": 2, "fault": "pending"}),
    Right(published.stored_in_turn, {"n": 2, "fault": "own"}),
)
WRONG = (
    # vllm-project/vllm#26026
    wrong(
        published.tile_without_keys,
        "arrive",
        "named-barrier",
        "compute",
        "# BUG: if nobody waits for the last tile",
    ),
    # flashinfer-ai/flashinfer#4533
    wrong(
        published.pairs_and_group, "id", "named-barrier", "softmax", "# BUG: if a pair has this id"
    ),
    # mirage-project/mirage#705
    wrong(published.clamped_box, "tile", "deadlock", "use", "# BUG: if the tile is larger"),
    # PyFR/GiMMiK#23
    wrong(
        published.work_numbers,
        "lap",
        "race",
        "producer, consumer",
        "# BUG: if the last number may still be read",
    ),
    # NVIDIA/cccl#6601
    wrong(
        published.copy_by_one, "arrives", "over-arrival", "", "# BUG: if one has arrived already"
    ),
    # deepseek-ai/DeepEP#657
    wrong(published.copy_ring, "pending", "race", "", "# BUG: if the store still reads"),
    # tile-ai/TileOPs#1550, and NVIDIA/Fuser#5448
    wrong(
        published.staged_waves, "refill", "race", "group", "# BUG: if the last wave is still read"
    ),
    wrong(published.staged_waves, "open", "race", "group", "# BUG: if the last wave is still read"),
    # flashinfer-ai/flashinfer#5081
    wrong(
        published.fused_residual, "early", "race", "", "# BUG: if the grid before still writes it"
    ),
    # NVIDIA/TensorRT-LLM#14376
    Wrong(
        published.split_barrier,
        {"cooperative": False},
        "deadlock",
        frozenset(),
        "# BUG: if another CTA may not have started",
    ),
    # tile-ai/tilelang#2319, NVIDIA/cuml#458
    wrong(
        published.grid_rounds, "counter", "deadlock", "", "# BUG: if the next round may have begun"
    ),
    # NVIDIA/Fuser#3428
    wrong(
        published.table_and_rows, "barrier", "race", "first", "# BUG: if only a barrier came before"
    ),
    # NVIDIA/Fuser#2005
    wrong(published.filled_tail, "tail", "race", "", "# BUG: if zeros are still to come"),
    # NVIDIA/cutlass#3652, vllm-project/flash-attention#182
    wrong(
        published.last_accumulator,
        "ld",
        "tmem-lifetime",
        "epilogue, mma",
        "# BUG: if a load is in flight",
    ),
    # mlc-ai/TIRx-kernels#7
    wrong(
        published.late_allocation,
        "late",
        "race",
        "epilogue, mma",
        "# BUG: if no barrier followed the allocation",
    ),
    # triton-lang/triton#10926
    wrong(
        published.answer_as_barrier,
        "peer",
        "race",
        "consumer, scheduler",
        "# BUG: if only the asker waited for the reader",
    ),
    # of the same kind: the peer's next word says that it was sent, not that the last one was read
    wrong(published.both_sides, "free", "race", "", "# BUG: if it is read"),
    # triton-lang/triton#10922
    wrong(
        published.answers_to_all, "two", "race", "reader, scheduler", "# BUG: if a CTA still reads"
    ),
    # the same in a warp of its own
    wrong(
        published.stored_in_turn, "own", "race", "math, store", "# BUG: if its store has not read"
    ),
)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("right", RIGHT, ids=str)
def test_fix_is_clean(right: Right, strict: Strict) -> None:
    assert_clean(right, strict)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("fault", WRONG, ids=str)
def test_fault_is_found(fault: Wrong, strict: Strict) -> None:
    assert_found(fault, strict)


def test_another_group_is_refused_before_it_runs() -> None:
    """tile-ai/tilelang#2287."""
    with pytest.raises(InvalidProgram, match=r"cta_group::1 in a kernel that has .*cta_group::2"):
        check(published.two_groups.build(fault="commit"))


@pytest.mark.parametrize(
    ("kernel", "fault", "sends"),
    [
        (published.answer_as_barrier, "peer", "clusterlaunchcontrol.try_cancel"),
        (published.both_sides, "free", "st.async"),
    ],
)
def test_bytes_hand_over_themselves(kernel: Kernel, fault: str, sends: str) -> None:
    """What is named first is who was taken to hand on, not a wait that is there."""
    finding = check(kernel.build(fault=fault)).findings[0]
    assert finding.cause.startswith(f"the bytes that {sends} completes on")
    assert [p.action.split()[0] for p in finding.culprits] == ["sends", "waits"]
