"""SPIN beside tilesim: the same pipelines through a model checker, the certificate, the explorer.

``python -m benchmarks.spin`` needs ``spin`` and ``gcc``. Per row: SPIN's states, CPU seconds and
memory on the model that `tilesim.export.to_promela` writes, and the CPU seconds of `tilesim.check`
(one run and the certificate) and of the explorer (every schedule that can differ), with their
schedules. What does not finish within ``--seconds`` or ``--memory`` is a ``limit``; a row that is
at least as large in everything as one at its limit is not tried and shown as ``larger``.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path
from time import process_time
from typing import Literal

from tilesim.arith.types import u32
from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import Kernel, kernel
from tilesim.export import to_promela
from tilesim.ir.program import Program
from tilesim.sim.machine.simulate import Simulation
from tilesim.sim.schedulers.exhaustive import explore
from tilesim.sim.schedulers.frontier import Limits

Outcome = Literal["ok", "deadlock", "assertion", "limit"]


# ------------------------------------------------------------------ SPIN


@dataclass(frozen=True)
class Verification:
    """What SPIN says of a model: ``detail`` is its first error line; memory in MiB."""

    outcome: Outcome
    detail: str
    states: int
    seconds: float
    mebibytes: float


class SpinError(Exception):
    """SPIN or the C compiler rejects a model: their output."""


def run_spin(
    model: str, *, seconds: int = 60, memory: int = 4096, optimise: int = 2
) -> Verification:
    """Verifies a Promela model exhaustively: assertions and invalid end states.

    Args:
        seconds: CPU time of the search (compiling is not counted), after which it is a ``limit``.
        memory: in MiB, likewise.
        optimise: the C compiler's level.

    Raises:
        SpinError: the model cannot be compiled.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.pml").write_text(model)
        _build(["spin", "-a", "model.pml"], folder)
        flags = ["-DSAFETY", "-DVECTORSZ=16384", f"-DMEMLIM={memory}", f"-O{optimise}", "-w"]
        _build(["gcc", *flags, "-o", "pan", "pan.c"], folder)
        before = _children()
        done = subprocess.run(
            ["./pan", "-m200000"], cwd=folder, capture_output=True, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1)),
        )  # fmt: skip
        return _parsed(done.stdout, _children() - before, stopped=done.returncode < 0)


