"""Cubins with other instructions: at one place, or in another order with their lines."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.line_table import LineTable
from tilesim.cubin.sass import WIDTH

_TABLE = ".nv_debug_line_sass"
#: of a section header: where the offset and the size stand; where the offset of headers stands
_OFFSET, _SIZE, _HEADERS, _HEADER = 24, 32, 40, 64
_RELOCATION = struct.Struct("<QQq")
#: instructions of a line table
_COPY, _ADVANCE, _LINE = 1, 2, 3
_BEGIN, _END = b"\x00\x09\x02", b"\x00\x01\x01"


def code_at(image: Image, symbol: Symbol) -> int:
    """Where the code of a function begins in the file."""
    section = image.sections[symbol.section]
    return section.offset + symbol.address - section.address


def word(image: Image, symbol: Symbol, pc: int) -> int:
    """The 128 bits of an instruction."""
    at = code_at(image, symbol) + pc
    return int.from_bytes(image.data[at : at + WIDTH], "little")


def with_words(image: Image, symbol: Symbol, words: Mapping[int, int]) -> Image:
    """The cubin with other bits at some places of a function."""
    data = bytearray(image.data)
    for pc, value in words.items():
        at = code_at(image, symbol) + pc
        data[at : at + WIDTH] = value.to_bytes(WIDTH, "little")
    return Image(bytes(data), image.name)


def relocated(image: Image, symbol: Symbol) -> frozenset[int]:
    """The places of a function whose bits a linker changes."""
    name = image.sections[symbol.section].name
    found = set()
    for section in image.sections:
        if section.name in (f".rela{name}", f".rel{name}"):
            data, size = image.contents(section), 24 if section.name.startswith(".rela") else 16
            for at in range(0, len(data) - 15, size):
                offset = int.from_bytes(data[at : at + 8], "little")
                found.add((offset - symbol.address) // WIDTH * WIDTH)
    return frozenset(found)


def reordered(image: Image, symbol: Symbol, order: Sequence[int]) -> Image:
    """The cubin with instructions of a function in another order: ``order`` are their places, and
    they take these places in increasing order. Each keeps its line of the PTX.

    No branch may lead to a place between the first and the last of them, or stand there.
    """
    moved = dict(zip(sorted(order), order, strict=True))
    changed = with_words(
        image, symbol, {place: word(image, symbol, pc) for place, pc in moved.items()}
    )
    start = symbol.address - image.sections[symbol.section].address
    return _with_lines(
        changed, symbol.section, {start + place: start + pc for place, pc in moved.items()}
    )


def _with_lines(image: Image, section: int, moved: Mapping[int, int]) -> Image:
    """The cubin with a table in which places of a section have the lines of others."""
    table, relocations = image.section(_TABLE), image.section(f".rela{_TABLE}")
    assert table
    assert relocations
    data = image.contents(table)
    symbols = image.contents(image.sections[relocations.link])
    (size,) = struct.unpack_from("<I", data, 6)
    head, shortest = data[: 10 + size], data[10]
    assert struct.unpack_from("<I", data)[0] + 4 == len(data), "it has several units"
    lines = LineTable(image)
    entries = image.contents(relocations)
    rows = sorted(_RELOCATION.iter_unpack(entries))
    program, begins = b"", []
    for _, info, addend in rows:
        (of,) = struct.unpack_from("<H", symbols, (info >> 32) * 24 + 6)
        address, length = struct.unpack_from("<QQ", symbols, (info >> 32) * 24 + 8)
        begins.append((len(head) + len(program) + 3, info, addend))
        program += _BEGIN + bytes(8)
        start = address - image.sections[of].address + addend
        found = [
            lines.ptx(of, moved.get(at, at) if of == section else at)
            for at in range(start, start + length, WIDTH)
        ]
        program += _rows(found, WIDTH // shortest) + _END
    made = struct.pack("<I", len(head) + len(program) - 4) + head[4:] + program
    out = bytearray(image.data)
    out[relocations.offset : relocations.offset + relocations.size] = b"".join(
        _RELOCATION.pack(*row) for row in begins
    )
    _move(out, image.sections.index(table), len(out), len(made))
    return Image(bytes(out + made), image.name)


def _move(data: bytearray, section: int, offset: int, size: int) -> None:
    """Says that a section lies elsewhere."""
    (headers,) = struct.unpack_from("<Q", data, _HEADERS)
    at = headers + section * _HEADER
    struct.pack_into("<Q", data, at + _OFFSET, offset)
    struct.pack_into("<Q", data, at + _SIZE, size)


def _rows(lines: Sequence[int | None], step: int) -> bytes:
    """Instructions of a table for the lines of instructions that follow each other."""
    out, at, line = b"", 0, 1
    last: int | None = None
    for number, now in enumerate(lines):
        if now is None or now == last:
            continue
        out += bytes([_ADVANCE]) + _leb((number - at) * step)
        out += bytes([_LINE]) + _signed_leb(now - line) + bytes([_COPY])
        at, line, last = number, now, now
    return out + bytes([_ADVANCE]) + _leb((len(lines) - at) * step)


def _leb(value: int) -> bytes:
    out = b""
    while True:
        value, low = value >> 7, value & 127
        out += bytes([low | (128 if value else 0)])
        if not value:
            return out


def _signed_leb(value: int) -> bytes:
    out = b""
    while True:
        value, low = value >> 7, value & 127
        done = value == (-1 if low & 64 else 0)
        out += bytes([low | (0 if done else 128)])
        if done:
            return out
