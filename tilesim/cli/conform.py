"""``tilesim conform``: what a GPU did, in which order, and whether the machine allows it."""

from __future__ import annotations

from pathlib import Path

import click

from tilesim.cli.backend import gpu_module
from tilesim.cli.options import FILE, Progress, seed_option, target_options, writing
from tilesim.conform.compare import Conformance, compare
from tilesim.conform.order import order_of
from tilesim.conform.recorded import Recorded, load
from tilesim.errors import UsageError
from tilesim.ir.program import Program
from tilesim.ir.text.mir import fingerprint
from tilesim.loader import Given, Target, load_one
from tilesim.report.result import FINDINGS, OK
from tilesim.transforms.lower import lower
from tilesim.wording import count

#: violations that are printed
_SHOWN = 5
MAX_RUNS = 100_000


@click.command()
@click.argument("target", metavar="TARGET")
@click.option(
    "--runs", type=click.IntRange(1, MAX_RUNS), metavar="N", default=100, show_default=True,
    help="Launches: one as it is, the others with random delays.",
)  # fmt: skip
@click.option(
    "--clusters", type=click.IntRange(1, 64), metavar="N", default=1, show_default=True,
    help="How many clusters to record.",
)  # fmt: skip
@click.option("--save", type=FILE, metavar="FILE", help="Keep the recording (.npz).")
@click.option(
    "--recorded", type=FILE, metavar="FILE",
    help="Compare this recording; no GPU is needed.",
)  # fmt: skip
@seed_option
@target_options
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    runs: int,
    clusters: int,
    save: Path | None,
    recorded: Path | None,
    seed: int,
    given: Given,
) -> None:
    """Record when a GPU enters and leaves synchronising instructions, and compare with the machine.

    Exit: 0 every launch is an execution that the machine allows, 1 if not, 2 usage or input error,
    or nothing to run on.
    """
    found = load_one(target, given)
    program = found.build()
    if recorded is not None:
        launches = load(recorded)
        if launches.about.fingerprint != fingerprint(lower(program)):
            raise UsageError(f"{recorded} is of another program than {found.id}")
    else:
        launches = _record(found, program, runs, clusters, seed)
    if save is not None:
        with writing(save):
            launches.save(save)
    size = program.cluster_size
    result = compare(order_of(program, clusters=max(1, len(launches.ctas) // size)), launches)
    click.echo("\n".join(_text(found.id, launches, result)))
    ctx.exit(OK if result.conforms else FINDINGS)


def _record(target: Target, program: Program, runs: int, clusters: int, seed: int) -> Recorded:
    """Launches the kernel."""
    record = gpu_module("tilesim.gpu.conform", "gpu").record
    progress = Progress()
    try:
        launches: Recorded = record(
            program, target.inputs(program, seed), runs, seed=seed, clusters=clusters,
            after=lambda done: progress.show(f"launch {progress.share(done, runs)}"),
        )  # fmt: skip
    finally:
        progress.clear()
    return launches


def _text(name: str, launches: Recorded, result: Conformance) -> list[str]:
    about = launches.about
    lines = [f"{'CONFORMS' if result.conforms else 'DOES NOT CONFORM'} {name}"]
    lines += [f"  {violation}" for violation in result.violations[:_SHOWN]]
    if len(result.violations) > _SHOWN:
        lines.append(f"  and {len(result.violations) - _SHOWN} more")
    lines.append(
        f"  launches  {launches.launches} on {about.device} (driver {about.driver}), seed "
        f"{about.seed}; {count(len(launches.ctas), 'CTA')} recorded"
    )
    lines.append(
        f"  compared  {count(result.instances, 'instruction')} and {count(result.orders, 'order')} "
        "between them in each launch"
    )
    return lines
