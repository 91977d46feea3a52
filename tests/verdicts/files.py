"""Verdict files: a program in a line, sorted, one file for a corpus."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from tests.verdicts.compare import Rows
from tests.verdicts.row import LEVELS, Row, row_from
from tilesim.ir.program import Strict

#: the files that are kept
FOLDER = Path(__file__).with_name("rows")
SUFFIX = ".jsonl"
#: the level of which a line has only what differs
_OTHER = "ptx"


def file_of(corpus: str, folder: Path = FOLDER) -> Path:
    """The file of a corpus; of a path, one that is named by its last part."""
    return folder / f"{Path(corpus).name}{SUFFIX}"


def by_key(rows: Iterable[Row]) -> Rows:
    """Rows by what names them."""
    return {row.key: row for row in rows}


def kept(corpus: str, folder: Path = FOLDER) -> Rows:
    """The rows of a corpus's file; none, if there is no file."""
    file = file_of(corpus, folder)
    return by_key(read(file.read_text(encoding="utf-8"))) if file.exists() else {}


def deciding(rows: Rows) -> list[tuple[str, Strict]]:
    """The programs and levels that tests check: both levels where something else is said of them.
    Else a program that fails at `practice`, where less is forbidden, and a right one at `ptx`."""
    found: list[tuple[str, Strict]] = []
    for program in sorted({program for program, _ in rows}):
        one, other = (replace(rows[program, level], level="ptx", recheck="") for level in LEVELS)
        right = one.verdict in ("proved", "exhausted")
        decisive: tuple[Strict, ...] = ("ptx",) if right else ("practice",)
        found += [(program, level) for level in (decisive if one == other else LEVELS)]
    return found


def keep(corpus: str, rows: Rows, folder: Path = FOLDER) -> Path:
    """Writes the file of a corpus."""
    file = file_of(corpus, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text_of(rows.values()), encoding="utf-8")
    return file


def text_of(rows: Iterable[Row]) -> str:
    """A line for each program, sorted: its row at `practice`, or the only one it has; of another
    one behind it, under ``ptx``, the fields that differ (null: there is none)."""
    lines = []
    ordered = sorted(rows, key=lambda row: row.key)
    for _, levels in groupby(ordered, key=lambda row: row.program):
        line, *others = (row.fields() for row in levels)
        first = dict(line)
        for other in others:
            names = [name for name in first | other if first.get(name) != other.get(name)]
            line[_OTHER] = {name: other.get(name) for name in names if name != "level"}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines)


def read(text: str) -> Iterator[Row]:
    """The rows of what `text_of` has written."""
    for line in text.splitlines():
        first = json.loads(line)
        other = first.pop(_OTHER, None)
        yield row_from(first)
        if other is not None:
            both = {**first, **other, "level": _OTHER}
            yield row_from({name: value for name, value in both.items() if value is not None})
