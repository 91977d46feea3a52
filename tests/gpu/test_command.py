"""The commands, with the simulator in place of the GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilesim import UsageError
from tilesim.gpu import command
from tilesim.gpu import crosscheck as crosscheck_module
from tilesim.gpu.command import main, markdown, run_gpu, write
from tilesim.gpu.compile import Binary, Resources
from tilesim.gpu.crosscheck import Result
from tilesim.gpu.emit.source import Source
from tilesim.gpu.watchdog import Executor
from tilesim.kernels.hopper.copy import vector
from tilesim.kernels.nvfuser.printed import only, printed
from tilesim.loader import Target

from . import needs
from .test_watchdog import SCRIPT


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
def test_a_hang_on_the_gpu_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    stuck = Target("stuck", "", printed, params=only("dead_role"))
    assert run_gpu([stuck], backend="gpu", seed=1) == 1
    assert "stuck: deadlock: printed did not end" in capsys.readouterr().out


@pytest.mark.usefixtures("fake_gpu")
@needs.compiler
def test_the_gallery_as_a_table(tmp_path: Path) -> None:
    table, results = tmp_path / "table.md", tmp_path / "results.json"
    arguments = ["--kernel", "copy::", "--perturb", "1", "--seed", "3"]
    assert main([*arguments, "--markdown", str(table), "--json", str(results)]) == 0
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
def test_without_a_gpu_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--limit", "1"]) == 2
    assert "there is no NVIDIA driver here" in capsys.readouterr().err


@needs.compiler
def test_the_suffix_says_what_is_written(tmp_path: Path) -> None:
    program = vector.build()
    for suffix, start in ((".cu", b"// vector"), (".ptx", b"//"), (".cubin", b"\x7fELF")):
        path = tmp_path / f"kernel{suffix}"
        write(program, path)
        assert path.read_bytes().startswith(start)
    with pytest.raises(UsageError, match=r"cannot write .so: use .cu, .ptx or .cubin"):
        write(program, tmp_path / "kernel.so")
