"""What no machine instruction can express: matrix descriptors, and fragments spread over threads.

What runs in the simulator has an encoding, and what has none is refused at the line that asks for
it, whether the program is checked, run or emitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tilesim.errors import Diagnostic
from tilesim.ir.distribution import Layout, by_lane, layout_of, layout_problem
from tilesim.ir.effects import UsesFragment
from tilesim.ir.expr import Expr
from tilesim.ir.memory import Fragment, SharedTensor, View
from tilesim.ir.op import Op
from tilesim.ir.ops.cp_async import CpAsync
from tilesim.ir.ops.tcgen05_data import Tcgen05Cp
from tilesim.ir.ops.tcgen05_mma import Tcgen05Mma, Tcgen05MmaSp, Tcgen05MmaWs
from tilesim.ir.ops.tile import TileFma, TileReduce, TileStore, TileZip
from tilesim.ir.ops.wgmma import WgmmaMmaAsync
from tilesim.ir.program import Program, instructions

#: rows of a core matrix, and their bytes where there is no swizzle (F10)
_CORE_ROWS, CORE_BYTES = 8, 16


def check_encodings(program: Program) -> Iterator[Diagnostic]:
    """Every fragment has a layout over threads, every instruction an encoding of its operands."""
    lanes = by_lane(instructions(program))
    for fragment in program.fragments:
        problem = layout_problem(fragment, lanes=fragment.name in lanes)
        if problem is not None:
            yield Diagnostic("operand", problem, fragment.loc)
    layouts = {f.name: layout_of(f, lanes=f.name in lanes) for f in program.fragments}
    filled = frozenset(_filled(program))
    for op in instructions(program):
        for text in _problems(op, layouts, filled):
            yield Diagnostic("operand", f"{op.mnemonic}: {text}", op.loc)


def _filled(program: Program) -> Iterator[str]:
    """The fragments whose elements instructions name: in PTX registers are, whatever they hold."""
    for op in instructions(program):
        for effect in op.effects():
            if isinstance(effect, UsesFragment) and not (effect.variable or effect.asynchronous):
                yield effect.fragment.name


def _problems(op: Op, layouts: dict[str, Layout], filled: Collection[str]) -> Iterator[str]:
    match op:
        case WgmmaMmaAsync():
            yield from _wgmma(op, filled)
        case Tcgen05Mma(a=a, b=b) | Tcgen05MmaSp(a=a, b=b) | Tcgen05MmaWs(a=a, b=b):
            for operand in (a, b):
                if isinstance(operand, View):
                    yield from _tcgen05_descriptor(operand)
        case Tcgen05Cp(src=view):
            yield from _tcgen05_descriptor(view)
        case TileStore():
            yield from _stored(op, layouts[op.src.name])
        case TileReduce():
            yield from _reduced(op, layouts[op.src.name])
        case TileZip(lhs=lhs, rhs=rhs):
            yield from _row(lhs, rhs, layouts)
        case TileFma(a=lhs, b=b, c=c):
            yield from _row(lhs, b, layouts)
            yield from _row(lhs, c, layouts)
        case CpAsync():
            for view in (op.dst, op.src):
                yield from _chunks(op, view)
        case _:
            pass


# ---------------------------------------------------------------------- matrix descriptors


def _wgmma(op: WgmmaMmaAsync, filled: Collection[str]) -> Iterator[str]:
    if isinstance(op.a, View):
        yield from _wgmma_descriptor(op.a)
    elif op.a.dtype.bits != 16 and op.a.name in filled:
        yield (
            f"A fragment {op.a.name} is {op.a.dtype}; from registers wgmma's layout of A equals "
            "the accumulator's for 16-bit elements only, put A in shared memory"
        )
    yield from _wgmma_descriptor(op.b)


def _wgmma_descriptor(view: View) -> Iterator[str]:
    tensor = view.tensor
    if not isinstance(tensor, SharedTensor) or len(view.dims) < 2:
        return
    pitch = tensor.byte_strides[view.dims[-2]]
    if tensor.swizzle and pitch != tensor.swizzle:
        yield wrong_rows(tensor, pitch)
    elif view.dims[-1] != len(tensor.shape) - 1 or view.shape[-2] % _CORE_ROWS:
        yield f"{view} is not made of groups of eight consecutive rows"
    else:
        yield from _blocks(view, tensor, pitch)


def _tcgen05_descriptor(view: View) -> Iterator[str]:
    tensor = view.tensor
    if not isinstance(tensor, SharedTensor) or len(view.dims) < 2:
        return
    pitch = tensor.byte_strides[view.dims[-2]]
    if tensor.swizzle and pitch not in (tensor.swizzle, CORE_BYTES):
        yield wrong_rows(tensor, pitch)
    else:
        yield from _blocks(view, tensor, pitch)


def _blocks(view: View, tensor: SharedTensor, pitch: int) -> Iterator[str]:
    """Blocks of columns are as wide as the swizzle; groups of rows only PTX places as it likes."""
    if len(view.dims) > 3:
        yield f"{view} has {len(view.dims)} dimensions, the matrix of an instruction at most 3"
    elif len(view.dims) == 3 and view.shape[-1] * tensor.dtype.bytes != (tensor.swizzle or pitch):
        yield f"the blocks of {view} are not as wide as the swizzle, {tensor.swizzle} bytes"


def wrong_rows(tensor: SharedTensor, pitch: int) -> str:
    """What is wrong with an operand whose rows are no rows of a swizzle pattern.

    Without a swizzle a tensor says nothing about how its rows lie in core matrices; the simulator
    takes them one after the other, and the emitter has no descriptor for that.
    """
    return (
        f"{tensor.name} has rows of {pitch} bytes and swizzle {tensor.swizzle}; a matrix "
        "descriptor describes rows of exactly the swizzle width (32, 64 or 128 bytes)"
    )


# ---------------------------------------------------------------------- fragments


def _stored(op: TileStore, whole: Layout) -> Iterator[str]:
    if whole.row:
        yield f"{op.src.name} is one row, which every warp of the warpgroup would store"
        return
    columns = op.dst.shape[-1] if op.column is not None else whole.columns
    first = op.column or 0
    step = 8 if whole.warpgroup else 32
    partial = columns != whole.columns
    if not whole.lanes and (first % step or (partial and columns % step)):
        yield (
            f"columns {first} to {first + columns - 1} of {op.src.name}: each thread holds its "
            f"part of {step} columns, so both bounds must be multiples of {step}"
        )


def _reduced(op: TileReduce, shape: Layout) -> Iterator[str]:
    if shape.row:
        yield f"{op.src.name} is one row of a warpgroup: reduce a warp fragment"
        return
    width = op.dst.shape[1]
    step = 1 if shape.lanes else (8 if shape.warpgroup else 32)
    if width > 1 and width % step:
        yield (
            f"a reduction of {op.src.name} to {width} columns: each thread holds its part of "
            f"{step} columns, so it must be 1 or a multiple of {step}"
        )


def _row(lhs: Fragment, rhs: Fragment | Expr, layouts: dict[str, Layout]) -> Iterator[str]:
    """A right operand of one row is repeated over the rows of the left one."""
    if not isinstance(rhs, Fragment):
        return
    by_row = rhs.shape[0] == lhs.shape[0] and rhs.distribution == lhs.distribution
    left = layouts[lhs.name]
    if not by_row and layouts[rhs.name].warpgroup and (left.lanes or not left.warpgroup):
        yield (
            f"{rhs.name} is one row in the columns of wgmma's accumulators, {lhs.name} has others: "
            "use a warp fragment"
        )


def _chunks(op: CpAsync, view: View) -> Iterator[str]:
    """Threads copy chunks of a row."""
    inner = next((n for n in reversed(view.extents) if n != 1), 1)
    if op.size in (4, 8, 16) and inner * view.dtype.bytes % op.size:
        yield f"rows of {inner} {view.dtype} are not a multiple of {op.size} bytes"
