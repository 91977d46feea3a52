"""Attention for speed: what it computes, its schedule, its machine code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.attention import HEADER, Bench, Row, Shape, main
from benchmarks.attention import line as row_line
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.emit import emit
from tilesim.ir.target import TARGETS
from tilesim.kernels.attention import attention_weights
from tilesim.kernels.hopper.attention_tiles import Schedule
from tilesim.kernels.hopper.attention_v1 import attention
from tilesim.sim.machine.simulate import simulate

from ..gpu import needs
from .mutate import inputs, without

#: two rounds per CTA, so that every ring and buffer is used again
PARAMS: dict[str, Any] = {"queries": 256, "keys": 384, "heads": 1, "ctas": 1}
PROGRAM = attention.build(**PARAMS)
#: of the sum over |V|: both roundings to bf16, and f32
BOUND = 2.0**-7 + 1e-5


def error(given: Any, result: Any, **forms: Any) -> float:
    """The largest error in units of the bound."""
    exact = attention_weights(given, given["Q"].shape[0], **forms)
    scale = exact["W"] @ np.abs(exact["V"])
    return float(
        (np.abs(result.astype(np.float64) - exact["W"] @ exact["V"]) / scale).max() / BOUND
    )


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
