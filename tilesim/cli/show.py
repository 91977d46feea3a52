"""``tilesim show``: a kernel as text, as a tree or as the machine runs it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tilesim.cli import completing
from tilesim.cli.options import FILE, deliver, format_option, target_options
from tilesim.errors import UsageError
from tilesim.ir.program import Program
from tilesim.loader import Given, Target, load_one
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
@format_option
@target_options
def command(
    target: str, mir: bool, plain: bool, locations: bool, output: Path | None,
    output_format: str, given: Given,
) -> None:  # fmt: skip
    """Print one kernel in the text form (.tile), or with --mir as the machine's program.

    Exit: 0, or 2 usage or input error.
    """
    found = load_one(target, given)
    if plain and (found.ptx is None or not mir):
        raise UsageError("--plain is a form of PTX, and goes with --mir")
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
