"""Kernel families for the tests of ``tilesim fuzz`` and ``tilesim sweep``."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import tilesim as ts
from tilesim import Builder

Arrays = dict[str, NDArray[np.generic]]


@ts.kernel(warps=2)
def ring(k: Builder, *, stages: int = 2, trips: int = 3, carried: bool = True) -> None:
    """A ring; not ``carried``: the consumer waits for parity 0 for ever."""
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    data, seen = k.shared("data", ts.u32, (stages, 4)), k.var("seen", dtype=ts.u32)
    with k.one_thread():
        for s in range(stages):
            k.mbarrier.init(full[s], 1)
            k.mbarrier.init(empty[s], 1)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(trips) as i:
        k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1)
        k.mem.store(data[i % stages, 0], i)
        k.mbarrier.arrive(full[i % stages])
    with k.role("consumer", 1), k.elected(), k.loop(trips) as i:
        k.mbarrier.wait(full[i % stages], (i // stages) & 1 if carried else 0)
        k.mem.load(seen, data[i % stages, 0])
        k.mbarrier.arrive(empty[i % stages])


@ts.kernel(warps=2)
def late(k: Builder, *, trips: int = 3, wrong: int = 0, hashed: bool = False) -> None:
    """A ring of one row; from ``wrong`` trips on nobody signals it, unless that is 0. With
    ``hashed`` the number of trips is looked up in a table."""
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    data, seen = k.shared("data", ts.u32, (1, 32)), k.var("seen", dtype=ts.u32)
    count = {trips: 32}[trips] if hashed else 32
    with k.one_thread():
        k.mbarrier.init(full, count + (0 < wrong <= trips))
        k.mbarrier.init(empty, 32)
    k.sync_threads()
    with k.role("producer", 0), k.loop(trips) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mem.store(data[0, k.lane_id], 7)
        k.mbarrier.arrive(full)
    with k.role("consumer", 1), k.loop(trips) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(seen, data[0, k.lane_id])
        k.mbarrier.arrive(empty)


@ts.kernel(warps=1)
def picky(k: Builder, *, trips: int = 2) -> None:
    """Refuses odd trip counts, and kills the process that builds it with 4."""
    if trips % 2:
        raise ValueError("odd")
    if trips == 4 and os.environ.get("TILESIM_TEST_DIE"):
        os._exit(1)
    with k.loop(trips):
        k.sync_threads()


@ts.kernel(warps=1)
def deadly(k: Builder, *, trips: int = 2) -> None:
    """Kills every worker that builds it with 40, but not the process of the tests."""
    if trips == 40 and multiprocessing.parent_process() is not None:
        os._exit(1)
    with k.loop(trips):
        k.sync_threads()


#: builds of `logged` after which its workers wait
HELD = 16


@ts.kernel(warps=1)
def logged(k: Builder, *, trips: int = 1) -> None:
    """Leaves a file for every build, so that a test sees how far a campaign is; when there are
    `HELD`, a worker goes no further: it is stopped there, however slow the machine is."""
    folder = os.environ.get("TILESIM_TEST_LOG")
    if folder:
        name = f"built-{os.getpid()}-{len(os.listdir(folder))}"
        os.close(os.open(os.path.join(folder, name), os.O_CREAT))
        while len(os.listdir(folder)) >= HELD and multiprocessing.parent_process() is not None:
            time.sleep(1)
    with k.loop(trips):
        k.sync_threads()


@ts.kernel(warps=1)
def named_otherwise(k: Builder, *, rounds: int = 2) -> None:
    """A family whose parameter's name says nothing to ``tilesim sweep``."""
    with k.loop(rounds):
        k.sync_threads()


@ts.kernel(warps=1)
def plain(k: Builder) -> None:
    """A family of one."""
    k.sync_threads()


def _copied(inputs: Arrays, **params: int) -> Arrays:
    return {"Y": inputs["X"]}


@ts.kernel(warps=1, reference=_copied)
def copied(k: Builder, *, trips: int = 3) -> None:
    """Y = X, a row per trip: with a trip less a row is missing, and no rule is broken."""
    X, Y = (k.tensor(name, ts.u32, (trips, 32)) for name in "XY")
    value = k.var("value", dtype=ts.u32)
    with k.loop(trips) as i:
        k.mem.load(value, X[i, k.lane_id])
        k.mem.store(Y[i, k.lane_id], value)


#: nothing to compare with
copied_unseen = replace(copied, reference=None)
#: a reference that knows nothing about the only output
copied_unasked = replace(copied, reference=lambda inputs, **params: {"X": inputs["X"]})
#: a reference that the kernel itself does not meet
copied_wrongly = replace(copied, reference=lambda inputs, **params: {"Y": inputs["Y"]})
