"""Declarations (tensors, mbarrier arrays, tensor maps, fragments) and references into them.

Tensor cores take matrices in shared memory as boxes of two to four dimensions. An operand is
(rows, K), or (K, rows) where it is transposed; then also (rows / w, K, w): blocks of w columns, as
far apart as the tensor has them (the leading byte offset). Either may be in groups of eight rows of
memory and blocks of columns: (rows / 8, 8, columns / w, w) of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from tilesim.arith.types import PACKINGS, DType
from tilesim.errors import InvalidProgram, reject
from tilesim.ir import layout
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.expr import (
    Dyn,
    Expr,
    Operand,
    Subscript,
    as_expr,
    constant,
    element,
    expand,
    resolve,
)
from tilesim.ir.loc import UNKNOWN, Loc, caller
from tilesim.records import dataclass, field, fields, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray


def ds(start: Operand, size: int) -> Dyn:
    """A dynamic slice: ``size`` elements from ``start``."""
    return Dyn(start, size)


class _Indexable:
    """What a tensor can do as its view can: ``t[i]``, ``t[a:b]``, ``t[ds(x, n)]``, ``t[...]``,
    ``t.at(rank)``, ``len(t)``, ``for row in t``."""

    name: str
    shape: tuple[int, ...]

    def __getitem__(self, index: Subscript) -> View:
        return self.view()[index]

    def __setitem__(self, index: Subscript, value: object) -> NoReturn:
        raise reject(
            f"{self.name}[...] = {value}: an assignment is no instruction", caller(),
            fix="write memory with k.mem.store(view, value)",
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.view())

    def __iter__(self) -> Iterator[View]:
        return iter(self.view())

    def __str__(self) -> str:
        return self.name

    def at(self, cta: Operand) -> View:
        """The whole tensor in the shared memory of CTA ``cta``; see `View.at`."""
        return self.view().at(cta)

    def view(self) -> View:
        """The whole tensor as a view."""
        assert isinstance(self, GlobalTensor | SharedTensor)
        zero = as_expr(0)
        dims = tuple(range(len(self.shape)))
        return View(self, (zero,) * len(dims), self.shape, dims)


@dataclass(frozen=True)
class Pointed:
    """At byte ``at`` of a tensor in global memory lies the address of byte ``offset`` of another
    one, ``to``."""

    at: int
    to: str
    offset: int = 0


@dataclass(frozen=True)
class GlobalTensor(_Indexable):
    """A kernel parameter in global memory: row-major unless ``strides`` (in elements) are given.

    ``dependent``: the grid before this one may still be reading or writing it (programmatic
    dependent launch), so every access must come after ``griddepcontrol.wait`` (D17). ``devices``:
    the parameter is a multimem address, of memory in so many devices, this one among them (H20).
    ``contents``: the bytes it begins with, in hexadecimal, as far as that is known; None: what it
    holds at the start is an input, and zero if that is not given. ``pointers``: the addresses among
    them. ``private``: every thread has a part of its own, and accesses no other. ``constant``: it
    is read-only while the kernel runs, by whatever address it is reached (PTX 9.7.9.11).
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    dependent: bool = False
    devices: int = 1
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)
    contents: str | None = None
    pointers: tuple[Pointed, ...] = ()
    private: bool = False
    constant: bool = False

    @cached_property
    def byte_strides(self) -> tuple[int, ...]:
        """Distance in bytes between neighbours along each dimension."""
        if self.strides is not None:
            return tuple(s * self.dtype.bytes for s in self.strides)
        pitch = layout.row_pitch(self.shape, self.dtype.bits, 0, None)
        return layout.byte_strides(self.shape, self.dtype.bits, pitch)

    @cached_property
    def nbytes(self) -> int:
        """Bytes from the first element to one past the last."""
        spans = zip(self.shape, self.byte_strides, strict=True)
        return sum((n - 1) * s for n, s in spans) + self.dtype.bytes


