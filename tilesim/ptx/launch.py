"""What PTX does not say of a launch: its size, the parameters of the kernel, and what memory holds.

Dimensions, strides and boxes are in the order of CUDA and PTX: the innermost dimension first. As
JSON: `tilesim.ptx.description`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from math import prod
from typing import Literal, TypeAlias

from tilesim.arith.floats import encode
from tilesim.arith.types import WIDTH
from tilesim.ir.declarations import Pointed
from tilesim.records import dataclass, field, replace

Swizzle = Literal[0, 32, 64, 128]
#: bytes that a swizzle moves together
Atoms = Literal[16, 32, 64]
Interleave = Literal[0, 16, 32]
Fill = Literal["zero", "nan"]
#: the mode im2col::w or im2col::w::128, if it is one of these
Wide = Literal["", "w", "w::128"]

#: element types of tensor maps and their bits
MAP_TYPES: Mapping[str, int] = {
    "u8": 8, "u16": 16, "u32": 32, "s32": 32, "u64": 64, "s64": 64, "f16": 16, "f32": 32,
    "f32.ftz": 32, "f64": 64, "bf16": 16, "tf32": 32, "tf32.ftz": 32, "b4x16": 4, "b4x16_p64": 4,
    "b6x16_p32": 6, "b6p2x16": 6,
}  # fmt: skip
SCALAR_TYPES = frozenset(
    t for t in WIDTH if re.fullmatch(r"[bus](8|16|32|64)|f16|bf16|f32|f64|pred", t)
)


@dataclass(frozen=True)
class Address:
    """The address of byte ``offset`` of a buffer, where memory holds it."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Contents:
    """Known values at the start of a buffer; addresses of buffers have 64 bits."""

    type: str
    values: tuple[int | Address, ...]


@dataclass(frozen=True)
class Pointer:
    """The address of byte ``offset`` of a buffer in global memory.

    Parameters with one ``name`` point into the same buffer. ``bytes`` is its size, None if not
    known; ``contents`` are values that steer the kernel. A buffer of no bytes is nowhere: its
    address is 0, as that of an empty torch tensor.
    """

    name: str
    bytes: int | None = None
    offset: int = 0
    contents: Contents | None = None


@dataclass(frozen=True)
class Scalar:
    """A number passed by value; ``value`` None: not known."""

    name: str
    type: str
    value: int | float | None


@dataclass(frozen=True)
class Im2col:
    """What a map in im2col mode has instead of a box: corners of the bounding box (one number per
    spatial dimension), channels and pixels of a copy. ``wide``: for the mode ``im2col::w`` or
    ``im2col::w::128``, with corners along W alone."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    wide: Wide = ""


@dataclass(frozen=True)
class Map:
    """A tensor map (``CUtensorMap``) over a buffer, the innermost dimension first.

    ``strides`` in bytes, of all dimensions but the innermost one. ``offset`` is where in the buffer
    the tensor begins. ``box`` is empty in im2col mode. ``atoms`` other than of 16 bytes are those
    of a swizzle of 128 bytes; whether it also swaps 8 bytes in them is not said.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: Swizzle = 0
    interleave: Interleave = 0
    fill: Fill = "zero"
    im2col: Im2col | None = None
    offset: int = 0
    atoms: Atoms = 16

    @property
    def bits(self) -> int:
        """Bits of an element in global memory."""
        return MAP_TYPES[self.type]

    @property
    def steps(self) -> tuple[int, ...]:
        """Element strides, one per dimension."""
        return self.element_strides or (1,) * len(self.shape)

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy writes and completes."""
        if self.im2col is not None:
            return self.im2col.channels * self.im2col.pixels * self.bits // 8
        counts = (-(-n // s) for n, s in zip(self.box, self.steps, strict=True))
        return prod(counts) * self.bits // 8


@dataclass(frozen=True)
class Field:
    """A parameter inside a struct."""

    offset: int
    value: Parameter


@dataclass(frozen=True)
class Struct:
    """A struct passed by value: its bytes, and what lies at some of its offsets."""

    name: str
    size: int
    fields: tuple[Field, ...]
    data: bytes = b""


Parameter: TypeAlias = "Pointer | Scalar | Map | Struct"
Triple: TypeAlias = tuple[int, int, int]

#: a block or a cluster of which the description says nothing: it is what the PTX says
UNSAID: Triple = (0, 0, 0)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel. ``dynamic_shared`` in bytes; ``registers`` per thread, None: what the
    compiler chooses; ``cooperative``: all CTAs run at once; ``dependent``: it may start before the
    grid before it has ended (programmatic dependent launch); ``buffers``: those that only addresses
    in memory lead to; ``variables``: what the host has put into variables of the module, by name,
    None: not known. ``about``: what reports say of it."""

    entry: str
    grid: Triple
    block: Triple = UNSAID
    cluster: Triple = UNSAID
    dynamic_shared: int = 0
    registers: int | None = None
    cooperative: bool = False
    dependent: bool = False
    params: tuple[Parameter, ...] = ()
    buffers: tuple[Pointer, ...] = ()
    variables: tuple[tuple[str, Contents | None], ...] = ()
    about: str = field(default="", compare=False)

    @property
    def numbers(self) -> dict[str, int | float]:
        """The numbers that it passes, by name: all but shapes and strides that go with a tensor
        map, which Triton passes as ``x.1``, ``x.2``, ..."""
        maps = {p.name for p in self.params if isinstance(p, Map) and p.name}
        return {
            p.name or f"param_{number}": p.value
            for number, p in enumerate(self.params)
            if isinstance(p, Scalar) and p.value is not None
            and p.name.partition(".")[0] not in maps
        }  # fmt: skip

    @property
    def configuration(self) -> str:
        """What tells it from other launches of its kernel: these numbers, and what is said of
        it."""
        passed = ", ".join(f"{name} = {value}" for name, value in self.numbers.items())
        return "; ".join(filter(None, (passed, self.about)))

    @property
    def ctas(self) -> int:
        """CTAs of the grid."""
        return prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return prod(self.block)

    @property
    def sizes(self) -> dict[str, int]:
        """By special register, the threads of a CTA and the CTAs of the grid in each dimension."""
        each = {"ntid": self.block, "nctaid": self.grid}
        return {
            f"{name}.{axis}": n
            for name, ns in each.items()
            for axis, n in zip("xyz", ns, strict=True)
        }

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return prod(self.cluster)


def without_contents(launch: Launch) -> Launch:
    """The launch without what memory holds."""
    return replace(launch, params=tuple(map(_bare, launch.params)), buffers=(), variables=())


def _bare(parameter: Parameter) -> Parameter:
    match parameter:
        case Pointer():
            return replace(parameter, contents=None)
        case Struct():
            fields = tuple(replace(f, value=_bare(f.value)) for f in parameter.fields)
            return replace(parameter, fields=fields)
        case _:
            return parameter


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
