"""Core dumps of NVIDIA GPUs (``.nvcudmp``): what was loaded, what was launched, where it stands.

A dump is an ELF file (``EM_CUDA``, ``ET_CORE``). Its sections are tables of fixed rows (devices,
SMs, grids, CTAs, warps, lanes), and memory: registers, shared memory, parameters, images of cubins.
The rows are those of ``cudacoredump.h`` of cuda-gdb. They grow at their end with the driver: a row
is read as far as it goes, and what it lacks is None.

A section is named for its place: ``.cudbg.regs.dev0.sm124.cta0.wp2.ln31`` are the registers of a
lane. A full GPU has a million sections, so their headers are read as one array; nothing else is
read before it is asked for.

A dump is untrusted: each size, offset and count is compared with the file before it is used, and no
code of it is run.
"""

from __future__ import annotations

import gzip
import mmap
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilesim.autopsy.errors import DumpError

Triple = tuple[int, int, int]

#: bytes of a compressed dump at most, when it is unpacked
MOST_UNPACKED = 1 << 30
#: sections, and characters of the name of one, at most
MOST_SECTIONS = 1 << 23
MOST_NAME = 128
LANES = 32

_EM_CUDA, _ET_CORE = 190, 4
#: e_ident .. e_shstrndx of a 64-bit file
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = np.dtype(
    [
        ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"),
        ("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8"),
    ]
)  # fmt: skip
_NOBITS, _COMPRESSED = 8, 0x800
_LOUSER = 0x80000000
_GLOBAL, _MANAGED = _LOUSER + 2, _LOUSER + 1


class Device(NamedTuple):
    """A GPU; ``arch`` is ``(9, 0)`` for sm_90."""

    number: int
    arch: tuple[int, int]
    sms: int
    warps_per_sm: int


class Driver(NamedTuple):
    """The driver's branch and release (580, 159), and the CUDA version that it has (13, 0)."""

    release: tuple[int, int]
    cuda: tuple[int, int]


class Grid(NamedTuple):
    """A launch that had not ended. ``entry`` is the address of the kernel's first instruction,
    ``cluster`` (0, 0, 0) if none was asked for; ``params`` the bytes of its parameters, if dumped.
    """

    device: int
    number: int
    id: int
    entry: int
    registers: int
    grid: Triple
    block: Triple
    cluster: Triple
    status: int
    params: bytes | None


class Lane(NamedTuple):
    """A thread: its program counter, its place in the block, the exception that it has met."""

    number: int
    pc: int
    thread: Triple
    exception: int


class HardwareBarrier(NamedTuple):
    """What the hardware says that a warp waits for (drivers from r590 on)."""

    scope: str
    info: int


_SCOPES = ("none", "warp", "warpgroup", "cta", "cluster", "kernel")


