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
from tilesim.sim.execute.lanes import require_whole_warp
from tilesim.sim.latency import mma_cycles
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.groups import FragmentUse
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import ViewAccess, read_elements, uniform


def touch(w: Warp, fragment: Fragment, op: Op) -> None:
    """An ordinary access to a fragment, which is spread over all lanes: not while a wgmma uses it
    (F6), and it needs a wgmma.fence before the next wgmma that does (F3)."""
    if w.mask != FULL:
        require_whole_warp(w, op)
    touch_some(w, fragment, op)


def touch_some(w: Warp, fragment: Fragment, op: Op) -> None:
    """The same for registers of a fragment that the active lanes access, which may be a few."""
    w.dirty.add(fragment.name)
    use = w.pending.get(fragment.name)
    if use is None:
        return
    if w.groups["wgmma"].done >= use.sequence:
        del w.pending[fragment.name]
        return
    _in_flight(w, fragment, op, use, f"accesses {fragment.name}")


def _in_flight(w: Warp, fragment: Fragment, op: Op, use: FragmentUse, what: str) -> None:
    w.machine.report(
        "wgmma-order",
        f"{w} {what} while the wgmma.mma_async that uses it may still run (F6)",
        (
            w.machine.participant(w, f"{what} by {op.mnemonic}", op),
            w.machine.participant(w, f"issued the wgmma on {fragment.name}", use.op),
        ),
        fix="wgmma.commit_group and a wgmma.wait_group that covers it, before the access",
    )


def _use(
    w: Warp, op: WgmmaMmaAsync, fragment: Fragment, sequence: int,
    accumulator: tuple[int, int, int] | None,
) -> None:  # fmt: skip
    """A wgmma uses a fragment as D (then ``accumulator`` is its shape) or as A.

    Only products of one shape that accumulate in it, or ones that all read it as A, may follow
    each other: otherwise the earlier one is complete, and a wgmma.fence lies in between (F3, F6).
    """
    use = w.pending.get(fragment.name)
    if use is not None and use.accumulator == accumulator:
        use.sequence, use.op, use.fenced = sequence, op, w.fenced
        return
    w.pending[fragment.name] = FragmentUse(sequence, op, accumulator, w.fenced)
    if use is None:
        return
    role = "A" if accumulator is None else "D of another shape"
    if use.accumulator is None:
        role = "D"
    what = f"uses {fragment.name} as {role}"
    if w.groups["wgmma"].done < use.sequence:
        _in_flight(w, fragment, op, use, what)
    elif use.fenced == w.fenced:
        w.machine.report(
            "wgmma-order",
            f"wgmma.mma_async of {w} {what}, and no wgmma.fence orders it after the "
            "wgmma.mma_async that used it before (F3)",
            (
                w.machine.participant(w, f"{what} by {op.mnemonic}", op),
                w.machine.participant(w, f"issued the wgmma on {fragment.name}", use.op),
            ),
            fix="execute wgmma.fence between the two, after the wgmma.wait_group",
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


def _unassigned(w: Warp, fragment: Fragment, op: WgmmaMmaAsync) -> None:
    w.machine.report(
        "uninitialised-read",
        f"wgmma.mma_async of {w} reads fragment {fragment.name} before anything was assigned to it",
        (w.machine.participant(w, f"reads {fragment.name} by {op.mnemonic}", op),),
        fix="fill it first, or start an accumulation with accumulate=0 (scale-d false)",
    )


@RULES.rule(WgmmaFence)
def _fence(c: Compiler, op: WgmmaFence) -> Step:
    def step(w: Warp) -> None:
        require_whole_warp(w, op)
        w.warpgroup.together(w, op)
        w.fenced += 1
        w.dirty.clear()

    return step


@RULES.rule(WgmmaMmaAsync)
def _mma(c: Compiler, op: WgmmaMmaAsync) -> Step:
    a_view = c.view(op.a) if isinstance(op.a, View) else None
    b_view = c.view(op.b)
    accumulate = c.expr(op.accumulate)
    a_registers = op.a if isinstance(op.a, Fragment) else None
    registers = [op.acc] if a_registers is None else [op.acc, a_registers]
    cycles = mma_cycles(*op.shape)
    multiply = Multiply(op, a_view, b_view) if c.numbers else None
    always, shape = constant(op.accumulate), op.shape

    def step(w: Warp) -> None:
        machine = w.machine
        if w.mask != FULL:
            require_whole_warp(w, op)
        if not w.fenced or w.dirty:
            _require_fence(w, op, registers)
        group = w.groups["wgmma"]
        sequence = group.issue()
        _use(w, op, op.acc, sequence, shape)
        if a_registers is not None:
            _use(w, op, a_registers, sequence, None)
        access = Access(w, op, group.component, sequence, True, False)
        memory, read, b = w.cta.memory, machine.races.read, b_view.footprint(w)
        if a_view is None:
            w.warpgroup.together(w, op, b)
        else:
            a = a_view.footprint(w)
            w.warpgroup.together(w, op, a, b)
            read(memory, a, access, w.clock)
        read(memory, b, access, w.clock)
        if machine.timed:
            start = max(machine.env.now, w.cta.tensor_core_free)
            w.cta.tensor_core_free = group.finish = start + cycles / 4
        w.effects += 1
        keep = always if always is not None else uniform(accumulate(w), w)
        for fragment in registers:
            if fragment.name not in w.fragments and (keep or fragment is a_registers):
                _unassigned(w, fragment, op)
        if multiply is not None:
            multiply(w, bool(keep))
        else:
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
            a = w.fragments.get(op.a.name)
            if a is None:
                a = np.zeros(op.a.warp_shape, numpy_dtype(op.a.dtype))
            a = a[:, op.a_column : op.a_column + op.shape[2]]
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
        require_whole_warp(w, op)
        w.warpgroup.together(w, op)
        w.groups["wgmma"].commit()
        w.warpgroup.commit(w, op)

    return step


@RULES.rule(WgmmaWaitGroup)
def _wait_group(c: Compiler, op: WgmmaWaitGroup) -> Step:
    def step(w: Warp) -> bool | None:
        require_whole_warp(w, op)
        machine, group = w.machine, w.groups["wgmma"]
        if op.pending < len(group.committed):
            if w.warpgroup.missing(w, op.pending):
                w.warpgroup.waiters.append(w)
                return machine.block(w, w.warpgroup, f"waits for {op.mnemonic}", op)
            if machine.sleep_until(w, group.finish):
                return True
            w.warpgroup.passed(w, op.pending, op)
        w.warpgroup.together(w, op)
        size = machine.components.size
        done = group.wait(op.pending)
        w.clock[size + group.component] = w.clock[2 * size + group.component] = done
        return None

    return step
