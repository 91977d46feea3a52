"""Random loops of two warps, of which later iterations change one step.

The warps hand two words to each other by mbarriers or a named barrier. From some iteration on, each
one or every second one makes a step before the one before it, relaxed, at the other word, not at
all, or without waiting. Such an iteration may keep all rules while the state behind it no longer is
what the next one needs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

from tests.litmus.notation import begin, words
from tests.sim.forall_programs import Draw
from tilesim import Builder
from tilesim.ir.expr import Expr
from tilesim.ir.program import Program


class Step(NamedTuple):
    """A step of an iteration, as it is or changed; ``alone``: by the first lane."""

    make: Callable[[str], None]
    alone: bool


#: the changes of later iterations; "early" changes the order of two steps
CHANGES = ("early", "early", "relaxed", "elsewhere", "left out", "without waiting")


def changed_iterations(draw: Draw, n: int) -> Program:
    """The program that ``draw`` makes, with ``n`` iterations."""
    k = Builder("changed_iterations")
    k.launch(warps=2)
    x, r = words(k, "x", 2), k.var("r", 0)
    bars = [k.mbarriers(name) for name in ("there", "back")]
    begin(k, *((bar, 1) for bar in bars), zero=[x])
    named, last = draw.one_in(3), draw.below(n // 2)
    every, faulty, change = draw.one_in(2), draw.below(2), draw.of(CHANGES)

    def access(warp: int) -> Step:
        write, word = draw.one_in(2) or not warp, draw.below(2)

        def step(change: str) -> None:
            at = x[1 - word if change == "elsewhere" else word]
            if change == "left out":
                return
            if write:
                k.mem.store(at, warp)
            else:
                k.mem.load(r, at)

        return Step(step, alone=True)

    def hand_over(by: int, warp: int, i: Expr) -> Step:
        def step(change: str) -> None:
            if named and (by == warp and change == "without waiting"):
                k.bar.arrive(1 + by, 64, aligned=False)
            elif named:
                k.bar.sync(1 + by, 64, aligned=False)
            elif by == warp:
                k.mbarrier.arrive(bars[by], sem="relaxed" if change == "relaxed" else "release")
            elif change != "without waiting":
                k.mbarrier.wait(bars[by], i & 1)

        return Step(step, alone=not named)

    def make(step: Step, change: str = "", when: Expr | None = None) -> None:
        alone = k.if_(k.lane_id.eq(0)) if step.alone else nullcontext()
        with nullcontext() if when is None else k.if_(when), alone:
            step.make(change)

    for warp in range(2):
        with k.role(f"W{warp}", warp), k.loop(n) as i:
            some = [[access(warp) for _ in range(draw.below(3))] for _ in range(2)]
            there, back = (hand_over(by, warp, i) for by in range(2))
            own = [*some[0], there, back, *some[1]]
            steps = [there, *some[0], *some[1], back] if warp else own
            late = (i > last) & (1 if every else i & 1)
            at = draw.below(len(steps)) if warp == faulty else -1
            for number, step in enumerate(steps):
                if number != at:
                    if change == "early" and number == at - 1:
                        make(steps[at], when=late)
                    make(step)
                elif change == "early":
                    make(step, when=late.eq(0))
                else:
                    make(step, change, late)
                    make(step, when=late.eq(0))
    return k.finish()
