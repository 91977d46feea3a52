"""Autotuned kernels, the fixture ``triton_check``, and what ``tilesim capture`` says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tilesim.cli import main as tilesim
from tilesim.errors import UsageError

tt: Any = pytest.importorskip(
    "tilesim.triton", reason="needs the triton extra", exc_type=ImportError
)
kernels: Any = pytest.importorskip("tests.triton.kernels")
hopper: Any = pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
gl: Any = pytest.importorskip("triton.experimental.gluon.language")
tl: Any = pytest.importorskip("triton.language")

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
WITH = "with PHASE={}, num_warps=4, num_stages=3"


def maps() -> list[Any]:
    """Descriptors of two matrices."""
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    make = hopper.TensorDescriptor.from_tensor
    return [make(tt.empty((256, 64), tl.float16), [64, 64], layout) for _ in range(2)]


def test_every_configuration_is_checked_and_said() -> None:
    skipped: list[Any] = []
    seen: list[tuple[int, int]] = []
    for _ in range(2):  # an autotuner remembers its choice; the next check starts afresh
        skipped.clear()
        found = tt.check_all(
            kernels.tuned[(1,)], *maps(), 4, skip=skipped.append,
            progress=lambda number, of, launched: seen.append((number, of)),
        )  # fmt: skip
        right, wrong = (report for _, report in found)
        assert (right.verdict, wrong.verdict) == ("proved", "failed")
        assert wrong.findings[0].rule == "race"
        for phase, (launched, report) in enumerate(found):
            assert launched.launch.about == WITH.format(phase)
            assert report.covers.endswith(f"; {WITH.format(phase)}")
        assert [(s.configuration.split(",")[0], s.why) for s in skipped] == [
            ("PHASE: 2", skipped[0].why), ("PHASE: 3", "pruned by the kernel"),
        ]  # fmt: skip
        assert "no such phase" in skipped[0].why
    assert seen == [(1, 2), (2, 2)] * 2
    assert not kernels.tuned.cache


def test_one_report_is_of_one_configuration() -> None:
    with pytest.raises(UsageError, match=r"check_all takes several.*PHASE=0.*PHASE=1"):
        tt.check(kernels.tuned[(1,)], *maps(), 4)


def test_a_grid_of_nothing_launches_nothing() -> None:
    assert tt.record(kernels.increased[(0,)], *maps(), 4, PHASE=0, num_warps=4) == ()


# ------------------------------------------------------------------ pytest

HEAD = """
import pytest
from tests.triton.kernels import increased, tuned
from tests.triton.test_configurations import maps
"""
RIGHT = "increased[(1,)](*maps(), 4, PHASE=0, num_warps=4)"
WRONG = "increased[(1,)](*maps(), 4, PHASE=1, num_warps=4)"


def run(pytester: pytest.Pytester, *tests: tuple[str, str]) -> str:
    """A test run of its own, of tests with a mark and a body each; its output."""
    bodies = (
        f"{mark}\ndef test_{number}(triton_check):\n    {body}\n"
        for number, (mark, body) in enumerate(tests)
    )
    pytester.makepyfile("\n".join((HEAD, *bodies)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:tilesim", "-p", "_tilesim_pytest",
               "-p", "no:cacheprovider", f"--rootdir={pytester.path}"]  # fmt: skip
    done = subprocess.run(
        command, cwd=pytester.path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_launch_in_a_test_is_checked(pytester: pytest.Pytester) -> None:
    mark = "@pytest.mark.triton_check(expect='race')"
    said = run(
        pytester, ("", RIGHT), ("", WRONG), (mark, WRONG), (mark, RIGHT), ("", "pass"),
        ("", "tuned[(1,)](*maps(), 4)"), (mark.replace("expect", "expct"), "pass"),
    )  # fmt: skip
    assert "4 failed, 2 passed" in said
    assert "1 error" in said
    assert "FAILED increased  (race" in said
    assert "value = buffer.load(layout)" in said
    assert "expected race, but the checks say" in said
    assert "no Triton kernel was launched in this test" in said
    assert f"proved  tuned {WITH.format(0)}\nfailed  tuned {WITH.format(1)}\nskipped" in said
    assert "takes accept, budget, deny, expect, schedules, seed, strict, target, not expct" in said
    assert "6 launches: 3 proved, 3 failed" in said


# ------------------------------------------------------------------ capture


def test_capture_says_which_configurations_there_are(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.triton.kernels import tuned\n"
        "from tests.triton.test_configurations import maps\n"
        "tuned[(1,)](*maps(), 4)\nraise SystemExit(5)\n"
    )
    folder = tmp_path / "captured"
    command = [sys.executable, "-m", "tilesim", "capture", "-o", str(folder), "--", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 5
    first, second, third, fourth, last = done.stderr.splitlines()[-5:]
    assert first == f"captured tuned: 1x1x1 CTAs, {WITH.format(0)}"
    assert second == f"captured tuned_1: 1x1x1 CTAs, {WITH.format(1)}"
    assert third.startswith("skipped tuned: PHASE: 2,")
    assert fourth.startswith("skipped tuned: PHASE: 3,")
    assert last == (
        f"captured 2 kernel and launch configurations into {folder}; 2 configurations not launched"
    )
    again = CliRunner().invoke(tilesim, command[3:])
    assert again.exit_code == 2
    assert "has kernels already" in again.output
    checked = CliRunner().invoke(tilesim, ["check", str(folder)])
    assert checked.exit_code == 1
    words = " ".join(checked.output.split())
    assert f"program order; launched with tiles = 4; {WITH.format(0)} cost" in words
    assert "2 kernels: 1 proved, 1 failed" in words


def test_ctrl_c_keeps_what_was_captured(tmp_path: Path) -> None:
    """A terminal sends it to the command and to the script that it runs."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, time\n"
        "from tests.triton.kernels import tuned\n"
        "from tests.triton.test_configurations import maps\n"
        "tuned[(1,)](*maps(), 4)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.killpg(os.getpgrp(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    start = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from tilesim.cli import main; main()"
    )
    folder = tmp_path / "captured"
    done = subprocess.run(
        [sys.executable, "-c", start, "capture", "-o", str(folder), "--", str(script)],
        capture_output=True, text=True, check=False, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "interrupted: what was captured so far is kept" in done.stderr
    assert "captured 2 kernel and launch configurations" in done.stderr
    assert len(list(folder.glob("*.ptx"))) == 2
