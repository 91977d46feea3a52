"""Options of the commands that check many cases, and their workers."""

from __future__ import annotations

import click

from tilesim.checker import DEFAULT_BUDGET
from tilesim.cli.options import MAX_BUDGET, Decorator
from tilesim.errors import UsageError
from tilesim.limits import MAX_JOBS
from tilesim.parallel import Opener, opener

#: tasks that a cluster is busy with at a time: how many workers it has is not known, and changes
_CLUSTER = 64

case_budget_option: Decorator = click.option(
    "--budget", type=click.IntRange(0, MAX_BUDGET), default=DEFAULT_BUDGET, show_default=True,
    help="Warp instructions to execute at most per case when exploring all schedules.",
)  # fmt: skip
dask_option: Decorator = click.option(
    "--dask", "--scheduler", "dask", metavar="ADDRESS",
    help="Work on this Dask cluster instead of in processes.",
)  # fmt: skip


def jobs_option(what: str) -> Decorator:
    """``-j N``, ``--jobs N``, processes that do ``what``."""
    return click.option(
        "-j", "--jobs", type=click.IntRange(1, MAX_JOBS), default=1, show_default=True,
        help=f"Processes that {what}.",
    )  # fmt: skip


def workers(jobs: int, dask: str | None) -> tuple[Opener, int]:
    """The workers that the options ask for, and how many tasks they are busy with.

    Raises:
        UsageError: the options exclude each other, or Dask is not installed.
    """
    if dask is not None and not dask.strip():
        raise UsageError("--dask needs the address of a Dask cluster, such as tcp://host:8786")
    if jobs > 1 and dask:
        raise UsageError("--jobs and --dask exclude each other")
    return opener(jobs, dask), _CLUSTER if dask else jobs
