"""Each instruction by itself, and what one kernel may combine.

By itself: operands, target, alignment of shared addresses, and whether it has an encoding. What
runs in the simulator has one, and what has none is refused at the line that asks for it, whether
the program is checked, run or emitted.

Together: only multimem operations go to multimem addresses (SEMANTICS H20), and one kernel combines
only some instructions of fifth-generation tensor cores (SEMANTICS G).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tilesim.errors import Diagnostic
from tilesim.ir.arithmetic import is_float
from tilesim.ir.declarations import Fragment, SharedTensor, TensorMap, View
from tilesim.ir.effects import (
    Arrives,
    Completes,
    Effect,
    Expects,
    InitsMbarrier,
    UsesFragment,
    Waits,
)
from tilesim.ir.expr import Base, Expr, constant, walk
from tilesim.ir.fragments import Layout, by_lane, layout_of, layout_problem
from tilesim.ir.op import ANNOTATIONS, Op
from tilesim.ir.ops.bulk import BulkLoad, BulkLoadIgnoring, BulkReduce, BulkStore
from tilesim.ir.ops.cp_async import CpAsync
from tilesim.ir.ops.tcgen05 import Tcgen05Cp
from tilesim.ir.ops.tcgen05_mma import Tcgen05Mma, Tcgen05MmaSp, Tcgen05MmaWs
from tilesim.ir.ops.tile import TileFma, TileReduce, TileStore, TileZip
from tilesim.ir.ops.tma import TmaLoad, TmaReduce, TmaStore
from tilesim.ir.ops.wgmma import WgmmaMmaAsync
from tilesim.ir.program import Program, instructions
from tilesim.ir.registers import operands
from tilesim.ir.target import TARGETS

_RULE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")


def check_operands(program: Program) -> Iterator[Diagnostic]:
    """What `Op.verify` says of each instruction; a leading ``rule: `` names the rule."""
    for op in instructions(program):
        for text in op.verify():
            head, colon, rest = text.partition(": ")
            if colon and _RULE.match(head):
                yield Diagnostic(head, rest, op.loc)
            else:
                yield Diagnostic("operand", f"{op.mnemonic}: {text}", op.loc)


def check_counts(program: Program) -> Iterator[Diagnostic]:
    """What counts or names a phase of an mbarrier is an integer; Python's ``/`` makes a float."""
    for op in instructions(program):
        for effect in op.effects():
            for what, expr in _counting(effect):
                if expr is not None and is_float(expr):
                    said = (
                        f"{op.mnemonic}: {what} {expr} is a floating-point number, not an integer"
                    )
                    yield Diagnostic("operand", said, op.loc, "divide integers with //")


def _counting(effect: Effect) -> Iterator[tuple[str, Expr | None]]:
    match effect:
        case InitsMbarrier(count=count):
            yield "count", count
        case Arrives(count=count, bytes=size):
            yield from (("count", count), ("bytes", size))
        case Expects(bytes=size) | Completes(bytes=size):
            yield "bytes", size
        case Waits(phase=phase):
            yield "phase", phase
        case _:
            pass


def check_target(program: Program) -> Iterator[Diagnostic]:
    """The target has every instruction; each lacking feature is named once, where it starts."""
    target = program.target
    missing: dict[str, Op] = {}
    for op in instructions(program):
        for feature in sorted(op.needs - target.features):
            missing.setdefault(feature, op)
    for feature, op in missing.items():
        having = [t.name for t in TARGETS.values() if feature in t.features]
        yield Diagnostic(
            "target", f"{target} has no {op.mnemonic} ({feature})", op.loc,
            f"targets that have it: {', '.join(having)}" if having else "no target has it",
        )  # fmt: skip


def check_alignment(program: Program) -> Iterator[Diagnostic]:
    """Shared addresses of bulk copies: 128 bytes for tensor maps of any rank, 16 otherwise.

    An H200 faults on a 1-D map at 16 bytes, too (B6, U10).
    """
    for op in instructions(program):
        match op:
            case TmaLoad(dst=view) | TmaStore(src=view) | TmaReduce(src=view):
                need = 128
            case (
                BulkLoad(dst=view) | BulkLoadIgnoring(dst=view)
                | BulkStore(src=view) | BulkReduce(src=view)
            ):  # fmt: skip
                need = 16
            case _:
                continue
        if not isinstance(view.tensor, SharedTensor):
            continue
        address = _known_address(program, view)
        if address is not None and address % need:
            yield Diagnostic(
                "out-of-bounds",
                f"{op.mnemonic}: {view} starts at shared address {address}, which is not "
                f"{need}-byte aligned (B6, U10)",
                op.loc,
                f"align {view.tensor.name} and its stages to {need} bytes",
            )


