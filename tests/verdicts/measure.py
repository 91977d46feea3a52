"""The rows of a corpus, made by several processes; an interrupt keeps what there is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.verdicts import recorded
from tests.verdicts.corpora import ROOT, TESTS, Entry, entries
from tests.verdicts.files import read
from tests.verdicts.row import LEVELS, Row, judged
from tilesim.parallel import opener, work


@dataclass(frozen=True)
class Task:
    """A program of a corpus, by its name; or a file of tests, whose programs are of one."""

    corpus: str
    program: str
    is_tests: bool = False


def tasks(corpus: str, tests: Sequence[str], only: str) -> Iterator[Task]:
    """What there is to do for a corpus; ``tests``: files of the corpus that is named so."""
    files = TESTS.get(corpus, tests if corpus == "tests" else ())
    if files:
        yield from (Task(corpus, file, is_tests=True) for file in files if only in file)
    else:
        yield from (Task(corpus, name) for name in _entries(corpus) if only in name)


def measured(
    todo: Sequence[Task], jobs: int, on_rows: Callable[[Task, tuple[Row, ...]], None]
) -> bool:
    """Hands the rows of each task to ``on_rows``. False: the user has interrupted."""

    def done(result: tuple[Task, tuple[Row, ...]]) -> None:
        on_rows(*result)

    return work(rows_of, todo, opener(jobs), workers=jobs, lost=_lost, on_result=done)


def rows_of(task: Task) -> tuple[Task, tuple[Row, ...]]:
    """A task and its rows."""
    if task.is_tests:
        return task, tuple(_of_tests(task.program))
    entry = _entries(task.corpus)[task.program]
    return task, judged(entry.name, LEVELS, entry.build, entry.inputs)


def _lost(task: Task, why: str) -> tuple[Task, tuple[Row, ...]]:
    print(f"{task.program}: {why}", file=sys.stderr)
    return task, tuple(Row(task.program, level, "crash: process") for level in LEVELS)


@cache
def _entries(corpus: str) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries(corpus)}


def _of_tests(file: str) -> Iterator[Row]:
    """Runs a file of tests, with those of campaigns, in a process of its own."""
    with TemporaryDirectory() as folder:
        rows = Path(folder) / "rows"
        command = (sys.executable, "-m", "pytest", "-q", "-p", recorded.__name__, "-p",
                   "no:cacheprovider", "-m", "not gpu", f"tests/{file}")  # fmt: skip
        environment = {**os.environ, recorded.FILE: str(rows)}
        with _ending_with_this_process():
            ended = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
        if ended.returncode:
            print(f"tests/{file}: {ended.stdout[-500:]}", file=sys.stderr)
        yield from read(rows.read_text(encoding="utf-8") if rows.exists() else "")


@contextmanager
def _ending_with_this_process() -> Iterator[None]:
    """A process that is run inside is killed if this one is asked to end, as a worker is when the
    user interrupts."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
