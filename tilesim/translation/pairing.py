"""Which SASS instructions come from which PTX instructions.

The line table of the PTX says so, but for what it says loosely: the first try of a wait that is
peeled from its loop has the line before it, and of wgmmas one behind another some have the line of
a neighbour. These are paired by what they are. A pairing is a witness: of a wrong one relations are
not shown, or values differ.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tilesim.cubin.operands import written
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.ptx.inline import Kernel
from tilesim.translation import classes
from tilesim.translation.classes import Kind
from tilesim.translation.dead_products import dead_products

#: instructions between the first try of a wait and the branch to its loop, and between the
#: beginning of that loop and its wait, at most
_FAR = 1024
#: groups of HGMMAs that are one of the PTX, at most
_MOST_RUNS = 32
_NEAR = 8
#: lines of the PTX behind the one that the table gives, at most
_LOOSE = 60

#: the shape of a wgmma
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")

Event = tuple[int, str]


def events_of(kernel: Kernel, reachable: set[int]) -> dict[Event, list[int]]:
    """The synchronising instructions and accesses of a kernel by line and kind, in order."""
    found: dict[Event, list[int]] = {}
    for number, step in enumerate(kernel.code):
        if number in reachable and (kind := classes.of_ptx(step.opcode)) is not None:
            found.setdefault((step.place.line, kind.name), []).append(number)
    return found


def statements(lines: Sequence[str], kernel: Kernel) -> dict[int, int]:
    """Of lines within an instruction that has several: the line of its opcode."""
    found: dict[int, int] = {}
    for line in {step.place.line for step in kernel.code}:
        at = line
        while at <= len(lines) and ";" not in lines[at - 1] and at - line < _LOOSE:
            at += 1
            found[at] = line
    return found


def text(instruction: Instruction) -> str:
    """Opcode and operands, as the forms of `classes` have them."""
    return f"{instruction.opcode} {', '.join(instruction.operands)}"


def never(instruction: Instruction) -> bool:
    """Whether its guard is never true."""
    return instruction.guard in ("!PT", "!UPT")


def pair_events(
    events: Mapping[Event, Sequence[int]], kernel: Kernel, function: Function,
    lines: Sequence[str],
) -> dict[int, list[Event]]:  # fmt: skip
    """By pc, the events that a SASS instruction is a copy of."""
    return _Pairing(events, kernel, function, lines).found


class _Pairing:
    def __init__(
        self, events: Mapping[Event, Sequence[int]], kernel: Kernel, function: Function,
        lines: Sequence[str],
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.function = function
        self.inner = statements(lines, kernel)
        self.kinds_at: dict[int, list[str]] = defaultdict(list)
        self.lines_of: dict[str, list[int]] = defaultdict(list)
        for line, kind in events:
            self.kinds_at[line].append(kind)
            self.lines_of[kind].append(line)
        for places in self.lines_of.values():
            places.sort()
        self._tests = {
            step.place.line for step in kernel.code if step.opcode.startswith("mbarrier.test_wait")
        }
        self.found: dict[int, list[Event]] = {}
        loose: list[Instruction] = []
        for pc, one in function.code.items():
            if never(one) or self._is_continued(one):
                continue
            written = text(one)
            line = self.line(one)
            kinds = [k for k in self.kinds_at.get(line, ()) if classes.is_sass_of(k, written)]
            if kinds:
                self.found[pc] = [(line, kind) for kind in kinds]
            elif classes.SYNCHRONISES.match(written):
                loose.append(one)
        self._wgmmas()
        for one in loose:
            if one.pc not in self.found:
                self._repair(one)

    def line(self, one: Instruction) -> int:
        """The line of the PTX instruction that the table gives."""
        line = one.ptx or 0
        return self.inner.get(line, line)

    def _is_continued(self, one: Instruction) -> bool:
        """Whether an instruction is part of another one of its line: a fence of the CTA before a
        wider one, the second try of a wait with a time limit."""
        code = self.function.code
        if one.opcode == "MEMBAR.ALL.CTA":
            other = code.get(one.pc + WIDTH)
            return other is not None and other.base == "MEMBAR" and other.ptx == one.ptx
        if one.base == "SYNCS" and "PHASECHK" in one.modifiers and one.guard:
            second = "TRYWAIT" not in one.modifiers and one.guard == f"!{one.operands[0]}"
            return second and self._line_of_try(one)
        return False

    def _line_of_try(self, one: Instruction) -> bool:
        """Whether the line is no ``test_wait``, of which this could be a copy."""
        return self.line(one) not in self._tests

    def _repair(self, one: Instruction) -> None:
        """Pairs an instruction whose line is that of a neighbour."""
        written = text(one)
        if "GMMA" in one.base or one.base == "WARPGROUP":
            return  # what serialises wgmmas has lines of others
        if "PHASECHK" in one.modifiers and (same := self._in_loop(one)):
            self.found[one.pc] = same
            return
        kinds = self.kinds_at.get(self.line(one), ())
        if any(classes.BY_NAME[kind].expanded for kind in kinds):
            return  # part of what ptxas makes of that
        if one.base == "BAR" and self.lines_of.get("barrier.cluster.wait"):
            return  # stands for it in a launch without clusters
        if one.base == "UTMACMDFLUSH" and "fence.proxy.tensormap" in kinds:
            return  # part of that, as ptxas 13.4 makes it
        if one.base in ("FENCE", "MEMBAR") and classes.WITH_FENCE.intersection(kinds):
            return  # part of that
        if one.base == "FENCE" and "mbarrier.init" in kinds:
            return  # inserted
        line = self.line(one)
        near: list[Event] = []
        for kind, places in self.lines_of.items():
            if classes.is_sass_of(kind, written):
                at = bisect_right(places, line)
                if at < len(places) and places[at] - line < _LOOSE:
                    near.append((places[at], kind))
        if near:
            self.found[one.pc] = [min(near)]

    def _in_loop(self, one: Instruction) -> list[Event]:
        """Of the first try of a wait: the events of the same instruction in the loop to which the
        branch leads that depends on it."""
        code = self.function.code
        results = {*written(one)}
        pc = one.pc
        for _ in range(_FAR):
            pc += WIDTH
            branch = code.get(pc)
            if branch is None:
                return []
            if branch.base == "BRA" and branch.target is not None:
                if branch.guard.lstrip("!") in results:
                    return self._tries(one, branch.target)
                if not branch.guard:
                    return []
            if not results.isdisjoint(written(branch)):
                return []
        return []

    def _tries(self, one: Instruction, target: int) -> list[Event]:
        """The events of the first try in a loop, if it is one like another."""
        for at in range(target, target + _NEAR * WIDTH, WIDTH):
            other = self.function.code.get(at)
            if other is None or other.base in ("BRA", "EXIT"):
                return []
            if other.opcode == one.opcode:
                same = other.operands[0] == one.operands[0]
                return self.found.get(at, []) if same else []
        return []

    def _wgmmas(self) -> None:
        """Pairs groups of HGMMAs, each ended by ``gsb0``, with groups of as many wgmmas of the same
        shapes, each ended by a commit: that with the line of the fence before it, then that with
        most of their lines. Where ptxas serialises wgmmas, several groups are one of the PTX."""
        of_ptx = _groups(self.kernel, [])
        dead = dead_products(self.kernel)
        of_ptx += _groups(self.kernel, dead) if dead else []
        runs = [*self._runs()]
        while runs:
            for count in range(1, 1 + min(len(runs), _MOST_RUNS)):
                copies = [one for run in runs[:count] for one in run.copies]
                if self._paired_group(copies, runs[0].fence, of_ptx):
                    break
            else:
                count = 1
                self._paired_part(runs[0].copies, runs[0].fence, of_ptx)
            runs = runs[count:]

    def _runs(self) -> Iterator[_Run]:
        copies: list[Instruction] = []
        fence = 0
        for one in self.function.code.values():
            if one.base == "WARPGROUP" and "ARRIVE" in one.modifiers and not copies:
                fence = self.line(one)
            if "GMMA" not in one.base or one.base.startswith("UTC") or never(one):
                continue
            if classes.is_sass_of("wgmma", text(one)):
                copies.append(one)
            if "gsb0" in one.operands:
                if copies:
                    yield _Run(tuple(copies), fence)
                copies, fence = [], 0

    def _paired_group(
        self, copies: Sequence[Instruction], fence: int, groups: Sequence[_Group]
    ) -> bool:
        shapes = tuple(one.modifiers[0] for one in copies)
        group = self._best(copies, fence, [one for one in groups if one.shapes == shapes])
        if group is None:
            return False
        for one, line in zip(copies, group.lines, strict=True):
            self.found[one.pc] = [(line, "wgmma")]
        if group.commit:
            self.found[copies[-1].pc].append((group.commit, "wgmma.commit"))
        return True

    def _paired_part(
        self, copies: Sequence[Instruction], fence: int, groups: Sequence[_Group]
    ) -> None:
        """Pairs what is left of a group, the first of it first."""
        shapes = tuple(one.modifiers[0] for one in copies)
        longer = [one for one in groups if one.shapes[: len(shapes)] == shapes]
        group = self._best(copies, fence, longer)
        if group is not None:
            for one, line in zip(copies, group.lines, strict=False):
                self.found[one.pc] = [(line, "wgmma")]

    def _best(
        self, copies: Sequence[Instruction], fence: int, groups: Sequence[_Group]
    ) -> _Group | None:
        """The group with the line of a fence, then with most lines of copies; None without any."""
        lines = [self.line(one) for one in copies]

        def votes(group: _Group) -> tuple[bool, int]:
            inside = (*group.lines, group.fence)
            return fence in inside, sum(line in inside for line in lines)

        group = max(groups, key=votes, default=None)
        return None if group is None or votes(group) == (False, 0) else group


class _Run(NamedTuple):
    """HGMMAs up to one with ``gsb0``, and the line of the fence before them, 0 if none is."""

    copies: tuple[Instruction, ...]
    fence: int


class _Group(NamedTuple):
    """wgmmas up to a commit: their lines and shapes (``64x128x16``), and the lines of the commit
    and of the fence before them; 0 if there is none."""

    lines: tuple[int, ...]
    shapes: tuple[str, ...]
    fence: int
    commit: int


def _groups(kernel: Kernel, without: Collection[int]) -> list[_Group]:
    """The groups of a kernel without some instructions."""
    found: dict[_Group, None] = {}
    lines: list[int] = []
    shapes: list[str] = []
    fence = 0
    for number, step in enumerate(kernel.code):
        if step.base != "wgmma" or number in without:
            continue
        if "mma_async" in step.qualifiers:
            lines.append(step.place.line)
            shape = _SHAPE.search(step.opcode)
            shapes.append("x".join(shape.groups()) if shape else "")
        elif "fence" in step.qualifiers:
            fence = step.place.line
        elif "commit_group" in step.qualifiers and lines:
            found[_Group(tuple(lines), tuple(shapes), fence, step.place.line)] = None
            lines, shapes = [], []
    if lines:
        found[_Group(tuple(lines), tuple(shapes), fence, 0)] = None
    return [*found]


def kind_of(event: Event) -> Kind:
    """The row of an event."""
    return classes.BY_NAME[event[1]]
