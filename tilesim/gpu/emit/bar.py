"""Named barriers, warp barriers, election, setmaxnreg, exit (SEMANTICS section E)."""

from __future__ import annotations

from tilesim.gpu.emit.emitter import EMIT, AsmOperand, Emitter
from tilesim.gpu.emit.watch import blocking
from tilesim.ir.expr import Expr, constant
from tilesim.ir.ops.bar import (
    BarArrive,
    BarRed,
    BarSync,
    ElectSync,
    Exit,
    Setmaxnreg,
    SyncWarp,
)


def _form(name: str, aligned: bool) -> str:
    return f"barrier.cta.{name}{'.aligned' if aligned else ''}"


def _count(e: Emitter, threads: Expr | None, operands: list[AsmOperand], first: int = 0) -> str:
    """The operand that counts threads, a number if it is one; a register is added to ``operands``,
    of which the first has number ``first``."""
    if threads is None:
        return ""
    known = constant(threads)
    if known is not None:
        return f", {known}"
    operands.append(("r", e.cast(threads, "u32")))
    return f", %{first + len(operands) - 1}"


@EMIT.rule(BarSync)
def _sync(e: Emitter, op: BarSync) -> None:
    with blocking(e, f"named barrier {op.id}"):
        operands: list[AsmOperand] = [("r", e.cast(op.id, "u32"))]
        count = _count(e, op.threads, operands)
        e.asm(f"{_form('sync', op.aligned)} %0{count};", operands)


@EMIT.rule(BarArrive)
def _arrive(e: Emitter, op: BarArrive) -> None:
    operands: list[AsmOperand] = [("r", e.cast(op.id, "u32"))]
    count = _count(e, op.threads, operands)
    e.asm(f"{_form('arrive', op.aligned)} %0{count};", operands)


@EMIT.rule(BarRed)
def _red(e: Emitter, op: BarRed) -> None:
    aligned = ".aligned" if op.aligned else ""
    operands: list[AsmOperand] = [("r", e.cast(op.id, "u32")), ("r", e.cast(op.value, "s32"))]
    count = _count(e, op.threads, operands, first=1)
    value = "{\n.reg .pred p, q;\nsetp.ne.s32 p, %2, 0;\n"
    if op.op == "popc":
        text = f"{value}barrier.cta.red.popc{aligned}.u32 %0, %1{count}, p;\n}}"
    else:
        text = (
            f"{value}barrier.cta.red.{op.op}{aligned}.pred q, %1{count}, p;\n"
            "selp.s32 %0, 1, 0, q;\n}"
        )
    with blocking(e, f"named barrier {op.id}"):
        e.asm(text, operands, [("=r", e.var(op.result))])


@EMIT.rule(SyncWarp)
def _sync_warp(e: Emitter, op: SyncWarp) -> None:
    known = constant(op.mask)
    mask = e.cast(op.mask, "u32") if known is None else f"{known:#x}"
    e.line(f"__syncwarp({mask});")


@EMIT.rule(ElectSync)
def _elect(e: Emitter, op: ElectSync) -> None:
    helper = "elect_sync" if op.warp_sync else "elect_lane"
    e.use(helper)
    e.line(f"{e.var(op.result)} = {helper}({op.mask:#x});")


@EMIT.rule(Setmaxnreg)
def _setmaxnreg(e: Emitter, op: Setmaxnreg) -> None:
    with blocking(e, "the register pool"):
        e.asm(f"setmaxnreg.{op.action}.sync.aligned.u32 {op.count};")


@EMIT.rule(Exit)
def _exit(e: Emitter, op: Exit) -> None:
    e.line("return;")
