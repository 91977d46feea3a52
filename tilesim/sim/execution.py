"""Runs a machine to its end, and reports what is left undone there."""

from __future__ import annotations

from tilesim.sim.deadlock import report_deadlock, report_exit
from tilesim.sim.machine.assembly import report_missing
from tilesim.sim.machine.core import Stop
from tilesim.sim.machine.errors import CutOff, NotKnown
from tilesim.sim.machine.forks import part_ways
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.unknown import UnknownSteers
from tilesim.sim.schedule import Move


def run(machine: Machine) -> None:
    """Runs to the end, to quiescence, or to undefined behaviour."""
    _start(machine)
    if all(w.exited for w in machine.warps):
        return
    try:
        machine.env.run()
        while _admit_draw(machine) or _release_pollers(machine) or part_ways(machine):
            machine.env.run()
        if any(not w.exited for w in machine.warps):
            report_missing(machine)
            report_deadlock(machine)
        else:
            report_exit(machine)
    except Stop:
        machine.outcome.undefined = True
    except CutOff as why:
        machine.outcome.cut_off = str(why)
        if not isinstance(why, NotKnown):
            report_deadlock(machine, partial=True)
    except UnknownSteers as steers:  # where no instruction is executed
        machine.outcome.cut_off = f"a value that is not known decides: {steers.value}"


def _start(machine: Machine) -> None:
    """Makes every warp runnable."""
    for warp in machine.warps:
        if machine.launch.launches(warp.cta.cluster.number):
            Move(machine.env, warp.run, 0, warp)
        else:
            warp.exited = True


def _admit_draw(machine: Machine) -> bool:
    """At quiescence one of those that wait to draw from a counter does."""
    warp = machine.tickets.admit()
    if warp is not None:
        machine.wake(warp)
    return warp is not None


def _release_pollers(machine: Machine) -> bool:
    """At quiescence a suspended try_wait gives up once; True if somebody was woken."""
    woken = False
    for warp in (*machine.warps, *machine.forks):
        polled = warp.polled
        if polled is not None and warp.blocked is not None and not polled.expired:
            polled.expired = True
            polled.mbarrier.waiters.remove(warp)
            machine.wake(warp)
            woken = True
    return woken
