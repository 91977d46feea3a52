"""Text reports: what, where, why, notes and fix, always in this order.

Findings that several CTAs or warps share are folded into one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tilesim.checker import Report
from tilesim.checker.assumptions import Leaning
from tilesim.checker.report import Claim
from tilesim.errors import Diagnostic, InvalidProgram, TilesimError
from tilesim.findings.finding import Deed, Finding, Participant
from tilesim.findings.rules import RULE_DOCS
from tilesim.findings.sides import side_text
from tilesim.ir.effects import Defines
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Strict
from tilesim.layout import COLOURS, COLUMN, LEAST, PLAIN, Style, field, quoted, wrapped
from tilesim.loader import Target
from tilesim.ptx.demangle import short
from tilesim.ptx.launch import Launch
from tilesim.ptx.syntax import Unsupported
from tilesim.records import dataclass, replace
from tilesim.repair import Mendable
from tilesim.repair.text import of_repairs
from tilesim.report import story
from tilesim.report.clean import clean
from tilesim.report.result import Checked, Failure, Rejected, Result
from tilesim.transforms.lower import lower
from tilesim.wording import count, inert, printable, ranges

#: an operation that is not over when its CTA ends
_AT_END = ("async-at-exit", "peer-exit")
#: what comes after an operation of another warp needs a hand-over, too
_HANDED_OVER = ("race", "tcgen05-order", "tmem-lifetime")


@dataclass(frozen=True)
class Folded:
    """A finding, and the further CTAs and warps in which the same thing happens.

    ``warps`` are further ones of its first participant, between the same lines; what they access
    may be other bytes. ``follows``: further findings that come of the same mistake.
    """

    finding: Finding
    also: tuple[int, ...] = ()
    warps: tuple[int, ...] = ()
    follows: tuple[Finding, ...] = ()

    @property
    def consequences(self) -> tuple[str, ...]:
        """What follows, each with its rule."""
        return tuple(f"{one.rule}: {one.message}" for one in self.follows)

    @property
    def also_in(self) -> str:
        """``also in warps 2-3; CTA 1-3, 7``, or nothing."""
        parts = []
        if self.warps:
            parts.append(f"warp{'s' if len(self.warps) > 1 else ''} {ranges(self.warps)}")
        if self.also:
            parts.append(f"CTA {ranges(self.also)}")
        return f"also in {'; '.join(parts)}" if parts else ""


def fold(findings: Iterable[Finding]) -> tuple[Folded, ...]:
    """``findings`` in order, those that differ in nothing but CTA, or warp and bytes, as one."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_key(finding), []).append(finding)
    return tuple(_by_cause(_folded(group) for group in groups.values()))


def _by_cause(folded: Iterable[Folded]) -> Iterator[Folded]:
    """One mistake is one finding: what comes of it goes with the first that names its cause."""
    kept: list[list[Folded]] = []
    for one in folded:
        group = next((g for g in kept if _comes_of(one.finding, g[0].finding)), None)
        if group is None:
            kept.append([one])
        else:
            group.append(one)
    for head, *others in kept:
        yield replace(head, follows=tuple(one.finding for one in others))


def _comes_of(finding: Finding, head: Finding) -> bool:
    """Whether a finding tells of the mistake that another one names: the same culprit or cause; or
    it has none and is about the same barrier, memory or line; or it is about both."""
    if not head.cause:
        return False
    if head.because.lanes is not None:
        return True  # lanes were not meant to execute it: what follows may be anything
    near = bool({*finding.locations} & {*head.locations})
    alike = bool(_names(finding) & _names(head))
    if not finding.cause:
        return near or alike
    if finding.cause == head.cause or finding.culprits[0].loc == head.culprits[0].loc:
        return True
    return near and (alike or finding.rule in _AT_END)


def _names(finding: Finding) -> frozenset[str]:
    """The barriers and the memory that a finding speaks of."""
    sides = (*finding.participants, *finding.culprits)
    deeds = frozenset(p.deed.on.name for p in sides if p.deed is not None and p.deed.on is not None)
    return deeds | finding.facts.names | finding.because.names


def _folded(group: list[Finding]) -> Folded:
    """The findings of a group as one."""
    first = [p for finding in group for p in finding.participants[:1]]
    shown = group[0].participants
    also = {p.cta for p in first} - {p.cta for p in shown}
    warps = {p.warp for p in first} - {p.warp for p in shown[:1]}
    return Folded(group[0], tuple(sorted(also)), tuple(sorted(w for w in warps if w is not None)))


