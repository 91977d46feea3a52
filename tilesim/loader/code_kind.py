"""Which files are machine code, by their first bytes: cubins, fatbins, programs and libraries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

#: endings of files with machine code; programs and libraries are known by what is in them
ENDINGS = (".cubin", ".fatbin")
_ELF, _FATBIN = b"\x7fELF", 0xBA55ED50
_EM_CUDA, _ET_CORE = 190, 4
_LIBRARY = re.compile(r"\.so(?:\.\d+)*$")

Kind = Literal["cubin", "fatbin", "program", "library"]


def kind_of(path: str | Path) -> Kind | None:
    """What sort of machine code a file is, by its first bytes; None: none, or it cannot be read."""
    try:
        with open(path, "rb") as file:
            head = file.read(20) if Path(path).is_file() else b""
    except OSError:
        return None
    if int.from_bytes(head[:4], "little") == _FATBIN:
        return "fatbin"
    if not head.startswith(_ELF) or len(head) < 20:
        return None
    kind, machine = (int.from_bytes(head[at : at + 2], "little") for at in (16, 18))
    if machine == _EM_CUDA:
        return None if kind == _ET_CORE else "cubin"
    return "library" if _LIBRARY.search(Path(path).name) else "program"
