"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

# imported here, not in every test run: a run in this process forgets what it imported
from tilesim import Builder
from tilesim.checker import check
from tilesim.checker.witness import Witness

pytest_plugins = ["pytester"]
Run = Callable[..., pytest.RunResult]
first = Builder("first")
first.sync_warp()
check(first.finish())

import_module("tilesim.report.text")

ROOT = Path(__file__).parents[2]
#: ours, whether installed or not; hypothesis takes a second to load
PLUGINS = ("-p", "no:tilesim", "-p", "_tilesim_pytest", "-p", "no:hypothesispytest",
           "-p", "no:cacheprovider")  # fmt: skip
KERNELS = """
import tilesim as ts
from tilesim import mark

@ts.kernel(warps=2)
def ring(k, *, stages=2, trips=3, arrivals=1):
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    with k.one_thread():
        for s in range(stages):
            k.mbarrier.init(full[s], arrivals)
            k.mbarrier.init(empty[s], 1)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(trips) as i:
        k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1)
        k.mbarrier.arrive(full[i % stages])
    with k.role("consumer", 1), k.elected(), k.loop(trips) as i:
        k.mbarrier.wait(full[i % stages], (i // stages) & 1)  # wait
        k.mbarrier.arrive(empty[i % stages])

@ts.kernel(warps=1)
def polled(k):
    b, answer = k.mbarriers("b"), k.var("answer")
    with k.one_thread():
        k.mbarrier.init(b, 1)
        k.mbarrier.try_wait(answer, b, 0)
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest with the plugin on a test file that starts with `KERNELS`."""
    monkeypatch.syspath_prepend(str(ROOT))

    def run_(tests: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(KERNELS + tests)
        return pytester.runpytest_inprocess(*PLUGINS, "-q", *arguments)

    return run_


RING_WITH_A_NOTE = """
@ts.kernel(warps=5)
def noted(k, *, stages=2, trips=3, arrivals=1, note=None):
    ring.function(k, stages=stages, trips=trips, arrivals=arrivals)

"""

FAMILY = """
@mark.check(ring, params={"stages": [1, 2], "trips": [0, 1, 3], "arrivals": ARRIVALS})
def test_ring(): ...
"""


def test_marker_checks_every_combination(run: Run) -> None:
    result = run(FAMILY.replace("ARRIVALS", "1"), "-vv")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["*test_ring?stages=1-trips=0-arrivals=1? PASSED*"])


def test_findings_are_failures_with_the_wait_for_chain_and_lines(run: Run) -> None:
    result = run(FAMILY.replace("ARRIVALS", "2"))
    result.assert_outcomes(passed=2, failed=4)
    result.stdout.fnmatch_lines(
        [
            "FAILED ring?stages=1,trips=3,arrivals=2?*",
            "*where*consumer*",
            "*# wait*",
            "*notes*waits*",
            "*tilesim explain*",
        ]
    )
    assert "_tilesim_pytest.py" not in result.stdout.str()


def test_expected_finding_passes_and_a_missing_one_fails(run: Run) -> None:
    tests = """
@mark.check(ring, params={"arrivals": [2, 1], "stages": 1}, expect="EXPECTED")
def test_ring(): ...
"""
    rule = "deadlock"
    result = run(tests.replace("EXPECTED", rule))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([f"*expected {rule}, but the check says*", "PROVED ring*"])


def test_report_is_available_in_a_marked_test(run: Run) -> None:
    result = run(
        """
@mark.check(ring)
def test_ring(tilesim_report):
    assert tilesim_report.verdict == "proved"

@mark.check(ring, params={"trips": [2]})
def test_fails_in_its_body(tilesim_report):
    assert tilesim_report.verdict == "failed"
"""
    )
    result.assert_outcomes(passed=1, failed=1)


def test_fixture_checks_programs(run: Run) -> None:
    result = run(
        """
def test_good(tilesim_check):
    assert tilesim_check(ring.build(trips=1)).verdict == "proved"

def test_kernel(tilesim_check):
    tilesim_check(ring, params={"trips": 2})

def test_bad(tilesim_check):
    tilesim_check(ring.build(arrivals=2))
    assert False, "not reached"
"""
    )
    result.assert_outcomes(passed=2, failed=1)
    assert "not reached" not in result.stdout.str().replace('"not reached"', "")


def test_machine_code_is_compared_if_asked(run: Run) -> None:
    tests = """
import pytest
from tilesim.errors import TilesimError

@mark.check(ring, sass=True)
def test_marked(tilesim_report):
    assert "machine-values" in {one.name for one in tilesim_report.leanings}

def test_none(tilesim_check, monkeypatch):
    def nothing(program):
        raise TilesimError("there is none")
    monkeypatch.setattr("tilesim.cli.sass._emitted", nothing)
    assert tilesim_check(ring, sass=True, accept="bounded").verdict == "bounded"
    tilesim_check(ring, sass=True)

def test_not_asked(tilesim_check):
    assert "machine-code" in {one.name for one in tilesim_check(ring).leanings}

def test_all(tilesim_check):
    tilesim_check(ring, sass=True, for_all="trips")
"""
    result = run(tests, "--junit-xml=out.xml")
    result.assert_outcomes(passed=2, failed=2)
    text = result.stdout.str()
    assert "BOUNDED ring, PROVED as a program, machine code not compared" in text
    assert "sass compares the machine code of one program: no for_all" in text
    marked, *_ = ElementTree.parse("out.xml").getroot().iter("testcase")
    properties = {one.get("name"): one.get("value") for one in marked.iter("property")}
    assert properties["tilesim.machine_code"] == "validated"
    result = run(
        "\ndef test_not_asked(tilesim_check): tilesim_check(ring)\n", "--tilesim-sass", "-rA"
    )
    result.assert_outcomes(passed=1)


