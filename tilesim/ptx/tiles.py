"""Registers that are parts of the tiles of wgmma.

A compiler moves accumulators from registers to registers, and the assembler leaves these moves out:
registers that a move connects are one. What a tile's registers hold is not known; one variable
stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilesim.ir.effects import Effect, UsesFragment
from tilesim.ir.memory import Fragment
from tilesim.ir.op import Op
from tilesim.ptx.constants import Constants, named, registers, set_by
from tilesim.ptx.flat import Flat, Items, Kernel, Register, Step


@dataclass(frozen=True, kw_only=True)
class AccessTile(Op):
    """Registers of a tile of wgmma are read, or written, by an instruction that follows."""

    mnemonic = "ptx.access_tile"
    cycles = 0

    fragment: Fragment
    write: bool

    def effects(self) -> tuple[Effect, ...]:
        return (UsesFragment(self.fragment, write=self.write, partly=True),)


class Tiles:
    """Which registers of a kernel belong to one tile."""

    def __init__(self, kernel: Kernel, constants: Constants) -> None:
        self._above: dict[str, str] = {}
        self._constants = constants
        named: list[str] = []
        for step in kernel.code:
            if step.opcode.startswith("wgmma.mma_async"):
                for operand in step.operands[:2]:
                    tile = [r.name for r in registers(operand)] if _is_tile(operand) else []
                    named += tile
                    for name in tile[1:]:
                        self._join(tile[0], name)
            elif step.base == "mov":
                target, source = step.operands
                if (
                    isinstance(target, Register)
                    and isinstance(source, Register)
                    and (constants.number(source) is None)
                ):
                    self._join(target.name, source.name)
        self._tiles = {self._root(name) for name in named}

    def _root(self, name: str) -> str:
        path = []
        while name in self._above:
            path.append(name)
            name = self._above[name]
        for passed in path:
            self._above[passed] = name
        return name

    def _join(self, a: str, b: str) -> None:
        first, second = self._root(a), self._root(b)
        if first != second:
            self._above[second] = first

    def of(self, name: str) -> str | None:
        """A name of the tile that a register belongs to; None: it is part of none."""
        root = self._root(name)
        return root if root in self._tiles else None

    def stands_for(self, name: str, kind: str) -> tuple[str, str]:
        """The register that stands for this one, and its type."""
        tile = self.of(name)
        return (name, kind) if tile is None else (f"{tile}:", "b32")

    def accessed(self, step: Step) -> Iterator[tuple[str, bool]]:
        """The tiles of which an instruction accesses registers, and whether it writes them."""
        if step.opcode.startswith("wgmma.mma_async") or self.renamed(step):
            return
        written = set(set_by(step))
        found: dict[tuple[str, bool], None] = {}
        for position, operand in enumerate(step.operands):
            for register in named(operand):
                tile = self.of(register.name)
                if tile is not None:
                    found[tile, position == 0 and register in written] = None
        yield from found

    def renamed(self, step: Step) -> bool:
        """Whether an instruction only moves registers of a tile, which the assembler leaves out."""
        if step.base != "mov":
            return False
        target, source = step.operands
        if not isinstance(target, Register) or not isinstance(source, Register):
            return False
        return self.of(target.name) is not None and self._constants.number(source) is None


def _is_tile(operand: Flat) -> bool:
    return isinstance(operand, Items)
