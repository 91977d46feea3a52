"""Programs with turns of which one is the last right one, and their twins of which all are right.

Behind that turn the state is another one, though the next turn keeps all rules: what a certificate
leaves out from there on does not. So no claim of a wrong program may be believed, and some claim of
its twin is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.kernel.programs import Program
from tests.litmus.notation import begin, thread, words
from tilesim import Builder
from tilesim.ir.lower import lower
from tilesim.ir.mir import Mir
from tilesim.proof.certificate import Repetition

#: turns of a loop, and the last right one of a wrong program
TURNS, LAST = 16, 5
#: rounds of the schedule from which on something is claimed
FIRST = range(1, 16)


@dataclass(frozen=True)
class Repeated:
    """A program with turns. ``breaks``: the rule that the wrong one breaks as a whole; ``why``: a
    part of what is said of some claim of it; ``periods``: in rounds, what is claimed."""

    breaks: str
    why: str
    periods: tuple[int, ...]
    program: Program

    @property
    def claims(self) -> tuple[Repetition, ...]:
        """What is claimed of it."""
        return tuple(Repetition(first, period, 2) for period in self.periods for first in FIRST)

    def mir(self, *, right: bool) -> Mir:
        """The wrong or the right program, in machine form."""
        builder = Builder(self.program.__name__)
        self.program(builder, right=right)
        return lower(builder.finish())


REPEATED: list[Repeated] = []


def wrong(breaks: str, why: str, *periods: int) -> Callable[[Program], Program]:
    """Decorator: the program breaks this rule behind the turn `LAST` unless it is right."""

    def enter(program: Program) -> Program:
        REPEATED.append(Repeated(breaks, why, periods, program))
        return program

    return enter


@wrong("N", "numbers that stay and numbers that grow meet", 1, 3)
def a_warp_that_no_longer_waits_for_rounds(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    with k.role("W0", 0), k.loop(TURNS) as i:
        with k.if_(i <= (TURNS if right else LAST)):
            k.bar.sync(1, 64, aligned=False)
        with k.else_():
            k.bar.arrive(1, 64, aligned=False)
    with k.role("W1", 1), k.loop(TURNS):
        k.bar.sync(1, 64, aligned=False)


@wrong("H6", "the order is another one", 4)
def a_store_that_is_told_of_before_it_is_made(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, full, empty, r = words(k, "x"), k.mbarriers("full"), k.mbarriers("empty"), k.var("r")
    begin(k, (full, 1), (empty, 1), zero=[x])
    with thread(k, 0), k.loop(TURNS) as i:
        k.mbarrier.wait(empty, i & 1)
        early = (i > (TURNS if right else LAST)) & i
        with k.if_(early & 1):
            k.mbarrier.arrive(full)
        k.mem.store(x[0], 1)
        with k.if_((early & 1).eq(0)):
            k.mbarrier.arrive(full)
    with thread(k, 1), k.loop(TURNS) as i:
        k.mem.load(r, x[0])
        k.mbarrier.arrive(empty)
        k.mbarrier.wait(full, i & 1)


@wrong("deadlock", "the state is another one", 1, 2)
def a_parity_that_no_longer_changes(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0), k.loop(TURNS) as i:
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, (i & 1) if right else (i & 1) & (i <= LAST))
