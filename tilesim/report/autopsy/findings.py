"""An autopsy as results of a check: what waits in a dump is a finding, with the lines at which."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.autopsy.pipeline import Autopsy, Launched, is_waiting
from tilesim.autopsy.text import (
    doing,
    entry_notes,
    entry_text,
    groups_text,
    launch_text,
    name,
    own_groups,
    where,
)
from tilesim.autopsy.wait_for import Entry
from tilesim.autopsy.waits import Group
from tilesim.checker import Report
from tilesim.cubin.sass import Instruction
from tilesim.findings.finding import Finding, Participant
from tilesim.ir.loc import Loc
from tilesim.report import sarif
from tilesim.report.result import Checked


def render_sarif(found: Autopsy) -> str:
    """The log for code scanning, ending with a newline."""
    return sarif.render(results(found))


def results(found: Autopsy) -> Iterator[Checked]:
    """A result for each kernel of which warps wait."""
    for launch in found.launches:
        finding = waiting(found, launch)
        if finding is not None:
            report = Report(launch.name, "failed", launch_text(launch), (finding,))
            yield Checked(
                name(launch), f"sm_{launch.device.arch[0]}{launch.device.arch[1]}", report
            )


def waiting(found: Autopsy, launch: Launched) -> Finding | None:
    """What the dump says of a kernel that waits; None if no wait is known."""
    entries = [e for e in launch.entries if is_waiting(e)]
    if not entries:
        return None
    sides = tuple(_side(entry, launch, found.path) for entry in entries)
    notes = [line for e in entries for line in (entry_text(e, launch), *entry_notes(e))]
    cycle = [g for g in found.cycle if g.cta.grid is launch.grid]
    if cycle:
        notes.append(f"cycle: {' -> '.join(groups_text([g]) for g in (*cycle, cycle[0]))}")
    return Finding("deadlock", headline(launch), sides, tuple(notes))


def headline(launch: Launched) -> str:
    """``all 15 warps of the 3 CTAs that were running wait``."""
    waits = {_warps(e) for e in launch.entries if is_waiting(e)}
    return f"{launch_text(launch)}"


def _side(entry: Entry, launch: Launched, path: str) -> Participant:
    """The groups of an entry as one side: the first warp stands for them."""
    first = own_groups(entry)
    group = first[0]
    action = f"{doing(first)} at {where(group)}"
    return Participant(
        groups_text(first), group.cta.number, group.warps[0], action, place(group, path)
    )


def place(group: Group, path: str) -> Loc:
    """The line of the kernel at which a group stands; the dump itself without lines."""
    instruction = group.wait.instruction
    return Loc(path, 1) if instruction is None else loc(instruction, path)


def loc(instruction: Instruction, path: str) -> Loc:
    """The line of the kernel from which an instruction comes; the dump itself without lines."""
    if not instruction.lines:
        return Loc(path, 1)
    line = instruction.lines[-1]
    return Loc(line.file, line.line)
