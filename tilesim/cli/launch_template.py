"""``tilesim launch-template``: the launch description of a PTX kernel, to be filled in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from tilesim.cli.options import FILE, deliver
from tilesim.errors import TargetError
from tilesim.loader.code_kind import kind_of
from tilesim.loader.ptx import module
from tilesim.ptx.demangle import readable
from tilesim.ptx.launch_template import descriptions, together
from tilesim.ptx.syntax import Function, Module
from tilesim.wording import did_you_mean


@click.command()
@click.argument("file", metavar="KERNEL", type=FILE)
@click.option("--entry", metavar="NAME", help="Which kernel, if the file has several.")
@click.option("-o", "--output", type=FILE, help="Where to write it; stdout without it.")
def command(file: Path, entry: str | None, output: Path | None) -> None:
    """Write the launch description of a PTX kernel; what is missing is marked FILL_IN.

    KERNEL is a PTX file, or a cubin, a program or a library with PTX in it. Of a file with several
    kernels: a list of descriptions, unless --entry names one.
    Exit: 0, 2 usage or input error.
    """
    kernels = dict(_of_code(file, entry) if kind_of(file) is not None else _of_text(file))
    found = [one for one in kernels if entry in (None, one, readable(one))]
    if not kernels:
        raise TargetError(f"{file} has no entry: no function in it is a kernel")
    if not found:
        raise TargetError(
            f"{file} has no entry {entry}{did_you_mean(entry or '', kernels)}; it has "
            f"{', '.join(kernels)}"
        )
    wanted = (kernels[name] for name in found)
    deliver(together([row for m, e in wanted for row in descriptions(m, [e])]), output)


def _of_text(file: Path) -> Iterator[tuple[str, tuple[Module, Function]]]:
    """The kernels of a PTX file by name, each with its module."""
    found = module(str(file))
    yield from ((one.name, (found, one)) for one in found.entries)


def _of_code(file: Path, entry: str | None) -> Iterator[tuple[str, tuple[Module, Function]]]:
    """Those of which a file of machine code has PTX."""
    from tilesim.loader.machine_code import read  # what only machine code needs

    code = read(file)
    names = [name for name in code.with_ptx if entry in (None, name, readable(name))]
    for name in names or code.with_ptx:
        embedded = code.ptx(name)
        if embedded is not None:
            found = embedded.module(name)
            yield name, (found, next(one for one in found.entries if one.name == name))
