"""``tilesim report-schema``: the JSON Schema of reports."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tilesim.cli.options import FILE, deliver
from tilesim.report.document import json_schema


@click.command()
@click.option("-o", "--output", type=FILE, help="Where to write it; stdout without it.")
def command(output: Path | None) -> None:
    """Write the JSON Schema of the reports of check --format json, for tools that read them.

    Exit: 0, 2 the file cannot be written.
    """
    deliver(json.dumps(json_schema(), indent=2) + "\n", output)
