"""Writes verdict files, and compares what is said today with them.

    python -m tests.verdicts write [--corpus gallery,litmus] [--only TEXT] [--jobs 2]
    python -m tests.verdicts compare [--corpus ...]

`compare` prints what is worse, changed and better, and ends with 1 if anything is worse. Two
checkouts are compared by programs of which no file is kept with ``write --to FOLDER`` in one of
them and ``compare --of FOLDER`` in the other: ``--corpus tests --tests sim/test_races.py`` are the
programs that tests check, ``--corpus PATH`` is a folder of kernels (PTX with its launches,
``.mir``, ``.tile``).
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tests.verdicts.compare import Rows, differences
from tests.verdicts.corpora import NAMES
from tests.verdicts.files import FOLDER, by_key, keep, kept
from tests.verdicts.measure import Task, measured, tasks
from tests.verdicts.row import Row

_corpus = click.option("--corpus", default=",".join(NAMES), show_default=True, metavar="NAMES")
_tests = click.option("--tests", multiple=True, help="A file of tests, below tests/.")
_only = click.option("--only", default="", metavar="TEXT", help="Programs with TEXT in their name.")
_jobs = click.option("--jobs", default=2, show_default=True, help="Processes.")


@click.group()
def main() -> None:
    """Verdicts of all corpora, kept in files."""


@main.command()
@_corpus
@_tests
@_only
@_jobs
@click.option("--to", default=FOLDER, type=click.Path(path_type=Path), help="The files' folder.")
def write(corpus: str, tests: tuple[str, ...], only: str, jobs: int, to: Path) -> None:
    """Writes the verdicts of today; the rows that an interrupt leaves out stay as they are."""
    for name in corpus.split(","):
        _, made, ended = _made(name, tests, only, jobs)
        old = kept(name, to)
        whole = ended and not only
        rows = made if whole else {**old, **made}
        print(f"{keep(name, rows, to)}: {len(rows)} rows, {len(made)} of them made now")
        if not ended:
            sys.exit(130)


@main.command()
@_corpus
@_tests
@_only
@_jobs
@click.option("--of", "folder", default=FOLDER, type=click.Path(path_type=Path, exists=True),
              help="The files' folder.")  # fmt: skip
def compare(corpus: str, tests: tuple[str, ...], only: str, jobs: int, folder: Path) -> None:
    """Compares the verdicts of today with those of the files; of what an interrupt leaves out,
    nothing is said."""
    worse = False
    for name in corpus.split(","):
        done, made, ended = _made(name, tests, only, jobs)
        old = {
            key: row for key, row in kept(name, folder).items() if _asked(row, only, done, ended)
        }
        found = differences(old, made)
        print(f"{name}: {len(made)} rows, {len(found)} differences")
        for difference in found:
            print(f"  {difference}")
        worse |= any(difference.kind == "worse" for difference in found)
        if not ended:
            sys.exit(130)
    sys.exit(worse)


def _made(
    corpus: str, tests: tuple[str, ...], only: str, jobs: int
) -> tuple[frozenset[str], Rows, bool]:
    """The programs and files of tests that were got to, their rows, and whether that is all."""
    todo = tuple(tasks(corpus, tests, only))
    got_to: set[str] = set()
    rows: list[Row] = []
    with click.progressbar(length=len(todo), label=corpus, file=sys.stderr) as bar:

        def on_rows(task: Task, found: tuple[Row, ...]) -> None:
            got_to.add(task.program)
            rows.extend(found)
            bar.update(1)

        ended = measured(todo, jobs, on_rows)
    return frozenset(got_to), by_key(rows), ended


def _asked(row: Row, only: str, got_to: frozenset[str], ended: bool) -> bool:
    """Whether a row of a file is one of those that were to be made, and were got to."""
    file = row.program.partition("::")[0]
    if not ended:
        return not got_to.isdisjoint((row.program, file))
    return only in row.program


if __name__ == "__main__":
    main()
