"""Per-lane scalars: assignment, loads, stores, atomics, shuffles (SEMANTICS H)."""

from __future__ import annotations

from tilesim.arith.types import DType
from tilesim.gpu.emit.emitter import EMIT, AsmOperand, Emitter
from tilesim.gpu.emit.expr import narrow, storage_type, widen
from tilesim.gpu.emit.memory import asm_address
from tilesim.ir.arithmetic import CType, variable_type
from tilesim.ir.expr import Expr, Var
from tilesim.ir.ops.scalar import (
    Assign,
    Atomic,
    Load,
    RedAsyncRelease,
    Shuffle,
    StAsyncRelease,
    Store,
)
from tilesim.ir.spelling import opcode

#: PTX register constraint and C type of a value of so many bits in an instruction
_REGISTER = {16: ("h", "u16"), 32: ("r", "u32"), 64: ("l", "u64")}


@EMIT.rule(Assign)
def _assign(e: Emitter, op: Assign) -> None:
    kind = e.names.type_of(op.var)
    same = e.names.type_of(op.value) == kind
    e.assign(op.var, e.expr(op.value) if same else e.cast(op.value, kind))


def _memory_type(dtype: DType) -> tuple[str, str, str]:
    """PTX type, constraint and C type of a loaded or stored element (raw bits for floats)."""
    if dtype.bits == 8:
        return "s8" if dtype.name == "s8" else "u8", "h", "s16" if dtype.name == "s8" else "u16"
    if dtype.bits == 16:
        return ("s16", "h", "s16") if dtype.name == "s16" else ("b16", "h", "u16")
    if storage_type(dtype) == "f32":
        return "f32", "f", "f32"
    if dtype.bits == 32:
        return "b32", "r", storage_type(dtype)
    return ("f64", "d", "f64") if dtype.kind == "float" else ("b64", "l", storage_type(dtype))


@EMIT.rule(Load)
def _load(e: Emitter, op: Load) -> None:
    kind, constraint, ctype = _memory_type(op.src.dtype)
    space, address = asm_address(e, op.src)
    sem = "" if op.sem == "weak" else f".{op.sem}.{op.scope}"
    target = e.names.type_of(op.var)
    text = f"ld{sem}{space}{'.nc' * op.nc}.{kind} %0, [%1];"
    narrow_register = op.var.dtype.bits < 32 and op.var.dtype.kind != "float"
    if ctype == target and not narrow_register:
        e.asm(text, [address], [(f"={constraint}", e.var(op.var))])
        return
    with e.block("{"):
        e.line(f"{ctype} raw_;")
        e.asm(text, [address], [(f"={constraint}", "raw_")])
        value = f"({storage_type(op.src.dtype)})raw_"
        e.assign(op.var, f"({target}){widen(op.src.dtype, value, e.use)}")


def _stored(e: Emitter, dtype: DType, value: Expr, ctype: str) -> str:
    """``value`` rounded to ``dtype``, as the operand of a store or atomic."""
    kind: CType = variable_type(dtype)
    converted = narrow(dtype, e.cast(value, kind), kind, e.use)
    return converted if storage_type(dtype) == ctype else f"({ctype})({converted})"


def _stored_value(e: Emitter, dtype: DType, value: Expr) -> AsmOperand:
    """``value`` as the operand of an instruction that stores an element of ``dtype``."""
    _, constraint, ctype = _memory_type(dtype)
    return constraint, _stored(e, dtype, value, ctype)


@EMIT.rule(Store)
def _store(e: Emitter, op: Store) -> None:
    kind, _, _ = _memory_type(op.dst.dtype)
    space, address = asm_address(e, op.dst)
    sem = "" if op.sem == "weak" else f".{op.sem}.{op.scope}"
    value = _stored_value(e, op.dst.dtype, op.value)
    e.asm(f"st{sem}{space}.{kind} [%0], %1;", [address, value])


@EMIT.rule(StAsyncRelease, RedAsyncRelease)
def _async_release(e: Emitter, op: StAsyncRelease | RedAsyncRelease) -> None:
    kind, _, _ = _memory_type(op.dst.dtype)
    space, address = asm_address(e, op.dst)
    value = _stored_value(e, op.dst.dtype, op.value)
    form = f"st.async.release.{op.scope}{space}.{kind}"
    if isinstance(op, RedAsyncRelease):
        form = f"red.async.release.{op.scope}{space}.add.{op.dst.dtype}"
    if op.dst.dtype.bits == 8:  # ptxas wants a register of this width
        lines = f"{{ .reg .b8 byte_; cvt.u8.u16 byte_, %1; {form} [%0], byte_; }}"
        e.asm(lines, [address, value])
        return
    e.asm(f"{form} [%0], %1;", [address, value])


@EMIT.rule(Atomic)
def _atomic(e: Emitter, op: Atomic) -> None:
    dtype = op.dst.dtype
    _, constraint, ctype = _memory_type(dtype)
    value = _stored(e, dtype, op.value, ctype)
    if op.op in ("exch", "cas") and constraint in ("f", "d"):
        constraint, ctype = _REGISTER[dtype.bits]
        value = f"{'__float_as_uint' if dtype.bits == 32 else '__double_as_longlong'}({value})"
    form = opcode(op).removeprefix("atom")
    plain = op.op not in ("exch", "cas") and op.sem in ("relaxed", "release")
    inputs: list[AsmOperand] = [asm_address(e, op.dst)[1]]
    if op.compare is not None:
        inputs.append((constraint, _stored(e, dtype, op.compare, ctype)))
    inputs.append((constraint, value))
    numbers = range(1, len(inputs))
    if op.result is None and plain:
        e.asm(f"red{form} [%0], %1;", inputs)
        return
    operands = ", ".join(f"%{n + 1}" for n in numbers)
    with e.block("{"):
        e.line(f"{ctype} old_;")
        e.asm(f"atom{form} %0, [%1], {operands};", inputs, [(f"={constraint}", "old_")])
        if op.result is not None:
            e.assign(op.result, _result(e, op.result, dtype, ctype))


def _result(e: Emitter, result: Var, dtype: DType, ctype: str) -> str:
    raw = "old_"
    if storage_type(dtype) == "f32" and ctype == "u32":
        raw = "__uint_as_float(old_)"
    elif storage_type(dtype) == "f64" and ctype == "u64":
        raw = "__longlong_as_double(old_)"
    return f"({e.names.type_of(result)}){widen(dtype, raw, e.use)}"


_SHUFFLE = {"idx": "__shfl_sync", "up": "__shfl_up_sync", "down": "__shfl_down_sync",
            "bfly": "__shfl_xor_sync"}  # fmt: skip


@EMIT.rule(Shuffle)
def _shuffle(e: Emitter, op: Shuffle) -> None:
    if op.mask is not None:
        mask = e.cast(op.mask, "u32")
    else:
        mask = "0xffffffff" if e.lanes == "all" else "__activemask()"
    kind = e.names.type_of(op.result)
    lane = e.cast(op.lane, "s32")
    e.assign(op.result, f"{_SHUFFLE[op.mode]}({mask}, {e.cast(op.value, kind)}, {lane})")
