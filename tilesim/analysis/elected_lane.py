"""Whether it matters which lane ``elect.sync`` chooses (E12): read off MIR, before it runs.

It does not where lanes that an election leaves alone do nothing that depends on a lane, and where
nothing distinguishes the lanes that they have done since they last met: then what one of them does
any other would have done as well. Nor may anything distinguish them afterwards, before they meet
again: a lane may follow what it did by itself, which it knows only if it was chosen. What stays
with its thread although lanes meet, as groups of copies do, no lane that its number singles out may
go on with at all. The same lane is chosen each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property, partial, reduce
from operator import or_

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.executing_warps import executing
from tilesim.analysis.relaxed import is_fence, is_relaxed
from tilesim.analysis.solver import states
from tilesim.analysis.taint import flow_of, tensors_read, tensors_written
from tilesim.analysis.uniformity import Diverging
from tilesim.analysis.uses_defs import mentions, sets_only
from tilesim.ir.effects import (
    Arrives,
    Commits,
    Completes,
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
    OrdersTmem,
    Reads,
    ReadsMap,
    Registers,
    UsesTmem,
    Waits,
    WaitsGroup,
    Writes,
)
from tilesim.ir.expr import constant
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Join
from tilesim.ir.op import Op

#: the mask of all lanes
_FULL = (1 << 32) - 1
#: what is the same in all lanes that execute it, if no operand differs between them
_COMMON = (
    Arrives, Crosses, Defines, Elects, FencesFragments, Gathers, JoinsBarrier, JoinsCluster,
    Orders, Registers, Waits,
)  # fmt: skip
#: what a lane that does it alone does not follow later for that: a wait for it is by memory
_SEEN_IN_MEMORY = (Arrives, Completes, Defines, Gathers, ReadsMap)


@cached
def depends_on_elected(graph: FlowGraph) -> tuple[int, ...]:
    """The elections of which another outcome might show, by number; none if it cannot."""
    found = (n for n, e in graph.mir.all_of(Defines) if isinstance(e.value, Elects))
    elections = tuple(sorted(found))
    return elections if elections and _Elected(graph, elections).matters else ()


class _Elected:
    """What depends on lanes otherwise than by an election, and what only an elected lane does."""

    def __init__(self, graph: FlowGraph, elections: Iterable[int]) -> None:
        self._graph, self._mir = graph, graph.mir
        self._elections = frozenset(elections)
        #: by instruction: what it tests, and what its operands are made of
        self._names = [named.names for named in mentions(graph.mir)]
        #: what differs between lanes, whichever lane is elected
        self._lanes = Diverging(graph, elections=False)
        #: what differs because one lane was elected, and what only that lane executes
        self._chosen = Diverging(graph, lanes=False)
        guarded = (n for n, i in enumerate(self._mir.code) if self._chosen.differs(i.guard, n))
        self._alone = self._chosen.inside.union(guarded)

    @property
    def matters(self) -> bool:
        """Whether the elected lane does something that depends on a lane, or hands something on
        in registers; or something distinguishes lanes before an election."""
        if not self._of_threads(self._alone).isdisjoint(self._of_threads(self._distinguishing)):
            return True
        if self._tracks_others or self._fences_apart:
            return True
        for number, instruction in enumerate(self._mir.code):
            what = instruction.what
            if number in self._elections or (isinstance(what, Op) and sets_only(what)):
                continue
            apart = self._lanes if number in self._alone else self._chosen
            tested = apart is self._chosen and not isinstance(what, Op)
            if not tested and apart.any_differs(self._deciding(number), number):
                return True
        return any(self._distinguished()) or self._followed

    def _deciding(self, number: int) -> frozenset[str]:
        """What an instruction mentions, but for numbers that it only stores, where nothing that
        decides reads them."""
        what = self._mir.code[number].what
        if not isinstance(what, Op) or self._hands_on(number):
            return self._names[number]
        tested, _, operands = mentions(self._mir)[number]
        return tested.union(*(names for name, _, names in operands if name not in what.data))

    def _hands_on(self, number: int) -> bool:
        """Whether the results of an instruction may decide something."""
        effects = self._mir.effects[number]
        written = frozenset(name for e in effects for name in tensors_written(e))
        steers = not written.isdisjoint(flow_of(self._graph).steering)
        return steers or any(isinstance(e, Defines) for e in effects)

    @property
    def _followed(self) -> bool:
        """Whether an instruction distinguishes lanes while the elected one may be ahead."""
        return any(
            ahead and number in self._distinguishing for number, ahead in self._where(self._ahead)
        )

    @property
    def _tracks_others(self) -> bool:
        """Whether the elected lane alone closes or waits for groups that other lanes issue, too."""
        alone = self._effects(self._alone)
        tracked = {e.group for e in alone if isinstance(e, Commits | WaitsGroup | Arrives)}
        return any(e.group in tracked for n, e in self._mir.all_of(Issues) if n not in self._alone)

    @property
    def _fences_apart(self) -> bool:
        """Whether a fence acts for a relaxed operation with one elected lane only (H3).

        A fence acts for relaxed operations of its own thread. Where the elected lane makes these
        and a lane that its number singles out makes the other accesses, or the other way round,
        the two are one thread or they are not. It does not matter if lanes meet between the other
        access and a fence of all lanes.
        """
        sides = self._alone, self._distinguishing
        return any(
            any(map(is_relaxed, self._effects(relaxed)))
            and (any(map(is_fence, self._effects(other))) or self._fenced_unmet(other))
            for relaxed, other in (sides, sides[::-1])
        )

    def _fenced_unmet(self, numbers: Collection[int]) -> bool:
        """Whether lanes do not meet between one of these instructions and a fence of all lanes."""
        common = frozenset(
            n for n in self._electing.difference(self._alone, self._distinguishing)
            if any(map(is_fence, self._mir.effects[n]))
        )  # fmt: skip
        acting = frozenset(
            n for n in numbers
            if isinstance(what := self._mir.code[n].what, Op) and not sets_only(what)
        )  # fmt: skip

        def since_they_met(first: frozenset[int], number: int, holds: bool) -> bool:
            return number in first or (holds and not self._all_meet(number))

        return any(
            holds and number in then
            for first, then in ((acting, common), (common, acting))
            for number, holds in self._where(partial(since_they_met, first))
        )

    def _effects(self, numbers: Iterable[int]) -> list[Effect]:
        return [effect for n in numbers for effect in self._mir.effects[n]]

    def _of_threads(self, numbers: Iterable[int]) -> frozenset[str]:
        """What instructions leave with the threads that execute them, or go on with."""
        return frozenset(name for e in self._effects(numbers) for name in _own(e))

    @cached_property
    def _electing(self) -> frozenset[int]:
        """What warps that elect execute."""
        warps = executing(self._mir)
        electing = {warp for number in self._elections for warp in warps[number]}
        return frozenset(n for n, own in enumerate(warps) if not electing.isdisjoint(own))

    @cached_property
    def _distinguishing(self) -> frozenset[int]:
        """What distinguishes lanes of warps that elect, but for what the elected one does alone."""
        return frozenset(
            n for n in self._electing - self._alone
            if isinstance(what := self._mir.code[n].what, Op)
            and not sets_only(what) and self._distinguishes(n)
        )  # fmt: skip

    @cached_property
    def _touched(self) -> frozenset[str]:
        """The memory that is accessed by what distinguishes lanes."""
        effects = (
            effect for number in self._distinguishing for effect in self._mir.effects[number]
        )
        return frozenset(name for effect in effects for name in _memory(effect))

    def _distinguished(self) -> Iterator[bool]:
        """Per election, whether lanes that come to it may have done something since they last met
        that distinguishes them, or not all of them elect."""
        for number, apart in self._where(self._after):
            if number in self._elections:
                met = any(map(_meets, self._mir.effects[number]))
                yield (apart and not met) or not self._by_all(number)

    def _where(self, step: Callable[[int, bool], bool]) -> Iterator[tuple[int, bool]]:
        """By instruction, whether something may hold before it that none begins with; ``step`` says
        whether it does behind one."""
        graph = self._graph

        def through(block: int, holds: bool) -> bool:
            return reduce(lambda holds, n: step(n, holds), graph.blocks[block], holds)

        before = states(graph.order, graph.successors, through, or_, False)
        for block, holds in before.items():
            for number in graph.blocks[block]:
                yield number, holds
                holds = step(number, holds)

    def _distinguishes(self, number: int) -> bool:
        """Whether not all lanes execute an instruction, or its operands differ between them."""
        return number in self._lanes.inside or self._lanes.any_differs(self._names[number], number)

    def _ahead(self, number: int, ahead: bool) -> bool:
        """Whether the lane that was chosen may be ahead of the others behind an instruction."""
        what, alone = self._mir.code[number].what, number in self._alone
        if not isinstance(what, Op) or sets_only(what) or not alone:
            return ahead and self._after(number, ahead)
        return ahead or not all(map(self._is_seen_in_memory, self._mir.effects[number]))

    def _is_seen_in_memory(self, effect: Effect) -> bool:
        """Whether the lane that has an effect does not follow it for having had it."""
        if isinstance(effect, Reads | Writes):
            names = _memory(effect)
            elsewhere = names.isdisjoint(self._touched) and not _is_any_address(
                names | self._touched
            )
            return elsewhere or (isinstance(effect, Writes) and effect.asynchronous)
        return isinstance(effect, _SEEN_IN_MEMORY)

    def _after(self, number: int, apart: bool) -> bool:
        """Whether lanes differ behind an instruction."""
        what = self._mir.code[number].what
        if self._all_meet(number):
            return False
        if not isinstance(what, Op) or sets_only(what) or number in self._alone:
            return apart
        common = all(isinstance(e, _COMMON) for e in self._mir.effects[number])
        return apart or self._distinguishes(number) or not common

    def _all_meet(self, number: int) -> bool:
        """Whether an instruction orders what all lanes have done before."""
        instruction = self._mir.code[number]
        if number in self._lanes.inside or number in self._alone:
            return False
        match instruction.what:
            case Join(syncs=syncs):
                return syncs
            case Op() as op if not sets_only(op) and instruction.guard is None:
                return any(map(_meets, self._mir.effects[number]))
            case _:
                return False

    def _by_all(self, number: int) -> bool:
        """Whether all lanes take part in an election."""
        if number in self._lanes.inside or self._lanes.differs(
            self._mir.code[number].guard, number
        ):
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


def _own(effect: Effect) -> Iterator[str]:
    """What an effect leaves with its thread, or goes on with, and no meeting of lanes hands on:
    groups, and what is issued on tensor memory."""
    match effect:
        case Issues(group=group) | Commits(group=group) | WaitsGroup(group=group):
            yield group
        case Arrives(group=str(group)):
            yield group
        case UsesTmem() | OrdersTmem():
            yield "tcgen05"
        case _:
            pass


def _memory(effect: Effect) -> frozenset[str]:
    return frozenset((*tensors_read(effect), *tensors_written(effect)))


def _is_any_address(names: frozenset[str]) -> bool:
    """Whether there is memory among these of which only an address is known."""
    return any(name.startswith(".") for name in names)
