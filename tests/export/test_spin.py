"""Where SPIN is installed: it says of the exported models what `tilesim.check` says of the kernels.

SPIN explores every interleaving of a model without knowing anything of certificates, so it is an
independent opinion on both. A disagreement is a defect of the checker or of the exporter.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.spin import Verification, run_spin
from tests.sim.generate import sample
from tests.sim.small import translate
from tilesim import Program
from tilesim.checker import Report, check
from tilesim.errors import InvalidProgram
from tilesim.export import to_promela
from tilesim.kernels.registry import cases

from .expressions import EXPRESSIONS, run_time, values
from .programs import TWINS

pytestmark = pytest.mark.skipif(
    shutil.which("spin") is None or shutil.which("gcc") is None, reason="needs spin and gcc"
)

#: rules whose violations the model always has: not races, nor what data does to a barrier or a peer
MODELLED = frozenset(
    {
        "deadlock", "over-arrival", "tx-mismatch", "phase-alias", "uninitialised-barrier",
        "named-barrier",
    }
)  # fmt: skip


def verified(program: Program) -> Verification:
    """SPIN's opinion; compiling without optimisation takes less than it saves."""
    return run_spin(to_promela(program), seconds=20, memory=2048, optimise=0)


def disagreement(report: Report, spin: Verification) -> str:
    """How the two contradict each other; empty if they do not."""
    if spin.outcome in ("deadlock", "assertion") and report.verdict in ("proved", "exhausted"):
        return f"SPIN finds {spin.detail}, check says {report.verdict}"
    if spin.outcome == "ok" and report.rules & MODELLED:
        return f"SPIN finds nothing, check says {sorted(report.rules)}"
    return ""


@pytest.mark.parametrize(
    ("build", "wrong", "outcome", "rules"), TWINS, ids=lambda x: getattr(x, "__name__", None)
)
def test_wrong_twins_fail_in_the_same_way(
    build: Callable[..., Program], wrong: str, outcome: str, rules: frozenset[str]
) -> None:
    program = build(wrong=wrong)
    spin, report = verified(program), check(program)
    assert spin.outcome == outcome, spin
    assert report.rules & rules, report


@pytest.mark.parametrize(
    "build", dict.fromkeys(twin[0] for twin in TWINS), ids=lambda build: build.__name__
)
def test_right_twins_pass(build: Callable[..., Program]) -> None:
    program = build()
    assert verified(program).outcome == "ok"
    assert check(program).verdict in ("proved", "exhausted")


def test_expressions_have_the_values_that_python_gives_them() -> None:
    """``//`` and ``%`` round towards minus infinity, where Promela rounds towards zero."""
    model = ""
    for number, expr in enumerate(EXPRESSIONS):
        text = run_time(expr).text
        claims = [f"v_i = {at}; assert({text} == {v});" for at, v in values(expr).items()]
        model += f"active proctype p{number}() {{ int v_i; {' '.join(claims)} skip }}\n"
    spin = run_spin(model, optimise=0)
    assert spin.outcome == "ok", spin


#: gallery rows, correct and buggy, that SPIN decides in seconds
GALLERY = (
    "hopper.matmul_v3::matmul",
    "nvfuser.printed::printed",
    "cluster.multicast::multicast",
    "bugs.cluster_bytes::then_arm",
    "bugs.cluster_bytes::then_arm[fixed=True]",
    "bugs.cluster_phases::rendezvous",
    "bugs.cluster_phases::rendezvous[stages=2]",
    "bugs.named_barriers::reused_id",
    "bugs.parity::pinned_slot",
    "bugs.parity::pinned_slot[fixed=True]",
    "bugs.transaction_bytes::guarded_expect",
    "bugs.transaction_bytes::guarded_expect[fixed=True]",
)


@pytest.mark.parametrize("target", GALLERY)
def test_gallery_verdicts_agree(target: str) -> None:
    (case,) = (c for c in cases() if c.target == f"tilesim.kernels.{target}")
    program = case.build()
    spin, report = verified(program), check(program, strict=case.strict)
    assert spin.outcome != "limit", spin
    assert not disagreement(report, spin)
    assert (spin.outcome == "ok") == (case.expected in ("proved", "exhausted")), spin


def compared(seeds: range) -> Counter[str]:
    """Compares on one random small protocol per seed; how often each pair of opinions came up."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        kind, small = sample(random.Random(seed).randrange)
        try:
            program = translate(small)
            spin = verified(program)
        except InvalidProgram:
            continue
        report = check(program, schedules=16, budget=20_000)
        wrong = disagreement(report, spin)
        assert not wrong, f"seed {seed}, {kind}: {wrong}\n{small}"
        seen[f"{report.verdict} {'ok' if spin.outcome == 'ok' else 'wrong'}"] += 1
    return seen


def test_random_protocols_agree() -> None:
    seen = compared(range(16))
    assert seen["proved ok"] >= 3, seen
    assert seen["failed wrong"] >= 4, seen


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_random_protocols_agree(block: int) -> None:
    compared(range(1000 + 100 * block, 1100 + 100 * block))
