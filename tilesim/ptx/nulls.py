"""Branches that ask whether a pointer of the launch is null, where it is.

    mov r, 0; mov p, r == 0; branch L, cond=p    ->    branch L

What stands behind such a question accesses what no parameter points to. Only a register of 64 bits
that holds zero decides one: a number of the launch that is not zero is asked as it is, for
``--for-all`` gives it other values.
"""

from __future__ import annotations

from dataclasses import replace

from tilesim.analysis.ssa import given
from tilesim.ir.expr import Const, constant
from tilesim.ir.mir import Branch, Instruction, Mir
from tilesim.ir.renumber import renumbered
from tilesim.ptx.forwarding import evaluated

_POINTER = 64


def without_null_tests(mir: Mir) -> Mir:
    """``mir`` with jumps in place of branches that a null pointer decides."""
    types = {var.name: var.dtype for var in mir.kernel.variables}
    values = given(mir)
    known = {n: v for n, v in values.items() if types[n].bits == _POINTER and constant(v) == 0}
    if not known:
        return mir
    nulls = dict(known)
    for name, value in values.items():
        if types[name].kind == "pred":
            found = evaluated(value, nulls)
            if isinstance(found, Const):
                known[name] = found
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
