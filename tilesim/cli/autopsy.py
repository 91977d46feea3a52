"""``tilesim autopsy``: what a core dump of a hung GPU says."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tilesim.autopsy import autopsy, text
from tilesim.autopsy.trigger import dump_of
from tilesim.cli.options import FILE, deliver, output_option, say, source_root_option, style_for
from tilesim.errors import UsageError
from tilesim.files import show_below


@click.command()
@click.argument("core", type=FILE, metavar="[CORE]", required=False)
@click.option(
    "--pid", type=click.IntRange(1), metavar="P",
    help="Have the driver dump this process now, which was started for it (tilesim watch).",
)  # fmt: skip
@output_option
@source_root_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    core: Path | None,
    pid: int | None,
    output: Path | None,
    source_roots: tuple[Path, ...],
) -> None:
    """Say which warps of a hung GPU wait for what, from its core dump.

    Exit: 1 a hang or an exception was found, 0 no kernel was running, 2 usage or damaged input, 3
    inconclusive: no wait is known.
    """
    show_below(source_roots)
    if (core is None) == (pid is None):
        raise UsageError("name a core dump, or a process with --pid P")
    if pid is not None:
        core = dump_of(pid)
        say(f"the dump of process {pid} is {core}; what it does on the GPU has ended", err=True)
    assert core is not None
    found = autopsy(core)
    if output is None:
        style = style_for(sys.stdout)
        click.echo(text.render(found, style), nl=False, color=style.colour)
    else:
        deliver(text.render(found), output)
    ctx.exit(found.code)