@dataclass(frozen=True)
class SharedTensor(_Indexable):
    """A tensor in the CTA's shared memory.

    ``swizzle`` is the TMA/wgmma mode in bytes (0, 32, 64, 128); ``pitch`` pads the innermost row
    to that many bytes; ``offset`` is the byte offset in the CTA's dynamic shared memory, assigned
    by `Program` when the kernel leaves it open; ``align`` in bytes.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    swizzle: layout.Swizzle = 0
    pitch: int | None = None
    align: int = 128
    offset: int | None = None
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)

    @cached_property
    def byte_strides(self) -> tuple[int, ...]:
        """Distance in bytes between neighbours along each dimension, before the swizzle."""
        pitch = layout.row_pitch(self.shape, self.dtype.bits, self.swizzle, self.pitch)
        return layout.byte_strides(self.shape, self.dtype.bits, pitch)

    @property
    def nbytes(self) -> int:
        """Storage size: the layout's, not the element count's (tilus #88)."""
        return layout.storage_bytes(self.shape, self.dtype.bits, self.swizzle, self.pitch)


Tensor = GlobalTensor | SharedTensor | AddressedTensor


@dataclass(frozen=True)
class View:
    """A box of a tensor: ``offsets`` in elements (one per tensor dimension) and static extents.

    ``dims`` are the tensor dimensions that were not indexed away, so ``view.shape`` may have fewer
    dimensions than the tensor. ``cta`` is the cluster rank whose shared memory is meant (``mapa``);
    None is the executing CTA, or says the address of an `AddressedTensor`.
    """

    tensor: Tensor
    offsets: tuple[Expr, ...]
    extents: tuple[int, ...]
    dims: tuple[int, ...]
    cta: Expr | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dimensions that remain."""
        return tuple(self.extents[d] for d in self.dims)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.tensor.dtype

    @property
    def space(self) -> Literal["global", "shared", "generic"]:
        """State space of the tensor; generic addresses are in either."""
        match self.tensor:
            case AddressedTensor(space="global" | "generic" as space):
                return space
            case GlobalTensor():
                return "global"
            case _:
                return "shared"

    @property
    def remote(self) -> bool:
        """Whether it may lie in the shared memory of another CTA."""
        if isinstance(self.tensor, AddressedTensor):
            return self.tensor.space in ("shared::cluster", "generic")
        return self.cta is not None

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The expressions that say where it is."""
        parts = self.offsets if self.cta is None else (*self.offsets, self.cta)
        if isinstance(self.tensor, AddressedTensor):
            return (*parts, self.tensor.address)
        return parts

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.extents)

    @property
    def nbytes(self) -> int:
        """Payload bytes: elements times element size, without padding."""
        return self.size * self.dtype.bits // 8

    def at(self, cta: Operand) -> View:
        """The same view in the shared memory of CTA ``cta`` of the cluster (PTX ``mapa``).

        Raises:
            InvalidProgram: the tensor is in global memory, which all CTAs share.
        """
        if self.space == "global":
            raise reject(f"{self.tensor.name} is in global memory, which is the same for all CTAs",
                         caller(), fix=".at(rank) is for tensors of k.shared(...)")  # fmt: skip
        if isinstance(self.tensor, AddressedTensor):
            raise _names_its_cta(self)
        return View(self.tensor, self.offsets, self.extents, self.dims, as_expr(cta))

    def inner(self, left: int, right: int) -> View:
        """A view of one dimension without so many elements at its ends."""
        (dim,) = self.dims
        count = self.extents[dim] - left - right
        if isinstance(self.tensor, AddressedTensor):
            address = self.tensor.address + left * self.tensor.dtype.bytes
            tensor = replace(self.tensor, address=address, shape=(count,))
            return View(tensor, (as_expr(0),), (count,), (0,))
        offsets, extents = list(self.offsets), list(self.extents)
        offsets[dim], extents[dim] = offsets[dim] + left, count
        return View(self.tensor, tuple(offsets), tuple(extents), self.dims, self.cta)

    def __getitem__(self, index: Subscript) -> View:
        items = expand(index if isinstance(index, tuple) else (index,), len(self.dims))
        if len(items) > len(self.dims):
            raise reject(
                f"{len(items)} indices for {self.tensor.name}, which has {len(self.dims)} here",
                caller(),
            )
        offsets, extents, dims = list(self.offsets), list(self.extents), []
        for position, dim in enumerate(self.dims):
            item = items[position] if position < len(items) else slice(None)
            start, size, keep = resolve(item, extents[dim], self.tensor.name)
            offsets[dim] = offsets[dim] + start
            extents[dim] = size
            if keep:
                dims.append(dim)
        return View(self.tensor, tuple(offsets), tuple(extents), tuple(dims), self.cta)

    def __len__(self) -> int:
        if not self.dims:
            raise TypeError(f"{self} is one element, it has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[View]:
        return (self[i] for i in range(len(self)))

    def __str__(self) -> str:
        parts = []
        for d, (offset, extent) in enumerate(zip(self.offsets, self.extents, strict=True)):
            if d not in self.dims:
                parts.append(str(offset))
            elif constant(offset) == 0 and extent == self.tensor.shape[d]:
                parts.append(":")
            else:
                parts.append(f"{offset}:+{extent}")
        text = f"{self.tensor}[{', '.join(parts)}]"
        return text if self.cta is None else f"{text}@{self.cta}"


def _names_its_cta(operand: View | Mbar) -> InvalidProgram:
    return reject(f"{operand} is at an address, which already names the CTA", caller(),
                  fix="take the address that k.mem.mapa(...) gives")  # fmt: skip


@dataclass(frozen=True)
class Mbarriers:
    """An array of ``count`` mbarriers (8 bytes each, 8-byte aligned) in shared memory."""

    name: str
    count: int = 1
    offset: int | None = None
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """Storage size in bytes."""
        return 8 * self.count

    @property
    def align(self) -> int:
        """Alignment in bytes (SEMANTICS A1)."""
        return 8

    def __getitem__(self, index: Operand) -> Mbar:
        expr = element(index, self.name)
        known = constant(expr)
        if known is not None and not 0 <= known < self.count:
            raise reject(f"{self.name}[{known}]: the array has {self.count} mbarriers", caller(),
                         rule="out-of-bounds")  # fmt: skip
        return Mbar(self, expr)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Mbar]:
        return (self[i] for i in range(self.count))

    def __str__(self) -> str:
        return self.name

    def at(self, cta: Operand) -> Mbar:
        """The only mbarrier of the array in CTA ``cta`` of the cluster; see `Mbar.at`.

        Raises:
            InvalidProgram: the array has several.
        """
        return self.only().at(cta)

    def only(self) -> Mbar:
        """The mbarrier of an array of one.

        Raises:
            InvalidProgram: the array has several.
        """
        if self.count != 1:
            raise reject(f"{self.name} has {self.count} mbarriers: index one", caller())
        return self[0]


