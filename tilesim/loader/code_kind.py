"""Which files are machine code, by their first bytes: cubins, fatbins, programs, core dumps."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import Literal

#: endings of files with machine code; programs and libraries are known by what is in them
ENDINGS = (".cubin", ".fatbin")
_ELF, _FATBIN = b"\x7fELF", 0xBA55ED50
_EM_CUDA, _ET_CORE = 190, 4
_LIBRARY = re.compile(r"\.so(?:\.\d+)*$")

Kind = Literal["cubin", "fatbin", "program", "library", "dump"]
_GZIP = b"\x1f\x8b"


def kind_of(path: str | Path) -> Kind | None:
    """What sort of machine code a file is, by its first bytes; None: none, or it cannot be read."""
    try:
        head = _head(Path(path))
    except (OSError, EOFError, zlib.error):
        return None
    if int.from_bytes(head[:4], "little") == _FATBIN:
        return "fatbin"
    if not head.startswith(_ELF) or len(head) < 20:
        return None
    kind, machine = (int.from_bytes(head[at : at + 2], "little") for at in (16, 18))
    if machine == _EM_CUDA:
        return "dump" if kind == _ET_CORE else "cubin"
    return "library" if _LIBRARY.search(Path(path).name) else "program"


def _head(path: Path) -> bytes:
    """The first bytes of a file, of one that gzip has compressed those inside; none of what is no
    file."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        head = file.read(20)
    if not head.startswith(_GZIP):
        return head
    with gzip.open(path) as inside:
        return inside.read(20)
