"""``tilesim lsp``: findings, waits and repairs in an editor, by the Language Server Protocol."""

from __future__ import annotations

from datetime import timedelta

import click

from tilesim.cli.options import time_option
from tilesim.errors import UsageError


@click.command()
@time_option("--time-limit", "60s", "What checking a file may take.")
@time_option("--suggest", "10s", "How long to look for repairs of a kernel that fails.")
@click.option(
    "--trust", is_flag=True,
    help="Run Python files of the workspace although the editor does not say that it is trusted.",
)  # fmt: skip
def command(time_limit: timedelta, suggest: timedelta, trust: bool) -> None:
    """Serve an editor over standard input and output: check files when they are opened and saved.

    Exit: 0 when the editor ends it or closes the connection, 2 usage error.
    """
    try:
        from tilesim.lsp.server import Options, serve
    except ImportError as error:
        raise UsageError("tilesim lsp needs pygls: pip install 'tilesim[lsp]'") from error
    serve(Options(trust, time_limit.total_seconds(), suggest.total_seconds()))
