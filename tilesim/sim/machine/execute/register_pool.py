"""The register pool of a CTA, and what the warps of a warpgroup do alike with it (E13-E18)."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.machine.compose import Act, executor
from tilesim.sim.machine.errors import BarrierError
from tilesim.sim.machine.execute.lanes import require_whole_warp
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.register_pool import Adjustment, Change
from tilesim.sim.machine.warp import Agent
from tilesim.sim.machine.warpgroup import WARPS


@executor(fx.Registers)
def _registers(c: Operands, op: Op, effect: fx.Registers) -> Act:
    count, increase = effect.count, effect.increase
    change = Change(op, count, increase)

    def step(w: Warp) -> bool | None:
        require_whole_warp(w, op)
        w.gather()
        pool = w.cta.pool
        held = w.registers_held or pool.launch
        late = _not_synchronised(w)
        # in practice one that changes nothing is harmless (NVIDIA/Fuser#5076 repeats its own)
        if late is not None and not (count == held and w.machine.accepts("E15", op)):
            _report_not_synchronised(w, change, *late)
        _check_warpgroup(w, change)
        _check_direction(w, change, held)
        w.machine.note("write", ("registers", w.cta.index), w, op, f"executes {change}")
        if not increase:
            pool.give(w, 32 * (held - count))
            pool.wake_waiters()
        elif not pool.take(w, op, 32 * (count - held)):
            text = f"waits for {32 * (count - held)} registers ({change.name})"
            return w.block(pool, text, op)
        w.registers_held = count
        w.last_collective = op
        w.effects += 1
        _note_adjustment(w, change)
        # what follows one of its lanes from here on follows the change
        w.gather()
        return None

    return Act(step, blocks=True)


def _check_direction(w: Warp, change: Change, held: int) -> None:
    """A count may stay as it is, but not change the other way (E13)."""
    if change.count >= held if change.increase else change.count <= held:
        return
    raise BarrierError(
        "register-pool",
        f"{change.name} to {change.count} by {w}, which holds {held} registers per thread (E13)",
        f"{change.name} needs a count {'at least' if change.increase else 'at most'} the current "
        "one",
    )


def _check_warpgroup(w: Warp, change: Change) -> None:
    """The n-th setmaxnreg is the same in all warps of a warpgroup (E15).

    In practice each warp gives back what it names, as roles of single warps do: CUTLASS's attention
    (example 77) and CuTe DSL's product of mixed inputs leave 24 registers to the warp that has no
    role, and more to those that load, multiply and store.
    """
    group, number = w.warpgroup, w.setmaxnreg_count
    first = group.adjustments.get(number, [None])[0]
    if first is None:
        if len(group.warps) < WARPS and not w.machine.accepts("E15", change.op):
            w.machine.report(
                "participation",
                f"{change.name} of {w}: its warpgroup has {len(group.warps)} warps in "
                f"this CTA, and all {WARPS} execute it (E15)",
                ((w, f"executes {change.name}", change.op),),
                fix="launch a multiple of four warps",
            )
        return
    before = first.change
    if (before.count, before.increase) != (change.count, change.increase):
        gives = not (before.increase or change.increase)
        if gives and w.machine.accepts("E15", change.op, before.op):
            return
        w.machine.report(
            "participation",
            f"the warps of warpgroup {w.number // WARPS} execute different {change.op.mnemonic}: "
            f"{change.short} and {before.short} (E15)",
            ((w, f"executes {change}", change.op), (first.warp, f"executes {before}", before.op)),
            fix="execute one setmaxnreg in all four warps of the warpgroup",
        )


def _not_synchronised(w: Warp) -> tuple[Agent, Change] | None:
    """A warp of the warpgroup that has not synchronised with ``w`` since its previous setmaxnreg,
    and that one (E15); None if all have."""
    group, number = w.warpgroup, w.setmaxnreg_count - 1
    if number < 0:
        return None
    done = {a.warp: a for a in group.adjustments[number]}
    for other in group.warps:
        before = done.get(other)
        if before is None or w.clock[before.component] < before.tick:
            return other, (done[w] if before is None else before).change
    return None


def _report_not_synchronised(w: Warp, change: Change, other: Agent, where: Change) -> None:
    w.machine.report(
        "participation",
        f"{w} executes {change} without knowing that {other} has "
        f"executed the one before, {where} at {where.op.loc}: the warps of a warpgroup "
        "synchronise in between (E15)",
        ((w, f"executes {change}", change.op), (other, f"executes {where}", where.op)),
        fix="put a barrier of the warpgroup (bar.sync id, 128) between two setmaxnreg",
    )


def _note_adjustment(w: Warp, change: Change) -> None:
    group, number = w.warpgroup, w.setmaxnreg_count
    w.setmaxnreg_count += 1
    made = group.adjustments.setdefault(number, [])
    made.append(Adjustment(w, change, w.component, w.moment))
    if len(made) < len(group.warps):
        return
    group.adjustments.pop(number - 1, None)
    _require_one_site(w, made)


def _require_one_site(w: Warp, made: list[Adjustment]) -> None:
    """Strict reading of .aligned (U16): the four warps execute one static instruction."""
    sites = {a.change.op.number: a for a in reversed(made)}
    if len(sites) == 1 or w.machine.accepts("U16", *(a.change.op for a in sites.values())):
        return
    w.machine.report(
        "participation",
        f"the warps of warpgroup {w.number // WARPS} execute one setmaxnreg.sync.aligned at "
        f"{len(sites)} places in the code (E15)",
        tuple((a.warp, f"executes {a.change}", a.change.op) for a in sites.values()),
        fix="execute one setmaxnreg in all four warps of the warpgroup, before their roles part",
    )