def _build(command: Sequence[str], folder: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or "Error" in done.stdout:
        raise SpinError(f"{command[0]}: {done.stdout}{done.stderr}")


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _parsed(output: str, seconds: float, *, stopped: bool) -> Verification:
    """The outcome from what pan prints."""
    states = re.search(r"(\S+)\s+states, stored", output)
    memory = re.search(r"([\d.]+)\s+total actual memory usage", output)
    error = re.search(r"^pan:\d+: (.*)", output, re.MULTILINE)
    outcome: Outcome = "ok"
    if error is not None:
        outcome = "assertion" if error[1].startswith("assertion") else "deadlock"
    if stopped or "too small" in output or ("not completed" in output and error is None):
        outcome = "limit"
    return Verification(
        outcome,
        error[1] if error else "",
        int(float(states[1])) if states else 0,
        seconds,
        float(memory[1]) if memory else float("nan"),
    )


# ------------------------------------------------------------------ pipelines


@kernel(family="benchmark")
def ring(k: Builder, *, stages: int = 4, iterations: int = 16, consumers: int = 2) -> None:
    """A producer warp copies tiles into a ring of stages; every consumer warp uses every tile."""
    k.launch(warps=consumers + 1)
    source = k.tensor("source", u32, (iterations, 32))
    tiles = k.shared("tiles", u32, (stages, 32))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    with k.one_thread():
        for each in range(stages):
            k.mbarrier.init(full[each], 1)
            k.mbarrier.init(empty[each], consumers)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(iterations) as i:
        stage, parity = i % stages, (i // stages) & 1
        k.mbarrier.wait(empty[stage], parity ^ 1)
        k.mbarrier.arrive_expect_tx(full[stage], tiles[0].nbytes)
        k.bulk.load(tiles[stage], source[i], full[stage])
    with k.role("consumer", range(1, consumers + 1)), k.elected(), k.loop(iterations) as i:
        stage, parity = i % stages, (i // stages) & 1
        k.mbarrier.wait(full[stage], parity)
        k.mbarrier.arrive(empty[stage])


@kernel(family="benchmark")
def cluster(k: Builder, *, stages: int = 2, iterations: int = 8, consumers: int = 1) -> None:
    """The ring in each of two CTAs; each producer copies half of every tile to both of them."""
    k.launch(warps=consumers + 1, grid=2, cluster=2)
    source = k.tensor("source", u32, (iterations, 2, 32))
    tiles = k.shared("tiles", u32, (stages, 2, 32))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    rank = k.cluster_rank
    with k.one_thread():
        for each in range(stages):
            k.mbarrier.init(full[each], 1)
            k.mbarrier.init(empty[each], 2 * consumers)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role("producer", 0), k.elected(), k.loop(iterations) as i:
        stage, parity = i % stages, (i // stages) & 1
        k.mbarrier.wait(empty[stage], parity ^ 1, scope="cluster")
        k.mbarrier.arrive_expect_tx(full[stage], tiles[0].nbytes)
        k.bulk.load(tiles[stage, rank], source[i, rank], full[stage], multicast=0b11)
    with k.role("consumer", range(1, consumers + 1)), k.elected(), k.loop(iterations) as i:
        stage, parity = i % stages, (i // stages) & 1
        k.mbarrier.wait(full[stage], parity, scope="cluster")
        for peer in range(2):
            k.mbarrier.arrive(empty[stage].at(peer), scope="cluster")
    k.cluster.sync()


# ------------------------------------------------------------------ measuring


@dataclass(frozen=True)
class Effort:
    """CPU seconds, and what was looked at in them; ``note`` says why it is not complete."""

    seconds: float = float("nan")
    count: int = 0
    note: str = ""

    def __str__(self) -> str:
        if self.note:
            return f"{self.note:>9} {'':>9}"
        return f"{self.count:9,} {self.seconds:9.3f}"


def with_spin(program: Program, seconds: int, memory: int) -> tuple[Effort, float]:
    """States and seconds of SPIN, and its MiB."""
    result = run_spin(to_promela(program), seconds=seconds, memory=memory)
    if result.outcome == "limit":
        return Effort(result.seconds, result.states, "limit"), result.mebibytes
    assert result.outcome == "ok", result
    return Effort(result.seconds, result.states), result.mebibytes


def with_certificate(program: Program) -> Effort:
    """Schedules and seconds of a check."""
    start = process_time()
    report = check(program)
    assert report.verdict == "proved", report
    return Effort(process_time() - start, report.stats.schedules)


def with_explorer(program: Program, seconds: float) -> Effort:
    """Schedules and seconds of exploring every schedule that can differ."""
    start = process_time()

    simulation = Simulation(program, numbers=False, strict="practice")
    found = explore(simulation, [0], {}, Limits(timedelta(seconds=seconds)))
    if found.stopped:
        return Effort(process_time() - start, found.explored.schedules, "limit")
    assert found.complete, found
    return Effort(process_time() - start, found.explored.schedules)


HEADER = (
    "pipeline  stages  iterations  consumers    states    SPIN s       MiB      runs   check s"
    " schedules explore s"
)


def main() -> None:
    """Measures all rows and prints them as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--iterations", type=int, nargs="*", default=[4, 16, 64])
    parser.add_argument("--consumers", type=int, nargs="*", default=[1, 2, 3, 5])
    parser.add_argument(
        "--seconds", type=int, default=60, help="limit per row and tool, CPU seconds"
    )
    parser.add_argument("--memory", type=int, default=4096, help="limit of SPIN, MiB")
    options = parser.parse_args()
    print(HEADER)
    for family in (ring, cluster):
        late: dict[str, list[tuple[int, ...]]] = {"spin": [], "explorer": []}
        for size in product(options.consumers, options.stages, options.iterations):
            if family is cluster and size[0] > 2:
                continue
            _row(family, size, late, options.seconds, options.memory)


def _row(
    family: Kernel, size: tuple[int, ...], late: dict[str, list[tuple[int, ...]]],
    seconds: int, memory: int,
) -> None:  # fmt: skip
    """Measures one size and prints it; ``late`` has the sizes that were too large before."""
    consumers, stages, iterations = size
    program = family.build(stages=stages, iterations=iterations, consumers=consumers)
    spin, mebibytes = Effort(note="larger"), float("nan")
    if not _covers(late["spin"], size):
        spin, mebibytes = with_spin(program, seconds, memory)
    explored = Effort(note="larger")
    if not _covers(late["explorer"], size):
        explored = with_explorer(program, seconds)
    for tool, effort in (("spin", spin), ("explorer", explored)):
        if effort.note == "limit":
            late[tool].append(size)
    memory_used = f"{mebibytes:9.0f}" if not spin.note else " " * 9
    print(
        f"{family.name:8}  {stages:6}  {iterations:10}  {consumers:9} {spin} {memory_used}"
        f" {with_certificate(program)} {explored}",
        flush=True,
    )


def _covers(late: Sequence[tuple[int, ...]], size: tuple[int, ...]) -> bool:
    """Whether one of the sizes that were too large is no larger than this one in anything."""
    return any(all(a <= b for a, b in zip(other, size, strict=True)) for other in late)


if __name__ == "__main__":
    main()
