"""Whether it matters which lane ``elect.sync`` chooses (E12): read off MIR, before it runs.

It does not where lanes that an election leaves alone do nothing that depends on a lane, and where
all lanes meet before the election: then what one of them does any other would have done as well.
"""

from __future__ import annotations

from tilesim.ir.dataflow import mentions
from tilesim.ir.effects import Defines, Elects, Gathers
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.splitting import LANE, sides


def depends_on_elected(graph: FlowGraph) -> tuple[int, ...]:
    """The elections of which another outcome might show, by number; none if it cannot."""
    mir = graph.mir
    chosen = {
        effect.var.name: number
        for number, effect in mir.all_of(Defines) if isinstance(effect.value, Elects)
    }  # fmt: skip
    return tuple(sorted(chosen.values())) if chosen and _Elected(graph, chosen).matters else ()


class _Elected:
    """What depends on lanes otherwise than by an election, and what only an elected lane does."""

    def __init__(self, graph: FlowGraph, chosen: dict[str, int]) -> None:
        self._graph, self._mir = graph, graph.mir
        #: by instruction: what it tests, and what its operands are made of
        self._names = [(named.tested, named.used) for named in mentions(graph.mir)]
        self._sets: dict[int, list[Defines]] = {}
        for number, effect in self._mir.all_of(Defines):
            self._sets.setdefault(number, []).append(effect)
        self._chosen = chosen
        #: registers that differ between lanes, whichever lane is elected
        self._lanes, _ = self._spread({*LANE}, divergent=True)
        #: registers that differ because one lane was elected, and what only that lane executes
        self._tainted, self._alone = self._spread({*chosen}, divergent=False)

    @property
    def matters(self) -> bool:
        """Whether the elected lane does something that depends on a lane, or hands something on
        in registers; or lanes may not have met before an election."""
        elections = {*self._chosen.values()}
        for number, (tested, used) in enumerate(self._names):
            if number in elections:
                if not any(isinstance(e, Gathers) and e.orders for e in self._mir.effects[number]):
                    return True
            elif number in self._alone:
                if not (tested.isdisjoint(self._lanes) and used.isdisjoint(self._lanes)):
                    return True
            elif not used.isdisjoint(self._tainted):
                return True
        return False

    def _spread(self, found: set[str], *, divergent: bool) -> tuple[set[str], set[int]]:
        """The registers that depend on those ``found``, and the instructions that not all lanes
        execute for that; with ``divergent`` also what differs by itself, elections aside."""
        inside: set[int] = set()
        steps = [n for n, (tested, _) in enumerate(self._names) if tested or n in self._sets]
        grew = True
        while grew:
            before = len(found), len(inside)
            for number in steps:
                tested, used = self._names[number]
                differs = not tested.isdisjoint(found)
                if differs:
                    inside |= self._under(number)
                differs = differs or not used.isdisjoint(found)
                for effect in self._sets.get(number, ()):
                    if isinstance(effect.value, Elects):
                        continue
                    apart = number in inside and effect.var.name not in self._mir.local
                    if differs or apart or (divergent and effect.divergent):
                        found.add(effect.var.name)
            grew = before != (len(found), len(inside))
        return found, inside

    def _under(self, number: int) -> set[int]:
        """What is executed as an instruction tests something: what it decides, or itself."""
        if number in self._graph.meetings:
            return set[int]().union(*sides(self._graph, number))
        return {number}
