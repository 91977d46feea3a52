"""``tilesim crosscheck``: the gallery on the simulator and on a GPU."""

from __future__ import annotations

import click


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run the gallery on the simulator and on a GPU, and compare.

    Exit: 0 everything that ran agrees, 1 if not, 2 if nothing could run.
    """
    from tilesim.gpu.command import main

    ctx.exit(main(ctx.args))