def _key(finding: Finding) -> object:
    """What findings share that tell the same story of other CTAs, warps or bytes.

    Waiters of a deadlock differ: of another CTA they wait for the same, and nothing else is waited
    for there.
    """
    sides = finding.participants
    if finding.rule != "deadlock" and sides:
        done = tuple((p.loc, _what(p.deed)) for p in sides)
        own = finding.rule in _HANDED_OVER and not finding.fixes_cause
        alone = own and len({(p.cta, p.warp) for p in sides}) == 1
        return finding.rule, finding.kind, done, finding.diagnosis, finding.fixes_cause, alone
    if len({p.cta for p in sides}) != 1:
        return finding
    waits = tuple((p.role, p.warp, p.loc, _where(p.deed)) for p in sides)
    noted = finding.noted
    return waits, finding.kind, noted.lines, noted.arrivals, noted.bytes


def _what(deed: Deed | None) -> object:
    """What is done, to which array or tensor."""
    return deed and (deed.verb, deed.on and deed.on.name)


def _where(deed: Deed | None) -> object:
    """What is waited for, in whichever CTA."""
    return deed and (deed.on and deed.on.in_any_cta, deed.parity)


#: culprits that are shown
_CULPRITS = 3
#: lines of a report, if not all of a longer one is asked for
SCREEN = 48


class _Detail(NamedTuple):
    """How much of a report is shown: rows of the story, participants of a finding, its notes,
    findings besides the first one."""

    story: int
    places: int
    notes: int
    findings: int


_EVERYTHING = _Detail(story.ROWS, sys.maxsize, sys.maxsize, sys.maxsize)
#: less and less, until it fits
_LESS = (
    _Detail(12, 8, 24, 4), _Detail(8, 6, 16, 4), _Detail(6, 4, 12, 3), _Detail(5, 3, 8, 2),
    _Detail(4, 2, 5, 2), _Detail(3, 1, 3, 1),
)  # fmt: skip


def render(results: Iterable[Result], style: Style = PLAIN) -> str:
    """All results, and a last line that counts them if there are several."""
    done = tuple(results)
    blocks = [result_text(result, style) for result in done]
    if len(done) > 1:
        blocks.append(closing(done, style))
    return "\n".join(blocks)


def closing(results: Sequence[Result], style: Style = PLAIN) -> str:
    """What comes after the reports of several kernels: all of them at a glance."""
    return f"{table(results, style)}{summary(results)}"


def result_text(result: Result, style: Style = PLAIN) -> str:
    """The report of one kernel, ending with a newline."""
    shown = clean(result)
    whole = list(_lines(shown, style, _EVERYTHING))
    if style.verbose or len(whole) <= SCREEN:
        return inert("\n".join(whole) + "\n")
    for detail in _LESS:
        lines = list(_lines(shown, style, detail))
        if len(lines) < SCREEN:
            break
    left = f"a report of {count(len(whole), 'line')}, cut to a screen: --verbose shows all of it"
    return inert("\n".join([*lines[: SCREEN - 1], *field("...", left, style, indent=2)]) + "\n")


def brief(result: Result) -> str:
    """A line for each thing that is wrong, ``file:line: FAILED kernel: rule: cause``; for a kernel
    that is open why it is."""
    shown = clean(result)
    code = shown.machine_code if isinstance(shown, Checked) else None
    head = f"{verdict_of(shown).upper()} {shown.kernel}{code.head() if code else ''}"
    lines = (f"{line}\n" for line in _brief(shown, head))
    return inert("".join(lines))


def _brief(result: Result, head: str) -> Iterator[str]:
    match result:
        case Checked(report=report) if report.findings:
            for folded in fold(report.findings):
                finding = folded.finding
                (place, *_) = (*finding.culprits, *finding.participants)
                also = f" ({folded.also_in})" if folded.also else ""
                said = finding.cause or finding.message
                yield f"{place.loc}: {head}: {finding.rule}: {said}{also}"
        case Checked(denied=(one, *_)):
            at = f"{one.locs[0]}: " if one.locs else ""
            yield f"{at}{head}: {one.name}: {one.text}"
        case Checked(machine_code=code) if code is not None and code.kind == "none":
            yield f"{head}: {code.missing}"
        case Checked():
            yield f"{head}: {_summary(result)}"
        case Rejected(diagnostics=diagnostics):
            for d in diagnostics:
                yield f"{d.loc}: {head}: {d.rule}: {d.message}"
        case Failure(message=message, places=places):
            at = f"{places[0]}: " if places else ""
            said, *_ = message.splitlines() or [""]
            yield f"{at}{head}: {said.removeprefix(f'{result.kernel}: ')}"


