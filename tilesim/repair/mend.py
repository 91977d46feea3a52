"""`suggest`: repairs of a program that fails, each of them proved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import combinations, takewhile
from time import monotonic

from simpy import Environment

from tilesim.errors import Diagnostic, InvalidProgram, TilesimError
from tilesim.files import source_lines
from tilesim.ir.edits import Instead, statements
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Control, Mir
from tilesim.ir.program import If, Program, Stmt, Strict, Verdict
from tilesim.ir.text.statement import statement_lines, statement_text
from tilesim.mistakes.diagnose import explained
from tilesim.mistakes.edits import Edit, Patch
from tilesim.repair.hoisted_reads import with_reads_at_uses
from tilesim.repair.preservation import Arrays, Work
from tilesim.repair.ptx_patch import Lines
from tilesim.repair.python_patch import counters_of, patched
from tilesim.repair.search import CERTAIN, Found, Search, Trial
from tilesim.repair.source_order import SourceOrder
from tilesim.sim.findings import Finding
from tilesim.sim.machine.trace import Trace
from tilesim.sim.schedule import TimedEnvironment
from tilesim.sim.simulate import Run, Simulation, kernel_of

#: how long repairs are looked for unless the user says
DEFAULT_TIME = timedelta(seconds=10)
#: clusters whose run may show that an edit is no repair
_CLUSTERS = 2
#: seconds that a check begun in time has at least
_LEAST = 0.05
#: the part of the time that one edit has: of others, too, is asked
_PART = 4
#: scheduling points of a run of one edit, and how often the instructions of the program's own run
#: more, unless that does not end by itself: edits that need more are tried again behind the others
_POINTS, _TIMES = 6_000, 2
#: seconds more, for texts that are read again
_AGAIN = 5.0
#: checks a program (or what was compiled of one), on as many schedules as the user wants or on none
#: besides the first, within some seconds
Prove = Callable[[Program | Mir | Simulation, bool, float], Trial]


@dataclass(frozen=True)
class Change:
    """What is different at one line: instructions before and after, as text; and how the source
    line changes, where that can be said (for all that it makes)."""

    loc: Loc
    before: tuple[str, ...]
    after: tuple[str, ...]
    patch: Patch | None = None

    @property
    def place(self) -> Loc:
        """What is to be changed: of PTX that is patched, its line."""
        return self.loc if self.patch is None else Loc(self.patch.file, self.patch.first)

    @property
    def old(self) -> tuple[str, ...]:
        """What a report shows: the source lines, or else the instructions."""
        return self.before if self.patch is None else _dedented(self.patch.old, self.patch)

    @property
    def new(self) -> tuple[str, ...]:
        """The same as it should be."""
        return self.after if self.patch is None else _dedented(self.patch.new, self.patch)

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """What a report shows of both, line by line: ``-`` and one that goes, ``+`` and one that
        comes, a blank and one at the beginning or the end that stays."""
        old, new = self.old, self.new
        head = _alike(old, new)
        tail = _alike(old[head:][::-1], new[head:][::-1])
        parts = (
            (" ", old[:head]),
            ("-", old[head : len(old) - tail]),
            ("+", new[head : len(new) - tail]),
            (" ", old[len(old) - tail :]),
        )
        return tuple((mark, line) for mark, own in parts for line in own)


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """With how many equal lines both begin."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _dedented(lines: tuple[str, ...], patch: Patch) -> tuple[str, ...]:
    margin = min(len(t) - len(t.lstrip()) for t in (*patch.old, *patch.new) if t.strip())
    return tuple(line[margin:] for line in lines)


@dataclass(frozen=True)
class Repair:
    """Changes that together mend the program: what they are in words, and the verdict of the
    program with them. ``made`` is that program, without which results go to other processes."""

    what: str
    verdict: Verdict
    changes: tuple[Change, ...]
    made: Program | Mir | None = field(repr=False)

    @property
    def program(self) -> Program | Mir:
        """The program with the changes, where it was mended."""
        assert self.made is not None
        return self.made

    @property
    def patches(self) -> tuple[Patch, ...]:
        """Its patches, if they are all of it: every change is one of text, each of other lines."""
        found = tuple(dict.fromkeys(c.patch for c in self.changes if c.patch is not None))
        if any(change.patch is None for change in self.changes) or any(
            one.file == other.file and one.first <= other.last and other.first <= one.last
            for one, other in combinations(found, 2)
        ):
            return ()
        return found


