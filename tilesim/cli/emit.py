"""``tilesim emit``: a kernel as CUDA C++, PTX, machine code, or in text form."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tilesim.cli.options import param_option, write_file
from tilesim.errors import UsageError
from tilesim.ir.program import Program
from tilesim.loader import load_one

_SUFFIXES = (".cu", ".ptx", ".cubin", ".tile")


@click.command()
@click.argument("target", metavar="TARGET")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write it: .cu, .ptx, .cubin or .tile; CUDA C++ on stdout without it.",
)  # fmt: skip
@click.option("--arch", help="Architecture, such as sm_90a; the kernel's target by default.")
@param_option
def command(target: str, output: Path | None, arch: str | None, params: dict[str, str]) -> None:
    """Write a kernel as CUDA C++ (.cu), PTX (.ptx), machine code (.cubin) or text form (.tile).

    PTX and machine code need the compile extra, none of them a GPU.
    Exit: 0, 2 usage or input error.
    """
    program = load_one(target, params).build()
    if output is None:
        from tilesim.gpu.emit import emit

        sys.stdout.write(emit(program, arch=arch).text)
        return
    _write(program, output, arch)


def _write(program: Program, output: Path, arch: str | None) -> None:
    if output.suffix not in _SUFFIXES:
        raise UsageError(f"cannot write {output}: its suffix is not one of {', '.join(_SUFFIXES)}")
    if output.suffix == ".tile":
        if arch is not None:
            raise UsageError("the text form is that of the kernel's own target, without --arch")
        from tilesim.ir.text import to_text

        write_file(output, to_text(program))
        return
    from tilesim.gpu.command import write

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write(program, output, arch=arch)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None
