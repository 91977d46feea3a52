"""Where an instruction stands in the code: its loop, and the branch that goes past it."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.op import Op


def loop_range(mir: Mir, op: object) -> tuple[int, int] | None:
    """The first and the last instruction of the innermost loop around an instruction."""
    return next(iter(loops_around(mir, op)), None)


def loops_around(mir: Mir, op: object) -> list[tuple[int, int]]:
    """The loops around an instruction but for those that only poll, each by its first and its last
    instruction; the innermost first."""
    if not isinstance(op, Op) or op.number < 0:
        return []
    around = [
        (what.target, number)
        for number, instruction in enumerate(mir.code)
        if isinstance(what := instruction.what, Branch)
        and what.target <= op.number <= number
        and not (what.polls and only_polls(mir, what.target, number))
    ]
    return sorted(around, key=lambda found: found[1] - found[0])


def only_polls(mir: Mir, first: int, last: int) -> bool:
    """Whether a loop does nothing but look whether it may end: what it writes are locks."""
    return all(
        isinstance(e, fx.Defines | fx.Reads | fx.Waits | fx.Elects)
        or (isinstance(e, fx.Writes) and e.combine is not None)
        for effects in mir.effects[first : last + 1]
        for e in effects
    )


def loop_of(mir: Mir, op: Op | None) -> Loc | None:
    """Where the innermost loop around an instruction is written."""
    found = loop_range(mir, op)
    return None if found is None else mir.code[found[1]].loc


def branch_past(mir: Mir, op: Op) -> Loc | None:
    """Where the innermost condition under which an instruction is executed is written."""
    around = [
        what.loc
        for instruction in mir.code[: op.number]
        if isinstance(what := instruction.what, Branch)
        and what.cond is not None
        and what.target > op.number
    ]
    return around[-1] if around else None
