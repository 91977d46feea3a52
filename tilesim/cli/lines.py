"""``--format jsonl`` and ``--jsonl``: a line of JSON for each kernel, as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

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
        files = []
        for path in places:
            if path is not None:
                with writing(path):
                    files.append((path, stack.enter_context(path.open("w", encoding="utf-8"))))

        def add(done: Done) -> None:
            text = line(done.result, done.number)
            if None in places:
                click.echo(text, nl=False)
            for path, file in files:
                with writing(path):
                    file.write(text)
                    file.flush()

        yield add
