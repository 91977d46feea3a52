"""Which writes the reads of a race see: a repair keeps what the source has first.

Ordering two accesses either way ends the race between them, and only one of the ways is what the
source says: of two lines that the same threads come to, one after the other, the first is first, in
each turn of the loop around both. A compiler may have turned them round where nothing held them, as
may an edit. So that is looked for in a run of the mended program, access by access.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

from tilesim.analysis.cfg import FlowGraph, graph_of
from tilesim.analysis.executing_warps import executing
from tilesim.analysis.ssa import reaching
from tilesim.analysis.uses_defs import reads, sets
from tilesim.errors import Diagnostic, InvalidProgram
from tilesim.findings.finding import Finding
from tilesim.ir import effects as fx
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Strict
from tilesim.records import dataclass
from tilesim.sim.machine.events import InFlight, Key, Kind
from tilesim.sim.machine.machine import Entry, Machine, Watcher
from tilesim.sim.machine.schedule import TimedEnvironment
from tilesim.sim.machine.simulate import Simulation
from tilesim.transforms.lower import lower

if TYPE_CHECKING:
    from tilesim.repair.preservation import Arrays
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.footprint import Footprint
    from tilesim.sim.machine.labels import AgentLike
    from tilesim.sim.machine.machine import Step, Warp
    from tilesim.sim.machine.memory import Memory

#: accesses by the instructions of pairs that are noted at most, and clusters that are run
_MOST, _CLUSTERS = 4096, 2

#: an instruction, the same in an edited program: its lines, what it is, which one of those
Same = tuple[tuple[str, ...], str, int]


@dataclass(frozen=True)
class Pair:
    """A write and a read that race. ``write_first``: the line of the write is the first of the two,
    in each turn of the loops around both."""

    write: Same
    read: Same
    write_first: bool
    lines: tuple[Loc, Loc]

    def __str__(self) -> str:
        write, read = self.lines
        if self.write_first:
            return (
                f"with it the read at {read} comes before the write at {write}, and the source has "
                "the write first"
            )
        return (
            f"with it the read at {read} sees the write at {write}, and the source has the read "
            "first"
        )


@dataclass(frozen=True)
class SourceOrder:
    """A program that fails by races, and what their reads are to see."""

    program: Program | Mir
    findings: tuple[Finding | Diagnostic, ...]
    strict: Strict
    inputs: Arrays

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of a write and a read that race, of which the source says an order."""
        if not any(isinstance(f, Finding) and f.rule == "race" for f in self.findings):
            return ()
        mir = machine_form(self.program)
        same = _same(mir)
        found: dict[Pair, None] = {}
        for write, read in races_of(self.findings, mir):
            first = writes_first(mir, write, read)
            if first is not None:
                lines = (_line(mir, write), _line(mir, read, write))
                found[Pair(same[write], same[read], first, lines)] = None
        return tuple(found)

    def reversal(self, mended: Program | Mir) -> str:
        """What is the other way round in a program that is mended; empty if nothing is."""
        if not self.pairs:
            return ""
        mir = machine_form(mended)
        numbers = {same: number for number, same in _same(mir).items()}
        pairs = [
            (_Order(w, r, loop_around(mir, w, r), p.write_first), p) for p in self.pairs
            if (w := numbers.get(p.write)) is not None and (r := numbers.get(p.read)) is not None
        ]  # fmt: skip
        if not pairs:
            return ""
        try:
            simulation = Simulation(mended, numbers=False, strict=self.strict)
        except InvalidProgram:
            return ""
        orders = [order for order, _ in pairs]
        watches = [_Watch(orders) for _ in range(min(simulation.groups, _CLUSTERS))]
        environments = [(n, TimedEnvironment(watch)) for n, watch in enumerate(watches)]
        simulation.run_on(self.inputs, [*environments])
        return next(
            (str(p) for watch in watches for order, p in pairs if watch.notes.reverses(order)), ""
        )  # fmt: skip


