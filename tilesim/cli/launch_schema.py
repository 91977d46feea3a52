"""``tilesim launch-schema``: the JSON Schema of launch descriptions."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tilesim.cli.options import FILE, deliver
from tilesim.ptx.description import JSON_SCHEMA


@click.command()
@click.option("-o", "--output", type=FILE, help="Where to write it; stdout without it.")
def command(output: Path | None) -> None:
    """Write the JSON Schema of launch descriptions of PTX kernels, for editors and other tools.

    Exit: 0, 2 the file cannot be written.
    """
    deliver(json.dumps(JSON_SCHEMA, indent=2) + "\n", output)
