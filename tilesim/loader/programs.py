"""What to do with CUDA source and programs, which are no targets: the commands, line by line."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote

from tilesim.cubin.fatbin import FatbinError, architecture, texts_of_program
from tilesim.files import CUDA_ENDINGS, read_regular

_MOST = 1 << 30
_ELF = b"\x7fELF"
_CUDA = 190
_MAIN = re.compile(r"^\s*(?:int|auto|void)\s+main\s*\(", re.MULTILINE)
_LIBRARY = re.compile(r"\.so(?:\.\d+)*$")
_ENTRY = re.compile(r"\.entry\s+[\w$]+")


def advice(path: Path) -> str | None:
    """How a file that is CUDA or C++ source, a program or machine code is checked: a line, and
    commands below it; None if it is none of these. Nothing of it is executed."""
    try:
        data = read_regular(path, _MOST)
    except OSError:
        return None
    if data.startswith(_ELF):
        if int.from_bytes(data[18:20], "little") == _CUDA:
            return f"{path} is machine code, and PTX is checked:\n{_of_ptx(path)}"
        return _of_program(path, data)
    if path.suffix in CUDA_ENDINGS:
        return _of_source(path, data.decode(errors="replace"))
    return None


def _of_source(path: Path, text: str) -> str:
    if _MAIN.search(text):
        program = quote(f"./{path.stem}")
        return (
            f"{path} is CUDA source: compile it, record what it launches (no GPU is needed), and "
            f"check that:\n  nvcc {architecture()} -lineinfo {quote(str(path))} -o "
            f"{quote(path.stem)}\n{_of_capture(program)}"
        )
    return (
        f"{path} is CUDA source without main: compile it to PTX, write its launch, and check that; "
        f"or capture the program that launches it:\n{_of_ptx(path)}"
    )


def _of_program(path: Path, data: bytes) -> str:
    compile_ = f"  nvcc {architecture()} -lineinfo SOURCE.cu -o {quote(path.name)}\n"
    program = str(path) if path.parent != Path() else f"./{path}"
    if _LIBRARY.search(path.name):
        program = "PROGRAM"
        said = f"{path} is a library: record what a program launches that loads it, and check that"
    else:
        said = f"{path} is a program: record what it launches (no GPU is needed), and check that"
    try:
        texts = [*texts_of_program(data)]
    except FatbinError as error:
        return f"{path} is a program whose PTX cannot be read: {error}"
    entries = sum(len(_ENTRY.findall(text)) for text in texts)
    if not entries and program == "PROGRAM":
        return f"{path} is a library without kernels in PTX"
    if not entries:
        said = f"{path} is a program without kernels in PTX: compile it with PTX, record, and check"
        return f"{said}:\n{compile_}{_of_capture(program)}"
    if not any(".loc" in text for text in texts):
        return (
            f"{said}; it was compiled without -lineinfo, so that reports name lines of PTX only:\n"
            f"{_of_capture(program)}"
        )
    return f"{said}:\n{_of_capture(program)}"


def _of_capture(program: str) -> str:
    return f"  tilesim capture -o captured -- {program}\n  tilesim check captured"


def _of_ptx(path: Path) -> str:
    source = path if path.suffix in CUDA_ENDINGS else path.with_suffix(".cu")
    stem = path.with_suffix("")
    ptx, launch = quote(f"{stem}.ptx"), quote(f"{stem}.json")
    commands = [f"  nvcc -ptx -arch=sm_90a -lineinfo {quote(str(source))} -o {ptx}"]
    if not Path(f"{stem}.json").exists():  # a launch that has been described stays
        commands.append(
            f"  tilesim launch-template {ptx} -o {launch}     # then fill in what is marked FILL_IN"
        )
    return "\n".join([*commands, f"  tilesim check {ptx}"])
