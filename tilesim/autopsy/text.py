"""An autopsy as text: the verdict, the cause, what waits for what, and what is not known.

Names in a dump are untrusted: what a terminal would obey is escaped where lines are made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from tilesim.autopsy.compare import Match
from tilesim.autopsy.core_dump import dimensions, exception_text, target
from tilesim.autopsy.pipeline import Autopsy, Launched, is_waiting
from tilesim.autopsy.wait_for import Entry, Supply
from tilesim.autopsy.waits import (
    ClusterBarrierWait,
    Group,
    MbarrierWait,
    NamedBarrierWait,
    Poll,
    Wait,
    WarpWait,
    lanes_of,
)
from tilesim.cubin.sass import Instruction, SourceLine
from tilesim.findings.finding import Finding
from tilesim.findings.sides import side_text
from tilesim.ir.loc import Loc
from tilesim.layout import COLUMN, PLAIN, Style, field, line_of, quoted, wrapped
from tilesim.ptx.demangle import readable
from tilesim.repair.text import of_repairs
from tilesim.wording import count, inert, numbered, printable

#: what a state is called, and the verdict of a check that has its colour
_HEADS = {
    "hangs": ("HANGS", "failed"), "waits": ("WAITS", "failed"), "stopped": ("STOPPED", "failed"),
    "pending": ("PENDING", "bounded"), "open": ("OPEN", "bounded"),
}  # fmt: skip
_PLURALS = {
    "waits": "wait", "polls": "poll", "sleeps": "sleep", "has": "have", "stands": "stand",
    "is": "are", "its": "their",
}  # fmt: skip
_ALL_LANES = (1 << 32) - 1
#: by kind of wait what releases it, and what may if it is not known what it names
_RELEASES: Mapping[type[Wait], tuple[str, str]] = {
    MbarrierWait: ("an arrival on it", "an arrival that may be on it"),
    NamedBarrierWait: ("this barrier", "a barrier that may be this one"),
    ClusterBarrierWait: ("this barrier", "a barrier that may be this one"),
    Poll: ("a store to it", "a store that may be to it"),
    WarpWait: ("the place where they reconverge", "a place where they may reconverge"),
}
_ANYTHING = ("what releases it", "what may release it")
_MBARRIER = re.compile(r"\bmbarrier (0x[0-9a-f]+)\b(?! of the cluster's)")


def render(found: Autopsy, style: Style = PLAIN) -> str:
    """The report, ending with a newline."""
    return inert("\n".join(_lines(found, style)) + "\n")


def _lines(found: Autopsy, style: Style) -> Iterator[str]:
    if not found.launches:
        devices = count(len(found.devices), "device")
        yield f"{style.paint('IDLE', 'proved')} no kernel was running on {devices}"
    waiting = [launch for launch in found.launches if not launch.ctas]
    left = waiting[_PENDING:]
    for number, launch in enumerate(o for o in found.launches if o not in left):
        if number:
            yield ""
        yield from _launch(found, launch, style)
    if left:
        verb = "have" if left[1:] else "has"
        yield f"and {count(len(left), 'kernel')} more that {verb} not begun"
    said = [*facts(found)]
    if said:
        yield ""
    yield from _fields(said, style)


def facts(found: Autopsy) -> Iterator[tuple[str, str]]:
    """Exceptions that the SMs say, what is not known, and what was taken for granted: each with its
    label."""
    several = len(found.devices) > 1
    for fault in found.faults:
        where = f"SM {fault.sm}{f' of device {fault.device}' if several else ''}"
        at = "" if fault.pc is None else f" at {fault.pc:#x}"
        yield "exception", f"{exception_text(fault.exception)}, on {where}{at}"
    for lack in found.lacks:
        yield "unknown", str(lack)
    for launch in found.launches:
        ptx = launch.diagnosis and launch.diagnosis.ptx
        match = launch.diagnosis and launch.diagnosis.match
        if ptx:
            yield "PTX", f"{ptx.source}: {ptx.evidence}"
            yield from (("PTX", text) for text in ptx.differs)
        if match:
            yield from (("assumes", f"{one.name}: {one.text}") for one in match.assumed)


def _field(label: str, text: str, style: Style, hang: int = 0) -> Iterator[str]:
    return field(label, printable(text, ""), style, indent=2, hang=hang)


def _fields(rows: Iterable[tuple[str, str]], style: Style) -> Iterator[str]:
    """Texts, each with its label where that is another than the one before."""
    previous = ""
    for label, text in rows:
        yield from _field("" if label == previous else label, text, style)
        previous = label


# ---------------------------------------------------------------------- a launch


def _launch(found: Autopsy, launch: Launched, style: Style) -> Iterator[str]:
    yield from headline(found, launch, style)
    yield from _fields(room(found, launch), style)
    match = launch.diagnosis and launch.diagnosis.match
    if match:
        yield ""
        yield from _cause(launch, match, style)
    if launch.entries:
        yield ""
    shown: set[SourceLine] = set()
    for label, wanted in (("waits", True), ("others", False)):
        entries = [e for e in launch.entries if is_waiting(e) == wanted]
        # lanes that wait for those of their warp, which come to it, say the least
        entries.sort(key=lambda e: isinstance(e.wait, WarpWait) and bool(e.supplies))
        yield from _entries(label, entries, launch, shown, style)
    cycle = [g for g in found.cycle if g.cta.grid is launch.grid]
    if cycle:
        yield from _field("cycle", cycle_text(cycle), style)


def cycle_text(cycle: Sequence[Group]) -> str:
    """``warps 0-3 -> warp 4 -> warps 0-3``, with their CTAs if these are several."""
    several = len({g.cta.number for g in cycle}) > 1
    named = [f"CTA {g.cta.number} " * several + groups_text([g]) for g in cycle]
    return " -> ".join((*named, named[0]))


#: kernels that have not begun, groups of warps, notes on each, ranges of CTAs and culprits that are
#: shown
_PENDING = 8
_ENTRIES = 16
_NOTES = 8
_RUNS = 12
_CULPRITS = 3


def _cause(launch: Launched, match: Match, style: Style) -> Iterator[str]:
    """What a check says of the hang: the cause, what did it, what to change."""
    finding, same = match.finding, match.kind == "same"
    head, *says = match.says
    if same and finding is not None:
        of_dump = finding.rule == "deadlock"
        said = f"{finding.rule}: {waiting_text(launch) if of_dump else finding.message}"
        first, *rest = wrapped(printable(said, ""), 2, 4, style)
        yield first.replace(finding.rule, style.paint(finding.rule, "failed"), 1)
        yield from rest
        says = [*match.says]
    else:
        yield from map(style.bold, wrapped(printable(head, ""), 2, 4, style))
        yield from _match(says, match, style)
    if finding is not None:
        yield from _finding(finding, style)
    if same:
        yield from _match(says, match, style)
    repairs = match.report and match.report.repairs
    if repairs:
        yield ""
        yield from [*of_repairs(repairs, style)][:-1]


def _match(says: Sequence[str], match: Match, style: Style) -> Iterator[str]:
    for label, texts in (
        ("match", says), ("differs", match.differs), ("assumes", match.contradicts),
    ):  # fmt: skip
        for number, text in enumerate(texts):
            yield from _part("" if number else label, text, style, hang=2)


def _finding(finding: Finding, style: Style) -> Iterator[str]:
    if finding.cause:
        yield from _part("cause", finding.cause, style)
    # without a culprit, where the finding is; of a deadlock that is what waits
    sides, label = finding.culprits, "culprit"
    if not sides and finding.rule != "deadlock":
        sides, label = finding.participants, "where"
    several = len({p.cta for p in (*finding.culprits, *finding.participants)}) > 1
    shown: set[tuple[str, ...]] = set()
    for side in sides[:_CULPRITS]:
        yield from _part(label, side_text(side, several=several), style)
        if side.loc.written not in shown:
            yield from (printable(line, "") for line in quoted(side.loc, COLUMN))
        shown.add(side.loc.written)
        label = ""
    if finding.fix:
        yield from _part("fix", finding.fix, style)


def _part(label: str, text: str, style: Style, hang: int = 0) -> Iterator[str]:
    return field(label, printable(text, ""), style, hang=hang)


def waiting_text(launch: Launched) -> str:
    """``all 15 warps wait``, ``12 of 15 warps wait``: those of the CTAs that were running."""
    waiting = [e for e in launch.entries if is_waiting(e)]
    every, waits = _number(launch.entries), _number(waiting)
    doubtful = _number(e for e in waiting if not e.wait.certain)
    unless = f", {doubtful} of them unless they have just passed" if doubtful else ""
    warps = count(every, "warp")
    if waits == every:
        all_ = {1: "its warp waits", 2: "both warps wait"}.get(every, f"all {warps} wait")
        return f"{all_}{unless}"
    return f"{waits} of {warps} {'wait' if waits != 1 else 'waits'}{unless}"


def _number(entries: Iterable[Entry]) -> int:
    """How many warps entries are about."""
    return len({(g.cta.number, w) for e in entries for g in e.groups for w in g.warps})


def room(found: Autopsy, launch: Launched) -> Iterator[tuple[str, str]]:
    """Of a launch of which not all CTAs run: what a CTA needs, and what is held on its device; each
    with its label."""
    if not launch.absent.unknown:
        return
    device = launch.device
    if launch.ctas:
        yield "resident", f"{_resident(launch)}; {needs(launch)}"
    elif launch.kernel is not None:
        yield "needs", needs(launch)
    others = [o for o in found.launches if o.device == device and o.ctas and o is not launch]
    for other in others:
        yield "held", f"{name(other)}: {_resident(other)}; {needs(other)}"
    if launch.ctas:
        yield "", "whether the other CTAs have ended or have not begun is not in the dump"
    elif others:
        yield "", "whether it waits for these, or for an earlier kernel, is not in the dump"
    else:
        yield "held", "no other kernel runs on its device"


def _resident(launch: Launched) -> str:
    """``264 CTAs on 132 of 132 SMs, at most 2 on one``."""
    on = Counter(cta.sm for cta in launch.ctas)
    most = f", at most {max(on.values())} on one" if len(on) < len(launch.ctas) else ""
    return f"{count(len(launch.ctas), 'CTA')} on {len(on)} of {launch.device.sms} SMs{most}"


def needs(launch: Launched) -> str:
    """What a CTA of a launch takes of an SM, as far as it is known."""
    threads = launch.grid.block[0] * launch.grid.block[1] * launch.grid.block[2]
    parts = [f"{count(threads, 'thread')} of {launch.grid.registers} registers each"]
    if launch.shared is not None:
        parts.append(f"{launch.shared:,} bytes of shared memory")
    elif launch.kernel is not None:
        parts.append(
            f"{launch.kernel.info.shared:,} bytes of static shared memory (dynamic is not known)"
        )
    return f"a CTA has {', '.join(parts)}"


def headline(found: Autopsy, launch: Launched, style: Style = PLAIN) -> Iterator[str]:
    """``HANGS ring  grid 3, block 160, sm_90; 3 of 3 CTAs resident; all 15 warps wait``."""
    word, verdict = _HEADS[launch.state]
    where = f" on device {launch.device.number}" if len(found.devices) > 1 else ""
    waits = f"; {waiting_text(launch)}" if any(map(is_waiting, launch.entries)) else ""
    text = f"{word} {name(launch)}  {launch_text(launch)}{where}{waits}"
    first, *rest = wrapped(text, 0, 4, style)
    first = first.replace(name(launch), style.bold(name(launch)), 1)
    yield first.replace(word, style.paint(word, verdict), 1)
    yield from rest


def name(launch: Launched) -> str:
    """The kernel's name in C++, or where it lies."""
    if launch.grid.system:
        return "a kernel of the driver"
    if not launch.name:
        return f"the kernel at {launch.grid.entry:#x}"
    return printable(readable(launch.name), "")


