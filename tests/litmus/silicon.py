"""The litmus rows for SM90 on a GPU: every outcome seen must be one the simulator allows.

``python -m tests.litmus.silicon --launches 2000 --markdown benchmarks/h200/litmus.md`` needs the
``compile`` extra and a Hopper GPU. Each launch has random delays at synchronising instructions,
from a seed of its own. What is undefined may do anything; what it did is written down.
"""

from __future__ import annotations

import sys
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

from tests.litmus.sections import all_rows
from tests.litmus.table import Completes, Rejected, Row
from tests.litmus.test_litmus import inputs_of
from tilesim import Program
from tilesim.analysis.taint import tensors_written
from tilesim.arith.types import numpy_dtype
from tilesim.checker import check
from tilesim.errors import TilesimError
from tilesim.gpu.compile import compile_cubin, versions
from tilesim.gpu.driver import Gpu, probe
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import DeviceError
from tilesim.gpu.watchdog import Executor
from tilesim.ir.ops.hints import ReadClock
from tilesim.ir.program import instructions
from tilesim.sim.machine.simulate import simulate

Arrays = dict[str, NDArray[Any]]

#: a run that ends in one of these does not end; under any other finding hardware may do anything
_STUCK = frozenset({"deadlock", "register-pool"})
#: a copy's bytes complete in parts: a phase that expects fewer may end when so many have (A12)
_SURPLUS = "more completed than expected"
#: random schedules of the simulator that are asked for outcomes
_SCHEDULES = 64
#: launches of a row once it hangs or traps, and of one that is undefined
_SPOILT, _UNDEFINED = 3, 200
#: launches per job, so that a hang late in a row does not lose the ones before it
_CHUNK = 250
_BUDGET = 0.05
_RESULTS = "## Results\n"


@dataclass(frozen=True)
class Allowed:
    """What the simulator says may happen: ``stuck``, the outputs of runs that end, or anything.

    ``undefined`` names the findings that make every outcome allowed.
    """

    stuck: bool
    outputs: frozenset[bytes]
    undefined: str = ""

    def __str__(self) -> str:
        if self.undefined:
            return f"undefined ({self.undefined})"
        ends = f"ends, {len(self.outputs)} result" + "s" * (len(self.outputs) != 1)
        return " or ".join([ends] * bool(self.outputs) + ["hangs"] * self.stuck)


@dataclass
class Seen:
    """What the launches of a row did: how often it ended with which bytes, hung, or trapped."""

    results: Counter[bytes] = field(default_factory=Counter)
    hangs: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def launches(self) -> int:
        """Launches in all."""
        return self.results.total() + self.hangs + self.errors.total()

    def within(self, allowed: Allowed) -> bool:
        """Whether the simulator allows all of it."""
        if allowed.undefined:
            return True
        known = set(self.results) <= allowed.outputs
        return known and not self.errors and (allowed.stuck or not self.hangs)

    def __str__(self) -> str:
        parts = []
        if self.results:
            parts.append(f"ended {self.results.total()} ({len(self.results)} results)")
        if self.hangs:
            parts.append(f"hung {self.hangs}")
        parts += [f"{name} {count}" for name, count in sorted(self.errors.items())]
        return ", ".join(parts)


def allowed(program: Program, inputs: Arrays) -> Allowed:
    """The outcomes of the simulator: one if every schedule is proved, else those of a sample."""
    runs = [simulate(program, inputs)]
    report = check(program, inputs=inputs)
    if report.findings:
        runs += [simulate(program, inputs, policy="random", seed=s) for s in range(_SCHEDULES)]
    rules = {f.rule for f in report.findings} | {f.rule for run in runs for f in run.findings}
    ended = [run for run in runs if not run.findings]
    if any(_SURPLUS in note for f in report.findings for note in f.notes):
        rules.add("tx-mismatch")
    stuck = any(f.rule in _STUCK for run in runs for f in run.findings)
    outputs = frozenset(_bytes(_without(run.outputs, unsaid(program))) for run in ended)
    return Allowed(stuck or bool(rules & _STUCK), outputs, ", ".join(sorted(rules - _STUCK)))


def _bytes(outputs: Arrays) -> bytes:
    return b"".join(outputs[name].tobytes() for name in sorted(outputs))


