"""Kernels in text form, and files in general."""

from __future__ import annotations

from pathlib import Path

from tilesim.errors import TargetError
from tilesim.files import read_regular
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program

TILE = ".tile"
#: programs as the machine runs them
MIR = ".mir"
#: larger files are refused unread
MAX_BYTES = 256 << 20
_MAX_TILE = 64 << 20


def read_file(path: Path, limit: int = MAX_BYTES) -> str:
    """The text of a file of at most ``limit`` bytes.

    Raises:
        TargetError: it cannot be read, is no regular file, or is too large.
    """
    try:
        return read_regular(path, limit).decode()
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TargetError(f"{path} cannot be read: it is not UTF-8 text") from error


def read_tile(path: Path, name: str) -> Program:
    """The program in a ``.tile`` file, which must be called ``name`` if that is given.

    Raises:
        TargetError: it cannot be read, or holds another kernel.
        ParseError: it is malformed.
    """
    program = parse_tile(read_file(path, _MAX_TILE), str(path))
    if name and name != program.name:
        raise TargetError(f"{path} has no kernel {name!r}; it holds {program.name}")
    return program


def read_mir(path: Path, name: str) -> Mir:
    """The machine program in a ``.mir`` file, which must be called ``name`` if that is given.

    Nothing that it claims about its instructions is believed (`tilesim.transforms.rewrite`).

    Raises:
        TargetError: it cannot be read, or holds another kernel.
        ParseError: it is malformed.
    """
    mir = parse_mir(read_file(path, _MAX_TILE), str(path))
    if name and name != mir.kernel.name:
        raise TargetError(f"{path} has no kernel {name!r}; it holds {mir.kernel.name}")
    return mir


def parse_mir(text: str, file: str) -> Mir:
    """The machine program that a text of ``file`` holds; raises a ParseError if it is malformed."""
    from tilesim.ir.text import mir as form
    from tilesim.transforms.rewrite import bare

    return bare(form.parse(text, file))


def parse_tile(text: str, file: str) -> Program:
    """The program that a text of ``file`` holds; raises a ParseError if it is malformed."""
    from tilesim.ir import text as form

    return form.parse(text, file)
