"""The mutation score: every fault is found, or proved harmless with unchanged results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from tests.kernels.evidence import verdict
from tilesim.arith.types import numpy_dtype
from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.fuzz import FAULTS, Mutant, mutants
from tilesim.ir.program import Program
from tilesim.kernels.blackwell import matmul_v4
from tilesim.kernels.bugs import barrier_storage, cluster_arrivals
from tilesim.kernels.hopper import matmul_v3
from tilesim.sim.machine.simulate import Policy, simulate
from tilesim.strategies.clusters import Multicast, Stealing
from tilesim.strategies.rings import Ring

BASES: dict[str, Program] = {
    "ring": Ring(2, 5).build(),
    "split": Ring(2, 3, tiles=2, operands=2, split=True, consumers=2).build(),
    "stored": Ring(2, 4, filling="store", stored=True, release="warp").build(),
    "chained": Ring(2, 4, filling="bulk", chained=True).build(),
    "multicast": Multicast(2, 4).build(),
    "stealing": Stealing(3).build(),
    "wgmma": matmul_v3.matmul.build(m=64, n=64, depth=256, stages=2),
}
#: leave the protocol intact and change the result: work that is not done, or not all of it
_LESS_WORK = {"dead predicate", "uneven trips"}
#: harmless in these programs, with the reason
_HARMLESS = {
    "relaxed arrival": "arrive.expect_tx of a copy: the completion publishes the bytes",
    "scope too small": "an error by the text of the PTX ISA, not in practice strictness",
    "cluster barrier relaxed": "the last one: nothing is written before it that others read",
    "arrive too late": "the wait that follows does not depend on the arrival",
    "only reads awaited": "the kernel ends after the wait, which completes the stores",
    "every lane": "commit and wait of lanes without operations, or one value stored 32 times",
    "proxy fence dropped": "needed by the text of the PTX ISA, not in practice strictness",
    "dead predicate": "less work",
    "uneven trips": "less work, or a trip whose condition is false",
}
#: faults that take more trips to show, in a program that makes them: a count that is one too small
#: leaves one arrival over in each phase, and the products of a warpgroup end together, so it takes
#: 128 phases of each stage until one is over before the products are
_LATE: dict[tuple[str, str], Program] = {
    ("wgmma", "count 127 instead of 128"): matmul_v3.matmul.build(
        m=64, n=64, depth=64 * 270, stages=2
    ),
}


def faults(base: str, every: int) -> Iterator[Mutant[Program]]:
    """Every so many-th fault of a base program, those that show late in their longer program."""
    for number, mutant in islice(enumerate(mutants(BASES[base])), 0, None, every):
        longer = _LATE.get((base, mutant.what))
        yield mutant if longer is None else list(mutants(longer))[number]


def results(program: Program, seed: int = 0) -> dict[str, bytes]:
    """What the program computes from small integers."""
    rng = np.random.default_rng(0)
    inputs = {
        t.name: rng.integers(0 if t.dtype.kind == "uint" else -3, 4, t.shape).astype(
            numpy_dtype(t.dtype)
        )
        for t in program.tensors
    }
    policy: Policy = "pct" if seed else "timed"
    run = simulate(program, inputs, policy=policy, seed=seed)
    return {name: value.tobytes() for name, value in run.outputs.items()}


def verdict_of(mutant: Mutant[Program]) -> str:
    try:
        return verdict(mutant.program, schedules=32)
    except InvalidProgram:
        return "rejected"


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("base", BASES)
def test_every_fault_is_found_or_harmless(base: str, every: int) -> None:
    program = BASES[base]
    assert check(program).verdict == "proved"
    want = results(program)
    score: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant in faults(base, every):
        said = verdict_of(mutant)
        found = said in ("failed", "rejected")
        score[mutant.fault]["found" if found else "harmless"] += 1
        if found:
            continue
        assert said in ("proved", "exhausted"), f"{said}: {mutant}"
        assert mutant.fault in _HARMLESS, f"undetected: {mutant}"
        if mutant.fault not in _LESS_WORK:
            assert all(results(mutant.program, seed) == want for seed in range(3)), str(mutant)
    total = sum((c for c in score.values()), Counter[str]())
    assert total["found"] / total.total() > 0.7, score
    for fault in ("wait dropped", "wrong bytes", "wrong parity", "copy dropped"):
        assert not score[fault]["harmless"], (fault, score[fault])


@pytest.mark.slow
def test_faults_of_tensor_memory_pipelines_are_found() -> None:
    program = matmul_v4.matmul.build(m=640, n=64, depth=192, stages=2, ctas=1)
    score = Counter(verdict_of(m) in ("failed", "rejected") for m in mutants(program))
    assert score[True] / score.total() > 0.75, score


def test_every_fault_of_the_catalogue_applies_somewhere() -> None:
    others = (
        matmul_v4.matmul.build(m=256, depth=64, ctas=1),
        cluster_arrivals.cta_scope.build(fixed=True),
        barrier_storage.reused_storage.build(fixed=True),
    )
    programs = [*BASES.values(), *others]
    applied = {m.fault for program in programs for m in mutants(program)}
    assert applied == set(FAULTS)


def test_a_mutant_differs_from_its_original_and_says_where() -> None:
    program = BASES["ring"]
    for mutant in mutants(program):
        assert mutant.program.body != program.body, str(mutant)
        assert mutant.loc.line > 0
        assert str(mutant).startswith(f"{mutant.fault} at ")
