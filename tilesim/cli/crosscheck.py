"""``tilesim crosscheck``: the gallery on the simulator and on a GPU."""

from __future__ import annotations

from typing import Any

import click

from tilesim.cli.options import FILE, FOLDER, MAX_SEED, Seconds
from tilesim.cli.run import MAX_PERTURB
from tilesim.limits import MAX_JOBS


@click.command()
@click.option("--family", metavar="NAME", help="One family of the gallery: hopper, nvfuser, bugs..")
@click.option("--kernel", metavar="TEXT", default="", help="Only rows whose name contains TEXT.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most N rows.")
@click.option(
    "--perturb", type=click.IntRange(0, MAX_PERTURB), metavar="N", default=4, show_default=True,
    help="Launches with random delays before synchronising instructions.",
)  # fmt: skip
@click.option(
    "--budget", type=Seconds(), metavar="SECONDS", default=0.25, show_default=True,
    help="How long a wait may take before the kernel counts as hanging.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, MAX_SEED), metavar="N",
    help="Of inputs and delays; another one each time without it.",
)  # fmt: skip
@click.option("--cache", type=FOLDER, metavar="DIR", help="Keep compiled kernels in this folder.")
@click.option("--compile-only", is_flag=True, help="Fill --cache (.cubins); needs no GPU.")
@click.option(
    "--jobs", type=click.IntRange(1, MAX_JOBS), metavar="N", default=2, show_default=True,
    help="Threads of --compile-only.",
)  # fmt: skip
@click.option("--markdown", type=FILE, metavar="FILE", help="Write the table to a file.")
@click.option("--json", type=FILE, metavar="FILE", help="Write the results as JSON to a file.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run the gallery on the simulator and on a GPU, and compare.

    Exit: 0 everything that ran agrees, 1 if not, 2 if nothing could run.
    """
    from tilesim.cli.gpu import Gallery

    ctx.exit(Gallery(**options).run())
