"""The strategies: correct pipelines are proved, examples print as code that builds them again."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from tilesim import UsageError, bf16, f32
from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.dsl.to_python import builder_code
from tilesim.errors import InvalidProgram
from tilesim.ir.declarations import TensorMap
from tilesim.ir.program import Program
from tilesim.ir.verify import diagnose
from tilesim.kernels.registry import cases
from tilesim.sim.machine.schedule import Chooser
from tilesim.sim.machine.simulate import Simulation
from tilesim.strategies import (
    FAMILIES,
    Example,
    boxes,
    correct_pipelines,
    dtypes,
    mutated_pipelines,
    pipeline,
    schedules,
    tensor_maps,
)
from tilesim.strategies.rings import Ring

few = settings(
    max_examples=8, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck), print_blob=False,
)  # fmt: skip


def rebuilt(code: str) -> Program:
    """What builder code builds."""
    scope: dict[str, Any] = {}
    exec(compile(code, "<example>", "exec"), scope)
    program: Program = scope["program"]
    return program


def same(one: Program, other: Program) -> bool:
    """Equality but for the order in which variables are declared."""
    names = [sorted(p.variables, key=lambda v: v.name) for p in (one, other)]
    return names[0] == names[1] and one == replace(other, variables=one.variables)


@pytest.mark.parametrize("family", FAMILIES)
def test_correct_pipelines_are_proved(family: str) -> None:
    @few
    @given(correct_pipelines([family]))
    def every(example: Example) -> None:
        report = check(example.program)
        assert report.verdict == "proved", (example.about, report.findings, report.reasons)

    every()


def test_producers_that_skip_phases_of_a_stage_are_found() -> None:
    wrong = Ring(stages=1, trips=3, producers=2)
    assert check(wrong.build()).verdict == "failed"
    assert check(replace(wrong, stages=2).build()).verdict == "proved"


@few
@given(st.one_of(correct_pipelines(), mutated_pipelines(["ring"])))
def test_examples_print_as_code_that_builds_them(example: Example) -> None:
    text = repr(example)
    assert text.startswith(f"\n# {example.about}")
    assert same(example.program, rebuilt(text))


def test_every_gallery_kernel_prints_as_code_that_builds_it() -> None:
    seen = set()
    for case in cases():
        try:
            program = case.build()
        except InvalidProgram:
            continue
        if case.kernel.function not in seen:
            seen.add(case.kernel.function)
            assert same(program, rebuilt(builder_code(program))), case.target
    assert len(seen) > 40


def test_infinities_and_nan_print_as_code_that_runs() -> None:
    k = Builder("limits", warps=1)
    tile, x = k.fragment("tile", f32, (32, 4)), k.var("x", dtype=f32)
    k.tile.fill(tile, -inf)
    k.assign(x, inf)
    program = k.finish()
    code = builder_code(program)
    assert same(program, rebuilt(code))
    assert code.count('float("-inf")') == 1
    assert code.count('float("inf")') == 1
    k = Builder("nothing", warps=1)
    k.tile.fill(k.fragment("tile", f32, (32, 4)), nan)
    assert 'k.tile.fill(tile, float("nan"))' in builder_code(rebuilt(builder_code(k.finish())))


def test_a_lost_wait_shrinks_to_a_small_ring() -> None:
    def lost(example: Example) -> bool:
        return check(example.program, schedules=0, budget=0).verdict == "failed"

    smallest = find(
        mutated_pipelines(["ring"], ["wait dropped"]), lost,
        settings=settings(few, max_examples=25),
    )  # fmt: skip
    assert "stages=1" in smallest.about
    assert "consumers=1" in smallest.about
    assert smallest.fault.startswith("wait dropped at ")
    assert smallest.original is not None
    assert check(smallest.original).verdict == "proved"


EVERYTHING: dict[str, st.SearchStrategy[Any]] = {
    **{family: correct_pipelines([family]) for family in FAMILIES},
    "mutated": mutated_pipelines(["ring"]),
    "mutated kernel": mutated_pipelines(["split_k"], ["wait dropped"]),
    "dtypes": dtypes(),
    "boxes": boxes(bf16),
    "tensor maps": tensor_maps(),
    "schedules": schedules(),
}


@pytest.mark.parametrize("name", EVERYTHING)
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_what_is_printed_of_a_failing_example_can_be_pasted(name: str) -> None:
    seen: list[Any] = []

    @settings(few, max_examples=1, phases=[Phase.generate])
    @given(EVERYTHING[name])
    def fails(example: Any) -> None:
        seen.append(example)
        raise RuntimeError("shown")

    with pytest.raises(RuntimeError, match="shown") as failed:
        fails()
    printed = "\n".join(failed.value.__notes__)
    call = printed[printed.index("fails(") :]
    assert "..." not in call
    assert not re.search(r"\b_\w", call), call
    scope: dict[str, Any] = {}
    exec("import tilesim\nfrom tilesim.strategies import *", scope)
    pasted: list[Any] = []
    exec(call, {**scope, "fails": lambda example: pasted.append(example)})
    if name == "schedules":
        assert type(pasted[0]) is type(seen[-1])
    else:
        assert pasted == [seen[-1]]


def test_a_pipeline_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="there is no pipeline rnig"):
        pipeline("rnig")
    with pytest.raises(UsageError, match=r"wait dropped has \d+ places in pipeline"):
        pipeline("ring", fault="wait dropped", place=10**6)


def test_unknown_faults_are_refused() -> None:
    with pytest.raises(UsageError, match="there is no fault 'typo'; there are arrive dropped"):
        find(mutated_pipelines(["ring"], ["typo"]), lambda _: True)


@few
@given(tensor_maps())
def test_tensor_maps_are_legal(tensor_map: TensorMap) -> None:
    program = replace(Ring().build(), params=(tensor_map.tensor,), maps=(tensor_map,), body=())
    assert not diagnose(program)


@few
@given(boxes(bf16, swizzle=64))
def test_boxes_fit_the_swizzle(box: tuple[int, ...]) -> None:
    assert box[-1] * 2 <= 64
    assert box[-1] * 2 % 16 == 0


@few
@given(schedules())
def test_a_proved_ring_runs_under_every_schedule(chooser: Chooser) -> None:
    simulation = Simulation(Ring(chained=True).build(), numbers=False, strict="practice")
    assert not simulation.run({}, lambda cluster: chooser).findings
