#!/usr/bin/env python3
"""What a recheck by the proof kernel costs, against the check that it is made of.

    python -m benchmarks.recheck_cost [--every N] [--ptx] [--json FILE]

Rows are those of the gallery, or, with ``--ptx``, of kernels that are emitted as PTX, whose plain
form is rechecked. Times are CPU seconds of this process, each the least of some turns: of the
check, of the recheck of its certificate, and of the search for that with a recheck.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.testing import CliRunner

from benchmarks.ptx_cost import KERNELS
from tests.verdicts.corpora import entries
from tilesim.checker import check
from tilesim.checker.certificates import certified, recheck
from tilesim.cli import main as tilesim
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.limits import patient
from tilesim.loader import load_one
from tilesim.ptx.description import loads
from tilesim.ptx.parser import read
from tilesim.ptx.plain import plain
from tilesim.ptx.program import lower

#: what the proof leans on
ASSUMED = ("in-bounds", "zero-state")
#: of a row its name, and what makes the program that is checked, and the one that is rechecked
Forms = tuple[str, Callable[[], Program | Mir], Callable[[], Program | Mir]]


@dataclass(frozen=True)
class Row:
    """CPU seconds of a program's check, of its recheck, and of the search for a certificate with a
    recheck; what the proof kernel says."""

    name: str
    check: float
    recheck: float
    search: float
    answer: str


def seconds(work: Callable[[Any], Any], form: Callable[[], Any]) -> float:
    """CPU seconds of a call, of a program that nothing is known of yet."""
    program = form()
    gc.collect()  # what the rows before have left is no matter of this one
    with patient():
        start = time.process_time()
        work(program)
        return time.process_time() - start


def measured(forms: Forms, limit: float, turns: int) -> Row | None:
    """The row of a program; None: no check proves it."""
    name, program, form = forms
    if check(program()).verdict != "proved":
        return None
    found, answer = certified(form(), "practice", ASSUMED, time.monotonic() + limit)

    def search(program: Program | Mir) -> None:
        certified(program, "practice", ASSUMED, time.monotonic() + limit)

    again = partial(recheck, found, time_limit=limit)
    works = ((check, program), (again, form), (search, form))
    rounds = [[seconds(*work) for work in works] for _ in range(turns)]
    checked, rechecked, searched = (min(times) for times in zip(*rounds, strict=True))
    said = " ".join(filter(None, (answer.verdict, answer.rule, answer.what)))
    return Row(name, checked, rechecked, searched, said)


def of_the_gallery(every: int) -> Iterator[Forms]:
    """Every so manieth program of the gallery."""
    for entry in entries("gallery")[::every]:
        yield entry.name, entry.build, entry.build


def emitted(folder: Path) -> Iterator[Forms]:
    """Kernels as PTX, and their plain form."""
    for number, (name, params) in enumerate(KERNELS):
        path = folder / f"{number}.ptx"
        given = [text for key, value in params.items() for text in ("--param", f"{key}={value}")]
        outcome = CliRunner().invoke(tilesim, ["emit", name, *given, "-o", str(path)])
        if outcome.exit_code:
            raise click.ClickException(outcome.output)
        launch = loads(path.with_suffix(".json").read_text(), path.name)
        module = read(path.read_text(), path.name)
        (entry,) = (e for e in module.entries if e.name == launch.entry)
        short = name.removeprefix("tilesim.kernels.").partition("::")[0]
        short += "".join(f" {value}" for value in params.values())
        yield short, partial(lower, module, entry, launch), partial(plain, module, entry, launch)


@click.command(help="CPU seconds of rechecks against those of checks.")
@click.option("--every", default=5, help="Of the gallery, every so manieth program.")
@click.option("--ptx", is_flag=True, help="Kernels that are emitted as PTX.")
@click.option("--limit", default=60.0, help="Seconds of a recheck.")
@click.option("--turns", default=3, help="Times that each is measured, in turns.")
@click.option("--json", "target", type=click.Path(dir_okay=False), help="Also write the rows here.")
def main(every: int, ptx: bool, limit: float, turns: int, target: str | None) -> None:
    rows = []
    click.echo(f"{'program':40} {'check':>8} {'recheck':>8} {'search':>8} {'ratio':>6}  answer")
    check(load_one(KERNELS[0][0]).form())  # what is loaded when it is first used
    with TemporaryDirectory() as folder:
        for forms in emitted(Path(folder)) if ptx else of_the_gallery(every):
            row = measured(forms, limit, turns)
            if row is None:
                continue
            rows.append(row)
            click.echo(
                f"{row.name[:40]:40} {row.check:8.3f} {row.recheck:8.3f} {row.search:8.3f} "
                f"{row.recheck / row.check:6.2f}  {row.answer[:60]}"
            )
    done = [row for row in rows if row.answer == "certified"]
    click.echo(
        f"median of {len(done)}: {median(row.recheck / row.check for row in done):.2f}, with the "
        f"search {median(row.search / row.check for row in done):.2f}"
    )
    if target is not None:
        Path(target).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
