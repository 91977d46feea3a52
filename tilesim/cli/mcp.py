"""``tilesim mcp``: tools for coding agents, by the Model Context Protocol."""

from __future__ import annotations

import os
from datetime import timedelta

import click

from tilesim.cli.options import time_option
from tilesim.errors import UsageError


@click.command()
@time_option("--time-limit", "5m", "What a call may take at most.")
@click.option(
    "--data-only", is_flag=True,
    help="Run no Python: targets are .tile, .mir and .ptx files, and folders of them.",
)  # fmt: skip
def command(time_limit: timedelta, data_only: bool) -> None:
    """Serve check, suggest, show, trace and explain as tools, over standard input and output.

    Exit: 0 when the client closes the connection, 2 usage error.
    """
    try:
        from tilesim.mcp.server import Limits, serve
    except ImportError as error:
        raise UsageError("tilesim mcp needs the SDK: pip install 'tilesim[mcp]'") from error
    serve(Limits(time_limit.total_seconds(), not data_only), os.cpu_count() or 1)
