"""What need not be executed to go on if nobody knows whether it is: arithmetic, and nothing else.

Compilers put slow ways of logarithms and the like behind branches on data. What such a branch may
set is not known behind it; whatever touches memory or synchronises has to be known to be executed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesim.analysis.cfg import FlowGraph, arms_that_compute
from tilesim.analysis.uses_defs import computed, sets
from tilesim.ir.expr import constant
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Join, Trap
from tilesim.ir.op import Op


def skipped(graph: FlowGraph, number: int) -> frozenset[str] | None:
    """The registers that lanes which a branch splits may set before they meet; None if they may do
    anything else, or anything again and again."""
    inside = arms_that_compute(graph, number)
    if inside is None or graph.meetings[number] == len(graph.mir.code):
        return None
    return frozenset(name for n in inside for name in sets(graph.mir, n))


@dataclass(frozen=True)
class Spared:
    """A branch one side of which does nothing but ``trap``: who does not has gone to ``others``."""

    trap: Loc
    others: int


def spared(graph: FlowGraph, number: int, target: int) -> Spared | None:
    """Where those lanes go on that a branch does not lead to a trap, if it leads the others to
    nothing else.

    With the trap the launch ends: nothing comes behind it, and what comes before or beside it comes
    in an execution without it as well (docs/soundness.md, "Accesses that data decides").
    """
    ways = ((number + 1, target), (target, number + 1))
    found = [Spared(trap, others) for side, others in ways if (trap := _trap(graph, side))]
    return found[0] if len(found) == 1 else None


def _trap(graph: FlowGraph, start: int) -> Loc | None:
    """The trap to which an instruction leads by arithmetic alone."""
    number = led_to(graph, start)
    match None if number == len(graph.mir.code) else graph.mir.code[number].what:
        case Trap(aborts=True, cond=cond, loc=loc) if constant(cond):
            return loc
        case _:
            return None


def led_to(graph: FlowGraph, start: int) -> int:
    """The first instruction from one on that does more than to compute registers, or asks where to
    go on; the end of the program, if that is first."""
    number, passed = start, set[int]()
    while number < len(graph.mir.code) and number not in passed:
        passed.add(number)
        match graph.mir.code[number].what:
            case Branch(cond=None, target=target):
                number = target
            case Op() if computed(graph.mir.effects[number]) is not None:
                number += 1
            case Join():
                number += 1
            case _:
                break
    return number
