"""An autopsy as results of a check: what waits in a dump is a finding, with the lines at which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilesim.autopsy.core_dump import target
from tilesim.autopsy.pipeline import Autopsy, Launched, is_waiting
from tilesim.autopsy.text import (
    cycle_text,
    doing,
    entry_notes,
    entry_text,
    facts,
    groups_text,
    launch_text,
    name,
    own_groups,
    waiting_text,
    where,
)
from tilesim.autopsy.wait_for import Entry, Supply
from tilesim.autopsy.waits import Trap
from tilesim.checker import Report
from tilesim.cubin.sass import Instruction
from tilesim.errors import Diagnostic
from tilesim.files import source_lines, source_path
from tilesim.findings.finding import Finding, Participant
from tilesim.ir.loc import Loc
from tilesim.records import replace
from tilesim.report.result import Checked, Rejected, Result
from tilesim.report.sarif import EXCEPTION
from tilesim.sim.observers.timeline import Releaser, Waiter


def results(found: Autopsy) -> Iterator[Result]:
    """A result for each kernel of which warps wait, or have met an exception or a trap; of
    exceptions of warps that have ended, one for the dump."""
    for launch in found.launches:
        finding = waiting(found, launch)
        if finding is not None:
            report = Report(launch.name, "failed", launch_text(launch), (finding,))
            yield Checked(name(launch), target(launch.device.arch), report)
    yield from exceptions(found)


def exceptions(found: Autopsy) -> Iterator[Rejected]:
    """What has stopped, with the lines at which; where no warp says it, what the SMs say."""
    stood = False
    for launch in found.launches:
        said = tuple(
            Diagnostic(
                EXCEPTION, entry_text(entry, launch), loc(entry.wait.instruction, found.path)
            )
            for entry in launch.entries
            if isinstance(entry.wait, Trap)
        )
        if said:
            stood = True
            yield Rejected(name(launch), target(launch.device.arch), said)
    others = (
        ()
        if stood
        else tuple(
            Diagnostic(EXCEPTION, text, Loc(found.path, 1))
            for label, text in facts(found)
            if label == EXCEPTION
        )
    )
    if others:
        yield Rejected(Path(found.path).name, None, others)


def waiting(found: Autopsy, launch: Launched) -> Finding | None:
    """What the dump says of a kernel that waits; None if no wait is known. Where a check finds this
    hang, the cause and the culprits are its."""
    entries = [e for e in launch.entries if is_waiting(e)]
    if not entries:
        return None
    sides = tuple(_side(entry, launch, found.path) for entry in entries)
    notes = [line for e in entries for line in (entry_text(e, launch), *entry_notes(e, launch))]
    cycle = [g for g in found.cycle if g.cta.grid is launch.grid]
    if cycle:
        notes.append(f"cycle: {cycle_text(cycle)}")
    finding = Finding("deadlock", waiting_text(launch), sides, tuple(notes))
    match = launch.diagnosis and launch.diagnosis.match
    if not match:
        return finding
    finding = replace(finding, notes=(*match.says, *match.differs, *match.contradicts, *notes))
    if match.kind != "same" or match.finding is None:
        return finding
    same = match.finding
    culprits = tuple(replace(one, loc=_here(one.loc)) for one in same.culprits)
    return replace(finding, cause=same.cause, culprits=culprits, fix=same.fix)


def _here(loc: Loc) -> Loc:
    """A line of the source where its file is on this machine; PTX of a dump is in no file."""
    return Loc(
        source_path(loc.file) if source_lines(loc.file) else loc.file, loc.line, loc.function
    )


def _side(entry: Entry, launch: Launched, path: str) -> Participant:
    """The groups of an entry as one side: the first warp stands for them."""
    first = own_groups(entry)
    action = f"{doing(first)} at {where(first[0], launch)}"
    place = loc(first[0].wait.instruction, path)
    return Participant(groups_text(first), first[0].cta.number, first[0].warps[0], action, place)


def loc(instruction: Instruction | None, path: str) -> Loc:
    """The line of the kernel from which an instruction comes; of code without lines the dump."""
    if instruction is None or not instruction.lines:
        return Loc(path, 1)
    line = instruction.lines[-1]
    return _here(Loc(line.file, line.line))


def waiters(launch: Launched, path: str) -> tuple[Waiter, ...]:
    """What waits for what, for a picture."""
    entries = [e for e in launch.entries if is_waiting(e)]
    of = {(g.cta.number, w, g.lanes): e for e in entries for g in e.groups for w in g.warps}
    return tuple(_waiter(entry, of, path) for entry in entries)


def _waiter(entry: Entry, of: dict[tuple[int, int, int], Entry], path: str) -> Waiter:
    first = own_groups(entry)
    text = doing(first)
    return Waiter(
        groups_text(first), groups_text(first), first[0].cta.number, text,
        loc(first[0].wait.instruction, path), text.partition(" for ")[2],
        entry.state[0] if entry.state else "",
        tuple(_releaser(supply, of, path) for supply in entry.supplies),
    )  # fmt: skip


def _releaser(supply: Supply, of: dict[tuple[int, int, int], Entry], path: str) -> Releaser:
    """What could release a wait: if that waits itself, it is called as it is there."""
    group = supply.groups[0]
    own = of.get((group.cta.number, group.warps[0], group.lanes))
    groups = supply.groups if own is None else own_groups(own)
    label = groups_text(groups)
    state = f"{doing(groups)} at {loc(groups[0].wait.instruction, path)}"
    instruction = supply.instructions[0] if supply.instructions else None
    opcode = "" if instruction is None else instruction.opcode
    return Releaser(label, label, groups[0].cta.number, opcode, loc(instruction, path), state)