def launch_text(launch: Launched) -> str:
    """``grid 3, block 160, sm_90; 3 of 3 CTAs resident``."""
    grid = launch.grid
    least = "at least " if grid.at_least else ""
    parts = [f"grid {least}{dimensions(grid.grid)}", f"block {dimensions(grid.block)}"]
    if any(grid.cluster):
        parts.append(f"cluster {dimensions(grid.cluster)}")
    parts.append(target(launch.device.arch))
    said = f"{len(launch.ctas):,} of {least}{count(grid.ctas, 'CTA')} resident"
    ended, unknown = launch.absent
    if ended:
        said += f", {ended:,} ended"
    if unknown:
        said += f", {unknown:,} not started{'' if grid.status == 'pending' else ' or ended'}"
    return f"{', '.join(parts)}; {said}"


# ---------------------------------------------------------------------- what waits


def _entries(
    label: str, entries: Sequence[Entry], launch: Launched, shown: set[SourceLine], style: Style
) -> Iterator[str]:
    """Entries, each with the lines at which it stands that are not ``shown`` already."""
    every = style.verbose
    for entry in entries if every else entries[:_ENTRIES]:
        yield from _field(label, entry_text(entry, launch), style, hang=2)
        label = ""
        yield from _place(entry.groups[0], launch, shown, style)
        notes = entry_notes(entry, launch)
        for line in notes if every else notes[:_NOTES]:
            yield from _field("", f"  {line}", style, hang=2)
        if not every and notes[_NOTES:]:
            left = len(notes) - _NOTES
            yield from _field("", f"  and {left} more (--verbose shows them)", style)
    if not every and entries[_ENTRIES:]:
        left = len(entries) - _ENTRIES
        yield from _field("", f"and {left} more groups of warps (--verbose shows them)", style)


