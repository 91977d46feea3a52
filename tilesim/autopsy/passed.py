"""Named barriers that warps have passed, although they stand where warps wait for them.

A warp that stands just behind a barrier waits at it, or has just passed it. If all warps of its
CTA come to each round of the barrier, the rounds are counted: a warp that has come to no more of
them than another one has passed, or than all have come to, has passed them all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from tilesim.autopsy.ahead import Ahead
from tilesim.autopsy.core_dump import LANES
from tilesim.autopsy.standing import Launch
from tilesim.autopsy.waits import Group, NamedBarrierWait, Running, Wait
from tilesim.cubin.operands import Immediate, parse
from tilesim.cubin.sass import Instruction
from tilesim.records import replace

#: barriers of a kernel that are put in order, at most
MOST_BARRIERS = 64


class Passed:
    """The rounds of the named barriers of a launch."""

    def __init__(self, launch: Launch, ahead: Ahead) -> None:
        self.launch = launch
        self.ahead = ahead
        self._rounds: dict[int, _Rounds | None] = {}

    def without(self, groups: Sequence[Group]) -> Iterator[Group]:
        """The groups of a CTA; those that have passed the barrier just before them do not wait."""
        for group in groups:
            why = self._passed(group, groups)
            if not why:
                yield group
                continue
            evidence = f"has passed {group.wait.instruction} just before: {why} rounds of it"
            yield replace(group, wait=self._behind(group, evidence))

    def _behind(self, group: Group, evidence: str) -> Wait:
        """What the warps of a group wait for if not for the barrier just before them."""
        if not group.wait.instead:
            return Running(self.launch.function.code[group.pc], False, evidence)
        first, *rest = group.wait.instead
        text = f"{evidence}; {first.evidence}"
        return replace(first, evidence=text, instead=tuple(rest))

    def _passed(self, group: Group, groups: Sequence[Group]) -> str:
        """What shows that the warps of a group have passed the barrier just before them; "" if
        nothing does."""
        wait = group.wait
        if not isinstance(wait, NamedBarrierWait) or wait.certain or not wait.issued:
            return ""
        rounds = None if wait.id is None else self._of(wait.id)
        most = None if rounds is None else rounds.most(group.pc)
        if rounds is None or most is None:
            return ""
        for other in groups:
            if other is not group and rounds.passed(other.pc) >= most:
                return f"warp {other.warps[0]} of its CTA has passed as many"
        alive = {warp for one in groups for warp in one.warps}
        if len(alive) == self.launch.grid.warps and all(rounds.come(g.pc) >= most for g in groups):
            return "all warps of its CTA have joined as many"
        return ""

    def _of(self, number: int) -> _Rounds | None:
        """The rounds of a barrier; None if they cannot be counted."""
        if number not in self._rounds:
            rounds = _Rounds(self.launch, self.ahead, number)
            self._rounds[number] = rounds if rounds.counted else None
        return self._rounds[number]


class _Rounds:
    """How often a named barrier is come to on the way from the kernel's beginning to a place."""

    def __init__(self, launch: Launch, ahead: Ahead, number: int) -> None:
        self.launch = launch
        self.ahead = ahead
        self.number = number
        self.function = launch.function
        #: the barriers that may be it, and the places of those that are, for each warp
        self.may = ahead.barriers(number)
        self.sure = {
            one.pc for one in self.may if not one.guard and ahead.number(one) is not None
        }  # fmt: skip
        self._behind = {
            one.pc: self.function.reached(self.function.successors[one.pc]) for one in self.may
        }

    @property
    def counted(self) -> bool:
        """Whether all code is known, and all warps come to each round and wait there."""
        return (
            self.ahead.complete
            and len(self.may) <= MOST_BARRIERS
            and not any("ARV" in one.modifiers for one in self.may)
            and all(self._of_all(one) for one in self.may)
        )

    def _of_all(self, one: Instruction) -> bool:
        """Whether a barrier is one of all threads of the CTA."""
        operands = [o for o in one.operands if not o.lstrip("!").startswith(("P", "UP"))]
        if len(operands) < 2:
            return True
        threads = parse(operands[1])
        return isinstance(threads, Immediate) and threads.value == LANES * self.launch.grid.warps

    def most(self, pc: int) -> int | None:
        """How often a warp at a place can have come to it; None if there is no bound."""
        before = [one.pc for one in self.may if pc in self._behind[one.pc]]
        if any(place in self._behind[place] for place in before):
            return None
        counts: dict[int, int] = {}
        for place in sorted(before, key=lambda p: sum(p in self._behind[q] for q in before)):
            earlier = (n for other, n in counts.items() if place in self._behind[other])
            counts[place] = 1 + max(earlier, default=0)
        return max(counts.values(), default=0)

    def passed(self, pc: int) -> int:
        """How often a warp at a place has passed it at least."""
        behind = any(one in self.may for way in self.launch.paths_to(pc) for one, _ in way.barriers)
        return max(0, self.come(pc) - behind)

    def come(self, pc: int) -> int:
        """How often a warp at a place has come to it at least."""
        if pc not in self.function.code:
            return 0
        found, left = {0: 0}, deque([0])
        while left:
            place = left.popleft()
            if place == pc:
                return found[place]
            step = place in self.sure
            for after in self.function.successors[place]:
                if found[place] + step < found.get(after, 1 << 30):
                    found[after] = found[place] + step
                    (left.append if step else left.appendleft)(after)
        return 0
