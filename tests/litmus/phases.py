"""LITMUS section A, second half: phases, parity, lifetime and visibility of one mbarrier."""

from __future__ import annotations

from tilesim import Builder

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, row

MESSAGE_RACE = defect("race", T0="k.mem.store(x[0], 1)", T1="k.mem.load(r, x[0])")
WAITS = defect("deadlock", T1="k.mbarrier.wait(b, 0)")


# On SM90 the expect_tx ends the phase (W, U3), so nothing hangs; the text promises no such step,
# and the pending bytes are paid back after the last arrival, when the phase could have been over.
@row("LA16", fails(defect("tx-mismatch"), defect("phase-ambiguity")))
def expect_completes_phase(k: Builder) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.complete_tx(b, 16)
        k.mbarrier.arrive(b)
        k.mbarrier.expect_tx(b, 16)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)


@row("LA17", completes())
def drop_and_leave(k: Builder) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, 2))
    with thread(k, 0):
        k.mbarrier.arrive_drop(b)
        k.exit()
    with thread(k, 1):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 1)


@row("LA18", fails(WAITS))
def leave_without_drop(k: Builder) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, 2))
    with thread(k, 0):
        k.exit()
    with thread(k, 1):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@row("LA19", fails(defect("phase-alias"), defect("deadlock", T1="# late")))
def aliasing_late_waiter(k: Builder) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 1)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)  # late


# The wait that passes at phase -1 is also the wait that could observe another phase.
@row("LA20", fails(MESSAGE_RACE, also=("phase-alias",)))
def stale_pass(k: Builder) -> None:
    k.launch(warps=2)
    b, x, out, r = k.mbarriers("b"), words(k, "x"), global_words(k, "out"), k.var("r")
    begin(k, (b, 1), zero=[x])
    with thread(k, 0):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
        k.mem.store(x[0], 1)
        k.mbarrier.arrive(b)
    with thread(k, 1):
        k.mbarrier.wait(b, 1)
        k.mem.load(r, x[0])
        k.mem.store(out[0], r)


@row("LA21", fails(MESSAGE_RACE), looped=False)
@row("LA21-looped", completes(out=[1]), looped=True)
def try_wait_once_or_looped(k: Builder, *, looped: bool) -> None:
    k.launch(warps=2)
    b, x, out, r = k.mbarriers("b"), words(k, "x"), global_words(k, "out"), k.var("r")
    p = k.var("p", 0)
    begin(k, (b, 1), zero=[x])
    with thread(k, 0):
        k.mem.store(x[0], 1)
        k.mbarrier.arrive(b)
    with thread(k, 1):
        if looped:
            with k.while_(p.eq(0)):
                k.mbarrier.try_wait(p, b, 0)
        else:
            k.mbarrier.try_wait(p, b, 0)
        k.mem.load(r, x[0])
        k.mem.store(out[0], r)


@row(
    "LA22",
    fails(
        defect(
            "barrier-lifetime",
            T0=("k.mbarrier.init(b, 1)  # once", "k.mbarrier.init(b, 1)  # again"),
        )
    ),
    inval=False,
)
@row("LA22-inval", completes(), inval=True)
def live_reinit(k: Builder, *, inval: bool) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    with thread(k, 0):
        k.mbarrier.init(b, 1)  # once
    k.sync_threads()
    with thread(k, 0):
        k.mbarrier.arrive(b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
    k.sync_threads()
    with thread(k, 0):
        if inval:
            k.mbarrier.inval(b)
        k.mbarrier.init(b, 1)  # again
    k.sync_threads()
    with thread(k, 0):
        k.mbarrier.arrive(b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)


@row(
    "LA23",
    fails(
        defect("init-visibility", T0="k.mbarrier.init(b, 1)", T1="k.mbarrier.wait(b, 0)"),
        defect("uninitialised-barrier", T1="k.mbarrier.wait(b, 0)"),
    ),
    sync=False,
)
@row("LA23-sync", completes(), sync=True)
def init_not_visible(k: Builder, *, sync: bool) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    with thread(k, 0):
        k.mbarrier.init(b, 1)
    if sync:
        k.sync_threads()
    with thread(k, 0):
        k.mbarrier.arrive(b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)


@row("LA25", fails(MESSAGE_RACE))
def copy_does_not_release_its_issuer(k: Builder) -> None:
    k.launch(warps=3)
    b, x, d, g = k.mbarriers("b"), words(k, "x"), words(k, "d", 4), global_words(k, "g", 4)
    out, r = global_words(k, "out"), k.var("r")
    begin(k, (b, 1), zero=[x])
    with thread(k, 2):
        k.mbarrier.arrive_expect_tx(b, 16)
    k.sync_threads()
    with thread(k, 0):
        k.mem.store(x[0], 1)
        k.bulk.load(d, g, b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, x[0])
        k.mem.store(out[0], r)
