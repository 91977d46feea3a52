"""What guards and conditional branches depend on, in PTX and in SASS: each side for itself."""

from __future__ import annotations

from collections.abc import Mapping

from tilesim.cubin.operands import Register as Predicate
from tilesim.cubin.operands import parse, written
from tilesim.cubin.sass import Function
from tilesim.ptx.constants import set_by
from tilesim.ptx.inline import Kernel, Not
from tilesim.translation.conditions import Condition

#: branches that all lanes of a warp decide together, or that go on at both places
_OF_WARP = frozenset({"ANY", "ALL", "DIV", "CONV"})


def ptx_conditions(kernel: Kernel) -> Mapping[int, Condition]:
    """By the number of each guarded step, branches among them: its guard. The value is the name of
    the register."""
    made: dict[str, set[int]] = {}
    for number, step in enumerate(kernel.code):
        for register in set_by(step):
            if register.type == "pred":
                made.setdefault(register.name, set()).add(number)
    found: dict[int, Condition] = {}
    for number, step in enumerate(kernel.code):
        if step.guard is not None:
            negated = isinstance(step.guard, Not)
            name = step.guard.operand.name if isinstance(step.guard, Not) else step.guard.name
            found[number] = Condition(name, not negated, frozenset(made.get(name, ())))
    return found


def sass_conditions(function: Function) -> Mapping[int, Condition]:
    """By the place of each instruction that one predicate guards, branches among them: that
    predicate. What two predicates decide, or all lanes of a warp, has no entry."""
    made: dict[str, set[int]] = {}
    calls: set[int] = set()
    for pc, one in function.code.items():
        for name in written(one):
            if "P" in name:
                made.setdefault(name, set()).add(pc)
        if one.base == "CALL" and one.target is None:
            calls.add(pc)  # of a function that may write each register
    found: dict[int, Condition] = {}
    for pc, one in function.code.items():
        guards = [one.guard] if one.guard else []
        if one.base in ("BRA", "EXIT", "JMP"):
            guards += one.operands if one.base == "EXIT" else one.operands[:-1]
        if len(guards) != 1 or _OF_WARP & {*one.modifiers}:
            continue
        predicate = parse(guards[0])
        if isinstance(predicate, Predicate) and predicate.name not in ("PT", "UPT"):
            places = frozenset(made.get(predicate.name, ())) | calls
            found[pc] = Condition(predicate.name, predicate.sign != "!", places)
    return found
