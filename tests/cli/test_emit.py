"""``tilesim emit`` and ``crosscheck``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesim.ir.text import parse
from tilesim.kernels.hopper import matmul_v1

from .conftest import Invoke

KERNEL = "tilesim.kernels.hopper.matmul_v1::matmul"


def test_cuda_source_goes_to_stdout_with_the_ir_as_comments(tilesim_cli: Invoke) -> None:
    result = tilesim_cli("emit", KERNEL)
    assert result.exit_code == 0
    assert 'extern "C" __global__' in result.output
    assert "mbarrier.arrive.expect_tx" in result.output


def test_text_form_parses_back_to_the_program(tilesim_cli: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "matmul.tile"
    assert tilesim_cli("emit", KERNEL, "-o", str(path)).exit_code == 0
    assert parse(path.read_text(), path.name) == matmul_v1.matmul.build()


def test_machine_code_is_an_elf_file(tilesim_cli: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the compile extra")
    path = tmp_path / "matmul.cubin"
    assert tilesim_cli("emit", KERNEL, "-o", str(path)).exit_code == 0
    assert path.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tilesim.kernels.hopper.matmul_v1",), "kernels; name one of"),
        (("tilesim.kernels.hopper.nothing::matmul",), "nothing"),
        ((KERNEL, "-o", "x.exe"), "x.exe: its suffix is not one of .cu, .ptx, .cubin, .tile"),
        ((KERNEL, "--arch", "sm_1"), "error: there is no architecture 'sm_1'; use one of sm_90, "),
        ((KERNEL, "--arch", ""), "error: there is no architecture ''"),
        (
            (KERNEL, "--arch", "sm_100a"),
            "error: matmul is for sm_90a, not sm_100a: ",
        ),
    ],
)
def test_what_cannot_be_written(
    tilesim_cli: Invoke, arguments: tuple[str, ...], message: str
) -> None:
    result = tilesim_cli("emit", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_another_architecture_with_all_that_the_kernel_uses(
    tilesim_cli: Invoke, tmp_path: Path
) -> None:
    copy, path = "tilesim.kernels.hopper.copy::tensor", tmp_path / "copy.tile"
    assert tilesim_cli("emit", copy, "--arch", "sm_100a", "-o", str(path)).exit_code == 0
    assert parse(path.read_text(), path.name).target.name == "sm_100a"
    source = tilesim_cli("emit", copy, "--arch", "sm_100a").stdout
    assert source.partition("\n")[2] == tilesim_cli("emit", copy).stdout.partition("\n")[2]


def test_crosscheck_without_a_gpu_says_what_is_missing(tilesim_cli: Invoke) -> None:
    from tilesim.errors import TilesimError
    from tilesim.gpu.driver import probe

    try:
        probe()
    except TilesimError:
        assert tilesim_cli("crosscheck", "--limit", "1").exit_code == 2
    else:
        pytest.skip("there is a GPU")
