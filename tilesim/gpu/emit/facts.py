"""What the emitter knows about a program's variables before it writes a line."""

from __future__ import annotations

from tilesim.gpu.emit.expr import Expressions
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Special, Var
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While, children, walk
from tilesim.ir.registers import defined, operands

_LANE = ("lane_id", "thread_id")


def elected(program: Program) -> frozenset[str]:
    """Variables that only ``elect.sync`` writes: they hold in one lane."""
    writers: dict[str, list[Op]] = {}
    for stmt in walk(program.body):
        if isinstance(stmt, Op):
            for var in defined(stmt):
                writers.setdefault(var.name, []).append(stmt)
    return frozenset(
        name for name, ops in writers.items() if all(isinstance(o, ElectSync) for o in ops)
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
        differs = any(is_divergent(x, found) for x in operands(stmt))
        if isinstance(stmt, Op):
            for effect in stmt.effects():
                if isinstance(effect, fx.Defines) and (inside or differs or effect.divergent):
                    found.add(effect.var.name)
            continue
        split = isinstance(stmt, (If, While)) and differs
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


def find_nonnegative(program: Program, names: Expressions) -> None:
    """Fills ``names.nonnegative``: variables whose every definition is known not to be negative."""
    definitions: dict[str, list[Expr | None]] = {}
    for stmt in walk(program.body):
        match stmt:
            case For(var=var, start=start, step=step):
                definitions.setdefault(var.name, []).extend((start, step))
            case Assign(var=var, value=value):
                definitions.setdefault(var.name, []).append(value)
            case Op():
                for var in defined(stmt):
                    definitions.setdefault(var.name, []).append(None)
            case _:
                pass
    names.nonnegative = set(definitions)
    while True:
        wrong = {
            name
            for name in names.nonnegative
            if not all(x is not None and names.is_nonnegative(x) for x in definitions[name])
        }
        if not wrong:
            return
        names.nonnegative -= wrong


def role_name(outer: str, role: Role) -> str:
    """What reports call the warps inside ``role``: the outermost name that is not ``warp n``."""
    return outer or ("" if role.name.startswith("warp ") else role.name)