@dataclass(frozen=True)
class _Order:
    """Numbers of a write and a read, of the head of the innermost loop around both, and which of
    the two comes first in each turn of that."""

    write: int
    read: int
    loop: int | None
    write_first: bool


@dataclass(frozen=True)
class _Access:
    number: int
    write: bool
    #: by the head of a loop, the turn
    iterations: dict[int | None, int]
    memory: object
    footprint: Footprint


class _Watch(Watcher):
    """Shows the accesses of some instructions of one run to notes of them."""

    def __init__(self, orders: Sequence[_Order]) -> None:
        super().__init__()
        self.notes = _Notes(orders)
        self._stopped: set[tuple[int, Warp]] = set()

    def begin(self, agent: Key, enabled: tuple[Key, ...]) -> None:
        """The timed policy makes no moves."""

    def note(
        self, kind: Kind, obj: Hashable, phase: int, warp: AgentLike, op: Op | None, text: str,
        *, loose: bool = False, alike: Hashable = None,
    ) -> None:  # fmt: skip
        """What is touched besides memory does not matter."""

    def spawn(self, operation: InFlight) -> None:
        """Nor does what is started."""

    def watch(self, machine: Machine) -> list[Entry]:
        """The program's own steps, one for each instruction."""
        steps = list(machine.plan.alone)
        for number in self.notes.numbers | self.notes.heads:
            step, sync, cycles = steps[number]
            steps[number] = (self._shown(machine, number, step), sync, cycles)
        return steps

    def _shown(self, machine: Machine, number: int, step: Step) -> Step:
        def run(warp: Warp) -> bool | None:
            machine.races.witness = self.notes
            if (number, warp) not in self._stopped:
                self.notes.iterations[number, warp] += 1
            stopped = step(warp)
            (self._stopped.add if stopped else self._stopped.discard)((number, warp))
            return stopped

        return run


class _Notes:
    """The accesses of some instructions, in the order in which they are made."""

    def __init__(self, orders: Sequence[_Order]) -> None:
        self.numbers = {n for order in orders for n in (order.write, order.read)}
        self.heads = {order.loop for order in orders if order.loop is not None}
        #: how often a warp has come to an instruction
        self.iterations: Counter[tuple[int, object]] = Counter()
        self._made: list[_Access] = []

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """An access is made."""
        number = access.op.number
        if number in self.numbers and len(self._made) < _MOST:
            iterations: dict[int | None, int] = {None: 0}
            iterations.update(
                {head: self.iterations[head, access.warp.origin] for head in self.heads}
            )
            self._made.append(_Access(number, access.write, iterations, memory, footprint))

    def reverses(self, order: _Order) -> bool:
        """Whether a read does not see what it would in the order of the source."""
        own = [a for a in self._made if a.number in (order.write, order.read)]
        for place, first in enumerate(own):
            for second in own[place + 1 :]:
                if first.write is second.write or first.memory is not second.memory:
                    continue
                write, read = (first, second) if first.write else (second, first)
                if (write.number, read.number) != (order.write, order.read):
                    continue
                one, other = write.iterations[order.loop], read.iterations[order.loop]
                ahead = order.write_first if one == other else one < other
                if ahead is not (write is first) and read.footprint in write.footprint.overlaps:
                    return True
        return False


# ---------------------------------------------------------------------- what the source says


def machine_form(program: Program | Mir) -> Mir:
    """A program as the machine runs it."""
    return program if isinstance(program, Mir) else lower(program)


def _same(mir: Mir) -> dict[int, Same]:
    """By number of an instruction, what it is called in an edited program."""
    counts: Counter[tuple[tuple[str, ...], str]] = Counter()
    found: dict[int, Same] = {}
    for number, instruction in enumerate(mir.code):
        if isinstance(instruction.what, Op):
            key = (instruction.loc.chain, instruction.what.mnemonic)
            found[number] = (*key, counts[key])
            counts[key] += 1
    return found


