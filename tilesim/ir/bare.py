"""Machine programs without what their text claims about them.

Some of what a listing says is no instruction but a claim, on which analyses rest: that lanes on
both sides of a branch synchronise, that a loop only waits, within which bounds a counter stays, and
that nobody reads it after its loop. Lowering knows them; of a text that somebody has written they
would have to be believed, and a wrong one could make a wrong proof. So they are left out, and found
again as for PTX, which has none.
"""

from __future__ import annotations

from dataclasses import replace

from tilesim.ir.joins import joined
from tilesim.ir.mir import Branch, Instruction, Mir
from tilesim.ir.op import Op
from tilesim.ir.registers import machine_typing


def bare(mir: Mir) -> Mir:
    """``mir`` as if only its instructions were known, with the claims that follow from these.

    `Join.syncs` stays: it orders lanes, and so is an instruction. So do roles and source locations,
    which nothing but reports depends on.
    """
    code = tuple(_alone(instruction) for instruction in mir.code)
    ops = [i.what for i in code if isinstance(i.what, Op)]
    return joined(Mir(mir.kernel, code, mir.roles, machine_typing(mir.kernel, ops, {})))


def _alone(instruction: Instruction) -> Instruction:
    what = instruction.what
    if isinstance(what, Branch):
        what = replace(what, arms=False, polls=False)
    return replace(instruction, what=what, counts=False)
