"""NVIDIA's compute-sanitizer on the emitted kernels of the bug collection, beside our verdicts.

``python -m benchmarks.sanitizer [--jobs 6] [--only TEXT]`` needs a Hopper GPU, the ``compile``
extra and the command ``compute-sanitizer``. Every SM90 row of the collection, wrong ones and right
ones, is launched once under racecheck and once under synccheck, with a limit of time, since a
kernel that deadlocks hangs under them as well. Both instrument one launch, that is, one schedule.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from tilesim.errors import InvalidProgram
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.crosscheck import random_inputs
from tilesim.gpu.emit import emit
from tilesim.gpu.watchdog import pack
from tilesim.gpu.worker import Job, Worker
from tilesim.kernels.outcome import run as outcome_of
from tilesim.kernels.registry import Case, cases

TOOLS = ("racecheck", "synccheck")
LIMIT = 20.0
_FOUND = re.compile(r"(?:RACECHECK SUMMARY|ERROR SUMMARY): (\d+)")


@dataclass(frozen=True)
class Opinion:
    """What a tool said of one launch: ``found N``, ``nothing``, ``hangs`` or ``fails``."""

    said: str
    seconds: float


def launch(index: int) -> None:
    """Launches row ``index`` of the gallery once, without watchdog."""
    case = cases()[index]
    program = case.build()
    contents = pack(program, random_inputs(program, np.random.default_rng(0), {}))
    source = emit(program)
    job = Job(source, compile_cubin(source).cubin, contents, (0,), 1.0, LIMIT)
    answer = Worker().execute(job)
    print(answer.status, answer.detail)


def opinion(tool: str, index: int) -> Opinion:
    """Runs one row under one tool."""
    start = perf_counter()
    command = [
        "compute-sanitizer", "--tool", tool,
        sys.executable, "-m", "benchmarks.sanitizer", "--launch", str(index),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return Opinion("hangs", LIMIT)
    seconds = perf_counter() - start
    counts = [int(n) for n in _FOUND.findall(done.stdout)]
    if any(counts):
        return Opinion(f"found {max(counts)}", seconds)
    return Opinion("nothing" if "done" in done.stdout.split() else "fails", seconds)


def rows(only: str) -> list[tuple[int, Case]]:
    """The rows of the bug collection that a Hopper GPU can run."""
    chosen = []
    for index, case in enumerate(cases()):
        if case.family != "bugs" or case.kernel.target != "sm_90a" or only not in case.target:
            continue
        try:
            emit(case.build())
        except InvalidProgram:
            continue
        chosen.append((index, case))
    return chosen


def line(item: tuple[int, Case]) -> tuple[str, Case, tuple[Opinion, ...]]:
    """One row of the table."""
    index, case = item
    ours = outcome_of(case)
    verdict = f"{ours.verdict} ({', '.join(ours.rules)})" if ours.rules else ours.verdict
    theirs = tuple(opinion(tool, index) for tool in TOOLS)
    cells = [case.target, verdict, f"{ours.seconds:.2f}"]
    for one in theirs:
        cells += [one.said, f"{one.seconds:.1f}"]
    return f"| {' | '.join(cells)} |", case, theirs


def main() -> None:
    """Prints the table as it is made, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=6, help="rows at a time (default 6)")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    arguments = parser.parse_args()
    if arguments.launch is not None:
        launch(arguments.launch)
        return
    print("| kernel | tilesim | s | racecheck | s | synccheck | s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for text, case, theirs in pool.map(line, rows(arguments.only)):
            print(text, flush=True)
            found = any(one.said.startswith("found") for one in theirs)
            stuck = any(one.said == "hangs" for one in theirs)
            said = "found" if found else "hangs" if stuck else "nothing"
            counts[f"{'wrong' if case.fails else 'right'} kernels: {said}"] += 1
    print(*(f"{name} {count}" for name, count in sorted(counts.items())), sep="\n")


if __name__ == "__main__":
    main()
