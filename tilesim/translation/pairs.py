"""A kernel in PTX and in SASS, and which SASS instructions come from which synchronising PTX."""

from __future__ import annotations

from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.sass import Function, Instruction
from tilesim.ptx.inline import Kernel, Step
from tilesim.records import dataclass


@dataclass(frozen=True)
class Pair:
    """A PTX instruction and its copies in SASS, by place; none if it has none.

    ``number`` is its place in `Kernel.code`, ``kind`` the row of `tilesim.translation.classes`.
    """

    number: int
    step: Step
    kind: str
    copies: tuple[Instruction, ...]


@dataclass(frozen=True)
class Translation:
    """Both texts of a kernel. ``pairs`` are of all reachable synchronising PTX instructions and
    accesses to memory, in the order of the PTX; ``lines`` are those of the PTX, from line 1 on at
    index 0."""

    image: Image
    symbol: Symbol
    ptx: Kernel
    sass: Function
    pairs: tuple[Pair, ...]
    lines: tuple[str, ...]

    def text(self, line: int) -> str:
        """What stands on a line of the PTX, without indentation."""
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
