"""Where the value of a register comes from: versions of registers (static single assignment).

A version is what one instruction writes, what meets at a place that several paths lead to, or what
a register holds at the beginning. At each place a register has one version. Two reads of a version
in one computation read the same value: what defines a version lies on all paths to its reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tilesim.cubin.operands import written
from tilesim.cubin.sass import WIDTH, Function
from tilesim.records import dataclass

#: stands before the first instruction
_BEGINNING = -1


@dataclass(frozen=True)
class Initial:
    """What a register holds when the kernel begins."""

    register: str


@dataclass(frozen=True)
class Written:
    """What the instruction at ``pc`` leaves in a register: what it held if the guard is false."""

    register: str
    pc: int


@dataclass(frozen=True)
class Meeting:
    """What a register holds at ``pc``, to which several paths lead with values of their own."""

    register: str
    pc: int


Version = Initial | Written | Meeting


class Versions:
    """The versions of a function's registers; of places that nothing leads to there are none."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._meetings: dict[str, frozenset[int]] = {}

    @cached_property
    def _blocks(self) -> dict[int, tuple[int, ...]]:
        """Places that are gone through one after the other, by the first."""
        function, reached = self.function, self._reached
        starts = {0}
        for pc in reached:
            after = function.successors[pc]
            ends = function.code[pc].base == "EXIT"  # what goes on is known not to have ended
            if ends or after != (pc + WIDTH,) or len(function.predecessors[pc + WIDTH]) > 1:
                starts.update(after)
        found: dict[int, tuple[int, ...]] = {}
        for start in sorted(starts):
            places = [start]
            while (pc := places[-1] + WIDTH) not in starts and pc in reached:
                if function.successors[places[-1]] != (pc,):
                    break
                places.append(pc)
            found[start] = tuple(places)
        return found

    @cached_property
    def _reached(self) -> frozenset[int]:
        seen: set[int] = set()
        todo = [0] if 0 in self.function.code else []
        while todo:
            pc = todo.pop()
            if pc not in seen:
                seen.add(pc)
                todo += self.function.successors[pc]
        return frozenset(seen)

    @cached_property
    def _block_of(self) -> dict[int, int]:
        return {pc: start for start, places in self._blocks.items() for pc in places}

    def before(self, start: int) -> tuple[int, ...]:
        """The last places of the blocks that lead to a block; -1 is the beginning."""
        found = [pc for pc in self.function.predecessors[start] if pc in self._reached]
        return (*([_BEGINNING] if start == 0 else []), *found)

    def start(self, pc: int) -> int:
        """The first place of the block that a place lies in."""
        return self._block_of[pc]

    @cached_property
    def _dominators(self) -> dict[int, int]:
        """Of each block, the nearest one that all paths to it go through (Cooper, Harvey, Kennedy:
        A Simple, Fast Dominance Algorithm)."""
        order: list[int] = []
        seen = {0}
        stack: list[tuple[int, Iterator[int]]] = [(0, iter(self._after(0)))]
        while stack:
            block, after = stack[-1]
            for following in after:
                if following not in seen:
                    seen.add(following)
                    stack.append((following, iter(self._after(following))))
                    break
            else:
                order.append(block)
                stack.pop()
        order.reverse()
        rank = {block: n for n, block in enumerate(order, 1)} | {_BEGINNING: 0}
        of = {0: _BEGINNING, _BEGINNING: _BEGINNING}
        leading = {block: [self._from(pc) for pc in self.before(block)] for block in order}
        changed = True
        while changed:
            changed = False
            for block in order:
                if block == 0:
                    continue
                new: int | None = None
                for other in leading[block]:
                    if other not in of:
                        continue
                    if new is None:
                        new = other
                        continue
                    one = other
                    while one != new:
                        if rank[one] > rank[new]:
                            one = of[one]
                        else:
                            new = of[new]
                assert new is not None
                if of.get(block) != new:
                    of[block] = new
                    changed = True
        return of

    def _after(self, block: int) -> tuple[int, ...]:
        return self.function.successors[self._blocks[block][-1]]

    def _from(self, pc: int) -> int:
        return _BEGINNING if pc == _BEGINNING else self._block_of[pc]

    def dominates(self, block: int, pc: int) -> bool:
        """Whether all paths to a place go through a block; not to -1."""
        if pc == _BEGINNING:
            return False
        one = self._block_of[pc]
        while one not in (block, _BEGINNING):
            one = self._dominators[one]
        return one == block

    @cached_property
    def _frontiers(self) -> dict[int, set[int]]:
        """Of each block, those at which paths that do not go through it meet paths that do."""
        found: dict[int, set[int]] = {}
        for block in self._blocks:
            leading = self.before(block)
            if len(leading) < 2:
                continue
            for pc in leading:
                one = self._from(pc)
                while one != self._dominators[block]:
                    found.setdefault(one, set()).add(block)
                    one = self._dominators[one]
        return found

    @cached_property
    def _writes(self) -> dict[str, dict[int, list[int]]]:
        """By register and block, the places that write it."""
        found: dict[str, dict[int, list[int]]] = {}
        for start, places in self._blocks.items():
            for pc in places:
                for register in written(self.function.code[pc]):
                    found.setdefault(register, {}).setdefault(start, []).append(pc)
        return found

    @cached_property
    def _calls(self) -> dict[int, list[int]]:
        """By block, the calls of other functions: these may write each register."""
        found: dict[int, list[int]] = {}
        for start, places in self._blocks.items():
            for pc in places:
                one = self.function.code[pc]
                if one.base == "CALL" and one.target is None:
                    found.setdefault(start, []).append(pc)
        return found

    def _meeting_places(self, register: str) -> frozenset[int]:
        found = self._meetings.get(register)
        if found is None:
            todo = [*self._writes.get(register, ()), *self._calls]
            places: set[int] = set()
            while todo:
                for block in self._frontiers.get(todo.pop(), ()):
                    if block not in places:
                        places.add(block)
                        todo.append(block)
            found = self._meetings[register] = frozenset(places)
        return found

    def version(self, register: str, pc: int) -> Version | None:
        """What a register holds just before the instruction at a place; None if nothing leads
        there."""
        block = self._block_of.get(pc)
        if block is None:
            return None
        writes, calls = self._writes.get(register, {}), self._calls
        meetings = self._meeting_places(register)
        while True:
            last = max(
                (at for at in (*writes.get(block, ()), *calls.get(block, ())) if at < pc),
                default=None,
            )
            if last is not None:
                return Written(register, last)
            if block in meetings:
                return Meeting(register, block)
            block = self._dominators[block]
            if block == _BEGINNING:
                return Initial(register)
            pc = self._blocks[block][-1] + WIDTH

    def met(self, meeting: Meeting) -> tuple[tuple[int, Version], ...]:
        """What meets, with the place from which it comes; -1 is the beginning."""
        found: list[tuple[int, Version]] = []
        for pc in self.before(meeting.pc):
            if pc == _BEGINNING:
                found.append((pc, Initial(meeting.register)))
                continue
            one = self._behind(meeting.register, pc)
            found.append((pc, one))
        return tuple(found)

    def _behind(self, register: str, pc: int) -> Version:
        """What a register holds behind the last place of a block."""
        block = self._block_of[pc]
        if pc in self._writes.get(register, {}).get(block, ()) or pc in self._calls.get(block, ()):
            return Written(register, pc)
        found = self.version(register, pc)
        assert found is not None
        return found
