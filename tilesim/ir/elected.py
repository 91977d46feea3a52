"""Whether it matters which lane ``elect.sync`` chooses (E12): read off MIR, before it runs.

It does not where lanes that an election leaves alone do nothing that depends on a lane, and where
nothing tells the lanes apart that they have done since they last met: then what one of them does
any other would have done as well. The same lane is chosen each time.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.ir.dataflow import mentions, sets_only
from tilesim.ir.diverging import Diverging
from tilesim.ir.effects import (
    Arrives,
    Crosses,
    Defines,
    Effect,
    Elects,
    FencesFragments,
    Gathers,
    Issues,
    JoinsBarrier,
    JoinsCluster,
    Orders,
    Registers,
    Waits,
    WaitsGroup,
)
from tilesim.ir.expr import constant
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.mir import Join
from tilesim.ir.op import Op

#: the mask of all lanes
_FULL = (1 << 32) - 1
#: what lanes do alike that all execute it, if no operand differs between them
_ALIKE = (
    Arrives, Crosses, Defines, FencesFragments, Gathers, JoinsBarrier, JoinsCluster, Orders,
    Registers, Waits,
)  # fmt: skip


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
        self._elections = {*chosen.values()}
        #: by instruction: what it tests, and what its operands are made of
        self._names = [named.tested | named.used for named in mentions(graph.mir)]
        #: what differs between lanes, whichever lane is elected
        self._lanes = Diverging(graph, elections=False)
        #: what differs because one lane was elected, and what only that lane executes
        self._chosen = Diverging(graph, lanes=False)
        guarded = (n for n, i in enumerate(self._mir.code) if self._chosen.differs(i.guard))
        self._alone = self._chosen.inside.union(guarded)

    @property
    def matters(self) -> bool:
        """Whether the elected lane does something that depends on a lane, or hands something on
        in registers; or something tells lanes apart before an election."""
        waited = {e.group for n, e in self._mir.all_of(WaitsGroup) if n in self._alone}
        if any(e.group in waited for n, e in self._mir.all_of(Issues) if n not in self._alone):
            return True
        for number, names in enumerate(self._names):
            what = self._mir.code[number].what
            if number in self._elections or (isinstance(what, Op) and sets_only(what)):
                continue
            apart = self._lanes if number in self._alone else self._chosen
            tested = apart is self._chosen and not isinstance(what, Op)
            if not tested and not names.isdisjoint(apart.names):
                return True
        return any(self._told_apart())

    def _told_apart(self) -> Iterator[bool]:
        """Per election, whether lanes that come to it may have done something since they last met
        that tells them apart, or not all of them elect."""
        before = dict.fromkeys(self._graph.order, False)
        grew = True
        while grew:
            grew = False
            for block in self._graph.order:
                apart = before[block]
                for number in self._graph.blocks[block]:
                    apart = self._after(number, apart=apart)
                for after in self._graph.successors[block]:
                    if apart and not before[after]:
                        before[after] = grew = True
        for block in self._graph.order:
            apart = before[block]
            for number in self._graph.blocks[block]:
                if number in self._elections:
                    met = any(map(_meets, self._mir.effects[number]))
                    yield (apart and not met) or not self._by_all(number)
                apart = self._after(number, apart=apart)

    def _after(self, number: int, *, apart: bool) -> bool:
        """Whether lanes are told apart behind an instruction."""
        instruction = self._mir.code[number]
        what, inside = instruction.what, number in self._lanes.inside or number in self._alone
        if isinstance(what, Join):
            return apart and (inside or not what.syncs)
        if not isinstance(what, Op) or sets_only(what):
            return apart
        effects = self._mir.effects[number]
        if not inside and instruction.guard is None and any(map(_meets, effects)):
            return False
        if number in self._alone:
            return apart
        differs = not self._names[number].isdisjoint(self._lanes.names)
        return apart or inside or differs or not all(isinstance(e, _ALIKE) for e in effects)

    def _by_all(self, number: int) -> bool:
        """Whether all lanes take part in an election."""
        if number in self._lanes.inside or self._lanes.differs(self._mir.code[number].guard):
            return False
        gathers = [e for e in self._mir.effects[number] if isinstance(e, Gathers)]
        return all(e.mask is None or constant(e.mask) == _FULL for e in gathers)


def _meets(effect: Effect) -> bool:
    """Whether an effect orders what all lanes of a warp that execute it have done."""
    match effect:
        case Gathers(mask=mask, orders=True):
            return mask is None or constant(mask) == _FULL
        case JoinsBarrier(waits=waits):
            return waits
        case _:
            return False
