"""Reaching definitions: which instructions may have set the registers that another one uses.

A lane follows one way through the control-flow graph, and lanes that do not execute an instruction
keep what they had. So what holds for every way holds for every lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesim.ir.effects import Defines
from tilesim.ir.mir import Mir


class Reaching:
    """The definitions that reach each instruction of a program.

    A set of definitions is a number: bit ``n`` stands for the ``n``-th register set in the code.

    Args:
        blocks: the numbers of the instructions of each basic block.
        order: the blocks that may be reached.
        predecessors: by block, those that it may follow.
    """

    def __init__(
        self,
        mir: Mir,
        blocks: Sequence[range],
        order: Sequence[int],
        predecessors: Sequence[Sequence[int]],
    ) -> None:
        #: by definition: the instruction
        self._numbers: list[int] = []
        #: by register: all of its definitions
        self._of: dict[str, int] = {}
        #: by instruction that sets registers: what it leaves of others' definitions, and adds
        self._changes: dict[int, tuple[int, int]] = {}
        self._note_definitions(mir)
        #: by instruction that may be reached: what reaches it
        self._before: dict[int, int] = {}
        self._asked: dict[tuple[int, str], tuple[int, ...]] = {}
        self._flow(blocks, order, predecessors)

    def setters(self, number: int, name: str) -> tuple[int, ...]:
        """The instructions that may have set a register for the instruction of this number."""
        known = self._asked.get((number, name))
        if known is not None:
            return known
        bits = self._before.get(number, 0) & self._of.get(name, 0)
        found = []
        while bits:
            low = bits & -bits
            found.append(self._numbers[low.bit_length() - 1])
            bits ^= low
        answer = self._asked[number, name] = tuple(found)
        return answer

    def _note_definitions(self, mir: Mir) -> None:
        made: dict[int, tuple[int, set[str]]] = {}
        for number, effects in enumerate(mir.effects):
            names = {e.var.name for e in effects if isinstance(e, Defines)}
            if not names:
                continue
            bits = 0
            for name in sorted(names):
                bit = 1 << len(self._numbers)
                self._numbers.append(number)
                self._of[name] = self._of.get(name, 0) | bit
                bits |= bit
            made[number] = bits, names
        for number, (bits, names) in made.items():
            over = 0
            if mir.code[number].guard is None:
                for name in names:
                    over |= self._of[name]
            self._changes[number] = ~over, bits

    def _flow(
        self,
        blocks: Sequence[range],
        order: Sequence[int],
        predecessors: Sequence[Sequence[int]],
    ) -> None:
        passes = {block: self._through(blocks[block]) for block in order}
        ends = dict.fromkeys(order, 0)
        starts = dict.fromkeys(order, 0)
        changed = True
        while changed:
            changed = False
            for block in order:
                state = 0
                for source in predecessors[block]:
                    state |= ends.get(source, 0)
                starts[block] = state
                kept, added = passes[block]
                end = state & kept | added
                if end != ends[block]:
                    ends[block], changed = end, True
        for block, state in starts.items():
            for number in blocks[block]:
                self._before[number] = state
                left, new = self._changes.get(number, (-1, 0))
                state = state & left | new

    def _through(self, block: range) -> tuple[int, int]:
        """What a block leaves of the definitions that reach it, and what it adds."""
        kept, added = -1, 0
        for number in block:
            left, new = self._changes.get(number, (-1, 0))
            kept, added = kept & left, added & left | new
        return kept, added