def _known_address(program: Program, view: View) -> int | None:
    """The view's first byte; None where only a run knows it, which asks the same of it."""
    address = program.placement.get(view.tensor.name)
    for offset, stride in zip(view.offsets, view.tensor.byte_strides, strict=True):
        known = constant(offset)
        if address is None or known is None:
            return None
        address += known * stride
    return address


#: rows of a core matrix, and their bytes where there is no swizzle (F10)
_CORE_ROWS, CORE_BYTES = 8, 16


# ---------------------------------------------------------- what no machine instruction can express


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
            f"A fragment {op.a.name} is {op.a.dtype}; wgmma takes A from a "
            "fragment only if its elements have 16 bits; put A in shared memory"
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


# ------------------------------------------------------------------ multimem addresses (H20)


def check_multimem(program: Program) -> Iterator[Diagnostic]:
    """Nothing else names a tensor that lies in several devices."""
    there = {t.name for t in program.tensors if t.devices != 1}
    for tensor in program.tensors:
        if tensor.devices < 1:
            text = f"{tensor.name} lies in {tensor.devices} devices"
            yield Diagnostic("operand", text, tensor.loc)
    if not there:
        return
    for op in instructions(program):
        wrong = next((name for name in _named(op) if name in there), None)
        if wrong is not None:
            yield Diagnostic(
                "operand",
                f"{op.mnemonic}: {wrong} is a multimem address, which only multimem operations may "
                "access (H20)",
                op.loc,
                "use a multimem operation, or access this device's copy through an ordinary tensor",
            )


def _named(op: Op) -> Iterator[str]:
    """The declarations that an instruction may not name if they lie in several devices."""
    allowed = op.mnemonic.startswith("multimem.")
    for name, value in vars(op).items():
        if name in ANNOTATIONS:
            continue
        if isinstance(value, TensorMap) or (isinstance(value, View) and not allowed):
            tensor = value.tensor
            yield tensor.name
    for operand in operands(op):
        yield from (part.name for part in walk(operand) if isinstance(part, Base))


# ---------------------------------------------------------------- fifth-generation tensor cores (G)


def check_tcgen05(program: Program) -> Iterator[Diagnostic]:
    """One cta_group per kernel (G2), pairs in the cluster (G10), kinds the target has (G1)."""
    grouped = [op for op in instructions(program) if op.mnemonic.startswith("tcgen05")]
    grouped = [op for op in grouped if hasattr(op, "cta_group")]
    if grouped:
        yield from _groups(program, grouped)
    integer = next((op for op in grouped if getattr(op, "kind", "") == "i8"), None)
    scaled = next((op for op in grouped if getattr(op, "scale_input_d", 0)), None)
    features = program.target.features
    if scaled is not None and "tcgen05" in features and "tcgen05.scale_input_d" not in features:
        yield Diagnostic(
            "target", f"{program.target} has no scale-input-d of {scaled.mnemonic} (G1)",
            scaled.loc, "targets that have it: sm_100a, sm_100f, sm_103a",
        )  # fmt: skip
    if integer is not None and "tcgen05" in features and "tcgen05.i8" not in features:
        yield Diagnostic(
            "target", f"{program.target} has no {integer.mnemonic}.kind::i8 (G1)", integer.loc,
            "targets that have it: sm_100a, sm_110a",
        )  # fmt: skip


def check_paired_copies(program: Program) -> Iterator[Diagnostic]:
    """Tensor copies of a CTA pair exist where tcgen05 does (B26)."""
    paired = [op for op in instructions(program) if isinstance(op, TmaLoad) and op.cta_group == 2]
    if paired and "cta_group" not in program.target.features:
        yield Diagnostic(
            "target", f"{program.target} has no {paired[0].mnemonic}.cta_group::2 (B26)",
            paired[0].loc, "targets that have it are those with tcgen05",
        )  # fmt: skip


def _groups(program: Program, grouped: list[Op]) -> Iterator[Diagnostic]:
    first = grouped[0]
    group = getattr(first, "cta_group", 1)
    other = next((op for op in grouped if getattr(op, "cta_group", group) != group), None)
    if other is not None:
        yield Diagnostic(
            "operand",
            f"{other.mnemonic}.cta_group::{3 - group} in a kernel that has "
            f"{first.mnemonic}.cta_group::{group} at {first.loc} (G2)",
            other.loc,
            "use one cta_group in all tcgen05 instructions of a kernel",
        )
    paired = next((op for op in grouped if getattr(op, "cta_group", 1) == 2), None)
    if paired is not None and program.cluster_size % 2:
        yield Diagnostic(
            "launch",
            f"{paired.mnemonic}.cta_group::2 in clusters of {program.cluster_size} CTAs: a pair is "
            "two CTAs of a cluster whose ranks differ in bit 0 (G10)",
            paired.loc,
            "launch with an even number of CTAs per cluster",
        )
