"""Values of a launch description as bytes in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tilesim.arith.floats import encode
from tilesim.arith.types import WIDTH
from tilesim.ir.memory import Pointed
from tilesim.ptx.launch import Address, Contents

#: types of which a value may be the address of a buffer
ADDRESSES = ("b64", "s64", "u64")
_NBYTES = 8
_PACKED = {"f16": "<e", "f32": "<f", "f64": "<d"}


def bytes_of(kind: str, number: float) -> bytes:
    """A number of a type of PTX, as it lies in memory.

    Raises:
        OverflowError: the type has no number as large.
    """
    width = WIDTH[kind]
    if kind in _PACKED:
        return struct.pack(_PACKED[kind], float(number))
    if kind == "bf16":
        return encode(float(number), "bf16").to_bytes(2, "little")
    return (int(number) & (1 << width) - 1).to_bytes(max(1, width // 8), "little")


def contents_of(contents: Contents) -> bytes:
    """What a buffer or a variable begins with; zeros where there are addresses."""
    return b"".join(
        bytes(_NBYTES) if isinstance(value, Address) else bytes_of(contents.type, value)
        for value in contents.values
    )


def pointers_in(contents: Contents | None) -> Iterator[Pointed]:
    """The addresses in it, in order."""
    for number, value in enumerate(() if contents is None else contents.values):
        if isinstance(value, Address):
            yield Pointed(number * _NBYTES, value.name, value.offset)
