"""The cause that a finding names, and its culprit: faults of known lines in kernels of the gallery.

The kernels themselves are right (`tests/kernels/test_registry.py` proves them): each pair is a
mutant and its kernel.
"""

from __future__ import annotations

import pytest

from benchmarks.blame.known import Known, mutants
from tilesim.checker import check
from tilesim.checker.witness import replay
from tilesim.mistakes import diagnose as explain

#: by fault and a part of the mutant's name: what the cause says
CAUSES = (
    ("wrong parity", "matmul_v4.py:61", "this wait passes at once: parity 1 on full["),
    ("wrong parity", "matmul_v4.py:52", "the producer's first wait must use parity 1"),
    ("phase not carried", "matmul_v4.py:52", "does not follow the uses of the barrier"),
    ("relaxed wait", "matmul_v5.py:105", "is relaxed: it orders no accesses"),
    ("relaxed arrival", "matmul_v4.py:65", "is relaxed: it releases nothing"),
    ("wrong arrival count", "copy.py:71: count 2", "is initialised with 2, and 1 arrival is"),
    ("wrong bytes", "copy.py:78: 16 bytes too many", "bytes are expected on full["),
    ("bytes not expected", "matmul_v2.py:48", "copies complete 16384 bytes"),
    ("dead predicate", "matmul_v5.py:113", "does not hold"),
    ("wrong group count", "matmul_v5.py:112: 2 groups", "wgmma.wait_group 2 does not wait for"),
    ("commit without the operations", "blackwell/matmul_v2.py:67", "only tcgen05.commit does"),
    ("init dropped", "copy.py:71", "of the barriers leaves this one out"),
    ("wrong multicast mask", "no mask", "it names another barrier"),
    ("store not awaited", "matmul_v5.py:83", "no wait_group follows"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis that raises fails the test."""
    monkeypatch.setattr(explain, "RAISES", True)


@pytest.fixture(scope="module")
def known() -> list[Known]:
    """All mutants of these faults."""
    return [known for known in mutants(10_000) if known.group in {fault for fault, _, _ in CAUSES}]


@pytest.mark.parametrize(("fault", "part", "cause"), CAUSES)
def test_the_culprit_is_the_line_that_is_wrong(
    known: list[Known], fault: str, part: str, cause: str
) -> None:
    mutant = next(k for k in known if k.group == fault and part in k.name)
    report = check(mutant.make(), inputs=mutant.inputs)
    assert report.verdict == "failed"
    finding = report.findings[0]
    assert cause in finding.cause
    assert finding.locations[0] == finding.culprits[0].loc
    assert finding.locations[0] in mutant.culprits


def test_a_replay_names_the_same_causes(known: list[Known]) -> None:
    mutant = next(k for k in known if k.group == "relaxed wait")
    report = check(mutant.make(), inputs=mutant.inputs)
    assert report.witness is not None
    run = replay(mutant.make(), report.witness, mutant.inputs)
    assert [f.cause for f in run.findings] == [f.cause for f in report.findings]


def test_findings_keep_both_sides(known: list[Known]) -> None:
    mutant = next(k for k in known if k.group == "wrong parity" and "matmul_v4.py:61" in k.name)
    finding = check(mutant.make()).findings[0]
    assert finding.rule == "race"
    assert {p.role for p in finding.participants} == {"producer", "consumer"}
    assert [p.role for p in finding.culprits] == ["consumer"]


def test_a_run_that_is_too_long_is_not_repeated(
    known: list[Known], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = next(k for k in known if k.group == "relaxed wait")
    with_causes = check(mutant.make(), inputs=mutant.inputs)
    monkeypatch.setattr(explain, "AFFORDABLE", 0)
    without = check(mutant.make(), inputs=mutant.inputs)
    assert {f.rule for f in without.findings} == {f.rule for f in with_causes.findings}
    assert [f.cause for f in without.findings] == [""] * len(without.findings)
    assert without.findings[0].notes[-1].startswith("its cause is not looked for: the run executes")
