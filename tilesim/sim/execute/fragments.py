"""Register tiles: who may access one while products use it (SEMANTICS F3, F6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesim.arith.types import numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.memory import Fragment
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import Act, Give, Operands, Take, executor
from tilesim.sim.execute.lanes import require_whole_warp
from tilesim.sim.machine.groups import FragmentUse
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Warp


def touch(w: Warp, fragment: Fragment, op: Op) -> None:
    """An ordinary access to a fragment, which is spread over all lanes: not while a wgmma uses it
    (F6), and it needs a wgmma.fence before the next wgmma that does (F3)."""
    if w.mask != FULL:
        require_whole_warp(w, op)
    touch_some(w, fragment, op)


def touch_some(w: Warp, fragment: Fragment, op: Op, *, moved: bool = False) -> None:
    """The same for registers of a fragment that the active lanes access, which may be a few.

    ``moved``: a number is only moved into them. In practice such moves may come behind the
    wgmma.fence: it names no registers, so compilers sink them, and ptxas fences again (C7519).
    """
    if moved and w.fenced and not w.machine.options.ptx:
        w.sunk[fragment.name] = op
    else:
        w.dirty.add(fragment.name)
    use = w.pending.get(fragment.name)
    if use is None:
        return
    if w.groups["wgmma"].done >= use.sequence:
        del w.pending[fragment.name]
        return
    _in_flight(w, fragment, op, use, f"accesses {fragment.name}")


def value_of(w: Warp, fragment: Fragment, op: Op) -> Any:
    """The warp's part of a fragment (None without numbers); reading it unassigned is reported."""
    touch(w, fragment, op)
    if fragment.name not in w.fragments:
        w.machine.report(
            "uninitialised-read",
            f"{w} reads fragment {fragment.name} before anything was assigned to it",
            (w.machine.participant(w, f"reads {fragment.name} by {op.mnemonic}", op),),
            fix="fill, load or compute the fragment first",
        )
        return np.zeros(fragment.warp_shape, numpy_dtype(fragment.dtype))
    return w.fragments[fragment.name]


@executor(fx.UsesFragment)
def _uses(c: Operands, op: Op, effect: fx.UsesFragment) -> Act | Give | Take:
    if effect.partly:
        return _uses_some(op, effect)
    fragment, numbers = effect.fragment, c.numbers
    name, shape = fragment.name, fragment.warp_shape
    later = effect.asynchronous

    def read(w: Warp) -> Any:
        return value_of(w, fragment, op)

    def write(w: Warp, values: Any) -> None:
        if not later:
            touch(w, fragment, op)
        w.fragments[name] = None if values is None else values.reshape(shape)

    if effect.write:
        return Take(write, effect.value) if numbers else Act(lambda w: write(w, None))
    if numbers:
        return Give(fragment, read)

    def look(w: Warp) -> None:
        read(w)

    return Act(look)


def _uses_some(op: Op, effect: fx.UsesFragment) -> Act:
    fragment, write, moved = effect.fragment, effect.write, effect.moved

    def step(w: Warp) -> None:
        touch_some(w, fragment, op, moved=moved)
        if write:
            w.fragments.setdefault(fragment.name, None)

    return Act(step)


@executor(fx.FencesFragments)
def _fences(c: Operands, op: Op, effect: fx.FencesFragments) -> Act:
    def step(w: Warp) -> None:
        w.fenced += 1
        w.dirty.clear()
        w.sunk.clear()

    return Act(step)


def _in_flight(w: Warp, fragment: Fragment, op: Op, use: FragmentUse, what: str) -> None:
    w.machine.report(
        "wgmma-order",
        f"{w} {what} while the {use.op.mnemonic} that uses it may still run (F6)",
        (
            w.machine.participant(w, f"{what} by {op.mnemonic}", op),
            w.machine.participant(w, f"issued the wgmma on {fragment.name}", use.op),
        ),
        fix="wgmma.commit_group and a wgmma.wait_group that covers it, before the access",
    )


def use_later(w: Warp, ops: Sequence[Op], effect: fx.UsesFragment, first: int) -> None:
    """Asynchronous products `in_a_row`, from number ``first`` on in their group, use a fragment.

    Only products of one shape that accumulate in it, or ones that all read it as A, may follow
    each other: otherwise the earlier one is complete, and a wgmma.fence lies in between (F3, F6).
    """
    fragment, accumulator = effect.fragment, effect.product
    use, last = w.pending.get(fragment.name), first + len(ops) - 1
    if use is not None and use.accumulator == accumulator:
        use.sequence, use.op, use.fenced = last, ops[-1], w.fenced
        return
    w.pending[fragment.name] = FragmentUse(last, ops[-1], accumulator, w.fenced)
    if use is None:
        return
    op = ops[0]
    role = "A" if accumulator is None else "D of another shape"
    if use.accumulator is None:
        role = "D"
    what = f"uses {fragment.name} as {role}"
    if w.groups["wgmma"].done < use.sequence:
        _in_flight(w, fragment, op, use, what)
    elif use.fenced == w.fenced:
        w.machine.report(
            "wgmma-order",
            f"{op.mnemonic} of {w} {what}, and no wgmma.fence orders it after the "
            f"{use.op.mnemonic} that used it before (F3)",
            (
                w.machine.participant(w, f"{what} by {op.mnemonic}", op),
                w.machine.participant(w, f"issued the wgmma on {fragment.name}", use.op),
            ),
            fix="execute wgmma.fence between the two, after the wgmma.wait_group",
        )


def require_fence(w: Warp, op: Op, uses: Sequence[fx.UsesFragment]) -> None:
    """Reports unless a wgmma.fence comes after what the warp did with these fragments (F3)."""
    for effect in uses:
        if effect.fragment.name in w.sunk:
            w.machine.lean("F3", w.sunk[effect.fragment.name])
    dirty = [e.fragment.name for e in uses if e.fragment.name in w.dirty]
    if w.fenced and not dirty:
        return
    result = uses[0].fragment.name
    why = f"{dirty[0]} was accessed since the last wgmma.fence" if dirty else "there was none yet"
    w.machine.report(
        "wgmma-order",
        f"{op.mnemonic} of {w} on {result} needs a wgmma.fence before it: {why} (F3)",
        (w.machine.participant(w, f"issues wgmma on {result}", op),),
        fix="execute wgmma.fence after the register accesses and before the first mma_async",
        kind="wgmma-order/no-fence",
    )


def unassigned(w: Warp, fragment: Fragment, op: Op) -> None:
    """Reports that a product reads what nothing was assigned to."""
    w.machine.report(
        "uninitialised-read",
        f"{op.mnemonic} of {w} reads fragment {fragment.name} before anything was assigned to it",
        (w.machine.participant(w, f"reads {fragment.name} by {op.mnemonic}", op),),
        fix="fill it first, or start an accumulation with accumulate=0 (scale-d false)",
    )
