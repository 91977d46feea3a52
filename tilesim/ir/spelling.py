"""How an instruction is spelled in PTX: templates, from which it is printed.

A template is an opcode and operands, such as ``vote.sync.{mode}.pred {result}, {predicate:p},
{mask};``. In the opcode ``{name}`` is the text of an attribute and ``{.name}`` the same with a dot
before it, or nothing where the attribute is None, False or empty (True is its name). Among the
operands ``{name}`` is a field: a register that is set, an expression, the address of a view or an
mbarrier (in brackets), an immediate, or a list of them in braces for a tuple. A letter after a
colon is the class of its register as in inline PTX (``p`` for a predicate), where that is not
what its type says; a longer word is the attribute that has the letter. With a ``!`` at the end a
list of one is written without braces. ``{name.space}`` in the opcode is the state space of a view
or mbarrier.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilesim.ir.memory import Mbar, View
from tilesim.ir.op import Op

_SLOT = re.compile(r"\{(\.?)(\w+)(?:\.(space))?(?::(\w+))?(!?)\}")


@dataclass(frozen=True)
class Slot:
    """A place for an attribute: ``dot`` before its text, the ``space`` of it, its ``register``.

    ``register``: a letter, or the attribute of the instruction that is one. ``bare``: a list of one
    is written as what is in it.
    """

    name: str
    dot: bool = False
    space: bool = False
    register: str = ""
    bare: bool = False


Parts = tuple[str | Slot, ...]


@dataclass(frozen=True)
class Spelling:
    """A template: the parts of the opcode, and those of the operands."""

    opcode: Parts
    operands: Parts

    def slots(self) -> tuple[Slot, ...]:
        """The operands in order."""
        return tuple(part for part in self.operands if isinstance(part, Slot))


def spelling(cls: type) -> Spelling:
    """The spelling of a class of instructions.

    Raises:
        ValueError: it has none, or its template names something that is no attribute.
    """
    return _spelling(cls)


@cache
def _spelling(cls: Any) -> Spelling:
    if not cls.ptx:
        raise ValueError(f"{cls.mnemonic} has no spelling in PTX")
    opcode, _, operands = cls.ptx.rstrip(";").partition(" ")
    parsed = Spelling(_parts(opcode), _parts(operands))
    known = {*dir(cls), *getattr(cls, "__dataclass_fields__", ())}
    for part in (*parsed.opcode, *parsed.operands):
        if isinstance(part, Slot) and part.name not in known:
            raise ValueError(f"{cls.mnemonic} has no operand {part.name}, which {cls.ptx!r} names")
    return parsed


def _parts(text: str) -> Parts:
    parts: list[str | Slot] = []
    place = 0
    for found in _SLOT.finditer(text):
        if found.start() > place:
            parts.append(text[place : found.start()])
        dot, name, space, register, bare = found.groups()
        parts.append(Slot(name, bool(dot), bool(space), register or "", bool(bare)))
        place = found.end()
    return (*parts, text[place:]) if place < len(text) else tuple(parts)


def opcode(op: Op) -> str:
    """The opcode with its qualifiers: ``vote.sync.any.pred``."""
    return "".join(
        part if isinstance(part, str) else _qualifier(op, part)
        for part in spelling(type(op)).opcode
    )


def _qualifier(op: Op, slot: Slot) -> str:
    value = getattr(op, slot.name)
    if slot.space:
        return space_of(value)
    if slot.dot and (value is None or value is False or value == ""):
        return ""
    text = slot.name if value is True else str(value)
    return f".{text}" if slot.dot else text


def space_of(operand: View | Mbar) -> str:
    """The state space qualifier of accesses to a view or mbarrier, with its dot."""
    if isinstance(operand, View) and operand.space != "shared":
        return ".global" if operand.space == "global" else ""
    return ".shared::cluster" if operand.remote else ".shared::cta"


def general(cls: type[Op]) -> str:
    """The opcode of a class for a reader: choices in braces, optional qualifiers in brackets."""
    text = ""
    for part in spelling(cls).opcode:
        if isinstance(part, str):
            text += part
        elif part.space:
            text += "[.space]"
        else:
            text += f"[.{part.name}]" if part.dot else f"{{{part.name}}}"
    return text
