"""Launches the trials on a GPU and writes down which outcomes were seen, and how often.

``python -m tests.silicon.run --launches 5000 --json tests/silicon/seen.json`` needs the ``compile``
extra and a Hopper GPU. Launches have random delays: before synchronising instructions from a seed
each, and of lanes from ``delay``, which changes from job to job.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from tilesim.errors import TilesimError
from tilesim.gpu.compile import compile_cubin, versions
from tilesim.gpu.driver import Gpu
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import DeviceError
from tilesim.gpu.watchdog import Executor

from .programs import all_trials
from .trial import HANGS, Trial, inputs

#: launches per job, seconds that a wait may take, and launches that hang or trap until a trial ends
_CHUNK, _BUDGET, _SPOILT = 250, 0.05, 4


@dataclass
class Seen:
    """What a trial's launches did; ``took`` nanoseconds where it measures them."""

    outcomes: Counter[str] = field(default_factory=Counter)
    took: list[int] = field(default_factory=list)
    orders: list[NDArray[Any]] = field(default_factory=list)
    remark: str = ""

    def facts(self) -> dict[str, Any]:
        """As it is written down."""
        found: dict[str, Any] = {"outcomes": dict(self.outcomes.most_common())}
        if self.took:
            low, middle, high = np.percentile(self.took, [0, 50, 100])
            found["took_ns"] = [int(low), int(middle), int(high)]
        if self.orders:
            found["starts"] = _starts(np.array(self.orders))
        if self.remark:
            found["remark"] = self.remark
        return found


def _starts(orders: NDArray[Any]) -> dict[str, Any]:
    """Of which number a CTA was by start, per launch and CTA: how far that is from its own."""
    moved = np.abs(orders - np.arange(orders.shape[1]))
    early = np.array([np.maximum.accumulate(np.argsort(o)) - np.argsort(o) for o in orders])
    return {
        "distinct": len({o.tobytes() for o in orders}),
        "furthest": int(moved.max()),
        "median": float(np.median(moved)),
        "most_overtaken": int(early.max()),
    }


def observe(executor: Executor, trial: Trial, launches: int, limit: float) -> Seen:
    """Launches a trial so often, or until it has been spoilt some times or ``limit`` seconds."""
    seen, end = Seen(), time.monotonic() + limit
    program = trial.build()
    binary = compile_cubin(emit(program, watchdog=True, perturb=True))
    rng, spoilt, job = np.random.default_rng(0), 0, 0
    while seen.outcomes.total() < launches and spoilt < _SPOILT and time.monotonic() < end:
        count, job = min(_CHUNK, launches - seen.outcomes.total()), job + 1
        seeds = [int(s) for s in rng.integers(1, 1 << 31, count)]
        run = executor.execute(binary, inputs(program, job), seeds=seeds, budget=_BUDGET)
        for outputs in run.outputs:
            seen.outcomes[trial.outcome(outputs)] += 1
            if "took" in outputs:
                seen.took.append(int(outputs["took"][0]))
            if trial.id.startswith("start-order"):
                seen.orders.append(outputs["out"].copy())
        if run.status != "done":
            spoilt += 1
            seen.outcomes[HANGS if run.status == "hang" else run.detail] += 1
    return seen


def observed(
    pool: SimpleQueue[Executor], trials: list[Trial], launches: int, limit: float, jobs: int
) -> Iterator[tuple[Trial, Seen]]:
    """The trials, some at a time; one that cannot run has a remark."""

    def run(trial: Trial) -> tuple[Trial, Seen]:
        executor = pool.get()
        try:
            return trial, observe(executor, trial, launches, limit)
        except TilesimError as error:
            return trial, Seen(remark=f"not run: {str(error).splitlines()[0]}")
        finally:
            pool.put(executor)

    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(run, trials)


@click.command(help=__doc__)
@click.option("--launches", default=5000, show_default=True, help="Launches of a trial.")
@click.option("--seconds", default=60.0, show_default=True, help="For a trial, at most.")
@click.option("--jobs", default=4, show_default=True, help="Trials at a time.")
@click.option("--trial", "only", default="", help="Only trials whose id starts with this.")
@click.option("--json", "file", type=click.Path(path_type=Path), required=True)
def main(launches: int, seconds: float, jobs: int, only: str, file: Path) -> None:
    """Runs the trials."""
    try:
        info = Gpu().info
    except DeviceError as error:
        raise click.ClickException(str(error)) from error
    pool: SimpleQueue[Executor] = SimpleQueue()
    for _ in range(jobs):
        pool.put(Executor())
    found: dict[str, Any] = {
        "gpu": info.name, "driver": info.driver, "compiler": versions(),
        "date": date.today().isoformat(), "trials": {},
    }  # fmt: skip
    trials = [t for t in all_trials() if t.id.startswith(only)]
    for trial, seen in observed(pool, trials, launches, seconds, jobs):
        found["trials"][trial.id] = seen.facts()
        click.echo(f"{trial.id}: {seen.facts()}")
        file.write_text(json.dumps(found, indent=1) + "\n")
    for _ in range(jobs):
        pool.get().close()


if __name__ == "__main__":
    main()
