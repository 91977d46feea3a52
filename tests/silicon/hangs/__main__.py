"""Hangs kernels on a GPU, and scores what autopsies say of their dumps.

``python -m tests.silicon.hangs --out FOLDER`` needs nvcc and a Hopper GPU; with ``--no-gpu`` an
imitation of the driver makes the dumps. The folder gets results.jsonl (a line as each comes),
results.json, table.md, reports.txt (what was said of each dump) and dumps.tar (scrubbed ones).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import click

from tests.silicon.hangs import emitted
from tests.silicon.hangs.campaign import TAIL, Campaign, Other, imitation, launcher
from tests.silicon.hangs.hang import Limits
from tests.silicon.hangs.program_task import ProgramTask
from tests.silicon.hangs.table import page, totals
from tests.silicon.hangs.task import NotCompiled, Task, copied_tasks, own_tasks
from tests.silicon.hangs.triton_task import TASKS
from tests.silicon.machine import machine


def _others(folder: Path, only: str, *, triton: bool) -> list[Other]:
    """A program with a main, and Triton's kernels if torch is there."""
    found: list[Other] = []
    program = ProgramTask(folder / "program")
    try:
        program.compile()
        found.append(program)
    except (NotCompiled, OSError, subprocess.TimeoutExpired) as error:
        click.echo(str(error))
    if triton and find_spec("torch") is not None:
        found += TASKS
    return [task for task in found if only in task.id]


@click.command(help=__doc__)
@click.option("--only", default="", help="Programs whose name has this in it.")
@click.option("--jobs", default=4, show_default=True, help="Processes that compile and read.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--cases", type=click.Path(path_type=Path, exists=True), help="CUDA with launches.")
@click.option("--seconds", default=520.0, show_default=True, help="For all of it.")
@click.option("--hang", default=1.0, show_default=True, help="Seconds after which it hangs.")
@click.option("--no-gpu", is_flag=True, help="An imitation of the driver makes the dumps.")
@click.option("--no-triton", is_flag=True, help="Without Triton's kernels.")
def main(
    only: str, jobs: int, out: Path, cases: Path | None, seconds: float, hang: float, no_gpu: bool,
    no_triton: bool,
) -> None:  # fmt: skip
    """Runs the campaign."""
    started = time.monotonic()
    folder = Path(mkdtemp(prefix="hangs-"))
    campaign = Campaign(
        out, folder, started + seconds - TAIL, imitation if no_gpu else launcher,
        Limits(hang=hang), click.echo,
    )  # fmt: skip
    facts = machine()
    try:
        tasks: list[Task] = [*own_tasks(folder / "src" / "own")]
        if cases is not None:
            tasks += copied_tasks(cases, folder / "src" / "bugs")
        if not only or only.startswith("emitted"):
            tasks += emitted.tasks(folder / "src" / "emitted")
        every = campaign.prepared([task for task in tasks if only in task.id], jobs)
        click.echo(f"{len(every)} programs after {time.monotonic() - started:.0f} s")
        campaign.run(every, [] if no_gpu else _others(folder, only, triton=not no_triton), jobs)
    finally:
        document = {**facts, "seconds": round(time.monotonic() - started), "rows": campaign.rows}
        (out / "results.json").write_text(json.dumps(document, indent=1) + "\n")
        (out / "table.md").write_text(page(document))
        campaign.keep()
        campaign.clean()
    click.echo(totals(document))


if __name__ == "__main__":
    main()
    sys.exit(0)
