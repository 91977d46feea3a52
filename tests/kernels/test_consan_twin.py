"""The kernel of `benchmarks.consan`: the verdicts that docs/comparison.md sets beside ConSan's."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.consan import FAULTS, HARMLESS, matmul
from tilesim.arith.types import bf16, numpy_dtype
from tilesim.checker import check
from tilesim.sim.machine.simulate import simulate

#: rules of the findings, and roles that take part
EXPECTED = {
    "full-wait": ({"race", "over-arrival"}, {"producer", "consumer0", "consumer1"}),
    "full-parity": ({"race", "over-arrival"}, {"producer", "consumer0", "consumer1"}),
    "stage": ({"race"}, {"producer", "consumer0", "consumer1"}),
    "wgmma-wait": ({"race"}, {"producer", "consumer0", "consumer1"}),
    "early-release": ({"race"}, {"producer", "consumer0", "consumer1"}),
    "release": ({"deadlock"}, {"producer", "consumer0", "consumer1"}),
    "empty-wait": ({"over-arrival"}, {"producer"}),
    "empty-parity": ({"deadlock"}, {"producer", "consumer0", "consumer1"}),
    "empty-count": ({"race", "over-arrival"}, {"producer", "consumer0", "consumer1"}),
    "bytes-many": ({"deadlock"}, {"producer", "consumer0", "consumer1"}),
    "bytes-few": ({"deadlock", "race"}, {"producer", "consumer0", "consumer1"}),
    "proxy-fence": ({"proxy-fence"}, {"consumer0", "consumer1"}),
    "store-wait": ({"race"}, {"consumer0", "consumer1"}),
    "exit-wait": ({"async-at-exit"}, {"consumer0", "consumer1"}),
}


def test_every_fault_has_an_expectation() -> None:
    assert EXPECTED.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_with_its_rule_and_roles(fault: str) -> None:
    report = check(matmul.build(fault=fault))
    rules, roles = EXPECTED[fault]
    assert report.verdict == "failed"
    assert report.rules == rules
    # of a deadlock every live warp takes part; `bytes-few` deadlocks after its race
    assert {role.split("/")[0] for f in report.findings for role in f.roles} >= roles


@pytest.mark.parametrize("harmless", HARMLESS)
@pytest.mark.parametrize(("iterations", "ctas"), [(1, 1), (4, 1), (16, 2)])
def test_the_right_kernel_is_proved(harmless: str, iterations: int, ctas: int) -> None:
    assert check(matmul.build(fault=harmless, iterations=iterations, ctas=ctas)).verdict == "proved"


def test_the_right_kernel_is_proved_by_the_text_of_ptx() -> None:
    assert check(matmul.build(), strict="ptx").verdict == "proved"


def test_it_multiplies() -> None:
    rng = np.random.default_rng(0)
    dtype = numpy_dtype(bf16)
    a = rng.integers(-2, 3, (256, 64 * 5)).astype(dtype)
    b = rng.integers(-2, 3, (128, 64 * 5)).astype(dtype)
    product = (a.astype(np.float32) @ b.astype(np.float32).T).astype(dtype)
    run = simulate(matmul.build(iterations=5, ctas=2), {"A": a, "B": b})
    assert not run.findings
    assert np.array_equal(run.outputs["C"], np.concatenate((product, product), 1))
