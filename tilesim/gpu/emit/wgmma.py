"""Warpgroup MMA as inline PTX (PTX 9.7.15; SEMANTICS section F).

Shared operands are described by 64-bit matrix descriptors: address, leading and stride byte
offset, swizzle mode. Operands are the swizzled layouts that tensor copies produce: the stride byte
offset is the distance between groups of eight rows; the leading one is the distance between blocks
of columns, each as wide as the swizzle, and not used where there is one.
"""

from __future__ import annotations

from dataclasses import replace

from tilesim.arith.types import DType, f16, f32
from tilesim.gpu.emit.emitter import EMIT, Emitter
from tilesim.gpu.emit.memory import shared_address
from tilesim.gpu.emit.tile import name_of
from tilesim.ir.checks.instructions import wrong_rows
from tilesim.ir.declarations import Fragment, SharedTensor, View
from tilesim.ir.expr import Const
from tilesim.ir.op import Op
from tilesim.ir.ops.wgmma import WgmmaCommitGroup, WgmmaFence, WgmmaMmaAsync, WgmmaWaitGroup
from tilesim.ir.program import Role, Stmt, instructions, walk

#: swizzle width in bytes to the descriptor's layout type
_MODE = {128: 1, 64: 2, 32: 3}

_DESCRIPTOR = """
// matrix descriptor: address + offset, leading and stride byte offset, swizzle mode; a sum, so
// that descriptors of the same address differ by a constant
DEVICE u64 matrix_descriptor(u32 address, u32 offset, u32 leading, u32 stride, u32 mode) {
  const u32 low = ((address & 0x3ffff) >> 4) + ((offset >> 4) + (leading >> 4 << 16));
  return (u64)(stride >> 4 | mode << 30) << 32 | low;
}"""

_KEEP = """
// the compiler must not move accesses to these registers across this point
template <class T, u32 N> DEVICE void keep(T (&registers)[N]) {
#pragma unroll
  for (u32 i = 0; i < N; ++i) asm volatile("" : "+CONSTRAINT"(registers[i]) :: "memory");
}"""


def _accumulators(e: Emitter) -> list[Fragment]:
    """Fragments that a wgmma of the current role uses."""
    found: dict[str, Fragment] = {}
    for op in in_role(e):
        if isinstance(op, WgmmaMmaAsync):
            found[op.acc.name] = op.acc
    return list(found.values())


def in_role(e: Emitter) -> list[Op]:
    """Instructions of the outermost role that is being written (all if there is none)."""
    if not e.role:
        return list(instructions(e.program))
    found: list[Op] = []
    body: tuple[Stmt, ...] = e.program.body
    for stmt in walk(body):
        if isinstance(stmt, Role) and stmt.name == e.role:
            found += [s for s in walk(stmt.body) if isinstance(s, Op)]
    return found


def keep(e: Emitter, fragments: list[Fragment]) -> None:
    """Pins registers that an asynchronous instruction writes behind the compiler's back."""
    for fragment in fragments:
        registers, constraint = registers_of(e, fragment)
        name = f"keep_{constraint}"
        text = _KEEP.replace("CONSTRAINT", constraint).replace("void keep(", f"void {name}(")
        e.define(name, text)
        e.line(f"{name}({registers});")


def registers_of(e: Emitter, fragment: Fragment) -> tuple[str, str]:
    """A fragment as an array of 32-bit registers, and their constraint."""
    name = name_of(e, fragment)
    if fragment.dtype is f32:
        return name, "f"
    if fragment.dtype.bits == 32:
        return name, "r"
    return f"reinterpret_cast<u32 (&)[{e.layout(fragment).count // 2}]>({name})", "r"


@EMIT.rule(WgmmaFence)
def _fence(e: Emitter, op: WgmmaFence) -> None:
    e.whole_warp()
    keep(e, _accumulators(e))
    e.asm("wgmma.fence.sync.aligned;")


@EMIT.rule(WgmmaCommitGroup)
def _commit(e: Emitter, op: WgmmaCommitGroup) -> None:
    e.whole_warp()
    e.asm("wgmma.commit_group.sync.aligned;")


@EMIT.rule(WgmmaWaitGroup)
def _wait(e: Emitter, op: WgmmaWaitGroup) -> None:
    e.whole_warp()
    e.asm(f"wgmma.wait_group.sync.aligned {op.pending};")
    keep(e, _accumulators(e))


