"""Kernels whose reports the tests look at, and ways to check them."""

from __future__ import annotations

from contextlib import chdir
from functools import cache
from inspect import getsource
from pathlib import Path

import tilesim as ts
from tilesim.checker import check
from tilesim.checker.witness import retrace
from tilesim.report.html.diagram import drawn
from tilesim.report.result import Checked
from tilesim.sim.observers.timeline import record

ROOT = Path(ts.__file__).resolve().parent.parent


@ts.kernel(warps=5)
def pipeline(k: ts.Builder, *, stages: int = 2, tiles: int = 4, parity: int = 1) -> None:
    """A TMA producer and four consumer warps; with parity 0 they wait for each other."""
    source = k.tensor("source", ts.bf16, (64 * tiles, 64))
    box = k.tensor_map(source, (64, 64), swizzle=128)
    tile = k.shared("tile", ts.bf16, (stages, 64, 64), swizzle=128)
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    part = k.fragment("part", ts.bf16, (16, 64))
    with k.one_thread():
        for n in range(stages):
            k.mbarrier.init(full[n], 1)
            k.mbarrier.init(empty[n], 4)
    k.sync_threads()
    with k.role("producer", 4), k.elected(), k.loop(tiles) as i:
        s = i % stages
        k.mbarrier.wait(empty[s], ((i // stages) & 1) ^ parity)
        k.mbarrier.arrive_expect_tx(full[s], box.box_bytes)
        k.tma.load(box, tile[s], (i * 64, 0), full[s])
    with k.role("consumer", range(4)), k.loop(tiles) as i:
        s = i % stages
        k.mbarrier.wait(full[s], (i // stages) & 1)
        k.tile.load(part, tile[s][ts.ds(k.warp_id * 16, 16), :])
        with k.elected():
            k.mbarrier.arrive(empty[s])


@ts.kernel(warps=3)
def rare(k: ts.Builder, *, ordered: bool = False) -> None:
    """The writer may come after the reader: only on a schedule that is not the timed one."""
    x = k.shared("x", ts.s32, (1,))
    b = k.mbarriers("b")
    value = k.var("value")
    with k.one_thread():
        k.mbarrier.init(b, 3)
    k.sync_threads()
    with k.role("helper", 0):
        with k.elected():
            k.mbarrier.arrive(b)
        if ordered:
            k.mbarrier.wait(b, 0)
        with k.loop(16):
            k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(b)
    with k.role("writer", 1), k.elected():
        k.mem.store(x[0], 1)
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
        k.mbarrier.arrive(b)
    with k.role("reader", 2), k.elected():
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
        k.mem.load(value, x[0])
        k.mbarrier.arrive(b)


@ts.kernel(warps=2)
def pair(k: ts.Builder, *, parity: int = 1, ctas: int = 1) -> None:
    """A producer and a consumer; with parity 0 they wait for each other."""
    k.launch(grid=(ctas,))
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 1)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(2) as i:
        k.mbarrier.wait(empty, (i & 1) ^ parity)
        k.mbarrier.arrive(full)
    with k.role("consumer", 1), k.elected(), k.loop(2) as i:
        k.mbarrier.wait(full, i & 1)
        k.mbarrier.arrive(empty)


def file(kernel: ts.Kernel) -> str:
    """What a Python file says that has this kernel."""
    return f"import tilesim as ts\n\n\n{getsource(kernel.function)}"


@ts.kernel(warps=1)
def lonely(k: ts.Builder) -> None:
    """Waits for an arrival that nobody makes, in both CTAs."""
    k.launch(grid=2)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 2)
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@cache
def checked(name: str, **params: object) -> Checked:
    """The result of checking one of these kernels, with its recording."""
    kernel = {"pipeline": pipeline, "rare": rare, "lonely": lonely}[name]
    with chdir(ROOT):  # locations are relative to it
        program = kernel.build(**params)
    report = check(program)
    witness = report.witness
    recording = record(program) if witness is None else retrace(program, witness)
    return Checked(
        f"kernels.py::{name}", program.target.name, report, "", drawn(program), recording
    )


def line(text: str, after: str = "") -> int:
    """The number of the first line of this file with ``text``, after the one with ``after``."""
    lines = Path(__file__).read_text().splitlines()
    start = next(n for n, row in enumerate(lines) if after in row)
    return next(n for n, row in enumerate(lines, 1) if n > start and text in row)
