"""NVIDIA/Fuser #5076: the printed kernel's faults are found, the corrected kernels are proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.ir.expr import Const
from tilesim.ir.loc import Loc
from tilesim.ir.program import Program
from tilesim.kernels.nvfuser import chained, multi_role
from tilesim.kernels.nvfuser import synchronous_producer as synchronous
from tilesim.kernels.nvfuser.printed import only, printed
from tilesim.kernels.outcome import locations
from tilesim.kernels.registry import Case, cases
from tilesim.sim.machine.simulate import simulate

from .evidence import participating
from .mutate import SCHEDULES, changed, inputs, line, without

CLEAN = tuple(case for case in cases("nvfuser") if not case.fails)
IDS = [case.target.removeprefix("tilesim.kernels.nvfuser.") for case in CLEAN]


def problems(program: Program) -> dict[str, tuple[Loc, ...]]:
    """Rules broken by ``program``, found statically or by checking, with their source lines."""
    try:
        report = check(program)
    except InvalidProgram as error:
        return {d.rule: locations(d) for d in reversed(error.diagnostics)}
    assert report.verdict == "failed", report
    return {f.rule: tuple(p.loc for p in f.participants) for f in reversed(report.findings)}


@pytest.mark.parametrize("case", CLEAN, ids=IDS)
def test_corrected_kernel_is_proved_and_equals_numpy(case: Case) -> None:
    program = case.build()
    given = inputs(case.kernel, program, dict(case.params))
    report = check(program, inputs=given)
    assert report.findings == ()
    assert report.verdict == "proved", report.reasons
    for policy, seed in SCHEDULES:
        run = simulate(program, given, policy=policy, seed=seed)
        assert run.findings == ()
        assert case.kernel.reference is not None
        for name, expected in case.kernel.reference(given, **case.params).items():
            assert np.any(expected)
            np.testing.assert_array_equal(run.outputs[name], expected)


@pytest.mark.parametrize("case", CLEAN, ids=IDS)
def test_only_the_printed_kernel_needs_the_lenient_reading_of_proxy_fences(case: Case) -> None:
    program = case.build()
    report = check(program, strict="ptx", inputs=inputs(case.kernel, program, dict(case.params)))
    if case.kernel is printed:
        assert report.rules == {"proxy-fence"}
    else:
        assert report.verdict == "proved", report.findings


# ------------------------------------------------------------------ the printed kernel


def test_as_printed_the_kernel_hangs() -> None:
    found = problems(printed.build())
    assert {"participation", "deadlock"} & set(found)


def test_stages_opened_twice_make_consumers_and_producers_wait_for_each_other() -> None:
    """B001."""
    report = check(printed.build(**only("open_twice")))
    assert report.verdict == "failed"
    deadlock = next(f for f in report.findings if f.rule == "deadlock")
    assert {p.warp for p in deadlock.participants} == {0, 8}
    assert participating(deadlock) == [
        line(printed, "k.mbarrier.wait(buffers.full"),
        line(printed, "k.mbarrier.wait(buffers.empty"),
    ]


def test_stages_opened_twice_show_differently_from_run_to_run() -> None:
    """B001 depends on when the producers look between the two rounds of arrivals."""
    program = printed.build(**only("open_twice"))
    symptoms = set()
    for seed in range(12):
        run = simulate(program, numbers=False, policy="random", seed=seed)
        assert run.findings
        symptoms.add(frozenset(f.rule for f in run.findings))
    assert len(symptoms) > 1


def test_padding_warps_that_compute_split_the_setmaxnreg_of_their_warpgroup() -> None:
    """B002, the registers."""
    found = problems(printed.build(**only("leaf_predicate")))
    assert {loc.line for loc in found["participation"]} & {
        line(printed, 'k.setmaxnreg("dec"'),
        line(printed, 'k.setmaxnreg("inc"'),
    }


def test_padding_warps_that_compute_open_stages_that_are_still_read() -> None:
    """B002, the arrivals: 320 instead of 256, so a phase ends without two of the readers."""
    report = check(printed.build(**only("leaf_predicate"), register_sharing=False))
    assert report.verdict == "failed"
    race = next(f for f in report.findings if f.rule == "race")
    assert race.roles == ("load T0", "compute")
    assert participating(race) == [
        line(printed, "k.bulk.load(target"),
        line(printed, "k.mem.load(left"),
    ]


def test_copy_predicated_away_leaves_everybody_waiting_for_its_arrival() -> None:
    """B003."""
    found = problems(printed.build(**only("dead_role")))
    assert line(printed, "k.mbarrier.wait(buffers.full") in {loc.line for loc in found["deadlock"]}


def test_barriers_invalidated_while_others_compute_are_found() -> None:
    report = check(printed.build(**only("early_inval")))
    assert report.verdict == "failed"
    assert report.rules == {"barrier-lifetime"}
    lines = {loc.line for f in report.findings for loc in f.locations}
    assert line(printed, "k.mbarrier.inval(full") in lines
    assert line(printed, "k.mbarrier.wait(buffers.full") in lines


@pytest.mark.parametrize("ctas", [1, 2])
def test_without_its_faults_the_shared_full_barrier_is_correct(ctas: int) -> None:
    assert check(printed.build(**only(), ctas=ctas)).verdict == "proved"


# ------------------------------------------------------------------ the corrected kernels


def test_multi_role_without_the_last_named_barrier_invalidates_too_early() -> None:
    found = problems(without(multi_role.multi_role.build(), "barrier.sync", 1))
    assert "barrier-lifetime" in found


def test_multi_role_that_counts_half_of_the_compute_threads_fails() -> None:
    program = changed(multi_role.multi_role.build(), "mbarrier.init", 1, count=Const(128))
    assert {"deadlock", "race", "phase-ambiguity"} & set(problems(program))


def test_chained_warp_that_does_not_wait_for_its_producer_races_with_it() -> None:
    found = problems(without(chained.chained.build(), "mbarrier.wait", 1))
    assert [loc.line for loc in found["race"]] == [
        line(chained.chained, "k.bulk.load(indices"),
        line(chained.chained, "k.mem.load(row"),
    ]


@pytest.mark.parametrize("kernel", [synchronous.scale, synchronous.dequantise])
def test_synchronous_producer_needs_the_proxy_fence(kernel: Any) -> None:
    found = problems(without(kernel.build(), "fence.proxy.async"))
    assert set(found) == {"proxy-fence"}