def unsaid(program: Program) -> frozenset[str]:
    """The tensors whose bytes the simulator does not foretell: maps, and all if there are clocks.

    How hardware lays out a tensor map is not modelled (B14), nor what time it is (H16).
    """
    found: set[str] = set()
    for op in instructions(program):
        if isinstance(op, ReadClock):
            return frozenset(t.name for t in program.tensors)
        if op.mnemonic.startswith("tensormap."):
            found.update(name for effect in op.effects() for name in tensors_written(effect))
    return frozenset(found)


def _without(outputs: Arrays, names: frozenset[str]) -> Arrays:
    return {name: array for name, array in outputs.items() if name not in names}


def inputs(row: Row, program: Program) -> Arrays:
    """What the global tensors hold before a launch."""
    if isinstance(row.practice, Completes):
        return inputs_of(program, row.practice)
    return {t.name: np.zeros(t.shape, numpy_dtype(t.dtype)) for t in program.tensors}


def observe(
    executor: Executor, program: Program, contents: Arrays, expected: Allowed, launches: int
) -> Seen:
    """Launches the row until it has been launched often enough, or has been spoilt twice."""
    seen = Seen()
    binary = compile_cubin(emit(program, watchdog=True, perturb=True))
    total = _UNDEFINED if expected.undefined else launches
    rng = np.random.default_rng(0)
    left_out = unsaid(program)
    while seen.launches < total and seen.hangs + seen.errors.total() < _SPOILT:
        count = min(_CHUNK, total - seen.launches)
        seeds = [int(s) for s in rng.integers(1, 1 << 31, count)]
        run = executor.execute(binary, contents, seeds=seeds, budget=_BUDGET)
        seen.results.update(_bytes(_without(outputs, left_out)) for outputs in run.outputs)
        seen.hangs += run.status == "hang"
        if run.status == "error":
            seen.errors[run.detail] += 1
    return seen


def rows(only: str = "") -> Iterator[tuple[Row, Program]]:
    """The rows that can run on SM90, of which the id starts with ``only``."""
    for row in all_rows():
        if isinstance(row.practice, Rejected) or not row.id.startswith(only):
            continue
        program = row.build()
        if program.target.name == "sm_90a":
            yield row, program


def _line(row: Row, expected: Allowed, seen: Seen) -> str:
    verdict = "yes" if seen.within(expected) else "NO"
    cells = (row.id, str(expected), str(seen.launches), str(seen), verdict)
    return f"| {' | '.join(cells)} |"


def _write(path: Path, lines: list[str]) -> None:
    """Puts the table under the page's heading for results, in place of what stood there."""
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    info = Gpu().info
    head = f"{info.name}, driver {info.driver}; {used}; {date.today().isoformat()}."
    table = "| row | simulator | launches | GPU | allowed |\n| --- | --- | --- | --- | --- |"
    page = path.read_text() if path.exists() else ""
    above = page.partition(_RESULTS)[0]
    path.write_text("\n".join([f"{above}{_RESULTS}", head, "", table, *lines, ""]))


@click.command(help=__doc__)
@click.option("--launches", default=2000, show_default=True, help="Launches of a row.")
@click.option("--jobs", default=4, show_default=True, help="Rows at a time.")
@click.option("--row", "only", default="", help="Only rows whose id starts with this.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Page to write the table to.")
def main(launches: int, jobs: int, only: str, markdown: Path | None) -> None:
    """Runs the rows and writes the table."""
    try:
        probe()
    except DeviceError as error:
        raise click.ClickException(str(error)) from error
    start = time.perf_counter()
    pool: SimpleQueue[Executor] = SimpleQueue()
    for _ in range(jobs):
        pool.put(Executor())

    def run(item: tuple[Row, Program]) -> tuple[str, bool]:
        row, program = item
        contents = inputs(row, program)
        expected = allowed(program, contents)
        executor = pool.get()
        try:
            seen = observe(executor, program, contents, expected, launches)
        except TilesimError as error:
            return f"| {row.id} | {expected} | 0 | not run: {str(error).splitlines()[0]} |  |", True
        finally:
            pool.put(executor)
        return _line(row, expected, seen), seen.within(expected)

    lines, good = [], True
    with ThreadPoolExecutor(jobs) as threads:
        for line, fine in threads.map(run, rows(only)):
            print(line, flush=True)
            lines.append(line)
            good &= fine
    for _ in range(jobs):
        pool.get().close()
    print(f"{len(lines)} rows in {time.perf_counter() - start:.0f} s")
    if markdown is not None:
        _write(markdown, lines)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
