"""A try_wait whose answer only decides whether to wait again (DETERMINACY section 6).

``flag = try_wait(b, p)`` and, later, ``if not flag: wait(b, p)`` (or a loop of polls in its place)
is one wait that starts to look early: whatever the first look answers, the warp goes on when the
phase has completed. The timed run makes the second wait alone; what the first could have seen is
checked with the clock it had (condition C1), and whether the phase can be missed at the second
(C2). That both ask the same is seen when they are executed (`tilesim.sim.execute.peeks`). A chosen
schedule makes the first look.
"""

from __future__ import annotations

from tilesim.ir.expr import Binary, Const, Expr, Unary, Var
from tilesim.ir.loc import Loc
from tilesim.ir.ops.mbarrier import MbarrierTestWait, MbarrierTryWait, MbarrierWait
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import If, While

Poll = MbarrierTryWait | MbarrierTestWait


def second_wait(stmt: If) -> tuple[Var, MbarrierWait] | None:
    """The flag and the wait of ``if not flag: wait``, else None."""
    match stmt:
        case If(cond=cond, then=(MbarrierWait() as wait,), orelse=()):
            pass
        case _:
            return None
    flag = polled_flag(cond)
    return None if flag is None else (flag, wait)


def polled_flag(cond: Expr) -> Var | None:
    """The flag of ``not flag``, else None."""
    match cond:
        case Unary("not", Var() as flag) | Binary("==", Var() as flag, Const(0)):
            return flag
        case _:
            return None


def spin_wait(stmt: While) -> tuple[MbarrierWait, Assign] | None:
    """The blocking wait a canonical ``while not try_wait`` loop stands for (A25), else None."""
    if len(stmt.body) != 1 or not isinstance(stmt.body[0], Poll):
        return None
    poll = stmt.body[0]
    flag = polled_flag(stmt.cond)
    if flag is None or flag != poll.result:
        return None
    return repeated(poll, stmt.loc)


def repeated(poll: Poll, loc: Loc) -> tuple[MbarrierWait, Assign]:
    """What repeating a poll until it succeeds does; ``loc``: where that is."""
    wait = MbarrierWait(
        mbar=poll.mbar, phase=poll.phase, parity=poll.parity, sem=poll.sem, scope=poll.scope,
        loc=poll.loc,
    )  # fmt: skip
    return wait, Assign(var=poll.result, value=Const(1), loc=loc)
