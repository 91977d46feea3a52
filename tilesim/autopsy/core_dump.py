"""Core dumps of NVIDIA GPUs (``.nvcudmp``): what was loaded, what was launched, where it stands.

A dump is an ELF file (``EM_CUDA``, ``ET_CORE``). Its sections are tables of rows (devices, SMs,
grids, CTAs, warps, lanes), and memory: registers, shared memory, parameters, images of cubins.
Rows and sections are published in ``cudacoredump.h`` of cuda-gdb. A row grows at its end with the
driver: it is read as far as it goes, and what it lacks is None.

A section belongs to a row of a table: its type says what it holds, its ``link`` is the section of
the table, its ``info`` the number of the row. Names are not needed, and not read. A full GPU has a
million sections: their headers are sorted once, as one array, and each is looked up when what it
holds is asked for. All is read from the top down, so links in a circle are never followed.

A dump is untrusted: each size, offset and count is compared with the file, and with what a GPU can
have, before it is used; no code of it is run.
"""

from __future__ import annotations

import gzip
import mmap
import stat
import struct
import tempfile
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tilesim.autopsy.errors import DumpError

Triple = tuple[int, int, int]

#: bytes of a compressed dump at most, when it is unpacked
MOST_UNPACKED = 512 << 20
#: what a dump can have at most; GPUs of 2026 have fewer
MOST_SECTIONS = 1 << 23
MOST_DEVICES = 32
MOST_SMS = 512
MOST_GRIDS = 1 << 12
MOST_MODULES = 1 << 16
MOST_CONTEXTS = 256
MOST_CTAS_PER_SM = 64
MOST_WARPS_PER_SM = 128
MOST_SHARED = 1 << 20
MOST_PARAMETERS = 1 << 16
MOST_MEMORIES = 1 << 20
MOST_THREADS = 1024
MOST_CLUSTER = 64
LANES = 32

_EM_CUDA, _ET_CORE, _CUBINS = 190, 4, (1, 2)
#: e_ident .. e_shstrndx of a 64-bit file
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = np.dtype(
    [
        ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"),
        ("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8"),
    ]
)  # fmt: skip
_ONE_SECTION = struct.Struct("<IIQQQQIIQQ")
_STRTAB, _COMPRESSED = 3, 0x800
#: the types of sections that are read, less SHT_LOUSER
_LOUSER = 0x80000000
_MANAGED, _GLOBAL, _SHARED, _REGISTERS, _IMAGE, _RELOCATED = 1, 2, 4, 5, 6, 7
_DEVICES, _CONTEXTS, _SMS, _GRIDS, _CTAS, _WARPS, _LANES, _MODULES = 9, 10, 11, 12, 13, 14, 15, 16
_PREDICATES, _PARAMETERS, _UNIFORM, _UNIFORM_PREDICATES, _META, _CONVERGENCE = (
    17, 18, 19, 20, 22, 23,
)  # fmt: skip
_BELOW_A_ROW = (
    _SHARED, _REGISTERS, _IMAGE, _RELOCATED, _CONTEXTS, _SMS, _GRIDS, _CTAS, _WARPS, _LANES,
    _MODULES, _PREDICATES, _PARAMETERS, _UNIFORM, _UNIFORM_PREDICATES, _CONVERGENCE,
)  # fmt: skip

#: what `cudadebugger.h` calls the states of a grid, of a lane's scheduling, the scopes of barriers
STATUSES = ("invalid", "pending", "active", "sleeping", "terminated", "undetermined")
STATES = (
    "exited", "ready", "yielded", "sleep", "sleepyield", "readyatnext", "blockedplus",
    "blockedall", "blockedcollective", *(f"blockedb{n}" for n in range(16)),
)  # fmt: skip
SCOPES = ("none", "warp", "warpgroup", "cta", "cluster", "kernel")
_EXCEPTIONS = {
    1: "lane: illegal address",
    2: "lane: user stack overflow",
    3: "device: hardware stack overflow",
    4: "warp: illegal instruction",
    5: "warp: out of range address",
    6: "warp: misaligned address",
    7: "warp: invalid address space",
    8: "warp: invalid PC",
    9: "warp: hardware stack overflow",
    10: "device: illegal address",
    11: "lane: misaligned address",
    12: "warp: assert",
    13: "lane: syscall error",
    14: "warp: illegal address",
    15: "lane: atomic on memory that cannot migrate",
    16: "lane: invalid atomic of system scope",
    17: "cluster: out of range address",
    18: "cluster: CTA not present",
    19: "warp: stack canary",
    20: "warp: tensor memory access check",
    21: "warp: tensor memory leak",
    22: "warp: call requires a newer driver",
    23: "warp: misaligned PC",
    24: "warp: PC overflow",
    25: "warp: misaligned register",
    26: "warp: illegal encoding of an instruction",
    27: "warp: illegal parameter of an instruction",
    28: "warp: register out of range",
    29: "warp: invalid address of a constant",
    30: "warp: MMU fault",
    31: "warp: more arrivals at an mbarrier than it expects, or it is locked",
    32: "cluster: poisoned access",
    33: "warp: API stack error",
    34: "cluster: CTA not present at an operation of the cluster",
    35: "warp: user stack overflow",
    36: "TMA: syscall error",
}
#: flags of CUDA_COREDUMP_GENERATION_FLAGS by which a part is left out
SKIPPED = {
    0: "skip_nonrelocated_elf_images",
    1: "skip_global_memory",
    2: "skip_shared_memory",
    3: "skip_local_memory",
    5: "skip_constbank_memory",
    7: "faulted_contexts_only",
}


