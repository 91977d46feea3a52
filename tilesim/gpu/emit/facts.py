"""What the emitter knows about a program's variables before it writes a line."""

from __future__ import annotations

from tilesim.gpu.emit.expr import Expressions
from tilesim.ir.expr import Expr
from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import For, Program, Role, walk
from tilesim.ir.registers import defined


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
