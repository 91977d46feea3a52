"""Regions that data decides: what lanes may execute between a branch on a number that is not known
and where all ways from there have met.

Any of the lanes may execute any of it, so often as data says. It is executed for all of them, with
registers that hold what is the same on all ways there; what is not is not known. What is accessed
counts as accessed, and what is stored as stored, but not for certain (`tilesim.proof.memory`).
Nothing there synchronises, so where a lane is in a region decides of no order with other lanes.

A loop is executed turn by turn, until a turn begins as an earlier one has. After some turns, it
begins with what registers hold at the beginning of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr
from tilesim.ir.mir import Branch, Join, Trap
from tilesim.ir.op import Op
from tilesim.proof.operands import (
    LANES,
    Differs,
    Scalar,
    Value,
    Warp,
    exactly,
    lane_of,
    need,
    undecided,
    uniform,
)
from tilesim.proof.rules import NotCovered, Refuted, rule

#: a cluster of `tilesim.proof.machine`
Machine: TypeAlias = Any
#: turns of a loop that are executed before registers are merged
_ITERATIONS = 32
#: where lanes come that trap
_TRAPS = -1


class Way(NamedTuple):
    """Lanes that may come to an instruction, by bits, and registers then: each in the warp, and in
    its shadows, and the lanes that have set it (``set_in``)."""

    lanes: int
    registers: dict[str, list[Value]]
    set_in: dict[str, int]


class Region:
    """What some lanes may execute from an instruction on, before they meet; ``why``: what data
    decides, in words."""

    def __init__(self, m: Machine, w: Warp, at: int, why: str) -> None:
        self._m, self._w, self._at, self._why = m, w, at, why
        self._meet: int = m.operands.flow.meet(at)
        #: registers that are set in the region, as they are before it
        self._before: dict[str, list[Value]] = {}
        self._set_before: dict[str, int] = {**w.set_in}
        #: by instruction, ways that have come there, and are executed; those executed last
        self._left: dict[int, Way] = {}
        self._executed: dict[int, Way] = {}
        #: which lanes have gone from where to where; how often back; what has come again
        self._gone: dict[tuple[int, int], int] = {}
        self._iterations, self._again = Counter[int](), set[int]()
        self._looks = False

    def execute(self, lanes: Sequence[int]) -> int:
        """Executes it. Returns where the lanes are then.

        Raises: NotCovered: what data decides there is more than what is accessed."""
        begin = Way(sum(1 << i for i in lanes), {}, {})
        self._left[self._at] = begin
        while left := self._left.keys() - {self._meet}:
            at = min(left)
            way = self._left.pop(at)
            if at in self._executed and self._alike(self._executed[at], way):
                self._again.add(at)
                continue
            self._executed[at] = way
            self._set(way)
            try:
                self._step(at, [i for i in range(LANES) if way.lanes >> i & 1])
            except Differs:
                raise
            except (Refuted, NotCovered) as why:
                raise NotCovered(f"{self._why}: {why.what}") from why
        self._ends(begin.lanes)
        self._set(self._left[self._meet])
        return self._meet

    def _step(self, at: int, lanes: list[int]) -> None:
        self._m.counts()
        instruction = self._m.mir.code[at]
        off, on = self._answers(instruction.guard, lanes, f"the guard of {at}")
        self._go(at, at + 1, off)
        match instruction.what:
            case _ if not on:
                pass
            case Branch(uniform=True):
                raise NotCovered(f"whether lanes go one way at {at} is not known")
            case Branch(cond=cond) | Trap(cond=cond, aborts=True) as what:
                no, yes = self._answers(cond, on, f"the branch at {at}")
                to = what.target if isinstance(what, Branch) else _TRAPS
                if isinstance(what, Branch) and cond is not None and not what.sense:
                    no, yes = yes, no
                self._go(at, to, yes)
                self._go(at, at + 1, no)
            case Op() if any(isinstance(e, fx.Exits) for e in self._m.mir.effects[at]):
                self._go(at, len(self._m.mir.code), on)
            case Op() | Join(syncs=False) as what:
                if isinstance(what, Op):
                    self._operates(at, on)
                self._go(at, at + 1, on)
            case what:
                raise NotCovered(f"{what} may be executed or not")

    def _answers(self, e: Expr | None, lanes: list[int], what: str) -> tuple[list[int], list[int]]:
        """The lanes in which an expression may not hold, and those in which it may; None: holds."""
        if e is not None:
            self._m.reads(self._w, e, lanes, what)
        value = 1 if e is None else self._m.operands.decides(e, self._w)
        row = {i: lane_of(value, i) for i in lanes}
        known = {i: bool(need(x, what)) for i, x in row.items() if not undecided(x)}
        return [i for i in lanes if not known.get(i)], [i for i in lanes if known.get(i, True)]

    def _operates(self, at: int, lanes: list[int]) -> None:
        """An instruction that each of some lanes may execute."""
        strong = defines = False
        for e in self._m.mir.effects[at]:
            strong |= isinstance(e, fx.Reads | fx.Writes) and e.sem != "weak"
            if isinstance(e, fx.Defines):
                defines = True
                self._before.setdefault(e.var.name, self._w.held(e.var.name))
        self._looks |= strong and defines
        self._m.executes(self._w, at, lanes, may=True)

    def _go(self, at: int, to: int, lanes: Sequence[int]) -> None:
        """Lanes may go from one instruction to another, with what registers hold now."""
        if not lanes:
            return
        way = Way(
            sum(1 << i for i in lanes), {n: self._w.held(n) for n in self._before},
            {n: self._w.set_in.get(n, 0) for n in self._before},
        )  # fmt: skip
        self._gone[at, to] = self._gone.get((at, to), 0) | way.lanes
        if to == _TRAPS:
            return
        self._iterations[to] += to <= at
        if self._iterations[to] > _ITERATIONS and to in self._executed:
            self._again.add(to)
            way = self._merged(self._executed[to], way)
        self._left[to] = self._merged(self._left[to], way) if to in self._left else way

    # ------------------------------------------------------------------ ways

    def _set(self, way: Way) -> None:
        """Registers hold what they do on a way."""
        for name in self._before:
            self._w.hold(name, self._of(way, name))
            self._w.set_in[name] = self._set_in(way, name)

    def _of(self, way: Way, name: str) -> list[Value]:
        return way.registers.get(name, self._before[name])

    def _set_in(self, way: Way, name: str) -> int:
        return way.set_in.get(name, self._set_before.get(name, 0))

    def _alike(self, p: Way, q: Way) -> bool:
        return p.lanes == q.lanes and all(
            [*map(exactly, self._of(p, name))] == [*map(exactly, self._of(q, name))]
            and self._set_in(p, name) == self._set_in(q, name) for name in self._before
        )  # fmt: skip

    def _merged(self, p: Way, q: Way) -> Way:
        """Lanes that come on one of two ways, or on any, with what registers hold on each."""
        rows: dict[tuple[int, int], Value] = {}  # clusters of a class mostly hold the same
        found: dict[str, list[Value]] = {}
        for name in self._before:
            found[name] = []
            for x, y in zip(self._of(p, name), self._of(q, name), strict=True):
                if (id(x), id(y)) not in rows:
                    row = [_merged(lane_of(x, i), lane_of(y, i), p.lanes >> i & 1, q.lanes >> i & 1)
                           for i in range(LANES)]  # fmt: skip
                    rows[id(x), id(y)] = uniform(row)
                found[name].append(rows[id(x), id(y)])
        sets = ((n, self._set_in(p, n), self._set_in(q, n)) for n in self._before)
        set_in = {n: (a | ~p.lanes) & (b | ~q.lanes) & (a | b) for n, a, b in sets}
        return Way(p.lanes | q.lanes, found, set_in)

    # ------------------------------------------------------------------ the end

    @rule("loops-end", "lanes leave a region, and its loops if these end as data has it")
    def _ends(self, lanes: int) -> None:
        """Raises: NotCovered: some need not, or wait for others there, or it is not assumed."""
        come = self._coming({self._meet: lanes, _TRAPS: lanes})
        stay = any(some & ~come.get(at, 0) for (at, _), some in self._gone.items())
        met = self._left.get(self._meet)
        if stay or met is None or met.lanes != lanes:
            raise NotCovered(f"{self._why}: not all lanes come to {self._meet}")
        iterations = any(self._coming({at: lanes}, proper=True).get(at) for at in self._again)
        if iterations and self._looks:
            raise NotCovered(f"{self._why}: a loop that looks at what others may write")
        if iterations:
            self._assumes("loops-end")
        if any(to == _TRAPS for _, to in self._gone):
            self._assumes("no-trap")

    def _assumes(self, name: str) -> None:
        if name not in self._m.operands.assumed:
            raise NotCovered(f"{self._why}: {name} is not assumed")

    def _coming(self, ends: dict[int, int], *, proper: bool = False) -> dict[int, int]:
        """By instruction, the lanes that may come from there to one of some ends; ``proper``:
        by going on."""
        found, changed = {} if proper else {**ends}, True
        while changed:
            changed = False
            for (at, to), some in self._gone.items():
                come = some & (found.get(to, 0) | ends.get(to, 0))
                changed |= bool(come & ~found.get(at, 0))
                found[at] = found.get(at, 0) | come
        return found


def _merged(p: Scalar, q: Scalar, on_p: int, on_q: int) -> Scalar:
    """What a lane holds that may come on one of two ways; one on neither is elsewhere."""
    if not (on_p and on_q):
        return q if on_q else p
    return p if exactly(p) == exactly(q) else None
