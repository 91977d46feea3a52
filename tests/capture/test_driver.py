"""Programs that call the driver, without nvcc: what they are answered, and what is written."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.capture.tools import CC, Capture, cc
from tilesim.capture.build import built
from tilesim.cli import main
from tilesim.errors import UsageError

PTX = """.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry k(.param .u64 a, .param .s32 n)
.maxntid 32
{
.reg .pred %p<3>; .reg .b32 %r<9>;
mov.u32 %r1, smem; elect.sync _|%p0, -1;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
bar.warp.sync -1;
@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];
L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
@!%p1 bra L;
ret;
}
"""
ARRIVES = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("driver") / "program"
    source = str(Path(__file__).parent / "driver.c")
    subprocess.run([CC or "", "-std=gnu11", "-w", "-o", str(found), source, "-ldl"], check=True)
    return found


@cc
def test_a_program_is_answered_and_its_launches_are_written(
    tmp_path: Path, program: Path, capture: Capture
) -> None:
    ptx, folder = tmp_path / "k.ptx", tmp_path / "captured"
    ptx.write_text(PTX)
    done = capture(folder, program, str(ptx))
    assert done.out.splitlines() == [
        "cuInit 0",
        "cuDeviceGetAttribute 0", "multiprocessors 132",
        "cuDeviceGetAttribute 0", "capability 9",
        "cuModuleLoadData 0",
        "cuModuleGetFunction 500",  # there is no such kernel
        "cuModuleGetFunction 0",
        "cuMemAlloc_v2 0", "cuMemAlloc_v2 0", "cuMemcpyHtoD_v2 0", "1 2 0",
        "cuLaunchKernel 701",  # more threads than .maxntid
        "cuLaunchKernel 1",  # more than 48 KiB without being asked before
        "cuFuncSetAttribute 1", "cuFuncSetAttribute 0",
        "cuLaunchKernel 0",
        "cuLaunchKernel 9",  # no CTAs
        "cuLaunchKernel 98",  # no kernel
        "cuLaunchKernel 0", "cuMemcpyHtoD_v2 0", "cuLaunchKernel 0",
        "cuOccupancyMaxActiveBlocksPerMultiprocessor 0", "resident 3",
        "cuPointerGetAttribute 0", "cuPointerGetAttribute 1",
        "cuMemFree_v2 0", "cuMemFree_v2 1",
        "cuGetProcAddress_v2 0", "found 1", "cuGetProcAddress_v2 500", "status 1",
        "cuArrayCreate_v2 801",
        "cuTensorMapEncodeTiled 0", "cuTensorMapEncodeTiled 1",
    ]  # fmt: skip
    assert "tilesim capture does not answer cuArrayCreate_v2" in done.err
    assert "a tensor map is refused: the box's inner dimension is wider" in done.err
    assert "captured 2 kernel and launch configurations" in done.err
    assert done.code == 0
    first, second = (json.loads((folder / f"{n}.json").read_text()) for n in ("k", "k_1"))
    words = [0x030201, *[0] * 15]
    assert first["params"] == [
        {"kind": "pointer", "name": "arg0", "bytes": 64, "offset": 16,
         "contents": {"type": "u32", "values": words}},
        {"kind": "scalar", "name": "arg1", "type": "s32", "value": 7},
    ]  # fmt: skip
    assert (first["grid"], first["dynamic_shared"]) == ([2, 1, 1], 49153)
    # what nobody has written nobody knows
    assert second["params"][0] == {"kind": "pointer", "name": "arg0", "bytes": 64}
    assert second["params"][1]["value"] == 9
    result = CliRunner().invoke(main, ["check", str(folder)])
    assert (result.exit_code, result.output.count("PROVED")) == (0, 2)


@cc
def test_a_wrong_kernel_is_found_and_the_exit_code_is_the_programs(
    tmp_path: Path, program: Path, capture: Capture
) -> None:
    ptx, folder = tmp_path / "k.ptx", tmp_path / "captured"
    ptx.write_text(PTX.replace(ARRIVES, ""))
    done = capture(folder, program, str(ptx), "3")
    assert done.code == 3
    assert "the program ended with exit code 3: kernels are not run" in done.err
    result = CliRunner().invoke(main, ["check", str(folder)])
    assert result.exit_code == 1
    assert result.output.count("FAILED") == result.output.count("(deadlock)") == 2


@cc
@pytest.mark.parametrize(
    ("says", "answer", "written"),
    [
        (".explicitcluster\n.reqnctapercluster 1", "0", 2),
        (".explicitcluster", "912", 0),
        (".reqntid 32\n.reqnctapercluster 1\n.blocksareclusters", "1", 0),
    ],
)
def test_a_launch_without_a_cluster(
    tmp_path: Path, program: Path, capture: Capture, says: str, answer: str, written: int
) -> None:
    """A kernel that has to be given one; and one of which a launch counts clusters."""
    ptx, folder = tmp_path / "k.ptx", tmp_path / "captured"
    ptx.write_text(PTX.replace(".maxntid 32", f".maxntid 32\n{says}"))
    done = capture(folder, program, str(ptx))
    lines = done.out.splitlines()
    assert lines[lines.index("cuFuncSetAttribute 0") + 1] == f"cuLaunchKernel {answer}"
    assert f"captured {written} kernel" in done.err
    counts = "k: its grid counts clusters (.blocksareclusters): not captured"
    assert (counts in done.err) is ("blocksareclusters" in says)


@cc
def test_the_gpu_is_that_of_the_target(tmp_path: Path, program: Path, capture: Capture) -> None:
    ptx, folder = tmp_path / "k.ptx", tmp_path / "captured"
    ptx.write_text(PTX)
    done = capture(folder, program, str(ptx), target="sm_100a")
    assert "multiprocessors 148" in done.out
    assert "capability 10" in done.out
    assert "it has PTX for sm_90a and none that runs on sm_100a: --target says" in done.err
    assert "captured 0 kernel" in done.err


@cc
@pytest.mark.parametrize(
    ("compiler", "says"),
    [("no-such-compiler", "no-such-compiler cannot be run"), ("false", "fails:")],
)
def test_a_compiler_that_does_not_work_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, says: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=says):
        built()
    assert not list(tmp_path.glob("*/cuda-stub-*"))


@cc
def test_without_a_compiler_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UsageError, match="needs a C compiler once"):
        built()


@cc
def test_the_command(tmp_path: Path) -> None:
    folder = str(tmp_path / "o")
    result = CliRunner().invoke(main, ["capture", "-o", folder, "--", "/bin/sh", "-c", "exit 5"])
    assert result.exit_code == 5
    result = CliRunner().invoke(main, ["capture", "-o", folder, "--", str(tmp_path / "missing")])
    assert result.exit_code == 2
    assert "missing cannot be run: there is no such program" in result.output