class Device(NamedTuple):
    """A GPU; ``arch`` is ``(9, 0)`` for sm_90. ``name`` is empty if the dump does not say it."""

    number: int
    arch: tuple[int, int]
    sms: int
    name: str


class Driver(NamedTuple):
    """The driver's branch and release (580, 159), the CUDA version that it has (13, 0), and what
    was left out of the dump, by the names of the flags that did it."""

    release: tuple[int, int]
    cuda: tuple[int, int]
    skipped: tuple[str, ...]


class Grid(NamedTuple):
    """A launch that had not ended. ``number`` is its row in the table of its device, ``entry`` the
    address of the kernel's first instruction, ``cluster`` (0, 0, 0) if none was asked for.

    ``status`` is the driver's word: ``active``: it runs; ``pending``: it was launched and has not
    begun. ``params`` are the bytes of its parameters, None if they were not dumped. ``system``: it
    is a kernel of the driver (of cudaMemset, say). ``module`` and ``context`` are handles.
    ``at_least``: the dump does not say how large it is. Of a cooperative launch the driver's row
    has a grid of 1 (r580); ``grid`` then has room for each CTA that runs, and for no more.
    """

    device: int
    number: int
    id: int
    entry: int
    registers: int
    grid: Triple
    block: Triple
    cluster: Triple
    status: str
    params: bytes | None
    system: bool = False
    module: int = 0
    context: int = 0
    at_least: bool = False

    @property
    def ctas(self) -> int:
        """How many CTAs it has, or has at least."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def warps(self) -> int:
        """How many warps a CTA begins with."""
        x, y, z = self.block
        return -(-x * y * z // LANES)


class Lane(NamedTuple):
    """A thread: its program counter, its place in the block, the exception that it has met (0:
    none; `exception_text`), how it is scheduled (None: the driver does not say).

    ``state`` ``blockedplus``: it waits for other lanes of its warp. ``row`` is its place in the
    table of the warp.
    """

    number: int
    pc: int
    thread: Triple
    exception: int
    state: str | None
    row: int


class HardwareBarrier(NamedTuple):
    """What the hardware says that a warp waits for (drivers from r590 on)."""

    scope: str
    info: int


class Fault(NamedTuple):
    """An exception (`exception_text`) of a warp on an SM; the warp may have ended since."""

    device: int
    sm: int
    exception: int
    pc: int | None


class Absent(NamedTuple):
    """CTAs of a grid that do not run: those that have ended (others of their cluster run, and the
    CTAs of a cluster start together), and those of which the dump does not say whether they have
    ended or not begun."""

    ended: int
    unknown: int


class _Place(NamedTuple):
    """Of what a section is, for messages; -1 is no number."""

    device: int
    sm: int = -1
    cta: int = -1
    warp: int = -1

    def __str__(self) -> str:
        names = ("device", "SM", "CTA", "warp")
        return " ".join(f"{a} {n}" for a, n in zip(names, self, strict=True) if n >= 0)


class Warp:
    """A warp that had not ended; ``number`` is its place in the CTA. Masks have a bit per lane.

    ``valid``: lanes that have not ended; ``exited``: those that have ended, None if the driver does
    not say. ``broken``: it has met a trap or a breakpoint.
    """

    def __init__(self, dump: CoreDump, place: _Place, table: int, row: _Row, cta: Cta) -> None:
        self._dump = dump
        self._place = place
        self._table = table
        self._cta = cta
        self.valid: int = row[2]
        self.broken = bool(row[4])
        self.exited: int | None = row[13]
        self.barrier: HardwareBarrier | None = None
        if row[17] is not None:
            self.barrier = HardwareBarrier(_word_for(SCOPES, row[15], "scope"), row[17])

    @cached_property
    def _lane_table(self) -> int | None:
        return self._dump.below(self._table, _LANES, self._place.warp)

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that had not ended, by number."""
        place, (bx, by, bz) = self._place, self._cta.grid.block
        rows = self._dump.rows(self._lane_table, _LANE, LANES, f"lanes of {place}")
        seen = 0
        found: list[Lane] = []
        for at, (pc, _, number, x, y, z, exception, _, _, _, state) in enumerate(rows):
            if at and not (pc or number or x or y or z):
                continue  # where rows have the numbers of lanes, one that is not there is blank
            if number >= LANES:
                raise self._dump.error(f"{place} has a lane {number}")
            if seen >> number & 1:
                raise self._dump.error(f"{place} has a lane {number} twice")
            seen |= 1 << number
            if not self.valid >> number & 1:
                continue
            if x >= bx or y >= by or z >= bz:
                raise self._dump.error(f"{place} has a thread {(x, y, z)} of a block {bx, by, bz}")
            if (x + bx * (y + by * z)) % LANES != number:
                raise self._dump.error(f"{place} has thread {(x, y, z)} as its lane {number}")
            named = None if state is None else _word_for(STATES, state, "state")
            found.append(Lane(number, pc, (x, y, z), exception, named, at))
        return tuple(sorted(found))

    @cached_property
    def number(self) -> int:
        """The warp of the CTA that it is: by the places of its threads in the block."""
        block = self._cta.grid.block
        numbers = {
            (x + block[0] * (y + block[1] * z)) // LANES
            for x, y, z in (n.thread for n in self.lanes)
        }
        if len(numbers) != 1:
            raise self._dump.error(f"{self._place} has threads of several warps, or none")
        return numbers.pop()

    def register(self, lane: int, number: int) -> int | None:
        """A 32-bit register of a lane; None if it was not dumped."""
        return self._dump.word(self._of_lane(lane, _REGISTERS), number)

    def predicates(self, lane: int) -> tuple[bool, ...] | None:
        """The predicates P0, P1, ... of a lane."""
        return self._dump.flags(self._of_lane(lane, _PREDICATES))

    def uniform_register(self, number: int) -> int | None:
        """A 32-bit register of the warp."""
        return self._dump.word(self._own(_UNIFORM), number)

    def uniform_predicates(self) -> tuple[bool, ...] | None:
        """The predicates UP0, UP1, ... of the warp."""
        return self._dump.flags(self._own(_UNIFORM_PREDICATES))

    def convergence_barrier(self, number: int) -> int | None:
        """The lanes that a convergence barrier (B0, B1, ...) waits for."""
        return self._dump.word(self._own(_CONVERGENCE), number)

    def _own(self, kind: int) -> int | None:
        return self._dump.below(self._table, kind, self._place.warp)

    def _of_lane(self, lane: int, kind: int) -> int | None:
        row = self._lane_rows.get(lane)
        table = self._lane_table
        return None if table is None or row is None else self._dump.below(table, kind, row)

    @cached_property
    def _lane_rows(self) -> dict[int, int]:
        """By which number the sections of a lane name it: the row, as published, or the lane's own
        number, if just those are there. Dumps at hand have only warps in which the two agree."""
        rows = {lane.number: lane.row for lane in self.lanes}
        if all(number == row for number, row in rows.items()):
            return rows
        table = self._lane_table or 0
        there = {n for n in range(LANES) if self._dump.below(table, _REGISTERS, n) is not None}
        if there == set(rows.values()):
            return rows
        return {number: number for number in rows} if there == set(rows) else {}