def _is_pair(mir: Mir, write: int, read: int) -> bool:
    """Whether one instruction writes, the other one reads, and the same threads come to both, to
    one after the other."""
    if not any(isinstance(e, fx.Writes) for e in mir.effects[write]):
        return False
    if not any(isinstance(e, fx.Reads) for e in mir.effects[read]):
        return False
    warps = executing(mir)
    return bool({*warps[write]} & {*warps[read]}) and (
        comes_to(mir, write, read) or comes_to(mir, read, write)
    )


def writes_first(mir: Mir, write: int, read: int) -> bool | None:
    """Whether the source has the line of a write before that of a read; None: it does not say."""
    copies = [_copies(mir, number) for number in (write, read)]
    if copies[0][1] != copies[1][1] and 1 not in (copies[0][1], copies[1][1]):
        return None
    if copies[0][1] == copies[1][1] and copies[0][0] != copies[1][0]:
        return copies[0][0] < copies[1][0]
    for one, other in zip(_lines(mir, write), _lines(mir, read, write), strict=False):
        if (one.file, one.function) != (other.file, other.function) or not one.line * other.line:
            return None
        if one.line != other.line:
            return one.line < other.line
    return None


def _copies(mir: Mir, number: int) -> tuple[int, int]:
    """Which one of the instructions of its lines and kind it is, and how many there are."""
    own = mir.code[number]
    same = [
        n for n, i in enumerate(mir.code)
        if type(i.what) is type(own.what) and i.loc.written_places == own.loc.written_places
    ]  # fmt: skip
    return same.index(number), len(same)


def _lines(mir: Mir, number: int, write: int | None = None) -> tuple[Loc, ...]:
    """The lines of an access; of a read that a compiler has made of several lines (it says line 0)
    those of the last one that uses what was read."""
    own = mir.code[number].loc.written_places
    if own[0].line or write is None:
        return own
    used = [mir.code[n].loc.written_places for n in uses_of(mir, number)]
    return max((u for u in used if u[0].line), key=lambda u: u[0].line, default=own)


def _line(mir: Mir, number: int, write: int | None = None) -> Loc:
    return _lines(mir, number, write)[0]


def uses_of(mir: Mir, number: int) -> list[int]:
    """The instructions that use what one has set."""
    names = sets(mir, number)
    setters = reaching(graph_of(mir)).setters
    return [
        n for n in range(len(mir.code)) for name in names & reads(mir, n)
        if number in setters(n, name)
    ]  # fmt: skip


def comes_to(mir: Mir, first: int, second: int) -> bool:
    """Whether a thread may come from one instruction to another one in the same turns of loops."""
    graph = graph_of(mir)
    start, end = graph.block_of[first], graph.block_of[second]
    if start == end:
        return first < second
    return end in _forward(graph, start)


def _forward(graph: FlowGraph, start: int) -> set[int]:
    seen, open_ = set[int](), [start]
    while open_:
        block = open_.pop()
        for after in graph.successors[block]:
            if after not in seen and not graph.dominates(after, block):
                seen.add(after)
                open_.append(after)
    return seen


def loop_around(mir: Mir, one: int, other: int) -> int | None:
    """The first instruction of the innermost loop that is around both instructions."""
    graph = graph_of(mir)
    blocks = {graph.block_of[one], graph.block_of[other]}
    around = [loop for loop in graph.loops if blocks <= loop.blocks]
    inner = min(around, key=lambda loop: len(loop.blocks), default=None)
    return None if inner is None else graph.blocks[inner.head].start


def races_of(findings: Sequence[Finding | Diagnostic], mir: Mir) -> Iterator[tuple[int, int]]:
    """The pairs of a write and a read of these races, which the same threads come to."""
    for race in findings:
        if isinstance(race, Finding) and race.rule == "race":
            numbers = [p.instruction for p in race.participants if p.instruction is not None]
            for one, other in combinations(dict.fromkeys(numbers), 2):
                for write, read in ((one, other), (other, one)):
                    if _is_pair(mir, write, read):
                        yield write, read