def headlines(result: Checked, style: Style = PLAIN) -> str:
    """The verdict and one sentence per finding."""
    result = clean(result)
    lines = [_head(result, style)]
    for folded in fold(result.report.findings):
        lines += _headline(folded.finding, style)
    return inert("\n".join(lines))


def verdict_of(result: Result) -> str:
    """``proved``, ``failed``, ... ; ``rejected`` and ``error`` for what could not be checked,
    ``denied`` for a proof that leans on what may not be leaned on."""
    match result:
        case Checked(report=report):
            return "denied" if result.denied else report.overall
        case Rejected():
            return "rejected"
        case Failure():
            return "error"


def conditions(result: Result) -> tuple[str, ...]:
    """The names of what a proof leans on."""
    return result.report.conditions if isinstance(result, Checked) else ()


def summary(results: Sequence[Result]) -> str:
    """How many kernels got which verdict."""
    return f"{count(len(results), 'kernel')}{counted(results)}\n"


def counted(results: Iterable[Result]) -> str:
    """``: 3 proved (1 conditionally), 1 failed``; empty without results."""
    done = tuple(results)
    counts = Counter(map(verdict_of, done))
    leaning = Counter(verdict_of(r) for r in done if conditions(r) and verdict_of(r) != "denied")
    parts = [
        f"{counts[verdict]} {verdict}"
        + (f" ({leaning[verdict]} conditionally)" if leaning[verdict] else "")
        for verdict in COLOURS if counts[verdict]
    ]  # fmt: skip
    return f": {', '.join(parts)}" if parts else ""


def table(results: Iterable[Result], style: Style = PLAIN) -> str:
    """A row per kernel, the worst last: verdict, kernel, and what was found or why it is open."""
    order = list(COLOURS)
    cleaned = (clean(result) for result in results)
    rows = sorted(
        ((verdict_of(r), r.kernel, _summary(r)) for r in cleaned),
        key=lambda row: order.index(row[0]),
    )
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    return "".join(_row(row, widths, style) for row in rows)


def _row(row: tuple[str, str, str], widths: Sequence[int], style: Style) -> str:
    verdict, kernel, gist = row
    line = f"{verdict:{widths[0]}}  {kernel:{widths[1]}}  {gist}".rstrip()
    width = max(style.width, LEAST, sum(widths) + 4)
    line = line if len(line) <= width else f"{line[: width - 3]}..."
    return line.replace(verdict, style.paint(verdict, verdict), 1) + "\n"


def _summary(result: Result) -> str:
    """The first finding, why it is open, or what is wrong; what was simulated if all is well."""
    match result:
        case Checked(report=report):
            if report.findings:
                first = report.findings[0]
                places = [story.short(loc) for loc in first.locations]
                said = first.message if first.rule == "unsupported" else first.rule
                code = "" if result.machine_code is None else result.machine_code.head()
                return f"{said} ({', '.join(places)}){code}"
            if report.for_all is not None and not report.for_all.proved:
                why = report.for_all.obstacle
                return report.for_all.said + (f": {why}" if why is not None else "")
            if report.reasons:
                return report.reasons[0]
            stats = report.stats
            cost = f"{count(stats.instructions, 'warp instruction')}, {count(stats.ctas, 'CTA')}"
            cost += "" if result.machine_code is None else result.machine_code.head()
            given = ", ".join(report.conditions)
            return f"leaning on {given}; {cost}" if given else cost
        case Rejected(diagnostics=diagnostics):
            return str(diagnostics[0]).splitlines()[0]
        case Failure(message=message):
            return message.splitlines()[0]


