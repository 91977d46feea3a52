"""Waits that are tried again: the loop of a ``try_wait`` in PTX, and the tries in SASS.

ptxas may put the first try apart from the loop, and a second one behind it that is guarded by the
answer of the first. Where the PTX does nothing but try again until the answer is true, each copy in
SASS must be followed by another try if its answer is false, before anything else that synchronises
or accesses memory; and a try that is guarded by its own predicate must come behind another one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from tilesim.cubin.operands import read, written
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.records import dataclass
from tilesim.translation import classes
from tilesim.translation.flow import Node, ptx_nodes
from tilesim.translation.pairs import Pair, Translation
from tilesim.translation.validation import Difference

_WAIT = "mbarrier.wait"
_RULE = "PTX 9.7.13.15.16"
#: instructions between a try and the branch that its answer decides, at most
_NEAR = 256
#: what a failing try may not come to: memory and synchronisation
_OTHERS = re.compile(
    r"LD(?![CL])|ST(?!L)|ATOM|RED|SYNCS|UTMA|UBLK|BAR|HGMMA|UTC|WARPGROUP|MEMBAR|FENCE"
)


@dataclass(frozen=True)
class _Copies:
    """The tries of one wait in SASS."""

    sass: Function
    places: Collection[int]

    def is_tried_again(self, start: int) -> bool:
        """Whether each path from a place comes to a try, and to nothing before it."""
        done: set[int] = set()
        around: set[int] = set()
        todo: list[tuple[int, bool]] = [(start, False)]
        while todo:
            pc, left = todo.pop()
            if left:
                around.discard(pc)
                done.add(pc)
                continue
            one = self.sass.code.get(pc)
            if pc in self.places or pc in done or one is None or one.opcode == "BPT.TRAP":
                continue
            if pc in around or _OTHERS.match(one.opcode) or not self.sass.successors[pc]:
                return False
            around.add(pc)
            todo.append((pc, True))
            todo += [(after, False) for after in self.sass.successors[pc]]
        return True

    def is_answered(self, branch: Instruction) -> bool:
        """Whether the predicate of a branch is what a try has answered, on each path to it."""
        predicate = branch.guard.lstrip("!")
        seen: set[int] = set()
        todo = [*self.sass.predecessors[branch.pc]]
        while todo:
            pc = todo.pop()
            if pc in seen:
                continue
            seen.add(pc)
            one = self.sass.code[pc]
            if predicate in one.operands[:2] and not one.guard:
                if pc not in self.places:
                    return False
            elif not self.sass.predecessors[pc]:
                return False
            else:
                todo += self.sass.predecessors[pc]
        return True

    def has_been_tried(self, pc: int) -> bool:
        """Whether each path to a place comes from a try, with nothing else behind that."""
        seen: set[int] = set()
        todo = [*self.sass.predecessors[pc]]
        while todo:
            pc = todo.pop()
            if pc in self.places or pc in seen:
                continue
            seen.add(pc)
            if _OTHERS.match(self.sass.code[pc].opcode) or not self.sass.predecessors[pc]:
                return False
            todo += self.sass.predecessors[pc]
        return True


def compare(translation: Translation) -> Iterator[Difference]:
    """Tries that are not made again, or not made at all."""
    nodes = ptx_nodes(translation.ptx)
    kinds = [classes.of_ptx(step.opcode) is not None for step in translation.ptx.code]
    before = _before(nodes)
    for pair in translation.pairs:
        if pair.kind != _WAIT or pair.step.guard is not None or not pair.copies:
            continue
        loop = _loop(nodes, before, kinds, pair.number)
        if not loop:
            continue
        lines = {translation.ptx.code[number].place.line for number in loop}
        again = {
            one.pc
            for one in translation.sass.code.values()
            if one.ptx in lines and "PHASECHK" in one.modifiers
        }
        copies = _Copies(translation.sass, again | {one.pc for one in pair.copies})
        for branch in translation.sass.code.values():
            if branch.ptx not in lines or not _decides(branch):
                continue
            leads = any(map(copies.is_tried_again, translation.sass.successors[branch.pc]))
            if leads and not (copies.has_been_tried(branch.pc) or copies.is_answered(branch)):
                yield _difference(
                    translation, pair, branch,
                    "goes on or tries again by a condition that no try before it has answered",
                )  # fmt: skip
        for copy in pair.copies:
            answer = copy.operands[0] if copy.operands else "PT"
            if answer == "PT":
                continue
            if copy.guard == f"!{answer}" and not copies.has_been_tried(copy.pc):
                yield _difference(
                    translation, pair, copy,
                    f"tries only if {answer} is false, which no try before it has answered",
                )  # fmt: skip
            failing = _failing(translation.sass, copy, answer, copies.places)
            if failing is not None and not copies.is_tried_again(failing):
                yield _difference(
                    translation, pair, copy,
                    f"is not tried again before what follows at {failing:#x} if it fails",
                )  # fmt: skip


def _failing(
    sass: Function, copy: Instruction, answer: str, places: Collection[int]
) -> int | None:  # fmt: skip
    """Where a false answer leads; None if that is not seen, or another try follows.

    An answer that nothing asks for before it is overwritten, or before the paths part, leads on.
    """
    for pc in range(copy.pc + WIDTH, copy.pc + _NEAR * WIDTH, WIDTH):
        one = sass.code.get(pc)
        if one is None or pc in places:
            return None
        if one.base == "BRA" and one.guard.lstrip("!") == answer:
            return one.target if one.guard.startswith("!") else pc + WIDTH
        if answer in read(one) and written(one):
            return None  # a copy of it may be asked
        if len(sass.successors[pc]) != 1 or answer in written(one):
            return pc
    return None


def _before(nodes: Sequence[Node]) -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = {number: [] for number in range(len(nodes))}
    for number, node in enumerate(nodes):
        for after in node.successors:
            found[after].append(number)
    return found


def _decides(one: Instruction) -> bool:
    return one.base == "BRA" and bool(one.guard) and "ANY" not in one.modifiers


def _loop(
    nodes: Sequence[Node], before: Mapping[int, list[int]], kinds: Sequence[bool], wait: int
) -> set[int]:
    """The loop in which the PTX goes from a wait back to it without doing anything else, if it
    leaves that at one place; else nothing."""
    forth = _reached(wait, {n: node.successors for n, node in enumerate(nodes)}, kinds)
    back = _reached(wait, before, kinds)
    loop = (forth & back) | {wait}
    if not any(wait in nodes[one].successors for one in loop):
        return set()
    leaves = {(one, after) for one in loop for after in nodes[one].successors if after not in loop}
    return loop if len(leaves) == 1 else set()


def _reached(
    start: int, steps: Mapping[int, Sequence[int]], kinds: Sequence[bool]
) -> set[int]:  # fmt: skip
    """What is come to from an instruction without another one of a kind in between."""
    found: set[int] = set()
    todo = [*steps[start]]
    while todo:
        one = todo.pop()
        if one in found or one == start or kinds[one]:
            continue
        found.add(one)
        todo += steps[one]
    return found


def _difference(
    translation: Translation, pair: Pair, copy: Instruction, what: str
) -> Difference:  # fmt: skip
    line = pair.step.place.line
    return Difference(
        kind="retry",
        rule=_RULE,
        effect="weaker",
        line=line,
        text=translation.text(line),
        sentence=f"PTX line {line} ({pair.kind}): {copy.opcode} at {copy.pc:#x} {what}",
        pc=copy.pc,
        sass=str(copy),
    )
