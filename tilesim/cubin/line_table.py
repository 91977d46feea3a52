"""Tables of lines in a cubin: from instructions to the source, and to the embedded PTX.

``.debug_line`` is DWARF's (version 2 to 4), with an instruction of NVIDIA's: the rows behind
``inlined_call`` are of a function that was inlined where another row of the same function says.
``.nv_debug_line_sass`` has the same form, and says lines of the PTX.

What nvdisasm prints of them (``-gi``) cannot be used: it prints a position when that differs from
the one before, so of two calls of one function the second is shown as the first.

LLVM, by which Triton makes PTX, counts the lines of inline assembly on from that of the source: the
loop of a wait would be four lines below its wait. The lines are those where the assembly begins.
And Triton says that its kernel calls a partition of warps on the line of the kernel's definition:
that is no call.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, Section
from tilesim.cubin.sass import SourceLine

#: rows of a table, and functions that are inlined into one another, at most
MOST_ROWS = 1 << 20
MOST_INLINED = 64

#: sources of which LLVM makes PTX with positions within inline assembly; nvcc writes none there
_PYTHON = ".py"
#: LLVM puts braces around calls as well, and around functions
_NO_ASSEMBLY = ("call", "ret")

_ENTRY = struct.Struct("<QQq")
# instructions of the table
_COPY, _ADVANCE, _LINE, _FILE, _COLUMN, _ADD, _FIXED = 1, 2, 3, 4, 5, 8, 9
_END, _ADDRESS, _INLINED = 0x01, 0x02, 0x90


class _Row(NamedTuple):
    """A row: the place in its section from which it holds, and the row of the call, 0 of none."""

    at: int
    file: int
    line: int
    call: int


class _Function(NamedTuple):
    """The rows of one function, in order, and where it ends."""

    section: int
    rows: Sequence[_Row]
    end: int


class _Reader:
    """Bytes, from the first to the last."""

    def __init__(self, image: Image, section: Section) -> None:
        self._image = image
        self._name = section.name
        self.data = image.contents(section)
        self.at = 0
        self.end = len(self.data)

    def error(self) -> CubinError:
        """The table is damaged."""
        return self._image.error(f"{self._name} is no table of lines")

    def take(self, size: int) -> bytes:
        start = self.at
        if start + size > self.end:
            raise self.error()
        self.at += size
        return self.data[start : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def leb(self, *, signed: bool = False) -> int:
        """A number of 7 bits a byte."""
        found = shift = 0
        while shift < 70:
            byte = self.number(1)
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found - (1 << shift) if signed and byte & 64 else found
        raise self.error()

    def text(self) -> str:
        end = self.data.find(b"\0", self.at, self.end)
        if end < 0:
            raise self.error()
        return self.take(end + 1 - self.at)[:-1].decode("utf-8", "replace")


_Table = dict[int, list[tuple[list[str], _Function]]]


class LineTable:
    """Lines by instruction; a cubin without tables has none, nor has one whose table is damaged."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._source = self._read(".debug_line")
        self._ptx = self._read(".nv_debug_line_sass")
        self._counted = counted_on(image.ptx or "") if self._source else {}

    def _read(self, name: str) -> _Table:
        try:
            return self._table(name)
        except CubinError:
            return {}

    def lines(self, section: int, at: int) -> tuple[SourceLine, ...]:
        """Where the instruction at a place of a section comes from, then the calls that were
        inlined, the outermost last."""
        found: list[SourceLine] = []
        first = 0
        for files, function in self._source.get(section, ()):
            row, first = _row(function, at), function.rows[0].line if function.rows else 0
            while row is not None and len(found) < MOST_INLINED:
                name = files[row.file] if 0 <= row.file < len(files) else ""
                if name:
                    found.append(SourceLine(name, row.line))
                row = function.rows[row.call - 1] if row.call else None
            if found:
                break
        if found and found[0].file.endswith(_PYTHON):
            line = found[0].line - self._counted.get(self.ptx(section, at) or 0, 0)
            found[0] = SourceLine(found[0].file, max(1, line))
            if len(found) > 1 and found[-1].line == first:
                found.pop()
        return tuple(found)

    def begins(self, section: int, at: int) -> int | None:
        """The place from which on the lines of the instruction at a place hold; None without."""
        rows = (_row(function, at) for _, function in self._source.get(section, ()))
        return next((row.at for row in rows if row is not None), None)

    def ptx(self, section: int, at: int) -> int | None:
        """The line of the embedded PTX of the instruction at a place of a section."""
        rows = (_row(function, at) for _, function in self._ptx.get(section, ()))
        return next((row.line for row in rows if row is not None), None)

    def _table(self, name: str) -> _Table:
        """The functions of a table, with the names of files, by section."""
        section = self._image.section(name)
        if section is None:
            return {}
        reader = _Reader(self._image, section)
        places = self._places(name)
        found: _Table = {}
        total = 0
        while reader.at < len(reader.data):
            reader.end = len(reader.data)
            length = reader.number(4)
            reader.end = reader.at + length
            if reader.end > len(reader.data):
                raise reader.error()
            if 2 <= reader.number(2) <= 4:
                for files, function in self._program(reader, places):
                    total += len(function.rows)
                    if total > MOST_ROWS:
                        raise reader.error()
                    found.setdefault(function.section, []).append((files, function))
            reader.at = reader.end
        return found

    def _places(self, name: str) -> dict[int, tuple[int, int]]:
        """By place in a table, the section and the place in it that its address is of."""
        relocations, symbols = self._image.section(f".rela{name}"), self._image.section(".symtab")
        if relocations is None or symbols is None:
            return {}
        data, table = self._image.contents(relocations), self._image.contents(symbols)
        found: dict[int, tuple[int, int]] = {}
        for start in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
            at, info, addend = _ENTRY.unpack_from(data, start)
            symbol = (info >> 32) * 24
            if symbol + 24 > len(table):
                raise self._image.error(f"{relocations.name} names a symbol that it lacks")
            section, value = struct.unpack_from("<HQ", table, symbol + 6)
            if section < len(self._image.sections):
                found[at] = section, value - self._image.sections[section].address + addend
        return found

    def _program(
        self, reader: _Reader, places: dict[int, tuple[int, int]]
    ) -> Iterator[tuple[list[str], _Function]]:
        """The functions of one table, whose length and version have been read."""
        start = reader.number(4) + reader.at
        shortest = reader.number(1)
        versions = reader.data[reader.at - 7]
        if versions >= 4:
            reader.take(1)
        reader.take(1)
        lowest = int.from_bytes(reader.take(1), "little", signed=True)
        span, first = reader.number(1), reader.number(1)
        lengths = reader.take(first - 1)
        if not span:
            raise reader.error()
        files = _files(reader)
        reader.at = start
        rows: list[_Row] = []
        section, base, address, file, line, call = 0, 0, 0, 1, 1, 0
        while reader.at < reader.end:
            code = reader.number(1)
            if code >= first:
                address += (code - first) // span * shortest
                line += lowest + (code - first) % span
            elif code == _ADVANCE:
                address += reader.leb() * shortest
            elif code == _LINE:
                line += reader.leb(signed=True)
            elif code == _FILE:
                file = reader.leb()
            elif code == _ADD:
                address += (255 - first) // span * shortest
            elif code == _FIXED:
                address += reader.number(2)
            elif code == 0:
                after = reader.leb() + reader.at
                if after > reader.end or after == reader.at:
                    raise reader.error()
                what = reader.number(1)
                if what == _ADDRESS:
                    section, base = places.get(reader.at, (0, 0))
                    address = 0
                elif what == _INLINED:
                    call = reader.leb()
                    if call > len(rows):
                        raise reader.error()
                elif what == _END:
                    if section:
                        yield files, _Function(section, tuple(rows), base + address)
                    rows = []
                    section, base, address, file, line, call = 0, 0, 0, 1, 1, 0
                reader.at = after
            elif code != _COPY:
                for _ in range(lengths[code - 1]):
                    reader.leb()
            if code == _COPY or code >= first:
                rows.append(_Row(base + address, file, line, call))
                if len(rows) > MOST_ROWS:
                    raise reader.error()


