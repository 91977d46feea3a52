"""`suggest`: repairs of a program that fails, each of them proved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic

from simpy import Environment

from tilesim.errors import Diagnostic, TilesimError
from tilesim.files import source_lines
from tilesim.findings.finding import Finding
from tilesim.ir.expr import Binary, Const
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Control, Mir
from tilesim.ir.op import Op
from tilesim.ir.program import If, Program, Stmt, Strict, Verdict
from tilesim.ir.text.printer import statement_lines, statement_text
from tilesim.mistakes.diagnose import explained
from tilesim.mistakes.edits import Edit
from tilesim.records import replace
from tilesim.repair.hoisted_reads import with_reads_at_uses
from tilesim.repair.preservation import Arrays, Work
from tilesim.repair.ptx_patch import Lines
from tilesim.repair.python_patch import counters_of, patched
from tilesim.repair.repairs import Change, Repair, Repairs, Trial, Wanted
from tilesim.repair.search import CERTAIN, Found, Search
from tilesim.repair.source_order import SourceOrder
from tilesim.sim.machine.events import Trace
from tilesim.sim.machine.schedule import TimedEnvironment
from tilesim.sim.machine.simulate import Run, Simulation, kernel_of
from tilesim.transforms.rewrite import Instead, Patch, statements

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
        simulation.set_options(most_findings=1)
        if not thorough:
            simulation.set_options(deadline=end)
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
        simulation.set_options(deadline=until)
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
    search = Search(tried, work.is_done_by, source_order.reversal, explain, until, wanted.progress)
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
        return said.verdict in CERTAIN and work.is_done_by(mended, families)

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


#: an operand as MIR has it
_COMPUTED = re.compile(r"\baddress\(|%[a-z]+\d")


def _repair(found: Found, patches: Mapping[int, Patch]) -> Repair:
    changes = tuple(
        replace(change, patch=patches.get(change.loc.innermost.line, change.patch))
        for edit, before, after in zip(
            found.edits, found.programs, found.programs[1:], strict=False
        )
        for change in dict.fromkeys(_changes(edit, before, after))
    )
    verdict: Verdict = "proved" if found.verdict == "proved" else "exhausted"
    said = map(_in_words, found.edits, found.programs)
    what = "; ".join([*said, *filter(None, [found.reversal])])
    return Repair(what, verdict, changes, found.programs[-1])


def _in_words(edit: Edit, program: Program | Mir) -> str:
    """What an edit is; of what was compiled from a source, without expressions of registers and
    addresses."""
    if not isinstance(program, Mir):
        return edit.what
    before = [program.code[number].what for number in edit.instead]
    if all(what.loc.behind is None for what in before):
        return edit.what
    if all(isinstance(what, Branch) for what in before):
        return _left_out(edit, before)
    if not _COMPUTED.search(edit.what):
        return edit.what
    old = [what.mnemonic for what in before if isinstance(what, Op)]
    new = [
        what.mnemonic for one in edit.instead.values() for what in one
        if isinstance(what, Op) and what not in before
    ]  # fmt: skip
    of = " and ".join(dict.fromkeys(old))
    if not new:
        return f"without {of}"
    made = " and ".join(dict.fromkeys(new))
    return f"another operand of {of}" if made == of else f"{made} at {of}"


def _left_out(edit: Edit, before: Sequence[Stmt | Control]) -> str:
    """The same of branches that go by one of two conditions: of the other one, with which number it
    compares is what the source has as well."""
    kept = {new.cond for one in edit.instead.values() for new in one if isinstance(new, Branch)}
    numbers = []
    for what in before:
        if isinstance(what, Branch) and isinstance(what.cond, Binary):
            others = {what.cond.lhs, what.cond.rhs} - kept
            numbers += [
                str(int(one.rhs.value)) for one in others
                if isinstance(one, Binary) and isinstance(one.rhs, Const)
            ]  # fmt: skip
    with_ = f", the one that compares with {' and '.join(numbers)}" if numbers else ""
    return f"without one of the two conditions{with_}"


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
