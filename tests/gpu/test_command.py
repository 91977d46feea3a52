"""The commands, with the simulator in place of the GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from tilesim import Builder, UsageError, kernel, s32
from tilesim.cli import gpu as command
from tilesim.cli import main as cli
from tilesim.cli.gpu import markdown, run_gpu, write
from tilesim.gpu import crosscheck as crosscheck_module
from tilesim.gpu.compile import Binary, Resources
from tilesim.gpu.crosscheck import Result
from tilesim.gpu.emit.emitter import Source
from tilesim.gpu.watchdog import Executor
from tilesim.kernels.hopper.copy import vector
from tilesim.kernels.nvfuser.printed import only, printed
from tilesim.loader import Target

from . import needs
from .test_watchdog import SCRIPT

_VECTOR = "tilesim.kernels.hopper.copy::vector"


def twice(inputs: Mapping[str, NDArray[Any]], **params: Any) -> dict[str, NDArray[Any]]:
    """What `doubled` computes."""
    return {"y": 2 * inputs["x"]}


@kernel(warps=1, reference=twice)
def doubled(k: Builder) -> None:
    """Integers, of which every bit counts."""
    x, y = k.tensor("x", s32, (32,)), k.tensor("y", s32, (32,))
    value = k.var("value")
    k.mem.load(value, x[k.lane_id])
    k.mem.store(y[k.lane_id], value * 2)


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs kernels in the simulator, in a worker process, without compiling them."""

    def pretend(source: Source, *, directory: object = None) -> Binary:
        return Binary(source, b"right", Resources(0, 0, 0, 0, 0))

    monkeypatch.setattr(command, "compile_cubin", pretend)
    monkeypatch.setattr(crosscheck_module, "compile_cubin", pretend)
    monkeypatch.setattr(command, "Executor", lambda: Executor(SCRIPT))
    monkeypatch.setattr(command, "probe", lambda: None)


@pytest.mark.usefixtures("fake_gpu")
def test_run_on_the_gpu_compares_with_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    targets = [Target("vector", "", vector)]
    assert run_gpu(targets, backend="gpu", seed=1) == 0
    assert "vector: Y (4096 float32): equal to the reference" in capsys.readouterr().out


@pytest.mark.usefixtures("fake_gpu")
def test_run_on_both_compares_them(capsys: pytest.CaptureFixture[str]) -> None:
    stuck = Target("stuck", "", printed, params=only("dead_role"))
    targets = [Target("vector", "", vector), stuck]
    assert run_gpu(targets, backend="both", seed=1) == 0
    output = capsys.readouterr().out
    assert "vector: equal" in output
    assert "stuck: same hang" in output
    assert "deadlock: printed did not end" in output


@pytest.mark.usefixtures("fake_gpu")
def test_perturb_adds_launches_with_random_delays(capsys: pytest.CaptureFixture[str]) -> None:
    targets = [Target("doubled", "", doubled)]
    assert run_gpu(targets, backend="gpu", seed=1, perturb=3) == 0
    assert "max error 0, in 4 launches, 3 with random delays\n" in capsys.readouterr().out
    for perturb, launches in (
        (2, " in 3 launches"),
        (None, " in 5 launches"),
        (0, " in 2 launches"),
    ):
        assert run_gpu(targets, backend="both", seed=1, perturb=perturb) == 0
        assert capsys.readouterr().out == f"doubled: equal{launches}\n"


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize("reference", [True, False])
def test_a_result_that_delays_change_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reference: bool
) -> None:
    def pretend(source: Source, *, directory: object = None) -> Binary:
        delayed = any(p.kind == "seed" for p in source.params)
        return Binary(source, b"wrong" if delayed else b"right", Resources(0, 0, 0, 0, 0))

    monkeypatch.setattr(command, "compile_cubin", pretend)
    program = doubled if reference else replace(doubled, reference=None)
    targets = [Target("doubled", "", program)]
    assert run_gpu(targets, backend="gpu", seed=1) == 0
    assert run_gpu(targets, backend="gpu", seed=1, perturb=2) == 1
    assert ", in launch 1 with random delays" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--perturb", "3"], "--perturb delays warps of a GPU: add --backend gpu or both"),
        (["--backend", "gpu", "--perturb", "-1"], "-1 is not in the range 0<=x<=10000"),
        (["--backend", "both", "--perturb", "10001"], "10001 is not in the range 0<=x<=10000"),
        (["--backend", "gpu", "--perturb", "some"], "'some' is not an integer like 1"),
    ],
)
def test_perturb_is_validated(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["run", _VECTOR, *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.usefixtures("fake_gpu")
def test_a_hang_on_the_gpu_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    stuck = Target("stuck", "", printed, params=only("dead_role"))
    assert run_gpu([stuck], backend="gpu", seed=1) == 1
    assert "stuck: deadlock: printed did not end" in capsys.readouterr().out


@pytest.mark.usefixtures("fake_gpu")
@needs.compiler
def test_the_gallery_as_a_table(tmp_path: Path) -> None:
    table, results = tmp_path / "table.md", tmp_path / "results.json"
    arguments = ["--kernel", "copy::", "--perturb", "1", "--seed", "3"]
    files = ["--markdown", str(table), "--json", str(results)]
    result = CliRunner().invoke(cli, ["crosscheck", *arguments, *files])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].endswith(", seed 3")
    rows = json.loads(results.read_text())["results"]
    assert [r["result"] for r in rows] == ["equal"] * 4
    assert "4 agree, 0 disagree, 0 not run." in table.read_text()


@needs.compiler
def test_the_table_counts_and_escapes() -> None:
    results = [
        Result("a", "sm_90a", "equal", "completes", "completes", 0.0, 5, device="GPU X"),
        Result("b", "sm_90a", "differs", "completes", "completes", 2.0, 5, "x|y"),
        Result("c", "sm_90a", "skipped", "race"),
    ]
    text = markdown(results)
    assert text.startswith("GPU X; nvrtc ")
    assert "1 agree, 1 disagree, 1 not run." in text
    assert "| b | sm_90a | completes | completes | differs | 2 | 5 | x/y |" in text


@needs.no_driver
def test_without_a_gpu_the_commands_say_so() -> None:
    for arguments in (["crosscheck", "--limit", "1"], ["run", _VECTOR, "--backend", "gpu"]):
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert "there is no NVIDIA driver here" in result.stderr


@needs.compiler
def test_the_suffix_says_what_is_written(tmp_path: Path) -> None:
    program = vector.build()
    for suffix, start in ((".cu", b"// vector"), (".ptx", b"//"), (".cubin", b"\x7fELF")):
        path = tmp_path / f"kernel{suffix}"
        write(program, path)
        assert path.read_bytes().startswith(start)
    with pytest.raises(UsageError, match=r"cannot write .so: use .cu, .ptx or .cubin"):
        write(program, tmp_path / "kernel.so")
