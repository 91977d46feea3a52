"""Warpgroup MMA (SEMANTICS section F): hazards on registers and shared operands, numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.expr import constant
from tilesim.ir.memory import Fragment, View
from tilesim.ir.op import Op
from tilesim.ir.ops.wgmma import WgmmaCommitGroup, WgmmaFence, WgmmaMmaAsync, WgmmaWaitGroup
from tilesim.ir.types import DType, numpy_dtype, s8, tf32, u8
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.latency import mma_cycles
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.memory import ViewAccess, read_elements, uniform
from tilesim.sim.machine.warp import FULL, Step, Warp
from tilesim.sim.ops.bar import require_converged


def touch(w: Warp, fragment: Fragment, op: Op) -> None:
    """An ordinary access to a fragment: not while a wgmma uses it (F6), and it needs a
    wgmma.fence before the next wgmma that does (F3)."""
    w.dirty.add(fragment.name)
    entry = w.pending.get(fragment.name)
    if entry is None:
        return
    sequence, mma = entry
    if w.groups["wgmma"].done >= sequence:
        del w.pending[fragment.name]
        return
    w.machine.report(
        "wgmma-order",
        f"{w} accesses {fragment.name} while the wgmma.mma_async that uses it may still run (F6)",
        (
            w.machine.participant(w, f"accesses {fragment.name} by {op.mnemonic}", op),
            w.machine.participant(w, f"issued the wgmma on {fragment.name}", mma),
        ),
        fix="wgmma.commit_group and a wgmma.wait_group that covers it, before the access",
    )


def _require_fence(w: Warp, op: WgmmaMmaAsync, fragments: list[Fragment]) -> None:
    dirty = [f.name for f in fragments if f.name in w.dirty]
    if w.fenced and not dirty:
        return
    why = f"{dirty[0]} was accessed since the last wgmma.fence" if dirty else "there was none yet"
    w.machine.report(
        "wgmma-order",
        f"wgmma.mma_async of {w} on {op.acc.name} needs a wgmma.fence before it: {why} (F3)",
        (w.machine.participant(w, f"issues wgmma on {op.acc.name}", op),),
        fix="execute wgmma.fence after the register accesses and before the first mma_async",
    )


@RULES.rule(WgmmaFence)
def _fence(c: Compiler, op: WgmmaFence) -> Step:
    def step(w: Warp) -> None:
        require_converged(w, op, aligned=True)
        w.fenced = True
        w.dirty.clear()

    return step


@RULES.rule(WgmmaMmaAsync)
def _mma(c: Compiler, op: WgmmaMmaAsync) -> Step:
    a_view = c.view(op.a) if isinstance(op.a, View) else None
    b_view = c.view(op.b)
    accumulate = c.expr(op.accumulate)
    registers = [op.acc] if isinstance(op.a, View) else [op.acc, op.a]
    cycles = mma_cycles(*op.shape)
    multiply = Multiply(op, a_view, b_view) if c.numbers else None
    always = constant(op.accumulate)
    line = op.loc.line

    def step(w: Warp) -> None:
        machine = w.machine
        if w.mask != FULL:
            require_converged(w, op, aligned=True)
        if not w.fenced or w.dirty:
            _require_fence(w, op, registers)
        group = w.groups["wgmma"]
        sequence = group.issue()
        w.collective = (w.collective * 31 + line + sequence) & 0xFFFFFFFFFFFF
        w.last_collective = op
        for fragment in registers:
            w.pending[fragment.name] = (sequence, op)
        access = Access(w, op, group.component, sequence, True, False)
        memory, read = w.cta.memory, machine.races.read
        if a_view is not None:
            read(memory, a_view.footprint(w), access, w.clock)
        read(memory, b_view.footprint(w), access, w.clock)
        if machine.timed:
            start = max(machine.env.now, w.cta.tensor_core_free)
            w.cta.tensor_core_free = group.finish = start + cycles / 4
        w.effects += 1
        keep = always if always is not None else uniform(accumulate(w), w)
        if multiply is not None:
            multiply(w, bool(keep))
        elif not keep:
            w.fragments[op.acc.name] = None

    return step


class Multiply:
    """The numbers of one warp's quarter of an mma: 16 rows of the accumulator."""

    def __init__(self, op: WgmmaMmaAsync, a: ViewAccess | None, b: ViewAccess) -> None:
        self._op = op
        self._a = a
        self._b = b
        self._wide = np.int32 if op.b.dtype in (s8, u8) else np.float32

    def __call__(self, w: Warp, keep: bool) -> None:
        op = self._op
        quarter = w.number % 4
        if self._a is None:
            assert isinstance(op.a, Fragment)
            a = w.fragments[op.a.name][:, op.a_column : op.a_column + op.shape[2]]
        else:
            a = _operand(self._a, w, transposed=op.a_trans)[16 * quarter : 16 * quarter + 16]
        b = _operand(self._b, w, transposed=op.b_trans)
        product = _wide(a, op.a.dtype, self._wide) @ _wide(b, op.b.dtype, self._wide).T
        dtype = numpy_dtype(op.acc.dtype)
        if keep:
            old = w.fragments.get(op.acc.name)
            if old is None:
                old = np.zeros(product.shape, dtype)
            product = product + old.astype(self._wide)
        w.fragments[op.acc.name] = product.astype(dtype)


def _operand(view: ViewAccess, w: Warp, *, transposed: bool) -> NDArray[Any]:
    values = read_elements(view.memory(w), view.footprint(w), view.view.dtype)
    matrix = values.reshape(view.view.shape)
    if not transposed:
        return matrix
    return np.swapaxes(matrix, -1, -2).reshape(-1, matrix.shape[-2])


def _wide(values: NDArray[Any], dtype: DType, wide: Any) -> NDArray[Any]:
    """Inputs as the type products are computed in; tf32 drops the low 13 mantissa bits."""
    if dtype is tf32:
        bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)
        return bits.view(np.float32)
    return values.astype(wide)


@RULES.rule(WgmmaCommitGroup)
def _commit(c: Compiler, op: WgmmaCommitGroup) -> Step:
    def step(w: Warp) -> None:
        w.groups["wgmma"].commit()
        w.warpgroup.commit(w, op)

    return step


@RULES.rule(WgmmaWaitGroup)
def _wait_group(c: Compiler, op: WgmmaWaitGroup) -> Step:
    def step(w: Warp) -> bool | None:
        machine, group = w.machine, w.groups["wgmma"]
        if op.pending < len(group.committed):
            if w.warpgroup.missing(w, op.pending):
                w.warpgroup.waiters.append(w)
                return machine.block(w, w.warpgroup, f"waits for {op.mnemonic}", op)
            if machine.sleep_until(w, group.finish):
                return True
            w.warpgroup.passed(w, op.pending, op)
        size = machine.components.size
        done = group.wait(op.pending)
        w.clock[size + group.component] = w.clock[2 * size + group.component] = done
        return None

    return step
