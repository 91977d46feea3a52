"""``tilesim trace``: the timeline of one simulated run, for ui.perfetto.dev."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from tilesim.cli.options import (
    Progress,
    param_option,
    seed_option,
    strict_option,
    style_for,
    write_file,
)
from tilesim.errors import UsageError
from tilesim.loader import load
from tilesim.report.result import FINDINGS, OK
from tilesim.report.text import count, findings_text
from tilesim.report.timeline import chrome_json
from tilesim.sim.timeline import LIMIT, Recording, record


@click.command()
@click.argument("target", metavar="TARGET")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default="trace.json",
    show_default=True, help="Where to write the trace.",
)  # fmt: skip
@click.option(
    "--clusters", type=click.IntRange(1, 64), default=1, show_default=True,
    help="How many clusters to simulate and record.",
)  # fmt: skip
@click.option(
    "--limit", type=click.IntRange(1, 10_000_000), default=LIMIT, show_default=True,
    help="Events to keep at most per cluster.",
)  # fmt: skip
@strict_option
@seed_option
@param_option
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    output: Path,
    clusters: int,
    limit: int,
    strict: Literal["ptx", "practice"],
    seed: int,
    params: dict[str, str],
) -> None:
    """Simulate a kernel and write its timeline as Chrome JSON, which ui.perfetto.dev opens.

    Exit: 0, 1 if the run has findings (the trace is written all the same), 2 usage or input error.
    """
    found = load(target, params)
    if len(found) != 1:
        names = ", ".join(t.id for t in found)
        raise UsageError(f"{target} has {len(found)} kernels; name one of {names}")
    progress = Progress()
    progress.show(f"running {found[0].id}")
    program = found[0].build()
    recording = record(
        program, found[0].inputs(program, seed), strict=strict, clusters=clusters, limit=limit
    )
    write_file(output, chrome_json(recording.timelines, program.name))
    progress.clear()
    style = style_for(sys.stdout)
    if recording.run.findings:
        click.echo(findings_text(recording.run.findings, style), color=style.colour)
    click.echo("\n".join(_summary(recording, output)))
    ctx.exit(FINDINGS if recording.run.findings else OK)


def _summary(recording: Recording, output: Path) -> list[str]:
    timelines = recording.timelines
    slices = sum(len(t.slices) for t in timelines)
    ctas = sum(len(t.ctas) for t in timelines)
    end = int(max((t.end for t in timelines), default=0))
    lines = [
        f"wrote {output}: {count(end, 'cycle')}, {count(ctas, 'CTA')}, {count(slices, 'slice')}"
    ]
    if any(t.truncated for t in timelines):
        lines.append("  cut       the limit was reached; --limit keeps more")
    lines.append("  open      https://ui.perfetto.dev (one cycle is shown as one microsecond)")
    return lines
