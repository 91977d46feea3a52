"""What to do with CUDA source, and programs of which no launch is known: the commands, by line."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote

from tilesim.cubin.fatbin import architecture
from tilesim.files import CUDA_ENDINGS, read_regular
from tilesim.loader.machine_code import MachineCode
from tilesim.loader.ptx import DESCRIPTION

_MOST = 1 << 30
_MAIN = re.compile(r"^\s*(?:int|auto|void)\s+main\s*\(", re.MULTILINE)


def advice(path: Path) -> str | None:
    """How a file that is CUDA or C++ source is checked: a line, and commands below it; None if it
    is none. Nothing of it is executed."""
    try:
        data = read_regular(path, _MOST)
    except OSError:
        return None
    if path.suffix in CUDA_ENDINGS:
        return _of_source(path, data.decode(errors="replace"))
    return None


def without_launch(code: MachineCode) -> str:
    """How a file of machine code with PTX is checked of which no launch is described."""
    path = code.path
    description = path.with_suffix(DESCRIPTION)
    template = f"`tilesim launch-template {path}` writes what is to be filled in"
    if code.kind in ("cubin", "fatbin"):
        return (
            f"{path} does not describe its launch: give --launch FILE, or write {description}; "
            f"{template}"
        )
    program = str(path) if path.parent != Path() else f"./{path}"
    said = f"{path} is a program: record what it launches (no GPU is needed), and check that"
    if code.kind == "library":
        program = "PROGRAM"
        said = f"{path} is a library: record what a program launches that loads it, and check that"
    if not any(".loc" in one.text or one.image is not None for one in code.texts or code.embedded):
        said += "; it was compiled without -lineinfo, so that reports name lines of PTX only"
    said += f"; or describe its launches in {description} ({template})"
    return f"{said}:\n{_of_capture(program)}"


def without_kernels(code: MachineCode) -> str:
    """What to do about a file of machine code that has no kernels."""
    path = code.path
    if code.kind != "program":
        return f"{path} has no kernels"
    compile_ = f"  nvcc {architecture()} -lineinfo SOURCE.cu -o {quote(path.name)}\n"
    program = str(path) if path.parent != Path() else f"./{path}"
    return (
        f"{path} is a program without kernels: compile it with PTX, record, and check:\n"
        f"{compile_}{_of_capture(program)}"
    )


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
