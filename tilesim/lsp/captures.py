"""PTX beside a source file that was compiled from it: what `tilesim capture` has written there.

Which source files a PTX text comes from is said by its ``.file`` directives, which compilers write
with line tables (``nvcc -lineinfo``; Triton always).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tilesim.files import read_regular
from tilesim.records import dataclass

_FILE = re.compile(rb'^\s*\.file\s+\d+\s+"([^"\n]*)"', re.MULTILINE)
#: how deep below the folder of a source file captures are looked for, how many folders are looked
#: into, how many PTX files are read, and bytes of one
_DEPTH, _FOLDERS, _FILES, _BYTES = 3, 500, 500, 16 << 20
_NEVER = ("node_modules", "site-packages", "__pycache__")


@dataclass(frozen=True)
class Captured:
    """The PTX files with a launch description that come from a source file, in order; ``old``:
    those of an earlier text of it."""

    fresh: tuple[Path, ...] = ()
    old: tuple[Path, ...] = ()


def captured(source: Path) -> Captured:
    """The captures of a source file in its folder and below."""
    real = os.path.realpath(source)
    changed = os.stat(real).st_mtime_ns
    fresh: list[Path] = []
    old: list[Path] = []
    for path in _described(source.parent):
        try:
            about = path.stat()
            names = _sources(str(path), about.st_mtime_ns, about.st_size)
        except OSError:
            continue
        if any(is_source(name, path.parent, real) for name in names):
            (fresh if about.st_mtime_ns >= changed else old).append(path)
    return Captured(tuple(fresh), tuple(old))


def is_source(name: str, folder: Path, real: str) -> bool:
    """Whether a file that a PTX text in ``folder`` names is ``real``: the same, or, where there is
    no such file, as of code that was compiled elsewhere, one of the same name."""
    found = os.path.realpath(folder / name)
    return found == real or (
        not os.path.exists(found) and os.path.basename(found) == os.path.basename(real)
    )


def _described(folder: Path) -> list[Path]:
    """PTX files with a launch description, the nearest first."""
    found: list[Path] = []
    for number, (place, names) in enumerate(_folders(folder)):
        here = {*names}
        found += [place / n for n in sorted(here) if n[-4:] == ".ptx" and f"{n[:-4]}.json" in here]
        if number >= _FOLDERS or len(found) >= _FILES:
            break
    return found[:_FILES]


def _folders(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    for place, folders, names in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        kept = sorted(n for n in folders if not n.startswith(".") and n not in _NEVER)
        folders[:] = kept if depth < _DEPTH else []
        yield Path(place), names


@lru_cache(maxsize=_FILES)
def _sources(path: str, _changed: int, _size: int) -> tuple[str, ...]:
    """The source files that a PTX file names."""
    named = _FILE.findall(read_regular(path, _BYTES))
    return tuple(dict.fromkeys(name.decode(errors="replace") for name in named))
