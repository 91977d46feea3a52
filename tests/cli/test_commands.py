"""``run``, ``demo``, ``doctor`` and the command group."""

from __future__ import annotations

import gc
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilesim.cli import doctor
from tilesim.cubin.errors import CubinError
from tilesim.errors import UsageError
from tilesim.report.compare import compare

from . import kernels
from .conftest import ROOT, Invoke, Spawn, Write

DEMO = Path(__file__).parent / "golden" / "demo.txt"

COPY = (
    kernels.HEAD
    + """
def same(inputs, **params):
    return {"Y": inputs["X"] + params["add"]}


@ts.kernel(warps=1, reference=same)
def copy(k, *, add=0):
    X, Y = k.tensor("X", ts.s32, (32,)), k.tensor("Y", ts.s32, (32,))
    value = k.var("value")
    k.mem.load(value, X[k.lane_id])
    k.mem.store(Y[k.lane_id], value)
"""
)


# ------------------------------------------------------------------ run


def test_run_equals_the_reference(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("run", "tilesim.kernels.hopper.matmul_v3::matmul")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("RAN tilesim.kernels.hopper.matmul_v3::matmul\n")
    assert "equal to the reference, max error 0\n" in result.stdout
    assert "warp instructions" in result.stdout
    assert "cycles" in result.stdout


def test_run_reports_a_wrong_result(write: Write, tilesim_cli: Invoke) -> None:
    name = write("copy.py", COPY)
    assert tilesim_cli("run", name).exit_code == 0
    result = tilesim_cli("run", name, "--param", "add=2")
    assert result.exit_code == 1
    assert result.stdout.startswith("WRONG copy.py::copy[add=2]\n")
    assert (
        "Y (32 int32): differs from the reference, max error 2 at [0], allowed 0" in result.stdout
    )


def test_run_without_a_reference_says_so(write: Write, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("run", write("good.py", kernels.GOOD))
    assert result.exit_code == 0
    assert "no reference to compare with (tensors: out)" in result.stdout


def test_run_says_what_was_modelled_and_what_was_not(write: Write, tilesim_cli: Invoke) -> None:
    text = tilesim_cli("run", write("good.py", kernels.GOOD)).stdout
    said = " ".join(text.split())
    assert "modelled the timed schedule, with barriers, copies, proxies and all numbers;" in said
    assert "random integers as inputs (seed 0); strictness practice" in said
    assert "not other schedules (tilesim check tries them); speed: cycles only order" in said
    assert "without effect" not in said
    body = "v = k.var('v', dtype=ts.u64)\nk.time.sleep(5)\nk.time.sleep(6)\nk.time.read(v)"
    said = " ".join(tilesim_cli("run", write("k.py", kernels.rejected(body))).stdout.split())
    assert "no inputs; strictness practice" in said
    assert "without effect here: nanosleep (2 places)" in said
    assert "other outcomes of what %clock64 shows than the one that was taken" in said


#: the reader stores what it has read: on the failing schedule it comes before the writer
LATE = (
    kernels.RARE.replace("warps=3)", 'warps=3, reference=lambda i, **p: {"y": [1]})')
    .replace("    x = k.shared", '    y = k.tensor("y", ts.s32, (1,))\n    x = k.shared')
    .replace("load(value, x[0])", "load(value, x[0])\n        k.mem.store(y[0], value)")
)


def test_run_replays_a_witness_with_numbers(write: Write, tilesim_cli: Invoke) -> None:
    name = write("late.py", LATE)
    assert "y (1 int32): equal to the reference" in tilesim_cli("run", name).stdout
    assert tilesim_cli("check", name, "--witness-dir", "w").exit_code == 1
    (witness,) = map(str, Path("w").iterdir())
    result = tilesim_cli("run", name, "--replay", witness)
    assert result.exit_code == 1
    assert result.stdout.startswith("FAILED late.py::rare\n\n  race: writer (warp 1) writes x[0]")
    assert f"modelled  the schedule of {witness}" in result.stdout
    assert "y (1 int32): differs from the reference" in result.stdout
    other = tilesim_cli("run", write("bad.py", kernels.BAD), "--replay", witness)
    assert other.exit_code == 2
    assert f"{witness}: the witness is one of kernel rare" in other.stdout
    both = tilesim_cli("run", name, "--replay", witness, "--backend", "both")
    assert both.exit_code == 2
    assert "--replay repeats a simulated schedule" in both.stderr


def test_run_replays_a_deadlock(write: Write, tilesim_cli: Invoke) -> None:
    name = write("bad.py", kernels.BAD)
    tilesim_cli("check", name, "--witness-dir", "w")
    (witness,) = map(str, Path("w").iterdir())
    result = tilesim_cli("run", name, "--replay", witness)
    assert result.exit_code == 1
    assert "deadlock: " in result.stdout
    assert "  result  " not in result.stdout


def test_run_reports_findings(write: Write, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("run", write("bad.py", kernels.BAD), write("good.py", kernels.GOOD))
    assert result.exit_code == 1
    assert result.stdout.startswith("FAILED bad.py::handshake\n\n  deadlock: ")
    assert "RAN good.py::handshake" in result.stdout


def test_run_reports_errors_of_reference_and_target(write: Write, tilesim_cli: Invoke) -> None:
    text = COPY.replace('inputs["X"] +', 'inputs["Z"] +')
    result = tilesim_cli("run", write("copy.py", text), "missing.py")
    assert result.exit_code == 2
    assert "copy.py:6: calling same of copy.py::copy raises KeyError: 'Z'" in result.stdout
    assert "missing.py: no such file" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "what"),
    [("reference=lambda i: 5", "reference"), ("inputs=lambda rng: [1]", "inputs")],
)
def test_run_with_functions_that_return_no_arrays(
    write: Write, tilesim_cli: Invoke, arguments: str, what: str
) -> None:
    text = f"{kernels.HEAD}@ts.kernel({arguments})\ndef f(k):\n    k.sync_threads()\n"
    result = tilesim_cli("run", write("f.py", text))
    assert result.exit_code == 2
    assert f"{what} of f.py::f returns" in result.stdout


def test_run_of_an_unsupported_kernel_exits_3(write: Write, tilesim_cli: Invoke) -> None:
    assert tilesim_cli("run", write("u.py", kernels.UNSUPPORTED)).exit_code == 3


def test_run_interrupted_says_where(write: Write, spawn: Spawn) -> None:
    result = spawn("run", write("long.py", kernels.INTERRUPTING))
    assert result.returncode == 130
    assert result.stdout.startswith("RAN long.py::first\n")
    assert result.stderr == "interrupted while running long.py::second\n"


def test_run_continues_after_an_internal_error(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("unexpected state")

    monkeypatch.setattr("tilesim.cli.run.compare", broken)
    names = [write("copy.py", COPY), write("good.py", kernels.GOOD)]
    result = tilesim_cli("run", *names)
    assert result.exit_code == 70
    assert "internal error: RuntimeError: unexpected state" in result.stdout
    assert "RAN good.py::handshake" in result.stdout


def test_seed_changes_the_inputs(write: Write, tilesim_cli: Invoke) -> None:
    name = write("copy.py", COPY.replace('params["add"]', 'int(inputs["X"][0]) * 100'))
    outputs = {tilesim_cli("run", name, "--seed", str(seed)).stdout for seed in range(8)}
    assert len(outputs) > 1


@pytest.mark.parametrize("backend", ["gpu", "both"])
def test_missing_gpu_backend_is_one_sentence(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setitem(sys.modules, "tilesim.cli.gpu", None)
    result = tilesim_cli("run", write("good.py", kernels.GOOD), "--backend", backend)
    assert result.exit_code == 2
    assert f"--backend {backend} needs the gpu extra and a GPU" in result.stderr
    assert "pip install 'tilesim[gpu]'" in result.stderr


# ------------------------------------------------------------------ comparing arrays


def test_integers_must_be_equal() -> None:
    big = np.array([2**63 - 1], np.int64)
    (result,) = compare({"x": big}, {"x": big - 1})
    assert not result.equal
    assert result.error == 1


@pytest.mark.parametrize(
    ("got", "want", "equal"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-6], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([np.nan, np.inf, -np.inf], [np.nan, np.inf, -np.inf], True),
        ([np.nan], [1.0], False),
        ([np.inf], [-np.inf], False),
        ([], [], True),
    ],
)
def test_floats_may_differ_by_rounding(got: list[float], want: list[float], equal: bool) -> None:
    (result,) = compare({"x": np.array(got, np.float32)}, {"x": np.array(want, np.float32)})
    assert result.equal is equal


def test_reference_of_the_wrong_shape_or_name_is_an_error() -> None:
    x = np.zeros(3)
    with pytest.raises(UsageError, match="of shape"):
        compare({"x": x}, {"x": np.zeros(4)})
    with pytest.raises(UsageError, match="not a tensor of the kernel"):
        compare({"x": x}, {"y": x})


# ------------------------------------------------------------------ demo


def test_demo_proves_and_explains(tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = tilesim_cli("demo")
    assert result.exit_code == 0, result.output
    assert result.stdout == DEMO.read_text(), "run python -m tests.cli.update"


def test_demo_shows_the_deadlock_of_nvfuser_5076(tilesim_cli: Invoke) -> None:
    text = tilesim_cli("demo").stdout
    assert "C (256x128 bfloat16): equal to the reference, max error 0" in text
    assert "PROVED tilesim.kernels.hopper.matmul_v5::matmul" in text
    assert "FAILED tilesim.kernels.nvfuser.printed::printed  (participation, " in text
    barriers = "FAILED tilesim.kernels.nvfuser.printed::printed[register_sharing=False]  (deadlock)"
    assert barriers in text
    text = text[text.index(barriers) :]
    assert "waits on full[0] parity 0" in text
    assert "could release it at" in text
    assert "What next" in text


# ------------------------------------------------------------------ doctor


def test_doctor_lists_versions_and_advice(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("doctor")
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in result.stdout.split("\n\n")[0].splitlines()]
    assert {"tilesim", "python", "numpy", "simpy", "ml_dtypes", "click", "cupy"} <= set(names)
    assert "check, run:  ready" in result.stdout
    assert "autopsy:     ready" in result.stdout
    assert re.search(r"^nvdisasm +/.*/nvdisasm$", result.stdout, re.MULTILINE)
    assert "gpu:  " in result.stdout


def _not_there() -> str:
    raise CubinError("nvdisasm is not here")


def test_doctor_without_anything_says_what_to_install(
    tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "installed", lambda *names: None)
    monkeypatch.setattr(doctor, "nvdisasm", _not_there)
    monkeypatch.setattr(doctor, "probe", lambda: doctor.Gpu("13.0", ("H200 (compute 9.0)",)))
    result = tilesim_cli("doctor")
    assert result.exit_code == 2
    assert "missing click, numpy, simpy, ml_dtypes" in result.stdout
    assert "pip install 'tilesim[compile]'" in result.stdout
    assert "pip install 'tilesim[autopsy]'" in result.stdout
    assert "pip install 'tilesim[gpu]'" in result.stdout
    assert "H200 (compute 9.0)" in result.stdout


def test_doctor_survives_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "_PROBE_SECONDS", 0.2)
    assert "does not answer" in doctor.probe().problem


def test_doctor_reports_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PROBE", "print('13.0'); print('NVIDIA H200')")
    assert doctor.probe() == doctor.Gpu("13.0", ("NVIDIA H200",))
    monkeypatch.setattr(doctor, "_PROBE", "raise SystemExit('cuInit failed with CUDA error 999')")
    assert doctor.probe().problem == "cuInit failed with CUDA error 999"


# ------------------------------------------------------------------ the group


def test_a_command_looks_for_garbage_seldom_from_its_beginning_to_its_end(
    write: Write, tilesim_cli: Invoke
) -> None:
    before = gc.get_threshold()
    told = "\nimport gc\nimport pathlib\n"
    told += "pathlib.Path(__file__).with_suffix('.txt').write_text(str(gc.get_threshold()[0]))\n"
    path = write("copy.py", COPY + told)
    assert tilesim_cli("check", path).exit_code == 0
    assert int(Path(path).with_suffix(".txt").read_text()) >= 100_000
    assert gc.get_threshold() == before


def test_help_lists_commands(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("--help")
    assert result.exit_code == 0
    for command in ("check", "run", "explain", "demo", "doctor"):
        assert f"  {command} " in result.stdout
        assert tilesim_cli(command, "--help").exit_code == 0


def test_unknown_command_exits_2(tilesim_cli: Invoke) -> None:
    assert tilesim_cli("chek").exit_code == 2


def test_module_runs_as_a_program(write: Write, spawn: Spawn) -> None:
    assert spawn("--version").stdout.startswith("tilesim ")
    result = spawn("check", write("bad.py", kernels.BAD), "--format", "json")
    assert (result.returncode, result.stderr) == (1, "")
    assert json.loads(result.stdout)["results"][0]["verdict"] == "failed"


def on_a_terminal(*args: str, **env: str) -> str:
    """What the command writes to a terminal (stdout and stderr)."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tilesim", *args]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **env}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        chunks = []
        while chunk := _read(ours):
            chunks.append(chunk)
        process.wait()
    os.close(ours)
    return b"".join(chunks).decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux: the other end is closed
        return b""


def test_colour_and_progress_only_on_a_terminal(write: Write, spawn: Spawn) -> None:
    name = write("bad.py", kernels.BAD)
    piped = spawn("check", name)
    assert "\x1b[" not in piped.stdout
    assert piped.stderr == ""
    shown = on_a_terminal("check", name, NO_COLOR="")
    assert "\x1b[31m\x1b[1mFAILED\x1b[0m" in shown
    assert "checking bad.py::handshake" in shown
    plain = on_a_terminal("check", name, NO_COLOR="1")
    assert "FAILED bad.py::handshake" in plain
    assert "\x1b[31m" not in plain
    assert "\x1b[1m" not in plain