def _lines(result: Result, style: Style, detail: _Detail) -> Iterator[str]:
    yield _head(result, style)
    match result:
        case Checked(report=report):
            if report.findings:
                yield ""
                yield from _findings(report.findings, style, detail)
            if result.special:
                yield from _story(result, style, detail)
            if report.repairs is not None:
                yield from of_repairs(report.repairs, style)
            yield from _verdict(result, report, style, detail)
        case Rejected(diagnostics=diagnostics):
            shown = None
            for diagnostic in diagnostics[: detail.findings]:
                yield from _diagnostic(diagnostic, style, source=diagnostic.loc != shown)
                shown = diagnostic.loc
            if result.repairs is not None:
                yield ""
                yield from [*of_repairs(result.repairs, style)][:-1]
        case Failure(message=message, places=places):
            for line in message.splitlines() or [""]:
                # commands stand as they are to be typed
                yield from [f"  {line}"] if line.startswith(" ") else wrapped(line, 2, 4, style)
            for place in places:
                yield from quoted(place, 6, place=len(places) > 1)


def _head(result: Result, style: Style) -> str:
    """``FAILED kernel  (deadlock)``."""
    verdict = verdict_of(result)
    rules: dict[str, None] = {}
    match result:
        case Checked(report=report):
            rules = dict.fromkeys(f.rule for f in report.findings)
        case Rejected(diagnostics=diagnostics):
            rules = dict.fromkeys(d.rule for d in diagnostics)
        case _:
            pass
    head = f"{style.paint(verdict.upper(), verdict)} {style.bold(result.kernel)}"
    if isinstance(result, Checked) and result.report.for_all and verdict != "denied":
        head, rules = _for_values(result, result.report.for_all, style), {}
    rechecked = ""
    if isinstance(result, Checked) and result.report.rechecked is not None:
        rechecked = ", rechecked" if result.report.rechecked.verdict == "certified" else ""
    given = conditions(result)
    code = result.machine_code if isinstance(result, Checked) else None
    head += code.head(rechecked) if code is not None else rechecked
    if given and not (code is not None and code.kind == "failed"):
        return f"{head}  (leaning on {', '.join(given)})"
    return f"{head}  ({', '.join(rules)})" if rules else head


def _for_values(result: Checked, claim: Claim, style: Style) -> str:
    """``PROVED kernel for n in 1..612; FAILED for n = 613: deadlock``."""
    (first, values), *others = claim.parts
    said = [f"{style.paint(first.upper(), first)} {style.bold(result.kernel)} for {values}"]
    for verdict, values in others:
        known = verdict in COLOURS
        word = style.paint(verdict.upper(), verdict) if known else style.paint(verdict, "bounded")
        said.append(f"{word} for {values}")
    return "; ".join(said)


def _headline(finding: Finding, style: Style) -> Iterator[str]:
    """Coloured after it is wrapped: escape sequences have no width."""
    first, *rest = wrapped(f"{finding.rule}: {finding.message}", 2, 4, style)
    yield first.replace(finding.rule, style.paint(finding.rule, "failed"), 1)
    yield from rest


def findings_text(findings: Iterable[Finding], style: Style = PLAIN) -> str:
    """The findings of one kernel, each followed by an empty line."""
    shown = map(clean, findings)
    return inert("".join(f"{line}\n" for line in _findings(shown, style, _EVERYTHING))[:-1])


def _findings(findings: Iterable[Finding], style: Style, detail: _Detail) -> Iterator[str]:
    """The first one, and those after it: with all they say only if everything is shown."""
    first, *others = fold(findings)
    yield from (*_finding(first, style, detail), "")
    whole = detail is _EVERYTHING
    for folded in others if whole else others[: detail.findings]:
        if whole:
            yield from (*_finding(folded, style, detail), "")
            continue
        yield from _headline(folded.finding, style)
        places = ", ".join(story.short(loc) for loc in folded.finding.locations[:_CULPRITS])
        yield from field("where", places, style)
    if not whole and others:
        left = len(others) - detail.findings
        if left > 0:
            yield f"  and {count(left, 'finding')} more"
        yield ""


def _finding(folded: Folded, style: Style, detail: _Detail) -> Iterator[str]:
    finding = folded.finding
    yield from _headline(finding, style)
    if finding.cause:
        yield from field("cause", finding.cause, style)
    shown: set[tuple[str, ...]] = set()
    sides = finding.participants[: detail.places]
    culprits = [_once(p, sides) for p in finding.culprits[:_CULPRITS]]
    several = len({p.cta for p in (*finding.culprits, *finding.participants)}) > 1
    yield from _places("culprit", culprits, several, shown, style)
    yield from _places("where", sides, several, shown, style)
    yield from _more(finding.participants[detail.places :], style)
    if folded.also:
        yield from field("", folded.also_in, style)
    doc = RULE_DOCS.get(finding.rule)
    if doc is not None:
        yield from field("why", f"{doc.summary} (PTX ISA: {doc.ptx[0]})", style)
    label = "notes"
    for note in finding.notes[: detail.notes]:
        yield from field(label, note, style, hang=4)
        label = ""
    if len(finding.notes) > detail.notes:
        yield from field("", f"and {len(finding.notes) - detail.notes} more", style)
    label = "follows"
    for other in folded.follows[: detail.findings]:
        places = ", ".join(dict.fromkeys(story.short(p.loc) for p in other.participants))
        yield from field(label, f"{other.rule}: {other.message} ({places})", style, hang=4)
        label = ""
    if finding.fix:
        yield from field("fix", finding.fix, style)


