"""What registers hold in each thread of a CTA, and which threads come to each place of a kernel.

Constants are propagated forwards for all threads at once, along the branches that a thread may
take: what depends on ``SR_TID``, numbers and tables alone is known, roles of warps among it. All
else has a name instead: a number below 0, the same in threads of a warp in which an instruction
made it of the same; between warps it means nothing. None may be anything in each thread. Of
``ELECT`` the first thread of those of the warp that come to it is taken; which one, PTX leaves
open. Each wait is taken to be over in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import product
from time import monotonic

from tilesim.cubin.arithmetic import Term, computed, constant, number, read, reads, source
from tilesim.cubin.image import TABLES, Triple
from tilesim.cubin.operands import WORD, Constant, Memory, following, parse, written
from tilesim.cubin.operands import read as registers_read
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.cubin.versions import Meeting, Version, Versions, Written

#: threads of a warp
LANES = 32
#: what a thread has, see above; a tuple has that of each thread, else all have the same
Value = int | None
Values = Value | tuple[Value, ...]
State = dict[str, Values]

#: times that a block is looked at before the rest is given up
_MOST_ROUNDS = 60
#: predicates of which both values are tried
_MOST_FREE = 3
#: special registers that are the same in all threads of a CTA
_OF_CTA = ("SR_CTAID", "SR_NCTAID", "SR_Cga", "SR_SWINHI", "SR_GRIDID", "c[")
#: what makes the same of the same, beside all that is of the uniform datapath (``U``)
_PURE = frozenset({
    "FADD", "FFMA", "FMNMX", "FMUL", "FSEL", "FSETP", "F2I", "I2F", "I2FP", "IABS", "IADD", "IADD3",
    "IDP", "IMAD", "ISETP", "LD", "LDC", "LDG", "LDS", "LEA", "LOP3", "MOV", "MUFU", "P2R", "PLOP3",
    "POPC", "PRMT", "R2P", "R2UR", "S2R", "S2UR", "SEL", "SGXT", "SHF", "SYNCS", "VIADD",
    "VIADDMNMX", "VIMNMX", "CS2R",
})  # fmt: skip
#: where the size of the block is in constant bank 0, by where parameters begin: sm_90 and sm_100
_BLOCK_AT = {0x210: 0x0, 0x380: 0x360}
#: the place of a CTA in its cluster: bits 24 and up of an address of its shared memory; addresses
#: are those within the CTA, as if it were 0 there
RANK, _RANK_AT = "SR_CgaCtaId", 24
#: where threads that end go
_END = -1


class ThreadValues:
    """What is known of the threads of a CTA; sets of threads are masks: bit n is thread n.

    ``complete`` is False if it took too long: nothing is known then. Unknown branches
    (``function.unknown``) must not be there.
    """

    def __init__(
        self, function: Function, block: Triple, parameters_at: int | None, tables: bytes,
        questions: Collection[int], until: float,
    ) -> None:  # fmt: skip
        """``tables`` are what `Image.tables` gives. ``questions`` are the places of instructions of
        which operands and guards are asked for; after ``until`` it is given up."""
        self.function = function
        self.block = block
        self.count = block[0] * block[1] * block[2]
        self.all = (1 << self.count) - 1
        start = _BLOCK_AT.get(parameters_at or 0)
        self._sizes = {} if start is None else {
            f"c[0x0][{start + 4 * n:#x}]": size for n, size in enumerate(block)
        }  # fmt: skip
        self._tables = tables
        self._names: dict[Hashable, int] = {}
        self._starts = _starts(function)
        self._blocks = {start: self._members(start) for start in self._starts}
        self._after = {start: self._following(start) for start in self._starts}
        #: of each edge between blocks, the threads that may take it; what they have at its end
        self._edges: dict[tuple[int, int], int] = {}
        self._ends: dict[int, State] = {}
        self._coming: dict[int, int] = {}
        self._at: dict[int, State] = {}
        #: of each branch that is not decided in all threads, its predicate
        self._open: dict[int, Values] = {}
        self._parted: set[int] = set()
        #: of each block, what its instructions leave in registers, in their order
        self._written: dict[int, dict[str, list[tuple[int, Values]]]] = {}
        self._needed = _needed(function, questions)
        self.complete = self._solved(until)

    # ------------------------------------------------------------------ questions

    def executing(self, pc: int) -> int:
        """The threads that may execute the instruction at a place."""
        guard = self.function.code[pc].guard
        here = self._coming.get(self._block_of[pc], 0)
        return here & self._may(self.value(guard, pc), True) if guard else here

    def value(self, text: str, pc: int) -> Values:
        """What an operand is just before the instruction at a place."""
        term = source(text)
        return None if term is None else self.term(term, pc)

    def term(self, term: Term, pc: int) -> Values:
        """What a term is just before the instruction at a place."""
        start = self._block_of[pc]
        if start not in self._coming:
            return None
        state = {name: self._before(name, start, pc) for name in reads(term)}
        return self._evaluated(term, ("asked", pc, term), state)

    def _before(self, name: str, start: int, pc: int) -> Values:
        """What a register is before an instruction of a block."""
        written_here = self._written.get(start)
        if written_here is None:
            written_here = self._written[start] = {}
            state = dict(self._at[start])
            for one in self._blocks[start]:
                self._execute(one, state, self._coming[start])
                for result in written(one):
                    each = written_here.setdefault(result, [])
                    each.append((one.pc, state.get(result)))
        found = self._at[start].get(name)
        for place, values in written_here.get(name, ()):
            if place >= pc:
                break
            found = values
        return found

    def read(self, name: str, pc: int) -> Values:
        """What a register or special register is just before the instruction at a place, in the
        threads that come to it."""
        found = self.term(read(name), pc)
        if not isinstance(found, tuple):
            return found
        return tuple(found[thread] for thread in numbers_of(self._coming[self._block_of[pc]]))

    def in_step(self, pc: int, threads: int) -> bool:
        """Whether of each warp all of some threads execute the instruction at a place, or none of
        them, each time, as far as branches say that are not decided."""
        guard = self.function.code[pc].guard
        if guard and not self._same(self.value(guard, pc), threads):
            return False
        here = self._block_of[pc]
        return not any(
            here in self._region(branch) and not self._same(values, threads)
            for branch, values in self._open.items()
        )

    def _same(self, values: Values, threads: int) -> bool:
        """Whether of each warp a predicate is known in all of some threads, or is the same."""
        if not isinstance(values, tuple):
            values = (values,) * self.count
        for start in range(0, self.count, LANES):
            of_warp = threads & ((1 << LANES) - 1) << start
            found = {values[thread] for thread in numbers_of(of_warp)}
            known = None not in found and (len(found) < 2 or min(v or 0 for v in found) >= 0)
            if not known and of_warp & of_warp - 1:
                return False
        return True

    # ------------------------------------------------------------------ blocks

    def _members(self, start: int) -> list[Instruction]:
        code = self.function.code
        found = [code[start]]
        while (
            len(self.function.successors[found[-1].pc]) == 1
            and found[-1].base != "EXIT"
            and (after := self.function.successors[found[-1].pc][0]) not in self._starts
        ):
            found.append(code[after])
        return found

    def _following(self, start: int) -> tuple[int, ...]:
        last = self._blocks[start][-1]
        found = self.function.successors[last.pc]
        return (*found, _END) if last.base == "EXIT" or not found else found

    @cached_property
    def _block_of(self) -> dict[int, int]:
        return {one.pc: start for start, each in self._blocks.items() for one in each}

    @cached_property
    def _leading(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {start: [] for start in (*self._starts, _END)}
        for start, after in self._after.items():
            for one in after:
                found[one].append(start)
        return found

    @cached_property
    def _post_dominators(self) -> dict[int, int]:
        """Of each block, those that each path to the end goes through: masks of their order."""
        place = {start: 1 << n for n, start in enumerate((*self._starts, _END))}
        whole = (1 << len(place)) - 1
        found = dict.fromkeys(place, whole) | {_END: place[_END]}
        todo = [*self._starts]
        while todo:
            start = todo.pop()
            new = whole
            for after in self._after[start]:
                new &= found[after]
            new |= place[start]
            if new != found[start]:
                found[start] = new
                todo += self._leading[start]
        return found

    def _region(self, branch: int, *, ends: bool = False) -> frozenset[int]:
        """The blocks between a branch and where all its ways have met again; ``ends``: with it."""
        key = branch, ends
        if key not in self._regions:
            order = {start: 1 << n for n, start in enumerate((*self._starts, _END))}
            here = self._block_of[branch]
            met = self._post_dominators[here] & ~order[here]
            seen: set[int] = set()
            todo = [*self._after[here]]
            while todo:
                one = todo.pop()
                if one == _END or one in seen or (met & order[one] and not ends):
                    continue
                seen.add(one)
                if not met & order[one]:
                    todo += self._after[one]
            self._regions[key] = frozenset(seen)
        return self._regions[key]

    @cached_property
    def _regions(self) -> dict[tuple[int, bool], frozenset[int]]:
        return {}

    # ------------------------------------------------------------------ propagation

    def _solved(self, until: float) -> bool:
        rounds = dict.fromkeys(self._starts, 0)
        todo = [0]
        waiting = {0}
        while todo:
            start = heappop(todo)
            waiting.discard(start)
            rounds[start] += 1
            if rounds[start] > _MOST_ROUNDS or monotonic() > until:
                return False
            coming, state = self._met(start)
            if self._coming.get(start) == coming and self._at.get(start) == state:
                continue
            self._coming[start], self._at[start] = coming, dict(state)
            for one in self._blocks[start]:
                if one is not self._blocks[start][-1]:
                    self._execute(one, state, coming)
            again = self._branch(start, state, coming)
            self._ends[start] = state
            for block in again:
                if block not in waiting:
                    waiting.add(block)
                    heappush(todo, block)
        return True

    def _met(self, start: int) -> tuple[int, State]:
        """The threads that may come to a block, and what they have."""
        edges = [
            (mask, self._ends[before])
            for before in self._leading[start]
            if (mask := self._edges.get((before, start), 0)) and before in self._ends
        ]
        if start == 0:
            edges.append((self.all, {}))
        coming = 0
        for mask, _ in edges:
            coming |= mask
        if len(edges) == 1:
            return coming, dict(edges[0][1])
        first = edges[0][1]
        return coming, {
            name: self._joined([(mask, state.get(name)) for mask, state in edges], start, name)
            for name in first
        }

    def _joined(self, each: Sequence[tuple[int, Values]], start: int, name: str) -> Values:
        """What meets at a block, of the threads that come along each edge."""
        first = each[0][1]
        if all(values == first for _, values in each):
            return first
        masks = {mask for mask, _ in each}
        if len(masks) == 1 and not any(isinstance(values, tuple) for _, values in each):
            unknown = start in self._parted or None in {values for _, values in each}
            return None if unknown else self._named((start, name))
        coming = 0
        for mask in masks:
            coming |= mask
        found = [
            tuple(dict.fromkeys(
                values[thread] if isinstance(values, tuple) else values
                for mask, values in each if mask >> thread & 1
            ))
            for thread in range(self.count)
        ]  # fmt: skip
        result: list[Value] = []
        for begin in range(0, self.count, LANES):
            of_warp = found[begin : begin + LANES]
            several = {of for of in of_warp if len(of) > 1}
            # what meets may be the same in all threads only if it can be the same things
            same = len(several) == 1 and start not in self._parted and None not in several.pop()
            met = self._named((start, name)) if same else None
            result += (of[0] if len(of) == 1 else met for of in of_warp)
        return self._packed(result, coming)

    def _branch(self, start: int, state: State, coming: int) -> Iterator[int]:
        """Goes on behind a block: the blocks that have to be looked at again."""
        last = self._blocks[start][-1]
        before = dict(state)
        self._execute(last, state, coming)
        ways = self._ways(last, before, coming)
        for after, (mask, _) in ways.items():
            if after != _END and mask:
                self._edges[start, after] = self._edges.get((start, after), 0) | mask
                yield after
        taken = next((values for _, values in ways.values()), 1)
        undecided = [t for t in numbers_of(coming) if _is_open(taken, t)]
        if len(ways) < 2 or not undecided:
            self._open.pop(last.pc, None)
            return
        self._open[last.pc] = taken
        if not self._same(taken, coming):
            new = self._region(last.pc, ends=True) - self._parted
            self._parted |= new
            yield from (one for one in new if one in self._at)

    def _ways(self, one: Instruction, state: State, coming: int) -> dict[int, tuple[int, Values]]:
        """Where an instruction can go on: by which threads, and the predicate of one of them."""
        after = self._after[self._block_of[one.pc]]
        if len(after) == 1:
            return {after[0]: (coming, 1)}
        if one.base in ("BRX", "BRXU"):
            index = self._of(one.operands[0], one.pc, state)
            offset = source(one.operands[-1])
            shift = one.pc + WIDTH + (offset.number if offset else 0)
            return {to: (coming & self._to(index, shift, to), index) for to in after}
        named = self._named((one.pc, "way"))
        if {"DIV", "CONV"} & {*one.modifiers}:  # both ways do the same, one for lanes that parted
            return {to: (coming if to == one.pc + WIDTH else 0, 1) for to in after}
        if "ANY" in one.modifiers or one.base not in ("BRA", "EXIT"):
            return dict.fromkeys(after, (coming, named))
        texts = one.operands if one.base == "EXIT" else one.operands[:-1]
        taken = self._all_of([t for t in (one.guard, *texts) if t], one.pc, state)
        target = _END if one.base == "EXIT" else one.target
        return {to: (coming & self._may(taken, to == target), taken) for to in after}

    def _all_of(self, texts: Sequence[str], pc: int, state: State) -> Values:
        term = constant(1)
        for text in texts:
            one = source(text)
            if one is None:
                return None
            term = one if term == constant(1) else Term("lut", (term, one, constant(0)), 0xC0)
        return self._evaluated(term, (pc, "taken"), state)

    def _to(self, index: Values, shift: int, place: int) -> int:
        """The threads that an index of a table leads to a place, or may do so."""
        if not isinstance(index, tuple):
            index = (index,) * self.count
        return _mask(v is None or v < 0 or v + shift & WORD == place for v in index)

    def _may(self, values: Values, holds: bool) -> int:
        """The threads in which a predicate may be so."""
        if not isinstance(values, tuple):
            values = (values,) * self.count
        return _mask(v is None or v < 0 or bool(v) == holds for v in values)

    # ------------------------------------------------------------------ instructions

    def _execute(self, one: Instruction, state: State, coming: int) -> None:
        if one.pc not in self._needed:
            for name in written(one):
                state.pop(name, None)
            return
        new = {name: self._made(one, name, state, coming) for name in written(one)}
        guard: Values = 1
        if one.guard:
            guard = self._of(one.guard, one.pc, state)
        for name, values in new.items():
            old = state.get(name)
            if guard != 1:
                values = self._chosen(guard, values, old, one.pc, name)
                if name.startswith("U"):
                    values = self._of_warps(guard, new[name], old, values, coming, one.pc, name)
            state[name] = values

    def _chosen(self, guard: Values, new: Values, old: Values, pc: int, name: str) -> Values:
        """What a register holds behind an instruction with a guard."""

        def of(chosen: Value, one: Value, other: Value) -> Value:
            if one == other or chosen == 1:
                return one
            if chosen == 0:
                return other
            if chosen is None or one is None or other is None:
                return None
            return self._named((pc, name, "guard", chosen, one, other))

        return self._each(of, (guard, new, old))

    def _of_warps(
        self, guard: Values, new: Values, old: Values, each: Values, coming: int, pc: int, name: str
    ) -> Values:
        """What a uniform register holds behind an instruction with a guard: a warp has one of it,
        which is new if any of its threads executes the instruction, as the elected one does with
        ``@P0 R2UR``. Where a loop gives each lane its own, it stays what each thread has."""
        if not any(isinstance(values, tuple) for values in (guard, new, old)):
            return each
        guards, news, olds, result = (
            list(values) if isinstance(values, tuple) else [values] * self.count
            for values in (guard, new, old, each)
        )
        for start in range(0, self.count, LANES):
            warp = range(start, min(start + LANES, self.count))
            here = [thread for thread in warp if coming >> thread & 1]
            made = {news[thread] for thread in here}
            if len(made) != 1 or len({guards[thread] for thread in here}) == 1:
                continue
            (value,) = made
            guarded = {guards[thread] for thread in here}
            kept = {olds[thread] for thread in here}
            if any(one is not None and one > 0 for one in guarded):
                met = value
            elif None in guarded or None in kept or value is None:
                met = None
            else:
                met = self._named((pc, name, "guard of warp", start, value, frozenset(kept)))
            for thread in warp:
                result[thread] = met
        return self._packed(result, self.all)

    def _made(self, one: Instruction, name: str, state: State, coming: int) -> Values:
        """What an instruction writes into a register, without its guard."""
        base = one.base
        if base == "ELECT" and "P" in name:
            return self._elected(one, state, coming)
        if base in ("VOTE", "VOTEU", "SHFL", "R2UR", "MATCH", "REDUX", "CREDUX"):
            return self._of_warp(one, name, state, coming)
        if base == "SYNCS":  # all get the same answer in the end
            return self._named((one.pc, name))
        if base == "USETMAXREG" or (base.startswith("UTC") and "P" in name):
            return self._named((one.pc, name))
        if base in ("LDC", "ULDC", "LDCU") and (entry := self._entry(one, name, state)) is not None:
            return entry
        term = computed(one, name)
        if term is not None:
            return self._evaluated(term, (one.pc, name), state)
        special = any(text.startswith("SR_") for text in one.operands)
        if special or not (base in _PURE or base.startswith("U")):
            return None
        inputs = tuple(self._of(text, one.pc, state) for text in sorted(registers_read(one)))

        def of(*values: Value) -> Value:
            return None if None in values else self._named((one.pc, name, *values))

        return self._each(of, inputs) if inputs else self._named((one.pc, name))

    def _entry(self, one: Instruction, name: str, state: State) -> Values:
        """A word of the tables; None of what is elsewhere."""
        place = parse(one.operands[1])
        if not isinstance(place, Constant) or place.bank != TABLES or place.sign:
            return None
        if [m for m in one.modifiers if m not in ("64", "128")]:
            return None
        index: Values = 0 if place.register is None else state.get(place.register)
        shift = following(one.operands[0], 4).index(name) * 4

        def of(value: Value) -> Value:
            if value is None or value < 0:
                return value if value is None else self._named((one.pc, name, value))
            at = place.offset + shift + value & WORD
            word = self._tables[at : at + 4]
            return int.from_bytes(word, "little") if len(word) == 4 else None

        return self._each(of, (index,))

    def _elected(self, one: Instruction, state: State, coming: int) -> Values:
        """The first thread of each warp; in a loop over lanes each of those that are left."""
        left: Values = self._of(one.guard, one.pc, state) if one.guard else 1
        if one.guard and one.pc in self.lane_loops:
            return 1
        here = coming & self._may(left, True)
        first = 0
        for start in range(0, self.count, LANES):
            of_warp = here & ((1 << LANES) - 1) << start
            first |= of_warp & -of_warp
        return self._packed([first >> n & 1 for n in range(self.count)], coming)

    @cached_property
    def lane_loops(self) -> Mapping[int, tuple[int, int]]:
        """The places between the ``ELECT`` and the end of loops in which each lane in turn is
        elected, with the beginning and the end of their loop."""
        found: dict[int, tuple[int, int]] = {}
        for pc, one in self.function.code.items():
            if one.opcode == "BRA.U.ANY" and one.target is not None and one.guard:
                for at in range(one.target, pc, WIDTH):
                    other = self.function.code.get(at)
                    if other is not None and other.base == "ELECT" and other.guard == one.guard:
                        found |= dict.fromkeys(range(at, pc, WIDTH), (one.target, pc))
        return found

    def takes_each_lane(self, pc: int) -> bool:
        """Whether the loop over lanes around a place begins with all lanes that come to it."""
        begin, end = self.lane_loops[pc]
        guard = self.function.code[end].guard
        before = [at for at in self._leading.get(begin, ()) if not begin <= at <= end]
        return bool(before) and all(
            self._same(values, mask) and self._may(values, False) & mask == 0
            for at in before
            if (mask := self._edges.get((at, begin), 0)) and at in self._ends
            for values in (self._ends[at].get(guard),)
        )

    def _of_warp(self, one: Instruction, name: str, state: State, coming: int) -> Values:
        """What the threads of a warp make together."""
        base, modifiers = one.base, one.modifiers
        if base == "SHFL" and "P" in name:
            return None
        text = one.operands[2] if base == "SHFL" else one.operands[-1]
        lane = source(one.operands[3]) if base == "SHFL" and "IDX" in modifiers else None
        votes = base in ("VOTE", "VOTEU") and "P" in name and "EQ" not in modifiers
        values = self._of(text, one.pc, state)
        guarded = self._of(one.guard, one.pc, state) if one.guard else 1
        here = coming & self._may(guarded, True)
        result: list[Value] = []
        for start in range(0, self.count, LANES):
            threads = range(start, min(start + LANES, self.count))
            each = [
                values[t] if isinstance(values, tuple) else values for t in threads if here >> t & 1
            ]
            unknown = self._named((one.pc, name, start))
            found: Value = unknown
            if votes and None not in each and min(v or 0 for v in each or [0]) >= 0:
                found = int(all(each) if "ALL" in modifiers else any(each))
            elif votes and "ANY" in modifiers and any(v is not None and v > 0 for v in each):
                found = 1
            elif votes and "ALL" in modifiers and 0 in each:
                found = 0
            elif base not in ("SHFL", "R2UR") or not each:
                same = len({*each}) == 1 and each[0] is not None
                found = self._named((one.pc, name, each[0])) if same else unknown
            elif len({*each}) == 1 and each[0] is not None:
                found = each[0]
            elif base == "R2UR" and None not in each and len(each) == len(threads):
                # a loop over lanes: each has its own
                result += each
                continue
            elif lane is not None and lane.op == "constant" and len(each) == LANES:
                found = each[lane.number % LANES]
            elif base == "SHFL" and lane is None:
                found = None
            result += [found] * len(threads)
        return self._packed(result, coming)

    def _of(self, text: str, pc: int, state: State) -> Values:
        term = source(text)
        return None if term is None else self._evaluated(term, (pc, text), state)

    def _evaluated(self, term: Term, key: Hashable, state: State) -> Values:
        """The values of a term; where they are not known they are named by the key, and by what
        the term reads."""
        names = reads(term)
        free = [n for n in names if "P" in n and not n.startswith("SR_")]

        rank = self._named(RANK)

        def of(*values: Value) -> Value:
            each = dict(zip(names, values, strict=True))
            if rank in values and _is_own(term, [n for n, v in each.items() if v == rank]):
                values = tuple(0 if v == rank else v for v in values)
                each = dict(zip(names, values, strict=True))
            known = {n: None if v is None or v < 0 else v for n, v in each.items()}
            result = _decided(term, known, free)
            if result is not None:
                return result
            if term.op == "read" or None in values:
                return values[0] if term.op == "read" else None
            return self._named((key, *values))

        return self._each(of, tuple(self._read(name, state) for name in names))

    def _read(self, name: str, state: State) -> Values:
        if not name.startswith(("SR_", "c[")):
            return state.get(name)
        x, y, _ = self.block
        match name:
            case "SR_TID.X":
                return self._packed([n % x for n in range(self.count)], self.all)
            case "SR_TID.Y":
                return self._packed([n // x % y for n in range(self.count)], self.all)
            case "SR_TID.Z":
                return self._packed([n // (x * y) for n in range(self.count)], self.all)
            case "SR_LANEID":
                return self._packed([n % LANES for n in range(self.count)], self.all)
        if name in self._sizes:
            return self._sizes[name]
        return self._named(name) if name.startswith(_OF_CTA) else None

    def _each(self, of: Callable[..., Value], inputs: Sequence[Values]) -> Values:
        """A function of each thread's values."""
        if not any(isinstance(values, tuple) for values in inputs):
            return of(*inputs)
        known: dict[tuple[Value, ...], Value] = {}
        result: list[Value] = []
        columns = [v if isinstance(v, tuple) else (v,) * self.count for v in inputs]
        for values in zip(*columns, strict=True):
            if values not in known:
                known[values] = of(*values)
            result.append(known[values])
        return self._packed(result, self.all)

    def _named(self, key: Hashable) -> int:
        """A name of a value that is not known."""
        return self._names.setdefault(key, -1 - len(self._names))

    def _packed(self, values: Sequence[Value], threads: int) -> Values:
        """One value if those threads all have it."""
        if threads == self.all:
            return values[0] if len({*values}) == 1 else tuple(values)
        found = {values[thread] for thread in numbers_of(threads)}
        return found.pop() if len(found) == 1 else tuple(values)


