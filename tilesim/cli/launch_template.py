"""``tilesim launch-template``: the launch description of a PTX kernel, to be filled in."""

from __future__ import annotations

from pathlib import Path

import click

from tilesim.cli.options import FILE, deliver
from tilesim.errors import TargetError
from tilesim.loader.ptx import module
from tilesim.ptx.launch_template import template
from tilesim.wording import did_you_mean


@click.command()
@click.argument("file", metavar="KERNEL.ptx", type=FILE)
@click.option("--entry", metavar="NAME", help="Which kernel, if the file has several.")
@click.option("-o", "--output", type=FILE, help="Where to write it; stdout without it.")
def command(file: Path, entry: str | None, output: Path | None) -> None:
    """Write the launch description of a PTX kernel; what is missing is marked FILL_IN.

    Of a file with several kernels: a list of descriptions, unless --entry names one.
    Exit: 0, 2 usage or input error.
    """
    found = module(str(file))
    entries = {e.name: e for e in found.entries}
    if entry is not None and entry not in entries:
        raise TargetError(
            f"{file} has no entry {entry}{did_you_mean(entry, entries)}; it has "
            f"{', '.join(entries) or 'none'}"
        )
    if not entries:
        raise TargetError(f"{file} has no entry: no function in it is a kernel")
    wanted = [entries[entry]] if entry else list(entries.values())
    deliver(template(found, wanted), output)