class Cta:
    """A CTA that was running: its place in the grid, its shared memory, its warps.

    ``sm`` is the SM that it runs on, of the device of its ``grid``. ``cluster_size`` is None
    without clusters.
    """

    def __init__(self, dump: CoreDump, place: _Place, table: int, row: _Row, grid: Grid) -> None:
        self._dump = dump
        self._place = place
        self._table = table
        self.grid = grid
        self.index: Triple = row[1:4]
        self.sm = place.sm
        size: Triple = grid.cluster if row[11] is None else row[9:12]
        self.cluster_size: Triple | None = size if all(size) else None

    @property
    def cluster(self) -> Triple | None:
        """The index of its cluster in the grid; None without clusters."""
        size = self.cluster_size
        if size is None:
            return None
        (x, y, z), (a, b, c) = self.index, size
        return (x // a, y // b, z // c)

    @property
    def rank(self) -> int:
        """Its rank in its cluster (``%cluster_ctarank``), 0 without clusters."""
        size = self.cluster_size
        if size is None:
            return 0
        (x, y, z), (a, b, c) = self.index, size
        return x % a + a * (y % b + b * (z % c))

    @cached_property
    def shared(self) -> bytes | None:
        """Its shared memory, from the address 0 of the shared window on; None if not dumped."""
        number = self._dump.below(self._table, _SHARED, self._place.cta)
        return self._dump.contents(number, MOST_SHARED, f"shared memory of {self._place}")

    def word(self, at: int, width: int) -> int | None:
        """``width`` bytes of its shared memory as a number; None if they are not in the dump."""
        data = self.shared
        if data is None or not 0 <= at <= len(data) - width:
            return None
        return int.from_bytes(data[at : at + width], "little")

    @cached_property
    def _warp_table(self) -> int | None:
        return self._dump.below(self._table, _WARPS, self._place.cta)

    @cached_property
    def _warp_rows(self) -> list[_Row]:
        return self._dump.rows(self._warp_table, _WARP, LANES, f"warps of {self._place}")

    @cached_property
    def warps(self) -> tuple[Warp, ...]:
        """Its warps that had not ended, by number."""
        found = [
            Warp(self._dump, self._place._replace(warp=n), self._warp_table or 0, row, self)
            for n, row in enumerate(self._warp_rows)
        ]
        found = sorted((w for w in found if w.lanes), key=lambda w: w.number)
        for one, other in pairwise(found):
            if one.number == other.number:
                raise self._dump.error(f"{self._place} has a warp {one.number} twice")
        return tuple(found)

    @property
    def shared_bytes(self) -> int | None:
        """Bytes of shared memory that it has, the system's included, as its warps say, also where
        the memory itself was not dumped; None if they do not."""
        return next((row[9] for row in self._warp_rows), None)

    @property
    def number(self) -> int:
        """Its number in the grid, x first."""
        x, y, z = self.index
        return x + self.grid.grid[0] * (y + self.grid.grid[1] * z)


class Image:
    """A cubin that was loaded; ``relocated``: with the addresses at which it lies on the device.
    ``context`` and ``module`` are handles, as in `Grid`."""

    def __init__(
        self, dump: CoreDump, section: int, device: int, context: int, module: int, relocated: bool
    ) -> None:
        self._dump = dump
        self._section = section
        self.device = device
        self.context = context
        self.module = module
        self.relocated = relocated

    @property
    def data(self) -> bytes:
        """The ELF file; it is read from the dump each time."""
        data = self._dump.contents(self._section, len(self._dump), f"section {self._section}")
        return data or b""


class Memory(NamedTuple):
    """Bytes of global memory that are in the dump, from an address on. ``data`` is a view of the
    file, which is read when it is looked at."""

    address: int
    data: memoryview


_Row = tuple[Any, ...]


class _Layout(NamedTuple):
    """A row of a table: the formats of its fields in order (padding is a field), and how many of
    them the first driver wrote."""

    fields: str
    first: int


_DEVICE = _Layout("QQQIIIIIIIIIIII", 15)
_CONTEXT = _Layout("Q", 1)
_MODULE = _Layout("Q", 1)
_GRID = _Layout("QQQQQQQIIIIIIIIIIIIIIIIIII", 19)
_SM = _Layout("IIIIQ", 2)
_CTA = _Layout("QIIIIIIIIIII", 5)
_WARP = _Layout("QIIIIIIIIIIIIIIIIQ", 7)
_LANE = _Layout("QQIIIIIIIII", 10)
_METADATA = _Layout("QIIIII", 6)


@cache
def _struct(fields: str, stride: int) -> struct.Struct:
    """The fields of a row, and what is behind them up to the next row."""
    return struct.Struct(f"<{fields}{stride - struct.calcsize(f'<{fields}')}x")


def _word_for(words: Sequence[str], number: int, what: str) -> str:
    return words[number] if number < len(words) else f"{what} {number}"


def dimensions(of: Triple) -> str:
    """``132``, ``8x4``, ``8x4x2``."""
    sizes = list(of)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return "x".join(map(str, sizes))


def target(arch: tuple[int, int]) -> str:
    """``sm_90``."""
    return "sm_{}{}".format(*arch)


def exception_text(number: int) -> str:
    """What an exception is, in the words of cuda-gdb."""
    return _EXCEPTIONS.get(number, f"exception {number}")


class CoreDump:
    """A dump; what is wrong in it is a `DumpError`, when that part is read."""

    def __init__(self, path: Path) -> None:
        """Opens a dump, which may be compressed by gzip.

        Raises:
            DumpError: there is no such file, or it is no dump.
        """
        self.path = path
        self._bytes = _contents(path)
        self._view = memoryview(self._bytes)
        self._sections = self._headers()
        kinds = self._sections["type"] - np.uint32(_LOUSER)  # others wrap: they are no kind
        self._kinds = kinds
        number = np.flatnonzero(np.isin(kinds, _BELOW_A_ROW)).astype(np.uint32)
        rows = self._sections[number]
        keys = rows["link"].astype(np.uint64) << np.uint64(40)
        keys |= kinds[number].astype(np.uint64) << np.uint64(32)
        keys |= rows["info"].astype(np.uint64)
        # a link beyond all sections would not fit into its bits
        fits = rows["link"] < len(self._sections)
        keys, number = keys[fits], number[fits]
        order = np.argsort(keys, kind="stable")
        # one is looked up three times as fast in an array as in NumPy's
        self._keys, self._numbers = array("Q", keys[order].tobytes()), number[order]
        tables = np.flatnonzero(kinds == _DEVICES)
        if len(tables) != 1:
            raise self.error(f"it has {len(tables)} tables of devices, not one")
        self._device_table = int(tables[0])

    def __len__(self) -> int:
        return len(self._bytes)

    def error(self, what: str) -> DumpError:
        """What is wrong with it, as an error."""
        return DumpError(f"{self.path}: the dump is damaged: {what}")

    # ------------------------------------------------------------------ sections

    def _headers(self) -> np.ndarray[Any, Any]:
        data = self._bytes
        if len(data) < _HEADER.size or data[:4] != b"\x7fELF":
            raise DumpError(
                f"{self.path}: this is not a core dump of a GPU (no ELF file); one is made with "
                "`tilesim watch`, or by the variables in docs/howto/hang.md"
            )
        ident, kind, machine, *_ = header = _HEADER.unpack_from(data)
        if ident[4] != 2 or ident[5] != 1 or machine != _EM_CUDA or kind != _ET_CORE:
            cubin = machine == _EM_CUDA and kind in _CUBINS
            what = "a cubin" if cubin else "an ELF file of something else"
            raise DumpError(f"{self.path}: this is not a core dump of a GPU, it is {what}")
        offset, entry, count = header[6], header[11], header[12]
        if entry != _SECTION.itemsize:
            raise self.error(f"section headers of {entry} bytes, not {_SECTION.itemsize}")
        if not offset:
            raise self.error("it has no section headers, which are written last: was it cut?")
        if offset + entry > len(data):
            raise self.error(
                "the section headers, which are written last, lie behind its end: was it cut?"
            )
        first = np.frombuffer(data, _SECTION, 1, offset)[0]
        count = count or int(first["size"])  # 0: more than 16 bits can say
        if count > MOST_SECTIONS or offset + count * entry > len(data):
            raise self.error(f"{count} section headers do not fit into it: was it cut?")
        self._start = offset
        #: the section with the names of sections
        self._names = int(first["link"]) if header[13] == 0xFFFF else header[13]
        return np.frombuffer(data, _SECTION, count, offset)

    def below(self, table: int, kind: int, row: int) -> int | None:
        """The section that holds something of a row of a table; None if there is none."""
        key = table << 40 | kind << 32 | row
        at = bisect_left(self._keys, key)
        if at == len(self._keys) or self._keys[at] != key:
            return None
        if at + 1 < len(self._keys) and self._keys[at + 1] == key:
            one, other = int(self._numbers[at]), int(self._numbers[at + 1])
            raise self.error(f"sections {one} and {other} hold the same thing of one row")
        return int(self._numbers[at])

    def _extent(self, number: int, what: str) -> tuple[int, int, int]:
        """Offset, size and row size of a section; it lies in the file."""
        at = self._start + _SECTION.itemsize * number
        _, _, flags, _, offset, size, _, _, _, entry = _ONE_SECTION.unpack_from(self._bytes, at)
        if flags & _COMPRESSED:
            raise self.error(f"{what} is compressed, which no driver does")
        if offset + size > len(self._bytes):
            raise self.error(f"{what} lies behind its end: was it cut?")
        return offset, size, entry

    def contents(self, number: int | None, most: int, what: str) -> bytes | None:
        """The bytes of a section, which are at most so many; None for none.

        Raises:
            DumpError: it does not lie in the file, or is longer than what it holds can be.
        """
        if number is None:
            return None
        offset, size, _ = self._extent(number, what)
        if size > most:
            raise self.error(f"{what}: {size} bytes, more than any GPU has")
        return bytes(self._view[offset : offset + size])

    def word(self, number: int | None, at: int) -> int | None:
        """A 32-bit word of a section; None if it has not so many, or for none."""
        if number is None:
            return None
        offset, size, _ = self._extent(number, f"section {number}")
        if at < 0 or 4 * at + 4 > size:
            return None
        word: int = struct.unpack_from("<I", self._bytes, offset + 4 * at)[0]
        return word

    def flags(self, number: int | None) -> tuple[bool, ...] | None:
        """The predicates in a section, a word each; None for none."""
        data = self.contents(number, 4 * LANES, "predicates")
        if data is None:
            return None
        words = struct.iter_unpack("<I", data[: len(data) & ~3])
        return tuple(bool(word) for (word,) in words)

    def rows(self, number: int | None, layout: _Layout, most: int, what: str) -> list[_Row]:
        """The rows of a table, none if it is not there; fields that its driver did not write are
        None.

        Raises:
            DumpError: there are more rows than a GPU can have, a row lacks what each driver
                writes, or the last one is cut.
        """
        if number is None:
            return []
        offset, size, stride = self._extent(number, f"the table of {what}")
        if not size:
            return []
        stride = stride or size  # 0: one row
        if size % stride:
            raise self.error(f"the table of {what} has {size} bytes in rows of {stride}")
        if size // stride > most:
            raise self.error(f"{size // stride} {what}: more than {most}, the most of any GPU")
        known = layout.fields
        while known and struct.calcsize(f"<{known}") > stride:
            known = known[:-1]
        if len(known) < layout.first:
            raise self.error(
                f"the table of {what} has rows of {stride} bytes, shorter than any driver's"
            )
        one, missing = _struct(known, stride), (None,) * (len(layout.fields) - len(known))
        found = one.iter_unpack(self._view[offset : offset + size])
        return [(*row, *missing) for row in found] if missing else list(found)

    # ------------------------------------------------------------------ what is in it

    @cached_property
    def driver(self) -> Driver | None:
        """The driver that wrote it, if it says so (drivers from r565 on)."""
        for number in np.flatnonzero(self._kinds == _META)[:1]:
            for _, major, minor, cuda, cuda_minor, flags in self.rows(
                int(number), _METADATA, 1, "metadata"
            ):
                skipped = tuple(name for bit, name in SKIPPED.items() if flags >> bit & 1)
                return Driver((major, minor), (cuda, cuda_minor), skipped)
        return None

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The GPUs in it."""
        rows = self.rows(self._device_table, _DEVICE, MOST_DEVICES, "devices")
        if not rows:
            raise self.error("its table of devices is empty")
        return tuple(
            Device(n, (r[11], r[12]), r[6], self._string(r[0])) for n, r in enumerate(rows)
        )

    def _string(self, at: int) -> str:
        """A text of the table of strings; empty if there is none that can be printed."""
        tables = np.flatnonzero(self._sections["type"] == _STRTAB)
        for number in tables[tables != self._names][:1]:
            offset, size, _ = self._extent(int(number), "the table of strings")
            if at < size:
                text = bytes(self._view[offset + at : offset + min(size, at + 64)])
                name = text.partition(b"\0")[0].decode("ascii", "replace")
                return name if name.isascii() and name.isprintable() else ""
        return ""

    @cached_property
    def _grid_tables(self) -> tuple[int | None, ...]:
        return tuple(self.below(self._device_table, _GRIDS, d.number) for d in self.devices)

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The launches that had not ended, on all devices."""
        found: list[Grid] = []
        for device, table in zip(self.devices, self._grid_tables, strict=True):
            place = f"grids of device {device.number}"
            if table is None and self._has_ctas(device):
                raise self.error(
                    f"CTAs run on device {device.number}, and it has no table of grids"
                )
            rows = self.rows(table, _GRID, MOST_GRIDS, place)
            if len({row[0] for row in rows}) < len(rows):
                raise self.error(f"two {place} have one id")
            extents = self._extents(device)
            for n, row in enumerate(rows):
                number = None if table is None else self.below(table, _PARAMETERS, n)
                params = self.contents(number, MOST_PARAMETERS, f"parameters of grid {row[0]}")
                cluster = row[19:22] if row[21] is not None else (0, 0, 0)
                extent = extents.get(row[0], (1, 1, 1))
                # CTAs of a cooperative launch run at once
                fits = prod(extent) <= device.sms * MOST_CTAS_PER_SM
                at_least = row[11:14] == (1, 1, 1) != extent and fits and not any(cluster)
                found.append(
                    Grid(
                        device.number, n, row[0], row[3], row[10],
                        extent if at_least else row[11:14], row[14:17], cluster,
                        _word_for(STATUSES, row[9], "status"), params, row[7] == 1,
                        row[4], row[1], at_least,
                    )
                )  # fmt: skip
        return tuple(found)

    def _extents(self, device: Device) -> dict[int, Triple]:
        """By the id of a grid, the smallest one that has each of its CTAs that run."""
        found: dict[int, Triple] = {}
        for place, _, rows in self._cta_rows:
            for row in rows if place.device == device.number else ():
                x, y, z = found.get(row[0], (1, 1, 1))
                found[row[0]] = max(x, row[1] + 1), max(y, row[2] + 1), max(z, row[3] + 1)
        return found

    def _has_ctas(self, device: Device) -> bool:
        table, rows = self._sm_tables[device.number]
        tables = [table and self.below(table, _CTAS, n) for n in range(len(rows))]
        return any(n and self._extent(n, "a table of CTAs")[1] for n in tables)

    @cached_property
    def _sm_tables(self) -> tuple[tuple[int | None, list[_Row]], ...]:
        """The table of SMs of each device, and its rows."""
        found = []
        for device in self.devices:
            table = self.below(self._device_table, _SMS, device.number)
            rows = self.rows(table, _SM, MOST_SMS, f"SMs of device {device.number}")
            found.append((table, rows))
        return tuple(found)

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """What went wrong on the SMs (drivers from r555 on)."""
        return tuple(
            Fault(device, row[0], row[2], row[4] if row[3] else None)
            for device, (_, rows) in enumerate(self._sm_tables)
            for row in rows
            if row[2]
        )

    @cached_property
    def ctas(self) -> tuple[Cta, ...]:
        """The CTAs that were running, by device, grid and place in the grid."""
        found: list[Cta] = []
        grids = {(grid.device, grid.id): grid for grid in self.grids}
        for place, table, rows in self._cta_rows:
            found += self._on_sm(place, table, rows, grids)
        found.sort(key=lambda c: (c.grid.device, c.grid.number, c.number))
        for one, other in pairwise(found):
            if one.grid is other.grid and one.index == other.index:
                raise self.error(f"CTA {one.index} of grid {one.grid.id} is in it twice")
        return tuple(found)

    @cached_property
    def _cta_rows(self) -> tuple[tuple[_Place, int, list[_Row]], ...]:
        """For each SM the table of its CTAs, and its rows."""
        found = []
        for device, (sms, rows) in enumerate(self._sm_tables):
            for n, (sm, *_) in enumerate(rows if sms is not None else ()):
                place, table = _Place(device, sm), self.below(sms or 0, _CTAS, n)
                ctas = self.rows(table, _CTA, MOST_CTAS_PER_SM, f"CTAs of {place}")
                found.append((place, table or 0, ctas))
        return tuple(found)

    def _on_sm(
        self, place: _Place, table: int, rows: Sequence[_Row],
        grids: Mapping[tuple[int, int], Grid],
    ) -> Iterable[Cta]:  # fmt: skip
        warps = 0
        for n, row in enumerate(rows):
            here = place._replace(cta=n)
            grid = grids.get((place.device, row[0]))
            if grid is None:
                raise self.error(f"{here} is of grid {row[0]}, which is not in it")
            threads = grid.block[0] * grid.block[1] * grid.block[2]
            if not 1 <= threads <= MOST_THREADS:
                raise self.error(f"grid {grid.id} runs with blocks of {threads} threads")
            if any(i >= n for i, n in zip(row[1:4], grid.grid, strict=True)):
                raise self.error(f"{here} is CTA {row[1:4]} of a grid {grid.grid}")
            cta = Cta(self, here, table, row, grid)
            if (size := cta.cluster_size) and size[0] * size[1] * size[2] > MOST_CLUSTER:
                raise self.error(f"{here} is of a cluster {size}: larger than any GPU's")
            if (number := cta._warp_table) is not None:
                _, length, stride = self._extent(number, f"the table of warps of {here}")
                warps += length // (stride or length or 1)
            if warps > MOST_WARPS_PER_SM:
                raise self.error(f"{place} has {warps} warps: more than any GPU")
            yield cta

    def cluster_of(self, cta: Cta) -> tuple[Cta | None, ...]:
        """The CTAs of a CTA's cluster by rank; None for one that has ended: the CTAs of a cluster
        start together. One without clusters is alone."""
        size = cta.cluster_size
        if size is None:
            return (cta,)
        return tuple(
            self._by_cluster[cta.grid.device, cta.grid.number, size, cta.cluster].get(rank)
            for rank in range(size[0] * size[1] * size[2])
        )

    def peer(self, cta: Cta, rank: int | None) -> Cta | None:
        """The CTA of a rank in a CTA's cluster, itself for None; None if it has ended, or there is
        none."""
        if rank is None:
            return cta
        peers = self.cluster_of(cta)
        return peers[rank] if rank < len(peers) else None

    @cached_property
    def _by_cluster(self) -> dict[_Row, dict[int, Cta]]:
        found: dict[_Row, dict[int, Cta]] = {}
        for cta in self.ctas:
            key = (cta.grid.device, cta.grid.number, cta.cluster_size, cta.cluster)
            found.setdefault(key, {})[cta.rank] = cta
        return found

    def absent(self, grid: Grid) -> Absent:
        """How many CTAs of a grid do not run, and what is known of them."""
        running = [cta for cta in self.ctas if cta.grid is grid]
        leaders = [cta for cta in running if cta is next(filter(None, self.cluster_of(cta)))]
        ended = sum(self.cluster_of(cta).count(None) for cta in leaders)
        return Absent(ended, grid.ctas - len(running) - ended)

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """The cubins that were loaded. Those that hold no ELF file (scrubbed ones) are left out."""
        found: list[Image] = []
        for device in self.devices:
            contexts = self.below(self._device_table, _CONTEXTS, device.number)
            place = f"device {device.number}"
            for c, (context,) in enumerate(
                self.rows(contexts, _CONTEXT, MOST_CONTEXTS, f"contexts of {place}")
            ):
                modules = self.below(contexts or 0, _MODULES, c)
                for m, (module,) in enumerate(
                    self.rows(modules, _MODULE, MOST_MODULES, f"modules of {place} context {c}")
                ):
                    for kind in (_RELOCATED, _IMAGE):
                        number = self.below(modules or 0, kind, m)
                        if number is not None and self._is_elf(number):
                            relocated = kind == _RELOCATED
                            found.append(
                                Image(self, number, device.number, context, module, relocated)
                            )
        return tuple(found)

    def _is_elf(self, number: int) -> bool:
        offset, size, _ = self._extent(number, f"section {number}")
        return bytes(self._view[offset : offset + min(size, 4)]) == b"\x7fELF"

    def image_of(self, grid: Grid, relocated: bool = True) -> Image | None:
        """The cubin of a grid's kernel; None if it is not in the dump."""
        key = (grid.device, grid.context, grid.module, relocated)
        for image in self.images:
            if (image.device, image.context, image.module, image.relocated) == key:
                return image
        return None

    @cached_property
    def memory(self) -> tuple[Memory, ...]:
        """Global and managed memory that is in it, by address."""
        numbers = np.flatnonzero((self._kinds == _GLOBAL) | (self._kinds == _MANAGED))
        if len(numbers) > MOST_MEMORIES:
            raise self.error(f"{len(numbers)} pieces of global memory")
        found = []
        for number in numbers.tolist():
            offset, size, _ = self._extent(number, f"section {number}")
            address = int(self._sections["address"][number])
            found.append(Memory(address, self._view[offset : offset + size]))
        return tuple(sorted(found, key=lambda m: m.address))

    def at(self, address: int, size: int) -> bytes | None:
        """``size`` bytes of global memory; None if they are not in the dump."""
        starts, lengths = self._spans
        if not 0 <= address < 1 << 64 or size < 0:
            return None
        before = int(np.searchsorted(starts, np.uint64(address), "right"))
        room = lengths[:before] - (np.uint64(address) - starts[:before])
        for n in np.flatnonzero((room >= size) & (room <= lengths[:before]))[:1].tolist():
            start = address - self.memory[n].address
            return bytes(self.memory[n].data[start : start + size])
        return None

    @cached_property
    def _spans(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        starts = np.array([m.address for m in self.memory], np.uint64)
        return starts, np.array([len(m.data) for m in self.memory], np.uint64)


def _contents(path: Path) -> mmap.mmap:
    """The bytes of a dump, unpacked if it is compressed."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would not end
            raise DumpError(f"{path}: it cannot be read: it is not a file")
        with path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                file.seek(0)
                return _unpacked(path, file)
            return _mapped(path, file)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DumpError(f"{path}: it cannot be read: {reason}") from error


def _unpacked(path: Path, file: BinaryIO) -> mmap.mmap:
    """The bytes of a compressed file, by way of a file without a name."""
    with tempfile.TemporaryFile() as unpacked, gzip.open(file) as packed:
        while piece := packed.read(1 << 20):
            unpacked.write(piece)
            if unpacked.tell() == len(piece) and not piece.startswith(b"\x7fELF"):
                break  # what it is, is said where it is read
            if unpacked.tell() > MOST_UNPACKED:
                raise DumpError(
                    f"{path}: it has more than {MOST_UNPACKED >> 20} MiB when it is unpacked: "
                    "unpack it with gunzip first"
                )
        return _mapped(path, unpacked)


def _mapped(path: Path, file: BinaryIO) -> mmap.mmap:
    if not file.seek(0, 2):
        raise DumpError(f"{path}: the file is empty")
    file.flush()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
