#!/usr/bin/env python3
"""What checking a kernel from PTX costs, reading included, against the same kernel in the DSL.

    python -m benchmarks.ptx_cost [--triton]

Times are CPU seconds of this process; compare rows of one run. ``x DSL`` is the whole time from PTX
over that of the kernel in Python, each the least of three. PTX is emitted with NVRTC (the compile
extra). ``--triton`` adds kernels that Triton compiles here, which have no other form.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
from click.testing import CliRunner

from tilesim.checker import check
from tilesim.cli import main as tilesim
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Verdict
from tilesim.limits import patient
from tilesim.loader import load_one
from tilesim.ptx.description import loads
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: the ladder of GEMMs and attention, with few iterations, and some with more; parameters
KERNELS: tuple[tuple[str, dict[str, str]], ...] = (
    *((f"tilesim.kernels.hopper.matmul_v{n}::matmul", {}) for n in range(9)),
    ("tilesim.kernels.hopper.attention::attention", {}),
    ("tilesim.kernels.hopper.attention_v1::attention", {}),
    *(("tilesim.kernels.hopper.matmul_v5::matmul", {"iterations": n}) for n in ("16", "64", "256")),
    *(
        ("tilesim.kernels.hopper.matmul_v7::matmul", {"depth": n})
        for n in ("1024", "4096", "16384")
    ),
    *(("tilesim.kernels.hopper.attention::attention", {"keys": n}) for n in ("2048", "8192")),
)


@dataclass(frozen=True)
class Row:
    """One kernel: CPU seconds to read it, its text included, and to check it, CTAs and warp
    instructions that were run, and what the kernel in the DSL takes; None if there is none."""

    name: str
    read: float
    checked: float
    instructions: int
    ctas: int
    verdict: Verdict
    dsl: float | None = None

    @property
    def seconds(self) -> float:
        """The whole time."""
        return self.read + self.checked


def measured(name: str, form: Callable[[], Program | Mir]) -> Row:
    """The row of a kernel that ``form`` reads or builds."""
    gc.collect()  # what the rows before have left is no matter of this one
    with patient():  # as a command does both
        start = time.process_time()
        program = form()
        built = time.process_time()
        report = check(program)
        done = time.process_time()
    stats = report.stats
    return Row(name, built - start, done - built, stats.instructions, stats.ctas, report.verdict)


def least(name: str, form: Callable[[], Program | Mir]) -> Row:
    """The fastest row of three: caches, and what else the machine does, are the same for all."""
    return min((measured(name, form) for _ in range(3)), key=lambda row: row.seconds)


def emitted(folder: Path) -> Iterator[Row]:
    """Each kernel, from its PTX."""
    for number, (name, params) in enumerate(KERNELS):
        path = folder / f"{number}.ptx"
        given = [text for key, value in params.items() for text in ("--param", f"{key}={value}")]
        outcome = CliRunner().invoke(tilesim, ["emit", name, *given, "-o", str(path)])
        if outcome.exit_code:
            raise click.ClickException(outcome.output)
        short = name.removeprefix("tilesim.kernels.").partition("::")[0]
        short += "".join(f" {value}" for value in params.values())
        in_dsl = least(short, load_one(name, params).form)
        launch = loads(path.with_suffix(".json").read_text(), path.name)
        from_ptx = least(short, partial(_read, path.read_text(), launch))
        yield replace(from_ptx, dsl=in_dsl.seconds)


def compiled() -> Iterator[Row]:
    """Kernels that Triton compiles, from the PTX and the launch that it would make."""
    from benchmarks.triton_kernels import launches

    for name, launched in launches():
        yield measured(name, partial(_read, launched.ptx, launched.launch))


def _read(text: str, launch: Launch) -> Mir:
    module = read(text, "kernel.ptx")
    (entry,) = (e for e in module.entries if e.name == launch.entry)
    return lower(module, entry, launch)


@click.command(help="CPU seconds of checks from PTX against those of the DSL's kernels.")
@click.option("--triton", is_flag=True, help="Also kernels that Triton compiles.")
def main(triton: bool) -> None:
    head = f"{'kernel':22} {'read s':>7} {'check s':>8} {'instructions':>13} {'CTAs':>5}"
    click.echo(f"{head} {'DSL s':>7} {'x DSL':>6}  verdict")
    check(load_one(KERNELS[0][0]).form())  # what is loaded when it is first used
    with tempfile.TemporaryDirectory() as folder:
        for row in emitted(Path(folder)):
            echo(row)
    for row in compiled() if triton else ():
        echo(row)


def echo(row: Row) -> None:
    """One line of the table."""
    ratio = "" if row.dsl is None else f"{row.seconds / row.dsl:.1f}"
    dsl = "" if row.dsl is None else f"{row.dsl:.2f}"
    click.echo(
        f"{row.name:22} {row.read:7.2f} {row.checked:8.2f} {row.instructions:13} {row.ctas:5} "
        f"{dsl:>7} {ratio:>6}  {row.verdict}"
    )


if __name__ == "__main__":
    main()
