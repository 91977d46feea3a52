"""Flash attention: exact up to the two roundings to bf16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilesim.kernels.attention import attention_weights
from tilesim.kernels.blackwell.attention import attention
from tilesim.kernels.hopper import attention_v2
from tilesim.kernels.registry import Case, cases
from tilesim.sim.machine.simulate import simulate

from .mutate import inputs

CASES = tuple(
    case
    for family in ("blackwell", "hopper")
    for case in cases(family)
    if "attention" in case.target and case.kernel is not attention_v2.attention
)
#: half an ulp of bf16 for P and for O, relative to the sum that they are parts of
BOUND = 2.0**-7
#: what f32 rounding may add
SLACK = 1e-5
PROGRAM = attention.build(queries=256, heads=1)


@pytest.mark.parametrize(
    ("case", "policy"),
    [(case, policy) for case in CASES for policy in ("random", "timed")
     if policy == "random" or not case.params],
    ids=lambda value: value.target if isinstance(value, Case) else None,
)  # fmt: skip
def test_result_is_within_the_bound_of_the_exact_one(case: Case, policy: Any) -> None:
    program, params = case.build(), {**case.kernel.params, **case.params}
    given = inputs(case.kernel, program, params)
    run = simulate(program, given, policy=policy, seed=1)
    assert run.findings == ()
    forms = {name: params[name] for name in ("causal", "grouped") if name in params}
    exact = attention_weights(given, params["heads"], **forms)
    weights, v = exact["W"], exact["V"]
    found = run.outputs["O"].astype(np.float64).reshape(v.shape[0], -1, v.shape[2])
    error, scale = np.abs(found - weights @ v), weights @ np.abs(v)
    assert (error <= (BOUND + SLACK) * scale).all(), (error / scale).max()
    assert (error / scale).max() > BOUND / 20  # of that order: the bound is no idle one


def test_rows_that_grow_are_rescaled() -> None:
    """Scores that rise from block to block, so that every earlier part of O is scaled down."""
    program = PROGRAM
    given = inputs(attention, program, {**attention.params, "queries": 256, "heads": 1})
    keys = given["K"].astype(np.float32)
    growing = keys * np.linspace(0.1, 4, len(keys), dtype=np.float32)[:, None]
    given["K"] = growing.astype(given["K"].dtype)
    exact = attention_weights(given, 1)
    result = simulate(program, given).outputs["O"].astype(np.float64)
    scale = (exact["W"] @ np.abs(exact["V"]))[0]
    assert (np.abs(result - (exact["W"] @ exact["V"])[0]) <= (BOUND + SLACK) * scale).all()