class Warp:
    """A warp that had not ended; ``number`` is its place in the CTA, ``valid`` its lanes."""

    def __init__(self, dump: CoreDump, place: str, row: _Row, block: Triple) -> None:
        self._dump = dump
        self._place = place
        self.valid = row[2]
        self.active = row[3]
        self.error_pc: int | None = row[0] if row[5] else None
        #: lanes that have ended, as a mask
        self.exited: int | None = row[13]
        self.barrier: HardwareBarrier | None = None
        if row[17] is not None:
            scope = row[15]
            name = _SCOPES[scope] if scope < len(_SCOPES) else f"scope {scope}"
            self.barrier = HardwareBarrier(name, row[17])
        self._block = block

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that had not ended, by number."""
        rows = self._dump.rows(f".cudbg.lntbl.{self._place}", _LANE)
        lanes = [Lane(row[2], row[0], (row[3], row[4], row[5]), row[6]) for row in rows]
        for lane in lanes:
            if lane.number >= LANES:
                raise self._dump.error(f"{self._place} has a lane {lane.number}")
        if len({lane.number for lane in lanes}) < len(lanes):
            raise self._dump.error(f"{self._place} has a lane twice")
        return tuple(sorted(lanes))

    @cached_property
    def number(self) -> int:
        """The warp of the CTA that it is: by the places of its threads in the block."""
        if not self.lanes:
            return int(self._place.rpartition("wp")[2])
        x, y, z = self.lanes[0].thread
        return (x + self._block[0] * (y + self._block[1] * z)) // LANES

    def register(self, lane: int, number: int) -> int | None:
        """A 32-bit register of a lane; None if it was not dumped."""
        return self._word(f".cudbg.regs.{self._place}.ln{lane}", number)

    def predicates(self, lane: int) -> tuple[bool, ...] | None:
        """The predicates P0, P1, ... of a lane."""
        data = self._dump.data(f".cudbg.pred.{self._place}.ln{lane}")
        return None if data is None else tuple(bool(data[at]) for at in range(0, len(data), 4))

    def uniform_register(self, number: int) -> int | None:
        """A 32-bit register of the warp."""
        return self._word(f".cudbg.uregs.{self._place}", number)

    def convergence_barrier(self, number: int) -> int | None:
        """The lanes that a convergence barrier (B0, B1, ...) waits for."""
        return self._word(f".cudbg.cbu_bar.{self._place}", number)

    def _word(self, section: str, number: int) -> int | None:
        data = self._dump.data(section)
        if data is None or number < 0 or 4 * number + 4 > len(data):
            return None
        word: int = struct.unpack_from("<I", data, 4 * number)[0]
        return word


class Cta:
    """A CTA that was running: its place in the grid, its shared memory, its warps."""

    def __init__(self, dump: CoreDump, place: str, row: _Row, grid: Grid) -> None:
        self._dump = dump
        self._place = place
        self.grid = grid
        self.index: Triple = (row[1], row[2], row[3])
        self.cluster: Triple | None = None
        if row[5] is not None and row[7] is not None:
            self.cluster = (row[5], row[6], row[7])
        self.sm = int(place.partition(".sm")[2].partition(".")[0])

    @cached_property
    def shared(self) -> bytes | None:
        """Its shared memory, from the address 0 of the shared window on; None if not dumped."""
        return self._dump.data(f".cudbg.shared.{self._place}")

    @cached_property
    def warps(self) -> tuple[Warp, ...]:
        """Its warps that had not ended, by number."""
        rows = self._dump.rows(f".cudbg.wptbl.{self._place}", _WARP)
        found = [
            Warp(self._dump, f"{self._place}.wp{n}", row, self.grid.block)
            for n, row in enumerate(rows)
        ]
        return tuple(sorted((w for w in found if w.lanes), key=lambda w: w.number))

    @cached_property
    def shared_bytes(self) -> int | None:
        """Bytes of shared memory that it has, the system's included; None if no warp is left to say
        so. Known also where the memory itself was not dumped."""
        return next((row[9] for row in self._dump.rows(f".cudbg.wptbl.{self._place}", _WARP)), None)

    @property
    def number(self) -> int:
        """Its number in the grid, x first."""
        x, y, z = self.index
        return x + self.grid.grid[0] * (y + self.grid.grid[1] * z)


class Image(NamedTuple):
    """A cubin that was loaded; ``relocated``: with the addresses at which it lies on the device."""

    device: int
    relocated: bool
    data: bytes


class Memory(NamedTuple):
    """Bytes of global memory that are in the dump, from an address on."""

    address: int
    data: bytes


_Row = tuple[Any, ...]


class _Layout(NamedTuple):
    """A row of a table: the formats of its fields in order, and how many any driver writes."""

    fields: str
    least: int


# fields as `struct` spells them; padding is a field
_DEVICE = _Layout("QQQIIIIIIIIIIIIIII", 12)
_GRID = _Layout("QQQQQQQIIIIIIIIIIIIIIII", 17)
_CTA = _Layout("QIIIIIIIIIII", 4)
_WARP = _Layout("QIIIIIIIIIIIIIIIIQ", 4)
_LANE = _Layout("QQIIIIIIIII", 7)
_META = _Layout("QIIIII", 5)


class CoreDump:
    """A dump; what is wrong in it is a `DumpError`, when that part is read."""

    def __init__(self, path: Path) -> None:
        """Opens a dump, which may be compressed by gzip.

        Raises:
            DumpError: there is no such file, or it is no dump.
        """
        self.path = path
        self._bytes = _contents(path)
        self._sections = self._headers()
        self._by_name = self._names()
        if not any(name.startswith(".cudbg.devtbl") for name in self._by_name):
            raise self.error("it has no table of devices (.cudbg.devtbl)")

    def error(self, what: str) -> DumpError:
        """What is wrong with it, as an error."""
        return DumpError(f"{self.path}: the dump is damaged: {what}")

    # ------------------------------------------------------------------ sections

    def _headers(self) -> np.ndarray[Any, Any]:
        data = self._bytes
        if len(data) < _HEADER.size or data[:4] != b"\x7fELF":
            raise DumpError(
                f"{self.path}: this is no core dump of a GPU (no ELF file); one is made with "
                "`tilesim watch`, or by the variables in docs/howto/hang.md"
            )
        ident, kind, machine, *_ = header = _HEADER.unpack_from(data)
        if ident[4] != 2 or ident[5] != 1 or machine != _EM_CUDA or kind != _ET_CORE:
            what = "a cubin" if machine == _EM_CUDA else "an ELF file of something else"
            raise DumpError(f"{self.path}: this is no core dump of a GPU, it is {what}")
        offset, entry, count, strings = header[6], header[11], header[12], header[13]
        if entry != _SECTION.itemsize:
            raise self.error(f"section headers of {entry} bytes, not {_SECTION.itemsize}")
        if offset + entry > len(data):
            raise self.error("the section headers lie behind its end: was it cut?")
        first = np.frombuffer(data, _SECTION, 1, offset)[0]
        count = count or int(first["size"])  # 0: more than 16 bits can say
        strings = int(first["link"]) if strings == 0xFFFF else strings
        if count > MOST_SECTIONS or offset + count * entry > len(data):
            raise self.error(f"{count} section headers do not fit into it: was it cut?")
        table = np.frombuffer(data, _SECTION, count, offset)
        if strings >= count:
            raise self.error(f"the names of sections are section {strings} of {count}")
        self._strings = self._of(table[strings], "the names of sections")
        return table

    def _of(self, row: Any, name: str) -> bytes:
        """The bytes of a section."""
        offset, size = int(row["offset"]), int(row["size"])
        if int(row["type"]) == _NOBITS:
            raise self.error(f"{name} has no bytes in the file")
        if int(row["flags"]) & _COMPRESSED:
            raise self.error(f"{name} is compressed, which no driver does")
        if offset + size > len(self._bytes):
            raise self.error(f"{name} lies behind its end: was it cut?")
        return bytes(self._bytes[offset : offset + size])

    def _names(self) -> dict[str, int]:
        found: dict[str, int] = {}
        strings = self._strings
        for number, start in enumerate(self._sections["name"].tolist()):
            end = strings.find(b"\0", start, start + MOST_NAME)
            if end < 0:
                raise self.error(f"section {number} has no name of at most {MOST_NAME} characters")
            name = strings[start:end].decode("ascii", "backslashreplace")
            found.setdefault(name, number)
        return found

    def data(self, name: str) -> bytes | None:
        """The bytes of a section; None if there is none of this name.

        Raises:
            DumpError: it does not lie in the file.
        """
        number = self._by_name.get(name)
        return None if number is None else self._of(self._sections[number], name)

    def rows(self, name: str, layout: _Layout) -> list[_Row]:
        """The rows of a table; fields that its driver did not write are None.

        Raises:
            DumpError: a row lacks what each driver writes, or the last one is cut.
        """
        data = self.data(name)
        if not data:
            return []
        stride = int(self._sections[self._by_name[name]]["entry"]) or len(data)  # 0: one row
        if len(data) % stride:
            raise self.error(f"{name} has {len(data)} bytes in rows of {stride}")
        known = layout.fields
        while known and struct.calcsize(f"<{known}") > stride:
            known = known[:-1]
        if len(known) < layout.least:
            raise self.error(f"{name} has rows of {stride} bytes, shorter than any driver's")
        one, missing = struct.Struct(f"<{known}"), (None,) * (len(layout.fields) - len(known))
        return [(*one.unpack_from(data, at), *missing) for at in range(0, len(data), stride)]

    def _named(self, beginning: str) -> Iterator[str]:
        return (name for name in self._by_name if name.startswith(beginning))

    # ------------------------------------------------------------------ what is in it

    @cached_property
    def driver(self) -> Driver | None:
        """The driver that wrote it, if it says so."""
        for row in self.rows(".cudbg.meta", _META):
            return Driver((row[1], row[2]), (row[3], row[4]))
        return None

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The GPUs in it."""
        rows = self.rows(".cudbg.devtbl", _DEVICE)
        return tuple(Device(n, (r[11], r[12] or 0), r[6], r[7]) for n, r in enumerate(rows))

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The launches that had not ended, on all devices."""
        found: list[Grid] = []
        for device in self.devices:
            table = f".cudbg.gridtbl.dev{device.number}"
            for n, row in enumerate(self.rows(table, _GRID)):
                cluster = tuple(row[19:22]) if row[21] is not None else (0, 0, 0)
                params = self.data(f".cudbg.param.dev{device.number}.grid{n}")
                found.append(
                    Grid(
                        device.number, n, row[0], row[3], row[10], tuple(row[11:14]),
                        tuple(row[14:17]), cluster, row[9], params,
                    )
                )  # fmt: skip
        return tuple(found)

    @cached_property
    def ctas(self) -> tuple[Cta, ...]:
        """The CTAs that were running, by device, grid and place in the grid."""
        of = {(grid.device, grid.id): grid for grid in self.grids}
        found: list[Cta] = []
        for name in self._named(".cudbg.ctatbl."):
            place = name.removeprefix(".cudbg.ctatbl.")
            if not place.startswith("dev") or ".sm" not in place:
                raise self.error(f"{name} is of no SM")
            device = place[3:].partition(".")[0]
            for n, row in enumerate(self.rows(name, _CTA)):
                grid = of.get((int(device) if device.isdecimal() else -1, row[0]))
                if grid is None:
                    raise self.error(f"{place}.cta{n} is of grid {row[0]}, which is not in it")
                if not place.partition(".sm")[2].isdecimal():
                    raise self.error(f"{name} is of no SM")
                if any(i >= n for i, n in zip(row[1:4], grid.grid, strict=True)):
                    raise self.error(f"{place}.cta{n} is CTA {row[1:4]} of a grid {grid.grid}")
                found.append(Cta(self, f"{place}.cta{n}", row, grid))
        return tuple(sorted(found, key=lambda c: (c.grid.device, c.grid.number, c.number)))

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """The cubins that were loaded. Those that hold no ELF file (scrubbed ones) are left out."""
        kinds = {".cudbg.relfimg.dev": True, ".cudbg.elfimg.dev": False}
        found: list[Image] = []
        strings = self._strings
        # several sections have one name: they are gone through by number
        for number, row in enumerate(self._sections):
            start = int(row["name"])
            for kind, relocated in kinds.items():
                if strings.startswith(kind.encode(), start):
                    end = strings.find(b"\0", start)
                    device = strings[start + len(kind) : end].partition(b".")[0]
                    data = self._of(row, f"section {number} ({kind.rpartition('.')[0]})")
                    if data.startswith(b"\x7fELF") and device.isdigit():
                        found.append(Image(int(device), relocated, data))
        return tuple(found)

    @cached_property
    def memory(self) -> tuple[Memory, ...]:
        """Global and managed memory that is in it, by address."""
        found = []
        for number in np.flatnonzero(np.isin(self._sections["type"], (_GLOBAL, _MANAGED))):
            row = self._sections[number]
            found.append(Memory(int(row["address"]), self._of(row, f"section {number}")))
        return tuple(sorted(found))

    def at(self, address: int, size: int) -> bytes | None:
        """``size`` bytes of global memory; None if they are not in the dump."""
        for memory in self.memory:
            start = address - memory.address
            if start >= 0 and start + size <= len(memory.data):
                return memory.data[start : start + size]
        return None

    @property
    def sections(self) -> Mapping[str, int]:
        """The number of each section by its name, the first of those that share one."""
        return self._by_name


def _contents(path: Path) -> bytes | mmap.mmap:
    """The bytes of a dump, unpacked if it is compressed."""
    try:
        with path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                file.seek(0)
                with gzip.open(file) as packed:
                    data = packed.read(MOST_UNPACKED + 1)
                if len(data) > MOST_UNPACKED:
                    raise DumpError(
                        f"{path}: it has more than {MOST_UNPACKED >> 20} MiB when it is unpacked: "
                        "unpack it with gunzip first"
                    )
                return data
            file.seek(0, 2)
            if not file.tell():
                raise DumpError(f"{path}: the file is empty")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DumpError(f"{path}: it cannot be read: {reason}") from error
