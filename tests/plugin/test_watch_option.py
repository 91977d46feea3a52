"""``pytest --tilesim-watch``, with an imitation of the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_plugin import PLUGINS

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
TESTS = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
AT_IMPORT = os.environ.get("CUDA_ENABLE_USER_TRIGGERED_COREDUMP")
from tests.autopsy.fake_program import drive
from tilesim.autopsy import guard
guard.autopsy, guard.render = str, "report of {{}}\\n".format

def test_variables():
    assert AT_IMPORT == "1"

def test_hangs():
    drive().join()
    END

def test_never_run():
    pass
"""


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("temporary")))
    return pytester


def test_a_test_that_passes_after_its_dump_has_failed(folder: pytest.Pytester) -> None:
    folder.makepyfile(TESTS.replace("END", "pass"))
    result = folder.runpytest_subprocess(*PLUGINS, "--tilesim-watch", "0.2")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*.py::test_hangs takes longer than 0.2 s: its GPU is dumped", "report of *.nvcudmp",
         "*the GPU was dumped in *.py::test_hangs !*"]
    )  # fmt: skip
    # at once, past what captures output
    result.stderr.fnmatch_lines(["tilesim: *.py::test_hangs takes longer than 0.2 s: *"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert not list((folder.path / "temporary").glob("tilesim*"))


def test_workers_watch_their_own_tests(folder: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    folder.makepyfile(TESTS.replace("END", "raise RuntimeError('unspecified launch failure')"))
    result = folder.runpytest_subprocess(*PLUGINS, "--tilesim-watch", "0.2", "-n", "1")
    result.stdout.fnmatch_lines(
        ["*RuntimeError: unspecified launch failure*", "*- tilesim -*",
         "*.py::test_hangs takes longer than 0.2 s: its GPU is dumped"]
    )  # fmt: skip
    assert result.parseoutcomes()["failed"] == 1
    assert result.ret != 0
    assert not list((folder.path / "temporary").glob("tilesim*"))


@pytest.mark.parametrize("value", ["0", "-1", "nan", "soon"])
def test_a_value_that_is_no_time_is_refused(folder: pytest.Pytester, value: str) -> None:
    result = folder.runpytest_inprocess(*PLUGINS, f"--tilesim-watch={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*argument --tilesim-watch: invalid*{value}*"])


def test_nothing_is_loaded_without_the_option(folder: pytest.Pytester) -> None:
    folder.makepyfile("import sys\ndef test(): assert 'tilesim.autopsy' not in sys.modules")
    result = folder.runpytest_subprocess(*PLUGINS)
    result.assert_outcomes(passed=1)
