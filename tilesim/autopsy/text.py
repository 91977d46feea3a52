"""An autopsy as text: the verdict, the cause, what waits for what, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from tilesim.autopsy.core_dump import Triple
from tilesim.autopsy.pipeline import Autopsy, Launched
from tilesim.autopsy.wait_for import Entry, Supply
from tilesim.autopsy.waits import Group, Running, numbers
from tilesim.cubin.sass import Instruction, SourceLine
from tilesim.files import source_lines
from tilesim.layout import COLUMN, PLAIN, Style, field
from tilesim.ptx.demangle import readable
from tilesim.wording import count, inert, printable, ranges

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


def render(found: Autopsy, style: Style = PLAIN) -> str:
    """The report, ending with a newline."""
    return inert("\n".join(_lines(found, style)) + "\n")


def _lines(found: Autopsy, style: Style) -> Iterator[str]:
    if not found.launches:
        devices = count(len(found.devices), "device")
        yield f"{style.paint('IDLE', 'proved')} no kernel was running on {devices}"
    for number, launch in enumerate(found.launches):
        if number:
            yield ""
        yield from _launch(found, launch, style)
    if found.lacks:
        yield ""
    label = "unknown"
    for lack in found.lacks:
        yield from field(label, str(lack), style, indent=2)
        label = ""


def _launch(found: Autopsy, launch: Launched, style: Style) -> Iterator[str]:
    yield headline(found, launch, style)
    if not launch.ctas:
        return
    yield ""
    label = "waits"
    for entry in launch.entries:
        if not isinstance(entry.wait, Running):
            yield from _entry(label, entry, launch, style)
            label = ""
    label = "stands"
    for entry in launch.entries:
        if isinstance(entry.wait, Running):
            yield from _entry(label, entry, launch, style)
            label = ""
    cycle = [g for g in found.cycle if g.cta.grid is launch.grid]
    if cycle:
        around = [groups_text([g]) for g in (*cycle, cycle[0])]
        yield from field("cycle", " -> ".join(around), style)


def headline(found: Autopsy, launch: Launched, style: Style = PLAIN) -> str:
    """``HANGS ring  grid 3, block 160, sm_90; 3 of 3 CTAs resident``."""
    word, verdict = _HEADS[launch.state]
    where = f" on device {launch.device.number}" if len(found.devices) > 1 else ""
    head = f"{style.paint(word, verdict)} {style.bold(name(launch))}"
    return f"{head}  {launch_text(launch)}{where}"


def name(launch: Launched) -> str:
    """The kernel's name in C++, or where it lies."""
    if not launch.name:
        return f"the kernel at {launch.grid.entry:#x}"
    return printable(readable(launch.name), "")


def launch_text(launch: Launched) -> str:
    """``grid 3, block 160, sm_90; 3 of 3 CTAs resident``."""
    grid = launch.grid
    parts = [f"grid {size(grid.grid)}", f"block {size(grid.block)}"]
    if any(grid.cluster):
        parts.append(f"cluster {size(grid.cluster)}")
    parts.append("sm_{}{}".format(*launch.device.arch))
    resident, total = len(launch.ctas), launch.total
    said = f"{resident:,} of {count(total, 'CTA')} resident"
    if resident < total:
        said += f", {total - resident:,} not started or ended"
    return f"{', '.join(parts)}; {said}"


def size(of: Triple) -> str:
    """``132``, ``8x4``, ``8x4x2``."""
    dimensions = list(of)
    while len(dimensions) > 1 and dimensions[-1] == 1:
        dimensions.pop()
    return "x".join(map(str, dimensions))


def _entry(label: str, entry: Entry, launch: Launched, style: Style) -> Iterator[str]:
    yield from field(label, entry_text(entry, launch), style, hang=2)
    yield from _place(entry.groups[0], style)
    for line in entry_notes(entry):
        yield from field("", f"  {line}", style, hang=2)


def own_groups(entry: Entry) -> list[Group]:
    """The groups of an entry that are in its first CTA."""
    return [g for g in entry.groups if g.cta is entry.groups[0].cta]


def entry_text(entry: Entry, launch: Launched) -> str:
    """``warps 0-3 wait for mbarrier 0xc08, parity 1, in CTAs 0-2``."""
    first = own_groups(entry)
    said = f"{groups_text(first)} {doing(first)}"
    if launch.total == 1:
        return said
    return f"{said}, in CTA{'' if len(entry.ctas) == 1 else 's'} {ranges(entry.ctas)}"


def entry_notes(entry: Entry) -> list[str]:
    """The state of what is waited for, and what could release it."""
    return [*entry.state, *(supply_text(s) for s in entry.supplies)]


def supply_text(supply: Supply) -> str:
    """``warp 4 could release it at ring.cu:9 < ring.cu:19; it waits for ...``."""
    places = dict.fromkeys(place(i) for i in supply.instructions)
    could = "could release it at" if supply.certain else "may be able to release it at"
    subject = "it" if sum(len(g.warps) for g in supply.groups) == 1 else "they"
    also = f"; {subject} {doing(supply.groups)}"
    return f"{groups_text(supply.groups)} {could} {', '.join(places)}{also}"


def groups_text(groups: Sequence[Group]) -> str:
    """``warps 0-3``, ``warp 4 (lane 0)``: lanes where they are not all of the warp."""
    lanes = {g.lanes for g in groups}
    if len(lanes) > 1:
        return ", ".join(dict.fromkeys(groups_text([g]) for g in groups))
    return _warps(sorted({w for g in groups for w in g.warps}), lanes.pop())


def _warps(warps: Sequence[int], lanes: int) -> str:
    said = f"warp{'' if len(warps) == 1 else 's'} {ranges(warps)}"
    if lanes == _ALL_LANES:
        return said
    some = numbers(lanes)
    return f"{said} (lane{'' if len(some) == 1 else 's'} {ranges(some)})"


def doing(groups: Sequence[Group]) -> str:
    """What groups wait for, as a clause that goes with them."""
    text = str(groups[0].wait)
    if sum(len(g.warps) for g in groups) == 1:
        return text
    return " ".join(_PLURALS.get(word, word) for word in text.split(" "))


def _place(group: Group, style: Style) -> Iterator[str]:
    """Where a group stands: the line, and the calls around it, as they are in the source."""
    instruction = group.wait.instruction
    yield from field("", f"at {where(group)}", style)
    lines = () if instruction is None else instruction.lines
    for line in lines:
        text = quoted(line)
        if text:
            room = max(style.width - COLUMN - 4, 20)
            said = f"{short(line)} | {text}"
            yield f"{' ' * COLUMN}  {said if len(said) <= room else said[: room - 3] + '...'}"


def where(group: Group) -> str:
    """The place of a group: its line, or its instruction."""
    instruction = group.wait.instruction
    if instruction is None:
        return f"+{group.pc:#x}"
    return place(instruction)


def place(instruction: Instruction) -> str:
    """``ring.cu:10 < ring.cu:21``, or ``+0x160 BAR.SYNC``."""
    if not instruction.lines:
        return f"+{instruction.pc:#x} {instruction.opcode}"
    return " < ".join(map(short, instruction.lines))


def short(line: SourceLine) -> str:
    """A line with the file's name only."""
    return printable(f"{PurePath(line.file).name}:{line.line}", "")


def quoted(line: SourceLine) -> str:
    """What a line says; empty if its file cannot be read or is not to be shown."""
    text = source_lines(line.file)
    return printable(text[line.line - 1].strip()) if 0 < line.line <= len(text) else ""
