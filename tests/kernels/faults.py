"""Kernels with faults: right ones, and each with one thing wrong. Comments name the reports.

They are a corpus, whose file says what is found in each of them (`tests.verdicts`). Most have a
parameter ``fault``; what is wrong is marked with ``BUG`` in the kernel, or with ``@`` and the fault
if it is what is to be changed first.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesim.dsl.kernel import Kernel

from . import (
    mistakes,
    more_blackwell,
    more_hopper,
    more_memory,
    pipeline_mistakes,
    published,
    reported,
    reported_blackwell,
    reported_rings,
    reported_tiles,
    styles,
    styles_blackwell,
    variants,
    variants_blackwell,
)
from .shipping import blackwell, compiled, edges, library, memory, pipelines

Params = Mapping[str, Any]
ROWS = np.array([3, 0, 7, 7, 15, 2, 1], dtype=np.int32)


@dataclass(frozen=True)
class Variant:
    """A kernel with parameters: what its tensors hold, and whether it is right."""

    kernel: Kernel
    params: Params
    inputs: Params | None
    is_right: bool

    @property
    def module(self) -> str:
        """Where its kernel is."""
        return self.kernel.function.__module__.rpartition(".")[2]

    @property
    def name(self) -> str:
        """What the verdict file calls it."""
        params = ",".join(f"{name}={value}" for name, value in self.params.items())
        return f"{self.module}::{self.kernel.name}" + (f"[{params}]" if params else "")

    @property
    def line(self) -> int | None:
        """The line that is marked with ``@`` and the fault, if one is."""
        mark = re.compile(rf"# (?:.* )?@{self.params.get('fault')}(?: @|$)")
        rows, first = inspect.getsourcelines(self.kernel.function)
        found = [n for n, row in enumerate(rows, first) if mark.search(row.rstrip())]
        assert len(found) < 2, (self.name, found)
        return found[0] if found else None


def faults(
    kernel: Kernel, *wrong: str | Params, right: tuple[Params, ...] = ({},),
    inputs: Params | None = None,
) -> Iterator[Variant]:  # fmt: skip
    """A kernel that is right with some parameters, and wrong with others; a text is a ``fault``."""
    yield from (Variant(kernel, params, inputs, is_right=True) for params in right)
    for each in wrong:
        params = {"fault": each} if isinstance(each, str) else each
        yield Variant(kernel, params, inputs, is_right=False)


def together(**values: tuple[Any, ...]) -> tuple[Params, ...]:
    """The first value of each parameter, the second of each, and so on."""
    return tuple(dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))


#: one to three stages, with no items, as many as stages, and enough to wrap twice
RINGS = together(stages=(1, 1, 1, 2, 2, 2, 3, 3, 3), n=(0, 1, 3, 0, 2, 5, 0, 3, 7))
#: the same with items
FILLED_RINGS = together(stages=(1, 1, 2, 2, 2, 3, 3, 3), n=(1, 3, 1, 2, 5, 1, 3, 7))

_FAMILIES = (
    # vllm-project/vllm#26026
    faults(published.tile_without_keys, "arrive"),
    # flashinfer-ai/flashinfer#4533
    faults(published.pairs_and_group, "id"),
    # mirage-project/mirage#705
    faults(published.clamped_box, "tile", right=({}, {"rows": 16, "fault": "tile"})),
    # PyFR/GiMMiK#23
    faults(published.work_numbers, "lap"),
    # NVIDIA/cccl#6601
    faults(published.copy_by_one, "arrives"),
    # deepseek-ai/DeepEP#657
    faults(published.copy_ring, "pending", right=({}, {"n": 2, "fault": "pending"})),
    # tile-ai/TileOPs#1550, and NVIDIA/Fuser#5448
    faults(published.staged_waves, "refill", "open"),
    # flashinfer-ai/flashinfer#5081
    faults(published.fused_residual, "early"),
    # NVIDIA/TensorRT-LLM#14376
    faults(published.split_barrier, {"cooperative": False}, right=({}, {"splits": 1, "cooperative":
           False})),
    # NVIDIA/Fuser#3428
    faults(published.table_and_rows, "barrier"),
    # NVIDIA/Fuser#2005
    faults(published.filled_tail, "tail"),
    # NVIDIA/cutlass#3652, vllm-project/flash-attention#182
    faults(published.last_accumulator, "ld"),
    # mlc-ai/TIRx-kernels#7
    faults(published.late_allocation, "late"),
    # triton-lang/triton#10926
    faults(published.answer_as_barrier, "peer"),
    # triton-lang/triton#10922
    faults(published.answers_to_all, "two"),
    # the same in a warp of its own
    faults(published.stored_in_turn, "own", right=({}, {"n": 2, "fault": "own"})),
    faults(published.two_groups),
    # of the same kind: the peer's next word says that it was sent, not that the last one was read
    faults(published.both_sides, "free"),
    # tile-ai/tilelang#2319, NVIDIA/cuml#458
    faults(published.grid_rounds, "counter"),
    # csarofeen/pytorch#2463
    faults(reported.commit_after_wait, "late"),
    # NVIDIA/libcudacxx#77
    faults(reported.acquires_ahead, "one"),
    # pengcuo/FlashMLA-ETAP#3
    faults(reported.stored_operand_of_all, "fence", "barrier"),
    # Dao-AILab/flash-attention#2033
    faults(reported.one_gives_back, "alone"),
    # NVIDIA/cudnn-frontend#426
    faults(reported.stored_weights, "unasked"),
    # NVIDIA/cudnn-frontend#575
    faults(reported.gate_of_empty_tiles, "empty"),
    # vllm-project/vllm#8558
    faults(reported.peer_flags, "one"),
    # kokkos/kokkos#2681, JuliaGPU/AcceleratedKernels.jl#98
    faults(reported.look_back, "load", "store"),
    # NVIDIA/Fuser#2391; Dao-AILab/flash-attention#1870
    faults(reported.parts_in_turn, "fence", "skips"),
    # tile-ai/tilelang#2556, and tile-ai/tilelang#2612
    faults(reported.some_exchange, "before", {"every": False, "fault": "before"}, right=({},
           {"every": False})),
    # triton-lang/triton#11411
    faults(reported.stored_over_a_copy, "early"),
    # NVIDIA/cudf#24249
    faults(reported.scratch_again, "again"),
    # NVIDIA/Fuser#3865
    faults(reported.waited_by_groups, "own"),
    # deepseek-ai/DeepGEMM#448
    faults(reported.operand_in_registers, "reuse"),
    # mlc-ai/TIRx-kernels#42
    faults(reported.lagging_waiters, "ahead"),
    # mlc-ai/TIRx-kernels#6
    faults(reported.initialised_twice, "groups"),
    # NVIDIA/TensorRT-LLM#18339
    faults(reported.leaders_scalar, "rewritten"),
    # punica-ai/punica#35
    faults(reported.uneven_meetings, "uneven"),
    # inclusionAI/humming#56
    faults(reported.peers_staging, "own"),
    # deepseek-ai/DeepEP#380
    faults(reported.channel, "send", "receive"),
    # NVIDIA/TransformerEngine#3417
    faults(reported.early_inval, "early"),
    # sgl-project/sglang#37287
    faults(reported.partials_over_operand, "early"),
    # flashinfer-ai/flashinfer#5335
    faults(reported_blackwell.two_uses, "second"),
    # facebookexperimental/triton#1993
    faults(reported_blackwell.stored_by_others, "alias"),
    # NVIDIA/cudnn-frontend#396
    faults(reported_blackwell.shared_columns, "drain"),
    # facebookexperimental/triton#908
    faults(reported_blackwell.expected_by_both, "one"),
    # facebookexperimental/CUTracer#106; NVIDIA/Fuser#3561, and NVIDIA/cutlass#2508
    faults(reported_rings.operands_apart, "late", "flying"),
    # NVIDIA/cudnn-frontend#1049
    faults(reported_rings.rows_by_threads, "own", "others"),
    # NVIDIA/cutlass#2641; tile-ai/tilelang#374; a __syncwarp that is missing, as in
    # NVIDIA/cudnn-frontend#426
    faults(reported_rings.tiles_left_out, "expects", "silent", "inside", "lanes"),
    # flashinfer-ai/flashinfer#5048
    faults(reported_rings.bystanders, "stay"),
    # flashinfer-ai/flashinfer-bench#183
    faults(reported_rings.own_and_shared, "sent"),
    # NVIDIA/cutlass#2944
    faults(reported_rings.refills, "drain"),
    # triton-lang/triton#10444
    faults(reported_rings.flag_behind_a_copy, "read", "scope"),
    # marin-community/marin#8311
    faults(reported_rings.recycled_by_all, "first"),
    # triton-lang/triton#3858
    faults(reported_rings.bytes_of_a_barrier, "valid"),
    # rchardx/hopper-gemm#3
    faults(reported_rings.halves_for_both, "tail"),
    # the barriers of FlashAttention-3's epilogue and of CUTLASS's ping-pong kernels
    faults(reported_rings.stores_for_a_group, "count"),
    # the barriers of FlashAttention-3's epilogue and of CUTLASS's ping-pong kernels
    faults(reported_rings.groups_in_order, "own"),
    # NVlabs/cuda-oxide#1066
    faults(reported_tiles.one_number, "unasked", "early"),
    # NVIDIA/cudnn-frontend#569
    faults(reported_tiles.rescaled, "flying"),
    # tile-ai/tilelang#2644
    faults(reported_tiles.bytes_of_a_pair, "cluster"),
    # facebookexperimental/triton#762
    faults(reported_tiles.answers_for_both, "own"),
    faults(variants.persistent, "parity"),
    faults(variants.two_queries, "guard", "query", "meeting"),
    faults(variants.ring_of_stores, "alone"),
    faults(variants.copies_by_lanes, "warps", "slot"),
    faults(variants.quarters, "part"),
    faults(variants.neighbours, "relaxed"),
    faults(variants.in_order, "before", "behind", "scope", "skip"),
    faults(variants.one_in_flight, "fence", "first", "last"),
    faults(variants.maps_by_turns, "acquire"),
    faults(variants.two_lives, "early"),
    faults(variants.behind_a_grid, "none", "late"),
    faults(variants.across_warps, "warp"),
    faults(variants.numbers_drawn, "slot"),
    faults(variants.own_state, "wrap", "always"),
    faults(variants.query_per_tile, "early"),
    faults(variants_blackwell.pair_of_ctas, "own", "free"),
    faults(variants_blackwell.scores_in_place, "begin", "unasked", "loading", "ahead"),
    faults(variants_blackwell.two_answers, "slot", "none"),
    faults(mistakes.ring, "lanes", "all", "again", "slot", "unwaited", "twice"),
    faults(mistakes.turns, "count", "id", "trips", "unwaited", "stray"),
    faults(mistakes.staged, "late", "uncommitted"),
    faults(mistakes.in_a_row, "cycle", "exit", "once more"),
    faults(mistakes.pair, "bytes", "rank"),
    faults(mistakes.stored, "by itself", "not met"),
    faults(pipeline_mistakes.attention, "count", "no acquire", "other array", "early", "own id"),
    faults(pipeline_mistakes.multicast, "one of two", "no mask", "own rank", "no barrier"),
    faults(pipeline_mistakes.accumulators, "flips", "never flips", "trips"),
    faults(pipeline_mistakes.groups, "seldom"),
    faults(more_hopper.ping_pong, {"skips": False}),
    faults(more_hopper.store_ring, {"pending": 2}),
    faults(more_hopper.last_block, "relaxed", "no barrier"),
    faults(more_hopper.shared_halves, {"everywhere": False}),
    faults(more_hopper.cp_async_ring, {"noinc": False}, {"early": True}),
    faults(more_hopper.row_gather, {"counted": False}, inputs={"index": ROWS}),
    faults(more_hopper.deep_wgmma, {"release": 0}),
    faults(more_hopper.tile_counter, {"asks": False}),
    faults(more_hopper.stream_k, "relaxed", "no barrier"),
    faults(more_hopper.pushed_sums, *together(senders=(3, 1))),
    faults(more_hopper.reduced_output, {"waits": False}),
    faults(more_hopper.dependent_launch, {"waits": False}),
    faults(more_memory.stored_operand, {"fence": False}, {"by": "cp.async", "fence": False},
           right=({}, {"by": "cp.async"})),
    faults(more_memory.stored_partials, {"read": True}, right=({}, {"fence": False})),
    faults(more_memory.shared_release, {"groups": 1}),
    faults(more_memory.keys_and_values, {"ahead": True}, right=({"ahead": True, "stages": 2}, {})),
    faults(more_memory.one_id, {"ids": 1}),
    faults(more_memory.uneven_rounds, {"even": False}),
    faults(more_memory.foreign_group, {"own": False}),
    faults(more_memory.one_waiter, {"barrier": False}),
    faults(more_memory.polled, {"right": False}),
    faults(more_memory.remote_slot, {"credit": False}),
    faults(more_blackwell.two_accumulators, "early", "no acquire", "other stage"),
    faults(more_blackwell.two_q_stages, "one stage", "swapped", "unwaited"),
    faults(more_blackwell.pair_ring, {"both": False}, {"remote": False}, {"tail": False}),
    faults(more_blackwell.foreign_commit, "other warp", "whole warp"),
    faults(more_blackwell.two_mma_warps, {"ordered": False}),
    faults(more_blackwell.answers_ahead, {"wraps": False}),
    faults(pipelines.peek, "this stage", right=RINGS),
    faults(pipelines.staged_store, "late", right=FILLED_RINGS),
    faults(pipelines.lane_release, "one lane", "own", right=FILLED_RINGS),
    faults(pipelines.multicast, "all", "own", "tail", right=together(stages=(1, 2, 1, 2), n=(3, 5,
           3, 5), columns=(2, 1, 4, 2), rows=(1, 2, 1, 2))),
    faults(pipelines.ordered, "turn", right=together(stages=(1, 2, 3), tiles=(1, 4, 5))),
    faults(pipelines.load_compute_store, "restart", "in flight", "fence", right=together(stages=(1,
           2, 3), outs=(1, 1, 2), n=(2, 3, 7), tiles=(2, 2, 1))),
    faults(pipelines.exchange, "free", "id", right=together(n=(1, 2, 5))),
    faults(pipelines.tile_counter, "closed", {"fault": "early", "tiles": 3}),
    faults(memory.unified_pipeline, "inc", "no release", right=RINGS),
    faults(memory.multistage, "pending", "no barrier", "tail", right=together(stages=(2, 3, 4),
           n=(5, 7, 9))),
    faults(memory.early_exit, "silent", right=together(n=(1, 3, 5))),
    faults(memory.double_buffer, "one side", "early", right=together(n=(1, 2, 5))),
    faults(memory.row_sums, "no empty", "exit", right=together(size=(2, 4))),
    faults(memory.turnstile, "no entry", "no exit", {"fault": "", "release": "cta"}),
    faults(memory.message, *together(release=("cta", "gpu", "cluster", "cta", "cta", "gpu",
           "cluster", "cta"), acquire=("gpu", "cta", "gpu", "cluster", "gpu", "cta", "gpu",
           "cluster"), cluster=(1, 1, 1, 2, 1, 1, 1, 2), fence=(False, False, False, False, True,
           True, True, True)), right=together(fence=(False, False, False, True, True, True),
           release=("gpu", "sys", "cluster", "gpu", "sys", "cluster"), acquire=("gpu", "sys",
           "cluster", "gpu", "sys", "cluster"), cluster=(1, 1, 2, 1, 1, 2))),
    faults(memory.counter, *together(scope=("cta", "cluster")), {"scope": "cta", "cluster": 2},
           right=together(scope=("gpu", "cluster"), cluster=(1, 2))),
    faults(blackwell.accumulators, "no acquire", "arrive", "tail", "wait::ld",
           right=together(stages=(1, 2, 3, 3), depth=(3, 3, 1, 2), tiles=(3, 3, 5, 5), slots=(1, 2,
           2, 4))),
    faults(blackwell.pair, "bytes", "tail", "mask", "own", right=together(stages=(1, 2), depth=(3,
           5))),
    faults(blackwell.dq, "fence", "no acquire", "pending", "barrier", right=together(n=(1, 3, 5),
           stages=(1, 1, 2))),
    faults(blackwell.answers, "own", "exit", right=together(stages=(1, 2), size=(1, 2))),
    faults(compiled.leader, "no barrier", *together(fault=("no barrier", "no barrier"),
           poll=("try_wait", "test_wait")), right=(*RINGS, *together(n=(1, 1, 5, 5),
           poll=("try_wait", "test_wait", "try_wait", "test_wait")), {"stages": 3, "n": 3, "fault":
           "no barrier"})),
    faults(compiled.store_token, "wait first", right=(*RINGS, {"stages": 2, "n": 5, "fault":
           "wait first"})),
    faults(compiled.mosaic, *together(fault=("late", "not stored"), tiles=(3, 3)),
           right=(*together(tiles=(1, 2, 3, 5), depth=(1, 3, 2, 3), steps=(2, 2, 2, 1)), {"tiles":
           2, "fault": "not stored"})),
    faults(compiled.shared_columns, "no barrier", right=together(n=(1, 3))),
    faults(compiled.output_over_input, "iteration", right=(*together(tiles=(1, 3, 3, 2), depth=(3,
           3, 4, 2), stages=(2, 2, 3, 1)), {"tiles": 2, "depth": 3, "fault": "iteration"})),
    faults(compiled.previous_slot, "all warps", "this slot", {"fault": "", "stages": 1},
           right=together(stages=(2, 2, 2, 2, 3, 3, 3, 3), n=(0, 1, 2, 7, 0, 1, 3, 7))),
    faults(compiled.predicated_rows, "wait", right=(*together(rows=(1, 4, 5, 9)), {"rows": 4,
           "fault": "wait"})),
    faults(compiled.three_roles),
    faults(compiled.pair_masks, "mask", right=together(pairs=(1, 2))),
    faults(edges.row_copies, "one row", "one waits", right=together(rows=(1, 8))),
    faults(edges.other_lane, "wait", "commit"),
    faults(edges.gathered, "one lane"),
    faults(edges.permuted, "slot", "in flight"),
    faults(edges.uneven_groups, "inside"),
    faults(edges.histogram, "no start", "own", "scope", right=together(size=(2, 4))),
    faults(edges.all_to_all, "bytes", "early", "exit", right=together(size=(2, 4))),
    faults(edges.some_peers, "one free", "unarmed", "exit", right=together(size=(4, 4, 3), mask=(5,
           14, 6), stages=(2, 1, 3), n=(5, 3, 4))),
    faults(edges.leaver, "silent", right=together(stages=(1, 2, 2, 3), n=(5, 6, 5, 9), until=(1, 3,
           2, 5))),
    faults(edges.recycled, "phase", "no barrier", "live"),
    faults(library.overlap, "output", "scores", "values", "weights", right=together(n=(1, 1, 3, 5),
           stages=(1, 2, 2, 3), tiles=(1, 2, 2, 1))),
    faults(library.signalling, "this", {"fault": "", "stages": 1}, right=together(stages=(2, 2, 3),
           n=(1, 5, 7), tiles=(1, 2, 1))),
    faults(library.large_values, "fence", "own", "closed", "early", right=together(n=(1, 2, 5))),
    faults(library.shared_epilogue, "late", right=together(stages=(1, 2, 2, 3), n=(3, 1, 5, 7),
           delay=(0, 1, 1, 2))),
    faults(library.cluster_output, "own", "no wait", "tail", right=together(n=(1, 2, 3), tiles=(1,
           2, 3), stages=(1, 2, 2))),
    faults(library.copy_through, "pending", right=FILLED_RINGS),
    faults(library.subtiles, "release", "wait::ld", {"fault": "wait::ld", "tiles": 1},
           right=together(tiles=(1, 3, 5), slots=(1, 1, 2))),
    faults(library.throttle, "early", {"fault": "count", "stages": 1}, right=together(stages=(1, 1,
           2), tiles=(1, 3, 5))),
    faults(styles.ping_pong_named),
    faults(styles.stream_k_semaphores),
    faults(styles.split_k_dsmem),
    faults(styles.cluster_reduction),
    faults(styles.mixed_producers),
    faults(styles.register_split),
    faults(styles.grid_of_mbarriers),
    faults(styles.prefetch_warp),
    faults(styles.early_trigger),
    faults(styles.idle_ranks),
    faults(styles.table_of_pages),
    faults(styles_blackwell.softmax_correction),
    faults(styles_blackwell.clc_loop),
    faults(styles_blackwell.subtile_releases),
    faults(styles_blackwell.pair_multicast),
)  # fmt: skip
VARIANTS = tuple(variant for family in _FAMILIES for variant in family)
