"""Addresses of views and mbarriers: bytes in shared memory, pointers to global memory."""

from __future__ import annotations

from collections.abc import Mapping

from tilesim.gpu.emit.emitter import AsmOperand, Emitter
from tilesim.gpu.emit.expr import multiple_of, storage_type
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.declarations import GlobalTensor, Mbar, SharedTensor, View
from tilesim.ir.expr import Const, Expr
from tilesim.ir.layout import SWIZZLE_ATOM
from tilesim.ir.spelling import space_of

#: extra indices per tensor dimension, as C expressions
Index = Mapping[int, str]
_MASK = {32: 1, 64: 3, 128: 7}
_FAR = 1 << 31


def _sum(
    e: Emitter,
    view: View,
    strides: tuple[int, ...],
    index: Index,
    *,
    wide: bool = False,
    base: int = 0,
) -> str:
    """``base + sum((offset + index) * stride)`` over the dimensions, constants collected."""
    constant, terms = base, list[str]()
    for d, (offset, stride) in enumerate(zip(view.offsets, strides, strict=True)):
        if isinstance(offset, Const):
            constant += int(offset.value) * stride
        else:
            terms.append(_scaled(e, offset, stride, wide=wide))
        if d in index:
            kind = "(s64)" if wide else ""
            terms.append(index[d] if stride == 1 and not wide else f"{kind}({index[d]}) * {stride}")
    if constant or not terms:
        terms.insert(0, str(constant))
    return " + ".join(terms)


def _scaled(e: Emitter, offset: Expr, stride: int, *, wide: bool) -> str:
    if wide:
        return f"(s64)({e.expr(offset)}) * {stride}"
    if e.names.type_of(offset) != "s32":
        offset_text = f"(s32)({e.expr(offset)})"
        return offset_text if stride == 1 else f"{offset_text} * {stride}"
    return e.names.scaled(offset, stride)


def shared_offset(e: Emitter, view: View, index: Index | None = None, *, swizzle: bool) -> str:
    """Byte offset of a view's first (or indexed) element from the start of shared memory."""
    tensor = view.tensor
    if isinstance(tensor, AddressedTensor):
        raise e.fail(f"{view} is at an address: there are scalars, vectors and copies only")
    assert isinstance(tensor, SharedTensor)
    base = e.program.placement[tensor.name]
    aligned = base % SWIZZLE_ATOM[tensor.swizzle] == 0
    if not swizzle or not tensor.swizzle:
        return _sum(e, view, tensor.byte_strides, index or {}, base=base)
    e.use("swizzle")
    mask = _MASK[tensor.swizzle]
    if not aligned:
        return f"swizzle<{mask}>({_sum(e, view, tensor.byte_strides, index or {}, base=base)})"
    within = _sum(e, view, tensor.byte_strides, index or {})
    return f"{base} + swizzle<{mask}>({within})" if base else f"swizzle<{mask}>({within})"


def shared_address(e: Emitter, view: View, *, swizzle: bool = False) -> str:
    """Shared-window address of a view's first element, mapped to its CTA if it is remote.

    Without ``swizzle`` it is the address tensor copies and matrix descriptors want: the hardware
    applies the swizzle itself.
    """
    if isinstance(view.tensor, AddressedTensor):
        return _at_address(e, view, view.tensor, swizzle=swizzle)
    address = f"smem + {shared_offset(e, view, swizzle=swizzle)}"
    return address if view.cta is None else _mapped(e, address, view.cta)


def _mapped(e: Emitter, address: str, cta: Expr) -> str:
    e.use("map_to_cta")
    return f"map_to_cta({address}, {e.cast(cta, 'u32')})"


def mbar_address(e: Emitter, mbar: Mbar) -> str:
    """Shared-window address of an mbarrier, mapped to its CTA if it is remote."""
    if isinstance(mbar.array, AddressedMbarriers):
        return e.cast(mbar.array.address, "u32")
    name = e.names.names[mbar.array.name]
    address = name
    if not isinstance(mbar.index, Const):
        address = f"{name} + 8 * {e.names.operand(mbar.index)}"
    elif mbar.index.value:
        address = f"{name} + {8 * int(mbar.index.value)}"
    return address if mbar.cta is None else _mapped(e, address, mbar.cta)


def pointer(e: Emitter, view: View, index: Index | None = None, kind: str | None = None) -> str:
    """A C pointer to a view's first (or indexed) element, of its storage type or ``kind``."""
    stored = kind or storage_type(view.dtype)
    if isinstance(view.tensor, AddressedTensor) and view.space != "shared":
        return f"(({stored}*)({_at_address(e, view, view.tensor)}))"
    if isinstance(view.tensor, GlobalTensor):
        place = f"{e.names.names[view.tensor.name]} + {_elements(e, view, index or {})}"
        return f"({stored}*)({place})" if kind else f"({place})"
    place = f"shared + {shared_offset(e, view, index, swizzle=True)}"
    if view.cta is not None:
        e.define(
            "map_pointer_to_cta",
            """
DEVICE char* map_pointer_to_cta(char* address, u32 rank) {
  u64 result;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(result) : "l"(address), "r"(rank));
  return (char*)result;
}""",
        )
        place = f"map_pointer_to_cta({place}, {e.cast(view.cta, 'u32')})"
    return f"({stored}*)({place})"


def _elements(e: Emitter, view: View, index: Index) -> str:
    tensor = view.tensor
    assert isinstance(tensor, GlobalTensor)
    strides = tuple(s // tensor.dtype.bytes for s in tensor.byte_strides)
    return _sum(e, view, strides, index, wide=tensor.nbytes >= _FAR)


def asm_address(e: Emitter, view: View, *, swizzle: bool = True) -> tuple[str, AsmOperand]:
    """State space qualifier and address operand of an access to a view; ``swizzle`` as for
    `shared_address`."""
    if isinstance(view.tensor, AddressedTensor):
        wide = view.space != "shared"
        address = _at_address(e, view, view.tensor, swizzle=swizzle)
        return space_of(view), ("l" if wide else "r", address)
    if isinstance(view.tensor, GlobalTensor):
        return ".global", ("l", pointer(e, view))
    space = ".shared::cta" if view.cta is None else ".shared::cluster"
    return space, ("r", shared_address(e, view, swizzle=swizzle))


def _at_address(e: Emitter, view: View, tensor: AddressedTensor, *, swizzle: bool = True) -> str:
    """Address of a view's first element: 32 bits in shared memory, 64 elsewhere."""
    wide = view.space != "shared"
    address = e.cast(tensor.address, "u64" if wide else "u32")
    offset = _sum(e, view, tensor.byte_strides, {}, wide=wide)
    if offset != "0":
        address = f"{address} + ({offset})"
    if swizzle and tensor.swizzle:
        e.use("swizzle")
        return f"swizzle<{_MASK[tensor.swizzle]}>({address})"
    return address


def pairs_aligned(view: View) -> bool:
    """True if two neighbouring elements from an even column on can be moved as one access."""
    tensor, inner = view.tensor, view.dims[-1]
    size = 2 * tensor.dtype.bytes
    if inner != len(tensor.shape) - 1 or tensor.byte_strides[-1] != tensor.dtype.bytes:
        return False
    if tensor.dtype.bytes > 4 or multiple_of(view.offsets[inner]) % 2:
        return False
    return all(stride % size == 0 for stride in tensor.byte_strides[:-1])
