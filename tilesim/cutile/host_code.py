"""What the driver of the GPU runs before it launches a kernel of cuTile: code for the host.

A kernel has hidden parameters, tensor maps of its arrays. ``tileiras`` compiles a function for
each kernel that computes them of the others, and puts it into the cubin as an object file for the
host: ``__CUDA_TILEIR_FUNC_ON_ARGUMENTS_CHANGE_N``, of the kernel whose name is at
``__CUDA_TILEIR_FUNC_NAME_N``. Its fourth argument is the address of the parameters.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from collections.abc import Iterator, Sequence

from tilesim.errors import UsageError
from tilesim.ptx.syntax import Variable
from tilesim.records import dataclass

#: where parameters begin in the constant bank, by target: the function aligns by it
_BASES = {"sm_90a": 0x210, "sm_100a": 0x380, "sm_103a": 0x380}
_NAME, _FUNCTION = "__CUDA_TILEIR_FUNC_NAME_", "__CUDA_TILEIR_FUNC_ON_ARGUMENTS_CHANGE_"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMBOLS, _RELOCATED = 2, 4
#: bytes of memory that arguments may be in of which it is not known what they are
_ROOM = 1 << 16


@dataclass(frozen=True)
class _Section:
    type: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    section: int
    value: int
    size: int


class HostCode:
    """The object file of a cubin."""

    def __init__(self, data: bytes, target: str) -> None:
        self._data = data
        self._base = _BASES[target]
        header = _HEADER.unpack_from(data)
        self._sections = [_section(data, header[6] + n * header[11]) for n in range(header[12])]
        self._symbols = {symbol.name: symbol for symbol in self._names()}
        #: pages with code, kept as long as something may run there
        self._code: list[mmap.mmap] = []

    def _names(self) -> Iterator[_Symbol]:
        for section in self._sections:
            if section.type == _SYMBOLS:
                strings = self._sections[section.link].offset
                for at in range(section.offset, section.offset + section.size, _SYMBOL.size):
                    name, _, _, index, value, size = _SYMBOL.unpack_from(self._data, at)
                    start = strings + name
                    text = self._data[start : self._data.index(b"\0", start)].decode()
                    yield _Symbol(text, index, value, size)

    def _function(self, kernel: str) -> _Symbol | None:
        for name, symbol in self._symbols.items():
            if name.startswith(_NAME):
                start = self._sections[symbol.section].offset + symbol.value
                said = self._data[start : start + symbol.size].rstrip(b"\0").decode()
                if said == kernel:
                    return self._symbols.get(_FUNCTION + name.removeprefix(_NAME))
        return None

    def filled(
        self, kernel: str, formals: Sequence[Variable], given: Sequence[bytes]
    ) -> tuple[bytes, ...]:
        """The bytes of all parameters of a kernel; ``given``: those that are not hidden.

        Raises:
            UsageError: the function that computes the others cannot be run here.
        """
        hidden = [formal.linkage == "hidden" for formal in formals]
        if len(given) != hidden.count(False):
            raise UsageError(f"{kernel}: {len(given)} arguments for {hidden.count(False)} in PTX")
        offsets, end = [], self._base
        for formal in formals:
            end = -(-end // formal.alignment) * formal.alignment
            offsets.append(end - self._base)
            end += formal.size
        buffer = ctypes.create_string_buffer(end - self._base + 64)
        place = -(-ctypes.addressof(buffer) // 64) * 64
        rest = iter(given)
        for offset, is_hidden in zip(offsets, hidden, strict=True):
            if not is_hidden:
                data = next(rest)
                ctypes.memmove(place + offset, data, len(data))
        if any(hidden):
            self._call(kernel, place)
        return tuple(
            ctypes.string_at(place + offset, formal.size)
            for offset, formal in zip(offsets, formals, strict=True)
        )

    def _call(self, kernel: str, parameters: int) -> None:
        function = self._function(kernel)
        if function is None:
            raise UsageError(f"{kernel}: cuTile does not describe its hidden parameters")
        if platform.machine() != "x86_64" or self._is_relocated(function):
            raise UsageError(f"{kernel}: the code for its hidden parameters cannot be run alone")
        section = self._sections[function.section]
        code = mmap.mmap(-1, section.size, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(self._data[section.offset : section.offset + section.size])
        self._code.append(code)
        start = ctypes.addressof(ctypes.c_char.from_buffer(code)) + function.value
        call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(start)
        nothing = ctypes.create_string_buffer(_ROOM)
        status = call(*[ctypes.addressof(nothing)] * 3, parameters)
        if status:
            raise UsageError(f"{kernel}: its arguments are refused by cuTile's code ({status})")

    def _is_relocated(self, function: _Symbol) -> bool:
        """Whether it mentions what lies elsewhere."""
        for section in self._sections:
            if section.type == _RELOCATED and section.info == function.section:
                for at in range(section.offset, section.offset + section.size, _RELOCATION.size):
                    place, _, _ = _RELOCATION.unpack_from(self._data, at)
                    if function.value <= place < function.value + function.size:
                        return True
        return False


def _section(data: bytes, at: int) -> _Section:
    _, kind, _, _, offset, size, link, info, _, _ = _SECTION.unpack_from(data, at)
    return _Section(kind, offset, size, link, info)
