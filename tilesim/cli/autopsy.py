"""``tilesim autopsy``: what a core dump of a hung GPU says."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tilesim.autopsy import autopsy, text
from tilesim.cli.options import FILE, deliver, output_option, source_root_option, style_for
from tilesim.files import show_below


@click.command()
@click.argument("core", type=FILE, metavar="CORE")
@output_option
@source_root_option
@click.pass_context
def command(
    ctx: click.Context, /, core: Path, output: Path | None, source_roots: tuple[Path, ...]
) -> None:
    """Say which warps of a hung GPU wait for what, from its core dump.

    Exit: 1 a hang or an exception was found, 0 no kernel was running, 2 usage or damaged input, 3
    inconclusive: no wait is known.
    """
    show_below(source_roots)
    found = autopsy(core)
    if output is None:
        style = style_for(sys.stdout)
        click.echo(text.render(found, style), nl=False, color=style.colour)
    else:
        deliver(text.render(found), output)
    ctx.exit(found.code)