@dataclass(frozen=True)
class Repairs:
    """What was found, the best first; ``tried`` edits were, within ``seconds``.

    ``ended``: nothing was left to try, or enough was found; else time ran out, or the user has
    ``interrupted`` it.
    """

    found: tuple[Repair, ...]
    tried: int
    seconds: float
    ended: bool
    interrupted: bool = False

    def without_programs(self) -> Repairs:
        """What there is to show of them: plain data."""
        return replace(self, found=tuple(replace(one, made=None) for one in self.found))

    def __str__(self) -> str:
        what = f"{self.tried} edit{'s' if self.tried != 1 else ''} tried"
        if self.interrupted:
            return f"{what}, interrupted by the user"
        return what if self.ended else f"{what}, all that there was time for in {self.seconds:g} s"


class Mendable(InvalidProgram):
    """A program is rejected, and repairs have been looked for."""

    def __init__(self, diagnostics: Iterable[Diagnostic], repairs: Repairs) -> None:
        super().__init__(diagnostics)
        self.repairs = repairs


@dataclass(frozen=True)
class Wanted:
    """How repairs are looked for: how long, and what tells that one still does the kernel's work.

    ``same`` says of what a program computes from ``numbers`` whether it is right; without it a
    program does the work if it stores what this one would. ``progress`` is called with the numbers
    of edits tried and repairs found.
    """

    time: timedelta = DEFAULT_TIME
    numbers: Arrays | None = None
    same: Callable[[Arrays], bool] | None = None
    #: reads a PTX text in place of the one that the program was made of
    read: Callable[[str], Mir] | None = None
    progress: Callable[[int, int], None] = lambda tried, found: None


def suggest(
    program: Program | Mir,
    findings: Iterable[Finding | Diagnostic],
    prove: Prove,
    wanted: Wanted,
    strict: Strict,
    inputs: Arrays,
    again: Callable[[Simulation], Run] | None = None,
    cost: int = 0,
) -> Repairs:
    """Repairs of a program with these findings (or diagnostics), the first one the headline.

    ``inputs`` are those of its control flow, which fit its tensors. ``again`` runs the schedule in
    which this one fails, if that is a special one; ``cost`` is how many warp instructions its run
    took.
    """
    findings = tuple(findings)
    until = monotonic() + wanted.time.total_seconds()
    part = wanted.time.total_seconds() / _PART
    stuck = any(finding.rule == "deadlock" for finding in findings)
    points = _POINTS + (0 if stuck else _TIMES * cost)
    again_until = until + _AGAIN if wanted.read is not None else until

    def tried(edited: Program | Mir, thorough: bool) -> Trial:
        """What is said of a program: by one run, if that fails, by a whole check otherwise."""
        end = until if monotonic() < until else again_until
        simulation = Simulation(edited, numbers=False, strict=strict)
        simulation.stop_after(1)
        if not thorough:
            simulation.stop_at(end)
            first = list(range(simulation.groups))[:_CLUSTERS]
            with simulation.shortly(points):
                run = simulation.run(inputs, lambda cluster: None, first)
            if not run.findings and any(outcome.cut_off for outcome in run.outcomes):
                return Trial("bounded", (), run.stats.instructions, cut_off=True)
            if not run.findings and again is not None:
                run = again(simulation)
            if run.findings:
                return Trial("failed", run.findings, run.stats.instructions)
        left = end - monotonic()
        return prove(simulation, thorough, max(_LEAST, left if thorough else min(left, part)))

    def explain(edited: Program | Mir, said: Trial) -> Trial:
        """The findings of the first schedule with their causes, if it is there that it fails."""
        if said.verdict != "failed":
            return said
        simulation = Simulation(edited, numbers=False, strict=strict)
        simulation.stop_at(until)
        found = [finding for finding in said.findings if isinstance(finding, Finding)]

        def repeat(trace: Callable[[Environment], Trace]) -> None:
            environments: list[tuple[int, Environment]] = []
            for cluster in range(min(simulation.groups, _CLUSTERS)):
                env = TimedEnvironment()
                env.trace = trace(env)
                environments.append((cluster, env))
            simulation.run_on(inputs, environments)

        return replace(said, findings=explained(found, repeat, said.instructions))

    program, trial = _as_written(program, Trial("failed", findings), tried, explain)
    work = Work(program, strict, inputs, wanted.numbers, wanted.same)
    source_order = SourceOrder(program, trial.findings, strict, inputs)
    search = Search(tried, work.kept, source_order.reversal, explain, until, wanted.progress)
    search.run(program, trial)

    def right(text: str, one: Found) -> bool:
        """Whether a PTX text is proved and does the work."""
        assert wanted.read is not None
        try:
            mended = wanted.read(text)
            said = tried(mended, thorough=False)
        except (TilesimError, KeyboardInterrupt):
            return False
        families = frozenset(edit.family for edit in one.edits)
        return said.verdict in CERTAIN and work.kept(mended, families)

    reads = wanted.read is not None
    found = tuple(_repair(f, _in_text(f, right) if reads else {}) for f in search.found)
    found = tuple({(r.what, r.changes): r for r in found}.values())
    seconds = wanted.time.total_seconds()
    return Repairs(found, search.tried, seconds, search.ended, search.interrupted)


