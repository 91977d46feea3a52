"""Programs that together have every instruction that tilesim emits, in several forms."""

from __future__ import annotations

from collections.abc import Iterator

from tests.gpu.programs import PROGRAMS
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.emit import emit


def kernels() -> Iterator[tuple[str, str]]:
    """Each of them."""
    for name, program in PROGRAMS.items():
        yield name, compile_ptx(emit(program))
