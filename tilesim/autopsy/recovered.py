"""Values that registers had at a place before the one at which lanes stand.

A register that nothing has written since then is read from the dump. One that was overwritten is
computed again, if all that it was made of is known: other registers, the launch, its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tilesim.autopsy.core_dump import Cta, Warp
from tilesim.cubin.arithmetic import Term, computed, number, reads, source
from tilesim.cubin.operands import written
from tilesim.cubin.sass import Function

#: places between an instruction and the one at which lanes stand, at most
MOST_BETWEEN = 256
#: instructions that are computed again, one for another, at most
MOST_DEPTH = 8


def between(
    function: Function, start: int, end: int, within: frozenset[int] | None = None
) -> frozenset[int] | None:
    """The places that are executed after ``start``, when it was executed last, and before ``end``.

    None if there are too many, or if ``end`` can be reached without ``start``. ``within``: places
    that are not left.
    """
    found: set[int] = set()
    left = [end]
    while left:
        for place in function.predecessors[left.pop()]:
            if place == start or place in found or (within is not None and place not in within):
                continue
            if not function.predecessors[place] or len(found) > MOST_BETWEEN:
                return None
            found.add(place)
            left.append(place)
    return frozenset(found)


@lru_cache(maxsize=1 << 12)
def _parts(name: str) -> tuple[str, int]:
    """``UR4`` as its kind and its number; the kind is empty for what is no register."""
    kind = name.rstrip("0123456789")
    if kind in ("R", "UR", "P", "UP", "B") and kind != name:
        return kind, int(name[len(kind) :])
    return "", 0


def dumped(cta: Cta, warp: Warp, lane: int, name: str) -> int | None:
    """A register, a predicate as 0 or 1, the lanes of a convergence barrier, or a special register,
    as a lane has it in the dump."""
    kind, at = _parts(name)
    if kind == "R":
        return warp.register(lane, at)
    if kind == "UR":
        return warp.uniform_register(at)
    if kind == "B":
        return warp.convergence_barrier(at)
    if kind:
        flags = warp.predicates(lane) if kind == "P" else warp.uniform_predicates()
        return None if flags is None or at >= len(flags) else int(flags[at])
    axis = "XYZ".find(name[-1])
    if name == "SR_CgaCtaId":
        return cta.rank
    if name.startswith("SR_CTAID.") and axis >= 0:
        return cta.index[axis]
    if name.startswith("SR_TID.") and axis >= 0:
        return next(one.thread[axis] for one in warp.lanes if one.number == lane)
    return lane if name == "SR_LANEID" else None


class Recovered:
    """Registers of a lane that stands at a place; ``constant`` has the words of constant bank 0,
    by name (``c[0x0][0x210]``)."""

    def __init__(
        self, function: Function, cta: Cta, warp: Warp, lane: int, pc: int,
        constant: Callable[[str], int | None],
    ) -> None:  # fmt: skip
        self.function = function
        self.cta = cta
        self.warp = warp
        self.lane = lane
        self.pc = pc
        self.constant = constant
        self._known: dict[tuple[str, int], int | None] = {}
        #: what was read in the dump: all that answers about this lane depend on
        self.used: dict[str, int | None] = {}

    def now(self, name: str) -> int | None:
        """What `dumped` says; it is noted in ``used``."""
        if name not in self.used:
            self.used[name] = dumped(self.cta, self.warp, self.lane, name)
        return self.used[name]

    def operand(self, text: str, at: int, depth: int = 0) -> int | None:
        """An operand, before the instruction at ``at`` was executed last; as 32 bits."""
        return self._number(source(text), at, depth)

    def _number(self, term: Term | None, at: int, depth: int) -> int | None:
        """A term at that place; None is not known."""
        if term is None:
            return None
        return number(term, {name: self.value(name, at, depth) for name in reads(term)})

    def value(self, name: str, at: int, depth: int = 0) -> int | None:
        """A register, a special register or a word of a constant bank at that place."""
        if name.startswith("c[0x0]["):
            return self.constant(name)
        if name.startswith("SR_"):
            return self.now(name)
        if (name, at) not in self._known:
            self._known[name, at] = None  # if it depends on itself
            self._known[name, at] = self._find(name, at, depth)
        return self._known[name, at]

    def _find(self, register: str, at: int, depth: int) -> int | None:
        since = frozenset[int]() if at == self.pc else between(self.function, at, self.pc)
        if since is None or depth > MOST_DEPTH:
            return None
        done = since if at == self.pc else since | {at}
        if not any(register in written(self.function.code[place]) for place in done):
            return self.now(register)
        place = self._source(register, at)
        if place is None or place in done:
            return None
        one = self.function.code[place]
        if one.guard and self.operand(one.guard, place, depth + 1) != 1:
            return None
        return self._number(computed(one, register), place, depth + 1)

    def _source(self, register: str, at: int) -> int | None:
        """The one instruction that has written a register before it is read at a place."""
        found, seen = set[int](), set[int]()
        left = [at]
        while left:
            before = self.function.predecessors[left.pop()]
            if not before or len(seen) > MOST_BETWEEN:
                return None
            for place in before:
                if place in seen:
                    continue
                seen.add(place)
                if register in written(self.function.code[place]):
                    found.add(place)
                else:
                    left.append(place)
        return found.pop() if len(found) == 1 else None