def _files(reader: _Reader) -> list[str]:
    """The names of files by number, with their folders; 0 is none."""
    folders = [""]
    while name := reader.text():
        folders.append(name)
    files = [""]
    while name := reader.text():
        folder = reader.leb()
        reader.leb(), reader.leb()
        inside = folders[folder] if folder < len(folders) else ""
        files.append(f"{inside}/{name}" if inside and not name.startswith("/") else name)
    return files


def _row(function: _Function, at: int) -> _Row | None:
    """The row that holds at a place, the last of those that begin at one place."""
    if at >= function.end:
        return None
    number = bisect_right(function.rows, at, key=lambda row: row.at)
    return function.rows[number - 1] if number else None


def counted_on(ptx: str) -> dict[int, int]:
    """By line of an embedded PTX within inline assembly: how many lines LLVM has counted on to it,
    if it has. Only assembly in braces is known as such.

    ptxas leaves a line empty on which ``.loc`` was, or the comment with which LLVM begins inline
    assembly. Before the brace that is one; a second one is the line break with which the assembly
    begins, as Triton's does. Within the braces a ``.loc`` stands before a label, and before an
    instruction without a guard.
    """
    lines = [line.strip() for line in ptx.split("\n")]
    found: dict[int, int] = {}
    start = None
    for number, line in enumerate(lines):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            if start > 1 and not lines[start - 1]:
                found |= _counted(lines, start, number)
            start = None
    return found


def _counted(lines: Sequence[str], start: int, end: int) -> dict[int, int]:
    """The same of what stands between two braces."""
    count, shift = int(not lines[start - 2]), 0
    found: dict[int, int] = {}
    for number in range(start + 1, end):
        if lines[number].startswith(_NO_ASSEMBLY):
            return {}
        if lines[number]:
            count += 1
            shift = shift if lines[number - 1] else count
            if shift:
                found[number + 1] = shift
    return found
