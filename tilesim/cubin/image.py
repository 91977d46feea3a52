"""Cubins: functions, parameters, barriers, shared memory and embedded PTX of an ELF file.

A cubin is an ELF file (``EM_CUDA``): code in ``.text.KERNEL``, static shared memory in
``.nv.shared.KERNEL``, and attributes in ``.nv.info.KERNEL``: records of a form, an attribute
(``EIATTR_...``, as nvdisasm names them) and bytes. In a core dump there are two images of each: as
compiled, where functions lie at 0, and *relocated*, where they lie at their address on the device.

A cubin is untrusted: each size, offset and count is compared with the file before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import cached_property

from tilesim.cubin.errors import CubinError
from tilesim.records import dataclass

Triple = tuple[int, int, int]

#: sections, symbols, characters of a name, and attributes of a function, at most
MOST_SECTIONS = 1 << 16
MOST_SYMBOLS = 1 << 18
MOST_NAME = 1 << 16
MOST_ATTRIBUTES = 1 << 16

_EM_CUDA, _ET_CORE = 190, 4
#: e_ident .. e_shstrndx of a 64-bit file
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOBITS, _COMPRESSED = 8, 0x800
_FUNC = 2
#: of the field ``other`` of a symbol: a kernel

# attributes of functions
_PARAM_CBANK, _REQNTID, _MAXNTID, _KPARAM = 0x0A, 0x10, 0x05, 0x17
_BRANCHES, _CLUSTER, _REGISTERS = 0x34, 0x3D, 0x2F
_MBARRIERS, _NAMED_BARRIERS = 0x38, 0x4C
_CUDA_VERSION = 0x37
#: the constant bank in which ptxas keeps what it has made itself
TABLES = 2
#: of ``.nv.compat``: which other targets its code runs on; this value: none, it was for ``sm_NNa``
_ISA_CLASS, _OWN_ARCH = 0x09, 1
#: forms of a record: its value is one byte; as many bytes as it says follow. Else two bytes
_BYTE, _SIZED = 2, 4


@dataclass(frozen=True)
class Section:
    """A section; ``info`` is the section or symbol that it is about, by its type."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    """A function: where it lies, in bytes. ``index`` is its place in the table of symbols,
    ``section`` that of the section with its code."""

    name: str
    address: int
    size: int
    index: int
    section: int


@dataclass(frozen=True)
class KernelParameter:
    """A parameter: where it stands in the bytes of the parameters, in bytes."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True)
class KernelInfo:
    """What ptxas has written down of a kernel; None is not said.

    ``parameters_at``: where they begin in constant bank 0. ``block`` is the size that is required
    (``.reqntid``), ``most_threads`` the largest (``.maxntid``), ``cluster`` the one compiled in.
    ``branch_targets``: of each ``BRX``, by its pc. ``shared``: bytes of static shared memory from
    address 0 of the window on: from sm_90 on the first 1024 are the system's. ``mbarriers`` and
    ``named_barriers``: how many ptxas counts; 0 if it says none. ``toolkit``: the version of CUDA
    that it was compiled by, as ``12.9``.
    """

    name: str
    parameters: tuple[KernelParameter, ...]
    parameters_at: int | None
    block: Triple | None
    most_threads: Triple | None
    cluster: Triple | None
    branch_targets: Mapping[int, tuple[int, ...]]
    registers: int | None
    shared: int
    mbarriers: int = 0
    named_barriers: int = 0
    toolkit: str | None = None


@dataclass(frozen=True)
class _Attribute:
    number: int
    value: int
    data: bytes


