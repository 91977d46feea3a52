"""What runs on a GPU, validated: ``python -m tests.silicon.translation --out FOLDER``.

Each row of the gallery for Hopper is compiled by the NVRTC and ptxas of the machine, the cubin is
validated against the PTX in it, and the same cubin is run and compared with the simulator, as
``tilesim crosscheck`` does. Where validation says that something is lost, more launches with random
delays try to show it.

The folder gets results.jsonl (a line as each comes), results.json and table.md. ``--no-gpu`` runs
nothing, and does all else.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import click

from tests.silicon.machine import machine
from tests.translation.campaign import kernels, row_of, totals
from tilesim.cli.gpu import check_case
from tilesim.cubin.image import Image
from tilesim.errors import TilesimError
from tilesim.gpu.compile import compile_cubin, versions
from tilesim.gpu.crosscheck import Crosscheck, Options
from tilesim.gpu.emit import emit
from tilesim.gpu.watchdog import Executor
from tilesim.kernels.registry import Case, cases
from tilesim.translation import validate

Row = dict[str, Any]
_ARCH = "sm_90a"
#: launches with random delays: of each row, and of one in which something is lost
_DELAYED, _TRIES = 4, 100
#: seconds that are left for the tables
_TAIL = 15


def validated(number: int, cache: Path) -> Row:
    """A row of the gallery: compiled, and its cubin validated."""
    case = [*cases()][number]
    head: Row = {"what": "validation", "kernel": case.target, "expected": case.expected}
    try:
        binary = compile_cubin(emit(case.build()), directory=cache)
    except TilesimError as error:
        return {**head, "error": f"not compiled: {error}".split("\n")[0]}
    image = Image(binary.cubin, case.target)
    start = time.perf_counter()
    try:
        (symbol,) = kernels(image)
        said = row_of(validate(image, symbol, image.ptx or ""))
    except Exception as error:  # a defect, which is a row
        said = {"error": f"{type(error).__name__}: {error}"}
    seconds = round(time.perf_counter() - start, 3)
    cubin = sha256(binary.cubin).hexdigest()[:16]
    return {**head, "cubin": cubin, "cpu": seconds, "seconds": seconds, **said}


# ---------------------------------------------------------------------- the campaign


class Results:
    """Rows, written as they come."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = []
        self._out = out
        self._lines = (out / "results.jsonl").open("w")

    def add(self, row: Row) -> None:
        """Keeps a row, and prints it."""
        self.rows.append(row)
        self._lines.write(json.dumps(row) + "\n")
        self._lines.flush()
        short = {k: v for k, v in row.items() if k not in ("relations", "differences", "cubin")}
        click.echo(json.dumps(short)[:300])

    def end(self, facts: Row) -> None:
        """Writes the document and its table."""
        document = {**facts, "rows": self.rows}
        (self._out / "results.json").write_text(json.dumps(document, indent=1) + "\n")
        (self._out / "table.md").write_text(table(document))
        click.echo(table(document)[:4000])


def of_gallery() -> list[tuple[int, Case]]:
    """The rows for Hopper, with their numbers."""
    return [
        (number, case)
        for number, case in enumerate(cases())
        if case.kernel.target == _ARCH and case.expected != "rejected"
    ]


def ran(checker: Crosscheck, case: Case, what: str) -> Row:
    """A row of the gallery on the GPU."""
    try:
        result = check_case(checker, case)
    except Exception as error:  # the GPU may be gone: a row
        return {"what": what, "kernel": case.target, "result": f"{type(error).__name__}: {error}"}
    said = result.json()
    return {"what": what, **said, "kernel": case.target, "agrees": result.agrees}


def table(document: Row) -> str:
    """What came of it."""
    rows: Sequence[Row] = document["rows"]
    of = {what: [r for r in rows if r["what"] == what] for what in
          ("validation", "run", "tries")}  # fmt: skip
    said = totals(of["validation"])
    runs = Counter(row["result"] for row in of["run"])
    head = ", ".join(str(document[key]) for key in ("gpu", "driver", "nvrtc", "date"))
    lines = [
        f"{head}: {said['kernels']} kernels validated, {said['errors']} errors; outcomes "
        f"{said['outcomes']}; relations (shown, explained, lost, undecided) {said['relations']}; "
        f"{said['with findings']} with findings, {said['with undecided']} with something undecided",
        f"run: {dict(runs)}; no time: {sum(row['what'] == 'no time' for row in rows)}",
    ]
    for row in of["validation"]:
        lines += [f"* {row['kernel']}: {one}" for one in row.get("findings", [])]
        lines += [f"* {row['kernel']}: {row['error']}"] if "error" in row else []
    lines += [f"* {row['kernel']}: {row['result']}: {row.get('detail')}" for row in of["tries"]]
    return "\n".join(lines) + "\n"


def on_gpu(
    results: Results, made: Sequence[tuple[Case, Future[Row]]], cache: Path, end: float
) -> None:
    """Runs the rows as they are validated; then those again in which something is lost."""
    lost = []
    with Executor() as executor:
        checker = Crosscheck(executor, Options(_DELAYED, cache=cache))
        for case, row in as_validated(results, made, end):
            results.add(ran(checker, case, "run"))
            if row.get("findings"):
                lost.append(case)
        checker = Crosscheck(executor, Options(_TRIES, cache=cache))
        for case in lost:
            if time.time() < end:
                results.add(ran(checker, case, "tries"))


def as_validated(
    results: Results, made: Sequence[tuple[Case, Future[Row]]], end: float
) -> Iterator[tuple[Case, Row]]:
    """The rows for which there is time, validated."""
    for case, future in made:
        if time.time() > end:
            results.add({"what": "no time", "kernel": case.target})
            continue
        row = future.result(timeout=max(1.0, end - time.time()))
        results.add(row)
        yield case, row


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--only", default="", help="Rows of the gallery whose name has this in it.")
@click.option("--jobs", default=12, show_default=True, help="Processes that compile and validate.")
@click.option("--seconds", default=540.0, show_default=True, help="For all of it.")
@click.option("--no-gpu", is_flag=True, help="Run nothing.")
def main(out: Path, only: str, jobs: int, seconds: float, no_gpu: bool) -> None:
    """Runs the campaign."""
    began = time.time()
    end = began + seconds - _TAIL
    results = Results(out)
    facts: Row = {**machine(), "nvrtc": versions()["nvrtc"]}
    cache = Path(mkdtemp(prefix="cubins-"))
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        made = [
            (case, pool.submit(validated, number, cache))
            for number, case in of_gallery()
            if only in case.target
        ]
        if no_gpu:
            deque(as_validated(results, made, end), maxlen=0)
        else:
            on_gpu(results, made, cache, end)
    finally:
        results.end({**facts, "seconds": round(time.time() - began)})
        pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()
