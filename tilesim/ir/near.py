"""Parts of shared memory that a program whose operands are at addresses never mixes.

PTX has one array of shared memory and addresses into it: what is a barrier, an answer or a tile
there, no declaration says. Runs show which bytes each instruction accesses. Where nothing decides
about instructions and addresses in shared memory that is not the same in other runs, these bytes
are the same as well; so what shows that may go by them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tilesim.ir import effects as fx
from tilesim.ir.addressed import PART, AddressedTensor
from tilesim.ir.memory import View
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Load
from tilesim.ir.ops.vector import LoadVector

_LOADS = (Load, LoadVector)
#: where instructions load from that were not executed
_NOWHERE = f"{PART}nowhere"

#: bytes from one address to below another
Range: TypeAlias = tuple[int, int]


def parts_of_shared(accessed: Mapping[int, Iterable[Range]]) -> dict[int, str]:
    """By number of an instruction the part of shared memory that it accesses.

    ``accessed``: the bytes, by number. Two that have a byte in common are in one part, and so are
    all bytes of one instruction.
    """
    joined: dict[int, int] = {}

    def root(number: int) -> int:
        while joined.setdefault(number, number) != number:
            number = joined[number]
        return number

    ranges = sorted((low, high, number) for number, rs in accessed.items() for low, high in rs)
    end, last = 0, -1
    for low, high, number in ranges:
        if last >= 0 and low < end:
            joined[root(number)] = root(last)
        end, last = max(end, high), number
    first: dict[int, int] = {}
    for low, _, number in ranges:
        first.setdefault(root(number), low)
    return {number: f"{PART}{first[root(number)]}" for number in accessed}


def told_apart(mir: Mir, parts: Mapping[int, str], far: Collection[int]) -> Mir:
    """``mir`` with operands that name the part of shared memory that they are in.

    Operands of which copies and products read keep their names: they may be in any part. An
    instruction that has accessed nothing was not executed, and loads nothing. Those in ``far``
    have accessed global memory at generic addresses.
    """
    code = list(mir.code)
    for number, instruction in enumerate(code):
        op = instruction.what
        never = number not in far and isinstance(op, _LOADS)
        if isinstance(op, Op) and (number in parts or never):
            named: dict[str, Any] = dict(_named(op, parts.get(number, _NOWHERE)))
            if named:
                code[number] = replace(instruction, what=replace(op, **named))
    return replace(mir, code=tuple(code))


def _named(op: Op, part: str) -> Iterator[tuple[str, View]]:
    """Operands in shared memory that an instruction writes, or loads into registers, as ones in
    this part."""
    written = [e.view for e in op.effects() if isinstance(e, fx.Writes | fx.RemoteStore)]
    for name, value in vars(op).items():
        match value:
            case View(tensor=AddressedTensor(space=space, within="") as tensor):
                read = isinstance(op, _LOADS)
                if space != "global" and (read or any(value is view for view in written)):
                    yield name, replace(value, tensor=replace(tensor, within=part))
            case _:
                pass
