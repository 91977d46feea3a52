"""The gallery: its kernels as tilesim emits them, right and wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.errors import TilesimError
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.emit import emit
from tilesim.kernels.registry import cases


def kernels() -> Iterator[tuple[str, str]]:
    """Every row that can be emitted, each text once."""
    seen: set[str] = set()
    for case in cases():
        try:
            source = emit(case.build())
        except TilesimError:
            continue
        if source.text not in seen:
            seen.add(source.text)
            yield case.target.removeprefix("tilesim.kernels."), compile_ptx(source)
