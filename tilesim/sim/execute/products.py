"""Asynchronous products of a warpgroup (SEMANTICS section F)."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.expr import constant
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import OPERATIONS, Effects, Execution, Operands, operands_of
from tilesim.sim.execute.fragments import require_fence, unassigned, use_later
from tilesim.sim.execute.lanes import require_whole_warp
from tilesim.sim.latency import mma_cycles
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import footprints_of, read_elements, uniform
from tilesim.sim.machine.warpgroup import WARPS


def _applies(effects: Effects) -> bool:
    return any(isinstance(e, fx.Issues) and e.group == "wgmma" for e in effects)


def _product(c: Operands, op: Op, effects: Effects) -> Step:
    """A product of operands in shared memory and registers, accumulated in registers.

    The four warps name the same operands in shared memory (F10); each has its part of the others.
    """
    match effects:
        case (fx.GathersWarps(), fx.UsesFragment(product=(m, n, k), keeps=keeps) as into, *rest):
            pass
        case _:
            raise TypeError(f"{op.mnemonic}: a product is of a warpgroup, and accumulates")
    uses = [into, *(e for e in rest if isinstance(e, fx.UsesFragment))]
    views = [c.view(e.view) for e in rest if isinstance(e, fx.Reads)]
    footprints_at = footprints_of(views)
    cycles = mma_cycles(m, n, k) / WARPS
    result = into.fragment.name
    always = 1 if keeps is None else constant(keeps)
    keeps_of = None if keeps is None or always is not None else c.expr(keeps)
    operands = operands_of(c, op) if c.numbers else None

    def step(w: Warp) -> None:
        machine, cta = w.machine, w.cta
        if w.mask != FULL:
            require_whole_warp(w, op)
        if not w.fenced or w.dirty:
            require_fence(w, op, uses)
        group = w.groups["wgmma"]
        sequence = group.issue()
        for use in uses:
            use_later(w, op, use, sequence)
        footprints = footprints_at(w)
        execution = w.warpgroup.together(w, op, footprints)
        access = execution.access
        if access is None:
            access = execution.access = Access(w, op, group.component, sequence, True, False)
        access.warp = w
        for footprint in footprints:
            machine.races.read(cta.memory, footprint, access, w.clock)
        if machine.timed:
            start = max(machine.env.now, cta.tensor_core_free)
            cta.tensor_core_free = group.finish = start + cycles
        w.effects += 1
        keep = always if keeps_of is None else uniform(keeps_of(w), w)
        for use in uses:
            if use.fragment.name not in w.fragments and (keep or not use.write):
                unassigned(w, use.fragment, op)
        if operands is None:
            w.fragments[result] = None
            return
        data = Execution(w, op, operands)
        for view, footprint in zip(views, footprints, strict=True):
            values = read_elements(cta.memory, footprint, view.view.dtype)
            data.gives(view.view, values.reshape(view.view.shape))
        w.fragments[result] = data.computed()

    return step


OPERATIONS.append((_applies, _product))
