"""Parameters of which the place that is loaded is chosen while the kernel runs, as tensors.

``ld.param`` mostly names its place, and what lies there is known without running anything. A choice
between two structs (``selp`` of their addresses), or an element of an array in one (``p.rows[i]``,
of a ``__grid_constant__``), is an address like any other: such a parameter lies in memory that
begins with what the launch passes, and that nobody writes (PTX 5.1.6: ``.param`` is read-only).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilesim.arith import types
from tilesim.ir.memory import GlobalTensor, Pointed
from tilesim.ptx.constants import Constants, naming
from tilesim.ptx.contents import bytes_of
from tilesim.ptx.flat import Flat, Kernel, Register, Symbol
from tilesim.ptx.launch import Launch, Map, Parameter, Pointer, Scalar, Struct
from tilesim.ptx.names import readable

#: bytes, or None where nobody knows one, and the addresses among them
_Held = tuple[list[int | None], list[Pointed]]


def tensors(
    kernel: Kernel, launch: Launch, constants: Constants, taken: Iterable[str]
) -> dict[str, GlobalTensor]:
    """By parameter the memory in which it lies, of those that need it.

    One with a tensor map in it has none: instructions name the map by where it is.
    """
    chosen, used = set(_chosen(kernel, constants)), set(taken)
    found: dict[str, GlobalTensor] = {}
    for formal, actual in zip(kernel.entry.params, launch.params, strict=True):
        if formal.name not in chosen or _has_map(actual):
            continue
        name = readable(formal.name)
        while name in used:
            name += "_"
        used.add(name)
        cells, pointers = _held(actual, 0)
        known = next((n for n, cell in enumerate(cells) if cell is None), len(cells))
        found[formal.name] = GlobalTensor(
            name, types.u8, (formal.size,), contents=bytes(c or 0 for c in cells[:known]).hex(),
            pointers=tuple(p for p in pointers if p.at < known), constant=True,
        )  # fmt: skip
    return found


def _chosen(kernel: Kernel, constants: Constants) -> Iterator[str]:
    """The parameters from whose address one is made of which the text does not say the place."""
    own = {formal.name for formal in kernel.entry.params}
    known: dict[str, str] = {}  #: by register the parameter of which it is a place
    left = [step for step in kernel.code if Symbol in map(type, step.operands[1:])]
    while left:
        target, *sources = left.pop().operands
        named = {name for s in sources if (name := _named(s, known)) in own}
        if not named or not isinstance(target, Register):
            continue
        if constants.parameter(target) is None:
            yield from named
        elif target.name not in known:
            known[target.name] = named.pop()
            left += (kernel.code[number] for number in naming(kernel).numbers[target.name])


def _named(source: Flat, known: Mapping[str, str]) -> str | None:
    """The parameter of whose address an operand is one."""
    match source:
        case Symbol(variable) if variable.space == "param":
            return variable.name
        case Register(name):
            return known.get(name)
        case _:
            return None


def _has_map(actual: Parameter) -> bool:
    fields = actual.fields if isinstance(actual, Struct) else ()
    return isinstance(actual, Map) or any(_has_map(field.value) for field in fields)


def _held(actual: Parameter, at: int) -> _Held:
    """What a parameter that lies at a place holds. A number that stands for every one of its type
    (``--for-all``) is none that is known here."""
    match actual:
        case Pointer(name, nbytes, offset) if nbytes != 0:
            return [0] * 8, [Pointed(at, name, offset)]
        case Pointer(offset=offset):
            return list(offset.to_bytes(8, "little")), []
        case Scalar(type=kind, value=int() | float() as value) if type(value) in (int, float):
            return list(bytes_of(kind, value)), []
        case Scalar(type=kind):
            return [None] * len(bytes_of(kind, 0)), []
        case Struct():
            return _of_struct(actual, at)
        case _:
            raise AssertionError(actual)


def _of_struct(actual: Struct, at: int) -> _Held:
    cells: list[int | None] = [*actual.data, *[None] * actual.size][: actual.size]
    pointers: list[Pointed] = []
    for field in actual.fields:
        own, addresses = _held(field.value, at + field.offset)
        cells[field.offset : field.offset + len(own)] = own
        pointers += addresses
    return cells, pointers