def _as_written(
    program: Program | Mir, trial: Trial, tried: Callable[[Program | Mir, bool], Trial],
    explain: Callable[[Program | Mir, Trial], Trial],
) -> tuple[Program | Mir, Trial]:  # fmt: skip
    """The program to repair, with what is found in it: that in which reads are where the source
    has them, if it fails as well."""
    if not isinstance(program, Mir):
        return program, trial
    own = with_reads_at_uses(program, trial.findings)
    if own is program:
        return program, trial
    said = explain(own, tried(own, False))
    return (own, said) if said.verdict == "failed" else (program, trial)


def _in_text(found: Found, right: Callable[[str, Found], bool]) -> dict[int, Patch]:
    """By line of the PTX that the program was made of: the patch; empty if there is none."""
    edits: dict[object, tuple[Stmt | Control, Instead]] = {}
    files = set()
    for edit, program in zip(found.edits, found.programs, strict=False):
        before = statements(program)
        if edit.patches or any(before[n].loc.behind is not None for n in edit.numbers):
            return {}  # it was compiled: the text is not the user's
        for number in edit.numbers:
            place = before[number].loc.innermost
            files.add(place.file)
            edits.setdefault((place, before[number]), (before[number], edit.instead[number]))
    if len(files) != 1:
        return {}
    (file,) = files
    lines = Lines(file, source_lines(file))
    for patches in lines.patches([*edits.values()]):
        if right(lines.with_patches(patches), found):
            return {patch.first: patch for patch in patches}
    return {}


def _repair(found: Found, patches: Mapping[int, Patch]) -> Repair:
    changes = tuple(
        replace(change, patch=patches.get(change.loc.innermost.line, change.patch))
        for edit, before, after in zip(
            found.edits, found.programs, found.programs[1:], strict=False
        )
        for change in dict.fromkeys(_changes(edit, before, after))
    )
    verdict: Verdict = "proved" if found.verdict == "proved" else "exhausted"
    what = "; ".join([*(e.what for e in found.edits), *filter(None, [found.reversal])])
    return Repair(what, verdict, changes, found.programs[-1])


def _changes(edit: Edit, program: Program | Mir, mended: Program | Mir) -> Iterable[Change]:
    """What an edit changes, instructions of one line and of equal text once; of compiled programs
    the lines of the source, which are named if it cannot be said what becomes of them."""
    if edit.patches:
        for own in edit.patches:
            yield Change(Loc(own.file, own.first), own.old, own.new, own)
        return
    if isinstance(program, Mir) and any(program.code[n].loc.behind for n in edit.numbers):
        places = dict.fromkeys(Loc(at.file, at.line) for n in edit.numbers
                               if (at := program.code[n].loc).line)  # fmt: skip
        yield from (Change(place, (), ()) for place in places)
        return
    kernel, after = kernel_of(program), kernel_of(mended)
    before = statements(program)
    counters = counters_of(before)
    lines: dict[tuple[Loc, type], list[int]] = {}
    for number in edit.numbers:
        lines.setdefault((before[number].loc, type(before[number])), []).append(number)
    for (loc, kind), numbers in lines.items():
        same = [n for n, what in enumerate(before) if what.loc == loc and type(what) is kind]
        new = [edit.instead[n] for n in numbers]
        patch = None
        if len(same) == len(numbers):
            patches = [patched(before[n], edit.instead[n], counters) for n in numbers]
            patch = patches[0] if all(p == patches[0] for p in patches) else None
        old = [(_folded(statement_text(kernel, before[n])),) for n in numbers]
        now = [
            tuple(line for what in instead for line in _written(after, what, before[n], instead))
            for n, instead in zip(numbers, new, strict=True)
        ]
        for pair in dict.fromkeys(zip(old, now, strict=True)):
            yield Change(loc, *pair, patch)
            if patch is not None:
                break  # it says what becomes of all of them


def _written(
    program: Program, what: Stmt | Control, old: Stmt | Control, instead: Sequence[Stmt | Control]
) -> tuple[str, ...]:
    """What stands in the place of ``old``: one line, but for what is added and holds others."""
    exchanged = len(instead) == 1 and type(what) is type(old)
    if not (what is old or exchanged):
        return statement_lines(program, what)
    head = _folded(statement_text(program, what))
    if isinstance(what, If) and isinstance(old, If) and what.orelse and not old.orelse:
        lines = (f"    {line}" for op in what.orelse for line in statement_lines(program, op))
        return (f"{head} else {{", *lines, "}")
    return (head,)


def _folded(text: str) -> str:
    """A region without what is in it."""
    return f"{text} ... }}" if text.endswith("{") else text
