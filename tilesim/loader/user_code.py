"""Running code of the user's: what it raises becomes an error with its line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from traceback import extract_tb

from tilesim.errors import InvalidProgram, ParseError, TargetError, TilesimError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@contextmanager
def user_code(file: str, doing: str) -> Iterator[None]:
    """Turns what the user's code raises into a `TargetError` with the line; no traceback."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (InvalidProgram, TargetError, ParseError):
        raise
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        where = f"{_short(error.filename or file)}{line}"
        raise TargetError(f"{where}: SyntaxError: {error.msg}") from error
    except TilesimError as error:
        raise type(error)(f"{_line_of(error, file)}: {doing}: {error}") from error
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise TargetError(f"{_line_of(error, file)}: {doing} raises {what}") from error


def _line_of(error: BaseException, file: str) -> str:
    """``file:line`` of the innermost frame in the user's file (else in any code but ours)."""
    frames = extract_tb(error.__traceback__)
    wanted = os.path.realpath(file) if file else ""
    here = [f for f in frames if os.path.realpath(f.filename) == wanted]
    foreign = [f for f in frames if not _is_ours(f.filename)]
    for candidates in (here, foreign):
        if candidates:
            frame = candidates[-1]
            return f"{_short(frame.filename)}:{frame.lineno}"
    return file or "<unknown>"


def _is_ours(filename: str) -> bool:
    gallery = os.path.join(_PACKAGE, "kernels") + os.sep
    ours = filename.startswith(_PACKAGE) and not filename.startswith(gallery)
    return ours or filename.startswith("<frozen") or f"{os.sep}importlib{os.sep}" in filename


def _short(path: str) -> str:
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path
