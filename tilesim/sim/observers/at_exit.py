"""What is wrong when a kernel ends with work outstanding."""

from __future__ import annotations

from collections.abc import Callable

from tilesim.findings.finding import Deed, Stated
from tilesim.sim.machine.async_groups import LaneGroups
from tilesim.sim.machine.interface import Stop
from tilesim.sim.machine.machine import Machine


def report_exit(machine: Machine) -> None:
    """Findings about what is left over when every warp has exited."""
    _registers(machine)
    try:
        _open_groups(machine)
        _copies_in_flight(machine)
        _arrivals_to_come(machine)
        _products_in_flight(machine)
        if machine.tmem is not None:
            machine.tmem.report_leaks()
            machine.tmem.report_unwritten()
            machine.tmem.report_foreign_lanes()
        _uneven_collectives(machine)
        _open_barriers(machine)
        machine.peers.report_exits()
        machine.races.report_unwritten()
        machine.races.words.settle(machine.counters)
    except Stop:
        return


def _registers(machine: Machine) -> None:
    """Every setmaxnreg.inc is granted in every schedule, or exploration has to tell."""
    for cta in machine.ctas:
        op = cta.pool.doubtful
        if op is not None:
            machine.nondeterministic("which setmaxnreg.inc gets the registers of the pool", op)


def _open_groups(machine: Machine) -> None:
    for warp in machine.warps:
        for kind in ("bulk", "cp.async"):
            group = warp.lane_groups.get(kind)
            if group is None or group.over(_observed(machine, group)):
                continue
            if group.opened > group.closed:
                machine.report(
                    "bulk-group",
                    f"{warp} ends with {kind} operations that it never committed to a group: no "
                    f"instruction waits for them (B29, C4)",
                    ((warp, "issued the copy", warp.last_issue[kind]),),
                    fix="execute commit_group after the copies, and wait_group before the warp "
                    "ends",
                )
            else:
                machine.report(
                    "async-at-exit",
                    f"{warp} ends while {kind} operations may still read or write shared memory "
                    "(B34)",
                    ((warp, "issued the copy", warp.last_issue[kind]),),
                    fix="execute wait_group.read (or wait_group) for them before the warp ends",
                )


def _products_in_flight(machine: Machine) -> None:
    """A wgmma that nothing waits for still reads its operands in shared memory (F6, F7)."""
    for warp in machine.warps:
        group = warp.groups.get("wgmma")
        if group is None or group.opened <= group.done:
            continue
        last = max(warp.pending.values(), key=lambda use: use.sequence)
        machine.report(
            "async-at-exit",
            f"{warp} ends while a wgmma.mma_async may still read shared memory (F7)",
            ((warp, "issued it", last.op),),
            fix="execute wgmma.commit_group and wgmma.wait_group 0 before the warp ends",
        )


def _observed(machine: Machine, group: LaneGroups) -> Callable[[int], int]:
    """How many operations of a component some warp knows to be complete through an mbarrier."""
    size = machine.components.size
    if not group.tracked:
        return lambda component: 0
    return lambda component: max(w.knows_to(size + component) for w in machine.warps)


def _copies_in_flight(machine: Machine) -> None:
    """Copies into shared memory whose completion no warp knows of when it exits."""
    for cta in machine.ctas:
        for barrier in cta.mbarriers.values():
            if barrier.last_load is None:
                continue
            op, warp, write = barrier.last_load
            if any(w.knows_to(write.component) >= write.tick for w in machine.warps):
                continue
            action = f"issued the copy tracked by {barrier.label}"
            machine.report(
                "async-at-exit",
                f"the kernel can end before {op.mnemonic} of {warp} has completed: no warp "
                f"waits for {barrier.label} (B34)",
                ((warp, action, op, Deed("touches", barrier.named)),),
                fix="wait on its mbarrier before the CTA ends",
                facts=Stated((barrier.named,)),
            )


def _arrivals_to_come(machine: Machine) -> None:
    """Condition I at the end of a CTA: arrivals of `tcgen05.commit` and
    `cp.async.mbarrier.arrive` on its own mbarriers that no warp of it knows of (A8). Only the end
    of their phase tells that they have been made."""
    for cta in machine.ctas:
        for barrier in cta.mbarriers.values():
            last, over = barrier.last_arrival, barrier.last_arrival_over
            if last is None or any(w.knows_to(barrier.component) >= over for w in barrier.warps):
                continue
            op, warp = last.op, last.warp
            if machine.accepts("A8", op):
                continue
            action = f"executes {op.mnemonic} on {barrier.label}"
            machine.report(
                "barrier-lifetime",
                f"the CTA can end before {op.mnemonic} of {warp} arrives on "
                f"{barrier.label}: no warp waits for phase {over - 1 - barrier.base} (A8)",
                ((warp, action, op, Deed("touches", barrier.named)),),
                fix="wait for that phase before the CTA ends",
                facts=Stated((barrier.named,)),
            )


def _uneven_collectives(machine: Machine) -> None:
    """Warps of one warpgroup that did not execute the same wgmma or setmaxnreg (E15, F1)."""
    for first in (w for w in machine.warps if w.number % 4 == 0):
        group = first.warpgroup.warps
        together = len({(w.collective, w.setmaxnreg_count) for w in group}) == 1
        if together or first.warpgroup.disagree:
            continue
        what = "wgmma" if len({w.collective for w in group}) > 1 else "setmaxnreg"
        machine.report(
            "participation",
            f"the warps of warpgroup {first.number // 4} did not execute the same {what} "
            "instructions (E15, F1)",
            tuple(
                (w, f"executed {what}", w.last_collective)
                for w in group
                if w.last_collective is not None
            )[:1],
            fix=f"execute {what} in all four warps of the warpgroup",
        )


def _open_barriers(machine: Machine) -> None:
    for cta in machine.ctas:
        for barrier in cta.mbarriers.values():
            barrier.check_last_phase()
            barrier.check_crowd()
