"""Files whose names come from others: what is read of them, and what is shown; files of results.

A ``.tile`` or PTX text says which source files it was made from, and may name any file. Reports
show lines only of files below the working folder or a folder that the user names, of those named on
the command line, and of Python modules that have been run.
"""

from __future__ import annotations

import linecache
import os
import re
import stat
import sys
from collections.abc import Iterable
from errno import EFBIG, EINVAL
from functools import lru_cache
from pathlib import Path

#: a source file of which lines are shown has at most so many bytes
MAX_SOURCE = 8 << 20
#: files of CUDA and C++
CUDA_ENDINGS = (".cu", ".cuh", ".h", ".hpp", ".hh", ".hxx", ".cpp", ".cc", ".cxx", ".inl")
_NEWLINE = re.compile(r"\r\n|\r|\n")
#: folders below which, and files of which, lines are shown besides those of the working folder
_roots: set[str] = set()
_named: set[str] = set()
_withheld: dict[str, None] = {}


class NoRegularFile(OSError):
    """A folder, device, pipe or socket, or a file that is too large."""


def read_regular(path: str | Path, limit: int) -> bytes:
    """What a regular file of at most ``limit`` bytes holds; nothing else is waited for or read.

    Raises:
        NoRegularFile: it is none, or larger.
        OSError: it cannot be read.
    """
    # a pipe without a writer would block open(); it has no effect on files
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NoRegularFile(EINVAL, "it is not a regular file", str(path))
        data = file.read(limit + 1)
    if len(data) > limit:
        size = f"{limit >> 20} MiB" if limit >> 20 else f"{limit} bytes"
        raise NoRegularFile(EFBIG, f"it is larger than {size}", str(path))
    return data


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Writes a file as a whole: one that cannot be written, as on a full disk or by a process that
    is killed meanwhile, stays as it was. A link is followed; a device, or a pipe, is written to.

    Raises:
        OSError: it cannot be written.
    """
    # names of files that are no UTF-8 are escaped, as on a terminal
    data = data.encode(errors="backslashreplace") if isinstance(data, str) else data
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        place.write_bytes(data)
        return
    beside = place.with_name(f"{place.name}.{os.getpid()}.new")
    try:
        beside.write_bytes(data)
        if place.exists():
            beside.chmod(stat.S_IMODE(place.stat().st_mode))
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def show_below(folders: Iterable[str | Path]) -> None:
    """From now on lines of files below these folders are shown, too (``--source-root``), and of no
    others that were named so before."""
    _roots.clear()
    _roots.update(os.path.realpath(folder) for folder in folders)


def show_file(path: str | Path) -> None:
    """From now on lines of this file are shown: the user has named it."""
    _named.add(os.path.realpath(path))


def files_not_shown() -> tuple[str, ...]:
    """The files of which lines were asked for and not shown because of where they are, since this
    was called last."""
    files = tuple(_withheld)
    _withheld.clear()
    return files


def source_lines(file: str, *, silent: bool = False) -> tuple[str, ...]:
    """The lines of a source file without their ends; none if it cannot be read or is not shown.
    ``silent``: nothing is missing without them, and it is not among `files_not_shown`."""
    held = linecache.cache.get(file)
    if held is not None and len(held) == 4 and held[1] is None:
        return tuple(line.rstrip("\n") for line in held[2])  # a notebook's cell: there is no file
    if not file or "\0" in file:
        return ()
    real = source_path(file)
    try:
        known = os.stat(real)
    except OSError:
        return ()
    if not _is_shown(real):
        if not silent:
            _withheld[file] = None
        return ()
    return _lines(real, known.st_mtime_ns, known.st_size)


def source_path(file: str) -> str:
    """Where a source file is. One that is not there, as of code that was compiled on another
    machine, is looked for below the folders that the user names: where most of the end of its path
    is the same."""
    real = os.path.realpath(file)
    if _roots and not os.path.exists(real):
        parts = Path(real).parts[1:]
        for begin in range(len(parts)):
            for root in sorted(_roots):
                if os.path.isfile(place := os.path.join(root, *parts[begin:])):
                    return os.path.realpath(place)
    return real


@lru_cache(maxsize=64)
def _lines(path: str, _changed: int, _size: int) -> tuple[str, ...]:
    try:
        data = read_regular(path, MAX_SOURCE)
    except OSError:
        return ()
    if b"\0" in data:
        return ()  # machine code has no lines
    return tuple(_NEWLINE.split(data.decode(errors="replace")))


def _is_shown(real: str) -> bool:
    if real in _named or any(_is_below(real, root) for root in (os.path.realpath("."), *_roots)):
        return True
    modules = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    return any(real == _real(file) for file in modules if isinstance(file, str))


@lru_cache(maxsize=1 << 14)
def _real(module: str) -> str:
    """The real path of a module's file, of which there are a thousand and none moves."""
    return os.path.realpath(module)


def _is_below(real: str, root: str) -> bool:
    """Whether a file is in a folder or below it, hidden ones (``.git/config``) left out."""
    if not real.startswith(os.path.join(root, "")):
        return False
    return not any(part.startswith(".") for part in Path(os.path.relpath(real, root)).parts)
