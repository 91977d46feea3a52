"""``tilesim autopsy``: what a core dump of a hung GPU says."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import click

from tilesim.autopsy import autopsy, text
from tilesim.autopsy.compare import TIME_LIMIT
from tilesim.autopsy.trigger import dump_of
from tilesim.cli.options import (
    FILE,
    PATH,
    deliver,
    output_option,
    say,
    say_withheld,
    source_root_option,
    style_for,
    suggest_option,
    time_option,
)
from tilesim.errors import UsageError
from tilesim.files import files_not_shown, show_below
from tilesim.layout import PLAIN
from tilesim.records import replace
from tilesim.report.autopsy import FORMATS, render


@click.command()
@click.argument("core", type=FILE, metavar="[CORE]", required=False)
@click.option(
    "--pid", type=click.IntRange(1), metavar="P",
    help="Have the driver dump this process now, which was started for it (tilesim watch).",
)  # fmt: skip
@click.option(
    "--ptx", type=PATH, metavar="FILE|FOLDER|PROGRAM",
    help="Where the PTX of the kernels is; the dump itself has it if they were compiled with "
    "-lineinfo.",
)  # fmt: skip
@click.option(
    "--format", "output_format", type=click.Choice(["text", *FORMATS]), default="text",
    show_default=True, help="How to report.",
)  # fmt: skip
@output_option
@time_option("--time-limit", f"{TIME_LIMIT:g}s", "What checking its kernels may take.")
@click.option("--no-check", is_flag=True, help="Look for no cause: say what the dump says.")
@suggest_option
@click.option("-v", "--verbose", is_flag=True, help="Show all groups of warps.")
@source_root_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    core: Path | None,
    pid: int | None,
    ptx: Path | None,
    output_format: str,
    output: Path | None,
    time_limit: timedelta,
    no_check: bool,
    suggest: timedelta | None,
    verbose: bool,
    source_roots: tuple[Path, ...],
) -> None:
    """Say which warps of a hung GPU wait for what, from its core dump.

    Exit: 1 a hang or an exception was found, 0 no kernel was running, 2 usage or damaged input, 3
    inconclusive: no wait is known.
    """
    show_below(source_roots)
    files_not_shown()  # what others in this process asked for before is not this command's
    if (core is None) == (pid is None):
        raise UsageError("name a core dump, or a process with --pid P")
    if pid is not None:
        core = dump_of(pid)
        say(f"the dump of process {pid} is {core}; what it does on the GPU has ended", err=True)
    assert core is not None
    found = autopsy(core, ptx, check=not no_check, time_limit=time_limit, suggest=suggest)
    if output_format != "text":
        deliver(render(output_format, found), output)
    elif output is None:
        style = style_for(sys.stdout)
        said = text.render(found, replace(style, verbose=verbose))
        click.echo(said, nl=False, color=style.colour)
    else:
        deliver(text.render(found, replace(PLAIN, verbose=verbose)), output)
    say_withheld()
    ctx.exit(found.code)
