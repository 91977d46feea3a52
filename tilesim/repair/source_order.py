"""Which writes the reads of a race see: a repair keeps what the source has first.

Ordering two accesses either way ends the race between them, and only one of the ways is what the
source says: of two lines that the same threads come to, one after the other, the first is first, in
each turn of the loop around both. A compiler may have turned them round where nothing held them, as
may an edit. So that is looked for in a run of the mended program, access by access.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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
from tilesim.mistakes.history import History, is_later
from tilesim.records import dataclass
from tilesim.sim.machine.schedule import TimedEnvironment
from tilesim.sim.machine.simulate import Simulation
from tilesim.transforms.lower import lower

if TYPE_CHECKING:
    from tilesim.repair.preservation import Arrays

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
            (w, r, p) for p in self.pairs
            if (w := numbers.get(p.write)) is not None and (r := numbers.get(p.read)) is not None
        ]  # fmt: skip
        if not pairs:
            return ""
        try:
            simulation = Simulation(mended, numbers=False, strict=self.strict)
        except InvalidProgram:
            return ""
        own = {number for w, r, _ in pairs for number in (w, r)}
        histories = [History(own) for _ in range(min(simulation.groups, _CLUSTERS))]
        environments = [(n, TimedEnvironment(history)) for n, history in enumerate(histories)]
        simulation.run_on(self.inputs, [*environments])
        return next(
            (str(p) for history in histories for w, r, p in pairs
             if _reverses(history, w, r, p.write_first)), "",
        )  # fmt: skip


def _reverses(history: History, write: int, read: int, write_first: bool) -> bool:
    """Whether a read does not see what it would in the order of the source."""
    made = [
        (accessed, () if done is None else done.iterations)
        for accessed in history.accesses[:_MOST] for done in [history.made_by(accessed)]
    ]  # fmt: skip
    for first, second in combinations(made, 2):
        (one, turns), (other, its) = (first, second) if first[0].access.write else (second, first)
        numbers = one.access.op.number, other.access.op.number
        if numbers != (write, read) or one.access.write is other.access.write:
            continue
        reversed_ = is_later(its, turns, write_first) is not (one is first[0])
        if reversed_ and one.memory is other.memory and other.footprint in one.footprint.overlaps:
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


def races_of(findings: Sequence[Finding | Diagnostic], mir: Mir) -> Iterator[tuple[int, int]]:
    """The pairs of a write and a read of these races, which the same threads come to."""
    for race in findings:
        if isinstance(race, Finding) and race.rule == "race":
            numbers = [p.instruction for p in race.participants if p.instruction is not None]
            for one, other in combinations(dict.fromkeys(numbers), 2):
                for write, read in ((one, other), (other, one)):
                    if _is_pair(mir, write, read):
                        yield write, read
