"""Machine code from NVRTC, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tilesim import Builder
from tilesim.gpu import compile as compiler
from tilesim.gpu.compile import compile_cubin, compile_ptx
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import CompileError
from tilesim.kernels.hopper import matmul_v7
from tilesim.kernels.hopper.copy import vector
from tilesim.kernels.registry import Case, cases

from . import needs
from .programs import PROGRAMS

pytestmark = needs.compiler


def _gallery() -> list[Case]:
    """The first row of every kernel of the two families."""
    rows = (*cases("hopper"), *cases("nvfuser"))
    return list({case.kernel.function: case for case in reversed(rows)}.values())


@needs.recent_compiler
@pytest.mark.parametrize("case", _gallery(), ids=lambda case: case.target)
def test_gallery_compiles_without_local_memory(case: Case) -> None:
    binary = compile_cubin(emit(case.build()))
    assert binary.cubin.startswith(b"\x7fELF")
    assert binary.resources.local_memory == 0
    assert binary.resources.warnings == ()


def test_a_large_matmul_keeps_its_accumulators_in_registers() -> None:
    size = {"m": 8192, "n": 8192, "depth": 8192, "block_n": 256}
    source = emit(matmul_v7.matmul.build(**size, ctas=132, band=16))
    resources = compile_cubin(source).resources
    assert (resources.registers, resources.local_memory, resources.warnings) == (168, 0, ())
    # four stages of operands and two pieces of the result per consumer, in at most 227 KiB
    assert source.smem_bytes <= 232448


def test_a_compilation_without_a_report_of_ptxas_is_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty log would read as no spills."""
    monkeypatch.setattr(compiler, "_run", lambda *arguments: (b"\x7fELF", ""))
    with pytest.raises(CompileError, match="vector: ptxas reported no resources"):
        compile_cubin(emit(vector.build(n=3072)))


@needs.recent_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form_of_every_instruction_is_accepted(name: str) -> None:
    assert compile_cubin(emit(PROGRAMS[name])).resources.local_memory == 0


@pytest.mark.parametrize("name", ["mbarriers", "barriers", "peers"])
def test_watched_and_disturbed_kernels_compile(name: str) -> None:
    compile_cubin(emit(PROGRAMS[name], watchdog=True, perturb=True))


def test_ptx_names_the_target() -> None:
    text = compile_ptx(emit(vector.build()))
    assert ".target sm_90a" in text
    assert "cp.async.bulk.shared::cluster.global" in text


def test_errors_of_the_compiler_name_the_line_of_the_kernel() -> None:
    source = emit(vector.build())
    wrong = replace(source, text=source.text.replace('"r"(loaded)', '"r"(missing)', 1))
    with pytest.raises(CompileError, match=r'copy.py:\d+: identifier "missing" is undefined'):
        compile_cubin(wrong)


def test_errors_of_ptxas_name_the_line_of_the_kernel() -> None:
    k = Builder("raises")
    k.launch(warps=4, registers=64)
    k.setmaxnreg("dec", 40)
    source = emit(k.finish(), arch="sm_90")
    with pytest.raises(CompileError, match=rf"{k.finish().body[0].loc}: Instruction 'setmaxnreg"):
        compile_cubin(source)


def test_results_are_kept_in_memory_and_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = emit(vector.build(n=2048))
    first = compile_cubin(source, directory=tmp_path)

    def refuse(_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "_compile", refuse)
    assert compile_cubin(source) == first
    monkeypatch.setattr(compiler, "_MEMORY", {})
    assert compile_cubin(source, directory=tmp_path) == first
    monkeypatch.setattr(compiler, "_MEMORY", {})
    with pytest.raises(AssertionError, match="compiled again"):
        compile_cubin(replace(source, text=source.text + "\n"), directory=tmp_path)
