"""Instructions while they are rewritten, with what each mentions and sets.

Most of them are assignments, of which both are seen without asking for effects and operands.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilesim.analysis.uses_defs import mentioned, mentions_of, registers_set
from tilesim.ir.mir import Instruction
from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Assign

_NOTHING: frozenset[str] = frozenset()


class Listing:
    """A program's instructions by number. One may be put in place of another that sets the same."""

    def __init__(self, code: Iterable[Instruction]) -> None:
        self.code = [*code]
        #: what each mentions, as `tilesim.analysis.uses_defs.Mentions` has it
        self.names = [_mentioned_by(instruction) for instruction in self.code]
        #: the registers that each sets
        self.sets = [_set_by(instruction) for instruction in self.code]

    def put(self, number: int, instruction: Instruction) -> None:
        """Puts an instruction in the place of another one."""
        self.code[number] = instruction
        self.names[number] = _mentioned_by(instruction)


def _mentioned_by(instruction: Instruction) -> frozenset[str]:
    what, guard = instruction.what, instruction.guard
    if isinstance(what, Assign) and guard is None:
        return mentioned(what.value)
    tested, used, _ = mentions_of(instruction)
    return tested | used if tested and used else tested or used


def _set_by(instruction: Instruction) -> frozenset[str]:
    what = instruction.what
    if isinstance(what, Assign):
        return frozenset((what.var.name,))
    if isinstance(what, Op):
        return frozenset([var.name for var in registers_set(what)])
    return _NOTHING