def test_open_verdicts_fail_unless_accepted(run: Run) -> None:
    result = run(
        """
def test_open(tilesim_check):
    tilesim_check(polled)

def test_accepted(tilesim_check):
    assert tilesim_check(polled, accept="bounded").verdict in ("bounded", "exhausted")
""",
        "--tilesim-budget=0",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*accept='bounded'*", "BOUNDED polled*"])


def test_strictness_option(run: Run) -> None:
    tests = """
def test_reported(tilesim_check):
    print(tilesim_check(ring, accept="bounded").covers)
"""
    run(tests, "-s").stdout.fnmatch_lines(["*strictness practice*"])
    run(tests, "-s", "--tilesim-strict=ptx").stdout.fnmatch_lines(["*strictness ptx*"])


def test_witness_replays(run: Run, pytester: pytest.Pytester) -> None:
    result = run(
        "def test_bad(tilesim_check):\n    tilesim_check(ring, params={'arrivals': 2})\n",
        "--tilesim-witness-dir=found",
    )
    result.assert_outcomes(failed=1)
    (path,) = (pytester.path / "found").iterdir()
    result.stdout.fnmatch_lines([f"*witness*{path.name}*"])
    assert Witness.from_dict(json.loads(path.read_text())).kernel == "ring"


def test_junit_properties(run: Run, pytester: pytest.Pytester) -> None:
    run(FAMILY.replace("ARRIVALS", "[1, 2]"), "--junit-xml=out.xml")
    cases = ElementTree.parse(pytester.path / "out.xml").iter("testcase")
    seen = {}
    for case in cases:
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        seen[case.get("name")] = properties
        assert "strictness practice" in (properties["tilesim.covers"] or "")
    assert seen["test_ring[stages=1-trips=3-arrivals=1]"]["tilesim.verdict"] == "proved"
    assert seen["test_ring[stages=1-trips=3-arrivals=2]"]["tilesim.verdict"] == "failed"
    assert "tilesim.rules" not in seen["test_ring[stages=1-trips=3-arrivals=1]"]
    assert seen["test_ring[stages=1-trips=3-arrivals=2]"]["tilesim.rules"]


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("@mark.check('ring')\ndef test_x(): ...", "takes one kernel or program"),
        ("@mark.check(ring, params=3)\ndef test_x(): ...", "params=3 is no dict of values by"),
        ("def test_x(tilesim_check):\n    tilesim_check(5)", "takes a kernel or a program, not 5"),
        ("@mark.check(ring, stages=2)\ndef test_x(): ...", "kernel parameters go into"),
        ("def test_x(tilesim_report): ...", "needs @pytest.mark.tilesim"),
        (
            "def test_x(tilesim_check):\n    tilesim_check(ring, expect='hang')",
            "expect='hang' is not a rule",
        ),
    ],
)
def test_misuse_says_what_to_do(run: Run, tests: str, message: str) -> None:
    result = run(tests)
    assert result.ret != 0
    said = result.stdout.str() + result.stderr.str()
    assert message in said
    assert "_pytest.py:" not in said  # nothing of how the plugin came there


def test_rejected_programs_fail_with_every_reason(run: Run) -> None:
    result = run(
        """
@ts.kernel(warps=1)
def illegal(k):
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 0)

def test_illegal(tilesim_check):
    tilesim_check(illegal)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["illegal is rejected by the verifier:", "*arrival count 0*"])


def test_under_xdist(run: Run) -> None:
    pytest.importorskip("xdist")
    result = run(FAMILY.replace("ARRIVALS", "[1, 2]"), "-n1")
    result.assert_outcomes(passed=8, failed=4)


def test_values_without_a_name_under_xdist(run: Run) -> None:
    """All processes have to have the same tests, and an address in a name is another in each."""
    pytest.importorskip("xdist")
    tests = FAMILY.replace('"arrivals": ARRIVALS', '"arrivals": [1], "note": [lambda: 1, object()]')
    named = tests.replace("@mark", RING_WITH_A_NOTE + "@mark").replace("ring,", "noted,")
    run(named, "-n2").assert_outcomes(passed=12)


def test_start_up_does_not_import_tilesim() -> None:
    code = "import sys, _tilesim_pytest; sys.exit('tilesim' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_conditional_proofs_are_counted_and_can_be_denied(run: Run) -> None:
    tests = """
@ts.kernel(warps=2)
def two_sites(k):
    with k.role("first", 0):
        k.bar.sync(1, 64)
    with k.role("second", 1):
        k.bar.sync(1, 64)

@mark.check(two_sites)
def test_leaning(): ...

@mark.check(two_sites, deny="U16")
def test_denied(): ...

@mark.check(ring)
def test_ring(): ...
"""
    result = run(tests)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*DENIED two_sites*", "*proved only if: U16 (2); *"])
    run(tests, "--tilesim-deny", "U4").assert_outcomes(passed=3)
    run(tests, "--tilesim-deny", "any").assert_outcomes(passed=1, failed=2)


def test_proofs_are_rechecked_if_that_is_asked(run: Run) -> None:
    tests = """
@mark.check(ring)
def test_ring(): ...

@mark.check(ring, params={"arrivals": 2}, expect="deadlock")
def test_too_few(): ...

@mark.check(ring, strict="ptx")
def test_by_the_text(tilesim_report):
    assert tilesim_report.rechecked.verdict in ("certified", "not covered")
"""
    result = run(tests, "--tilesim-recheck")
    result.assert_outcomes(passed=3)
    result.stdout.re_match_lines(
        [".*proofs rechecked by tilesim.*", "2 certified|1 certified, 1.*"]
    )
    assert "rechecked by tilesim" not in run(tests.replace("assert", "#")).stdout.str()
