"""``tilesim show``: a kernel as text, as a tree or as the machine runs it."""

from __future__ import annotations

from pathlib import Path

import click

from tilesim.cli.options import FILE, deliver, param_option
from tilesim.loader import load_one


@click.command()
@click.argument("target", metavar="TARGET")
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
@param_option
def command(
    target: str, mir: bool, locations: bool, output: Path | None, params: dict[str, str]
) -> None:
    """Print one kernel in the text form (.tile), or with --mir as the machine's program.

    Exit: 0, or 2 usage or input error.
    """
    program = load_one(target, params).build()
    if mir:
        from tilesim.ir.lower import lower
        from tilesim.ir.text.mir import to_text as mir_text

        deliver(mir_text(lower(program), locations=locations), output)
        return
    from tilesim.ir.text import to_text

    deliver(to_text(program, locations=locations), output)
