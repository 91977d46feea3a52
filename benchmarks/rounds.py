"""What benchmarks beside libraries share: rounds in turns, a row's figures, the command.

Every kernel computes on several sets of operands in turn, so that a launch does not find its
operands in the L2 cache. One round launches a kernel once per set, as a CUDA graph between two
events; rounds of the kernels take turns, and the median round counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from tilesim.gpu.compile import versions
from tilesim.gpu.driver import probe
from tilesim.gpu.errors import DeviceError, MissingExtra
from tilesim.gpu.launch import gpu

#: enqueues one launch per set of operands
Round = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What is measured of one kernel; a benchmark's rows say besides on which problem.

    ``milliseconds`` per launch in the median round and ``fastest`` in the best one; ``ratio`` to
    the library by the median; ``error`` relative to what the results are compared with;
    ``registers`` per thread as launched, 0 where nobody says.
    """

    kernel: str
    milliseconds: float
    fastest: float
    teraflops: float
    ratio: float
    error: float
    registers: int

    @property
    def cells(self) -> tuple[str, ...]:
        """The figures as text: the last columns of a table."""
        return (
            self.kernel, f"{self.milliseconds:.3f}", f"{self.fastest:.3f}",
            f"{self.teraflops:.0f}", f"{self.ratio:.3f}", f"{self.error:.1e}",
            str(self.registers or ""),
        )  # fmt: skip


class Turns:
    """Times of rounds of ``sets`` launches, taken in turns."""

    def __init__(self, torch: Any, sets: int) -> None:
        self.torch = torch
        self.sets = sets

    def times(self, runs: Mapping[str, Round], rounds: int) -> dict[str, list[float]]:
        """Milliseconds per launch of every round.

        The kernels take turns in an order of their own every time: at the power limit, the clock
        of a kernel depends on the one before.
        """
        graphs = {name: self._graph(run) for name, run in runs.items()}
        found: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(-max(3, rounds // 10), rounds):
            for name in Random(number).sample(list(runs), len(runs)):
                elapsed = self._timed(graphs[name])
                if number >= 0:
                    found[name].append(elapsed / self.sets)
        return found

    def launching(self, launches: Sequence[Callable[[Any], object]]) -> Round:
        """One round of prepared launches, one per set."""

        def run() -> None:
            stream = self.torch.cuda.current_stream()
            for each in launches:
                each(stream)

        return run

    def _graph(self, run: Round) -> Any:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            run()
        return graph

    def _timed(self, graph: Any) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))


def distance(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest ||x - y|| / ||y|| of results and the expected ones; not a number if one is."""
    pairs = ((x.float(), y.float()) for x, y in zip(found, expected, strict=True))
    return max((float((x - y).norm() / y.norm()) for x, y in pairs), key=lambda d: (d != d, d))


def environment() -> dict[str, str]:
    """What the figures depend on."""
    torch, info = import_module("torch"), gpu().info
    return {
        "gpu": info.name, "driver API": info.driver, "nvrtc": versions()["nvrtc"],
        "torch": str(torch.__version__), "date": date.today().isoformat(),
    }  # fmt: skip


def requirements() -> None:
    """Raises `DeviceError` or `MissingExtra` unless the kernels and the libraries can run here."""
    probe()
    if find_spec("torch") is None:
        raise MissingExtra("torch is not installed, through which the libraries are called")
    gpu().require("sm_90a")


@dataclass(frozen=True)
class Command:
    """A benchmark as a program: ``columns`` are the titles of its table with their widths."""

    name: str
    about: str
    columns: Mapping[str, int]

    def parser(self) -> argparse.ArgumentParser:
        """The options that all have."""
        parser = argparse.ArgumentParser(prog=self.name, description=self.about)
        parser.add_argument("--rounds", type=int, default=50, help="timed rounds per kernel")
        parser.add_argument("--sets", type=int, default=4, help="sets of operands")
        parser.add_argument("--json", type=Path, help="also write the figures to this file")
        return parser

    def line(self, cells: Iterable[str]) -> str:
        """A row of the table."""
        widths = self.columns.values()
        return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()

    def run(
        self,
        options: argparse.Namespace,
        measured: Callable[[Any], Iterable[Sequence[Figures]]],
        facts: Callable[[Any], Mapping[str, str]] = lambda torch: {},
    ) -> int:
        """Prints what is ``measured`` with torch, a problem at a time; 2 if there is no GPU or no
        torch. ``facts``: what figures depend on besides `environment`."""
        try:
            requirements()
        except (DeviceError, MissingExtra) as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            return 2
        torch = import_module("torch")
        around = {**environment(), **facts(torch)}
        print(", ".join(f"{name} {value}" for name, value in around.items()))
        print(self.line(self.columns))
        rows: list[Figures] = []
        for found in measured(torch):
            print("\n".join(self.line(row.cells) for row in found), flush=True)
            rows += found
        if options.json:
            figures = {"environment": around, "rows": [asdict(row) for row in rows]}
            options.json.write_text(json.dumps(figures, indent=1) + "\n")
        return 0
