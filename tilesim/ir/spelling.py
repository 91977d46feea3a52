"""How an instruction is spelled in PTX: templates, from which it is printed and read.

A template is an opcode and operands, such as ``vote.sync.{mode}.pred {result}, {predicate:p},
{mask};``. In the opcode ``{name}`` is the text of an attribute and ``{.name}`` the same with a dot
before it, or nothing where the attribute is None, False or empty (True is its name).
``{.name=text}`` is ``.text`` instead, in which ``*`` stands for the attribute's text. Of a view or
mbarrier ``{name.space}`` is the state space with a dot (``{name.space=a|b}``: that is a or b, and
written as a, which has both), ``{name.type}`` the type of registers that hold its elements as bits,
``{name.element}`` that type if it is computed with, and ``{name.reduced}`` the type if memory
combines the elements one by one; of a list ``{name.vec}`` is ``.v2``, ``.v4`` or nothing.

Among the operands ``{name}`` is a field: a register that is set (None is written ``_``), an
expression, the address of a view or an mbarrier (in brackets), an immediate, or a list of them in
braces for a tuple. ``{,name}`` is the same with a comma before it, or nothing where the field is
what it is by default. A letter after a colon is the class of its register as in inline PTX (``p``
for a predicate), where that is not what its type says; a longer word is the attribute that has the
letter, or the view of which the register holds elements. For a view it is what lies there, as the
address does not say it: ``{row:8*b16}`` are 8 elements of 16 bits, ``{src:results*}`` as many of
the opcode's type as the tuple holds, ``{dst:size*b8}`` that many bytes. With a ``!`` at the end a
list of one is written without braces.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tilesim.arith.types import DType
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.op import Op
from tilesim.records import dataclass

_SLOT = re.compile(
    r"\{([.,]?)(\w+)(?:\.(space|type|element|reduced|vec))?(?::(\w+(?:\*\w*)?))?(?:=([\w:|*]+))?(!?)\}"
)
#: operations on bits, whatever the type
_BITWISE = frozenset({"and", "or", "xor"})


@dataclass(frozen=True)
class Slot:
    """A place for an attribute: ``mark`` before its text (a dot, a comma), a ``part`` of it.

    ``register``: a letter, the attribute of the instruction that is one, or what lies at an
    address. ``text``: what is written for it. ``bare``: a list of one is written as what is in it.
    """

    name: str
    mark: str = ""
    part: str = ""
    register: str = ""
    text: str = ""
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
    """The spelling of a class of instructions that is printed.

    Raises:
        ValueError: it has none, or its template names something that is no attribute.
    """
    return spellings(cls)[0]


@cache
def spellings(cls: Any) -> tuple[Spelling, ...]:
    """All spellings of a class of instructions; the first one is printed.

    Raises:
        ValueError: as for `spelling`.
    """
    if not cls.ptx:
        raise ValueError(f"{cls.mnemonic} has no spelling in PTX")
    return tuple(_spelling(cls, template) for template in (cls.ptx, *cls.also))


def _spelling(cls: Any, template: str) -> Spelling:
    opcode, _, operands = template.rstrip(";").partition(" ")
    parsed = Spelling(_parts(opcode), _parts(operands))
    known = {*dir(cls), *getattr(cls, "__dataclass_fields__", ())}
    for part in (*parsed.opcode, *parsed.operands):
        if isinstance(part, Slot) and part.name not in known:
            raise ValueError(f"{cls.mnemonic} has no operand {part.name}, which {template!r} names")
    return parsed


def _parts(text: str) -> Parts:
    parts: list[str | Slot] = []
    place = 0
    for found in _SLOT.finditer(text):
        if found.start() > place:
            parts.append(text[place : found.start()])
        mark, name, part, register, fixed, bare = found.groups()
        parts.append(Slot(name, mark, part or "", register or "", fixed or "", bool(bare)))
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
    match slot.part:
        case "space":
            first, either, _ = slot.text.partition("|")
            return f".{first}" if either else space_of(value)
        case "type":
            return type_of(value.dtype)
        case "element":
            return element_of(value.dtype, bitwise=getattr(op, "op", "") in _BITWISE)
        case "reduced":
            return reduced_of(value.dtype, getattr(op, "op", ""))
        case "vec":
            return f".v{len(value)}" if len(value) > 1 else ""
        case _:
            pass
    if slot.mark and (value is None or value is False or value == "" or _unscoped(op, slot)):
        return ""
    text = slot.name if value is True else str(value)
    if slot.text:
        text = slot.text.replace("*", text)
    return slot.mark + text


def _unscoped(op: Op, slot: Slot) -> bool:
    """Weak accesses have no scope."""
    return slot.name == "scope" and getattr(op, "sem", "") == "weak"


def space_of(operand: View | Mbar) -> str:
    """The state space qualifier of accesses to a view or mbarrier, with its dot."""
    if isinstance(operand, View) and operand.space != "shared":
        return ".global" if operand.space == "global" else ""
    return ".shared::cluster" if operand.remote else ".shared::cta"


def type_of(dtype: DType) -> str:
    """The type of a register that holds elements as bits: narrow ones are packed into 32."""
    if dtype.kind == "float" and dtype.bits >= 32:
        return f"f{dtype.bits}"
    return f"b{max(dtype.bits, 32)}"


def element_of(dtype: DType, *, bitwise: bool = False) -> str:
    """The type of a register that holds elements which are computed with."""
    if bitwise:
        return f"b{dtype.bits}"
    return str(dtype) if dtype.bits >= 32 else f"{dtype}x{32 // dtype.bits}"


def reduced_of(dtype: DType, op: str) -> str:
    """The type of elements that memory combines one by one, as an operation names it."""
    if op in _BITWISE or op in ("exch", "cas"):
        return f"b{dtype.bits}"
    if op == "add" and dtype.bits == 16:
        return f"noftz.{dtype}"
    return "u64" if op == "add" and dtype.name == "s64" else str(dtype)


def register_of(dtype: DType) -> str:
    """The class of register that inline PTX takes for elements of a type."""
    if dtype.bits == 64:
        return "d" if dtype.kind == "float" else "l"
    return "f" if dtype.kind == "float" and dtype.bits == 32 else "r"


def general(cls: type[Op]) -> str:
    """The opcode of a class for a reader: choices in braces, optional qualifiers in brackets."""
    text = ""
    for part in spelling(cls).opcode:
        if isinstance(part, str):
            text += part
        elif part.part in ("space", "vec"):
            fixed = part.text if "|" not in part.text else "{space}"
            text += f".{fixed}" if fixed else f"[.{part.part}]"
        elif part.part:
            text += "{type}"
        elif part.mark:
            text += f"[.{part.text.replace('*', f'{{{part.name}}}') or part.name}]"
        else:
            text += f"{{{part.name}}}"
    return text
