"""CUDA programs as nvcc makes them, with the runtime linked statically or shared."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.capture.tools import NVCC, Capture, nvcc
from tilesim.cli import main

HERE = Path(__file__).parent
LINES = (HERE / "multicast.cu").read_text().splitlines()


def compiled(folder: Path, source: str, *options: str) -> Path:
    program = folder / Path(source).stem
    command = [
        NVCC or "", "-std=c++17", "-arch=sm_90a", "-lineinfo", "-w", *options, "-o", str(program),
        str(HERE / source),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return program


@nvcc
def test_right_and_wrong_kernels_of_a_program(tmp_path: Path, capture: Capture) -> None:
    folder = tmp_path / "captured"
    done = capture(folder, compiled(tmp_path, "multicast.cu"))
    assert (done.code, done.out) == (0, "")
    launch = json.loads((folder / "sum.json").read_text())
    assert launch["entry"] == "_Z3sumILb1EEv9Arguments"
    assert (launch["grid"], launch["cluster"], launch["block"][0]) == ([2, 1, 1], [2, 1, 1], 128)
    assert launch["dynamic_shared"] == 81920
    (arguments,) = launch["params"]
    assert (arguments["size"], arguments["data"][:16]) == (256, "0400000000000000")
    out, source = arguments["fields"]
    assert (out["offset_in_struct"], out["bytes"]) == (8, 1024)
    assert (source["offset_in_struct"], source["type"]) == (128, "f32")
    assert (source["shape"], source["box"], source["strides"]) == ([64, 256], [64, 32], [256])

    result = CliRunner().invoke(main, ["check", str(folder), "--format", "json"])
    right, wrong = json.loads(result.output)["results"]
    assert (right["verdict"], wrong["verdict"]) == ("proved", "failed")
    finding = wrong["findings"][0]
    assert finding["rule"] == "race"
    named = {LINES[p["line"] - 1].strip() for p in finding["participants"]}
    assert any("(int)rank * ROWS / 2" in line for line in named)  # the copy
    assert any("total += tile[j]" in line for line in named)


@nvcc
def test_variables_memory_and_the_device(tmp_path: Path, capture: Capture) -> None:
    folder = tmp_path / "captured"
    program = compiled(tmp_path, "host.cu", "-cudart", "shared", "--compress-mode=speed")
    done = capture(folder, program)
    assert done.out.splitlines() == [
        "NVIDIA H200, 9.0, 132 multiprocessors, 233472 bytes, 1 clusters",
        "4 blocks, 168 registers, 128 bytes",
        "invalid configuration argument", "no error",
        "memory 7 7",
        "graph no error, event no error",
    ]  # fmt: skip
    assert "no version information" not in done.err
    assert "captured 4 kernel and launch configurations" in done.err
    # of the variables of its module the kernel names none
    assert "variables" not in json.loads((folder / "other.json").read_text())
    first, second, third = (
        json.loads((folder / f"{n}.json").read_text()) for n in ("add", "add_1", "add_2")
    )
    known = {"type": "u32", "values": [0x07070707] * 8}
    assert first["params"][0] == {
        "kind": "pointer", "name": "x", "bytes": 32, "contents": known,
    }  # fmt: skip
    assert [p.get("value") for p in first["params"][1:]] == [7, 0.5]
    assert first["variables"] == {"table": {"type": "u32", "values": [1, 2, 3, 4]}}
    # the kernel before may have written there, though not to a constant
    assert "contents" not in second["params"][0]
    assert second["variables"] == first["variables"]
    assert (second["cooperative"], second["grid"]) == (True, [2, 1, 1])
    assert third["grid"] == [3, 1, 1]
    result = CliRunner().invoke(main, ["check", str(folder)])
    assert result.output.count("PROVED") == 4


@nvcc
def test_without_symbols_it_says_how_to_link(tmp_path: Path, capture: Capture) -> None:
    program = compiled(tmp_path, "host.cu", "-Xlinker", "-s")
    done = capture(tmp_path / "captured", program)
    assert "-cudart shared, or do not strip it" in done.err
    assert "captured 0 kernel" in done.err


@nvcc
@pytest.mark.parametrize("code", ["sm_90a", "compute_100a"])
def test_without_ptx_for_the_target_it_says_what_to_add(
    tmp_path: Path, code: str, capture: Capture
) -> None:
    arch = "compute_90a" if code == "sm_90a" else code
    program = tmp_path / "host"
    command = [
        NVCC or "", f"-gencode=arch={arch},code={code}", "-w", "-o", str(program),
        str(HERE / "host.cu"),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    done = capture(tmp_path / "captured", program)
    wanted = "compiled to machine code only" if code == "sm_90a" else "it has PTX for sm_100a"
    assert wanted in done.err
