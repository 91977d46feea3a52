"""``tilesim export``: a kernel's synchronisation as a model for another tool."""

from __future__ import annotations

from pathlib import Path

import click

from tilesim.cli import completing
from tilesim.cli.options import FILE, deliver, target_options
from tilesim.errors import UsageError
from tilesim.loader import Given, load_one


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=completing.targets)
@click.option("--promela", is_flag=True, help="As a Promela model, for the model checker SPIN.")
@click.option(
    "-o", "--output", type=FILE,
    help="Where to write it; stdout without it.",
)  # fmt: skip
@click.option(
    "--cluster", type=click.IntRange(min=0), default=0, show_default=True,
    help="Which cluster of the grid to export.",
)  # fmt: skip
@target_options
def command(target: str, promela: bool, output: Path | None, cluster: int, given: Given) -> None:
    """Write the synchronisation of one kernel as a model for another tool (--promela: SPIN).

    Exit: 0, 2 usage or input error, or something in the kernel that the model cannot express.
    """
    if not promela:
        raise UsageError("name the format to export: --promela")
    from tilesim.export import to_promela

    deliver(to_promela(load_one(target, given).form(), cluster), output)
