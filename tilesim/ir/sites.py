"""Which operands of an instruction say what about synchronisation: where it can be wrong.

This is read off its effects: the operand that an effect takes as its count of arrivals is a count,
whatever the instruction is called. Edits of operands, wrong ones and repairs, are made there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from tilesim.ir import effects as fx
from tilesim.ir.op import Op, operand_names
from tilesim.records import dataclass

#: what an operand says
Kind = Literal[
    "barrier", "arrivals", "count", "bytes", "phase", "mask", "pending", "id", "threads",
    "registers", "columns", "sem", "scope", "aligned", "read", "view",
]  # fmt: skip

#: by class of effects, which of its fields say what; others than the same name are given
_FIELDS: Mapping[type, Mapping[str, Kind]] = MappingProxyType({
    fx.InitsMbarrier: {"mbar": "barrier", "count": "count"},
    fx.InvalidatesMbarrier: {"mbar": "barrier"},
    fx.Arrives: {
        "mbar": "barrier", "count": "arrivals", "bytes": "bytes", "multicast": "mask",
        "sem": "sem", "scope": "scope",
    },
    fx.Expects: {"mbar": "barrier", "bytes": "bytes", "scope": "scope"},
    fx.Completes: {"mbar": "barrier", "multicast": "mask"},
    fx.Waits: {"mbar": "barrier", "phase": "phase", "sem": "sem", "scope": "scope"},
    fx.JoinsBarrier: {"id": "id", "threads": "threads", "aligned": "aligned"},
    fx.JoinsCluster: {"sem": "sem", "aligned": "aligned"},
    fx.WaitsGroup: {"pending": "pending", "read_only": "read"},
    fx.Registers: {"count": "registers"},
    fx.AllocatesTmem: {"columns": "columns"},
    fx.FreesTmem: {"columns": "columns"},
    fx.Orders: {"scope": "scope"},
    fx.Reads: {"view": "view", "sem": "sem", "scope": "scope"},
    fx.Writes: {"view": "view", "sem": "sem", "scope": "scope"},
    fx.RemoteStore: {"view": "view"},
})  # fmt: skip
#: operands that are called otherwise than the field of the effect, and are no objects
_ALSO: Mapping[str, str] = MappingProxyType({"read_only": "read"})


@dataclass(frozen=True)
class Site:
    """The operand ``name`` of an instruction, what it says, and its value."""

    kind: Kind
    name: str
    value: Any


def sites(op: Op) -> tuple[Site, ...]:
    """The operands of an instruction that say how it synchronises, in the order of its effects."""
    return tuple(dict.fromkeys(_sites(op)))


def _sites(op: Op) -> Iterator[Site]:
    names = operand_names(type(op))
    for effect in op.effects():
        for field, kind in _FIELDS.get(type(effect), {}).items():
            value = getattr(effect, field)
            name = next((n for n in names if _is(op, n, field, value)), None)
            if name is not None:
                yield Site(kind, name, getattr(op, name))


def _is(op: Op, name: str, field: str, value: object) -> bool:
    """Whether the operand ``name`` is what the field of an effect holds."""
    operand = getattr(op, name)
    if name in (field, _ALSO.get(field)):
        return type(operand) is type(value) and bool(operand == value)
    return operand is value and not isinstance(value, int | str | None)
