"""``tilesim conform``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conform.test_conform import FILE, written
from tilesim.conform.recorded import load
from tilesim.errors import TilesimError
from tilesim.gpu.driver import probe

from .conftest import Invoke

KERNEL = "tilesim.kernels.hopper.matmul_v5::matmul"


def test_the_command_compares_a_recording(tilesim_cli: Invoke, tmp_path: Path) -> None:
    result = tilesim_cli("conform", KERNEL, "--recorded", str(FILE))
    assert result.exit_code == 0
    assert result.stdout == (
        f"CONFORMS {KERNEL}\n"
        "  launches  6 on NVIDIA H200 (driver 13.0), seed 0; 1 CTA recorded\n"
        "  compared  262 instructions and 70 orders between them in each launch\n"
    )
    times = load(FILE).times.copy()
    times[:, 1, 3] = times[:, 0, 3].min()
    wrong = written(tmp_path / "x.npz", times=times)
    result = tilesim_cli("conform", KERNEL, "--recorded", str(wrong))
    assert result.exit_code == 1
    assert result.stdout.startswith(f"DOES NOT CONFORM {KERNEL}\n  launch 3: ")
    assert result.stdout.splitlines()[6] == "  and 65 more"


def test_the_command_wants_a_recording_of_the_same_program(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("conform", KERNEL, "--param", "stages=2", "--recorded", str(FILE))
    assert result.exit_code == 2
    assert "is of another program than" in result.output


def test_without_a_gpu_the_command_says_so(tilesim_cli: Invoke) -> None:
    try:
        probe()
    except TilesimError:
        result = tilesim_cli("conform", KERNEL)
        assert result.exit_code == 2
        assert "GPU" in result.output
    else:
        pytest.skip("there is a GPU")
