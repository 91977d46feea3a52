"""Options of the commands that check many cases."""

from __future__ import annotations

import click

from tilesim.checker import DEFAULT_BUDGET
from tilesim.cli.options import MAX_BUDGET, Decorator
from tilesim.parallel import MAX_JOBS

format_option: Decorator = click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text",
    show_default=True, help="How to report.",
)  # fmt: skip
case_budget_option: Decorator = click.option(
    "--budget", type=click.IntRange(0, MAX_BUDGET), default=DEFAULT_BUDGET, show_default=True,
    help="Warp instructions to execute at most per case when exploring all schedules.",
)  # fmt: skip
jobs_option: Decorator = click.option(
    "--jobs", type=click.IntRange(1, MAX_JOBS), default=1, show_default=True,
    help="Processes that check cases.",
)  # fmt: skip
