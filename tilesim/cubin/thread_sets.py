"""The threads of a CTA that can come to each place of a kernel, as far as its branches say.

A branch is decided for each thread by the terms of its predicate (`value_graph`): what depends on
``SR_TID`` and constants alone has a value, all else has none, and both ways are open then. What is
returned holds at least the threads that can come to a place: roles of warps are found so. Of
``ELECT`` one thread of those of the warp that come to it is taken; which one, PTX leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from tilesim.cubin.arithmetic import Term, constant, number, read, source
from tilesim.cubin.image import TABLES, Triple
from tilesim.cubin.operands import WORD, Constant, Immediate, Register, parse
from tilesim.cubin.operands import read as registers_read
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.cubin.value_graph import (
    Asked,
    Condition,
    Given,
    Node,
    OfSome,
    Turns,
    ValueGraph,
    Vote,
)
from tilesim.cubin.versions import Initial, Meeting, Written

#: threads of a warp
LANES = 32
#: what each thread has: one value of all, or one each; None is not known
_Values = int | None | tuple[int | None, ...]
#: what the threads of a warp make together of the values that they have
_OfWarp = Callable[[set[int]], int | None]
#: executed once for a warp; all others once for each thread
_ONCE_A_WARP = frozenset(
    {"UTMALDG", "UBLKCP", "UBLKRED", "UTCBAR", "UGETNEXTWORKID", "UTMASTG", "UTMAREDG"}
)
#: beginnings of what differs between threads of a CTA
_OF_THREADS = ("SR_TID", "SR_LANEID", "SR_WARPID", "SR_VIRTID")


class ThreadSets:
    """Which threads of a CTA can come to the places of a function.

    Sets are masks: bit n is the thread with the linear number n. Those of unknown branches
    (``function.unknown``) are not right.
    """

    def __init__(
        self, function: Function, block: Triple, graph: ValueGraph, tables: bytes = b""
    ) -> None:
        """``graph`` must be one without values that are known of registers of one thread;
        ``tables`` are what `Image.tables` gives."""
        self.function = function
        self._tables = tables
        self.block = block
        self.count = block[0] * block[1] * block[2]
        self.all = (1 << self.count) - 1
        self._graph = graph
        self._values: dict[Node, _Values] = {}
        self._varying: dict[Node, bool] = {}
        #: of each edge, the threads that can take it; empty until it is known
        self._edges: dict[tuple[int, int], int] = {}
        self._masks: dict[int, int] = {}
        self._propagate()
        # again, now that it is known which threads come to what meets, and to ELECT
        self._values = {}
        self._propagate()

    # ------------------------------------------------------------------ questions

    def coming(self, pc: int) -> int:
        """The threads that can come to a place."""
        return self._masks.get(pc, 0)

    def executing(self, pc: int) -> int:
        """The threads that can execute the instruction at a place: its guard may be true."""
        guard = self.function.code[pc].guard
        here = self.coming(pc)
        term = source(guard) if guard else None
        return here if term is None else here & self._mask(Asked(term, pc), True)

    def issuing(self, pc: int) -> int:
        """The threads for which the instruction at a place is executed, each once.

        Instructions of the uniform datapath are executed once for the warp; where each thread has
        operands of its own, ptxas puts them into a loop over threads: ``ELECT`` under a predicate
        that is true in those that are left, and ``BRA.U.ANY`` while there are any.
        """
        here = self.executing(pc)
        if self.function.code[pc].base not in _ONCE_A_WARP:
            return here
        loop = self._loop_over_threads(pc)
        if loop is not None:
            return here & loop
        first = 0
        for start in range(0, self.count, LANES):
            of_warp = here & ((1 << LANES) - 1) << start
            first |= of_warp & -of_warp
        return first

    def _loop_over_threads(self, pc: int) -> int | None:
        """The threads with which such a loop around a place begins; None if there is none."""
        start = self._graph.versions.start(pc)
        at = start
        while at in self.function.code and self._graph.versions.start(at) == start:
            one = self.function.code[at]
            left = self._graph.versions.version(one.guard, at) if one.base == "ELECT" else None
            if isinstance(left, Meeting):
                found = 0
                for before, version in self._graph.versions.met(left):
                    if not self._graph.versions.dominates(left.pc, before):
                        found |= self._mask(version, True)
                return found
            at += WIDTH
        return None

    def is_exact(self, pc: int) -> bool:
        """Whether no branch that may differ between threads is left open on the way to a place, nor
        its guard: of the threads that can execute it, all do so, or none, as often as each other.
        """
        return pc in self._masks and not any(
            self._is_open(one, at) for one, at in self._conditions(pc)
        )

    def values(self, term: Term, pc: int) -> Mapping[int, int] | None:
        """The value of a term in each thread that can execute the instruction at a place; None if
        it is not known in one of them."""
        found = self._value(self._graph.add(Asked(term, pc)))
        left = self.executing(pc)
        of: dict[int, int] = {}
        for thread in _threads(left):
            one = found[thread] if isinstance(found, tuple) else found
            if one is None:
                return None
            of[thread] = one
        return of

    def varies(self, term: Term, pc: int) -> bool:
        """Whether a term may have other values in other threads of the CTA."""
        return self._varies(self._graph.add(Asked(term, pc)))

    # ------------------------------------------------------------------ branches

    def _propagate(self) -> None:
        """The threads that can come to each place, and take each edge."""
        masks = {0: self.all} if 0 in self.function.code else {}
        edges: dict[tuple[int, int], int] = {}
        allowed: dict[tuple[int, int], int] = {}
        todo = [*masks]
        while todo:
            pc = todo.pop()
            for after in self.function.successors[pc]:
                edge = pc, after
                if edge not in allowed:
                    allowed[edge] = self._along(pc, after)
                there = edges[edge] = masks[pc] & allowed[edge]
                if there & ~masks.get(after, 0):
                    masks[after] = masks.get(after, 0) | there
                    todo.append(after)
        self._masks, self._edges = masks, edges

    def _along(self, pc: int, after: int) -> int:
        """The threads for which the branch at a place may lead to another."""
        one = self.function.code[pc]
        if one.base != "EXIT" and len(self.function.successors[pc]) < 2:
            return self.all
        if one.base in ("BRX", "BRXU"):
            return self._along_table(one, after)
        found = self.all
        for condition in self._graph.condition(pc, after):
            found &= self._mask(condition.node, condition.holds)
        return found

    def _along_table(self, one: Instruction, after: int) -> int:
        """The threads for which a branch to an address may lead to a place."""
        register, offset = parse(one.operands[0]), parse(one.operands[-1])
        if not isinstance(register, Register) or not isinstance(offset, Immediate):
            return self.all
        values = self._value(self._graph.add(Asked(read(register.name), one.pc)))
        shift = one.pc + WIDTH + (offset.value or 0)
        if not isinstance(values, tuple):
            return self.all if values is None or values + shift & WORD == after else 0
        found = 0
        for thread, value in enumerate(values):
            if value is None or value + shift & WORD == after:
                found |= 1 << thread
        return found

    def _mask(self, node: Node, holds: bool) -> int:
        """The threads in which a predicate may be so."""
        values = self._value(self._graph.add(node))
        if not isinstance(values, tuple):
            return self.all if values is None or bool(values) == holds else 0
        found = 0
        for thread, value in enumerate(values):
            if value is None or bool(value) == holds:
                found |= 1 << thread
        return found

    def _conditions(self, pc: int) -> list[tuple[Condition, int]]:
        """What must hold on each path to a place, each with the place of its branch."""
        found: list[tuple[Condition, int]] = []
        guard = self.function.code[pc].guard
        term = source(guard) if guard else None
        if term is not None:
            found.append((Condition(self._graph.add(Asked(term, pc)), True), pc))
        versions = self._graph.versions
        start = versions.start(pc)
        while (last := versions.dominator(start)) is not None:
            before = [one for one in versions.before(start) if not versions.dominates(start, one)]
            if before == [last]:
                found += [(one, last) for one in self._graph.condition(last, start)]
            start = versions.start(last)
        return found

    def _is_open(self, condition: Condition, pc: int) -> bool:
        """Whether a predicate is not known in a thread that comes to its branch, and may differ."""
        values = self._value(condition.node)
        if isinstance(values, tuple):
            known = all(values[thread] is not None for thread in _threads(self.coming(pc)))
        else:
            known = values is not None
        return not known and self._varies(condition.node)

    # ------------------------------------------------------------------ values

    def _value(self, node: Node) -> _Values:
        """The value of a node in each thread; what depends on itself is not known."""
        todo = [node]
        begun: set[Node] = set()
        while todo:
            one = todo[-1]
            if one in self._values:
                todo.pop()
                continue
            needs = self._needs(one) if one not in begun else []
            begun.add(one)
            missing = [n for n in needs if n not in self._values and n not in begun]
            if missing:
                todo += missing
                continue
            if any(n not in self._values and n != one for n in self._needs(one)):
                self._values[one] = None  # it depends on what is being computed
            else:
                self._values[one] = self._computed(one)
            todo.pop()
        return self._values[node]

    def _needs(self, node: Node) -> list[Node]:
        graph = self._graph
        graph.add(node)
        if isinstance(node, Meeting) and graph.plans[node].term is None:
            return [graph.add(version) for _, version in graph.versions.met(node)]
        if isinstance(node, Vote):
            return [graph.add(node.predicate)]
        if isinstance(node, OfSome):
            return [graph.add(node.asked), graph.add(node.guard)]
        if isinstance(node, Written) and self.function.code[node.pc].base == "ELECT":
            return []
        if (entry := self._entry(node)) is not None:
            return [graph.add(entry)]
        plan = graph.plans[node]
        return [] if plan.term is None else [*plan.sources.values()]

    def _computed(self, node: Node) -> _Values:
        if isinstance(node, Given):
            return self._given(node)
        if isinstance(node, Meeting) and self._graph.plans[node].term is None:
            return self._met(node)
        if isinstance(node, Vote):
            wanted = {0} if node.sign == "!" else {1}
            return self._each_warp(
                self._values[node.predicate], self._coming_first(node.pc),
                lambda values: int(values == wanted),
            )  # fmt: skip
        if isinstance(node, OfSome):
            guard = self._values[node.guard]
            executing = self._coming_first(node.asked.pc)
            for thread in _threads(executing):
                if (guard[thread] if isinstance(guard, tuple) else guard) == 0:
                    executing &= ~(1 << thread)
            return self._each_warp(
                self._values[node.asked], executing,
                lambda values: min(values) if len(values) == 1 else None,
            )  # fmt: skip
        if isinstance(node, Written) and self.function.code[node.pc].base == "ELECT":
            return self._elected(node)
        if (entry := self._entry(node)) is not None:
            places = self._values[self._graph.add(entry)]
            if isinstance(places, tuple):
                return self._packed([*map(self._word, places)])
            return self._word(places)
        plan = self._graph.plans[node]
        if plan.term is None or isinstance(node, Initial | Turns):
            return None
        of = {name: self._values[one] for name, one in plan.sources.items()}
        each = {name: one for name, one in of.items() if isinstance(one, tuple)}
        fixed = {name: one for name, one in of.items() if not isinstance(one, tuple)}
        if not each:
            return number(plan.term, fixed)
        return self._packed(
            [
                number(plan.term, {**fixed, **{name: one[thread] for name, one in each.items()}})
                for thread in range(self.count)
            ]
        )

    def _entry(self, node: Node) -> Asked | None:
        """The place in a table from which a node is read; None of others."""
        if not isinstance(node, Written):
            return None
        one = self.function.code[node.pc]
        if one.opcode not in ("LDC", "ULDC", "LDCU") or one.guard:
            return None
        of = parse(one.operands[1])
        if not isinstance(of, Constant) or of.bank != TABLES or of.register is None or of.sign:
            return None
        return Asked(Term("add", (read(of.register), constant(of.offset))), node.pc)

    def _word(self, place: int | None) -> int | None:
        """A word of the tables."""
        if place is None or place + 4 > len(self._tables):
            return None
        return int.from_bytes(self._tables[place : place + 4], "little")

    def _packed(self, values: list[int | None]) -> _Values:
        return values[0] if values and len({*values}) == 1 else tuple(values)

    def _given(self, node: Given) -> _Values:
        x, y, _ = self.block
        match node.name:
            case "SR_TID.X":
                return self._packed([n % x for n in range(self.count)])
            case "SR_TID.Y":
                return self._packed([n // x % y for n in range(self.count)])
            case "SR_TID.Z":
                return self._packed([n // (x * y) for n in range(self.count)])
            case "SR_LANEID":
                return self._packed([n % LANES for n in range(self.count)])
        values = node.values
        return min(values) if isinstance(values, frozenset) and len(values) == 1 else None

    def _met(self, node: Meeting) -> _Values:
        """Of each thread, what all paths that it may take bring."""
        met = [(pc, self._values[one]) for pc, one in self._graph.versions.met(node)]
        if not self._edges:
            found = {values for _, values in met}
            return found.pop() if len(found) == 1 else None
        result: list[int | None] = []
        for thread in range(self.count):
            of: set[int | None] = set()
            for pc, values in met:
                if pc < 0 or self._edges.get((pc, node.pc), 0) >> thread & 1:
                    of.add(values[thread] if isinstance(values, tuple) else values)
            result.append(of.pop() if len(of) == 1 else None)
        return self._packed(result)

    def _coming_first(self, pc: int) -> int:
        """The threads that can come to a place, as far as that is known already."""
        return self._masks.get(pc, 0) if self._edges else self.all

    def _each_warp(self, values: _Values, coming: int, of: _OfWarp) -> _Values:
        """What the threads of each warp make together of what they have."""
        if not isinstance(values, tuple):
            return None if values is None else of({values})
        result: list[int | None] = []
        for start in range(0, self.count, LANES):
            threads = range(start, min(start + LANES, self.count))
            found = {values[thread] for thread in threads if coming >> thread & 1}
            known = {value for value in found if value is not None}
            one = of(known) if known and len(known) == len(found) else None
            result += [one] * len(threads)
        return self._packed(result)

    def _elected(self, node: Written) -> _Values:
        """Of ``ELECT``: the first thread of each warp that comes to it; of one in a loop over
        threads, each of them in its turn."""
        if self.function.code[node.pc].guard:
            return 1 if self._graph.elects(node) else None
        if "P" not in node.register:
            return None
        coming = self._coming_first(node.pc)
        result: list[int | None] = [0] * self.count
        for start in range(0, self.count, LANES):
            first = next(_threads(coming >> start & (1 << LANES) - 1), None)
            if first is not None:
                result[start + first] = 1
        return self._packed(result)

    # ------------------------------------------------------------------ what differs

    def _varies(self, node: Node) -> bool:
        """Whether the value of a node may differ between threads of the CTA."""
        known = self._varying.get(node)
        if known is not None:
            return known
        seen: set[Node] = set()
        todo = [node]
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            if self._varying.get(one) or (
                isinstance(one, Given) and one.name.startswith(_OF_THREADS)
            ):
                self._varying[node] = True
                return True
            values = self._value(one)
            if values is None or isinstance(values, tuple):
                todo += self._made_of(one)
        self._varying[node] = False
        return False

    def _made_of(self, node: Node) -> list[Node]:
        """What a node depends on, by its term or by the registers that its instruction reads."""
        if needs := self._needs(node):
            return needs
        if not isinstance(node, Written):
            return []
        one = self.function.code[node.pc]
        if one.base == "SYNCS":  # that a phase has completed is so for all in the end
            return []
        if one.base == "ELECT":
            return [self._graph.add(Asked(read("SR_LANEID"), node.pc))]
        names = [*registers_read(one), *(o for o in one.operands if o.startswith("SR_"))]
        return [self._graph.add(Asked(read(name), node.pc)) for name in names]

    @cached_property
    def warps(self) -> int:
        """How many warps the CTA has."""
        return -(-self.count // LANES)

    def warps_of(self, mask: int) -> tuple[int, ...]:
        """The warps of threads."""
        whole = (1 << LANES) - 1
        return tuple(n for n in range(self.warps) if mask >> n * LANES & whole)


def _threads(mask: int) -> Iterator[int]:
    """The numbers of the threads of a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
