"""`benchmarks.gemm` and `gemm_kinds`, as far as they go without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gemm_kinds, rounds
from benchmarks.gemm import COMMAND, Row, main, programs
from tilesim.gpu.emit import emit
from tilesim.ir.target import TARGETS

from . import needs


@needs.no_driver
def test_without_a_gpu_a_sentence_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "benchmarks.gemm: there is no NVIDIA driver here" in capsys.readouterr().err


@pytest.mark.parametrize("size", [4096, 8192])
def test_the_measured_kernels_fit_the_target_and_carry_no_instrumentation(size: int) -> None:
    for name, program in programs(size, 132).items():
        source = emit(program)
        assert source.smem_bytes <= TARGETS["sm_90a"].smem, name
        assert "watchdog" not in source.text, name
        assert "perturb" not in source.text, name
        assert [t.shape for t in program.tensors] == [(size, size)] * 3


def test_a_row_has_the_columns_of_the_header() -> None:
    row = Row(
        size=8192, kernel="v7", milliseconds=1.6314, fastest=1.5684, teraflops=674.1, ratio=1.0314,
        error=0.0, registers=168,
    )  # fmt: skip
    assert COMMAND.line(row.cells).split() == [
        "8192", "v7", "1.631", "1.568", "674", "1.031", "0.0e+00", "168",
    ]  # fmt: skip


def test_the_command_prints_and_writes_each_row_with_what_it_depends_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(rounds, "requirements", lambda: None)
    monkeypatch.setattr(rounds, "environment", lambda: {"gpu": "H200"})
    monkeypatch.setattr(rounds, "import_module", lambda name: name)
    row = Row(
        size=64, kernel="v7", milliseconds=1.0, fastest=0.5, teraflops=7.0, ratio=1.5, error=0.0,
        registers=0,
    )  # fmt: skip
    options = COMMAND.parser().parse_args(["--json", str(tmp_path / "figures.json")])
    assert COMMAND.run(options, lambda torch: [[row], [row]], lambda torch: {"of": torch}) == 0
    facts, header, *lines = capsys.readouterr().out.splitlines()
    assert facts == "gpu H200, of torch"
    assert header.split()[:3] == ["size", "kernel", "ms"]
    assert lines == [COMMAND.line(row.cells)] * 2
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["environment"] == {"gpu": "H200", "of": "torch"}
    assert written["rows"][0]["size"] == 64


@needs.no_driver
def test_without_a_gpu_kinds_are_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert gemm_kinds.main([]) == 2
    assert "benchmarks.gemm_kinds: there is no NVIDIA driver" in capsys.readouterr().err


@pytest.mark.parametrize("what", gemm_kinds.DEFAULT)
def test_the_kernels_of_a_kind_fit_the_target(what: str) -> None:
    name, size = what.split(":")
    for title, program in gemm_kinds.KINDS[name](int(size), 132).programs.items():
        assert emit(program).smem_bytes <= TARGETS["sm_90a"].smem, title


def test_groups_of_random_heights_have_all_rows() -> None:
    for groups in (1, 3, 32):
        for even in (False, True):
            found = gemm_kinds.heights(groups, even=even)
            assert len(found) == groups
            assert sum(found) == gemm_kinds.TOKENS
    assert len(set(gemm_kinds.heights(32, even=False))) > 16


def test_a_row_of_a_kind_has_the_columns_of_the_header() -> None:
    row = gemm_kinds.Row(
        kind="rows", size=8192, kernel="matmul_fp8", milliseconds=0.857, fastest=0.842,
        teraflops=1283.1, ratio=0.962, error=3.0e-3, registers=168,
    )  # fmt: skip
    assert gemm_kinds.COMMAND.line(row.cells).split() == [
        "rows", "8192", "matmul_fp8", "0.857", "0.842", "1283", "0.962", "3.0e-03", "168",
    ]  # fmt: skip