@dataclass(frozen=True)
class Mbar:
    """One mbarrier: an element of an array, in the executing CTA or (``cta``) in a peer; or the one
    at an address (index 0, no ``cta``)."""

    array: Mbarriers | AddressedMbarriers
    index: Expr
    cta: Expr | None = None

    @property
    def remote(self) -> bool:
        """Whether it may be another CTA's."""
        if isinstance(self.array, AddressedMbarriers):
            return self.array.space == "shared::cluster"
        return self.cta is not None

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The expressions that say which one it is."""
        if isinstance(self.array, AddressedMbarriers):
            return (self.array.address,)
        return (self.index,) if self.cta is None else (self.index, self.cta)

    def at(self, cta: Operand) -> Mbar:
        """The same mbarrier in CTA ``cta`` of the cluster (PTX ``mapa``).

        Raises:
            InvalidProgram: it is at an address, which already names the CTA.
        """
        if isinstance(self.array, AddressedMbarriers):
            raise _names_its_cta(self)
        return Mbar(self.array, self.index, as_expr(cta))

    def __str__(self) -> str:
        if isinstance(self.array, AddressedMbarriers):
            return str(self.array)
        text = f"{self.array.name}[{self.index}]"
        return text if self.cta is None else f"{text}@{self.cta}"


#: types of elements narrower than a byte, as a tensor map has them (`tilesim.ir.tensormap`)
PackingName = Literal["b4x16", "b4x16_p64", "b6x16_p32", "b6p2x16"]


@dataclass(frozen=True)
class TensorMap:
    """A TMA descriptor over ``tensor`` (SEMANTICS B14-B20).

    ``box`` in elements, slowest dimension first like the tensor's shape; ``element_strides``
    likewise; ``fill`` is what elements outside the tensor read as. With the corners ``lower`` and
    ``upper`` of a pixel box, of the spatial dimensions of (N, D, H, W, C), it is a map for the
    im2col modes, and ``box`` is (pixels per column, channels per pixel); ``wide``: for the mode
    ``im2col::w`` or ``im2col::w::128``, with corners along W (B23). ``packing``: the type of
    sub-byte elements, in which box and coordinates count; ``tensor`` has their bytes (B36). With a
    ``rank``, it is in memory, copies through it have so many coordinates, and it says the rest: it
    is one of ``tensor``, or of one of the ``others``. With ``dims``, it is one of a part of
    ``tensor``: of so many elements, from byte ``offset`` on, with the tensor's strides.
    """

    name: str
    tensor: GlobalTensor
    box: tuple[int, ...]
    swizzle: layout.Swizzle = 0
    element_strides: tuple[int, ...] | None = None
    fill: Literal["zero", "nan"] = "zero"
    lower: tuple[int, ...] | None = None
    upper: tuple[int, ...] | None = None
    wide: Literal["w", "w::128"] | None = None
    packing: PackingName | None = None
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)
    rank: int | None = None
    others: tuple[GlobalTensor, ...] = ()
    offset: int = 0
    dims: tuple[int, ...] | None = None

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis and IPython print it as the code that declares it."""
        of, given = self.tensor, {f.name: getattr(self, f.name) for f in fields(self)[3:-5]}
        plain = {f.name: f.default for f in fields(self)}
        more = "".join(f", {n}={v!r}" for n, v in given.items() if v != plain[n])
        printer.text(
            f'(k := tilesim.Builder("example")).tensor_map(k.tensor({of.name!r}, '
            f"tilesim.{of.dtype}, {of.shape}, {of.strides}), {self.box}{more}, name={self.name!r})"
        )

    @property
    def tensors(self) -> tuple[GlobalTensor, ...]:
        """The tensors of which it may be a map."""
        return (self.tensor, *self.others)

    @property
    def dimensions(self) -> int:
        """How many coordinates copies of tiles have."""
        return len(self.tensor.shape) if self.rank is None else self.rank

    @property
    def box_shape(self) -> tuple[int, ...]:
        """Elements actually copied per dimension: ``ceil(box / element_stride)`` (B16)."""
        if self.element_strides is None or self.lower is not None:
            return self.box
        return tuple(-(-b // s) for b, s in zip(self.box, self.element_strides, strict=True))

    @property
    def box_bytes(self) -> int:
        """Bytes one copy writes and completes, out-of-bounds elements included (B20)."""
        return prod(self.box_shape) * self.element_bits // 8

    @property
    def element_bits(self) -> int:
        """Bits of one element in global memory."""
        return PACKINGS[self.packing].bits if self.packing else self.tensor.dtype.bits

    def __str__(self) -> str:
        return self.name


Distribution = Literal["warp", "warpgroup"]


@dataclass(frozen=True)
class Unsaid:
    """What PTX does not say: which lanes touch which elements of a matrix. Accesses of one ``form``
    to the same elements are by the same lanes."""

    form: str


@dataclass(frozen=True)
class Fragment:
    """A tile of registers.

    ``warp``: every executing warp has its own tile of this shape. ``warpgroup``: one tile per
    warpgroup in wgmma's accumulator layout, of which warp ``w`` (mod 4) holds rows
    ``[w * rows / 4, (w + 1) * rows / 4)``; a single row, which every warp holds, has the columns of
    that layout.
    """

    name: str
    dtype: DType
    shape: tuple[int, int]
    distribution: Distribution = "warp"
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)

    @property
    def split(self) -> bool:
        """Whether a warp holds a quarter of the rows."""
        return self.distribution == "warpgroup" and self.shape[0] != 1

    @property
    def threads(self) -> int:
        """How many threads share the elements out; others hold the same ones as these."""
        if self.distribution == "warp":
            return 32
        return 128 if self.split else 4

    @property
    def warp_shape(self) -> tuple[int, int]:
        """The part one warp holds."""
        rows, columns = self.shape
        return (rows // 4, columns) if self.split else (rows, columns)

    def __str__(self) -> str:
        return f"#{self.name}"


# --------------------------------------------------------------- matrices as tensor cores take them


def extents(shape: tuple[int, ...], *, transposed: bool) -> tuple[int, ...]:
    """(rows, K) of an operand of this shape; the shape itself if it is no matrix's."""
    found = _grouped(shape)
    if transposed and len(found) == 3:
        return found[0] * found[2], found[1]
    return (found[1], found[0]) if transposed and len(found) == 2 else found


def rows_of(values: NDArray[Any], *, transposed: bool) -> NDArray[Any]:
    """An operand's elements as rows of K; its blocks of columns are one after the other."""
    values = values.reshape(_grouped(values.shape))
    if not transposed:
        return values
    return values.swapaxes(-1, -2).reshape(-1, values.shape[-2])


def _grouped(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The rows and columns of a matrix in groups of rows and blocks of columns."""
    return (shape[0] * shape[1], shape[2] * shape[3]) if len(shape) == 4 else shape
