"""Numbers of a launch description as bytes in memory."""

from __future__ import annotations

import struct

from tilesim.ptx.floats import encode
from tilesim.ptx.launch import Contents
from tilesim.ptx.syntax import WIDTH


def bytes_of(kind: str, number: float) -> bytes:
    """A number of a type of PTX, as it lies in memory."""
    width = WIDTH[kind]
    if kind in ("f16", "f32", "f64"):
        return struct.pack({"f16": "<e", "f32": "<f", "f64": "<d"}[kind], number)
    if kind == "bf16":
        return encode(float(number), "bf16").to_bytes(2, "little")
    return (int(number) & (1 << width) - 1).to_bytes(max(1, width // 8), "little")


def contents_of(contents: Contents) -> bytes:
    """What a buffer or a variable begins with."""
    return b"".join(bytes_of(contents.type, number) for number in contents.values)
