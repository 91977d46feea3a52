"""The command line. One module per command; each is imported when it is used."""

from __future__ import annotations

import click

import tilesim
from tilesim.cli.group import Group

#: command -> module with a click command named ``command``
COMMANDS = {
    "check": "tilesim.cli.check",
    "recheck": "tilesim.cli.recheck",
    "run": "tilesim.cli.run",
    "show": "tilesim.cli.show",
    "emit": "tilesim.cli.emit",
    "launch-template": "tilesim.cli.launch_template",
    "launch-schema": "tilesim.cli.launch_schema",
    "report-schema": "tilesim.cli.report_schema",
    "capture": "tilesim.cli.capture",
    "export": "tilesim.cli.export",
    "trace": "tilesim.cli.trace",
    "fuzz": "tilesim.cli.fuzz",
    "sweep": "tilesim.cli.sweep",
    "crosscheck": "tilesim.cli.crosscheck",
    "conform": "tilesim.cli.conform",
    "autopsy": "tilesim.cli.autopsy",
    "watch": "tilesim.cli.watch",
    "explain": "tilesim.cli.explain",
    "mcp": "tilesim.cli.mcp",
    "lsp": "tilesim.cli.lsp",
    "demo": "tilesim.cli.demo",
    "ptxas-diff": "tilesim.cli.ptxas_diff",
    "doctor": "tilesim.cli.doctor",
}


@click.group(
    "tilesim", cls=Group, modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
@click.version_option(tilesim.__version__, "-V", "--version", message="tilesim %(version)s")
@click.option(
    "--debug", is_flag=True, help="Show tracebacks: of errors in kernels' code, of internal errors."
)
def main(debug: bool) -> None:
    """Simulate and check the barrier protocols of Hopper and Blackwell kernels, without a GPU.

    TARGET is file.py, file.py::kernel, package.module::kernel, file.tile,
    file.mir or file.ptx.
    """
