"""Further faults that were reported in public: found at both levels by their first line, and fixed.

Beside each row, where it was reported. The line that a report names first has ``BUG`` in the
kernel of a few lines that has the same protocol (`tests.kernels.reported`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import pytest

from tilesim import check
from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Strict

from . import reported, reported_blackwell, reported_rings, reported_tiles
from .mutate import line
from .shipping.rows import STRICT


class Fault(NamedTuple):
    """A kernel with a fault: the rule of the first finding, and a text of the line named first."""

    kernel: Kernel
    fault: str
    rule: str
    #: empty: not said here
    text: str
    #: rule and text at `ptx`, where the protocol is undefined before it can go wrong
    ptx: tuple[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.kernel.name}-{self.fault}"


FAULTS = (
    # csarofeen/pytorch#2463
    Fault(reported.commit_after_wait, "late", "race", "# BUG: if the last copy is in no group"),
    # NVIDIA/libcudacxx#77
    Fault(reported.acquires_ahead, "one", "deadlock", "# BUG: if the only stage has yet to be"),
    # pengcuo/FlashMLA-ETAP#3
    Fault(reported.stored_operand_of_all, "fence", "proxy-fence", "# BUG: if no fence follows"),
    Fault(reported.stored_operand_of_all, "barrier", "race", "# BUG: if no barrier precedes"),
    # Dao-AILab/flash-attention#2033
    Fault(reported.one_gives_back, "alone", "race", "# BUG: if nobody waits for this warp"),
    # NVIDIA/cudnn-frontend#426
    Fault(reported.stored_weights, "unasked", "race", "# BUG: if the group has not read"),
    # NVIDIA/cudnn-frontend#575
    Fault(
        reported.gate_of_empty_tiles, "empty", "deadlock", "# BUG: if the load of an earlier tile",
        ("phase-ambiguity", "# BUG: if the load of an earlier tile"),
    ),
    # vllm-project/vllm#8558
    Fault(reported.peer_flags, "one", "deadlock", "# BUG: if the next number overwrites it"),
    # kokkos/kokkos#2681, JuliaGPU/AcceleratedKernels.jl#98
    Fault(reported.look_back, "load", "race", "# BUG: no fence"),
    Fault(reported.look_back, "store", "race", "# BUG: if not fenced"),
    # NVIDIA/Fuser#2391
    Fault(reported.parts_in_turn, "fence", "race", "# BUG: without a fence"),
    # Dao-AILab/flash-attention#1870
    Fault(reported.parts_in_turn, "skips", "deadlock", "# BUG: if one before says nothing"),
    # tile-ai/tilelang#2556, and tile-ai/tilelang#2612
    Fault(reported.some_exchange, "before", "race", "# BUG: if the barrier stands before both"),
    # triton-lang/triton#11411
    Fault(reported.stored_over_a_copy, "early", "race", "# BUG: if the copy may land there"),
    # NVIDIA/cudf#24249
    Fault(reported.scratch_again, "again", "race", "# BUG: if others still read the last sums"),
    # NVIDIA/Fuser#3865
    Fault(reported.waited_by_groups, "own", "race", "# BUG: if the other group still reads"),
    # deepseek-ai/DeepGEMM#448
    Fault(
        reported.operand_in_registers, "reuse", "wgmma-order", "# BUG: if nothing waits for it"
    ),
    # mlc-ai/TIRx-kernels#42
    Fault(
        reported.lagging_waiters, "ahead", "deadlock", "# BUG: if some lag behind",
        ("phase-ambiguity", "# BUG: if some lag behind"),
    ),
    # mlc-ai/TIRx-kernels#6
    Fault(reported.initialised_twice, "groups", "barrier-lifetime", "# BUG: if two warps do"),
    # NVIDIA/TensorRT-LLM#18339
    Fault(reported.leaders_scalar, "rewritten", "race", "# BUG: if others have yet to read"),
    # punica-ai/punica#35
    Fault(reported.uneven_meetings, "uneven", "deadlock", "# BUG: if the other one has no such"),
    # inclusionAI/humming#56
    Fault(reported.peers_staging, "own", "race", "# BUG: if the peer does not say"),
    # deepseek-ai/DeepEP#380
    Fault(reported.channel, "send", "race", "# BUG: if others have not met"),
    Fault(reported.channel, "receive", "race", "# BUG: if its lane has not waited"),
    # NVIDIA/TransformerEngine#3417
    Fault(reported.early_inval, "early", "barrier-lifetime", "# BUG: if others still wait"),
    # sgl-project/sglang#37287
    Fault(reported.partials_over_operand, "early", "race", "# BUG: if it is still read"),
    # flashinfer-ai/flashinfer#5335
    Fault(reported_blackwell.two_uses, "second", "tcgen05-order", "# BUG: if the load is in"),
    # facebookexperimental/triton#1993
    Fault(
        reported_blackwell.stored_by_others, "alias", "tcgen05-order",
        "# BUG: if the other group still loads",
    ),
    # NVIDIA/cudnn-frontend#396
    Fault(reported_blackwell.shared_columns, "drain", "tcgen05-order", ""),
    # facebookexperimental/triton#908
    Fault(
        reported_blackwell.expected_by_both, "one", "deadlock", "# BUG: if the peer expects nothing"
    ),
    # facebookexperimental/CUTracer#106
    Fault(reported_rings.operands_apart, "late", "race", "# BUG: if one is not there"),
    # NVIDIA/Fuser#3561, and NVIDIA/cutlass#2508
    Fault(reported_rings.operands_apart, "flying", "race", ""),
    # NVIDIA/cudnn-frontend#1049
    Fault(reported_rings.rows_by_threads, "own", "race", "# BUG: if only own rows"),
    Fault(reported_rings.rows_by_threads, "others", "race", "# BUG: if the others still store"),
    # NVIDIA/cutlass#2641
    Fault(reported_rings.tiles_left_out, "expects", "deadlock", "# BUG: no arrival"),
    Fault(reported_rings.tiles_left_out, "silent", "deadlock", "# BUG: if there is nothing else"),
    # tile-ai/tilelang#374
    Fault(reported_rings.tiles_left_out, "inside", "deadlock", "# BUG: if the release is one"),
    # a __syncwarp that is missing, as in NVIDIA/cudnn-frontend#426
    Fault(reported_rings.tiles_left_out, "lanes", "race", "# BUG: if other lanes still read"),
    # flashinfer-ai/flashinfer#5048
    Fault(
        reported_rings.bystanders, "stay", "deadlock", "# BUG: if somebody looks whom it does not"
    ),
    # flashinfer-ai/flashinfer-bench#183
    Fault(reported_rings.own_and_shared, "sent", "race", ""),
    # NVIDIA/cutlass#2944
    Fault(reported_rings.refills, "drain", "async-at-exit", "# BUG: if nobody waits for it"),
    # triton-lang/triton#10444
    Fault(reported_rings.flag_behind_a_copy, "read", "race", "# BUG: if only the source"),
    Fault(reported_rings.flag_behind_a_copy, "scope", "race", "# BUG: too small a scope"),
    # marin-community/marin#8311
    Fault(reported_rings.recycled_by_all, "first", "deadlock", "# BUG: if it comes before what"),
    # triton-lang/triton#3858
    Fault(
        reported_rings.bytes_of_a_barrier, "valid", "barrier-lifetime", "# BUG: if the barrier is"
    ),
    # rchardx/hopper-gemm#3
    Fault(reported_rings.halves_for_both, "tail", "peer-exit", "# BUG: if the CTA that has it"),
    # the barriers of FlashAttention-3's epilogue and of CUTLASS's ping-pong kernels
    Fault(reported_rings.stores_for_a_group, "count", "named-barrier", "# BUG: those who arrive"),
    Fault(reported_rings.groups_in_order, "own", "deadlock", "# BUG: if it is its own"),
    # NVlabs/cuda-oxide#1066
    Fault(reported_tiles.one_number, "unasked", "race", "# BUG: if nothing in this turn waits"),
    Fault(reported_tiles.one_number, "early", "race", "# BUG: if it comes before the load"),
    # NVIDIA/cudnn-frontend#569
    Fault(reported_tiles.rescaled, "flying", "tcgen05-order", "# BUG: if nothing waits for it"),
    # tile-ai/tilelang#2644
    Fault(reported_tiles.bytes_of_a_pair, "cluster", "deadlock", "# BUG: as if for all CTAs"),
    # facebookexperimental/triton#762
    Fault(
        reported_tiles.answers_for_both, "own", "deadlock", "# BUG: if only those of one CTA",
        ("phase-ambiguity", ""),
    ),
)  # fmt: skip
RIGHT = tuple({fault.kernel.name: fault.kernel for fault in FAULTS}.values())


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_its_line_is_named_first(fault: Fault, strict: Strict) -> None:
    found = check(fault.kernel.build(fault=fault.fault), strict=strict)
    assert found.verdict == "failed"
    rule, text = (fault.rule, fault.text) if strict == "practice" or not fault.ptx else fault.ptx
    first = found.findings[0]
    assert first.rule == rule
    assert not text or first.locations[0].line == line(fault.kernel, text), found


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.name)
def test_the_fix_is_proved(kernel: Kernel, strict: Strict) -> None:
    report = check(kernel.build(), strict=strict)
    assert (report.verdict, report.findings) == ("proved", ()), report


@pytest.mark.parametrize("strict", STRICT)
def test_a_strided_guard(strict: Strict) -> None:
    """tile-ai/tilelang#2612: the threads that exchange words are every fourth one."""
    assert check(reported.some_exchange.build(every=False), strict=strict).verdict == "proved"
    wrong = check(reported.some_exchange.build(every=False, fault="before"), strict=strict)
    assert wrong.rules == {"race"}


