"""Tensors, shared allocations, mbarriers, fragments and tensor maps (SEMANTICS A1, B15-B18)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import prod

from tilesim.arith.types import pred
from tilesim.errors import Diagnostic
from tilesim.ir import layout
from tilesim.ir.arithmetic import integer_limits
from tilesim.ir.declarations import Fragment, GlobalTensor, Mbarriers, SharedTensor, TensorMap
from tilesim.ir.expr import ScalarParam
from tilesim.ir.program import Program
from tilesim.ir.tensormap import in_shared, packing_problems

#: boxDim, elementStrides and stride limits of cuTensorMapEncodeTiled (B16)
_MAX_RANK, _MAX_BOX, _MAX_ELEMENT_STRIDE = 5, 256, 8
_MAX_STRIDE = 1 << 40
#: simulated memory is real memory: a tensor beyond this is a mistake
_MAX_TENSOR_BYTES = 1 << 34


def check_tensors(program: Program) -> Iterator[Diagnostic]:
    """Shapes are positive, strides fit them, element types can be stored."""
    for tensor in program.tensors:
        yield from _shape_problems(tensor)
        if not tensor.shape:
            continue
        strides = tensor.strides
        if strides is not None and (
            len(strides) != len(tensor.shape) or any(s < 0 for s in strides)
        ):
            yield Diagnostic(
                "operand",
                f"{tensor.name} has {len(tensor.shape)} dimensions and strides {strides}",
                tensor.loc,
                "give one non-negative stride in elements per dimension",
            )
        elif tensor.nbytes > _MAX_TENSOR_BYTES:
            yield Diagnostic(
                "operand", f"{tensor.name} takes {tensor.nbytes} bytes, at most 16 GiB", tensor.loc
            )
    for fragment in program.fragments:
        yield from _fragment_problems(fragment, 4 * program.target.registers)
    for param in program.params:
        if isinstance(param, ScalarParam):
            yield from _scalar_problems(param, program)


def _scalar_problems(param: ScalarParam, program: Program) -> Iterator[Diagnostic]:
    """What is passed at launch is as wide as the parameter's type."""
    if param.dtype.kind in ("int", "uint"):
        low, high = integer_limits(param.dtype)
        if not low <= param.value <= high:
            yield Diagnostic(
                "operand",
                f"scalar {param.name} is {param.value}, outside {low}..{high} of {param.dtype}",
                program.loc,
                "declare it with a wider dtype, such as s64",
            )


def _shape_problems(tensor: GlobalTensor | SharedTensor) -> Iterator[Diagnostic]:
    if not tensor.shape or any(not isinstance(n, int) or n < 1 for n in tensor.shape):
        yield Diagnostic(
            "operand", f"{tensor.name} has shape {tensor.shape}, extents must be positive integers",
            tensor.loc,
        )  # fmt: skip
    if tensor.dtype is pred:
        yield Diagnostic("operand", f"{tensor.name}: predicates are not stored in memory; use u8",
                         tensor.loc)  # fmt: skip


def _fragment_problems(fragment: Fragment, room: int) -> Iterator[Diagnostic]:
    """``room``: bytes of an SM's registers."""
    rows, columns = fragment.shape
    if rows * columns * fragment.dtype.bytes > room:
        yield Diagnostic(
            "operand",
            f"{fragment.name} has {rows:,} x {columns:,} elements of {fragment.dtype}; the "
            f"registers of a whole SM have {room:,} bytes",
            fragment.loc,
            "work on one tile after the other",
        )
    if rows < 1 or columns < 1:
        yield Diagnostic("operand", f"{fragment.name} has shape {fragment.shape}", fragment.loc)
    if fragment.split and rows % 64:
        yield Diagnostic(
            "operand",
            f"{fragment.name} has {rows} rows; a warpgroup fragment holds 64 per wgmma, or one row",
            fragment.loc,
        )


