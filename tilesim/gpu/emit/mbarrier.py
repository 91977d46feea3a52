"""mbarrier instructions as inline PTX (PTX 9.7.13.15; SEMANTICS section A)."""

from __future__ import annotations

from tilesim.gpu.emit.emitter import EMIT, AsmOperand, Emitter
from tilesim.gpu.emit.memory import mbar_address, mbar_space
from tilesim.gpu.emit.watch import watched_wait
from tilesim.ir.arithmetic import CType
from tilesim.ir.declarations import Mbar
from tilesim.ir.expr import Expr, Var, constant
from tilesim.ir.ops.mbarrier import (
    FenceMbarrierInit,
    MbarrierArrive,
    MbarrierArriveDrop,
    MbarrierArriveExpectTx,
    MbarrierCompleteTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierInval,
    MbarrierPendingCount,
    MbarrierTestWait,
    MbarrierTryWait,
    MbarrierWait,
)


@EMIT.rule(MbarrierInit)
def _init(e: Emitter, op: MbarrierInit) -> None:
    operands = [("r", mbar_address(e, op.mbar)), ("r", e.cast(op.count, "u32"))]
    e.asm("mbarrier.init.shared::cta.b64 [%0], %1;", operands)


@EMIT.rule(MbarrierInval)
def _inval(e: Emitter, op: MbarrierInval) -> None:
    e.asm("mbarrier.inval.shared::cta.b64 [%0];", [("r", mbar_address(e, op.mbar))])


def _arrive_on(e: Emitter, name: str, mbar: Mbar, operand: Expr | None, token: Var | None) -> None:
    """``name.space.b64 token, [mbar], operand``; ``_`` is the sink for a token that is not used."""
    inputs: list[AsmOperand] = [("r", mbar_address(e, mbar))]
    if operand is not None:
        inputs.append(("r", e.cast(operand, "u32")))
    outputs: list[AsmOperand] = [] if token is None else [("=l", e.var(token))]
    first = len(outputs)
    sink = "_" if token is None else "%0"
    rest = "" if operand is None else f", %{first + 1}"
    e.asm(f"{name}{mbar_space(mbar)}.b64 {sink}, [%{first}]{rest};", inputs, outputs)


@EMIT.rule(MbarrierArrive)
def _arrive(e: Emitter, op: MbarrierArrive) -> None:
    if op.no_complete:
        token = _discarded(e) if op.token is None else op.token
        _arrive_on(e, "mbarrier.arrive.noComplete.release.cta", op.mbar, op.count, token)
        return
    count = None if constant(op.count) == 1 else op.count
    _arrive_on(e, f"mbarrier.arrive.{op.sem}.{op.scope}", op.mbar, count, op.token)


def _discarded(e: Emitter) -> Var:
    """A variable for the token of a form that has no sink."""
    e.names.names.setdefault("discarded_token", "discarded_token")
    return Var("discarded_token")


@EMIT.rule(MbarrierArriveExpectTx)
def _arrive_expect_tx(e: Emitter, op: MbarrierArriveExpectTx) -> None:
    _arrive_on(e, f"mbarrier.arrive.expect_tx.{op.sem}.{op.scope}", op.mbar, op.bytes, op.token)


@EMIT.rule(MbarrierArriveDrop)
def _arrive_drop(e: Emitter, op: MbarrierArriveDrop) -> None:
    name = "mbarrier.arrive_drop" if op.bytes is None else "mbarrier.arrive_drop.expect_tx"
    operand = op.count if op.bytes is None else op.bytes
    _arrive_on(e, f"{name}.{op.sem}.{op.scope}", op.mbar, operand, op.token)


@EMIT.rule(MbarrierExpectTx, MbarrierCompleteTx)
def _transaction(e: Emitter, op: MbarrierExpectTx | MbarrierCompleteTx) -> None:
    operands = [("r", mbar_address(e, op.mbar)), ("r", e.cast(op.bytes, "u32"))]
    e.asm(f"{op.mnemonic}.relaxed.{op.scope}{mbar_space(op.mbar)}.b64 [%0], %1;", operands)


def _query(
    e: Emitter, op: MbarrierWait | MbarrierTryWait | MbarrierTestWait, name: str, hint: int | None
) -> str:
    """A call of the helper that executes one test_wait or try_wait; its value is 0 or 1."""
    form = f"{name}{'.parity' if op.parity else ''}.{op.sem}.{op.scope}"
    function = form.replace(".", "_")
    kind: CType = "u32" if op.parity else "u64"
    constraint = "r" if op.parity else "l"
    extra = "" if hint is None else f", {hint}"
    if hint is not None:
        function += f"_{hint}ns"
    e.define(
        function,
        f"""
DEVICE u32 {function}(u32 mbar, {kind} phase) {{
  u32 done;
  asm volatile("{{\\n.reg .pred p;\\n{form}.shared::cta.b64 p, [%1], %2{extra};\\n"
               "selp.u32 %0, 1, 0, p;\\n}}"
               : "=r"(done) : "r"(mbar), "{constraint}"(phase) : "memory");
  return done;
}}""",
    )
    return f"{function}({mbar_address(e, op.mbar)}, {e.cast(op.phase, kind)})"


@EMIT.rule(MbarrierWait)
def _wait(e: Emitter, op: MbarrierWait) -> None:
    query = _query(e, op, "mbarrier.try_wait", None)
    if e.options.watchdog:
        watched_wait(e, op.mbar, op.phase, query)
    else:
        e.line(f"while (!{query}) {{}}")


def _poll(e: Emitter, op: MbarrierTestWait | MbarrierTryWait, query: str) -> None:
    """One answer per warp, as in the simulator: yes if every lane's own query said so."""
    answer = f"__all_sync(0xffffffff, {query})" if e.lanes == "all" else query
    e.line(f"{e.var(op.result)} = {answer};")


@EMIT.rule(MbarrierTestWait)
def _test_wait(e: Emitter, op: MbarrierTestWait) -> None:
    _poll(e, op, _query(e, op, "mbarrier.test_wait", None))


@EMIT.rule(MbarrierTryWait)
def _try_wait(e: Emitter, op: MbarrierTryWait) -> None:
    _poll(e, op, _query(e, op, "mbarrier.try_wait", op.time_hint))


@EMIT.rule(MbarrierPendingCount)
def _pending_count(e: Emitter, op: MbarrierPendingCount) -> None:
    e.define(
        "mbarrier_pending_count",
        """
DEVICE u32 mbarrier_pending_count(u64 token) {
  u32 count;
  asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(count) : "l"(token));
  return count;
}""",
    )
    e.line(f"{e.var(op.result)} = mbarrier_pending_count({e.cast(op.token, 'u64')});")


@EMIT.rule(FenceMbarrierInit)
def _fence_init(e: Emitter, op: FenceMbarrierInit) -> None:
    e.asm("fence.mbarrier_init.release.cluster;")