def own_groups(entry: Entry) -> list[Group]:
    """The groups of an entry that are in its first CTA."""
    return [g for g in entry.groups if g.cta is entry.groups[0].cta]


def entry_text(entry: Entry, launch: Launched) -> str:
    """``warps 0-3 wait for mbarrier 0xc08, parity 1, in CTAs 0-2``."""
    first = own_groups(entry)
    said = f"{groups_text(first)} {_named(doing(first), launch)}"
    if launch.grid.ctas == 1:
        return said
    return f"{said}, in {_ctas(entry.ctas)}"


def _ctas(numbers: Sequence[int]) -> str:
    """``CTAs 0-2``; of many that do not follow each other the first, and how many there are."""
    runs = numbered("CTA", numbers).split(", ")
    left = f", ... ({count(len(numbers), 'CTA')})" if len(runs) > _RUNS else ""
    return f"{', '.join(runs[:_RUNS])}{left}"


def entry_notes(entry: Entry, launch: Launched) -> list[str]:
    """The state of what is waited for, and what could release it."""
    doubt = () if entry.wait.certain else (entry.wait.evidence,)
    made = dict.fromkeys(place(i) for i in entry.initialised)
    where = (f"initialised at {', '.join(made)}",) if made else ()
    return [*doubt, *where, *entry.state, *_supplies(entry, launch)]


