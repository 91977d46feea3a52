"""Synchronisation of single threads, compared by executing both texts.

A thread is executed in PTX and in SASS with the same inputs. Compared are what it comes to and how
often (guards, branches, loops), which waits it gets over, and the quantities of what it executes:
counts, parities, bytes, barrier numbers, places of mbarriers. It is a test and no proof: equal
executions show nothing of inputs and places that no execution came to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from tilesim.ptx.inline import Kernel
from tilesim.records import dataclass
from tilesim.translation import classes, effects
from tilesim.translation.effects import ARRIVALS, BYTES, MBARRIER, Quantities
from tilesim.translation.inputs import SMALLER, End, Inputs, block_of, drawn, parameters_of
from tilesim.translation.pairing import Event as Instruction
from tilesim.translation.pairs import Pair, Translation
from tilesim.translation.ptx_thread import PtxThread
from tilesim.translation.sass_thread import SassThread
from tilesim.translation.validation import Difference, Effect

#: kinds of which SASS has one execution for each of the PTX
COUNTED = frozenset(
    {
        "mbarrier.init", "mbarrier.inval", "mbarrier.arrive", "bulk.load", "bulk.peer",
        "bulk.store", "bulk.reduce", "bulk.commit", "bar", "bar.arrive", "cp.async",
        "barrier.cluster.arrive", "barrier.cluster.wait", "wgmma", "tcgen05.mma", "tcgen05.commit",
        "tcgen05.cp", "tcgen05.shift", "st.async", "clusterlaunchcontrol", "griddepcontrol.wait",
        "griddepcontrol.launch", "ld.acquire", "st.release", "atom.acquire", "atom.release",
        "atom.acq_rel",
    }
)  # fmt: skip
#: of these, what each lane of a warp executes; SASS may execute others once for all lanes
_OF_LANES = frozenset(
    {
        "mbarrier.inval", "mbarrier.arrive", "bar", "bar.arrive", "st.async", "cp.async",
        "ld.acquire", "st.release", "atom.acquire", "atom.release", "atom.acq_rel",
    }
)  # fmt: skip
_ACCESSES = frozenset(one.name for one in classes.KINDS if one.access)
#: kinds of which one may do for several, and ptxas adds some: not how often they are executed is
#: compared, but that they are
_SHARED = frozenset(
    {
        "bulk.wait", "cp.async.wait", "wgmma.wait", "wgmma.fence", "cp.async.commit",
        "tcgen05.wait.st", "fence.proxy.async", "fence.proxy.tensormap", "fence.proxy.alias",
        "fence", "fence.acquire", "tcgen05.ld", "tcgen05.st", *_ACCESSES,
    }
)  # fmt: skip
#: kinds of which ptxas makes a loop or a sequence for the warp: whether they are executed is the
#: same in both texts
_SEQUENCES = frozenset(
    {"setmaxnreg", "tcgen05.alloc", "tcgen05.dealloc", "tcgen05.relinquish"}
)  # fmt: skip
#: what is tried again: of it is compared what is waited for, and which waits are over
_WAIT = "mbarrier.wait"
#: steps of an execution of PTX, and of all executions of both texts of a kernel
_MOST_STEPS = 6_000
_MOST_OF_ALL = 60_000
#: seeds of inputs
_SEEDS = 8
#: threads that are all executed with each seed; of more, each third
_FEW = 4
_RULE = "execution"


@dataclass(frozen=True)
class _Event:
    """A synchronising instruction that was executed: the ones of the PTX that it is of (none of
    SASS that is a copy of none), and its place: the number of its step, or its place in SASS."""

    kind: str
    of: tuple[Instruction, ...]
    place: int
    quantities: Quantities


@dataclass(frozen=True)
class _Execution:
    """What a thread did in one of the texts. ``doubted`` are the kinds of which one may have been
    executed or not. ``waits`` are those that were over, by mbarrier and parity, with the places of
    the tries; None if one was not known."""

    events: Sequence[_Event]
    end: End
    doubted: Collection[str]
    waits: Sequence[tuple[int, int | None, int]] | None

    def of(self, kind: str) -> list[_Event]:
        return [one for one in self.events if one.kind == kind]


class Executions:
    """The comparison of a translation; `differences` are by instruction of the PTX, ``compared``
    the instructions that were executed in both texts, but for accesses, ``unreached`` the others of
    which that may be for the bounds of steps alone.

    ``shared``: where the variables lie in shared memory, which the cubin does not say.
    """

    def __init__(self, translation: Translation, shared: Mapping[str, int]) -> None:
        self._translation = translation
        self._shared = shared
        self._info = translation.image.info(translation.symbol)
        self._parameters = parameters_of(translation.ptx, self._info)
        self._block = block_of(self._info)
        self._threads = self._block[0] * self._block[1] * self._block[2]
        tables = translation.image.section(f".nv.constant2.{translation.symbol.name}")
        self._tables = translation.image.contents(tables) if tables else b""
        compared = COUNTED | _SHARED | _SEQUENCES | {_WAIT}
        self._pairs = {one.number: one for one in translation.pairs if one.kind in compared}
        self._instructions: dict[Instruction, Pair] = {}
        self._copies: dict[int, list[Instruction]] = {}
        for pair in self._pairs.values():
            instruction = _instruction(pair)
            if self._instructions.setdefault(instruction, pair) is pair:
                for copy in pair.copies:
                    self._copies.setdefault(copy.pc, []).append(instruction)
        # in a launch without clusters ptxas selects another barrier, or none
        self._has_cluster_barriers = any(
            "barrier.cluster" in kind for _, kind in self._instructions
        )
        self._alone = self._without_pair()
        code = translation.ptx.code
        self._traps = {step.place.line for step in code if step.base == "trap"}
        self._came_to: set[int] = set()
        self._steps = 0
        self._bounded = False
        self.differences: dict[Instruction, Difference] = {}
        self.compared: set[Instruction] = set()
        for inputs in self._inputs():
            self._compare(inputs, self._of_ptx(inputs), self._of_sass(inputs))
        others = {one for one in self._instructions if one[1] not in _ACCESSES} - self.compared
        self.unreached = others if self._bounded else set()

    def _without_pair(self) -> dict[int, str]:
        """By place, the kind of SASS that is of a kind that is counted, and copy of nothing. What
        has the line of another kind is part of what ptxas makes of that: of an acquiring fence of
        tensor maps ``UTMACMDFLUSH``."""
        kinds = {kind for _, kind in self._instructions} & COUNTED
        lines = {pair.step.place.line for pair in self._translation.pairs}
        return {
            pc: kind
            for pc, one in self._translation.sass.code.items()
            if pc not in self._copies and one.ptx not in lines
            for kind in kinds
            if classes.is_sass_of(kind, f"{one.opcode} {', '.join(one.operands)}")
        }

    # ------------------------------------------------------------------ inputs

    def _inputs(self) -> Iterator[Inputs]:
        """First each warp, then, while something is not reached, threads with other inputs."""
        warps = min(32, -(-self._threads // 32))
        lanes = [32 * n for n in range(warps)]
        lanes += [n for n in (1, 37, 95, self._threads - 1) if n < self._threads]
        seeds = [*range(_SEEDS)]
        if self._is_long(self._thread(0, 0)):
            seeds = [*range(SMALLER, _SEEDS), *range(SMALLER)]
        for seed in seeds:
            for n, linear in enumerate(lanes):
                if self._steps > _MOST_OF_ALL:
                    self._bounded = True
                    return
                if seed not in seeds[:2] and self._all_reached():
                    return
                if seed != seeds[0] and len(lanes) > _FEW and (n + seed) % 3:
                    continue
                yield self._thread(linear, seed)

    def _thread(self, linear: int, seed: int) -> Inputs:
        x, y, _ = self._block
        in_cluster = seed % 3 == 2 or self._has_cluster_barriers
        cluster = self._info.cluster or ((2, 1, 1) if in_cluster else (1, 1, 1))
        grid = tuple(size * (1 + drawn(seed, 6, n) % 4) for n, size in enumerate(cluster))
        ctaid = tuple(drawn(seed, 7, n) % size for n, size in enumerate(grid))
        within = [place % size for place, size in zip(ctaid, cluster, strict=True)]
        rank = within[0] + cluster[0] * (within[1] + cluster[1] * within[2])
        return Inputs(
            self._parameters, seed, (linear % x, linear // x % y, linear // (x * y)),
            self._block, (ctaid[0], ctaid[1], ctaid[2]), (grid[0], grid[1], grid[2]), cluster, rank,
        )  # fmt: skip

    def _is_long(self, inputs: Inputs) -> bool:
        """Whether a thread does not come to its end within the steps that it has."""
        thread = PtxThread(self._translation.ptx, inputs, self._shared)
        return sum(1 for _ in thread.run(_MOST_STEPS)) > _MOST_STEPS * 9 // 10

    def _all_reached(self) -> bool:
        return all(pc in self._came_to for pc in self._copies)

    # ------------------------------------------------------------------ execution

    def _of_ptx(self, inputs: Inputs) -> _Execution:
        thread = PtxThread(self._translation.ptx, inputs, self._shared)
        events: list[_Event] = []
        for number in thread.run(_MOST_STEPS):
            self._steps += 1
            pair = self._pairs.get(number)
            if pair is not None:
                found = effects.of_ptx(pair.kind, pair.step, thread, self._threads)
                events.append(_Event(pair.kind, (_instruction(pair),), number, found))
        self._bounded |= thread.bounded
        doubted = {self._pairs[n].kind for n in thread.doubted if n in self._pairs}
        waits = thread.waits.done if thread.waits.known else None
        return _Execution(events, thread.end, doubted, waits)

    def _of_sass(self, inputs: Inputs) -> _Execution:
        thread = SassThread(self._translation.sass, self._info, inputs, self._tables)
        events: list[_Event] = []
        for one in thread.run(2 * _MOST_STEPS):
            self._steps += 1
            for kind, of in self._kinds_at(one.pc).items():
                if "A0T1" in one.modifiers and of and self._instructions[of[0]].step.base == "cp":
                    continue  # announces the arrival of cp.async, which ARRIVES is
                self._came_to.add(one.pc)
                found = effects.of_sass(kind, one, thread, self._threads)
                events.append(_Event(kind, of, one.pc, found))
        self._bounded |= thread.bounded
        doubted = {kind for pc in thread.doubted for kind in self._kinds_at(pc)}
        waits = thread.waits.done if thread.waits.known else None
        end = thread.end
        if end == End.TRAP and self._translation.sass.code[thread.pc].ptx not in self._traps:
            end = End.UNKNOWN  # of a sequence that ptxas makes, as for tcgen05.dealloc
        return _Execution(events, end, doubted, waits)

    def _kinds_at(self, pc: int) -> Mapping[str, tuple[Instruction, ...]]:
        """The kinds of which an instruction is, with those of the PTX that it is a copy of."""
        if pc in self._alone:
            return {self._alone[pc]: ()}
        found: dict[str, tuple[Instruction, ...]] = {}
        for one in self._copies.get(pc, ()):
            found[one[1]] = (*found.get(one[1], ()), one)
        return found

    # ------------------------------------------------------------------ comparison

    def _compare(self, inputs: Inputs, ptx: _Execution, sass: _Execution) -> None:
        doubted = {*ptx.doubted, *sass.doubted}
        executed = {one for event in ptx.events for one in event.of}
        executed &= {one for event in sass.events for one in event.of}
        self.compared |= {one for one in executed if one[1] not in doubted | _ACCESSES}
        kinds = dict.fromkeys(one.kind for one in (*ptx.events, *sass.events))
        if _WAIT not in doubted:
            self._compare_waits(inputs, ptx, sass)
        for kind in kinds:
            if kind == _WAIT or kind in doubted:
                continue
            of_ptx, of_sass = ptx.of(kind), sass.of(kind)
            if kind in _SHARED:
                self._compare_values(inputs, of_ptx, of_sass)
                if not of_sass and _is_less(sass.end, ptx.end):
                    self._differ_in_count(inputs, of_ptx, of_sass)
            elif kind in _SEQUENCES:
                if not inputs.lane:
                    self._compare_sequence_of_warp(inputs, ptx, sass, kind)
            elif not inputs.lane or kind in _OF_LANES:
                self._compare_sequences(inputs, ptx, sass, kind)

    def _compare_sequence_of_warp(
        self, inputs: Inputs, ptx: _Execution, sass: _Execution, kind: str
    ) -> None:
        """Compares whether something of a kind is executed, and its quantities."""
        of_ptx, of_sass = ptx.of(kind), sass.of(kind)
        self._compare_values(inputs, of_ptx, of_sass)
        fewer = not of_sass and _is_less(sass.end, ptx.end)
        more = not of_ptx and _is_less(ptx.end, sass.end)
        if fewer or more:
            self._differ_in_count(inputs, of_ptx, of_sass)

    def _compare_sequences(
        self, inputs: Inputs, ptx: _Execution, sass: _Execution, kind: str
    ) -> None:
        """Compares what is executed of a kind, and how often."""
        of_ptx, of_sass = ptx.of(kind), sass.of(kind)
        if _same_in_all(of_ptx, of_sass):
            return
        if not all(self._instructions[one.of[0]].copies for one in of_ptx):
            if ptx.end == sass.end == End.EXIT:
                self._compare_sums(inputs, of_ptx, of_sass)
            of_ptx = [one for one in of_ptx if self._instructions[one.of[0]].copies]
        fewer = len(of_sass) < len(of_ptx) and _is_less(sass.end, ptx.end)
        more = len(of_sass) > len(of_ptx) and _is_less(ptx.end, sass.end)
        if not (fewer or more or _differing_at(of_ptx, of_sass)):
            return
        if fewer or more:
            self._differ_in_count(inputs, of_ptx, of_sass)
        for instruction in dict.fromkeys(one for event in of_ptx for one in event.of):
            some = [event for event in of_ptx if instruction in event.of]
            others = [event for event in of_sass if instruction in event.of]
            if len(some) == len(others):
                for event, copy in zip(some, others, strict=True):
                    self._differ_in_value(inputs, instruction, event, copy)

    def _compare_sums(self, inputs: Inputs, ptx: Sequence[_Event], sass: Sequence[_Event]) -> None:
        """Compares arrivals and bytes of each mbarrier in all: of instructions without SASS others
        do the work."""
        wanted, found = _sums(ptx), _sums(sass)
        if None in {*wanted.values(), *found.values(), *(mbarrier for mbarrier, _ in wanted)}:
            return
        for event in sass:
            mbarrier = event.quantities.get(MBARRIER)
            for name in (ARRIVALS, BYTES):
                was, now = wanted.get((mbarrier, name), 0), found[mbarrier, name]
                if was != now and event.of:
                    self._differ(
                        inputs, event.of[0], event.place, name, "weaker",
                        f"{name} in all: {was} in the PTX, {now} in the SASS",
                    )  # fmt: skip
                    return

    def _compare_values(
        self, inputs: Inputs, ptx: Sequence[_Event], sass: Sequence[_Event]
    ) -> None:
        """Compares the quantities of instructions that need not be as many."""
        found = {
            (instruction, tuple(one.quantities.items())): one
            for one in sass
            for instruction in one.of
        }
        for event in {
            (one.of, tuple(one.quantities.items())): one for one in ptx if one.quantities
        }.values():
            for (instruction, _), copy in found.items():
                if instruction in event.of:
                    self._differ_in_value(inputs, instruction, event, copy)

    def _compare_waits(self, inputs: Inputs, ptx: _Execution, sass: _Execution) -> None:
        """Compares what is waited for, and which waits are over."""
        self._compare_tries(inputs, ptx, sass)
        if ptx.waits is None or sass.waits is None:
            return
        unknown = {one[0] for one in (*ptx.waits, *sass.waits) if one[1] is None}

        def key_of(wait: tuple[int, int | None, int]) -> tuple[int, int | None]:
            return wait[0], None if wait[0] in unknown else wait[1]

        wanted, found = (Counter(map(key_of, one.waits or ())) for one in (ptx, sass))
        lacking = wanted - found if _is_less(sass.end, ptx.end) else None
        too_many = found - wanted if _is_less(ptx.end, sass.end) else None
        if not lacking and not too_many:
            return
        key = next(iter(lacking or too_many or ()))
        places = [one[2] for one in ptx.waits if key_of(one) == key]
        places_of_sass = [one[2] for one in sass.waits if key_of(one) == key]
        if places:
            instruction = _instruction(self._pairs[places[-1]])
        else:
            of = self._copies.get(places_of_sass[-1], ())
            if not of:
                return
            instruction = of[0]
        copies = self._instructions[instruction].copies
        pc = places_of_sass[-1] if places_of_sass else copies[0].pc if copies else None
        parity = "" if key[1] is None else f", parity {key[1]}"
        what = f"waits for mbarrier {key[0]:#x}{parity}"
        self._differ(
            inputs, instruction, pc, "executions", "weaker",
            f"{what}: {wanted[key]} are over in the PTX, {found[key]} in the SASS",
        )  # fmt: skip

    def _compare_tries(self, inputs: Inputs, ptx: _Execution, sass: _Execution) -> None:
        """Compares what is waited for in all. Which copy is of which wait may be mistaken, so a
        difference is of the first wait whose quantities the other text does not have."""
        if ptx.end != End.EXIT or sass.end != End.EXIT:
            return
        of_ptx = [(one, tuple(sorted(one.quantities.items()))) for one in ptx.of(_WAIT)]
        of_sass = [(one, tuple(sorted(one.quantities.items()))) for one in sass.of(_WAIT)]
        waited, found = {key for _, key in of_ptx}, {key for _, key in of_sass}
        if waited == found or any(v is None for some in waited | found for _, v in some):
            return
        lacking = [one for one, key in of_ptx if key not in found]
        others = [one for one, key in of_sass if key not in waited]
        if others and of_ptx:
            one = (lacking or [event for event, _ in of_ptx])[0]
            self._differ_in_value(inputs, one.of[0], one, others[0])

    # ------------------------------------------------------------------ differences

    def _differ_in_count(
        self, inputs: Inputs, ptx: Sequence[_Event], sass: Sequence[_Event]
    ) -> None:
        """Of instructions that are executed as often, but not in all: those of which the copies
        are not, or the one that is a copy of none."""
        for instruction in dict.fromkeys(one for event in (*ptx, *sass) for one in event.of):
            some = [event for event in ptx if instruction in event.of]
            others = [event for event in sass if instruction in event.of]
            copies = self._instructions[instruction].copies
            if len(some) == len(others) or not copies:
                continue  # what has no copies is said to be so
            pc = others[-1].place if others else copies[0].pc
            self._differ(
                inputs, instruction, pc, "executions", "weaker",
                f"executed {len(some)} times in the PTX, {len(others)} times in the SASS",
            )  # fmt: skip
            return

    def _differ_in_value(
        self, inputs: Inputs, instruction: Instruction, ptx: _Event, sass: _Event
    ) -> None:
        for name in effects.differing(ptx.quantities, sass.quantities):
            self._differ(
                inputs, instruction, sass.place, name,
                effects.effect_of(name, ptx.quantities, sass.quantities),
                effects.said(name, ptx.quantities, sass.quantities),
            )  # fmt: skip

    def _differ(
        self, inputs: Inputs, instruction: Instruction, pc: int | None, kind: str, effect: Effect,
        what: str,
    ) -> None:  # fmt: skip
        if instruction in self.differences:
            return
        line, name = instruction
        thread = f"thread {inputs.tid[0]}" if inputs.tid[1:] == (0, 0) else f"thread {inputs.tid}"
        one = None if pc is None else self._translation.sass.code[pc]
        self.differences[instruction] = Difference(
            kind, _RULE, effect, line, self._translation.text(line),
            f"PTX line {line} ({name}), {what} ({thread} of an execution)", pc,
            str(one) if one else "", one.lines[0] if one and one.lines else None,
        )  # fmt: skip


def _instruction(pair: Pair) -> Instruction:
    return pair.step.place.line, pair.kind


def _is_less(one: End, other: End) -> bool:
    """Whether what a text does less than the other one by its end, it does not do: it has come to
    its end, and the other one did not trap, before which ptxas may leave out what it likes."""
    return one != End.UNKNOWN and other != End.TRAP and (one, other) != (End.TRAP, End.UNKNOWN)


def _differing_at(ptx: Sequence[_Event], sass: Sequence[_Event]) -> bool:
    """Whether a quantity differs in two sequences, as far as both go."""
    return any(
        effects.differing(a.quantities, b.quantities) for a, b in zip(ptx, sass, strict=False)
    )


def _same_in_all(ptx: Sequence[_Event], sass: Sequence[_Event]) -> bool:
    """Whether the same is executed in another order, with all known; or arrivals and bytes are the
    same of each mbarrier in all, as ptxas expects the bytes of several instructions by one."""
    if len(ptx) == len(sass):
        return _each(ptx) == _each(sass)
    return ARRIVALS in ptx[0].quantities and _sums(ptx) == _sums(sass) if ptx else False


def _each(events: Sequence[_Event]) -> Counter[tuple[tuple[str, int | None], ...]]:
    return Counter(tuple(sorted(one.quantities.items())) for one in events)


def _sums(events: Sequence[_Event]) -> Mapping[tuple[int | None, str], int | None]:
    """By mbarrier, how many arrivals and bytes there are."""
    found: dict[tuple[int | None, str], int | None] = {}
    for one in events:
        for name in (ARRIVALS, BYTES):
            key = one.quantities.get(MBARRIER), name
            old, new = found.get(key, 0), one.quantities.get(name)
            found[key] = None if old is None or new is None else old + new
    return found


def compare(translation: Translation) -> Executions:
    """What executions of both texts show.

    Where variables lie in shared memory is not written down: an order in which all agrees is right.
    """
    best: Executions | None = None
    for shared in layouts(translation.ptx):
        found = Executions(translation, shared)
        if best is None or len(found.differences) < len(best.differences):
            best = found
        if not found.differences:
            break
    assert best is not None  # there is always an order
    return best


def layouts(kernel: Kernel) -> Iterator[Mapping[str, int]]:
    """Orders in which variables can lie in shared memory: as they are used, as they are declared,
    the most aligned first; those of which that can be told."""
    yield kernel.shared
    body = kernel.entry.body
    declared = {
        f"{name}#{number}" if number else name: variable
        for number, scope in enumerate(body.scopes if body else ())
        for name, variable in scope.variables.items()
    }
    static = [name for name, offset in kernel.shared.items() if offset < kernel.shared_size]
    if not {*static} <= declared.keys() or len(static) < 2:
        return
    orders = [[name for name in declared if name in static]]
    orders.append(sorted(orders[0], key=lambda name: -declared[name].alignment))
    for order in orders:
        found = dict(kernel.shared)
        size = 0
        for name in order:
            alignment = declared[name].alignment
            found[name] = -(-size // alignment) * alignment
            size = found[name] + declared[name].size
        # dynamic memory begins behind
        if len(static) == len(found) or -(-size // 16) == -(-kernel.shared_size // 16):
            yield found
