"""The bugs of the collection and the rows of the gallery that can hang, as tilesim emits them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.blame.known import Known, collection
from tests.silicon.hangs.task import STUCK, Task
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.emit import emit
from tilesim.gpu.emit.emitter import Source
from tilesim.ir.loc import Loc
from tilesim.kernels.outcome import inputs_of, run
from tilesim.kernels.registry import Case, cases
from tilesim.ptx.description import to_json

#: the mark of a mistake in the sources of the gallery
_BUG = "# BUG"
_ARCH = "sm_90a"


def tasks(folder: Path) -> Iterator[Task]:
    """Those that deadlock, with what mends them where the collection has that."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {one.name: one for one in collection()}
    for case in cases():
        if case.expected == "failed" and set(run(case).rules) & STUCK:
            made = task_of(case, folder, known.get(case.target.removeprefix("tilesim.kernels.")))
            if made is not None:
                yield made


def task_of(case: Case, folder: Path, known: Known | None) -> Task | None:
    """One of them, its source in a folder; None if it is not for the device."""
    program = case.build()
    if program.target.name != _ARCH:
        return None
    source = emit(program)
    name = re.sub(r"\W+", "_", case.target.removeprefix("tilesim.kernels.")).strip("_")
    path = folder / f"{name}.cu"
    path.write_text(source.text)
    launch = to_json(describe(source, inputs_of(case)))
    return Task(
        f"emitted/{name}", path, (launch,), derived=True,
        culprits=_culprits(source, path.name, frozenset() if known is None else known.culprits),
    )  # fmt: skip


def _culprits(source: Source, name: str, apart: frozenset[Loc]) -> frozenset[str]:
    """The lines of the emitted text that come from lines that are marked as mistakes, or in which
    the kernel and its right twin are ``apart``."""
    differ = {(loc.file, loc.line) for loc in apart}
    found = set()
    for number in range(1, source.text.count("\n") + 2):
        loc = source.loc(number)
        if loc is None:
            continue
        if (loc.file, loc.line) in differ:
            found.add(f"{name}:{number}")
        try:
            lines = Path(loc.file).read_text().splitlines()
        except OSError:
            continue
        if 0 < loc.line <= len(lines) and _is_marked(lines, loc.line):
            found.add(f"{name}:{number}")
    return frozenset(found)


def _is_marked(lines: list[str], number: int) -> bool:
    """Whether a line has the mark, or the comment before it."""
    own, before = lines[number - 1], lines[number - 2].strip() if number > 1 else ""
    return _BUG in own or (before.startswith("#") and _BUG in before)