@EMIT.rule(WgmmaMmaAsync)
def _mma(e: Emitter, op: WgmmaMmaAsync) -> None:
    e.whole_warp()
    accumulator, _ = registers_of(e, op.acc)
    a = _a_registers(e, op) if isinstance(op.a, Fragment) else _descriptor(e, op.a, op.a_trans)
    b = _descriptor(e, op.b, op.b_trans)
    function = _function(e, op)
    e.line(f"{function}({accumulator}, {a}, {b}, {e.cast(op.accumulate, 's32')});")


def _a_registers(e: Emitter, op: WgmmaMmaAsync) -> str:
    """A from registers: the accumulator layout is A's layout for 16-bit elements."""
    assert isinstance(op.a, Fragment)
    first = f"{name_of(e, op.a)}[{op.a_column // 2}]"
    return f"reinterpret_cast<u32 (&)[4]>({first})"


def _descriptor(e: Emitter, view: View, transposed: bool) -> str:
    tensor = view.tensor
    assert isinstance(tensor, SharedTensor)
    if not tensor.swizzle:
        raise e.fail(wrong_rows(tensor, tensor.byte_strides[view.dims[-2]]))
    e.define("matrix_descriptor", _DESCRIPTOR)
    # rows are as wide as the swizzle (`tilesim.ir.checks.instructions`)
    stride = 8 * tensor.swizzle
    leading = stride if transposed else 16
    if len(view.dims) == 3:
        leading = tensor.byte_strides[view.dims[-3]]
    start, offset = _split(view, tensor)
    numbers = f"{offset}, {leading}, {stride}, {_MODE[tensor.swizzle]}"
    return f"matrix_descriptor({shared_address(e, start)}, {numbers})"


def _split(view: View, tensor: SharedTensor) -> tuple[View, int]:
    """The view without its constant indices, and what they are in bytes."""
    known = [int(x.value) if isinstance(x, Const) else 0 for x in view.offsets]
    offset = sum(n * stride for n, stride in zip(known, tensor.byte_strides, strict=True))
    rest = tuple(Const(0) if isinstance(x, Const) else x for x in view.offsets)
    return replace(view, offsets=rest), offset


def _function(e: Emitter, op: WgmmaMmaAsync) -> str:
    """Defines and names the function that issues this shape."""
    m, n, k = op.shape
    a_kind, b_kind, d_kind = op.a.dtype, op.b.dtype, op.acc.dtype
    registers_a = isinstance(op.a, Fragment)
    ctype, constraint = ("f32", "f") if d_kind is f32 else ("u32", "r")
    if d_kind.bits == 32 and d_kind is not f32:
        ctype = "s32"
    count = n // 4 if d_kind is f16 else n // 2
    variant = ("_ra" if registers_a else "") + ("_ta" if op.a_trans else "")
    variant += "_tb" if op.b_trans else ""
    name = f"wgmma_m{m}n{n}k{k}_{d_kind}_{a_kind}_{b_kind}{variant}"
    a_operands = 4 if registers_a else 1
    first = count
    a_text = _braces(first, a_operands) if registers_a else f"%{first}"
    b_text, p = f"%{first + a_operands}", f"%{first + a_operands + 1}"
    a_inputs = ", ".join(f'"r"(a[{i}])' for i in range(4)) if registers_a else '"l"(a)'
    a_type = "u32 (&a)[4]" if registers_a else "u64 a"
    form = f"wgmma.mma_async.sync.aligned.m{m}n{n}k{k}.{d_kind}.{a_kind}.{b_kind}"
    outputs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(count))
    e.define(
        name,
        f"""
DEVICE void {name}({ctype} (&d)[{count}], {a_type}, u64 b, s32 accumulate) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, {p}, 0;\\n"
    "{form}\\n"
    "{_braces(0, count)}, {a_text}, {b_text}, p{_modifiers(op, a_kind, registers_a)};\\n}}"
    : {outputs}
    : {a_inputs}, "l"(b), "r"(accumulate) : "memory");
}}""",
    )
    return name


def _braces(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def _modifiers(op: WgmmaMmaAsync, kind: DType, registers_a: bool) -> str:
    """Scales of the float kinds, and for 16-bit elements which operands are transposed."""
    if kind.kind != "float":
        return ""
    text = ", 1, 1"
    if kind.bits == 16:
        text += "" if registers_a else f", {int(op.a_trans)}"
        text += f", {int(op.b_trans)}"
    return text