class Image:
    """The bytes of a cubin; what is wrong in them is a `CubinError`, when that part is read."""

    def __init__(self, data: bytes, name: str = "the cubin") -> None:
        """Opens a cubin; ``name`` stands for it in messages.

        Raises:
            CubinError: it is no cubin of 64 bits, or its headers are damaged.
        """
        self.data = data
        self.name = name
        self.sections = tuple(self._headers())

    def error(self, what: str) -> CubinError:
        """What is wrong with it, as an error."""
        return CubinError(f"{self.name}: the cubin is damaged: {what}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    # ------------------------------------------------------------------ sections

    def _headers(self) -> Iterator[Section]:
        data = self.data
        if len(data) < _HEADER.size or data[:4] != b"\x7fELF":
            raise CubinError(f"{self.name}: this is not a cubin (no ELF file)")
        ident, kind, machine, _, _, _, offset, self._flags, _, _, _, entry, count, strings = (
            _HEADER.unpack_from(data)
        )
        if ident[4] != 2 or ident[5] != 1 or machine != _EM_CUDA or kind == _ET_CORE:
            what = "a core dump" if kind == _ET_CORE else "an ELF file of something else"
            raise CubinError(f"{self.name}: this is not a cubin, it is {what}")
        if not count:
            return
        if entry != _SECTION.size or count > MOST_SECTIONS or offset + count * entry > len(data):
            raise self.error(f"{count} section headers of {entry} bytes do not fit into it")
        rows = [_SECTION.unpack_from(data, offset + n * entry) for n in range(count)]
        if strings >= count:
            raise self.error(f"the names of sections are section {strings} of {count}")
        names = self._bytes(rows[strings][4], rows[strings][5], "the names of sections")
        for at, type_, flags, address, start, size, link, info, *_ in rows:
            yield Section(
                self._string(names, at, "a section"),
                type_, flags, address, start, size, link, info,
            )  # fmt: skip

    def _bytes(self, offset: int, size: int, what: str) -> bytes:
        if offset + size > len(self.data):
            raise self.error(f"{what} lies behind its end: was it cut?")
        return self.data[offset : offset + size]

    def _string(self, strings: bytes, at: int, what: str) -> str:
        end = strings.find(b"\0", at, at + MOST_NAME)
        if end < 0:
            raise self.error(f"{what} has no name of at most {MOST_NAME} characters")
        name = strings[at:end].decode("ascii", "backslashreplace")
        return name if name.isprintable() else name.encode("unicode_escape").decode()

    @cached_property
    def _by_name(self) -> dict[str, Section]:
        found: dict[str, Section] = {}
        for section in self.sections:
            found.setdefault(section.name, section)
        return found

    def section(self, name: str) -> Section | None:
        """The first section of a name."""
        return self._by_name.get(name)

    def contents(self, section: Section) -> bytes:
        """The bytes of a section, none of one that takes no room in the file.

        Raises:
            CubinError: it does not lie in the file, or is compressed.
        """
        if section.type == _NOBITS:
            return b""
        if section.flags & _COMPRESSED:
            raise self.error(f"{section.name} is compressed, which ptxas does not do")
        return self._bytes(section.offset, section.size, section.name)

    # ------------------------------------------------------------------ code

    @cached_property
    def arch(self) -> str:
        """What it was compiled for, as ``sm_90a``."""
        if self.data[8] < 8:  # the version of the ABI
            number, suffix = self._flags & 0xFF, bool(self._flags & 0x800)
        else:
            compat = {one.number: one.value for one in self._attributes(".nv.compat")}
            number, suffix = self._flags >> 8 & 0xFF, compat.get(_ISA_CLASS) == _OWN_ARCH
        return f"sm_{number}{'a' if suffix else ''}"

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All functions, by address; those inside of a kernel too (divisions, calls)."""
        table = self.section(".symtab")
        if table is None:
            return ()
        data = self.contents(table)
        if len(data) // _SYMBOL.size > MOST_SYMBOLS:
            raise self.error(f"it has more than {MOST_SYMBOLS} symbols")
        if table.link >= len(self.sections):
            raise self.error(f"the names of symbols are section {table.link}")
        names = self.contents(self.sections[table.link])
        found = []
        for index in range(len(data) // _SYMBOL.size):
            at, info, _, section, address, size = _SYMBOL.unpack_from(data, index * _SYMBOL.size)
            if info & 15 != _FUNC or not 0 < section < len(self.sections):
                continue
            code = self.sections[section]
            if not code.address <= address <= address + size <= code.address + code.size:
                name = self._string(names, at, "a function")
                raise self.error(f"{name} does not lie in {code.name}")
            name = self._string(names, at, "a function")
            found.append(Symbol(name, address, size, index, section))
        return tuple(sorted(found, key=lambda one: (one.section, one.address, -one.size)))

    @cached_property
    def functions(self) -> tuple[Symbol, ...]:
        """The functions that lie in no other one: kernels, and what is called by address."""
        found: list[Symbol] = []
        for one in self.symbols:
            last = found[-1] if found else None
            inside = (
                last is not None
                and last.section == one.section
                and last.address <= one.address
                and one.address + one.size <= last.address + last.size
            )
            if not inside:
                found.append(one)
        return tuple(found)

    def symbol_at(self, address: int) -> Symbol | None:
        """The function of `functions` that an address lies in: on the device if it is relocated."""
        for one in self.functions:
            if one.address <= address < one.address + one.size:
                return one
        return None

    # ------------------------------------------------------------------ what ptxas has written down

    def _attributes(self, name: str) -> Iterator[_Attribute]:
        section = self.section(name)
        data = self.contents(section) if section else b""
        at = 0
        for _ in range(MOST_ATTRIBUTES):
            if at + 4 > len(data):
                return
            form, number, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form == _SIZED:
                if at + size > len(data):
                    raise self.error(f"an attribute of {name} has {size} bytes, which it lacks")
                yield _Attribute(number, size, data[at : at + size])
                at += size
            else:
                yield _Attribute(number, size & 0xFF if form == _BYTE else size, b"")
        raise self.error(f"{name} has more than {MOST_ATTRIBUTES} attributes")

    @cached_property
    def _registers(self) -> dict[int, int]:
        """By symbol, the registers of a thread; attributes of the whole cubin name a function."""
        return dict(
            struct.unpack_from("<II", one.data)
            for one in self._attributes(".nv.info")
            if one.number == _REGISTERS and len(one.data) >= 8
        )

    def info(self, function: Symbol) -> KernelInfo:
        """What is written down of a function.

        Raises:
            CubinError: the attributes are damaged.
        """
        name = function.name
        found: dict[int, _Attribute] = {}
        parameters: dict[int, KernelParameter] = {}
        targets: dict[int, tuple[int, ...]] = {}
        for one in self._attributes(f".nv.info.{name}"):
            found[one.number] = one
            if one.number == _KPARAM and len(one.data) >= 12:
                _, ordinal, offset, packed = struct.unpack_from("<IHHI", one.data)
                parameters[ordinal] = KernelParameter(ordinal, offset, packed >> 18)
            elif one.number == _BRANCHES:
                targets |= self._branches(name, one.data)
        shared = self.section(f".nv.shared.{name}")
        return KernelInfo(
            name=name,
            parameters=tuple(one for _, one in sorted(parameters.items())),
            parameters_at=_begin(found.get(_PARAM_CBANK)),
            block=_triple(found.get(_REQNTID)),
            most_threads=_triple(found.get(_MAXNTID)),
            cluster=_triple(found.get(_CLUSTER)),
            branch_targets=targets,
            registers=self._registers.get(function.index),
            shared=shared.size if shared else 0,
            mbarriers=found[_MBARRIERS].value if _MBARRIERS in found else 0,
            named_barriers=found[_NAMED_BARRIERS].value if _NAMED_BARRIERS in found else 0,
            toolkit=_toolkit(found.get(_CUDA_VERSION)),
        )

    def tables(self, function: Symbol) -> bytes:
        """The constants that ptxas has made for a function: tables of the targets of branches, in
        bank `TABLES`; none if there are none."""
        section = self.section(f".nv.constant{TABLES}.{function.name}")
        return b"" if section is None else self.contents(section)

    def _branches(self, name: str, data: bytes) -> dict[int, tuple[int, ...]]:
        """Of each ``BRX``: its pc, two halves that are 0, how many targets, and these."""
        found: dict[int, tuple[int, ...]] = {}
        at = 0
        while at + 12 <= len(data):
            pc, _, _, count = struct.unpack_from("<IHHI", data, at)
            at += 12
            if count > (len(data) - at) // 4:
                raise self.error(f"{name}: {count} targets of a branch do not fit")
            found[pc] = struct.unpack_from(f"<{count}I", data, at)
            at += 4 * count
        return found

    # ------------------------------------------------------------------ PTX

    @cached_property
    def ptx(self) -> str | None:
        """The PTX that a cubin compiled with ``-lineinfo`` embeds, with its line numbers; None
        without. ptxas keeps a line, without its comments, as a string that ends with NUL."""
        section = self.section(".nv_debug_ptx_txt")
        if section is None:
            return None
        lines = self.contents(section).decode("utf-8", "replace").split("\0")
        return "\n".join(lines)


def _begin(one: _Attribute | None) -> int | None:
    if one is None or len(one.data) < 8:
        return None
    begin: int = struct.unpack_from("<H", one.data, 4)[0]
    return begin


def _toolkit(one: _Attribute | None) -> str | None:
    if one is None or len(one.data) < 4:
        return None
    (number,) = struct.unpack_from("<I", one.data)
    return f"{number // 10}.{number % 10}"


def _triple(one: _Attribute | None) -> Triple | None:
    if one is None or len(one.data) < 12:
        return None
    x, y, z = struct.unpack_from("<III", one.data)
    return x, y, z
