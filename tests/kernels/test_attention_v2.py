"""Attention of sequences of different lengths: proved, right, and each stays in its own rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilesim.checker import check
from tilesim.errors import UsageError
from tilesim.gpu.emit import emit
from tilesim.ir.program import Program
from tilesim.kernels.attention import attention_weights
from tilesim.kernels.hopper import attention_v1
from tilesim.kernels.hopper.attention_v1 import Consumer
from tilesim.kernels.hopper.attention_v2 import CASES, CutConsumer, attention, of_each
from tilesim.kernels.registry import Case
from tilesim.sim.machine.simulate import Policy, simulate

from .mutate import inputs, line, without

IDS = [case.target.split("::")[1] for case in CASES]
#: of the sum over |V|: both roundings to bf16, and f32
BOUND = 2.0**-7 + 1e-5


def error(program: Program, params: dict[str, Any], policy: Policy = "timed") -> float:
    """The largest error in units of the bound; rows of no sequence must be left alone."""
    params = {**attention.params, **params}
    given = inputs(attention, program, params)
    run = simulate(program, given, policy=policy, seed=1)
    assert run.findings == ()
    worst = 0.0
    for rows in of_each({**given, "O": run.outputs["O"]}, **params):
        if rows["Q"].size:
            exact = attention_weights(
                rows, params["heads"], causal=params["causal"], grouped=params["grouped"]
            )
            found = rows["O"].astype(np.float64)
            scale = exact["W"] @ np.abs(exact["V"])
            worst = max(worst, (np.abs(found - exact["W"] @ exact["V"]) / scale).max() / BOUND)
            rows["O"][:] = 0
    assert not run.outputs["O"].any()
    return float(worst)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("policy", ["timed", "random"])
def test_every_sequence_has_its_own_attention(case: Case, policy: Policy) -> None:
    assert 1 / 20 < error(case.build(), dict(case.params), policy) <= 1


def test_lengths_are_passed_to_the_same_code() -> None:
    texts = {
        emit(attention.build(end0=end, key_end0=keys)).text for end, keys in ((1, 7), (90, 130))
    }
    assert len(texts) == 1


@pytest.mark.parametrize("ends", [(64, 128), (8, 200), (0, 0), (63, 193), (129, 456)])
def test_tiles_end_where_their_sequence_does(ends: tuple[int, int]) -> None:
    """Rests of a tile of all kinds: none, rows, groups of eight, a consumer without any."""
    params = {"end0": ends[0], "end1": ends[1], "key_end0": 100, "key_end1": 150, "heads": 1}
    program = attention.build(**params)
    assert check(program).verdict == "proved"
    assert error(program, params) <= 1


def test_whole_tiles_would_overwrite_the_next_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CutConsumer, "copy_out", Consumer.copy_out)
    report = check(attention.build())
    assert report.verdict == "failed"
    (found,) = {f.rule: f for f in report.findings}.values()
    assert found.rule == "race"
    assert {p.loc.line for p in found.participants} == {
        line(attention_v1.attention, "k.tma.store(self.o_map")
    }  # fmt: skip


def test_without_its_edge_a_sequence_sees_the_keys_of_the_next() -> None:
    params = {"heads": 1, "key_end0": 100}
    program = attention.build(**params)
    assert error(program, params) <= 1
    assert error(without(program, "tile.left"), params) > 5


def test_sizes_it_does_not_cover_are_refused() -> None:
    with pytest.raises(UsageError, match="sequences=0 must be at least 1"):
        attention.build(sequences=0)
