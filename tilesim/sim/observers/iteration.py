"""In which turns of its loops a warp is: for reports, found only where something is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.uses_defs import sets
from tilesim.findings.finding import Iteration
from tilesim.ir import effects as fx
from tilesim.ir.expr import Binary, Const, Var, walk
from tilesim.ir.frozen import cached
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.mir import Branch, Mir
from tilesim.records import dataclass
from tilesim.sim.machine.unknown import open_lanes
from tilesim.sim.machine.warp import Agent

#: what a loop does that only tests whether something has happened
_TESTING = (fx.Defines, fx.Waits, fx.Orders)


@dataclass(frozen=True)
class Counted:
    """A loop whose turns are worth counting: it does more than wait.

    ``body`` are the numbers of its instructions, the ``head`` the first of each turn. Of a ``for``,
    ``variable`` is its register, ``start`` the value in the first turn and ``step`` by how much it
    grows; None: not known before the kernel runs.
    """

    head: int
    body: frozenset[int]
    loc: Loc
    variable: str = ""
    start: int | None = None
    step: int | None = None

    def number(self, value: int | None) -> int | None:
        """Which turn it is, counted from 1, if the variable has this value."""
        if value is None or self.start is None or not self.step:
            return None
        iterations, rest = divmod(value - self.start, self.step)
        return iterations + 1 if not rest and iterations >= 0 else None


@cached
def loops_of(mir: Mir) -> tuple[Counted, ...]:
    """The loops of a program, the outer ones first; ways back to one head are one loop."""
    graph = graph_of(mir)
    bodies: dict[int, set[int]] = {}
    tails: dict[int, int] = {}
    for loop in graph.loops:
        head = graph.blocks[loop.head].start
        bodies.setdefault(head, set()).update(n for b in loop.blocks for n in graph.blocks[b])
        tails[head] = max(tails.get(head, 0), graph.blocks[loop.tail][-1])
    found = [
        _counted(mir, head, tails[head], frozenset(body))
        for head, body in bodies.items()
        if not _only_tests(mir, body)
    ]
    return tuple(sorted(found, key=lambda loop: (-len(loop.body), loop.head)))


def _only_tests(mir: Mir, body: set[int]) -> bool:
    """Whether a loop is the wait that it tests for: its turns are up to how long that takes."""
    waits = (n for n in body if any(isinstance(e, fx.Waits) for e in mir.effects[n]))
    tested = {name for n in waits for name in sets(mir, n)}
    return all(isinstance(e, _TESTING) for n in body for e in mir.effects[n]) and any(
        isinstance(part, Var) and part.name in tested
        for n in body if isinstance(what := mir.code[n].what, Branch) and what.cond is not None
        for part in walk(what.cond)
    )  # fmt: skip


def around(mir: Mir, number: int) -> tuple[Counted, ...]:
    """The loops that an instruction is in, the outermost first."""
    return tuple(loop for loop in loops_of(mir) if number in loop.body)


def _counted(mir: Mir, head: int, tail: int, body: frozenset[int]) -> Counted:
    """A loop with what is known of its variable, as `tilesim.transforms.lower` makes them."""
    loc = mir.code[tail].loc
    step = _assigned(mir, tail - 1)
    if not isinstance(mir.code[tail].what, Branch) or step is None:
        return Counted(head, body, loc if loc != UNKNOWN else mir.code[head].loc)
    shown = _assigned(mir, head + 1)
    same = shown is not None and shown.value == step.var
    first = _assigned(mir, head - 1)
    by = step.value.rhs if isinstance(step.value, Binary) else None
    return Counted(
        head, body, loc, shown.var.name if same and shown is not None else step.var.name,
        None if first is None else _number(first.value), _number(by),
    )  # fmt: skip


def _assigned(mir: Mir, number: int) -> fx.Defines | None:
    """What an instruction sets that keeps the counter of a loop."""
    if not 0 <= number < len(mir.code) or not mir.code[number].counts:
        return None
    return next((e for e in mir.effects[number] if isinstance(e, fx.Defines)), None)


def _number(value: object) -> int | None:
    return int(value.value) if isinstance(value, Const) else None


# ---------------------------------------------------------------------- of a warp


def value_in(warp: Agent, name: str) -> int | None:
    """What a register holds, if that is one number in all lanes."""
    slot = warp.machine.plan.slots.get(name)
    value = None if slot is None else warp.registers[slot]
    if value is None or type(value) is int:
        return value
    if open_lanes(value):
        return None
    lanes = np.asarray(value).ravel()
    return int(lanes[0]) if lanes.size == 1 or (lanes == lanes[0]).all() else None


def iteration_in(loop: Counted, warp: Agent, number: int | None = None) -> Iteration | None:
    """The turn of a loop that a warp is in now: the ``number``-th, or what its variable says."""
    value = value_in(warp, loop.variable) if loop.variable else None
    number = loop.number(value) if number is None else number
    if value is None and number is None:
        return None
    return Iteration(loop.loc, number, loop.variable if value is not None else "", value)


def iterations_now(warp: Agent, at: int) -> tuple[Iteration, ...]:
    """The turns in which a warp is that is at an instruction, as far as variables say that."""
    if at < 0:
        return ()
    found = (iteration_in(loop, warp) for loop in around(warp.machine.plan.mir, at))
    return tuple(iteration for iteration in found if iteration is not None)


class Iterations:
    """Counts the turns of loops while a machine runs, by agent."""

    def __init__(self, mir: Mir) -> None:
        self._loops = loops_of(mir)
        self._heads = {loop.head: place for place, loop in enumerate(self._loops)}
        self._around = [
            tuple(p for p, loop in enumerate(self._loops) if n in loop.body)
            for n in range(len(mir.code))
        ]
        self._counts: dict[Agent, list[int]] = {}
        self._at: dict[Agent, int] = {}

    def counting(self, number: int) -> Callable[[Agent], None] | None:
        """What is to be called before an instruction is executed; None: nothing."""
        if not self._loops:
            return None
        head = self._heads.get(number)

        def at(warp: Agent) -> None:
            if head is not None:
                self._enter(warp, head)
            self._at[warp] = number

        return at

    def _enter(self, warp: Agent, place: int) -> None:
        """Another turn of a loop, or its first one. What is tried again is no further turn."""
        before = self._at.get(warp, self._at.get(warp.origin, -1))
        if before == self._loops[place].head:
            return
        counts = self._of(warp)
        counts[place] = counts[place] + 1 if before in self._loops[place].body else 1

    def _of(self, warp: Agent) -> list[int]:
        if warp not in self._counts:
            known = self._counts.get(warp.origin, [0] * len(self._loops))
            self._counts[warp] = list(known)
        return self._counts[warp]

    def of(self, warp: Agent, number: int) -> tuple[Iteration, ...]:
        """The turns in which a warp is that is at an instruction now."""
        around_ = self._around[number] if 0 <= number < len(self._around) else ()
        if not around_:
            return ()
        counts = self._of(warp)
        found = (iteration_in(self._loops[p], warp, counts[p] or None) for p in around_)
        return tuple(iteration for iteration in found if iteration is not None)
