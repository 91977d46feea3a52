"""``--format jsonl`` and ``--jsonl``: a line of JSON for each kernel, as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

import click

from tilesim.cli.options import writing
from tilesim.cli.session import Done
from tilesim.report.json import line


@contextmanager
def writing_lines(*places: Path | None) -> Iterator[Callable[[Done], None]]:
    """Writes what became of kernels to files, or to standard output (None). Each line is in its
    file when the next kernel is begun: those of a check that is killed can be read.

    Raises:
        UsageError: a file cannot be written.
    """
    with ExitStack() as stack:
        files = [(path, stack.enter_context(_opened(path))) for path in places if path is not None]

        def add(done: Done) -> None:
            text = line(done.result, done.number)
            if None in places:
                click.echo(text, nl=False)
            for path, file in files:
                with writing(path):
                    file.write(text)
                    file.flush()

        yield add


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """A file to which lines are written; names of files that are no UTF-8 are escaped."""
    with writing(path):
        file = path.open("w", encoding="utf-8", errors="backslashreplace")
    try:
        yield file
    finally:
        with suppress(OSError):  # of what could not be written before
            file.close()
