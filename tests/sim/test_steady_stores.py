"""Repetitions that store to global memory are skipped, each at its own place (`steady.jump`)."""

from __future__ import annotations

import random

import pytest

import tilesim as ts
from tests.sim.steady_stores import stores
from tests.sim.timed import timed
from tilesim import Builder, s32
from tilesim.ir.expr import Expr
from tilesim.ir.program import Program
from tilesim.kernels.hopper import copy, matmul_v7
from tilesim.sim.affine.loop_skipping import Skipper

TRIPS = 200


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also runs are looked at that are too short for it to be worth it."""
    monkeypatch.setattr(Skipper, "thrifty", False)


def require_same(program: Program) -> ts.Report:
    """The report of a check, which is the same without skipping."""
    report = ts.check(program, schedules=0, budget=0)
    assert report == ts.check(program, schedules=0, budget=0, skip=False)
    return report


def rows(
    place: str = "i", *, ctas: int = 1, room: int = TRIPS, reader: int | None = None,
    synced: bool = True,
) -> Program:  # fmt: skip
    """A warp stores a row of a tensor in each turn, ``room`` rows in each CTA.

    Another warp reads row ``reader``, after the first one if they are ``synced``.
    """
    k = Builder("rows", warps=2)
    k.launch(grid=ctas)
    out = k.tensor("out", s32, (2 * ctas * room + 2 * TRIPS, 32))
    first = k.cta_x * room
    with k.role("writer", 0), k.loop(TRIPS) as i:
        at: dict[str, Expr] = {
            "i": i, "backwards": TRIPS - 1 - i, "columns": i % 20 * 10 + i // 20, "few": i % 16,
        }  # fmt: skip
        k.mem.store(out[first + at[place], k.lane_id], i)
        k.bar.sync(1, 32)
    if synced:
        k.sync_threads()
    if reader is not None:
        with k.role("reader", 1):
            value = k.var("value", 0)
            k.mem.load(value, out[first + reader, k.lane_id])
    return k.finish()


@pytest.mark.parametrize("place", ["i", "backwards", "columns"])
@pytest.mark.parametrize("ctas", [1, 70])
def test_rows_of_their_own(place: str, ctas: int) -> None:
    program = rows(place, ctas=ctas)
    assert require_same(program).verdict == "proved"
    assert timed(program, skips=True).stats.skipped


@pytest.mark.parametrize("reader", [0, 120, TRIPS - 1])
@pytest.mark.parametrize("synced", [True, False])
def test_who_reads_a_row_that_was_skipped(reader: int, synced: bool) -> None:
    report = require_same(rows(reader=reader, synced=synced))
    assert report.verdict == ("proved" if synced else "failed")
    if not synced:
        assert {p.role for p in report.findings[0].participants} == {"reader", "writer"}


@pytest.mark.parametrize(("room", "verdict"), [(TRIPS, "proved"), (TRIPS - 1, "failed")])
def test_rows_of_neighbours(room: int, verdict: str) -> None:
    """The last row of a CTA is the first of the next, which no turn but the last one shows."""
    report = require_same(rows(ctas=70, room=room))
    assert report.verdict == verdict


def test_rows_that_come_again_are_places_of_all_turns() -> None:
    assert require_same(rows("few")).verdict == "proved"


def test_turns_that_are_made_at_once_are_looked_at_once() -> None:
    """Nothing in this loop lets others act: all its turns are one move."""
    k = Builder("at_once", warps=1)
    out = k.tensor("out", s32, (64, 32))
    with k.loop(64) as i:
        k.mem.store(out[i, k.lane_id], 1)
    with k.if_(k.warp_id.eq(0)):
        k.mem.store(out[k.lane_id, 0], 1)
    assert require_same(k.finish()).verdict == "failed"


def test_tiles_of_a_persistent_kernel_repeat() -> None:
    """Rows and columns of tiles are no shift: they are computed, for all CTAs at once."""
    program = matmul_v7.matmul.build(m=128 * 20, n=128 * 6, depth=64, ctas=2, band=4)
    assert require_same(program).verdict == "proved"
    assert timed(program, skips=True).stats.skipped


def test_a_million_chunks_cost_no_more_than_a_thousand() -> None:
    stats = timed(copy.vector.build(n=256 * 1_000_000, ctas=1), skips=True).stats
    assert stats.instructions - stats.skipped < 20_000


@pytest.mark.parametrize("seed", range(6))
def test_random_stores(seed: int) -> None:
    require_same(stores(random.Random(seed)))
