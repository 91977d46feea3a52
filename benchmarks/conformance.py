#!/usr/bin/env python3
"""The gallery on a GPU: is what it does, and in which order, an execution of the machine?

    python -m benchmarks.conformance [--runs N] [--kernel TEXT] [--jobs N] [--markdown FILE]

Every row of the gallery that is right, runs on this GPU and does the same in every schedule is
launched with random delays and recorded (`tilesim conform`). The same recordings are compared with
machines that are wrong (`benchmarks.wrong_machines`).
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.wrong_machines import Facts, claim_of, longest, refuted
from tilesim.conform.compare import compare
from tilesim.conform.order import order_of
from tilesim.conform.recorded import Recorded
from tilesim.errors import TilesimError
from tilesim.gpu.conform import record
from tilesim.gpu.crosscheck import random_inputs
from tilesim.kernels.registry import cases


@dataclass(frozen=True)
class Row:
    """What became of a row of the gallery; ``refuted``: by wrong machine, None where that claims
    nothing. ``longest``: ns from all that a wait waits for until it is left, see `longest`."""

    target: str
    launches: int = 0
    orders: int = 0
    refuted: dict[str, bool | None] | None = None
    longest: tuple[float, float] = (0.0, 0.0)
    violation: str = ""
    remark: str = ""

    def line(self) -> str:
        """The row of the table."""
        if self.refuted is None:
            return f"| {self.target} | | | | {self.remark} |"
        claims = [r for r in self.refuted.values() if r is not None]
        return (
            f"| {self.target} | {self.launches} | {self.orders} | "
            f"{sum(claims)} of {len(claims)} | {self.violation or 'conforms'} |"
        )


def examine(number: int, runs: int, keep: int = 0, folder: Path | None = None) -> Row:
    """Records a row of the gallery in a process of its own and compares it; keeps the first
    launches of the recording."""
    case = cases()[number]
    try:
        program = case.build()
        given = {}
        if case.kernel.inputs is not None:
            rng = np.random.default_rng(0)
            given = case.kernel.inputs(rng, **{**case.kernel.params, **case.params})
        inputs = random_inputs(program, np.random.default_rng(0), given)
        order = order_of(program, inputs)
        recorded = record(program, inputs, runs)
    except TilesimError as error:
        return Row(case.target, remark=str(error).split("\n")[0])
    result = compare(order, recorded)
    if folder is not None:
        first(recorded, keep).save(folder / f"{number:03}.npz")
    violation = "" if result.conforms else str(result.violations[0])
    if result.violations and result.violations[0].kind == "count":
        return Row(case.target, result.launches, 0, {}, violation=violation)
    facts = Facts.of(order, recorded)
    return Row(
        case.target, result.launches, result.orders, refuted(facts), longest(facts), violation
    )


def first(recorded: Recorded, launches: int) -> Recorded:
    """The first launches of a recording."""
    return replace(
        recorded, times=recorded.times[:, :, :launches].astype(np.float32),
        off=recorded.off[:, :launches].astype(np.float32),
    )  # fmt: skip


def table(rows: list[Row]) -> str:
    """The results as Markdown."""
    lines = [
        "| kernel | launches | orders | wrong machines refuted | result |",
        "|---|--:|--:|---|---|",
    ]
    lines += [row.line() for row in rows]
    lines += ["", "| wrong machine | claims | refuted in |", "|---|---|---|"]
    examined = [row.refuted for row in rows if row.refuted]
    for name in examined[0] if examined else ():
        claims = [found[name] for found in examined if found[name] is not None]
        lines.append(f"| {name} | {claim_of(name)} | {sum(map(bool, claims))} of {len(claims)} |")
    return "\n".join([*lines, ""])


def facts_of(rows: list[Row]) -> list[dict[str, Any]]:
    """The results as JSON has them."""
    return [asdict(row) for row in rows]


@click.command()
@click.option("--runs", type=click.IntRange(1), default=200, show_default=True)
@click.option("--kernel", default="", help="Only rows whose name contains this.")
@click.option("--jobs", type=click.IntRange(1), default=4, show_default=True)
@click.option("--markdown", type=click.Path(path_type=Path))
@click.option("--json", "file", type=click.Path(path_type=Path))
@click.option("--save", type=click.Path(path_type=Path), help="Folder for recordings.")
@click.option("--keep", type=click.IntRange(1), default=40, help="Launches of each that are saved.")
def main(
    runs: int, kernel: str, jobs: int, markdown: Path | None, file: Path | None,
    save: Path | None, keep: int,
) -> None:  # fmt: skip
    """Compares the gallery with a GPU."""
    chosen = [
        number
        for number, case in enumerate(cases())
        if not case.fails and not case.kernel.target.startswith("sm_1") and kernel in case.target
    ]
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with ProcessPoolExecutor(jobs) as pool:
        work = partial(examine, runs=runs, keep=keep, folder=save)
        for row in pool.map(work, chosen):
            rows.append(row)
            click.echo(row.line())
            if markdown is not None:
                markdown.write_text(table(rows))
            if file is not None:
                file.write_text(json.dumps(facts_of(rows), indent=1) + "\n")
    click.echo(table(rows))


if __name__ == "__main__":
    main()
