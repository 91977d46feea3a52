"""Which lanes of a warp execute what: values that differ between lanes, and where lanes meet again.

Emitted code has a `bar.warp.sync` where ``elect.sync`` chooses a lane, and behind a region that the
whole warp came to and only some lanes entered, unless a lane may have left for good.
"""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Special, Var
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync
from tilesim.ir.program import Break, For, If, Program, Stmt, While, children
from tilesim.ir.registers import defined, operands

_LANE = ("lane_id", "thread_id")


def elected(program: Program, *, meets: bool = False) -> frozenset[str]:
    """Variables that only ``elect.sync`` writes: they hold in one lane.

    ``meets``: only by such before which the lanes meet.
    """
    writers: dict[str, list[Op]] = {}
    for stmt in program.statements:
        if isinstance(stmt, Op):
            for var in defined(stmt):
                writers.setdefault(var.name, []).append(stmt)
    return frozenset(
        name
        for name, ops in writers.items()
        if all(isinstance(o, ElectSync) and (o.warp_sync or not meets) for o in ops)
    )


def divergent_variables(program: Program) -> frozenset[str]:
    """Variables whose value may differ between the lanes of a warp."""
    found: set[str] = set()
    while True:
        before = len(found)
        _spread(program.body, found, inside=False)
        if len(found) == before:
            return frozenset(found)


def is_divergent(expr: Expr, divergent: frozenset[str] | set[str]) -> bool:
    """True if the value may differ between the lanes of a warp."""
    return any(
        (isinstance(x, Special) and x.name in _LANE) or (isinstance(x, Var) and x.name in divergent)
        for x in walk_expr(expr)
    )


def _spread(body: tuple[Stmt, ...], found: set[str], *, inside: bool) -> None:
    for stmt in body:
        if isinstance(stmt, Op):
            sets = [e for e in stmt.effects() if isinstance(e, fx.Defines)]
            differs = bool(sets) and any(is_divergent(x, found) for x in operands(stmt))
            found.update(e.var.name for e in sets if inside or differs or e.divergent)
            continue
        split = isinstance(stmt, If | While) and is_divergent(stmt.cond, found)
        if isinstance(stmt, For) and inside:
            found.discard(stmt.var.name)
        for region in children(stmt):
            _spread(region, found, inside=inside or split)


def leaves(body: tuple[Stmt, ...], *, loops: bool = True) -> bool:
    """True if a lane may leave the region early: by exit, or by a break (``loops``) of it."""
    for stmt in body:
        if isinstance(stmt, Op) and stmt.mnemonic == "exit":
            return True
        if isinstance(stmt, Break) and loops:
            return True
        inner = loops and not isinstance(stmt, (For, While))
        if any(leaves(region, loops=inner) for region in children(stmt)):
            return True
    return False


# ------------------------------------------------------------------ where lanes meet


class Lanes:
    """What a program's branches do to the lanes of its warps."""

    def __init__(self, program: Program) -> None:
        self.divergent = divergent_variables(program)
        self.elected = elected(program)
        self._meets = elected(program, meets=True)

    def splits(self, stmt: Stmt) -> bool:
        """Whether only some lanes may enter the regions of a branch or loop."""
        return isinstance(stmt, If | While) and is_divergent(stmt.cond, self.divergent)

    def meets(self, stmt: Stmt) -> bool:
        """Whether the lanes of a warp that has come to a region as a whole meet behind it."""
        match stmt:
            case If(sync=False) | For(sync=False) | While(sync=False):
                return False
            case If(cond=Var(name=name)) if name in self.elected and name not in self._meets:
                return False
            case If(then=then, orelse=orelse):
                return self.splits(stmt) and not leaves((*then, *orelse))
            case For(body=body):
                return leaves(body) and not leaves(body, loops=False)
            case While(body=body):
                left = leaves(body, loops=False)
                return (self.splits(stmt) or leaves(body)) and not left
            case _:
                return False
