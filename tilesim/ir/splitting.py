"""Into how many parts the lanes of a warp may fall: read off MIR, before it runs.

A warp acts as one where all lanes execute an instruction, and where some of them act between two
meetings of all while the others do nothing. Everywhere else its parts have clocks of their own
(`tilesim.sim.machine.parts`), and room for these has to be made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.dataflow import expressions_in, mentioned, mentions
from tilesim.ir.effects import Defines, Exits
from tilesim.ir.expr import Expr, Var, constant
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.kept import kept
from tilesim.ir.memory import Mbar
from tilesim.ir.mir import Branch, Join
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, SyncWarp
from tilesim.ir.scalars import word_access

#: special registers that differ between the lanes of a warp, as no variable may be called
LANE = ("%lane_id", "%thread_id")
#: lanes of a warp
_ALL = 32
_FULL = (1 << _ALL) - 1


@kept
def parts_of(graph: FlowGraph) -> dict[int, int]:
    """By warp that does not always act as one: into how many parts its lanes may fall."""
    return _Splitting(graph).parts


def sides(graph: FlowGraph, number: int) -> list[set[int]]:
    """What may be executed on each side of a branch before its lanes meet."""
    meet = graph.meetings[number]
    starts = (graph.blocks[b].start for b in graph.successors[graph.block_of[number]])
    return [graph.between(start, meet) for start in starts]


class _Splitting:
    """What the branches of a program do to the lanes of its warps."""

    def __init__(self, graph: FlowGraph) -> None:
        self._graph = graph
        self._mir = graph.mir
        self._mentions = mentions(graph.mir)
        self._regions: dict[int, set[int]] = {}
        self._splits: set[int] = set()
        #: registers whose value may differ between the lanes of a warp
        self._divergent: set[str] = {*LANE}
        self._diverge()
        self._apart = set[int]().union(*(self._region(n) for n in self._splits))
        self.parts: dict[int, int] = {}
        self._count()

    # ------------------------------------------------------------------ what differs

    def _diverge(self) -> None:
        """Finds the branches that split lanes, and the registers that may differ between them."""
        inside: set[int] = set()
        steps = [*self._steps()]
        grew = True
        while grew:
            before = len(self._divergent), len(self._splits)
            for number, tested, used, defined in steps:
                differs = not tested.isdisjoint(self._divergent)
                if defined:
                    differs = differs or not used.isdisjoint(self._divergent)
                    for effect in defined:
                        # what lanes outside of its loop have in a counter does not matter
                        apart = number in inside and effect.var.name not in self._mir.local
                        if differs or apart or effect.divergent:
                            self._divergent.add(effect.var.name)
                elif differs and number in self._graph.meetings and number not in self._splits:
                    self._splits.add(number)
                    inside |= self._region(number)
            grew = before != (len(self._divergent), len(self._splits))

    def _steps(self) -> Iterator[tuple[int, frozenset[str], frozenset[str], list[Defines]]]:
        """What sets registers or tests them: what is tested, used besides, and set."""
        defined: dict[int, list[Defines]] = {}
        for number, effect in self._mir.all_of(Defines):
            defined.setdefault(number, []).append(effect)
        for number, named in enumerate(self._mentions):
            sets = defined.get(number, [])
            if named.tested or sets:
                yield number, named.tested, named.used, sets

    def _differs(self, names: frozenset[str]) -> bool:
        return not names.isdisjoint(self._divergent)

    def _region(self, number: int) -> set[int]:
        """What lanes that a branch splits may execute before they meet."""
        if number not in self._regions:
            self._regions[number] = set().union(*self._sides(number))
        return self._regions[number]

    def _sides(self, number: int) -> list[set[int]]:
        return sides(self._graph, number)

    # ------------------------------------------------------------------ how often

    def _count(self) -> None:
        for number in sorted(self._splits):
            if not self._simple(number):
                self._add(number, _ALL if self._repeats(number) else len(self._sides(number)))
        for number, instruction in enumerate(self._mir.code):
            op, guard = instruction.what, instruction.guard
            if not isinstance(op, Op):
                continue
            if guard is not None and self._differs(self._mentions[number].tested):
                self._add(number, _ALL if self._repeats(number) else 2)
            if op.mnemonic.startswith("mbarrier.") and self._differs(self._mentions[number].used):
                self._add(number, _ALL)  # lanes may name barriers or phases of their own
            access = word_access(op.effects())
            if access is not None and access.sem != "weak":
                # lanes may tell what they know at words of their own, and learn there
                where = mentioned(*expressions_in(access.view))
                if self._differs(where):
                    self._add(number, _ALL)
        for number in self._crowds():
            self._add(number, 1)

    def _add(self, number: int, factor: int) -> None:
        for warp in self._mir.code[number].warps:
            self.parts[warp] = min(_ALL, self.parts.get(warp, 1) * factor)

    def _repeats(self, number: int) -> bool:
        """Whether an instruction may be executed again."""
        graph, end = self._graph, len(self._mir.code)
        after = graph.successors[graph.block_of[number]]
        return any(number in graph.between(graph.blocks[b].start, end) for b in after)

    def _simple(self, number: int) -> bool:
        """Whether the lanes have met before a branch, the others act as one, and those that it
        sends away do nothing until all meet again."""
        branch, meet = self._mir.code[number].what, self._graph.meetings[number]
        if number in self._apart or not isinstance(branch, Branch) or branch.target != meet:
            return False
        if not self._met_before(number) or not self._meets_at(meet):
            return False
        if isinstance(branch.cond, Var) and branch.cond.name in self._elected - self._met:
            return False
        inside = self._region(number)
        return inside.isdisjoint(self._splits) and not any(map(self._ends, inside))

    def _met_before(self, number: int) -> bool:
        match self._mir.code[number - 1].what if number else None:
            case ElectSync(warp_sync=meets) | Join(syncs=meets):
                return meets
            case SyncWarp(mask=mask):
                return mask == _FULL
            case _:
                return False

    def _meets_at(self, meet: int) -> bool:
        match [i.what for i in self._mir.code[meet : meet + 2]]:
            case [Join(syncs=True), *_]:
                return True
            case [Join(), SyncWarp(mask=mask)]:
                return mask == _FULL
            case _:
                return False

    def _ends(self, number: int) -> bool:
        return any(isinstance(e, Exits) for e in self._mir.effects[number])

    # ------------------------------------------------------------------ one lane, many lanes

    @cached_property
    def _elected(self) -> frozenset[str]:
        """Registers that only ``elect.sync`` writes: they hold in one lane."""
        return self._set_by_elect(meets=False)

    @cached_property
    def _met(self) -> frozenset[str]:
        """Those of them that it writes when the lanes have met."""
        return self._set_by_elect(meets=True)

    def _set_by_elect(self, *, meets: bool) -> frozenset[str]:
        code, setters = self._mir.code, self._mir.setters
        kinds = {name: [code[n].what for n in numbers] for name, numbers in setters.items()}
        return frozenset(
            name
            for name, ops in kinds.items()
            if all(isinstance(op, ElectSync) and (op.warp_sync or not meets) for op in ops)
        )

    def _crowds(self) -> list[int]:
        """Where several lanes arrive at once at barriers of which no count is known to be whole.

        Lanes of one arrive may end a phase and others begin the next; what they then publish is
        what they know of each other, which only warps that have parts keep account of.
        """
        barriers = [
            (number, op, mbar)
            for number, op in enumerate(i.what for i in self._mir.code)
            if isinstance(op, Op) and isinstance(mbar := getattr(op, "mbar", None), Mbar)
        ]
        # one that is named by its address may be any
        anywhere = any(isinstance(mbar.array, AddressedMbarriers) for _, _, mbar in barriers)
        single = self._single()
        inits: dict[str, list[int | None]] = {}
        crowds: dict[str, list[int]] = {}
        for number, op, mbar in barriers:
            name = "" if anywhere else mbar.array.name
            count = getattr(op, "count", None)
            if op.mnemonic == "mbarrier.init" and isinstance(count, Expr):
                inits.setdefault(name, []).append(constant(count))
            elif "arrive" in op.mnemonic and number not in single:
                crowds.setdefault(name, []).append(number)
        return [
            number
            for name, numbers in crowds.items()
            if any(count is None or count % _ALL for count in inits.get(name, []))
            for number in numbers
        ]

    def _single(self) -> set[int]:
        """What only an elected lane executes."""
        found: set[int] = set()
        for number in self._splits:
            branch = self._mir.code[number].what
            if not isinstance(branch, Branch) or not isinstance(branch.cond, Var):
                continue
            if branch.cond.name in self._elected:
                graph, meet = self._graph, self._graph.meetings[number]
                taken = graph.between(branch.target, meet)
                other = graph.between(number + 1, meet)
                found |= taken - other if branch.sense else other - taken
        return found
