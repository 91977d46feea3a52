"""Kernels that come by standard input: a text of the IR, or Python."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import TextIO

from tilesim.errors import TargetError, UsageError
from tilesim.loader.python import of_module
from tilesim.loader.target import Target
from tilesim.loader.text import MAX_BYTES, parse_mir, parse_tile
from tilesim.loader.user_code import user_code

#: the name of standard input as a target, and as a file in reports
STDIN = "-"
_FILE = "<stdin>"
_TILE = re.compile(r"(?:\s|#[^\n]*\n)*tile\s+\d")
_MIR = re.compile(r"(?:\s|#[^\n]*\n)*mir\s+\d")
_PTX = re.compile(r"(?:\s|//[^\n]*\n)*\.version\b")


def load_stdin(params: Mapping[str, str]) -> tuple[Target, ...]:
    """The kernels of the text that standard input gives.

    Raises:
        TargetError: it is too long, no UTF-8, PTX, or Python that cannot be loaded.
        UsageError: a parameter does not exist or its value does not fit.
        ParseError: the text of the IR is malformed.
    """
    text = _read(sys.stdin)
    # reports show lines of it
    linecache.cache[_FILE] = (len(text), None, text.splitlines(keepends=True), _FILE)
    if _TILE.match(text):
        if params:
            raise UsageError("a .tile text holds a finished program, it has no parameters")
        program = parse_tile(text, _FILE)
        return (Target(f"{STDIN}::{program.name}", _FILE, program=program),)
    if _MIR.match(text):
        if params:
            raise UsageError("a .mir text holds a finished program, it has no parameters")
        mir = parse_mir(text, _FILE)
        return (Target(f"{STDIN}::{mir.kernel.name}", _FILE, machine=mir),)
    if _PTX.match(text):
        raise TargetError("PTX needs a launch description: write it to a file")
    module = ModuleType("_tilesim_stdin")
    sys.modules[module.__name__] = module
    with user_code(_FILE, "loading standard input"):
        exec(compile(text, _FILE, "exec"), vars(module))
    return of_module(module, STDIN, _FILE, "", {}, params)


@lru_cache(maxsize=1)
def _read(stream: TextIO | None) -> str:
    """Standard input, which can be read once; None: it is closed."""
    if stream is None:
        raise TargetError("standard input is closed")
    data = stream.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TargetError(f"standard input is larger than {MAX_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise TargetError("standard input is not UTF-8 text") from error
