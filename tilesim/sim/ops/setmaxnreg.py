"""setmaxnreg: the register pool of a CTA, and what the warps of a warpgroup do alike (E13-E18)."""

from __future__ import annotations

from tilesim.ir.ops.bar import Setmaxnreg
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.warp import Step, Warp
from tilesim.sim.machine.warpgroup import WARPS, Adjustment
from tilesim.sim.ops.bar import require_whole_warp


@RULES.rule(Setmaxnreg)
def _setmaxnreg(c: Compiler, op: Setmaxnreg) -> Step:
    def step(w: Warp) -> bool | None:
        require_whole_warp(w, op)
        pool = w.cta.pool
        held = w.registers_held or pool.launch
        if op.count != held or w.machine.options.ptx:
            # in practice one that changes nothing is harmless (NVIDIA/Fuser#5076 repeats its own)
            _check_synchronised(w, op)
        _check_warpgroup(w, op)
        wrong = op.count > held if op.action == "dec" else op.count < held
        if wrong:
            raise BarrierError(
                "register-pool",
                f"setmaxnreg.{op.action} to {op.count} by {w}, which holds {held} registers per "
                "thread (E13)",
                f"setmaxnreg.{op.action} needs a count "
                + ("at most" if op.action == "dec" else "at least")
                + " the current one",
            )
        _note_pool(w, op)
        if op.action == "dec":
            pool.give(w, 32 * (held - op.count))
            waiters, pool.waiters = pool.waiters, []
            for waiter in waiters:
                w.machine.wake(waiter)
        elif not pool.take(w, op, 32 * (op.count - held)):
            pool.waiters.append(w)
            return w.machine.block(
                w, pool, f"waits for {32 * (op.count - held)} registers (setmaxnreg.inc)", op
            )
        w.registers_held = op.count
        w.last_collective = op
        w.effects += 1
        _note_adjustment(w, op)
        return None

    return step


def _note_pool(w: Warp, op: Setmaxnreg) -> None:
    trace = w.machine.trace
    if trace is not None:
        text = f"executes setmaxnreg.{op.action} {op.count}"
        trace.note("write", ("registers", w.cta.index), 0, w, op, text)


def _check_warpgroup(w: Warp, op: Setmaxnreg) -> None:
    """The n-th setmaxnreg is the same in all warps of a warpgroup (E15)."""
    group, number = w.warpgroup, w.setmaxnreg_count
    first = group.adjustments.get(number, [None])[0]
    if first is None:
        if len(group.warps) < WARPS and w.machine.options.ptx:
            w.machine.report(
                "participation",
                f"setmaxnreg.{op.action} of {w}: its warpgroup has {len(group.warps)} warps in "
                f"this CTA, and all {WARPS} execute it (E15)",
                (w.machine.participant(w, f"executes setmaxnreg.{op.action}", op),),
                fix="launch a multiple of four warps",
            )
        return
    before = first.op
    if (before.count, before.action) != (op.count, op.action):
        w.machine.report(
            "participation",
            f"the warps of warpgroup {w.number // WARPS} execute different setmaxnreg: "
            f".{op.action} {op.count} and .{before.action} {before.count} (E15)",
            (
                w.machine.participant(w, f"executes setmaxnreg.{op.action} {op.count}", op),
                w.machine.participant(
                    first.warp, f"executes setmaxnreg.{before.action} {before.count}", before
                ),
            ),
            fix="execute one setmaxnreg in all four warps of the warpgroup",
        )


def _check_synchronised(w: Warp, op: Setmaxnreg) -> None:
    """Since its previous setmaxnreg the warps of the warpgroup have synchronised (E15)."""
    group, number = w.warpgroup, w.setmaxnreg_count - 1
    if number < 0:
        return
    done = {a.warp: a for a in group.adjustments[number]}
    for other in group.warps:
        before = done.get(other)
        if before is not None and w.clock[other.base] >= before.tick:
            continue
        where = done[w].op if before is None else before.op
        w.machine.report(
            "participation",
            f"{w} executes setmaxnreg.{op.action} {op.count} without knowing that {other} has "
            f"executed the one before, setmaxnreg.{where.action} {where.count} at {where.loc}: the "
            "warps of a warpgroup synchronise in between (E15)",
            (
                w.machine.participant(w, f"executes setmaxnreg.{op.action} {op.count}", op),
                w.machine.participant(
                    other, f"executes setmaxnreg.{where.action} {where.count}", where
                ),
            ),
            fix="put a barrier of the warpgroup (bar.sync id, 128) between two setmaxnreg",
        )
        return


def _note_adjustment(w: Warp, op: Setmaxnreg) -> None:
    group, number = w.warpgroup, w.setmaxnreg_count
    w.setmaxnreg_count += 1
    made = group.adjustments.setdefault(number, [])
    made.append(Adjustment(w, op, w.tick))
    if len(made) < len(group.warps):
        return
    group.adjustments.pop(number - 1, None)
    if w.machine.options.ptx:
        _require_one_site(w, made)


def _require_one_site(w: Warp, made: list[Adjustment]) -> None:
    """Strict reading of .aligned (U16): the four warps execute one static instruction."""
    sites = {a.op.number: a for a in reversed(made)}
    if len(sites) == 1:
        return
    w.machine.report(
        "participation",
        f"the warps of warpgroup {w.number // WARPS} execute one setmaxnreg.sync.aligned at "
        f"{len(sites)} places in the code (E15)",
        tuple(
            w.machine.participant(a.warp, f"executes setmaxnreg.{a.op.action} {a.op.count}", a.op)
            for a in sites.values()
        ),
        fix="execute one setmaxnreg in all four warps of the warpgroup, before their roles part",
    )
