"""Addresses of declarations, and operands at addresses that registers hold."""

from __future__ import annotations

from typing import Literal

from tilesim.arith.types import DType
from tilesim.errors import reject
from tilesim.ir import layout
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor, Space
from tilesim.ir.declarations import (
    GlobalTensor,
    Mbar,
    Mbarriers,
    SharedTensor,
    Tensor,
    TensorMap,
    View,
)
from tilesim.ir.expr import Base, Binary, Const, Expr, Operand, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.program import Program

#: an address into shared memory is ``rank << RANK_SHIFT | offset``
RANK_SHIFT = 24
#: the bits of it that say where in the shared memory of a CTA it points
OFFSET_MASK = (1 << RANK_SHIFT) - 1
#: what a generic address into shared memory begins with, in the simulator
SHARED_WINDOW = 1 << 36
#: the name of its `Base`, which no declaration has
WINDOW = ".window"
#: the distance between global tensors in the simulator, and the address of the first one
GLOBAL_WINDOW = 1 << 40
#: bytes of an address
_POINTER = 8


def bases(program: Program) -> dict[str, int]:
    """What the simulator takes as the value of each `Base`, the CTA's rank left out.

    Hardware has others: offsets in shared memory begin somewhere, tensors lie anywhere.
    """
    objects: tuple[GlobalTensor | TensorMap, ...] = (*program.tensors, *program.maps)
    far = {item.name: (number + 1) * GLOBAL_WINDOW for number, item in enumerate(objects)}
    return {**program.placement, **far, WINDOW: SHARED_WINDOW}


def begins_with(program: Program, tensor: GlobalTensor) -> bytes:
    """The bytes that a global tensor begins with, as far as they are known, with the addresses that
    the simulator takes."""
    data = bytearray.fromhex(tensor.contents or "")
    places = bases(program) if tensor.pointers else {}
    for one in tensor.pointers:
        data[one.at : one.at + _POINTER] = (places[one.to] + one.offset).to_bytes(
            _POINTER, "little"
        )
    return bytes(data)


def view_at(
    address: Operand, dtype: DType, shape: tuple[int, ...] = (), *,
    space: Space = "shared::cta", strides: tuple[int, ...] | None = None,
    swizzle: layout.Swizzle = 0, vector: tuple[int, int] = (0, 0), undivided: bool = False,
) -> View:  # fmt: skip
    """What lies at a byte address: one element, or a box of ``shape``; see `AddressedTensor`.

    ``vector``: of an element of a vector, the size of that, and how many bytes come before it;
    ``undivided``: that vector is one element for others, of which this is a piece.
    """
    tensor = AddressedTensor(
        as_expr(address), dtype, tuple(shape), space, strides, swizzle, *vector, undivided
    )
    return View(tensor, (as_expr(0),) * len(shape), tensor.shape, tuple(range(len(shape))))


def mbar_at(
    address: Operand, *, space: Literal["shared::cta", "shared::cluster"] = "shared::cta"
) -> Mbar:
    """The mbarrier at a byte address; see `AddressedMbarriers`."""
    return Mbar(AddressedMbarriers(as_expr(address), space), as_expr(0))


def peer_address(address: Expr, cta: Expr) -> Expr:
    """The address in CTA ``cta`` of the cluster that corresponds to one in shared memory (J2)."""
    return (address & OFFSET_MASK) + (cta << RANK_SHIFT)


def peer_of(address: Expr) -> tuple[Expr, Expr] | None:
    """What `peer_address` has made an address of; None if it has not made it."""
    match address:
        case Binary("+", Binary("&", own, Const(mask)), Binary("<<", cta, Const(by))) if (
            mask,
            by,
        ) == (OFFSET_MASK, RANK_SHIFT):
            return own, cta
        case Binary("+", Binary("&", own, Const(mask)), Const(rank)) if mask == OFFSET_MASK:
            return own, Const(int(rank) >> RANK_SHIFT)
        case Binary("&", own, Const(mask)) if mask == OFFSET_MASK:
            return own, Const(0)
    return None


def address_of(item: Tensor | View | Mbarriers | Mbar | TensorMap) -> Expr:
    """Where a tensor, the first element of a view, an mbarrier or a tensor map lies, in bytes.

    In shared memory it is the address in the executing CTA, with the CTA's rank in bits 24 and up.

    Raises:
        InvalidProgram: the view or mbarrier is one of another CTA.
    """
    match item:
        case View() | Mbar() if item.cta is not None:
            raise reject(f"{item} is in another CTA: its address is not known here", caller(),
                         fix="take it without .at(rank), then k.mem.mapa(...)")  # fmt: skip
        case AddressedTensor(address=address):
            return address
        case Mbar(array=AddressedMbarriers(address=address)):
            return address
        case GlobalTensor() | TensorMap():
            return Base(item.name, "global")
        case SharedTensor() | Mbarriers():
            return Base(item.name, "shared")
        case Mbar():
            return Base(item.array.name, "shared") + 8 * item.index
        case View():
            return _address_of_view(item)


def _address_of_view(view: View) -> Expr:
    tensor = view.tensor
    address = address_of(tensor)
    for offset, stride in zip(view.offsets, tensor.byte_strides, strict=True):
        address = address + offset * stride
    mask = 0 if isinstance(tensor, GlobalTensor) else layout.CHUNK_MASK[tensor.swizzle]
    return address ^ ((address >> 7 & mask) << 4) if mask else address


def addressed_in(value: object) -> AddressedTensor | AddressedMbarriers | None:
    """What an operand names by its address."""
    match value:
        case View(tensor=AddressedTensor() as tensor):
            return tensor
        case Mbar(array=AddressedMbarriers() as array):
            return array
        case _:
            return None
