"""mbarrier instructions as inline PTX (PTX 9.7.13.15; SEMANTICS section A)."""

from __future__ import annotations

from tilesim.gpu.emit.emitter import EMIT, Emitter
from tilesim.gpu.emit.memory import mbar_address
from tilesim.gpu.emit.spelled import spell
from tilesim.gpu.emit.watch import watched_wait
from tilesim.ir.arithmetic import CType
from tilesim.ir.ops.mbarrier import (
    MbarrierArrive,
    MbarrierTestWait,
    MbarrierTryWait,
    MbarrierWait,
)
from tilesim.ir.spelling import opcode


@EMIT.rule(MbarrierArrive)
def _arrive(e: Emitter, op: MbarrierArrive) -> None:
    """The form that does not end a phase names its count always, and has no sink for the token."""
    if not op.no_complete:
        spell(e, op)
        return
    if op.token is None:
        e.names.names.setdefault("discarded_token", "discarded_token")
    token = "discarded_token" if op.token is None else e.var(op.token)
    inputs = [("r", mbar_address(e, op.mbar)), ("r", e.cast(op.count, "u32"))]
    e.asm(f"{opcode(op)} %0, [%1], %2;", inputs, [("=l", token)])


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
