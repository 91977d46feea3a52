"""`benchmarks.gemm` and `gemm_kinds`, as far as they go without a GPU."""

from __future__ import annotations

import pytest

from benchmarks import gemm_kinds
from benchmarks.gemm import HEADER, Row, line, main, programs
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
    row = Row(8192, "v7", 1.6314, 1.5684, 674.1, 1.0314, 0.0, 168)
    assert len(row.cells) == len(HEADER)
    assert line(row.cells).split() == [
        "8192", "v7", "1.631", "1.568", "674", "1.031", "0.0e+00", "168",
    ]  # fmt: skip


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
    row = gemm_kinds.Row("rows", 8192, "matmul_fp8", 0.857, 0.842, 1283.1, 0.962, 3.0e-3, 168)
    assert len(row.cells) == len(gemm_kinds.HEADER) == len(gemm_kinds.WIDTHS)
    assert gemm_kinds.line(row.cells).split() == [
        "rows", "8192", "matmul_fp8", "0.857", "0.842", "1283", "0.962", "3.0e-03", "168",
    ]  # fmt: skip
