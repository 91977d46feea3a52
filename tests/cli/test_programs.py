"""CUDA source and programs are no targets: which commands check them is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.test_fatbin import entry, fatbin, program

from .conftest import Invoke, Write

NVCC = "nvcc -gencode 'arch=compute_90a,code=[sm_90a,compute_90a]' -lineinfo"
CAPTURE = ["  tilesim capture -o captured -- ./prog", "  tilesim check captured"]
PTX = ".version 9.0\n.target sm_90a\n.entry k() { ret; }\n"


def said(tilesim_cli: Invoke, target: str) -> list[str]:
    """The lines of the error of `tilesim show`, without what comes before."""
    result = tilesim_cli("show", target)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    return result.stderr.removeprefix("error: ").splitlines()


def test_a_source(write: Write, tilesim_cli: Invoke) -> None:
    write("prog.cu", "__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n")
    first, *commands = said(tilesim_cli, "prog.cu")
    assert first.startswith("prog.cu is CUDA source: compile it")
    assert commands == [f"  {NVCC} prog.cu -o prog", *CAPTURE]


def test_a_source_without_main(write: Write, tilesim_cli: Invoke) -> None:
    write("my k.cu", "__global__ void k() {}\n")
    _, *commands = said(tilesim_cli, "my k.cu")
    assert commands[0] == "  nvcc -ptx -arch=sm_90a -lineinfo 'my k.cu' -o 'my k.ptx'"
    assert commands[1].startswith("  tilesim launch-template 'my k.ptx' -o 'my k.json'")
    assert commands[2] == "  tilesim check 'my k.ptx'"
    write("my k.json", "{}")
    assert said(tilesim_cli, "my k.cu")[1:] == commands[::2]


@pytest.mark.parametrize(
    ("ptx", "says", "compiles"),
    [
        (f"{PTX}.loc 1 1 1\n", "prog is a program: record what it launches", False),
        (PTX, "compiled without -lineinfo, so that reports name lines of PTX only", False),
        ("", "prog is a program without kernels in PTX", True),
    ],
)
def test_a_program(ptx: str, says: str, compiles: bool, write: Write, tilesim_cli: Invoke) -> None:
    write("prog", "")
    Path("prog").write_bytes(program((64, fatbin(entry(ptx.encode())))))
    first, *commands = said(tilesim_cli, "./prog")
    assert says in first
    assert commands == [f"  {NVCC} SOURCE.cu -o prog"] * compiles + CAPTURE


def test_a_library_machine_code_and_what_is_damaged(write: Write, tilesim_cli: Invoke) -> None:
    write("lib.so", "")
    Path("lib.so").write_bytes(program((64, fatbin(entry(PTX.encode())))))
    first, command, _ = said(tilesim_cli, "lib.so")
    assert "a program launches that loads it" in first
    assert command == "  tilesim capture -o captured -- PROGRAM"
    Path("k.cubin").write_bytes(b"\x7fELF".ljust(18, b"\0") + (190).to_bytes(2, "little"))
    assert said(tilesim_cli, "k.cubin")[0] == "k.cubin is machine code, and PTX is checked:"
    Path("cut").write_bytes(program((64, fatbin(entry(b"abc", 1 << 13, 9)))))
    (line,) = said(tilesim_cli, "./cut")
    assert line.startswith("cut is a program whose PTX cannot be read: ")


def test_a_report_keeps_the_commands_whole(write: Write, tilesim_cli: Invoke) -> None:
    write("prog.cu", "int main() {}\n")
    lines = tilesim_cli("check", "prog.cu").stdout.splitlines()
    assert f"    {NVCC} prog.cu -o prog" in lines