def check_shared(program: Program) -> Iterator[Diagnostic]:
    """Alignment, swizzle and padding of shared allocations; mbarriers on 8 bytes (A1, B18)."""
    for item in program.shared:
        if isinstance(item, Mbarriers):
            yield from _mbarrier_problems(item)
        else:
            yield from _shape_problems(item)
            yield from _shared_problems(item, program.placement[item.name])


def _mbarrier_problems(array: Mbarriers) -> Iterator[Diagnostic]:
    if array.count < 1:
        yield Diagnostic("operand", f"{array.name} has {array.count} mbarriers", array.loc)
    if array.offset is not None and (array.offset < 0 or array.offset % 8):
        yield Diagnostic(
            "operand", f"mbarrier {array.name} at byte {array.offset} is not 8-byte aligned (A1)",
            array.loc,
        )  # fmt: skip


def _shared_problems(tensor: SharedTensor, offset: int) -> Iterator[Diagnostic]:
    def problem(message: str, fix: str = "") -> Diagnostic:
        return Diagnostic("operand", f"{tensor.name}: {message}", tensor.loc, fix)

    align, swizzle = tensor.align, tensor.swizzle
    if align < 1 or align & (align - 1):
        yield problem(f"alignment {align} is not a power of two")
    elif offset < 0 or offset % align:
        yield problem(
            f"byte offset {offset} is not {align}-byte aligned",
            f"place it at {-(-offset // align) * align}, or lower align= if nothing needs it",
        )
    if swizzle not in layout.SWIZZLES:
        yield problem(f"swizzle {swizzle} is not {' or '.join(map(str, layout.SWIZZLES))} bytes")
        return
    inner = tensor.shape[-1] * tensor.dtype.bits // 8
    if swizzle and inner > swizzle:
        yield problem(
            f"{inner}-byte rows do not fit a {swizzle}-byte swizzle (B16)",
            f"split the tensor along its last dimension into {swizzle}-byte columns",
        )
    atom = layout.SWIZZLE_ATOM[swizzle]
    if swizzle and offset % atom:
        yield problem(
            f"a {swizzle}-byte swizzle repeats every {atom} bytes, byte offset {offset} is not a "
            "multiple of that (B18)",
            f"align the tensor to {atom} bytes",
        )
    if tensor.pitch is not None and (tensor.pitch < inner or (swizzle and tensor.pitch != swizzle)):
        least = swizzle or inner
        yield problem(f"row pitch {tensor.pitch} bytes cannot hold rows of {least} bytes")


def check_maps(program: Program) -> Iterator[Diagnostic]:
    """The limits of cuTensorMapEncodeTiled (B15, B16)."""
    declared = set(program.tensors)
    for tensor_map in program.maps:
        for tensor in tensor_map.tensors:
            if tensor not in declared:
                what = f"{tensor_map.name} maps {tensor.name}, which this kernel does not declare"
                yield Diagnostic("operand", what, tensor_map.loc)
        problems = (_map_problems(tensor_map), packing_problems(tensor_map, program.target.name))
        for message, fix in chain(*problems):
            yield Diagnostic("operand", f"{tensor_map.name}: {message}", tensor_map.loc, fix)


def _map_problems(m: TensorMap) -> Iterator[tuple[str, str]]:
    tensor, rank = m.tensor, len(m.tensor.shape)
    if not 1 <= rank <= _MAX_RANK:
        yield f"a tensor map has 1 to {_MAX_RANK} dimensions, {tensor.name} has {rank} (B16)", ""
        return
    if m.lower is not None or m.upper is not None or m.wide is not None:
        yield from im2col_problems(m)
        return
    if len(m.box) != rank:
        yield f"the box {m.box} has {len(m.box)} dimensions, {tensor.name} has {rank}", ""
        return
    for size in m.box:
        if not 1 <= size <= _MAX_BOX:
            yield (
                f"box extent {size} is outside 1..{_MAX_BOX} elements (B16)",
                f"copy it as several boxes of at most {_MAX_BOX} elements",
            )
    yield from _common_problems(m)


