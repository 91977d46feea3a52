"""Small programs (`tests.sim.steps`) in which data decides whether threads access memory.

Accesses of a program are put in regions: one branch, two, or a loop. For the reference such a
program is many: each region is replaced by what data may make of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tests.sim import steps as s
from tests.sim.generate import Choose
from tests.sim.small import _Translation
from tests.sim.steps import Family, Small
from tilesim import Program, u32
from tilesim.ir.expr import Expr

#: regions of a program, and iterations of a loop that the reference tries
MOST, ITERATIONS = 3, 2
#: families of which a step is one of an elected thread
FAMILIES: tuple[Family, ...] = ("mbarriers", "scopes", "reductions")


@dataclass(frozen=True)
class Region:
    """Data decides which of two branches a thread executes, or how often it does the first one."""

    branches: tuple[tuple[Any, ...], tuple[Any, ...]]
    iterations: bool = False

    @property
    def executions(self) -> tuple[tuple[Any, ...], ...]:
        """What data may make of it."""
        first, _ = self.branches
        return tuple(first * n for n in range(ITERATIONS + 1)) if self.iterations else self.branches


def with_regions(choose: Choose, small: Small) -> Small:
    """The program with some of its accesses, and others, in regions."""
    left = [MOST]

    def some(steps: Sequence[Any]) -> tuple[Any, ...]:
        found: list[Any] = []
        for step in steps:
            inner = tuple(some(part) for part in s.parts(step)) if isinstance(step, s.Loop) else ()
            step = s.with_parts(step, inner) if inner else step
            accesses = isinstance(step, s.Read | s.Write | s.Red)
            if not left[0] or choose(2 if accesses else 12):
                found.append(step)
                continue
            left[0] -= 1
            other: Any = (s.Read, s.Write)[choose(2)](choose(small.words))
            kind = choose(5)
            body = (step,) if accesses else (other,)
            branches = (body, (other,) if kind == 0 else ())
            found += [Region(branches, kind == 1), *(() if accesses else (step,))]
        return tuple(found)

    return replace(small, warps=tuple(some(steps) for steps in small.warps))


def executions(small: Small) -> Iterator[Small]:
    """What data may make of the program, each region the same whenever a thread comes to it."""
    regions = [step for steps in small.warps for step in every(steps) if isinstance(step, Region)]
    for chosen in product(*(region.executions for region in regions)):
        left = iter(chosen)
        yield replace(small, warps=tuple(_without(steps, left) for steps in small.warps))


def every(steps: Sequence[Any]) -> Iterator[Any]:
    """The steps, and those in loops."""
    for step in steps:
        yield step
        if isinstance(step, s.Loop):
            yield from every(step.body)


def _without(steps: Sequence[Any], chosen: Iterator[tuple[Any, ...]]) -> tuple[Any, ...]:
    found: list[Any] = []
    for step in steps:
        if isinstance(step, Region):
            found += next(chosen)
        elif isinstance(step, s.Loop):
            found.append(replace(step, body=_without(step.body, chosen)))
        else:
            found.append(step)
    return tuple(found)


class _WithRegions(_Translation):
    """The IR of such a program: words that nothing is known of decide."""

    def __init__(self, small: Small) -> None:
        self._number = 0
        super().__init__(small)

    def _declare(self, small: Small, everything: list[Any]) -> Any:
        self._data = self.k.tensor("data", u32, (64,))
        self._word = self.k.var("word", 0)
        return super()._declare(small, everything)

    def _step(self, step: Any, trip: Expr | None) -> None:
        if not isinstance(step, Region):
            super()._step(step, trip)
            return
        k, number = self.k, self._number
        self._number += 1
        with k.elected():
            k.mem.load(self._word, self._data[number % 64])
            if step.iterations:
                with k.while_(self._word.ne(0), sync=False):
                    self._branch(step.branches[0], trip)
                    k.mem.load(self._word, self._data[number % 64])
                return
            with k.if_(self._word.ne(0), sync=False):
                self._branch(step.branches[0], trip)
            if step.branches[1]:
                with k.else_():
                    self._branch(step.branches[1], trip)

    def _branch(self, steps: Sequence[Any], trip: Expr | None) -> None:
        for step in steps:
            self._one_lane(step, trip)


def translated(small: Small) -> Program:
    """The program in tilesim's IR."""
    return _WithRegions(small).k.finish()
