"""``tilesim launch-template``: the launch description of a PTX kernel, to be filled in."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tilesim.cli.options import FILE, write_file
from tilesim.cli.ptx import read_file
from tilesim.errors import TargetError
from tilesim.ptx.reader import read
from tilesim.ptx.template import template


@click.command()
@click.argument("file", metavar="KERNEL.ptx", type=FILE)
@click.option("--entry", metavar="NAME", help="Which kernel, if the file has several.")
@click.option("-o", "--output", type=FILE, help="Where to write it; stdout without it.")
def command(file: Path, entry: str | None, output: Path | None) -> None:
    """Write the launch description of a PTX kernel; what is missing is marked FILL_IN.

    Exit: 0, 2 usage or input error.
    """
    module = read(read_file(file), str(file))
    names = [e.name for e in module.entries]
    wanted = entry or (names[0] if len(names) == 1 else None)
    if wanted not in names:
        raise TargetError(f"{file}: name one of its entries with --entry: {', '.join(names)}")
    text = template(module.entries[names.index(wanted)])
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text)
