"""Autotuned kernels, the fixture ``triton_check``, and what ``tilesim capture`` says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tilesim.cli import main as tilesim
from tilesim.errors import UsageError
from tilesim.ptx.launch import Scalar

tt: Any = pytest.importorskip(
    "tilesim.triton", reason="needs the triton extra", exc_type=ImportError
)
kernels: Any = pytest.importorskip("tests.triton.kernels")
hopper: Any = pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
given: Any = pytest.importorskip("tilesim.triton.parameters")
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
            assert WITH.format(phase) in repr(launched)
            assert ".entry" not in repr(launched)
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


def run(pytester: pytest.Pytester, *tests: tuple[str, str], options: Sequence[str] = ()) -> str:
    """A test run of its own, of tests with a mark and a body each; its output."""
    bodies = (
        f"{mark}\ndef test_{number}(triton_check):\n    {body}\n"
        for number, (mark, body) in enumerate(tests)
    )
    pytester.makepyfile("\n".join((HEAD, *bodies)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:tilesim", "-p", "_tilesim_pytest",
               "-p", "no:cacheprovider", f"--rootdir={pytester.path}", *options]  # fmt: skip
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
    assert "takes accept, budget, deny, expect, schedules, seed, strict, strict_values, target, "
    assert "not expct" in said in said
    assert "6 launches: 3 proved, 3 failed" in said


#: as `torch_without_gpu` notes what it leaves out
COMPARES = (
    "from tilesim.recording.left_out import LeftOut\n"
    "    note = triton_check.left_out.append\n"
    "    note(LeftOut('torch.allclose', 'test.py:7'))\n    "
)


def test_comparisons_that_are_not_made_are_counted(pytester: pytest.Pytester) -> None:
    twice = COMPARES + COMPARES.splitlines()[-2].lstrip() + "\n    " + RIGHT
    tests = ("", COMPARES + RIGHT), ("", RIGHT), ("", twice)
    said = run(pytester, *tests)
    assert "3 passed" in said
    file = pytester.path / "test_comparisons_that_are_not_made_are_counted.py"
    one = "1 comparison of numbers not made: torch.allclose (1)\n"
    assert f"{file.name}::test_0: {one}" in said
    assert f"{file.name}::test_2: 2 comparisons of numbers not made: torch.allclose (2)" in said
    assert f"{file.name}::test_1:" not in said
    assert "3 comparisons of numbers not made: torch.allclose (3), in 2 tests" in said
    for option in ("--strict-values", "--tilesim-strict-values"):
        strict = run(pytester, *tests, options=[option])
        assert "2 failed, 1 passed" in strict
        assert f"{one[:-1]}: tensors have no values here\n  torch.allclose at test.py:7" in strict
    mark = "@pytest.mark.triton_check(strict_values=True)"
    assert "1 failed, 1 passed" in run(pytester, (mark, COMPARES + RIGHT), (mark, RIGHT))


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_what_torch_would_compare_is_counted(pytester: pytest.Pytester) -> None:
    """Also by a name that the test has imported, by a method and by Triton's own function; of
    numbers that are known, a wrong comparison fails."""
    head = "import torch, triton.testing\nfrom torch.testing import assert_close\n"
    body = (
        "out = torch.empty(4, device='cuda')\n"
        "    assert_close(out, out + 1)\n"
        "    assert torch.allclose(out, out + 1) and out.allclose(out + 1)\n"
        "    triton.testing.assert_close(out, out + 1)\n    "
    )
    said = run(pytester, (head, body + RIGHT), ("", "assert_close(1.0, 2.0)\n    " + RIGHT))
    assert "1 failed, 1 passed" in said
    assert (
        "4 comparisons of numbers not made: torch.Tensor.allclose (1), torch.allclose (1), "
        "torch.testing.assert_close (1), triton.testing.assert_close (1), in 1 test" in said
    )


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
        "captured 2 kernel and launch configurations of 3 launches, 1 of them repeated "
        f"into {folder}; 2 configurations not launched"
    )
    again = CliRunner().invoke(tilesim, command[3:])
    assert again.exit_code == 2
    assert "has kernels already" in again.output
    checked = CliRunner().invoke(tilesim, ["check", str(folder)])
    assert checked.exit_code == 1
    words = " ".join(checked.output.split())
    assert f"program order; launched with tiles = 4; {WITH.format(0)} cost" in words
    assert "2 kernels: 1 proved, 1 failed" in words


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import triton, sys\nsys.exit(0)\n", "the script launched no kernel; "),
        (
            "print('no kernel')\n",
            "the script has imported none of cuda.tile, cutlass, helion, tilelang",
        ),
    ],
)
def test_capture_of_nothing_fails_and_says_why(tmp_path: Path, script: str, why: str) -> None:
    if find_spec("torch") is not None:  # which imports triton by itself
        why = "the script launched no kernel; "
    path = tmp_path / "script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "tilesim", "capture", "-o", str(tmp_path / "out"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    captured, reason = done.stderr.splitlines()[-2:]
    assert captured.startswith("captured 0 kernel and launch configurations into")
    assert reason.startswith(why)


def test_a_version_of_triton_that_cannot_be_captured_is_said(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nsys.modules['tilesim.triton.parameters'] = None\nimport triton\n"
    )
    command = [sys.executable, "-m", "tilesim", "capture", "-o", str(tmp_path / "out"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "kernels of this version of triton cannot be captured: import of " in done.stderr


def test_a_nan_is_a_number_that_is_not_known() -> None:
    (found,) = given.parameters({"scale": "fp32"}, (), (float("nan"),))
    assert found == Scalar("scale", "f32", None)


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
