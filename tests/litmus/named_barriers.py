"""LITMUS section E: named barriers and the register pool.

The barriers are the ``barrier.*`` forms (``aligned=False``): the ``bar.*`` forms in a part of the
CTA are a question of strictness of their own (SEMANTICS U16), which the rows LE01-aligned and
LE01-sites ask.
"""

from __future__ import annotations

from tilesim import Builder

from .notation import begin, global_words, words
from .table import completes, defect, fails, row

ARRIVE, SYNC = "k.bar.arrive(1, 64", "k.bar.sync(1, 96"


@row("LE01", completes(out=[1]), aligned=False)
@row("LE01-aligned", completes(out=[1]), aligned=True)
@row("LE01-both-wait", completes(out=[1]), aligned=False, both=True)
@row(
    "LE01-sites",
    practice=completes(out=[1]),
    ptx=fails(
        defect("participation", W0="aligned)  # W0", W1="aligned)  # W1")
    ),
    aligned=True, both=True,
)  # fmt: skip
def arrive_sync_handoff(k: Builder, *, aligned: bool, both: bool = False) -> None:
    k.launch(warps=2)
    x, out, r = words(k, "x"), global_words(k, "out"), k.var("r")
    begin(k, zero=[x])
    with k.role("W0", 0):
        with k.elected():
            k.mem.store(x[0], 1)
        if both:
            k.bar.sync(1, 64, aligned=aligned)  # W0
        else:
            k.bar.arrive(1, 64, aligned=aligned)
    with k.role("W1", 1):
        k.bar.sync(1, 64, aligned=aligned)  # W1
        with k.elected():
            k.mem.load(r, x[0])
            k.mem.store(out[0], r)


@row("LE02", fails(defect("race", W0="k.mem.load(r, y[0])", W1="k.mem.store(y[0], 1)")), sync=False)
@row("LE02-sync", completes(out=[1]), sync=True)
def arrive_side_reads(k: Builder, *, sync: bool) -> None:
    k.launch(warps=2)
    y, out, r = words(k, "y"), global_words(k, "out"), k.var("r")
    begin(k, zero=[y])
    with k.role("W0", 0):
        if sync:
            k.bar.sync(1, 64, aligned=False)
        else:
            k.bar.arrive(1, 64, aligned=False)
        with k.elected():
            k.mem.load(r, y[0])
            k.mem.store(out[0], r)
    with k.role("W1", 1):
        with k.elected():
            k.mem.store(y[0], 1)
        k.bar.sync(1, 64, aligned=False)


@row(
    "LE03",
    fails(defect("deadlock", W0="k.bar.sync(1, threads", W1="k.bar.sync(1, threads")),
    threads=96,
)
@row("LE03-right", completes(), threads=64)
def too_few_warps(k: Builder, *, threads: int) -> None:
    k.launch(warps=3)
    for warp in (0, 1):
        with k.role(f"W{warp}", warp):
            k.bar.sync(1, threads, aligned=False)


@row(
    "LE04",
    fails(
        defect("named-barrier", W0=ARRIVE, W1=SYNC),
        defect("named-barrier", W0=ARRIVE, W2=SYNC),
        defect("named-barrier", W0=ARRIVE, W1=SYNC, W2=SYNC),
    ),
)
def count_mismatch(k: Builder) -> None:
    k.launch(warps=3)
    with k.role("W0", 0):
        k.bar.arrive(1, 64, aligned=False)
    for warp in (1, 2):
        with k.role(f"W{warp}", warp):
            k.bar.sync(1, 96, aligned=False)


@row(
    "LE05",
    fails(defect("deadlock", W0="k.bar.sync(first,", W1="k.bar.sync(2,")),
    first=1,
)
@row("LE05-same-order", completes(), first=2)
def opposite_order(k: Builder, *, first: int) -> None:
    k.launch(warps=2)
    with k.role("W0", 0):
        k.bar.sync(first, 64, aligned=False)
        k.bar.sync(3 - first, 64, aligned=False)
    with k.role("W1", 1):
        k.bar.sync(2, 64, aligned=False)
        k.bar.sync(1, 64, aligned=False)


@row(
    "LE06",
    fails(defect("named-barrier", W0=("aligned=False)  # first", "aligned=False)  # again"))),
)
def re_arrive_before_reset(k: Builder) -> None:
    k.launch(warps=3)
    with k.role("W0", 0):
        k.bar.arrive(1, 96, aligned=False)  # first
        k.bar.arrive(1, 96, aligned=False)  # again
    with k.role("W1", 1):
        k.bar.sync(1, 96, aligned=False)


@row(
    "LE07",
    fails(defect("deadlock", W0="k.mbarrier.wait(b, 0)", W1="k.sync_threads()")),
    leaves=False,
)
@row("LE07-exit", completes(), leaves=True)
def syncthreads_in_one_role(k: Builder, *, leaves: bool) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, 32))
    with k.role("W0", 0):
        if leaves:
            k.exit()
        else:
            k.mbarrier.wait(b, 0)
    with k.role("W1", 1):
        k.sync_threads()
        k.mbarrier.arrive(b)


@row(
    "LE08",
    fails(defect("named-barrier", W0="# a red", W1="k.bar.sync(1, 64")),
    mixed=True,
)
@row("LE08-unmixed", completes(), mixed=False)
def red_mixed(k: Builder, *, mixed: bool) -> None:
    k.launch(warps=2)
    p = k.var("p")
    with k.role("W0", 0):
        k.bar.red(p, 1, 1, op="and", threads=64, aligned=False)  # a red
    with k.role("W1", 1):
        if mixed:
            k.bar.sync(1, 64, aligned=False)
        else:
            k.bar.red(p, 1, 1, op="and", threads=64, aligned=False)
