"""From the bytes of a kernel's parameters to their description."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from struct import unpack
from typing import Generic, Protocol, TypeVar

from tilesim.ptx.launch import Address, Contents, Field, Map, Parameter, Pointer, Scalar, Struct
from tilesim.ptx.syntax import Variable
from tilesim.ptx.tensormap import SIZE as MAP_SIZE
from tilesim.ptx.tensormap import address, decode

_MAP_ALIGNMENT, _POINTER = 64, 8
#: how Python unpacks a number of a PTX type that is none of integers
_FLOATS = {"f32": "<f", "f64": "<d"}


class Piece(Protocol):
    """Memory that is one buffer, from an address on; the size is None if it is not known."""

    @property
    def base(self) -> int: ...

    @property
    def size(self) -> int | None: ...


P = TypeVar("P", bound=Piece)
_P_co = TypeVar("_P_co", bound=Piece, covariant=True)


class Memory(Protocol[_P_co]):
    """Which buffers there are."""

    def at(self, address: int) -> _P_co | None:
        """The buffer that an address points into; None if it is no address."""
        ...

    def addresses_in(self, data: bytes) -> Mapping[int, tuple[_P_co, int]]:
        """By number of an aligned word of these bytes that is an address: what it points into, and
        the byte there."""
        ...


class Described(Generic[P]):
    """The parameters of one launch; buffers are named by the first parameter that points into them.

    ``is_map`` says of 128 bytes whether they are a tensor map, ``contents`` gives what a buffer is
    known to hold. ``names``: what parameters are called, by number.
    """

    def __init__(
        self,
        memory: Memory[P],
        is_map: Callable[[bytes], bool],
        contents: Callable[[P], bytes | None],
        names: Sequence[str] = (),
    ) -> None:
        self._formal = names
        self._memory = memory
        self._is_map = is_map
        self._contents = contents
        self._names: dict[int, str] = {}
        #: by name: the buffers that only addresses in memory lead to, as far as is known
        self._behind: dict[str, P] = {}
        #: buffers that they point into
        self.used: list[P] = []

    def parameter(self, number: int, formal: Variable, data: bytes) -> Parameter:
        """What the parameter with these bytes is."""
        name = (self._formal[number] if self._formal else "") or f"arg{number}"
        if formal.shape:
            return self._struct(name, data)
        value = int.from_bytes(data, "little")
        if len(data) == _POINTER and (found := self._pointer(name, value)) is not None:
            return found
        if formal.type in _FLOATS:
            return Scalar(name, formal.type, unpack(_FLOATS[formal.type], data)[0])
        signed = formal.type.startswith("s")
        return Scalar(name, formal.type, int.from_bytes(data, "little", signed=signed))

    def _pointer(self, name: str, value: int) -> Pointer | None:
        found = self._memory.at(value)
        if found is None:
            return None
        own = self._buffer(name, found)
        self._behind.pop(own, None)
        return Pointer(own, found.size, value - found.base, self.contents(own, found))

    def contents(self, name: str, piece: P) -> Contents | None:
        """What a buffer is known to hold; those that addresses in it lead to are named by
        where the address lies."""
        data = self._contents(piece)
        if data is None:
            return None
        found = self._memory.addresses_in(data)
        if not found:
            kind, size = ("u32", 4) if len(data) % 4 == 0 else ("u8", 1)
            values = (data[i : i + size] for i in range(0, len(data), size))
            return Contents(kind, tuple(int.from_bytes(value, "little") for value in values))
        words: list[int | Address] = list(array("Q", data[: len(data) // _POINTER * _POINTER]))
        for number, (other, offset) in found.items():
            new = other.base not in self._names
            own = self._buffer(f"{name}[{number}]", other)
            words[number] = Address(own, offset)
            if new:
                self._behind[own] = other
        return Contents("u64", tuple(words))

    def buffers(self) -> tuple[Pointer, ...]:
        """Those that no parameter points into, when all parameters have been described."""
        found: dict[str, Pointer] = {}
        while waiting := self._behind.keys() - found.keys():
            for name in sorted(waiting):
                one = self._behind[name]
                found[name] = Pointer(name, one.size, 0, self.contents(name, one))
        return tuple(found.values())

    def _buffer(self, name: str, piece: P) -> str:
        self.used.append(piece)
        return self._names.setdefault(piece.base, name)

    def _map(self, name: str, data: bytes) -> Map | None:
        if not self._is_map(data):
            return None
        start = address(data)
        found = self._memory.at(start)
        if found is None:
            return decode(data, name)
        made = decode(data, self._buffer(name, found))
        return replace(made, offset=start - found.base)

    def _struct(self, name: str, data: bytes) -> Parameter:
        whole = self._map(name, data) if len(data) == MAP_SIZE else None
        if whole is not None:
            return whole
        fields = tuple(self._fields(name, data))
        kept = bytearray(data)
        for field in fields:
            # addresses are others in every run
            size = MAP_SIZE if isinstance(field.value, Map) else _POINTER
            kept[field.offset : field.offset + size] = bytes(size)
        return Struct(name, len(data), fields, bytes(kept))

    def _fields(self, name: str, data: bytes) -> Iterator[Field]:
        at = 0
        while at + _POINTER <= len(data):
            own = f"{name}+{at}"
            if at % _MAP_ALIGNMENT == 0:
                found = self._map(own, data[at : at + MAP_SIZE])
                if found is not None:
                    yield Field(at, found)
                    at += MAP_SIZE
                    continue
            pointer = self._pointer(own, int.from_bytes(data[at : at + _POINTER], "little"))
            if pointer is not None:
                yield Field(at, pointer)
            at += _POINTER
