"""Attention for speed: what breaks when a part is left out, its schedule, its machine code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.attention import HEADER, Bench, Row, Shape, main
from benchmarks.attention import line as row_line
from tilesim.checker import check
from tilesim.errors import UsageError
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.emit import emit
from tilesim.ir.expr import Const
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MbarrierInit
from tilesim.ir.program import Program, instructions
from tilesim.ir.target import TARGETS
from tilesim.kernels.attention import attention_weights
from tilesim.kernels.hopper.attention_tiles import Schedule
from tilesim.kernels.hopper.attention_v1 import attention
from tilesim.sim.machine.simulate import simulate

from ..gpu import needs
from .mutate import changed, edited, inputs, line, without

#: two rounds per CTA, so that every ring and buffer is used again
PARAMS: dict[str, Any] = {"queries": 256, "keys": 384, "heads": 1, "ctas": 1}
PROGRAM = attention.build(**PARAMS)
#: results staged where the queries were; the last block of keys is not whole
IN_PLACE: dict[str, Any] = {**PARAMS, "keys": 200, "block": 80, "in_place": True}
#: of the sum over |V|: both roundings to bf16, and f32
BOUND = 2.0**-7 + 1e-5


def on(text: str, edit: Callable[[Any], Op | None], nth: int = 0) -> Program:
    """The kernel with the synchronising instruction of one line edited."""
    place = line(attention, text, nth)
    (kind,) = {op.mnemonic for op in instructions(PROGRAM) if op.loc.line == place}
    return edited(PROGRAM, kind, lambda op: edit(op) if op.loc.line == place else op)


def first(program: Program, rule: str) -> Any:
    """The first finding of ``rule``; the check in practice strictness must have failed."""
    report = check(program)
    assert report.verdict == "failed", report
    assert rule in report.rules, [(f.rule, f.message) for f in report.findings]
    return next(f for f in report.findings if f.rule == rule)


def places(found: Any) -> set[int]:
    return {p.loc.line for p in found.participants}


def error(given: Any, result: Any, **forms: Any) -> float:
    """The largest error in units of the bound."""
    exact = attention_weights(given, given["Q"].shape[0], **forms)
    scale = exact["W"] @ np.abs(exact["V"])
    return float(
        (np.abs(result.astype(np.float64) - exact["W"] @ exact["V"]) / scale).max() / BOUND
    )


# ------------------------------------------------------------------ synchronisation


@pytest.mark.parametrize(
    ("text", "nth", "access"),
    [
        ("q.wait()", 0, "self.k.tma.load(source"),
        ("key.slot.wait()", 0, "self.k.tma.load(source"),
        ("key.slot.wait()", 1, "self.k.tma.load(source"),
        ("key.slot.wait()", 2, "self.k.tma.load(source"),
        ("value.slot.wait()", 0, "self.k.tma.load(source"),
        ("value.slot.wait()", 1, "self.k.tma.load(source"),
        ("slot.acquire()", 0, "self.k.tma.load(source"),
        ("# the buffer is free", 0, "k.tile.store(sO[piece]"),
        ("# the buffer is complete", 0, "k.tile.store(sO[piece]"),
    ],
)
def test_every_wait_is_needed(text: str, nth: int, access: str) -> None:
    program = on(text, lambda op: None, nth)
    report = check(program)
    assert report.verdict == "failed", report
    found = [f for f in report.findings if f.rule in ("race", "proxy-fence", "over-arrival")]
    assert any(line(attention, access) in places(f) for f in found) or found[0].rule == (
        "over-arrival"
    )


@pytest.mark.parametrize(
    ("text", "nth", "access"),
    [
        ("# the scores", 0, 'k.tile.reduce(self.new_max, "max", self.scores)'),
        ("# the values", 0, 'self.k.tile.zip(self.out, "mul", self.out, self.alpha)'),
        ("k.wgmma.wait_group(0)", 0, 'k.tile.reduce(self.row_max, "max", self.scores)'),
        ("k.wgmma.wait_group(0)", 2, 'k.tile.zip(self.out, "mul", self.out, self.shift)'),
    ],
)
def test_registers_are_used_after_the_wgmma_that_writes_them(
    text: str, nth: int, access: str
) -> None:
    found = first(on(text, lambda op: None, nth), "wgmma-order")
    assert line(attention, access) in places(found)


def test_one_group_in_flight_is_the_limit_at_the_scores() -> None:
    """With two, the softmax reads scores that are being computed."""
    place = line(attention, "# the scores")
    waits = [op for op in instructions(PROGRAM) if op.mnemonic == "wgmma.wait_group"]
    nth = next(i for i, op in enumerate(waits) if op.loc.line == place)
    found = first(changed(PROGRAM, "wgmma.wait_group", nth, pending=2), "wgmma-order")
    assert line(attention, 'k.tile.reduce(self.new_max, "max", self.scores)') in places(found)


def test_without_the_fence_new_weights_are_not_ordered_before_their_wgmma() -> None:
    found = first(on("k.wgmma.fence()", lambda op: None, 1), "wgmma-order")
    assert "wgmma.fence" in found.message


@pytest.mark.parametrize("text", ["q.release()", "cursor.slot.release()"])
def test_what_is_not_given_back_is_waited_for(text: str) -> None:
    found = first(on(text, lambda op: None), "deadlock")
    assert line(attention, "slot.acquire()") in places(found)


def test_a_stage_given_back_by_one_consumer_of_two_is_overwritten_too_early() -> None:
    """The barriers of the values' ring expect one consumer's arrivals."""

    def half(op: MbarrierInit) -> MbarrierInit:
        return replace(op, count=Const(4)) if op.mbar.array.name == "v_empty" else op

    report = check(edited(PROGRAM, "mbarrier.init", half))
    assert report.verdict == "failed"
    assert report.rules & {"race", "over-arrival", "phase-ambiguity"}


def test_the_result_without_a_proxy_fence_is_stale() -> None:
    found = first(without(PROGRAM, "fence.proxy.async"), "proxy-fence")
    assert places(found) == {
        line(attention, "k.tma.store(self.o_map"), line(attention, "k.tile.store(sO[piece]"),
    }  # fmt: skip


def test_the_result_is_staged_once_the_one_before_was_read() -> None:
    place = line(attention, "k.bulk.wait_group(0, read=True)")
    program = edited(
        PROGRAM, "cp.async.bulk.wait_group", lambda op: None if op.loc.line == place else op
    )
    found = first(program, "race")
    assert places(found) == {
        line(attention, "k.tma.store(self.o_map"), line(attention, "k.tile.store(sO[piece]"),
    }  # fmt: skip


def test_turns_are_for_speed_only() -> None:
    """Without them the result is proved too; one that is not given stops everybody."""
    barriers = {line(attention, "self.k.bar.sync("), line(attention, "self.k.bar.arrive(")}

    def gone(op: Op) -> Op | None:
        return None if op.loc.line in barriers else op

    silent = edited(edited(PROGRAM, "barrier.sync", gone), "barrier.arrive", gone)
    assert check(silent).verdict == "proved"
    found = first(edited(PROGRAM, "barrier.arrive", gone), "deadlock")
    assert line(attention, "self.k.bar.sync(") in places(found)


def test_queries_take_the_place_of_a_result_once_it_was_read() -> None:
    """Without the wait the next ones are copied over rows that are being stored."""
    place = line(attention, "# the result has left the buffer")
    program = attention.build(**IN_PLACE)
    early = edited(
        program, "cp.async.bulk.wait_group", lambda op: None if op.loc.line == place else op
    )
    assert check(program).verdict == "proved"
    assert places(first(early, "race")) == {
        line(attention, "k.tma.store(self.o_map"), line(attention, "self.k.tma.load(source"),
    }  # fmt: skip


# ------------------------------------------------------------------ numbers


@pytest.mark.parametrize("policy", ["timed", "random"])
def test_rows_that_grow_are_rescaled(policy: Any) -> None:
    """Scores that rise from block to block, so that every earlier part of O is scaled down."""
    given = inputs(attention, PROGRAM, PARAMS)
    keys = given["K"].astype(np.float32)
    growing = keys * np.linspace(0.1, 4, keys.shape[1], dtype=np.float32)[None, :, None]
    given["K"] = growing.astype(given["K"].dtype)
    assert error(given, simulate(PROGRAM, given, policy=policy, seed=1).outputs["O"]) <= 1


@pytest.mark.parametrize("consumers", [2, 3])
def test_without_its_mask_a_causal_kernel_sees_the_future(consumers: int) -> None:
    """With three consumers, whole blocks lie above the diagonal of the first ones."""
    params = {"causal": True, "keys": 256, "consumers": consumers, "heads": 1}
    program = attention.build(**params)
    given = inputs(attention, program, params)
    assert error(given, simulate(program, given).outputs["O"], causal=True) <= 1
    unmasked = simulate(without(program, "tile.tril"), given).outputs["O"]
    assert error(given, unmasked, causal=True) > 10


@pytest.mark.parametrize("block", [80, 128])
def test_without_the_edge_of_a_block_keys_that_are_none_have_a_weight(block: int) -> None:
    """The copy fills rows behind the last key with zeros: scores of 0, which are no small ones."""
    params = {"keys": 200, "block": block, "heads": 1}
    program = attention.build(**params)
    given = inputs(attention, program, params)
    assert error(given, simulate(program, given).outputs["O"]) <= 1
    unmasked = simulate(without(program, "tile.left"), given).outputs["O"]
    assert error(given, unmasked) > 5


def test_heads_of_a_group_see_the_same_keys() -> None:
    params = {"heads": 4, "grouped": 2, "queries": 128, "keys": 128}
    program = attention.build(**params)
    given = inputs(attention, program, params)
    assert given["K"].shape[0] == given["V"].shape[0] == 2
    result = simulate(program, given).outputs["O"]
    assert error(given, result, grouped=2) <= 1
    other = {**given, "K": given["K"][::-1], "V": given["V"][::-1]}
    assert error(other, result, grouped=2) > 10


def test_rows_behind_the_last_query_stay_out_of_the_next_head() -> None:
    """200 queries per head in tiles of 128: the second tile reaches 56 rows over the end."""
    params = {"queries": 200, "keys": 128, "heads": 3}
    program = attention.build(**params)
    given = inputs(attention, program, params)
    assert error(given, simulate(program, given).outputs["O"]) <= 1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"block": 72}, "block=72 must be a multiple of 16"),
        ({"heads": 3, "grouped": 2}, "heads=3 must be a multiple of grouped=2"),
        ({"depth": 80}, "depth=80 is not a positive multiple of the block size 64"),
        ({"consumers": 4}, "consumers=4 must be 2 or 3"),
        ({"causal": True, "keys": 512}, "queries=256 must be equal to keys=512"),
    ],
)
def test_sizes_it_does_not_cover_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        attention.build(**params)


@pytest.mark.parametrize(
    ("heads", "length", "height", "uneven"),
    [(128, 2048, 128, 16), (64, 4096, 128, 8), (32, 8192, 128, 4)],
)
def test_causal_tiles_are_spread_evenly(heads: int, length: int, height: int, uneven: int) -> None:
    """No CTA of 132 has more than 4% above the mean; with other bands some have a third more."""
    k: Any = None
    schedule = Schedule(k, 132, heads, length, length, height, 128, True)
    seen = [min(-(-(row + 1) * height // 128), length // 128) + 1 for row in range(schedule.across)]
    mean = heads * sum(seen) / 132
    assert schedule.longest(schedule.band) < 1.04 * mean
    assert schedule.longest(uneven) > 1.3 * mean


# ------------------------------------------------------------------ machine code

SIZES: list[dict[str, Any]] = [
    {"depth": 128, "causal": True}, {"depth": 64, "consumers": 3},
    {"depth": 256, "block": 80, "in_place": True},
]  # fmt: skip


def opcodes(cubin: bytes, path: Path) -> list[str]:
    path.write_bytes(cubin)
    listing = subprocess.run(
        [needs.NVDISASM or "", "-c", str(path)], capture_output=True, text=True, check=True
    )
    found = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", listing.stdout)
    return [str(name) for name in found]


@needs.compiler
@needs.disassembler
@pytest.mark.parametrize("params", SIZES)
def test_the_softmax_runs_while_the_values_are_multiplied(
    params: dict[str, Any], tmp_path: Path
) -> None:
    """Nothing is serialised, or spilled in the loop; after a turn ends, the wgmmas are all issued,
    and the exponentials of a block stand between the waits for the scores and for the values."""
    size = {"queries": 4096, "keys": 4096, "heads": 8, "ctas": 132}
    binary = compile_cubin(emit(attention.build(**size, **params)))
    scores = params.get("block", 128) // 2
    # per tile: three registers of each, or addresses of the result
    allowed = 36 if "consumers" in params else 320 if params["depth"] == 256 else 0
    assert binary.resources.spill_loads <= allowed
    assert binary.resources.warnings == ()
    names = opcodes(binary.cubin, tmp_path / "attention.cubin")
    turns = [i for i, name in enumerate(names) if name == "BAR.ARV"]
    loops = [i for i in turns if any(n.startswith("HGMMA") for n in names[i - 20 : i])]
    assert len(loops) == params.get("consumers", 2)
    for turn in loops:
        waits = [i for i in range(turn, turn + 600) if names[i] == "WARPGROUP.DEPBAR.LE"][:2]
        between = names[waits[0] : waits[1]]
        assert between.count("MUFU.EX2") == scores + 2
        assert between.count("FFMA") == scores + 4
        assert not [n for n in between if n.startswith(("HGMMA", "F2FP", "LDL", "STL"))]


# ------------------------------------------------------------------ the benchmark, without a GPU


@needs.no_driver
def test_without_a_gpu_the_benchmark_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "benchmarks.attention: there is no NVIDIA driver here" in capsys.readouterr().err


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("depth", "heads", "grouped"), [(64, 64, 1), (128, 32, 1), (128, 32, 4), (256, 16, 4)]
)
def test_the_measured_kernels_fit_the_target(
    depth: int, heads: int, grouped: int, causal: bool
) -> None:
    shape = Shape(depth, 8192, causal, grouped)
    assert shape.heads == heads
    assert shape.operations == 4 * 8192**2 * heads * depth / (2 if causal else 1)
    programs = shape.programs(132)
    older = {"attention"} if depth == 64 and not causal else set()
    assert shape.named == (f"{heads}:{heads // grouped}" if grouped > 1 else str(heads))
    assert set(programs) == {"attention_v1", *older}
    for program in programs.values():
        assert program.smem_used <= TARGETS["sm_90a"].smem
        assert "watchdog" not in emit(program).text


def test_a_round_of_the_benchmark_has_a_launch_for_each_set_of_operands() -> None:
    def torch_randn(extents: Any, **_: Any) -> Any:
        return np.zeros(extents, np.int8)

    torch = SimpleNamespace(randn=torch_randn, empty_like=np.empty_like, bfloat16=None)
    bench = Bench(torch, Shape(128, 2048, causal=False, grouped=64), 3)
    assert bench.sets == len(bench.operands) == len(bench.outputs) == 3
    assert [x.shape[1] for x in bench.operands[0]] == [128, 2, 2]


def test_a_row_of_the_benchmark_has_the_columns_of_the_header() -> None:
    row = Row(Shape(64, 8192, True), "attention_v1", 1.1564, 1.132, 475.1, 1.098, 2.1e-3, 128)
    assert len(row.cells) == len(HEADER)
    assert row_line(row.cells).split() == [
        "64", "causal", "8192", "64", "attention_v1", "1.156", "1.132", "475", "1.098", "2.1e-03",
        "128",
    ]  # fmt: skip
