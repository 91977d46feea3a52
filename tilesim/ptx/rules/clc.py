"""Rules for cluster launch control, and for registers of 128 bits, which hold its answers.

Such a register is two of 64 bits: the halves of what was loaded from shared memory, where the query
comes later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilesim.ir.op import Op
from tilesim.ir.ops.compute import Query
from tilesim.ir.ops.scalar import Assign
from tilesim.ptx.inline import At, Flat, Items, Register, Step
from tilesim.ptx.lowering_context import Lowering, rule
from tilesim.ptx.syntax import Sink
from tilesim.records import replace

Part = Literal["canceled", "x", "y", "z"]
_AXES: tuple[Part, ...] = ("x", "y", "z")


def halves(operand: Flat) -> Flat:
    """A register of 128 bits as its halves, where they lie as one place; other operands as they
    are."""
    if isinstance(operand, At):
        return replace(operand, undivided=True)
    if not isinstance(operand, Register) or operand.type != "b128":
        return operand
    return Items(tuple(Register(f"{operand.name}.{part}", "b64") for part in ("low", "high")))


def in_halves(step: Step) -> Step:
    """A load or store of 128 bits as one of two halves; another instruction with such as it is."""
    if step.base not in ("ld", "st"):
        return step
    opcode = step.opcode.removesuffix(".b128") + ".v2.b64"
    return step.as_if(opcode, tuple(map(halves, step.operands)))


@rule("mov.b128")
def _move(low: Lowering, step: Step) -> Iterator[Op]:
    target, source = (low.items(halves(operand)) for operand in step.operands)
    if len(target) != 2 or len(source) != 2:
        raise low.unsupported("a register of 128 bits is moved as two halves")
    values = [low.value(item, 64) for item in source]
    for item, value in zip(target, values, strict=True):
        if item != Sink():
            yield Assign(var=low.register(item), value=value, loc=low.loc)


@rule("clusterlaunchcontrol.query_cancel")
def _query(low: Lowering, step: Step) -> Iterator[Op]:
    first, second = low.items(halves(step.operands[1]))
    response = low.value(first, 64), low.value(second, 64)
    for item, part in _asked(low, step):
        if item != Sink():
            yield Query(result=low.register(item), response=response, part=part, loc=low.loc)


def _asked(low: Lowering, step: Step) -> Iterator[tuple[Flat, Part]]:
    """The registers that are set, and what they become."""
    if "is_canceled" in step.qualifiers:
        yield step.operands[0], "canceled"
        return
    items = low.items(step.operands[0])
    said = [axis for axis in _AXES if f"get_first_ctaid::{axis}" in step.qualifiers]
    yield from zip(items, said or _AXES, strict=False)
