"""``tilesim emit``: a kernel as CUDA C++, PTX, machine code, or in text form."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from tilesim.cli import completing
from tilesim.cli.options import FILE, target_options, write_file, writing
from tilesim.errors import UsageError
from tilesim.ir.program import Program
from tilesim.ir.target import TARGETS
from tilesim.ir.verify import diagnose
from tilesim.loader import Given, Target, load_one
from tilesim.loader.ptx import DESCRIPTION
from tilesim.ptx.description import dumps

_SUFFIXES = (".cu", ".ptx", ".cubin", ".tile")


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=completing.targets)
@click.option(
    "-o", "--output", type=FILE,
    help="Where to write it: .cu, .ptx, .cubin or .tile; CUDA C++ on stdout without it.",
)  # fmt: skip
@click.option(
    "--arch", metavar="TARGET",
    help="Emit for another target that has all the kernel uses, such as sm_100a for sm_90a.",
)  # fmt: skip
@target_options
def command(target: str, output: Path | None, arch: str | None, given: Given) -> None:
    """Write a kernel as CUDA C++ (.cu), PTX (.ptx), machine code (.cubin) or text form (.tile).

    PTX and machine code need the compile extra, none of them a GPU. Of a kernel in a cubin, a
    program or a dump the PTX in it is written (.ptx), with its launch (.json).
    Exit: 0, 2 usage or input error.
    """
    found = load_one(target, given)
    if found.ptx is not None and output is not None and output.suffix == ".ptx" and arch is None:
        write_file(output, found.ptx.text())
        write_file(output.with_suffix(DESCRIPTION), dumps(found.ptx.launch))
        return
    program = found.build()
    if arch is not None:
        program = _for(program, arch)
    if output is None:
        from tilesim.gpu.emit import emit

        sys.stdout.write(emit(program).text)
        return
    _write(found, program, output)


def _for(program: Program, arch: str) -> Program:
    """``program`` for another target.

    Raises:
        UsageError: there is no such target, or the program uses what it lacks.
    """
    if arch not in TARGETS:
        raise UsageError(f"there is no architecture {arch!r}; use one of {', '.join(TARGETS)}")
    other = replace(program, target=TARGETS[arch])
    before = diagnose(program)
    lacking = [problem for problem in diagnose(other) if problem not in before]
    if lacking:
        raise UsageError(f"{program.name} is for {program.target}, not {arch}: {lacking[0]}")
    return other


def _write(found: Target, program: Program, output: Path) -> None:
    """Writes ``program``, which is that of a target, maybe for another architecture."""
    if output.suffix not in _SUFFIXES:
        raise UsageError(f"cannot write {output}: its suffix is not one of {', '.join(_SUFFIXES)}")
    if output.suffix == ".tile":
        from tilesim.ir.text import to_text

        write_file(output, to_text(program))
        return
    from tilesim.cli.gpu import write

    inputs = found.own_inputs(program, seed=0) if output.suffix == ".ptx" else None
    with writing(output):
        write(program, output, inputs)
