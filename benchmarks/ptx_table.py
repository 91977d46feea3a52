"""The table of verdicts on captured kernels: ``python -m benchmarks.ptx_table FOLDER...``

Each FOLDER is what ``tilesim capture`` has written: pairs of PTX and launch descriptions. Of one
kernel's launches the first, the middle and the last ``--each`` are checked, each in a process of
its own that is given ``--limit`` seconds. A row per launch on standard output, as Markdown.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from time import process_time

from tilesim.checker import check
from tilesim.ptx.description import loads
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Unsupported

HEAD = "| folder | kernel | lines | CTAs | verdict | s | reason |\n|---|---|---:|---:|---|---:|---|"
#: how long a process may take beyond the limit of the check, to start and to read
_MORE = 30.0
_SHOWN = 160


def row(path: Path, limit: float) -> str:
    """CTAs, verdict, seconds of the processor and the first reason, as cells."""
    start = process_time()
    text = path.read_text()
    launch = loads(path.with_suffix(".json").read_text())
    module = read(text, path.name)
    entry = next(e for e in module.entries if e.name == launch.entry)
    try:
        report = check(lower(module, entry, launch), time_limit=timedelta(seconds=limit))
        verdict, reasons = report.verdict, [f.message for f in report.findings] or report.reasons
        rules = "".join(f" ({rule})" for rule in sorted(report.rules))
    except Unsupported as error:
        verdict, reasons, rules = "unsupported", [str(error)], ""
    why = reasons[0][:_SHOWN].replace("|", "/") if reasons else ""
    seconds = process_time() - start
    return f"{launch.ctas} | {verdict}{rules} | {seconds:.1f} | {why}"


def apart(path: Path, limit: float) -> str:
    """`row` in a process of its own, whatever becomes of it."""
    command = [sys.executable, "-m", "benchmarks.ptx_table", "--one", str(limit), str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit + _MORE, check=False
        )
    except subprocess.TimeoutExpired:
        return f" | no answer | {limit + _MORE:.0f} | "
    if done.returncode:
        return f" | error | | {(done.stderr.strip().splitlines() or [''])[-1][:_SHOWN]}"
    return done.stdout.strip()


def launches(folder: Path, each: int) -> Iterator[Path]:
    """Of one kernel's launches so many, evenly spread."""
    kernels: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.ptx"), key=lambda p: (len(p.stem), p.stem)):
        first = re.sub(r"_\d+$", "", path.stem)
        known = (folder / f"{first}.ptx").exists()
        kernels.setdefault(first if known else path.stem, []).append(path)
    for paths in kernels.values():
        last = len(paths) - 1
        yield from (paths[i] for i in sorted({last * k // max(1, each - 1) for k in range(each)}))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--each", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--one", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(row(arguments.folders[0], arguments.one))
        return
    print(HEAD)
    for folder in arguments.folders:
        for path in launches(folder, arguments.each):
            lines = path.read_text().count("\n")
            cells = apart(path, arguments.limit)
            print(f"| {folder.name} | {path.stem} | {lines} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
