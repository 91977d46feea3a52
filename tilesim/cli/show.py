"""``tilesim show``: a kernel as text, as a tree or as the machine runs it."""

from __future__ import annotations

from pathlib import Path

import click

from tilesim.cli import completing
from tilesim.cli.options import FILE, deliver, target_options
from tilesim.errors import UsageError
from tilesim.ir.program import Program
from tilesim.loader import Given, load_one


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=completing.targets)
@click.option(
    "--mir", is_flag=True,
    help="As the machine runs it: numbered instructions, registers, jumps.",
)  # fmt: skip
@click.option(
    "--locations", is_flag=True,
    help="Say at each line where it was written.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=FILE,
    help="Where to write it; stdout without it.",
)  # fmt: skip
@target_options
def command(target: str, mir: bool, locations: bool, output: Path | None, given: Given) -> None:
    """Print one kernel in the text form (.tile), or with --mir as the machine's program.

    Exit: 0, or 2 usage or input error.
    """
    found = load_one(target, given)
    program = found.form()
    if mir:
        from tilesim.ir.lower import lower
        from tilesim.ir.text.mir import to_text as mir_text

        machine = lower(program) if isinstance(program, Program) else program
        deliver(mir_text(machine, locations=locations), output)
        return
    if not isinstance(program, Program):
        raise UsageError(f"{found.id} is PTX, which has no text form: add --mir")
    from tilesim.ir.text import to_text

    deliver(to_text(program, locations=locations), output)
