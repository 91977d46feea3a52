"""Standard output and standard error of a process, which may be full, or closed."""

from __future__ import annotations

import os
import sys
from errno import EBADF
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

from tilesim.errors import TilesimError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(TilesimError):
    """What was to be printed cannot be."""


class _Stream(FileIO):
    """What fails to be written is said once, on standard error; what comes after that, and what
    standard error does not take, goes nowhere."""

    is_lost = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes bytes, and returns how many.

        Raises:
            BrokenPipeError: the reader of standard output has gone.
            OutputError: standard output takes nothing more for another reason.
        """
        try:
            return super().write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and self.fileno() == 1:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            self.is_lost = True
            if self.fileno() == 2:
                return super().write(data)
            why = "it is closed" if error.errno == EBADF else error.strerror
            raise OutputError(f"cannot write to standard output: {why}") from error


def guard_streams() -> None:
    """From now on what cannot be printed raises `OutputError`. For the process of a command."""
    for number, name, mode in ((1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:  # it was closed before: no file that is opened may become it
            nothing = os.open(os.devnull, mode)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            setattr(sys, name, TextIOWrapper(FileIO(number, "w", closefd=False), "utf-8"))
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def is_lost(stream: TextIO) -> bool:
    """Whether something that was printed there has gone nowhere."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return isinstance(raw, _Stream) and raw.is_lost


def _guarded(stream: TextIO) -> TextIO:
    if not isinstance(stream, TextIOWrapper):
        return stream  # a notebook's
    return TextIOWrapper(
        BufferedWriter(_Stream(stream.fileno(), "w", closefd=False)), stream.encoding,
        stream.errors, line_buffering=stream.line_buffering, write_through=stream.write_through,
    )  # fmt: skip