def _supplies(entry: Entry, launch: Launched) -> Iterator[str]:
    """``warp 4 has an arrival on it ahead, at ring.cu:9 < ring.cu:19; it waits for ...``.

    Those at one place are said together; CTAs are named if they are others than the entry's.
    """
    together: dict[tuple[object, ...], list[Supply]] = {}
    for supply in entry.supplies:
        stands = where(supply.groups[0], launch)
        key = (supply.instructions, supply.certain, type(supply.groups[0].wait), stands)
        together.setdefault(key, []).append(supply)
    for supplies in together.values():
        groups = [g for supply in supplies for g in supply.groups]
        ctas = {g.cta.number: g.cta for g in groups}
        own = list(ctas.values()) == [entry.groups[0].cta]
        of = "" if own else f" of {_ctas(sorted(ctas))}"
        has, subject = ("have", "they") if _several(groups) else ("has", "it")
        what = _RELEASES.get(type(entry.wait), _ANYTHING)[not supplies[0].certain]
        at = ", ".join(dict.fromkeys(place(i) for i in supplies[0].instructions))
        does = _named(doing(groups), launch)
        if len({str(g.wait) for g in groups}) > 1:
            does = f"{does.partition(' ')[0]} at {where(groups[0], launch)}"
        yield f"{groups_text(groups)}{of} {has} {what} ahead, at {at}; {subject} {does}"


