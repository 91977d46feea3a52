"""Instructions while they are rewritten, with what each mentions and sets."""

from __future__ import annotations

from collections.abc import Iterable

from tilesim.ir.dataflow import Mentions, mentions_of, registers_set
from tilesim.ir.mir import Instruction
from tilesim.ir.op import Op

_NOTHING: frozenset[str] = frozenset()


class Listing:
    """A program's instructions by number. One may be put in place of another that sets the same."""

    def __init__(self, code: Iterable[Instruction]) -> None:
        self.code = [*code]
        self.mentions = [mentions_of(instruction) for instruction in self.code]
        #: what each mentions anywhere
        self.names = [_names(mentions) for mentions in self.mentions]
        #: the registers that each sets
        self.sets = [_set_by(instruction) for instruction in self.code]

    def put(self, number: int, instruction: Instruction) -> None:
        """Puts an instruction in the place of another one."""
        self.code[number] = instruction
        mentions = self.mentions[number] = mentions_of(instruction)
        self.names[number] = _names(mentions)


def _names(mentions: Mentions) -> frozenset[str]:
    tested, used, _ = mentions
    return tested | used if tested and used else tested or used


def _set_by(instruction: Instruction) -> frozenset[str]:
    what = instruction.what
    if not isinstance(what, Op):
        return _NOTHING
    return frozenset([var.name for var in registers_set(what)])