def _once(culprit: Participant, sides: Sequence[Participant]) -> Participant:
    """A culprit without the turns of its loops if one of the sides says the same."""
    said = ((p.cta, p.warp, p.loc, p.iterations) for p in sides)
    mine = culprit.cta, culprit.warp, culprit.loc, culprit.iterations
    return replace(culprit, iterations=()) if mine in said else culprit


def _more(sides: Sequence[Participant], style: Style) -> Iterator[str]:
    """Those that are not shown: how many, and where."""
    if sides:
        places = ", ".join(dict.fromkeys(story.short(p.loc) for p in sides))
        yield from field("", f"and {len(sides)} more at {places}", style)


def _places(
    label: str,
    sides: Iterable[Participant],
    several: bool,
    shown: set[tuple[str, ...]],
    style: Style,
) -> Iterator[str]:
    """Which warp did what, and the source lines, of those that are not ``shown`` already."""
    for participant in sides:
        yield from field(label, side_text(participant, several=several), style)
        loc = participant.loc
        place = loc.written + tuple(map(str, loc.calls))
        if place in shown:
            yield f"{' ' * COLUMN}{loc}"
        else:
            yield from quoted(loc, COLUMN)
            shown.add(place)
        label = ""


def _story(result: Checked, style: Style, detail: _Detail) -> Iterator[str]:
    """The failing schedule of the first finding, if it was recorded."""
    told = story.of_result(result, detail.story)
    if told is None:
        return
    finding, tale = told
    title = f"how it gets to the {finding.rule}, {tale.unit} by {tale.unit}; > is what is reported"
    yield from field("schedule", title, style, indent=2)
    room = max(style.width, LEAST) - COLUMN
    for line in map(printable, story.lines(tale, room)):
        fatal = line.partition("> ")
        mark = f"{fatal[0]}{style.paint(fatal[1], 'failed')}{fatal[2]}" if fatal[1] else line
        yield f"{' ' * COLUMN}{mark}"
    yield ""


def _verdict(result: Checked, report: Report, style: Style, detail: _Detail) -> Iterator[str]:
    yield from field("covers", report.covers, style, indent=2)
    for leaning in report.leanings:
        if leaning.conditional or leaning in result.denied:
            yield from _leaning(leaning, result, style, detail)
    if result.machine_code is not None:
        yield from field("sass", result.machine_code.said, style, indent=2, hang=2)
    if report.rechecked is not None and report.rechecked.verdict != "certified":
        yield from field("recheck", str(report.rechecked), style, indent=2)
    elif report.recheck_trusts:
        yield from field("recheck", f"trusts {report.recheck_trusts}", style, indent=2)
    label = "because"
    for reason in report.reasons[: detail.notes]:
        yield from field(label, reason, style, indent=2)
        label = ""
    stats = report.stats
    cost = (
        f"{count(stats.instructions, 'warp instruction')}, "
        f"{count(stats.schedules, 'schedule')}, {count(stats.ctas, 'CTA')}"
    )
    yield from field("cost", cost, style, indent=2)
    if result.replay:
        yield from field("replay", result.replay, style, indent=2)
    rules = dict.fromkeys(f.rule for f in report.findings)
    if rules:
        yield from field("more", f"tilesim explain {' '.join(rules)}", style, indent=2)


def _leaning(leaning: Leaning, result: Checked, style: Style, detail: _Detail) -> Iterator[str]:
    """``warning   U12: a copy overwrites ...`` and the lines."""
    label = "warning" if leaning.kind == "practice" else "assumes"
    label = "denied" if leaning in result.denied else label
    yield from field(label, f"{leaning.name}: {leaning.text}", style, indent=2)
    for loc in leaning.locs[: detail.places]:
        yield from quoted(loc, COLUMN)
    left = leaning.locs[detail.places :]
    if left:
        yield from field("", f"and {', '.join(map(story.short, left))}", style)


