"""Running code of the user's: what it raises becomes an error with its line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from traceback import extract_tb
from typing import NoReturn

from tilesim.errors import InvalidProgram, ParseError, TargetError, TilesimError
from tilesim.ir.loc import Loc, shortened

#: frames of the user's that an error has
MOST_FRAMES = 8
#: characters of the message of an exception that an error has
_MOST_TEXT = 2000
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@contextmanager
def user_code(file: str, doing: str) -> Iterator[None]:
    """Turns what the user's code raises into a `TargetError` with the line; no traceback."""
    try:
        with redirect_stdout(sys.stderr), _exits_seen():
            yield
    except (InvalidProgram, TargetError, ParseError, KeyboardInterrupt):
        raise
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        where = f"{shortened(error.filename or file)}{line}"
        raise TargetError(f"{where}: SyntaxError: {error.msg}") from error
    except TilesimError as error:
        places = _places(error, file)
        raise _at(type(error)(f"{_last(places, file)}: {doing}: {error}"), places) from error
    except BaseException as error:
        text = _message(error)
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        places = _places(error, file)
        raise _at(TargetError(f"{_last(places, file)}: {doing} raises {what}"), places) from error


@contextmanager
def _exits_seen() -> Iterator[None]:
    """`os._exit` of this process is an exit like ``sys.exit``: it would end the check without a
    report, and with the code of success if it is 0. Children that are forked end by it."""
    end, owner = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() != owner:
            end(status)
        raise SystemExit(status)

    os._exit = leave
    try:
        yield
    finally:
        os._exit = end


def _message(error: BaseException) -> str:
    """What an exception of the user's says, within bounds; nothing if it cannot say it."""
    try:
        text = str(error)
    except Exception:
        return ""
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


def _at(error: TilesimError, places: tuple[Loc, ...]) -> TilesimError:
    error.places = places
    return error


def _last(places: tuple[Loc, ...], file: str) -> str:
    return str(places[-1]) if places else file or "<unknown>"


def _places(error: BaseException, file: str) -> tuple[Loc, ...]:
    """The frames in the user's files, down to the last one in ``file`` (else in any but ours)."""
    frames = [f for f in extract_tb(error.__traceback__) if not _is_ours(f.filename)]
    wanted = os.path.realpath(file) if file else ""
    here = [n for n, f in enumerate(frames) if os.path.realpath(f.filename) == wanted]
    kept = frames[: here[-1] + 1] if here else frames
    return tuple(Loc(shortened(f.filename), f.lineno or 0, f.name) for f in kept[-MOST_FRAMES:])


def _is_ours(filename: str) -> bool:
    gallery = os.path.join(_PACKAGE, "kernels") + os.sep
    ours = filename.startswith(_PACKAGE) and not filename.startswith(gallery)
    return ours or filename.startswith("<frozen") or f"{os.sep}importlib{os.sep}" in filename
