"""Instructions of machine code (SASS), with their lines in the source and in the embedded PTX."""

from __future__ import annotations

from collections.abc import Mapping

from tilesim.records import dataclass


@dataclass(frozen=True)
class SourceLine:
    """A line of the source from which an instruction comes."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    ``pc`` counts bytes from the function's beginning. ``guard`` is a predicate (``P0``, ``!UP1``),
    empty without one. ``opcode`` has all its modifiers (``BAR.SYNC.DEFER_BLOCKING``), ``operands``
    are their texts without ``.reuse``. ``lines``: where it is in the source, then the calls that
    were inlined, the outermost last. ``ptx``: its line in the PTX that the cubin embeds.
    """

    pc: int
    guard: str
    opcode: str
    operands: tuple[str, ...]
    lines: tuple[SourceLine, ...] = ()
    ptx: int | None = None

    @property
    def base(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]


@dataclass(frozen=True)
class Function:
    """The code of a kernel, and what can follow what.

    ``address``: where it lies on the device, 0 in a cubin that is not relocated. ``successors`` and
    ``predecessors`` are places by places.
    """

    name: str
    address: int
    size: int
    code: Mapping[int, Instruction]
    successors: Mapping[int, tuple[int, ...]]
    predecessors: Mapping[int, tuple[int, ...]]
