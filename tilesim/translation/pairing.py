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
from collections.abc import Collection, Mapping, Sequence
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
        self.found: dict[int, list[Event]] = {}
        loose: list[Instruction] = []
        for pc, one in function.code.items():
            if never(one):
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

    def _repair(self, one: Instruction) -> None:
        """Pairs an instruction whose line is that of a neighbour."""
        written = text(one)
        if "GMMA" in one.base:
            return
        if "PHASECHK" in one.modifiers and (same := self._in_loop(one)):
            self.found[one.pc] = same
            return
        kinds = self.kinds_at.get(self.line(one), ())
        if any(classes.BY_NAME[kind].expanded for kind in kinds):
            return  # part of what ptxas makes of that
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
        for at in range(target, target + _NEAR * WIDTH, WIDTH):
            other = self.function.code.get(at)
            if (
                other is not None
                and at in self.found
                and other.opcode == one.opcode
                and other.operands[0] == one.operands[0]
            ):
                return self.found[at]
        return []

    def _wgmmas(self) -> None:
        """Pairs groups of HGMMAs, each ended by ``gsb0``, with groups of as many wgmmas of the same
        shapes, each ended by a commit: that with the line of the fence before it, then that with
        most of their lines."""
        of_ptx = _groups(self.kernel, [])
        dead = dead_products(self.kernel)
        of_ptx += _groups(self.kernel, dead) if dead else []
        run: list[Instruction] = []
        fence = 0
        for one in self.function.code.values():
            if one.base == "WARPGROUP" and "ARRIVE" in one.modifiers:
                fence = self.line(one)
            if "GMMA" not in one.base or one.base.startswith("UTC") or never(one):
                continue
            if classes.is_sass_of("wgmma", text(one)):
                run.append(one)
            if "gsb0" in one.operands:
                if run:
                    self._wgmma_group(run, fence, of_ptx)
                run, fence = [], 0

    def _wgmma_group(
        self, run: Sequence[Instruction], fence: int, of_ptx: Sequence[_Group]
    ) -> None:
        lines = [self.line(one) for one in run]
        shapes = tuple(one.modifiers[0] for one in run)

        def votes(group: _Group) -> tuple[bool, int]:
            inside = (*group.lines, group.fence)
            return fence in inside, sum(line in inside for line in lines)

        same = [group for group in of_ptx if group.shapes == shapes]
        if not same:
            same = [group for group in of_ptx if _is_part(shapes, group.shapes)]
        group = max(same, key=votes, default=None)
        if group is None or votes(group) == (False, 0):
            # serialised: a fence before each, with its line
            if len(run) == 1 and "wgmma" in self.kinds_at.get(fence, ()):
                self.found[run[0].pc] = [(fence, "wgmma")]
            return
        for one, line in zip(run, group.lines, strict=False):
            self.found[one.pc] = [(line, "wgmma")]
        if group.commit:
            self.found[run[-1].pc].append((group.commit, "wgmma.commit"))


class _Group(NamedTuple):
    """wgmmas up to a commit: their lines and shapes (``64x128x16``), and the lines of the commit
    and of the fence before them; 0 if there is none."""

    lines: tuple[int, ...]
    shapes: tuple[str, ...]
    fence: int
    commit: int


def _is_part(shapes: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether some shapes are the first of others: behind them wgmmas have been removed."""
    return len(shapes) < len(whole) and tuple(whole[: len(shapes)]) == tuple(shapes)


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
