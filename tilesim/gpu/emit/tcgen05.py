"""Fifth-generation tensor core and tensor memory as inline PTX (PTX 9.7.16; SEMANTICS section G).

Compiled, and its descriptors laid out after the PTX tables; not run on hardware so far.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesim.gpu.emit.emitter import EMIT, AsmOperand, Emitter, Operands
from tilesim.gpu.emit.memory import shared_address
from tilesim.gpu.emit.spelled import spell
from tilesim.gpu.emit.tile import name_of
from tilesim.gpu.emit.wgmma import in_role, keep, registers_of
from tilesim.ir.checks.instructions import CORE_BYTES, wrong_rows
from tilesim.ir.declarations import Fragment, SharedTensor, View
from tilesim.ir.instruction_descriptor import encode
from tilesim.ir.ops.tcgen05 import (
    LOAD_SHAPES,
    Tcgen05Cp,
    Tcgen05Ld,
    Tcgen05Shift,
    Tcgen05St,
    Tcgen05Wait,
)
from tilesim.ir.ops.tcgen05_mma import (
    METADATA_COLUMNS,
    Tcgen05Mma,
    Tcgen05MmaSp,
    Tcgen05MmaWs,
    Tcgen05Product,
)
from tilesim.ir.tensor_memory import TmemView

#: swizzle width in bytes to the descriptor's layout type
_MODE = {0: 0, 128: 2, 64: 4, 32: 6}

_DESCRIPTOR = """
// shared memory descriptor: address, leading and stride byte offset, version 1, swizzle mode
DEVICE u64 tcgen05_descriptor(u32 address, u32 leading, u32 stride, u32 mode) {
  return (u64)((address & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32
       | 1ull << 46 | (u64)mode << 61;
}"""


def _group(cta_group: int) -> str:
    return f"cta_group::{cta_group}"


def _address(e: Emitter, view: TmemView) -> AsmOperand:
    return "r", e.cast(view.address, "u32")


# ---------------------------------------------------------------------- mma


@EMIT.rule(Tcgen05Mma)
def _mma(e: Emitter, op: Tcgen05Mma) -> None:
    form = f"tcgen05.mma.{_group(op.cta_group)}.kind::{op.kind}"
    if op.scale_a is None or op.scale_b is None:
        _product(e, op, form, tail=_tail)
        return
    # these names of the block sizes are those that family targets know
    form += f".block_scale.block{16 if op.scale_vec == 4 else 32}"
    scales = (op.scale_a, op.scale_b)
    _product(
        e, op, form,
        tail=lambda o, x: "".join(f", [{x.add(*_address(e, s))}]" for s in scales) + ", p",
    )  # fmt: skip


@EMIT.rule(Tcgen05MmaSp)
def _mma_sp(e: Emitter, op: Tcgen05MmaSp) -> None:
    form = f"tcgen05.mma.sp.{_group(op.cta_group)}.kind::{op.kind}"
    address = e.cast(op.metadata.address, "u32")
    if METADATA_COLUMNS[op.kind] > 1:
        _product(e, op, form, metadata=address, tail=_tail)
        return
    # one column of a pair: the address is that of the pair, the selector says which
    address += f" + {op.selector}u" if op.selector else ""
    _product(e, op, form, metadata=f"({address}) & ~1u", selector=f"({address}) & 1u", tail=_tail)


@EMIT.rule(Tcgen05MmaWs)
def _mma_ws(e: Emitter, op: Tcgen05MmaWs) -> None:
    form = f"tcgen05.mma.ws.{_group(op.cta_group)}.kind::{op.kind}"
    _product(e, op, form, tail=lambda o, x: ", p")


def _tail(op: Tcgen05Product, operands: Operands) -> str:
    """``disable-output-lane``, ``enable-input-d`` and ``scale-input-d``."""
    assert isinstance(op, Tcgen05Mma | Tcgen05MmaSp)
    words = [operands.add("r", f"{word:#x}u") for word in op.disable_output_lane]
    mask = f", {{{', '.join(words)}}}" if words else ""
    return f"{mask}, p" + (f", {op.scale_input_d}" if op.scale_input_d else "")


def _product(
    e: Emitter, op: Tcgen05Product, form: str, *,
    tail: Callable[[Tcgen05Product, Operands], str], metadata: str = "", selector: str = "",
) -> None:  # fmt: skip
    x = Operands()
    d = x.add(*_address(e, op.d))
    if isinstance(op.a, TmemView):
        a = f"[{x.add(*_address(e, op.a))}]"
    else:
        a = x.add("l", _descriptor(e, op.a, transposed=op.a_trans))
    b = x.add("l", _descriptor(e, op.b, transposed=op.b_trans))
    sparse = f" [{x.add('r', metadata)}]," if metadata else ""
    bits = f"{encode(op):#x}u" + (f" | {selector}" if selector else "")
    instruction = x.add("r", bits)
    accumulate = x.add("r", e.cast(op.accumulate, "s32"))
    rest = tail(op, x)
    text = (
        f"{{\n.reg .pred p;\nsetp.ne.b32 p, {accumulate}, 0;\n"
        f"{form} [{d}], {a}, {b},{sparse} {instruction}{rest};\n}}"
    )
    e.asm(text, x.inputs)


def _descriptor(e: Emitter, view: View, *, transposed: bool = False) -> str:
    tensor = view.tensor
    assert isinstance(tensor, SharedTensor)
    pitch = tensor.byte_strides[view.dims[-2]]
    if not tensor.swizzle and pitch != CORE_BYTES:
        raise e.fail(wrong_rows(tensor, pitch))
    e.define("tcgen05_descriptor", _DESCRIPTOR)
    stride = 8 * pitch
    leading = stride if transposed else CORE_BYTES
    if len(view.dims) == 3:
        leading = tensor.byte_strides[view.dims[-3]]
    mode = _MODE[tensor.swizzle if pitch != CORE_BYTES else 0]
    return f"tcgen05_descriptor({shared_address(e, view)}, {leading}, {stride}, {mode})"


@EMIT.rule(Tcgen05Cp)
def _cp(e: Emitter, op: Tcgen05Cp) -> None:
    multicast = "" if op.multicast is None else f".{op.multicast}"
    form = f"tcgen05.cp.{_group(op.cta_group)}.{op.shape}{multicast}"
    e.asm(f"{form} [%0], %1;", [_address(e, op.dst), ("l", _descriptor(e, op.src))])


@EMIT.rule(Tcgen05Shift)
def _shift(e: Emitter, op: Tcgen05Shift) -> None:
    e.asm(f"tcgen05.shift.{_group(op.cta_group)}.down [%0];", [_address(e, op.dst)])


# ---------------------------------------------------------------------- registers


def _move(e: Emitter, op: Tcgen05Ld | Tcgen05St, fragment: Fragment, view: TmemView) -> str:
    """Defines and names the function that moves all registers of ``fragment``."""
    if op.shape not in ("32x32b", "16x32bx2") and not _like_wgmma(op, fragment):
        raise e.fail(
            f"fragment {fragment.name} has no layout for .{op.shape}: use .32x32b, or with a "
            "warpgroup fragment of 64 rows .16x256b for 32-bit and .16x128b for 16-bit elements"
        )
    columns, per_thread = LOAD_SHAPES[op.shape][1:]
    paired = not view.packed and view.dtype.bits == 16
    repeat = view.columns // (2 * columns if paired else columns)
    count = repeat * per_thread
    load = isinstance(op, Tcgen05Ld)
    _, constraint = registers_of(e, fragment)
    kind = {"f": "f32", "r": "u32"}[constraint]
    if fragment.dtype.name == "s32":
        kind = "s32"
    form = f"tcgen05.{'ld' if load else 'st'}.sync.aligned.{op.shape}.x{repeat}"
    form += f".{'pack' if load else 'unpack'}::16b.b32" if paired else ".b32"
    first = 0 if load else 1
    braces = "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"
    where = f"[%{count if load else 0}]"
    half = f", {op.half_split}" if op.shape == "16x32bx2" else ""
    values = ", ".join(f'"{"=" if load else ""}{constraint}"(x[{i}])' for i in range(count))
    text = f"{braces}, {where}{half}" if load else f"{where}{half}, {braces}"
    operands = f': {values} : "r"(address)' if load else f': : "r"(address), {values}'
    name = (
        form.replace(".", "_").replace("::", "_")
        + f"_{kind}"
        + (f"_{op.half_split}" if half else "")
    )
    e.define(
        name,
        f"""
DEVICE void {name}({kind} (&x)[{count}], u32 address) {{
  asm volatile("{form} {text};"
    {operands} : "memory");
}}""",
    )
    return name


def _like_wgmma(op: Tcgen05Ld | Tcgen05St, fragment: Fragment) -> bool:
    """Whether the shape moves a fragment in the layout of wgmma's accumulator: a thread has two
    neighbouring elements, in two registers of .16x256b or in one of .16x128b."""
    warpgroup = fragment.distribution == "warpgroup" and fragment.shape[0] == 64
    bits = {"16x256b": 32, "16x128b": 16}.get(op.shape)
    return warpgroup and fragment.dtype.bits == bits


@EMIT.rule(Tcgen05Ld)
def _ld(e: Emitter, op: Tcgen05Ld) -> None:
    e.whole_warp()
    registers, _ = registers_of(e, op.dst)
    e.line(f"{_move(e, op, op.dst, op.src)}({registers}, {e.cast(op.src.address, 'u32')});")


@EMIT.rule(Tcgen05St)
def _st(e: Emitter, op: Tcgen05St) -> None:
    e.whole_warp()
    registers, _ = registers_of(e, op.src)
    e.line(f"{_move(e, op, op.src, op.dst)}({registers}, {e.cast(op.dst.address, 'u32')});")


@EMIT.rule(Tcgen05Wait)
def _wait(e: Emitter, op: Tcgen05Wait) -> None:
    spell(e, op)
    if op.kind == "ld":
        loads = [o for o in in_role(e) if isinstance(o, Tcgen05Ld)]
        keep(e, list({name_of(e, o.dst): o.dst for o in loads}.values()))