def test_a_fence_of_tensor_memory() -> None:
    """NVIDIA/cudnn-frontend#569: stores are handed on without the fence, which practice accepts."""
    kernel = reported_tiles.rescaled
    first = check(kernel.build(fault="fence"), strict="ptx").findings[0]
    assert first.rule == "tcgen05-order"
    assert first.locations[0].line == line(kernel, "# BUG: without a fence")
    assert check(kernel.build(fault="fence")).verdict == "proved"


def test_a_warp_that_arrives_and_waits_in_one_round() -> None:
    """Dao-AILab/flash-attention#1389: the last of eight warps is counted twice, by choice."""
    kernel = reported_rings.stores_for_its_own
    assert check(kernel.build()).verdict == "proved"
    assert check(kernel.build(), strict="ptx").rules == {"named-barrier"}  # E6
    first = check(kernel.build(fault="count")).findings[0]
    assert first.rule == "deadlock"
    assert first.locations[0].line == line(kernel, "# BUG: once more")


@pytest.mark.parametrize(
    ("kernel", "fault", "repair"),
    [
        (reported_rings.tiles_left_out, "expects", "mbarrier.arrive.expect_tx of 0 bytes instead"),
        (reported_rings.tiles_left_out, "silent", "mbarrier.arrive on full[i % 2] also where"),
        (reported_rings.tiles_left_out, "inside", "elect.sync after the if"),
        (reported_rings.tiles_left_out, "lanes", "bar.warp.sync after ld"),
        (reported_rings.groups_in_order, "own", "barrier order[1] instead of order[0]"),
        (reported_rings.stores_for_its_own, "count", "threads 288 instead of 256"),
        (reported_rings.flag_behind_a_copy, "scope", "scope gpu instead of cta in fence"),
    ],
    ids=lambda value: value.name if isinstance(value, Kernel) else None,
)
def test_the_real_fix_is_suggested_first(kernel: Kernel, fault: str, repair: str) -> None:
    repairs = check(kernel.build(fault=fault), suggest=timedelta(minutes=10)).repairs
    assert repairs is not None
    assert repairs.found[0].what.startswith(repair), repairs
