"""Asynchronous products of a warpgroup, and access to their register tiles (SEMANTICS F)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilesim.arith.types import numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.declarations import Fragment
from tilesim.ir.expr import constant
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.machine.async_groups import FragmentUse
from tilesim.sim.machine.compose import (
    Act,
    Effects,
    Execution,
    Give,
    Take,
    executor,
    operands_of,
    operation,
    with_effect,
)
from tilesim.sim.machine.errors import FAULTS
from tilesim.sim.machine.execute.lanes import gather_all, require_whole_warp
from tilesim.sim.machine.footprint import Access
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.schedule import mma_cycles
from tilesim.sim.machine.view_access import footprints_of, read_elements, uniform
from tilesim.sim.machine.warpgroup import WARPS


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
        unassigned(w, fragment, op)
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
        part = value_of(w, fragment, op)  # None: of registers whose numbers are not computed
        return np.zeros(shape, numpy_dtype(fragment.dtype)) if part is None else part

    def look(w: Warp) -> None:
        value_of(w, fragment, op)

    def write(w: Warp, values: Any) -> None:
        if not later:
            touch(w, fragment, op)
        w.fragments[name] = None if values is None else values.reshape(shape)

    if effect.write:
        return Take(write, effect.value) if numbers else Act(lambda w: write(w, None))
    return Give(fragment, read) if numbers else Act(look)


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
        ((w, f"{what} by {op.mnemonic}", op), (w, f"issued the wgmma on {fragment.name}", use.op)),
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
                (w, f"{what} by {op.mnemonic}", op),
                (w, f"issued the wgmma on {fragment.name}", use.op),
            ),
            fix="execute wgmma.fence between the two, after the wgmma.wait_group",
        )


def require_fence(w: Warp, op: Op, uses: Sequence[fx.UsesFragment]) -> None:
    """Reports unless a wgmma.fence comes after what the warp did with these fragments (F3)."""
    for effect in uses:
        if effect.fragment.name in w.sunk:
            w.machine.lean("F3", w.sunk[effect.fragment.name], surely=True)
    dirty = [e.fragment.name for e in uses if e.fragment.name in w.dirty]
    if w.fenced and not dirty:
        return
    result = uses[0].fragment.name
    why = f"{dirty[0]} was accessed since the last wgmma.fence" if dirty else "there was none yet"
    w.machine.report(
        "wgmma-order",
        f"{op.mnemonic} of {w} on {result} needs a wgmma.fence before it: {why} (F3)",
        ((w, f"issues wgmma on {result}", op),),
        fix="execute wgmma.fence after the register accesses and before the first mma_async",
        kind="wgmma-order/no-fence",
    )


def unassigned(w: Warp, fragment: Fragment, op: Op) -> None:
    """Reports that an instruction reads what nothing was assigned to."""
    w.machine.report(
        "uninitialised-read",
        f"{op.mnemonic} of {w} reads fragment {fragment.name} before anything was assigned to it",
        ((w, f"reads {fragment.name} by {op.mnemonic}", op),),
        fix="fill, load or compute it first, or begin a sum with accumulate=0 (scale-d false)",
    )


# ------------------------------------------------------------------ products (section F)


_is_product = with_effect(fx.Issues, group="wgmma")


@operation(_is_product)
def _product(c: Operands, op: Op, effects: Effects) -> Step:
    return products(c, [op])


@dataclass(frozen=True)
class _Parts:
    """What a product uses: register tiles, the first of which is the result, and shared memory."""

    uses: tuple[fx.UsesFragment, ...]
    reads: tuple[fx.Reads, ...]

    @classmethod
    def of(cls, op: Op) -> _Parts:
        """Those of an instruction.

        Raises:
            TypeError: it is no product of a warpgroup that accumulates.
        """
        match op.effects():
            case (fx.GathersWarps(), fx.UsesFragment(product=(_, _, _)) as into, *rest):
                uses = (into, *(e for e in rest if isinstance(e, fx.UsesFragment)))
                return cls(uses, tuple(e for e in rest if isinstance(e, fx.Reads)))
            case _:
                raise TypeError(f"{op.mnemonic}: a product is of a warpgroup, and accumulates")

    @property
    def always(self) -> int | None:
        """Whether it adds to what its result was; None if that is not known."""
        keeps = self.uses[0].keeps
        known = 1 if keeps is None else constant(keeps)
        return None if known is None else int(known)

    def continues(self, other: _Parts) -> bool:
        """Whether it adds to the result of ``other``, and uses nothing else in registers."""
        tiles = [[(use.fragment, use.product) for use in parts.uses] for parts in (self, other)]
        return bool(self.always) and tiles[0] == tiles[1]


def in_a_row(mir: Mir) -> Iterator[tuple[range, list[Op]]]:
    """Where several products follow each other that add to one result, and these."""
    row: list[Op] = []
    before: _Parts | None = None
    for number, instruction in enumerate((*mir.code, None)):
        what = None if instruction is None or instruction.guard is not None else instruction.what
        op = what if isinstance(what, Op) and _is_product(what.effects()) else None
        parts = None if op is None else _Parts.of(op)
        if parts is None or before is None or not parts.continues(before):
            if len(row) > 1:
                yield range(number - len(row), number), row
            row = []
        if op is not None:
            row.append(op)
        before = parts


def products(c: Operands, ops: Sequence[Op]) -> Step:
    """One product, or several `in_a_row`.

    The four warps name the same operands in shared memory (F10); each has its part of the others.
    """
    op, count, each = ops[0], len(ops), [_Parts.of(op) for op in ops]
    uses, always = each[0].uses, each[0].always
    result, keeps, shape = uses[0].fragment.name, uses[0].keeps, uses[0].product
    assert shape is not None
    keeps_of = None if keeps is None or always is not None else c.expr(keeps)
    cycles = mma_cycles(*shape) / WARPS * count
    views = [[c.view(e.view) for e in parts.reads] for parts in each]
    flat = [view for own in views for view in own]
    footprints_at = footprints_of(flat)
    #: of each operand, the product that it belongs to
    owners = [number for number, own in enumerate(views) for _ in own]
    operands = [operands_of(c, op) for op in ops] if c.numbers else None

    def step(w: Warp) -> None:
        machine, cta = w.machine, w.cta
        if w.mask != FULL or w.may_divide:
            gather_all(w, op)
        if not w.fenced or w.dirty or w.sunk:
            for product in ops:
                require_fence(w, product, uses)
        group = w.groups["wgmma"]
        first = group.issue(count)
        for use in uses:
            use_later(w, ops, use, first)
        try:
            footprints = footprints_at(w)
        except FAULTS:
            for own in views:
                footprints_of(own)(w)
                w.pc += 1
            raise
        execution = w.warpgroup.together(w, ops, footprints)
        memory, races = cta.memory, machine.races
        accesses, again = execution.accesses, bool(execution.accesses)
        if not again:
            for number, product in enumerate(ops, first):
                accesses.append(Access(w, product, group.component, number, True, False))
        else:
            for access in accesses:
                access.warp, access.iteration = w, w.iteration
        ordered = races.knows_writes(memory.table.overlapping(footprints), w.clock)
        if not (again and ordered):
            for owner, footprint in zip(owners, footprints, strict=True):
                access = accesses[owner]
                races.read(memory, footprint, access, w.clock, again=again, ordered=ordered)
        if machine.timed:
            start = max(machine.env.now, cta.tensor_core_free)
            cta.tensor_core_free = group.finish = start + cycles
        w.effects += count
        w.executed += count - 1
        w.pc += count - 1
        keep = always if keeps_of is None else uniform(keeps_of(w), w)
        for use in uses:
            if use.fragment.name not in w.fragments and (keep or not use.write):
                unassigned(w, use.fragment, op)
        if operands is None:
            w.fragments[result] = None
            return
        if not execution.values:
            for view, footprint in zip(flat, footprints, strict=True):
                dtype = view.view.dtype
                values = read_elements(cta.memory, footprint, dtype).reshape(view.view.shape)
                # in a type that holds all of them: each warp computes with that
                wide = np.float32 if dtype.kind == "float" else np.int32
                execution.values.append(values.astype(wide, copy=False))
        found = iter(execution.values)
        for product, scalars, own in zip(ops, operands, views, strict=True):
            data = Execution(w, product, scalars)
            for view in own:
                data.gives(view.view, next(found))
            w.fragments[result] = data.computed()

    return step