def _diagnostic(d: Diagnostic, style: Style, *, source: bool) -> Iterator[str]:
    yield from wrapped(f"{d.loc}: {d.message} [{d.rule}]", 2, 6, style)
    if source:
        yield from quoted(d.loc, 6, place=False)
    if d.fix:
        yield from wrapped(f"fix: {d.fix}", 6, 11, style)


@dataclass(frozen=True)
class Modelled:
    """What was ``done``, and what was ``left_out``, each in a sentence without a full stop."""

    done: str
    left_out: str


def modelled(
    target: Target, program: Program | Mir, schedule: str, strict: Strict, seed: int
) -> Modelled:
    """What a run of ``schedule`` says, and what it leaves open."""
    mir = lower(program) if isinstance(program, Program) else program
    numbers = "all numbers"
    if target.ptx is not None:
        inputs = "memory as the launch description has it"
        numbers = "addresses, integers and what branches ask for"
    elif not mir.kernel.tensors:
        inputs = "no inputs"
    elif target.kernel is not None and target.kernel.inputs is not None:
        inputs = f"the kernel's own inputs (seed {seed})"
    else:
        inputs = f"random integers as inputs (seed {seed})"
    done = (
        f"{schedule}, with barriers, copies, proxies and {numbers}; {inputs}; strictness {strict}"
    )
    return Modelled(done, "; ".join(_left_out(mir, numbers=target.ptx is None)))


def _left_out(mir: Mir, *, numbers: bool) -> Iterator[str]:
    done = [
        (i.what, effects)
        for i, effects in zip(mir.code, mir.effects, strict=True)
        if isinstance(i.what, Op)
    ]
    yield "other schedules (tilesim check tries them)"
    yield "speed: cycles only order events"
    if not numbers:
        yield "floating-point numbers and matrices"
    elif any("mma" in op.mnemonic for op, _ in done):
        yield "the order in which tensor cores add"
    idle = Counter(op.mnemonic for op, effects in done if not effects)
    if idle:
        named = ", ".join(f"{name} ({count(n, 'place')})" for name, n in sorted(idle.items()))
        yield f"without effect here: {named}"
    for what in sorted({effect.oracle for _, effect in mir.all_of(Defines) if effect.oracle}):
        yield f"other outcomes of {what} than the one that was taken"


def refused(target: Target, error: TilesimError) -> Result:
    """The result for ``target``, whose program could not be made, or not run, for ``error``."""
    match error:
        case InvalidProgram(diagnostics=diagnostics):
            arch = target.kernel.target if target.kernel is not None else None
            repairs = error.repairs if isinstance(error, Mendable) else None
            return Rejected(target.id, arch, diagnostics, repairs)
        case Unsupported() if target.ptx is not None:
            return Checked(
                target.id, target.ptx.target, unsupported(target.ptx.launch.entry, error)
            )
        case Unsupported() if (closed := target.closed) is not None:
            return Checked(target.id, closed.target, without_ptx(closed.name, error))
        case _:
            return Failure(target.id, str(error), places=error.places)


def covering(report: Report, launch: Launch) -> Report:
    """The report, which says what the launch is: the numbers that it passes, but for those of which
    the report has others, and what the launch says of itself."""
    named = [
        f"{n} = {v}" for n, v in launch.numbers.items()
        if f"{n} = " not in report.covers and f"every {n} " not in report.covers
    ]  # fmt: skip
    said = (report.covers, f"launched with {', '.join(named)}" if named else "", launch.about)
    return replace(report, covers="; ".join(filter(None, said)))


def without_ptx(name: str, error: Unsupported) -> Report:
    """The report on the kernel ``name``, of which there is machine code only."""
    side = Participant(f"kernel {short(name)}", 0, None, "has no PTX", Loc(error.file, error.line))
    finding = Finding("unsupported", error.what, (side,), fix=error.fix)
    return Report(name, "unsupported", "nothing: there is no PTX", (finding,))


def unsupported(name: str, error: Unsupported) -> Report:
    """The report on the kernel ``name``, with the line of the instruction that is not modelled."""
    place = Loc(error.file, error.line)
    side = Participant(f"kernel {short(name)}", 0, None, "has this instruction", place)
    finding = Finding("unsupported", error.what, (side,), fix=error.fix)
    return Report(name, "unsupported", "nothing: the kernel was not run", (finding,))
