"""Bounded waits: a warp that waits too long writes a record to a mailbox that the host reads.

A record is eight 64-bit words, one record per warp of the grid; word 0 is 0 while the warp is not
blocked. Barriers in hardware (``bar.sync``, the cluster barrier) cannot be polled: the warp leaves
a record before it enters and clears it afterwards, and the host decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilesim.gpu.emit.emitter import Emitter
from tilesim.ir import effects as fx
from tilesim.ir.declarations import Mbar
from tilesim.ir.expr import Expr
from tilesim.ir.op import Op

#: words of a record: kind | site << 32, phase operand, mbarrier index, ns waited
#: (not the barrier's state: a load from a live mbarrier does not return it on SM90)
RECORD_WORDS = 8
#: kinds of records
EXPIRED, BLOCKED, SPINNING = 1, 2, 3

_WATCHDOG = """
// one warp's record in the mailbox, and when its current wait began
struct Watchdog {
  volatile u64* record;
  u64 budget, start;
  bool written;

  DEVICE void begin() { start = globaltimer(); }
  DEVICE void end() {
    if (written) record[0] = 0;
    written = false;
  }
  DEVICE void blocked(u32 site) {
    record[0] = 2 | (u64)site << 32;
    written = true;
  }
  DEVICE void expire(u32 kind, u32 site, u64 phase, u32 index, u64 waited) {
    record[1] = phase;
    record[2] = index;
    record[3] = waited;
    written = true;
    __threadfence_system();
    record[0] = kind | (u64)site << 32;
    __threadfence_system();
    // the other warps get half a budget to write theirs
    if (waited > budget + budget / 2) asm volatile("trap;");
  }
  DEVICE void poll(u32 site, u64 phase, u32 index) {
    const u64 waited = globaltimer() - start;
    if (waited >= budget) expire(1, site, phase, index, waited);
  }
  DEVICE void spin(u32 site, u64 since) {
    const u64 waited = globaltimer() - since;
    if (waited >= budget) expire(3, site, 0, 0, waited);
  }
};
"""


def use_watchdog(e: Emitter) -> None:
    """Adds the watchdog to the prelude."""
    e.use("globaltimer")
    e.define("Watchdog", _WATCHDOG)


def watched_wait(e: Emitter, mbar: Mbar, phase: Expr, query: str) -> None:
    """A wait that polls with a budget and then reports the barrier and the phase it waits for."""
    use_watchdog(e)
    site = e.site(mbar.array.name)
    index = _plain(e, mbar.index)
    operands = f"{site}, {e.cast(phase, 'u64')}, {index}"
    poll = f"watchdog.poll({operands});"
    if e.options.trace:
        # two pairs of clocks far apart, although the warp will not come to its end
        poll = f"{{ {poll} if (watchdog.written) trace.finish(); }}"
    e.line(f"for (watchdog.begin(); !{query};) {poll}\nwatchdog.end();")


def _plain(e: Emitter, index: Expr) -> str:
    return e.cast(index, "u32")


def _waited_for(op: Op) -> str:
    """What an instruction waits for in hardware; "" if it does not."""
    for effect in op.effects():
        match effect:
            case fx.JoinsBarrier(id=barrier, waits=True):
                return f"named barrier {barrier}"
            case fx.JoinsCluster(arrives=False):
                return "the cluster barrier"
            case fx.Registers():
                return "the register pool"
            case fx.AllocatesTmem():
                return "the tensor memory allocator"
            case _:
                pass
    return ""


@contextmanager
def blocking(e: Emitter, op: Op) -> Iterator[None]:
    """Surrounds an instruction, if it blocks in hardware and there is a watchdog, with a record."""
    what = _waited_for(op) if e.options.watchdog else ""
    if not what:
        yield
        return
    use_watchdog(e)
    e.line(f"watchdog.blocked({e.site(what)});")
    if e.options.trace:
        e.line("trace.finish();")
    yield
    e.line("watchdog.end();")
