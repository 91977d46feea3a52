"""`benchmarks.gemm`, as far as it goes without a GPU."""

from __future__ import annotations

import pytest

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
