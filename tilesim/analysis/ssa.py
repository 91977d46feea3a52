"""Which instructions set the registers that another one uses, and what to.

A lane follows one way through the control-flow graph, and lanes that do not execute an instruction
keep what they had. So what holds for every way holds for every lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Generic, TypeVar

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.solver import Worklist, bits
from tilesim.analysis.uses_defs import Mentions, mentioned, mentions, sets
from tilesim.ir.effects import Defines, Effect
from tilesim.ir.expr import Expr
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir

V = TypeVar("V")


class Reaching:
    """The definitions that reach each instruction of a program.

    A set of definitions is a number: bit ``n`` stands for the ``n``-th register set in the code.
    """

    def __init__(self, graph: FlowGraph) -> None:
        #: by definition: the instruction
        self._numbers: list[int] = []
        #: by register: all of its definitions
        self._of: dict[str, int] = {}
        #: by instruction that sets registers: what it leaves of others' definitions, and adds
        self._changes: dict[int, tuple[int, int]] = {}
        self._note_definitions(graph.mir)
        #: by instruction that may be reached: what reaches it
        self._before: dict[int, int] = {}
        self._flow(graph)
        self._asked: dict[tuple[int, str], tuple[int, ...]] = {}

    def setters(self, number: int, name: str) -> tuple[int, ...]:
        """The instructions that may have set a register for the instruction of this number."""
        known = self._asked.get((number, name))
        if known is not None:
            return known
        found, left = [], self._before.get(number, 0) & self._of.get(name, 0)
        while left:
            low = left & -left
            found.append(self._numbers[low.bit_length() - 1])
            left ^= low
        answer = self._asked[number, name] = tuple(found)
        return answer

    def _note_definitions(self, mir: Mir) -> None:
        made: dict[int, tuple[int, frozenset[str]]] = {}
        for number in range(len(mir.code)):
            names = sets(mir, number)
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

    def _flow(self, graph: FlowGraph) -> None:
        passes = [self._through(block) for block in graph.blocks]
        left, added = [one for one, _ in passes], [new for _, new in passes]
        starts = bits(graph.order, graph.predecessors, left, added)
        for block in graph.order:
            state = starts[block]
            for number in graph.blocks[block]:
                self._before[number] = state
                own, new = self._changes.get(number, (-1, 0))
                state = state & own | new

    def _through(self, block: range) -> tuple[int, int]:
        """What a block leaves of the definitions that reach it, and what it adds."""
        kept, added = -1, 0
        for number in block:
            left, new = self._changes.get(number, (-1, 0))
            kept, added = kept & left, added & left | new
        return kept, added


@cached
def reaching(graph: FlowGraph) -> Reaching:
    """Which instructions may have set the registers that another one uses."""
    return Reaching(graph)


class Values(Generic[V]):
    """What registers may hold, followed from what sets them to what reads them.

    It is known by register and the instruction that sets it; an instruction that reads it finds
    what all have left that may have set it. ``join`` only grows, from ``nothing`` on.

    ``work``: the instructions, of ``numbers``, that are to be looked at: at first all, then those
    that read what has grown.
    """

    def __init__(
        self, graph: FlowGraph, numbers: Sequence[int], join: Callable[[V, V], V], nothing: V
    ) -> None:
        self.work = Worklist(numbers)
        self.setters = reaching(graph).setters
        self._join, self._nothing = join, nothing
        self._held: dict[tuple[str, int], V] = {}
        #: by register, those of the instructions that read it, or of which an effect mentions it
        self._readers: dict[str, list[int]] = {}
        named = mentions(graph.mir)
        for number in numbers:
            for name in _sources(named[number], graph.mir.effects[number]):
                self._readers.setdefault(name, []).append(number)

    def of(self, name: str, setter: int) -> V:
        """What an instruction has set a register to."""
        return self._held.get((name, setter), self._nothing)

    def at(self, name: str, number: int) -> V:
        """What an instruction finds in a register."""
        setters = self.setters(number, name)
        if len(setters) == 1:
            return self.of(name, setters[0])
        return reduce(self._join, (self.of(name, setter) for setter in setters), self._nothing)

    def grow(self, name: str, setter: int, value: V) -> None:
        """An instruction may set a register to this, too."""
        before = self.of(name, setter)
        joined = self._join(before, value)
        if joined != before:
            self._held[name, setter] = joined
            self.work.again(self._readers.get(name, ()))

    @property
    def names(self) -> frozenset[str]:
        """The registers that hold more than nothing somewhere."""
        return frozenset(name for name, _ in self._held)


def _sources(named: Mentions, effects: tuple[Effect, ...]) -> frozenset[str]:
    """What an instruction mentions, in its effects, too."""
    operands = [value for _, value, _ in named.operands]
    values = (e.value for e in effects if isinstance(e, Defines) and isinstance(e.value, Expr))
    others = [mentioned(v) for v in values if not any(v is operand for operand in operands)]
    return named.names.union(*others) if others else named.names


def assigned(graph: FlowGraph, number: int, name: str) -> Expr | None:
    """What a register that an instruction reads was set to, if one instruction alone may have done
    that, in all lanes that execute it, and an expression says it."""
    match reaching(graph).setters(number, name):
        case (setter,) if graph.mir.code[setter].guard is None:
            return value_of(graph.mir.effects[setter])
        case _:
            return None


def value_of(effects: tuple[Effect, ...]) -> Expr | None:
    """What an instruction sets a register to that does nothing else."""
    match effects:
        case (Defines(value=Expr() as value),):
            return value
        case _:
            return None


@cached
def once(mir: Mir) -> dict[str, int]:
    """By register that one instruction sets, in all lanes that execute it: its number."""
    return {
        name: numbers[0]
        for name, numbers in mir.setters.items()
        if len(numbers) == 1 and mir.code[numbers[0]].guard is None
    }


@cached
def given(mir: Mir) -> dict[str, Expr]:
    """By register that one instruction sets so: what to, where an expression says it."""
    found = {name: value_of(mir.effects[number]) for name, number in once(mir).items()}
    return {name: value for name, value in found.items() if value is not None}