def _named(text: str, launch: Launched) -> str:
    """``text`` with the names that a check of the kernel has for its mbarriers."""
    match = launch.diagnosis and launch.diagnosis.match
    names = dict(match.names) if match else {}

    def name(found: re.Match[str]) -> str:
        known = names.get(int(found[1], 16))
        return found[0] if known is None else f"{found[0]} ({known})"

    return _MBARRIER.sub(name, text)


def groups_text(groups: Sequence[Group]) -> str:
    """``warps 0-3``, ``warp 4 (lane 0)``: lanes where they are not all of the warp."""
    lanes = {g.lanes for g in groups}
    if len(lanes) > 1:
        return ", ".join(dict.fromkeys(groups_text([g]) for g in groups))
    return _warps(sorted({w for g in groups for w in g.warps}), lanes.pop())


def _warps(warps: Sequence[int], lanes: int) -> str:
    said = numbered("warp", warps)
    return said if lanes == _ALL_LANES else f"{said} ({numbered('lane', lanes_of(lanes))})"


def doing(groups: Sequence[Group]) -> str:
    """What groups wait for, as a clause that goes with them."""
    text = str(groups[0].wait)
    if not _several(groups):
        return text
    return " ".join(_PLURALS.get(word, word) for word in text.split(" "))


def _several(groups: Sequence[Group]) -> bool:
    """Whether a text speaks of more than one warp, each of its CTA."""
    return len({w for g in groups for w in g.warps}) > 1


def _place(group: Group, launch: Launched, shown: set[SourceLine], style: Style) -> Iterator[str]:
    """Where a group stands: the line, and the calls around it, as they are in the source."""
    yield from _field("", f"  at {where(group, launch)}", style)
    instruction = group.wait.instruction
    for line in () if instruction is None else instruction.lines:
        if line not in shown and (text := line_of(Loc(line.file, line.line))):
            shown.add(line)
            yield f"{' ' * COLUMN}    {short(line)} | {text}"


def where(group: Group, launch: Launched) -> str:
    """The place of a group: its line, or its instruction; of code that is not the kernel's its
    address."""
    instruction, function = group.wait.instruction, launch.function
    if instruction is not None:
        return place(instruction)
    if function is not None and 0 <= group.pc < function.size:
        return f"+{group.pc:#x}, which is no instruction"
    return f"{launch.grid.entry + group.pc:#x}, outside of the kernel"


def place(instruction: Instruction) -> str:
    """``ring.cu:10 < ring.cu:21``, or ``+0x160 BAR.SYNC``."""
    if not instruction.lines:
        return f"+{instruction.pc:#x} {instruction.opcode}"
    return " < ".join(map(short, instruction.lines))


def short(line: SourceLine) -> str:
    """A line with the file's name only."""
    return printable(f"{PurePath(line.file).name}:{line.line}", "")