def _starts(function: Function) -> tuple[int, ...]:
    """The places at which blocks begin, in order."""
    found = {0}
    for pc, after in function.successors.items():
        if len(after) != 1 or function.code[pc].base == "EXIT":
            found |= {*after}
    found |= {pc for pc, before in function.predecessors.items() if len(before) != 1}
    return tuple(sorted(found & function.code.keys()))


def _needed(function: Function, questions: Collection[int]) -> frozenset[int]:
    """The instructions whose results may decide a branch, or what is asked for."""
    versions = Versions(function)
    todo: list[tuple[str, int]] = []
    for pc, one in function.code.items():
        branches = len(function.successors[pc]) > 1 or one.base == "EXIT"
        if branches or pc in questions:
            todo += [(name, pc) for name in _names_in(one)]
    needed: set[int] = set()
    seen: set[Version | None] = {None}
    while todo:
        version = versions.version(*todo.pop())
        meeting = [version]
        while meeting:
            one_of = meeting.pop()
            if one_of in seen:
                continue
            seen.add(one_of)
            if isinstance(one_of, Meeting):
                meeting += [met for _, met in versions.met(one_of)]
            elif isinstance(one_of, Written):
                one = function.code[one_of.pc]
                needed.add(one.pc)
                term = computed(one, one_of.register)
                names = {*_names_in(one), *(reads(term) if term is not None else ())}
                if one.guard:
                    names.add(one_of.register)
                todo += [(name, one.pc) for name in names if not name.startswith(("SR_", "c["))]
    return frozenset(needed)


