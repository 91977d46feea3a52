"""What may differ between the lanes of a warp, and what cannot: read off MIR, before it runs.

What an instruction sets a register to is the same in all lanes, or it is the same but for its
lowest five bits, as the number of a thread is (what is above them is the number of the warp), or it
may be anything in each lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilesim.analysis.liveness import live_at
from tilesim.analysis.ssa import reaching
from tilesim.ir.dataflow import Mentions, mentioned, mentions
from tilesim.ir.effects import Defines, Elects, Shuffles
from tilesim.ir.executing import executing
from tilesim.ir.expr import Binary, Expr, Select, Special, Unary, Var, constant
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.kept import kept
from tilesim.ir.mir import condition

#: special registers that differ between the lanes of a warp, as no variable may be called
LANE = ("%lane_id", "%thread_id")
#: how much of a value may differ between lanes: nothing, its lowest bits, everything
SAME, LOW_BITS, ANYTHING = range(3)
#: lanes of a warp
_LANES = 32


class Diverging:
    """The registers that may differ between lanes, and what splits these.

    Args:
        lanes: whether lanes differ by themselves; else only because one of them was elected.
        elections: whether ``elect.sync`` makes lanes differ; else it is as if it did not.
    """

    def __init__(self, graph: FlowGraph, *, lanes: bool = True, elections: bool = True) -> None:
        self._graph, self._mir = graph, graph.mir
        self._warps, self._setters = executing(graph.mir), reaching(graph).setters
        self._lanes, self._elections = lanes, elections
        #: by register and instruction that sets it
        self._levels: dict[tuple[str, int], int] = {}
        #: what more has been found to differ of lately
        self._news: set[str] = set()
        #: branches at which lanes of a warp may go different ways
        self.splits: set[int] = set()
        #: what not all lanes of a warp may execute
        self.inside: set[int] = set()
        self._sets: dict[int, list[Defines]] = {}
        for number, effect in self._mir.all_of(Defines):
            self._sets.setdefault(number, []).append(effect)
        self._spread()
        special = LANE if lanes else ()
        #: names of what may differ somewhere, special registers among them
        self.names = frozenset((*special, *(name for name, _ in self._levels)))

    def differs(self, expr: Expr | None, number: int) -> bool:
        """Whether an expression of an instruction may have different values in lanes."""
        return expr is not None and self._level(expr, number) != SAME

    def any_differs(self, names: Iterable[str], number: int) -> bool:
        """Whether one of these, as an instruction finds it, may differ between lanes."""
        return any(
            name in self.names and (name in LANE or self._found(name, number) != SAME)
            for name in names
        )

    def _spread(self) -> None:
        code, named = self._mir.code, mentions(self._mir)
        steps = []
        for number, (cond, what) in enumerate(zip(map(condition, code), named, strict=True)):
            sets = self._sets.get(number, [])
            if cond is not None or sets:
                steps.append((number, cond, sets, what.used, _sources(what, sets)))
        first, news = True, set(LANE if self._lanes else ())
        while first or news:
            # an instruction is looked at again if more differs of what it is made of
            before, self._news = news, set()
            for number, cond, sets, used, sources in steps:
                begins = first and any(isinstance(e.value, Elects) or e.divergent for e in sets)
                if begins or not (sources.isdisjoint(before) and sources.isdisjoint(self._news)):
                    self._look_at(number, cond, sets, used)
            first, news = False, self._news

    def _look_at(
        self, number: int, cond: Expr | None, sets: Iterable[Defines], used: frozenset[str]
    ) -> None:
        """Notes what may differ behind an instruction, as far as is known what may before it."""
        splits = self.differs(cond, number)
        if splits and number in self._graph.meetings and number not in self.splits:
            self.splits.add(number)
            self.inside |= set[int]().union(*sides(self._graph, number))
            for name, setter in self._apart(number):
                self._raise(name, setter, ANYTHING)
        for effect in sets:
            level = ANYTHING if splits else self._set_to(effect, used, number)
            self._raise(effect.var.name, number, level)

    def _raise(self, name: str, setter: int, level: int) -> None:
        if level > self._levels.get((name, setter), SAME):
            self._levels[name, setter] = level
            self._news.add(name)

    def _found(self, name: str, number: int) -> int:
        """How much of a register differs as an instruction finds it."""
        warps, found = self._warps, SAME
        for setter in self._setters(number, name):
            level = self._levels.get((name, setter), SAME)
            # what other warps set their registers to does not matter
            if level > found and not set(warps[setter]).isdisjoint(warps[number]):
                found = level
        return found

    def _apart(self, number: int) -> Iterator[tuple[str, int]]:
        """Where lanes that a branch splits may set registers differently, with these: where they
        come together, or wherever both may come before. What lanes outside of its loop have in a
        counter does not matter."""
        arms, meet = sides(self._graph, number), self._graph.meetings[number]
        all_of_them = sum(map(len, arms)) != len(set[int]().union(*arms))
        used_later = live_at(self._graph, meet)
        for n in set[int]().union(*arms):
            for effect in self._sets.get(n, ()):
                name = effect.var.name
                if name not in self._mir.local and (all_of_them or name in used_later):
                    yield name, n

    def _set_to(self, effect: Defines, used: frozenset[str], number: int) -> int:
        """How much of what an instruction sets a register to differs."""
        value = effect.value
        if isinstance(value, Elects):
            return ANYTHING if self._elections else SAME
        if effect.divergent and self._lanes:
            return ANYTHING
        if (
            isinstance(value, Shuffles) and value.mode == "idx"
            and not self.differs(value.lane, number)
        ):  # fmt: skip
            return SAME
        if isinstance(value, Expr):
            level = self._level(value, number)
            return ANYTHING if level and effect.var.dtype.kind == "pred" else level
        own = self._lanes and not used.isdisjoint(LANE)
        return ANYTHING if own or any(self._found(name, number) for name in used) else SAME

    def _level(self, expr: Expr, number: int) -> int:
        match expr:
            case Var(name):
                return self._found(name, number)
            case Special(name):
                return LOW_BITS if self._lanes and f"%{name}" in LANE else SAME
            case Binary(op, lhs, rhs):
                return self._binary(op, lhs, rhs, number)
            case Unary(op, operand):
                level = self._level(operand, number)
                return level if level == SAME or op == "~" else ANYTHING
            case Select(cond, then, other):
                arms = max(self._level(then, number), self._level(other, number))
                return ANYTHING if self._level(cond, number) else arms
            case _:
                return SAME

    def _binary(self, op: str, lhs: Expr, rhs: Expr, number: int) -> int:
        levels = self._level(lhs, number), self._level(rhs, number)
        if levels == (SAME, SAME):
            return SAME
        if op in ("+", "&", "|", "^") and constant(lhs) is not None:
            lhs, rhs, levels = rhs, lhs, (levels[1], levels[0])
        other = constant(rhs)
        if other is None or levels[0] != LOW_BITS:
            return ANYTHING
        return _of_low_bits(op, other)


def _sources(named: Mentions, sets: Iterable[Defines]) -> frozenset[str]:
    """What decides what an instruction sets registers to, and where it goes."""
    operands = [value for _, value, _ in named.operands]
    others = (
        mentioned(e.value)
        for e in sets
        if isinstance(e.value, Expr) and not any(e.value is value for value in operands)
    )
    return named.tested.union(named.used, *others)


def _of_low_bits(op: str, number: int) -> int:
    """How much of ``x op number`` differs where only the lowest bits of ``x`` do."""
    lowest = number % _LANES
    match op:
        case ">>" if number >= 5:
            return SAME
        case "//" if lowest == 0 and number > 0:
            return SAME
        case "&" if lowest == 0:
            return SAME
        case "<" | ">=" if lowest == 0:
            return SAME
        case "<=" | ">" if lowest == _LANES - 1:
            return SAME
        case "&" | "|" | "^":
            return LOW_BITS
        case "+" | "-" if lowest == 0:
            return LOW_BITS
        case "%" if lowest == 0 and number > 0:
            return LOW_BITS
        case _:
            return ANYTHING


@kept
def diverging(graph: FlowGraph) -> Diverging:
    """What differs between lanes, elections included."""
    return Diverging(graph)


def sides(graph: FlowGraph, number: int) -> list[set[int]]:
    """What may be executed on each side of a branch before its lanes meet."""
    meet = graph.meetings[number]
    starts = (graph.blocks[b].start for b in graph.successors[graph.block_of[number]])
    return [graph.between(start, meet) for start in starts]
