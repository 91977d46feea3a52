"""``tilesim show``: a kernel as text or as the machine runs it; the inventory of machine code."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import click

from tilesim.cli import completing
from tilesim.cli.options import (
    FILE,
    deliver,
    format_option,
    say,
    style_for,
    target_options,
    time_option,
)
from tilesim.errors import UsageError
from tilesim.ir.program import Program
from tilesim.layout import PLAIN
from tilesim.loader import Given, Target, load_one
from tilesim.loader.code_kind import kind_of
from tilesim.loader.names import split
from tilesim.report.document import SCHEMA


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=completing.targets)
@click.option(
    "--mir", is_flag=True,
    help="As the machine runs it: numbered instructions, registers, jumps.",
)  # fmt: skip
@click.option(
    "--plain", is_flag=True,
    help="With --mir: of PTX, the plain form that a recheck executes, instruction by instruction.",
)  # fmt: skip
@click.option(
    "--locations", is_flag=True,
    help="Say at each line where it was written.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=FILE,
    help="Where to write it; stdout without it.",
)  # fmt: skip
@time_option("--time-limit", "5m", "What the inventories of all kernels of machine code may take.")
@format_option
@target_options
def command(
    target: str, mir: bool, plain: bool, locations: bool, output: Path | None,
    time_limit: timedelta, output_format: str, given: Given,
) -> None:  # fmt: skip
    """Print one kernel in the text form (.tile), or with --mir as the machine's program. Of machine
    code (cubins, fatbins, programs, libraries, folders of these): an inventory of each kernel.

    Exit: 0, or 2 usage or input error.
    """
    place = split(target)[0]
    if not mir and (kind_of(place) is not None or os.path.isdir(place)):
        from tilesim.cli.show_machine_code import show  # most targets are no machine code

        style = style_for(sys.stdout) if output is None else PLAIN
        inventories = show(target, given, time_limit, output_format, style)
        if inventories is not None and output is None and output_format == "text":
            say(inventories, colour=style.colour)
        elif inventories is not None:
            deliver(inventories, output)
        if inventories is not None:
            return
    found = load_one(target, given)
    if plain and (found.ptx is None or not mir):
        raise UsageError("--plain shows the plain form of PTX: add --mir")
    text = _machine(found, locations, plain=plain) if mir else _tile(found, locations)
    if output_format == "json":
        form = "mir" if mir else "tile"
        document = {"schema": SCHEMA, "kernel": found.id, "form": form, "text": text}
        text = json.dumps(document, indent=2) + "\n"
    deliver(text, output)


def _machine(found: Target, locations: bool, *, plain: bool) -> str:
    from tilesim.ir.text.mir import to_text
    from tilesim.transforms.lower import lower

    program = found.ptx.plain() if plain and found.ptx is not None else found.form()
    return to_text(lower(program) if isinstance(program, Program) else program, locations=locations)


def _tile(found: Target, locations: bool) -> str:
    program = found.form()
    if not isinstance(program, Program):
        what = "PTX" if found.ptx is not None else "a program of the machine"
        raise UsageError(f"{found.id} is {what}, which has no other text form: add --mir")
    from tilesim.ir.text import to_text

    return to_text(program, locations=locations)
