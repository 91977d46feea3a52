"""``tilesim watch``: runs a program; when it hangs, its GPU is dumped, and the dump is reported."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from shutil import which

import click

from tilesim.autopsy import autopsy, render
from tilesim.autopsy.progress import look_at, nvml
from tilesim.autopsy.watch import Watch
from tilesim.cli.options import FOLDER, PATH, say, source_root_option, style_for, time_option
from tilesim.cli.streams import is_lost
from tilesim.errors import UsageError
from tilesim.files import show_below
from tilesim.report.result import FINDINGS

#: a healthy program may compute in registers and caches, and write nothing, for a minute
_NO_PROGRESS = "5m"


def _tell(line: str) -> None:
    # a stderr that nothing reads any more is no reason to end the command
    with suppress(OSError):
        say(f"tilesim watch: {line}", err=True)


@click.command("watch", context_settings={"ignore_unknown_options": True})
@time_option("--after", None, "Time after which the program counts as hung, whatever it does.")
@time_option(
    "--no-progress", _NO_PROGRESS,
    "Take it for hung when for so long a GPU is busy, no memory of GPUs is accessed, and no "
    "process reads or writes.",
)  # fmt: skip
@click.option(
    "--dump-dir", type=FOLDER, metavar="DIR", help="Keep the dumps in this folder."
)  # fmt: skip
@click.option(
    "--ptx", type=PATH, metavar="FILE|FOLDER|PROGRAM",
    help="Where the PTX of the kernels is; dumps themselves have it if they were compiled with "
    "-lineinfo.",
)  # fmt: skip
@source_root_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context,
    after: timedelta | None,
    no_progress: timedelta,
    dump_dir: Path | None,
    ptx: Path | None,
    source_roots: tuple[Path, ...],
    command: tuple[str, ...],
) -> None:
    """Runs COMMAND, and reports why its GPU hangs, if it does.

    Nothing changes for COMMAND but the variables that let the driver make core dumps. Ctrl-\\, or
    SIGUSR1 to tilesim, asks for the dump of a hang; so do the times below. The dump ends what
    COMMAND does on the GPU. Ctrl-C is passed on; a second one kills what has not ended.

    Exit: 1 it hung; else the exit code of COMMAND, and 2 if it cannot be started.
    """
    show_below(source_roots)
    if which(command[0]) is None:
        raise UsageError(f"{command[0]} cannot be run: there is no such program")
    gpus = nvml()
    if gpus is None:
        said = ctx.get_parameter_source("no_progress") == click.core.ParameterSource.COMMANDLINE
        text = "the management library of NVIDIA's driver (NVML) reports nothing here"
        if said:
            raise UsageError(f"--no-progress: {text}; use --after TIME, or Ctrl-\\ when it hangs")
        _tell(f"{text}: progress is not watched, Ctrl-\\ asks for a dump")
    watch = Watch(
        partial(_report, ptx), _tell,
        after=None if after is None else after.total_seconds(),
        no_progress=no_progress.total_seconds(),
        look=None if gpus is None else partial(look_at, gpus),
        folder=dump_dir,
    )  # fmt: skip
    ctx.exit(watch.run(command))


def _report(ptx: Path | None, path: Path) -> bool:
    found, style = autopsy(path, ptx), style_for(sys.stderr)
    try:
        click.echo(render(found, style), err=True, nl=False, color=style.colour)
    except OSError:  # the dump stays, as its report is lost
        return False
    return found.code == FINDINGS and not is_lost(sys.stderr)
