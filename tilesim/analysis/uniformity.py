"""What may differ between the lanes of a warp, or the threads of a CTA, and what cannot: read off
MIR, before it runs.

What an instruction sets a register to is the same in all of them, or it is the same but for its
lowest five bits, as the number of a thread is (what is above them is the number of the warp), or it
may be anything in each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.executing_warps import executing
from tilesim.analysis.liveness import live_at
from tilesim.analysis.ssa import Values
from tilesim.analysis.taint import tensors_written
from tilesim.analysis.uses_defs import mentions, reads, sets
from tilesim.ir.declarations import View
from tilesim.ir.effects import Defines, Effect, Elects, JoinsBarrier, Reads, Shuffles
from tilesim.ir.expr import Binary, Expr, Select, Special, Unary, Var, constant
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir, condition
from tilesim.ir.op import Computation

#: how much of a value may differ between lanes: nothing, its lowest bits, everything
SAME, LOW_BITS, ANYTHING = range(3)
#: lanes of a warp
_LANES = 32


class Diverging:
    """The registers that may differ between lanes of a warp, and what splits these.

    Args:
        lanes: whether lanes differ by themselves; else only because one of them was elected.
        elections: whether ``elect.sync`` makes lanes differ; else it is as if it did not.
    """

    #: how much of special registers differs
    _OWN: Mapping[str, int] = {"lane_id": LOW_BITS, "thread_id": LOW_BITS}

    def __init__(self, graph: FlowGraph, *, lanes: bool = True, elections: bool = True) -> None:
        self._graph, self._mir = graph, graph.mir
        self._warps = executing(graph.mir)
        self._lanes, self._elections = lanes, elections
        self._special = self._OWN if lanes else {}
        #: branches at which some may go other ways than others
        self.splits: set[int] = set()
        #: what not all of them may execute
        self.inside: set[int] = set()
        self._sets: dict[int, list[Defines]] = {}
        for number, effect in self._mir.all_of(Defines):
            self._sets.setdefault(number, []).append(effect)
        self._spread()
        #: names of what may differ somewhere, special registers among them
        own = (f"%{name}" for name in self._special)
        self.names = frozenset((*own, *self._levels.names))

    def differs(self, expr: Expr | None, number: int) -> bool:
        """Whether an expression of an instruction may have different values."""
        return expr is not None and self._level(expr, number) != SAME

    def any_differs(self, names: Iterable[str], number: int) -> bool:
        """Whether one of these, as an instruction finds it, may differ."""
        special, found = self._special, self._found
        return any(name[1:] in special if name[0] == "%" else found(name, number) for name in names)

    def _spread(self) -> None:
        code, named = self._mir.code, mentions(self._mir)
        conds = {n: cond for n, i in enumerate(code) if (cond := condition(i)) is not None}
        #: how much of what registers hold differs
        self._levels = Values(self._graph, sorted({*conds, *self._sets}), max, SAME)
        for number in self._levels.work:
            self._look_at(number, conds.get(number), named[number].used)

    def _look_at(self, number: int, cond: Expr | None, used: frozenset[str]) -> None:
        """Notes what may differ behind an instruction, as far as is known what may before it."""
        splits = self.differs(cond, number)
        if splits and number in self._graph.reconvergence and number not in self.splits:
            self.splits.add(number)
            self.inside |= self._graph.inside(number)
            for name, setter in self._apart(number):
                self._levels.grow(name, setter, ANYTHING)
        for effect in self._sets.get(number, ()):
            level = ANYTHING if splits else self._set_to(effect, used, number)
            self._levels.grow(effect.var.name, number, level)

    def _found(self, name: str, number: int) -> int:
        """How much of a register differs as an instruction finds it."""
        warps, found = self._warps, SAME
        for setter in self._levels.setters(number, name):
            level = self._levels.of(name, setter)
            # what other warps set their registers to does not matter
            if level > found and not set(warps[setter]).isdisjoint(warps[number]):
                found = level
                if level == ANYTHING:
                    break
        return found

    def _apart(self, number: int) -> Iterator[tuple[str, int]]:
        """Where lanes that a branch splits may set registers differently, with these: where they
        come together, or wherever both may come before. What lanes outside of its loop have in a
        counter does not matter."""
        sides, meet = self._graph.sides(number), self._graph.reconvergence[number]
        all_of_them = sum(map(len, sides)) != len(self._graph.inside(number))
        used_later = live_at(self._graph, meet)
        for n in self._graph.inside(number):
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
        return ANYTHING if self.any_differs(used, number) else SAME

    def _level(self, expr: Expr, number: int) -> int:
        match expr:
            case Var(name):
                return self._found(name, number)
            case Special(name):
                return self._special.get(name, SAME)
            case Binary(op, lhs, rhs):
                return self._binary(op, lhs, rhs, number)
            case Unary(op, operand):
                level = self._level(operand, number)
                return level if level == SAME or op == "~" else ANYTHING
            case Select(cond, then, other):
                sides = max(self._level(then, number), self._level(other, number))
                return ANYTHING if self._level(cond, number) else sides
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


@cached
def diverging(graph: FlowGraph) -> Diverging:
    """What differs between lanes, elections included."""
    return Diverging(graph)


# ---------------------------------------------------------------------- threads of a CTA


class _OfCta(Diverging):
    """The same of the threads of a CTA.

    What all of them have is computed of numbers that all have, loaded from one address of global
    memory that no instruction writes, or what a barrier of the whole CTA has counted (PTX ISA:
    barrier.red).
    """

    _OWN = MappingProxyType({"warp_id": ANYTHING, "lane_id": LOW_BITS, "thread_id": ANYTHING})

    def _set_to(self, effect: Defines, used: frozenset[str], number: int) -> int:
        match effect.value:
            case JoinsBarrier(id=barrier) as joins:
                threads = self._mir.kernel.warps * _LANES
                agree = joins.count(threads) == threads and not self.differs(barrier, number)
                return SAME if agree else ANYTHING
            case _:
                effects = self._mir.effects[number]
                one = isinstance(self._mir.code[number].what, Computation)
                if not one and not all(map(self._has_one, effects)):
                    return ANYTHING
                return super()._set_to(effect, used, number)

    def _has_one(self, effect: Effect) -> bool:
        """Whether an effect gives a register the value of an expression, or what a load finds in
        memory that no instruction writes."""
        match effect:
            case Defines(value=Expr() | View(), oracle="", unknown=""):
                return not (effect.divergent or effect.elsewhere)
            case Reads(proxy="generic", asynchronous=False, sem="weak", elsewhere=False, view=view):
                return view.cta is None and view.tensor.name in read_only(self._mir)
            case _:
                return False


@cached
def uniform_branches(graph: FlowGraph) -> frozenset[int]:
    """The branches, and what a guard decides, at which all threads of a CTA that come there go the
    same way, whatever that is: each comes there equally often, and decides by the same number."""
    if any(tensor.dependent for tensor in graph.mir.kernel.tensors):
        return frozenset()  # a grid before this one may still write
    found = _OfCta(graph)
    asks = ((n, cond) for n, i in enumerate(graph.mir.code) if (cond := condition(i)) is not None)
    return frozenset(n for n, cond in asks if not found.differs(cond, n)) - found.inside


@cached
def read_only(mir: Mir) -> frozenset[str]:
    """The tensors in global memory that the kernel does not write, and of which a thread has no
    part of its own."""
    written = {name for effects in mir.effects for e in effects for name in tensors_written(e)}
    if not written.isdisjoint((".global", ".generic")):
        return frozenset()
    return frozenset(t.name for t in mir.kernel.tensors if not t.private) - written


# ---------------------------------------------------------------------- registers of some lanes


@cached
def private_registers(graph: FlowGraph) -> frozenset[str]:
    """Registers that only expressions set, without a guard, and these so that no lane that is
    elsewhere by then uses what it had in it.

    To the machine they are one number for all lanes, as is most of what the loop of an elected lane
    computes. Lanes of a warp are elsewhere if a branch has split them, until they meet. Where that
    branch may be, what one of its ways sets is mentioned on no other way, and not used from the
    meeting on.
    """
    mir = graph.mir
    assigned = {
        name
        for name, numbers in mir.setters.items()
        if all(_assigns(mir.effects[n]) and mir.code[n].guard is None for n in numbers)
    }
    names = [reads(mir, n) | sets(mir, n) for n in range(len(mir.code))]
    shared: set[str] = set()
    for number in diverging(graph).splits:
        sides = [frozenset[str]().union(*(names[n] for n in way)) for way in graph.sides(number)]
        several = Counter(name for way in sides for name in way)
        shared.update(name for name, count in several.items() if count > 1)
        shared.update(several.keys() & live_at(graph, graph.reconvergence[number]))
    return mir.local | (assigned - shared)


def _assigns(effects: Collection[Effect]) -> bool:
    """Whether all that an instruction does is to set registers to expressions."""
    return all(isinstance(e, Defines) and isinstance(e.value, Expr) for e in effects)