def _names_in(one: Instruction) -> frozenset[str]:
    """The registers and predicates that an instruction may read, both of a pair."""
    found = {*registers_read(one)}
    memories = [one for one in map(parse, one.operands) if isinstance(one, Memory)]
    for memory in memories:
        for name, _ in memory.registers:
            found |= {*following(name, 2)}
    return frozenset(found)


def _decided(term: Term, values: Mapping[str, Value], free: Collection[str]) -> int | None:
    """The value of a term, also where it is the same whether predicates that are not known are
    true or not: ``p or q`` where q is true."""
    found = number(term, values)
    unknown = [name for name, value in values.items() if value is None]
    if found is not None or not 0 < len(unknown) <= _MOST_FREE or not {*free} >= {*unknown}:
        return found
    of = {
        number(term, {**values, **dict(zip(unknown, chosen, strict=True))})
        for chosen in product((0, 1), repeat=len(unknown))
    }
    return of.pop() if len(of) == 1 else None


def _is_own(term: Term, ranks: Collection[str]) -> bool:
    """Whether a term reads the place of the CTA only to put it above an address."""
    if term.op == "read":
        return term.name not in ranks
    if term.op == "shl" and term.of[1] == constant(_RANK_AT) and term.of[0].op == "read":
        return True
    return all(_is_own(part, ranks) for part in term.of)


def _is_open(values: Values, thread: int) -> bool:
    value = values[thread] if isinstance(values, tuple) else values
    return value is None or value < 0


def _mask(each: Iterator[bool] | Sequence[bool]) -> int:
    found = 0
    for thread, one in enumerate(each):
        if one:
            found |= 1 << thread
    return found


def numbers_of(mask: int) -> Iterator[int]:
    """The numbers of the threads of a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
