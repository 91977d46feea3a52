"""Which tensors a launch may write: a first look at the program.

An address is one in the tensors whose beginnings go into it, by registers or through memory. That
no other tensor is written is looked at again where one is (`machine.Machine.writes`).
"""

from __future__ import annotations

from collections import defaultdict

from tilesim.arith.types import u64
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.effects import Defines, Reads, RemoteStore, Writes, WritesMap
from tilesim.ir.expr import Base, Var
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op

#: what lies in memory, as a register
_MEMORY = Var("", u64)


def may_write(mir: Mir) -> set[str]:
    """The global tensors that some instruction may write."""
    found, addresses = set[str](), list[object]()
    for e in (e for effects in mir.effects for e in effects):
        if isinstance(e, WritesMap):
            found |= {t.name for t in e.map.tensors}
        elif isinstance(e, Writes | RemoteStore) and e.view.space != "shared":
            tensor = e.view.tensor
            if isinstance(tensor, GlobalTensor):
                found.add(tensor.name)
            else:
                addresses.append(e.view)
    return found | (_go_into(addresses, _made(mir)) & {t.name for t in mir.kernel.tensors})


def _made(mir: Mir) -> dict[str, list[object]]:
    """By register, and of memory, of what it is made."""
    made = defaultdict[str, list[object]](list)
    for t in mir.kernel.tensors:
        made[_MEMORY.name] += [Base(p.to, "global") for p in t.pointers]
    for instruction, effects in zip(mir.code, mir.effects, strict=True):
        op = instruction.what
        data = [getattr(op, name) for name in op.data] if isinstance(op, Op) else []
        loads = any(isinstance(e, Reads) for e in effects)
        for e in effects:
            if isinstance(e, Defines):  # of what is found there, not of where it is
                made[e.var.name] += [*data, _MEMORY] if loads else [op]
            elif isinstance(e, Writes | RemoteStore):
                made[_MEMORY.name] += data
    return made


def _go_into(operands: list[object], made: dict[str, list[object]]) -> set[str]:
    """The declarations whose addresses go into operands."""
    found, seen, left = set[str](), set[str](), list(operands)
    while left:
        match left.pop():
            case Base(name):
                found.add(name)
            case Var(name):
                left += made.get(name, ()) if name not in seen else ()
                seen.add(name)
            case tuple() as parts:
                left += parts
            case x:
                left += [getattr(x, field) for field in getattr(x, "__dataclass_fields__", ())]
    return found
