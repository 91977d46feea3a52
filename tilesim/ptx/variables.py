"""Variables outside of shared memory: ``.global``, ``.const`` and ``.local`` ones as tensors.

``.local`` memory is a part of a tensor for every thread of the grid. What constants hold is known
where their initialisers say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tilesim.arith import types
from tilesim.arith.types import WIDTH
from tilesim.ir.addresses import address_of
from tilesim.ir.expr import Expr, Special
from tilesim.ir.memory import GlobalTensor
from tilesim.ptx.contents import contents_of, pointers_in
from tilesim.ptx.errors import LaunchError
from tilesim.ptx.flat import Kernel
from tilesim.ptx.launch import Contents, Launch
from tilesim.ptx.names import readable
from tilesim.ptx.syntax import Float, Initial, Integer, Variable
from tilesim.words import did_you_mean


def tensors(kernel: Kernel, launch: Launch, taken: frozenset[str]) -> dict[str, GlobalTensor]:
    """A tensor for each variable that a kernel names; names that are ``taken`` it does not get.

    Raises:
        LaunchError: nobody says how large one is, or the launch says what cannot be.
    """
    given = told(launch)
    for name in given:
        if name not in kernel.variables:
            hint = did_you_mean(name, kernel.variables)
            there = ", ".join(kernel.variables) or "none"
            raise LaunchError(
                f"variables.{name}: the kernel names no such variable{hint}; it names {there}"
            )
    found: dict[str, GlobalTensor] = {}
    used = set(taken)
    for name, variable in kernel.variables.items():
        if not variable.size:
            raise LaunchError(f"{launch.entry}: nothing says how large the variable {name} is")
        threads = launch.threads * launch.ctas if variable.space == "local" else 1
        plain = readable(name)
        if plain == name:
            plain = re.sub(r"\W", "_", name)
        while plain in used:
            plain += "_"
        used.add(plain)
        size = (_pitch(variable) * threads,)
        found[name] = GlobalTensor(
            plain, types.u8, size, contents=_begins(variable, given),
            pointers=tuple(pointers_in(given.get(name))), private=variable.space == "local",
            constant=variable.space == "const",
        )  # fmt: skip
    return found


def _begins(variable: Variable, given: Mapping[str, Contents | None]) -> str:
    """What a variable is known to begin with, in hexadecimal.

    Raises:
        LaunchError: the launch says more than fits.
    """
    if variable.name not in given:
        whole = constant(variable, 0, variable.size)
        return "" if whole is None else whole.to_bytes(variable.size, "little").hex()
    data = b"" if (said := given[variable.name]) is None else contents_of(said)
    if len(data) > variable.size:
        raise LaunchError(
            f"variables.{variable.name}: {len(data)} bytes, the variable has {variable.size}"
        )
    return data.hex()


def told(launch: Launch) -> dict[str, Contents | None]:
    """What the host has put into variables, by name."""
    return dict(launch.variables)


def address(variable: Variable, tensor: GlobalTensor, launch: Launch) -> Expr:
    """Where a variable begins, for the thread that asks."""
    start = address_of(tensor)
    if variable.space != "local":
        return start
    x, y, _ = launch.grid
    cta = Special("cta_x") + x * (Special("cta_y") + y * Special("cta_z"))
    return start + (cta * launch.threads + Special("thread_id")) * _pitch(variable)


def _pitch(variable: Variable) -> int:
    """Bytes from a thread's own variable to the next one's."""
    align = variable.alignment
    return -(-variable.size // align) * align


def constant(variable: Variable, offset: int, nbytes: int) -> int | None:
    """What bytes of a ``.const`` variable are, as a number; None: its initialiser does not say."""
    size = max(8, WIDTH[variable.type]) // 8
    cells = tuple(_cells(variable.initial, variable.type))
    known = tuple(cell for cell in cells if cell is not None)
    inside = 0 <= offset <= variable.size - nbytes
    whole = not _nested(variable.initial) or size * len(known) == variable.size
    if variable.space != "const" or not known or known != cells or not inside or not whole:
        return None
    data = b"".join(cell.to_bytes(size, "little") for cell in known).ljust(variable.size, b"\0")
    return int.from_bytes(data[offset : offset + nbytes], "little")


def _nested(initial: Initial) -> bool:
    """Whether there are lists in a list, which may each leave out what is zero."""
    return isinstance(initial, tuple) and any(isinstance(item, tuple) for item in initial)


def _cells(initial: Initial, kind: str) -> Iterator[int | None]:
    """The elements that an initialiser lists, as bits; None for an address."""
    match initial:
        case tuple():
            for item in initial:
                yield from _cells(item, kind)
        case Integer(value):
            yield value & (1 << WIDTH[kind]) - 1
        case Float(bits, width) if width == WIDTH[kind]:
            yield bits
        case _:
            yield None
