"""Where all that tcgen05.ld has loaded has been stored (SEMANTICS U33).

What stores a register has it, so the load that sets the register has read tensor memory. The load
of a warp is one instruction: it is over where all of its registers have been stored by all lanes,
and whoever comes after the stores comes after it, as behind ``tcgen05.wait::ld``. So does a
tcgen05.st whose registers are made of all that it has loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.solver import states
from tilesim.analysis.uses_defs import expressions_in, mentions_of
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.effects import Defines, Effect, UsesFragment, UsesTmem, WaitsGroup, Writes
from tilesim.ir.expr import Var, walk
from tilesim.ir.op import Op
from tilesim.sim.machine.facts import Drained

_LOADS, _STORES = "tcgen05.ld", "tcgen05.st"
#: what holds what tcgen05.st has been given since ``tcgen05.wait::st``: no register has its name
_GIVEN = "tcgen05.st"


def drained(graph: FlowGraph) -> Drained:
    """What has been stored where, in a program."""
    loads: dict[int, list[str]] = {}
    for number, effect in graph.mir.all_of(Defines):
        if effect.group == _LOADS:
            loads.setdefault(number, []).append(effect.var.name)
    return _Flow(graph, loads).found if loads else Drained()


@dataclass
class _Left:
    """At one place: what has been loaded and may not have been stored, as bits, and of that, what
    each register holds something that is made of, where it has not been stored."""

    bits: int
    holds: dict[str, int]

    def joined(self, other: _Left) -> _Left:
        """What is so on the ways of either."""
        bits = self.bits | other.bits
        holds: dict[str, int] = {}
        for name in {*self.holds, *other.holds}:
            own = self.holds.get(name, 0) | ~self.bits
            held = own & (other.holds.get(name, 0) | ~other.bits) & bits
            if held:
                holds[name] = held
        return _Left(bits, holds)

    def held_by(self, names: Iterable[str]) -> int:
        """What any of these registers is made of."""
        found = 0
        for name in names:
            found |= self.holds.get(name, 0)
        return found

    def load(self, registers: Mapping[str, int], lost: int) -> None:
        """Registers are loaded, each with its bit."""
        own = sum(registers.values())
        if self.bits & own:
            self.bits |= lost
        self.bits |= own
        for name in [name for name, held in self.holds.items() if held & own]:
            self.holds[name] &= ~own
        self.holds.update(registers)

    def store(self, held: int) -> bool:
        """What is made of that is stored; whether it is the last of what was left."""
        was, self.bits = self.bits, self.bits & ~held
        return bool(was) and not self.bits


class _Flow:
    """What is left at the beginning of each block, from the loads on."""

    def __init__(self, graph: FlowGraph, loads: Mapping[int, list[str]]) -> None:
        self._graph = graph
        #: by load: a bit for each of its registers, and one for that some of them are lost: it was
        #: executed again before they had been stored
        self._loads: dict[int, tuple[dict[str, int], int]] = {}
        place = 0
        for number, names in loads.items():
            bits = {name: 1 << place + k for k, name in enumerate(names)}
            place += len(names) + 1
            self._loads[number] = bits, 1 << place - 1
        #: what the assembler may keep in registers
        self._private = frozenset(t.name for t in graph.mir.kernel.tensors if t.private)
        self._stored: set[int] = set()
        self._given: dict[int, frozenset[int]] = {}

    @property
    def found(self) -> Drained:
        """Where nothing is left."""
        graph = self._graph
        before = states(graph.order, graph.successors, self._through, _Left.joined, _Left(0, {}))
        self._stored, self._given = set(), {}
        for block, left in before.items():
            self._through(block, left)
        return Drained(frozenset(self._stored), self._given)

    def _through(self, block: int, before: _Left) -> _Left:
        """What is left behind a block."""
        left = _Left(before.bits, dict(before.holds))
        for number in self._graph.blocks[block]:
            if number in self._loads:
                left.load(*self._loads[number])
            elif left.bits:
                what = self._graph.mir.code[number].what
                if isinstance(what, Op):
                    self._pass(left, number, what)
        return left

    def _pass(self, left: _Left, number: int, op: Op) -> None:
        """An instruction that loads nothing."""
        instruction, effects = self._graph.mir.code[number], op.effects()
        if instruction.guard is None:
            if any(map(_waits_for_loads, effects)):
                left.bits, left.holds = 0, {}
            elif any(map(_waits_for_stores, effects)):
                if left.store(left.holds.pop(_GIVEN, 0)):
                    self._stored.add(number)
            elif any(map(self._stores, effects)):
                if left.store(left.held_by(_data(op))):
                    self._stored.add(number)
            elif any(map(_gives, effects)):
                held = left.held_by(_data(op))
                left.holds[_GIVEN] = left.holds.get(_GIVEN, 0) | held
                whole = (
                    n for n, (bits, _) in self._loads.items() if not sum(bits.values()) & ~held
                )
                self._given[number] = frozenset(map(self._load_before, whole))
        sets = [e.var.name for e in effects if isinstance(e, Defines)]
        made = left.held_by(mentions_of(instruction).used) if len(sets) == len(effects) else 0
        for name in sets:
            kept = -1 if instruction.guard is None else left.holds.get(name, 0)
            left.holds[name] = made & kept

    def _load_before(self, number: int) -> int:
        """The load whose registers an instruction sets."""
        effects = self._graph.mir.effects
        return next(
            n for n in range(number, -1, -1)
            if any(isinstance(e, UsesTmem) and e.kind == "ld" for e in effects[n])
        )  # fmt: skip

    def _stores(self, effect: Effect) -> bool:
        """Whether it writes what lanes give it, when it is executed, where others may see it."""
        if not isinstance(effect, Writes) or effect.proxy != "generic" or effect.asynchronous:
            return False
        tensor = effect.view.tensor
        if not isinstance(tensor, AddressedTensor):
            return tensor.name not in self._private
        if tensor.space.startswith("shared"):
            return True
        places = (tensor.within,) if tensor.within else tensor.among or tuple(self._private)
        return self._private.isdisjoint(places)


def _waits_for_loads(effect: Effect) -> bool:
    return isinstance(effect, WaitsGroup) and effect.group == _LOADS


def _waits_for_stores(effect: Effect) -> bool:
    return isinstance(effect, WaitsGroup) and effect.group == _STORES


def _gives(effect: Effect) -> bool:
    """Whether it is of registers that tcgen05.st stores."""
    return isinstance(effect, UsesFragment) and effect.write and effect.partly


def _data(store: Op) -> set[str]:
    """The registers in what a store stores."""
    found = (e for name in store.data for e in expressions_in(getattr(store, name)))
    return {part.name for e in found for part in walk(e) if isinstance(part, Var)}