def _common_problems(m: TensorMap) -> Iterator[tuple[str, str]]:
    """What holds for maps of all kinds."""
    tensor = m.tensor
    problems = tuple(_element_stride_problems(m, len(tensor.shape)))
    if problems:  # how much is copied is not known
        yield from problems
        return
    inner = in_shared(m, m.box)[-1] * tensor.dtype.bits // 8
    if inner % 16:
        yield f"the box's rows take {inner} bytes, not a multiple of 16 (B15, B16)", ""
    if m.swizzle not in layout.SWIZZLES:
        yield f"swizzle {m.swizzle} is not {' or '.join(map(str, layout.SWIZZLES))} bytes", ""
    elif m.swizzle and inner > m.swizzle:
        yield (
            f"the box's rows take {inner} bytes, more than the {m.swizzle}-byte swizzle (B16)",
            f"make the box's last extent {m.swizzle * 8 // tensor.dtype.bits}",
        )
    yield from _stride_problems(m)
    if m.fill == "nan" and tensor.dtype.kind != "float" and m.packing is None:
        yield f"NaN fill of {tensor.dtype} elements; it exists for floating point only (B16)", ""


#: by number of spatial dimensions: the bits of a corner of the pixel box (5.5.4.1)
_CORNER_BITS = {1: 16, 2: 8, 3: 5}
_MAX_PIXELS = 1024


def im2col_problems(m: TensorMap) -> Iterator[tuple[str, str]]:
    """The limits of cuTensorMapEncodeIm2col and its wide form (B16, B23)."""
    rank = len(m.tensor.shape)
    spatial = 1 if m.wide else rank - 2
    if not 3 <= rank <= _MAX_RANK:
        yield f"an im2col map has 3 to {_MAX_RANK} dimensions, {m.tensor.name} has {rank} (B23)", ""
        return
    if len(m.box) != 2:
        yield f"the box {m.box} of an im2col map is (pixels per column, channels per pixel)", ""
        return
    for corner in (m.lower, m.upper):
        if corner is None or len(corner) != spatial:
            yield f"the pixel box has two corners of {spatial} numbers, not {corner} (B23)", ""
            return
        limit = 1 << _CORNER_BITS[rank - 2] - 1
        if any(not -limit <= x < limit for x in corner):
            yield f"the corner {corner} is outside {-limit}..{limit - 1} (B16)", ""
    pixels, channels = m.box
    if not 1 <= pixels <= _MAX_PIXELS or not 1 <= channels <= _MAX_BOX:
        yield (
            f"{pixels} pixels per column and {channels} channels per pixel are not in "
            f"1..{_MAX_PIXELS} and 1..{_MAX_BOX} (B16)",
            "",
        )
    if m.wide and not m.swizzle:
        yield "the modes im2col::w need a swizzle (B23)", ""
    yield from _common_problems(m)


def _element_stride_problems(m: TensorMap, rank: int) -> Iterator[tuple[str, str]]:
    steps = m.element_strides
    if steps is None:
        return
    if len(steps) != rank or any(not 1 <= s <= _MAX_ELEMENT_STRIDE for s in steps):
        yield (
            f"element strides {steps} are not {rank} numbers in 1..{_MAX_ELEMENT_STRIDE} (B16)",
            "",
        )
    elif steps[-1] != 1:
        yield f"the innermost element stride is {steps[-1]}, it must be 1 (B16)", ""


def _stride_problems(m: TensorMap) -> Iterator[tuple[str, str]]:
    tensor = m.tensor
    if tensor.byte_strides[-1] != tensor.dtype.bytes:
        yield f"{tensor.name} is not contiguous along its last dimension (B16)", ""
    for extent, stride in zip(tensor.shape[:-1], tensor.byte_strides[:-1], strict=True):
        if extent > 1 and (stride % 16 or not 0 <= stride < _MAX_STRIDE):
            yield (
                f"{tensor.name} has a stride of {stride} bytes, not a multiple of 16 (B16)",
                "pad the rows of the tensor to 16 bytes",
            )
    if prod(m.box_shape) == 0:
        yield f"the box {m.box} is empty", ""
