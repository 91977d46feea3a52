"""Branches that ask whether a pointer of the launch is null, where it is.

    mov r, 0; mov p, r == 0; branch L, cond=p    ->    branch L

What stands behind such a question accesses what no parameter points to. Only a register of 64 bits
that holds zero decides one: a number of the launch that is not zero is asked as it is, for
``--for-all`` gives it other values.
"""

from __future__ import annotations

from dataclasses import replace

from tilesim.arith.types import DType
from tilesim.ir.expr import Const, Expr, Var
from tilesim.ir.mir import Branch, Control, Instruction, Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.renumber import renumbered
from tilesim.ptx.forwarding import evaluated


def without_null_tests(mir: Mir) -> Mir:
    """``mir`` with jumps in place of branches that a null pointer decides."""
    if not any(_is_null(instruction.what) for instruction in mir.code):
        return mir
    given = _given(mir)
    nulls: dict[str, Expr] = {name: Const(0) for name, assign in given.items() if _is_null(assign)}
    if not nulls:
        return mir
    known = nulls | {
        name: value
        for name, assign in given.items()
        if assign.var.dtype.kind == "pred"
        and isinstance(value := evaluated(assign.value, nulls), Const)
    }
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number, instruction in enumerate(mir.code):
        branch = instruction.what
        if isinstance(branch, Branch) and branch.cond is not None:
            cond = evaluated(branch.cond, known)
            if isinstance(cond, Const) and cond != branch.cond:
                taken = bool(cond.value) is branch.sense
                jump = replace(branch, cond=None, sense=True)
                instead[number] = (replace(instruction, what=jump),) if taken else ()
    return renumbered(mir, instead)


def _is_null(what: Op | Control) -> bool:
    """Whether an instruction sets a register that may hold a pointer to zero."""
    match what:
        case Assign(var=Var(dtype=DType(bits=64)), value=Const(value)):
            return not value
        case _:
            return False


def _given(mir: Mir) -> dict[str, Assign]:
    """By register that one instruction sets, always, the assignment that does."""
    found: dict[str, Assign] = {}
    for name, numbers in mir.setters.items():
        instruction = mir.code[numbers[0]]
        if len(numbers) == 1 and instruction.guard is None and isinstance(instruction.what, Assign):
            found[name] = instruction.what
    return found
