"""The word with which `grid.sync()` of cooperative groups waits: the driver allocates it, and two
special registers hold the halves of its address.

    %envreg1, %envreg2    the higher and lower half; both zero if the launch is not cooperative

What nvcc makes of them is followed to where both halves are one number again. A half by itself is
not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from tilesim.arith import types
from tilesim.ir.addresses import address_of
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.expr import Const, Expr
from tilesim.ptx.constants import Constants, set_by
from tilesim.ptx.inline import Flat, Items, Kernel, Register, Special, Step
from tilesim.ptx.launch import Launch

#: the whole address, its halves, and the higher half where it belongs in the address
Part: TypeAlias = Literal["whole", "low", "high", "shifted"]

_HALVES: dict[str, Part] = {"envreg2": "low", "envreg1": "high"}
#: the bytes before the word, and the word
_BYTES = 8


def named(kernel: Kernel) -> bool:
    """Whether a kernel asks for the address."""
    special = {o.name for step in kernel.code for o in step.operands if type(o) is Special}
    return not special.isdisjoint(_HALVES)


def tensor(kernel: Kernel, launch: Launch, taken: frozenset[str]) -> GlobalTensor | None:
    """The word, before any CTA has come; None if there is none."""
    if not launch.cooperative or not named(kernel):
        return None
    name = "grid_workspace"
    while name in taken:
        name += "_"
    return GlobalTensor(name, types.u8, (_BYTES,), contents="00" * _BYTES)


def address(word: GlobalTensor | None) -> Expr:
    """What the two registers hold together."""
    return Const(0) if word is None else address_of(word)


def parts(kernel: Kernel, constants: Constants) -> Mapping[str, Part]:
    """By name, the registers that hold the address or a part of it."""
    found: dict[str, Part] = {}
    if named(kernel):
        for step in kernel.code:
            for register in set_by(step):
                part = _computed(found, constants, step)
                if part is not None and constants.setter(register) is step:
                    found[register.name] = part
    return found


def _half(operand: Flat) -> Part | None:
    return _HALVES.get(operand.name) if isinstance(operand, Special) else None


def _computed(known: Mapping[str, Part], constants: Constants, step: Step) -> Part | None:
    """What an instruction sets its register to, if that is a part of the address."""

    def part(operand: Flat) -> Part | None:
        return known.get(operand.name) if isinstance(operand, Register) else _half(operand)

    match step.base, step.operands[1:]:
        case "mov", (Items((low, high)),):
            return "whole" if (part(low), part(high)) == ("low", "high") else None
        case "mov", (source,):
            return part(source)
        case "cvt", (source,) if step.opcode == "cvt.u64.u32":
            return part(source)
        case "shl", (source, count) if constants.number(count) == 32:
            return "shifted" if part(source) == "high" else None
        case "or" | "add", (one, other):
            return "whole" if {part(one), part(other)} == {"low", "shifted"} else None
        case "bfi", (high, low, start, length):
            place = (constants.number(start), constants.number(length))
            halves = (part(low), part(high))
            return "whole" if (place, halves) == ((32, 32), ("low", "high")) else None
        case _:
            return None
