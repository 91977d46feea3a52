"""Asynchronous products of a warpgroup (SEMANTICS section F)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilesim.ir import effects as fx
from tilesim.ir.expr import constant
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import OPERATIONS, Effects, Execution, Operands, operands_of
from tilesim.sim.execute.fragments import require_fence, unassigned, use_later
from tilesim.sim.execute.lanes import gather_all
from tilesim.sim.latency import mma_cycles
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.errors import FAULTS
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import footprints_of, read_elements, uniform
from tilesim.sim.machine.warpgroup import WARPS


def _applies(effects: Effects) -> bool:
    return any(isinstance(e, fx.Issues) and e.group == "wgmma" for e in effects)


OPERATIONS.append((_applies, lambda c, op, effects: products(c, [op])))


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
        op = what if isinstance(what, Op) and _applies(what.effects()) else None
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
        if w.mask != FULL or w.parts is not None:
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
                access.warp, access.turn = w, w.turn
        if not again or not races.knows_writes(memory.table.near(footprints), w.clock):
            for owner, footprint in zip(owners, footprints, strict=True):
                races.read(memory, footprint, accesses[owner], w.clock, again=again)
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
