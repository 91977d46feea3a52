"""All ways through a part of the program that a value which nobody knows leads through.

Lanes go one way or the other, and each its own: so each instruction there may be made or not
(`tilesim.sim.perhaps`). It is made in all lanes that may come to it, with what their registers hold
on each way there, or, where that is not the same on all of them, with what nobody knows. A loop is
gone through turn by turn, until one may be its last: from then on with what registers hold in any.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilesim.analysis.cfg import FlowGraph, Loop
from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import computed
from tilesim.ir import effects as fx
from tilesim.ir.expr import constant
from tilesim.ir.mir import Branch, Join, Trap
from tilesim.ir.op import Op
from tilesim.ir.scalars import word_access
from tilesim.sim.expression import plain
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.unknown import Unknown, UnknownSteers
from tilesim.sim.perhaps import accessing, may_be_made, may_be_made_inside

#: instructions after which a loop has to be one that data ends
_MOST = 1 << 15
#: what registers hold in other clusters, where that differs
Held: TypeAlias = "dict[int, Any]"


@dataclass(frozen=True, eq=False)
class Region:
    """What lanes may execute from an instruction on up to where all of them have come to ``meet``.

    ``points`` are where several ways come together; ``loops`` those in it, by their heads.
    """

    graph: FlowGraph
    number: int
    meet: int
    points: frozenset[int]
    loops: dict[int, tuple[Loop, ...]]
    ends: frozenset[int]

    def turns(self, head: int, number: int) -> bool:
        """Whether an instruction is in a loop that has this head."""
        block = self.graph.block_of[number]
        return any(block in loop.blocks for loop in self.loops.get(head, ()))

    def exchanges(self, head: int) -> bool:
        """Whether something in a loop tells what threads leave in memory for each other."""
        blocks = {block for loop in self.loops[head] for block in loop.blocks}
        effects = (self.graph.mir.effects[n] for b in blocks for n in self.graph.blocks[b])
        words = filter(None, map(word_access, effects))
        return any(word.combine is not None and word.result is not None for word in words)

    def left(self, number: int, targets: Collection[int]) -> list[int]:
        """The heads of the loops that a branch may leave."""
        of = self.graph.block_of
        return [
            head
            for head, loops in self.loops.items()
            if (blocks := frozenset[int]().union(*(loop.blocks for loop in loops)))
            and of[number] in blocks
            and any(of[target] not in blocks for target in targets)
        ]


def region(graph: FlowGraph, number: int, targets: Collection[int], meet: int) -> Region | None:
    """What may be executed from ``targets`` on, where instruction ``number`` leads, before lanes
    meet; None if something there is neither made or not nor control flow.

    Where lanes end there, they meet at the end of the program.
    """
    end = len(graph.mir.code)
    inside = _between(graph, targets, meet)
    ends = frozenset(n for n in inside if _ends(graph, n))
    if ends:
        meet = end
        inside = _between(graph, targets, end)
        ends = frozenset(n for n in inside if _ends(graph, n))
    if not all(n in ends or _may_be_passed(graph, n) for n in inside):
        return None
    blocks = {graph.block_of[n] for n in inside}
    found: dict[int, tuple[Loop, ...]] = {}
    for loop in graph.loops:
        if loop.blocks <= blocks:
            head = graph.blocks[loop.head].start
            found[head] = (*found.get(head, ()), loop)
    back = {(loop.tail, loop.head) for loops in found.values() for loop in loops}
    if any(a in blocks and b in blocks for a, b in graph.ways_back - back):
        return None  # a loop with several entries, or that is entered in the middle
    starts = {b: graph.blocks[b].start for b in blocks}
    points = frozenset(n for b, n in starts.items() if len(graph.predecessors[b]) > 1)
    return Region(graph, number, meet, points, found, ends)


def _between(graph: FlowGraph, targets: Collection[int], meet: int) -> set[int]:
    """What may be executed from ``targets`` on before ``meet``, nothing of which comes behind a
    trap."""
    end = graph.block_of[meet]

    def made(block: int) -> range:
        numbers = graph.blocks[block]
        trap = next((n for n in numbers if _traps(graph, n)), numbers.stop)
        return range(numbers.start, min(trap + 1, numbers.stop))

    def after(block: int) -> tuple[int, ...]:
        ends = block == end or any(_traps(graph, n) for n in graph.blocks[block])
        return () if ends else graph.successors[block]

    blocks = closure((graph.block_of[target] for target in targets), after) - {end}
    return {number for block in blocks for number in made(block)}


def _traps(graph: FlowGraph, number: int) -> bool:
    """Whether all lanes that come to an instruction end the launch there."""
    match graph.mir.code[number].what:
        case Trap(aborts=True, cond=cond):
            return bool(constant(cond))
        case _:
            return False


def _ends(graph: FlowGraph, number: int) -> bool:
    what = graph.mir.code[number].what
    return isinstance(what, Op) and any(isinstance(e, fx.Exits) for e in what.effects())


def _may_be_passed(graph: FlowGraph, number: int) -> bool:
    match graph.mir.code[number].what:
        case Op() as op:
            effects = graph.mir.effects[op.number]
            return computed(effects) is not None or accessing(effects) is not None
        case Branch(polls=polls):
            return not polls
        case Trap(aborts=aborts):
            return aborts
        case what:
            return isinstance(what, Join)


def may_go(w: Warp, value: Unknown, within: Region, starts: Collection[int]) -> None:
    """All lanes go all ways through a region: which one each goes says ``value``.

    Raises:
        UnknownSteers: that has to be known.
    """
    may_be_made(w, value, lambda: Ways(w, value, within).go(starts))


@dataclass
class _State:
    """What lanes have that come to an instruction; ``undefined``: by register, lanes in which it is
    open."""

    mask: int
    registers: list[Any]
    undefined: dict[int, int]
    elsewhere: Held


class Ways:
    """A warp that goes through a region, since nobody knows ``value``."""

    def __init__(self, w: Warp, value: Unknown, within: Region) -> None:
        self._w = w
        self._value = value
        self._region = within
        self._mask = w.mask
        #: by instruction, lanes that have yet to go on there
        self._waiting: dict[int, _State] = {}
        #: by head of a loop: what it was entered with last, and how much had been stored
        self._turns: dict[int, tuple[_State, int]] = {}
        #: by head of a loop that data may end in any turn, the lanes for which it may
        self._open: dict[int, int] = {}
        self.end = len(within.graph.mir.code)
        self.stored: set[object] = set()
        self._executed = 0

    def go(self, starts: Collection[int]) -> None:
        """From ``starts`` on to where all lanes meet.

        Raises:
            UnknownSteers: the value has to be known.
        """
        w = self._w
        w.machine.irregular += 1
        outer, w.ways = w.ways, self
        try:
            for start in starts:
                self._wait(start)
            while (place := self._next()) is not None:
                self._follow(place)
        finally:
            w.ways = outer
        last = self._waiting.pop(self._region.meet, None)
        # no lane is in a loop for ever (`_wait`), but some may trap on each way
        if last is None or last.mask != self._mask:
            raise UnknownSteers(self._value)
        self._become(last)
        w.pc = self._region.meet

    def branch(self, number: int, target: int, taken: int | Unknown) -> None:
        """Lanes come to a branch: ``taken`` are those that go on at its target, if that is known.

        ``number`` is the instruction behind it.
        """
        w = self._w
        if type(taken) is Unknown:
            self._may_leave(number - 1, (number, target))
            self._wait(number, number - 1)
            self._wait(target, number - 1)
            w.mask = 0
            return
        mask = w.mask
        if w.spread is not None and taken not in (0, mask):
            raise UnknownSteers(self._value)
        for place, lanes in ((number, mask & ~taken), (target, mask & taken)):
            if lanes and lanes != mask:
                w.mask = lanes
                self._wait(place, number - 1)
            elif lanes:
                w.pc = place
                return
        w.mask = 0

    def trap(self, lanes: int) -> None:
        """``lanes`` end the launch: nothing has to be said of what they do on this way."""
        if self._w.spread is not None and lanes != self._w.mask:
            raise UnknownSteers(self._value)
        self._w.mask &= ~lanes

    def _may_leave(self, number: int, targets: Collection[int]) -> None:
        """Nobody knows whether a branch leaves a loop: it is taken to be data that ends it.

        Raises:
            UnknownSteers: it could be what others leave in memory.
        """
        heads = self._region.left(number, targets)
        if any(self._region.exchanges(head) for head in heads):
            raise UnknownSteers(self._value)
        for head in heads:
            self._open[head] = self._open.get(head, 0) | self._w.mask
        if heads:
            loc = self._region.graph.mir.code[number].loc
            self._w.machine.outcome.data_loops[loc] = None

    def _next(self) -> int | None:
        """Where lanes go on that have waited: first where others may still come after them; a
        loop turns when all in it have come to the end of their turn."""
        region, waiting = self._region, self._waiting
        places = [n for n in waiting if n != region.meet]
        places = [n for n in places if not any(region.turns(n, p) for p in places if p != n)]
        return min(places, key=region.graph.ranks.__getitem__, default=None)

    def _follow(self, place: int) -> None:
        """Goes on from an instruction to the next one where ways come together or part."""
        w, region = self._w, self._region
        state = self._waiting.pop(place)
        if place in region.loops:
            self._turns[place] = state, len(self.stored)
        self._become(state)
        w.pc = place
        code, mir = w.machine.code, region.graph.mir.code
        while w.mask:
            number = w.pc
            w.pc += 1
            self._count()
            match mir[number].what:
                case Op() if number not in region.ends:
                    may_be_made_inside(w, self._value, code[number][0])
                case Op() | Branch() | Trap():
                    code[number][0](w)
                case _:
                    pass
            if w.mask and (w.pc == region.meet or w.pc in region.points):
                self._wait(w.pc, number)
                return

    def _count(self) -> None:
        self._executed += 1
        if self._executed > _MOST:
            raise UnknownSteers(self._value)
        if self._executed % 64 == 0:
            self._w.machine.look_at_clock()

    def _wait(self, place: int, before: int | None = None) -> None:
        """The active lanes wait at an instruction for others that may come there.

        Raises:
            UnknownSteers: some of them turn for ever in a loop that data ends for others only.
        """
        w, region = self._w, self._region
        mirror = w.elsewhere
        held = {} if mirror is None else mirror.saved()
        state = _State(w.mask, list(w.registers), dict(w.undefined), held)
        turns = before is not None and region.turns(place, before)
        if turns and place in self._open and place in self._turns:
            earlier, stored = self._turns[place]
            state = self._either(earlier, state)
            if stored == len(self.stored) and _covers(earlier, state):
                if w.mask & ~self._open[place]:
                    raise UnknownSteers(self._value)
                return
        other = self._waiting.get(place)
        self._waiting[place] = state if other is None else self._either(other, state)

    def _become(self, state: _State) -> None:
        w = self._w
        w.registers[:] = state.registers
        w.undefined.clear()
        w.undefined.update(state.undefined)
        if w.elsewhere is not None:
            w.elsewhere.restore(state.elsewhere)
        w.mask = state.mask

    def _either(self, one: _State, other: _State) -> _State:
        """What lanes hold that have come one way or the other."""
        registers = []
        elsewhere: Held = {}
        undefined: dict[int, int] = {}
        for slot, (a, b) in enumerate(zip(one.registers, other.registers, strict=True)):
            far, away = one.elsewhere.get(slot), other.elsewhere.get(slot)
            lanes = one.undefined.get(slot, 0)
            if far is not away or lanes != other.undefined.get(slot, 0) or not _alike(a, b):
                registers.append(self._value)
                continue
            registers.append(a)
            if far is not None:
                elsewhere[slot] = far
            if lanes:
                undefined[slot] = lanes
        return _State(one.mask | other.mask, registers, undefined, elsewhere)


def _covers(earlier: _State, state: _State) -> bool:
    """Whether all that a state says, which is ``earlier`` merged with what came after it, has been
    gone on from: what is another number in some cluster, or open in other lanes, is not known by
    then."""
    return all(map(_alike, earlier.registers, state.registers))


def _alike(one: Any, other: Any) -> bool:
    """Whether registers hold the same, bit by bit; what nobody knows is like anything else that
    nobody does."""
    if Unknown in (type(one), type(other)):
        return type(one) is type(other)
    if one is other:
        return True
    a, b = np.asarray(plain(one)), np.asarray(plain(other))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
