"""Clusters that make different numbers of repetitions are followed in one run (`grid.parting`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilesim as ts
from tests.sim.steady_everything import Tally, random_tiles
from tilesim import Builder, s32
from tilesim.ir.expr import Expr
from tilesim.ir.program import Program
from tilesim.kernels.hopper import matmul_v7
from tilesim.sim.affine.loop_skipping import Skipper
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.simulate import run_machine as run_machine

CTAS, TILES = 4, 4 * 40 + 2


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also runs are looked at that are too short for it to be worth it, and grids that are small
    enough to run all of them."""
    monkeypatch.setattr(Skipper, "thrifty", False)
    monkeypatch.setattr("tilesim.checker.verdict.all_are_run", lambda simulation: False)


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    """Those that have run."""
    found: list[Machine] = []

    def noted(machine: Machine) -> None:
        found.append(machine)
        run_machine(machine)

    monkeypatch.setattr("tilesim.sim.machine.simulate.run_machine", noted)
    return found


def require_same(program: Program) -> ts.Report:
    """The report of a check, which is the same without skipping."""
    report = ts.check(program, schedules=1, budget=10)
    assert report == ts.check(program, schedules=1, budget=10, skip=False)
    return report


def tiles(
    *, wrong: Callable[[Expr, Expr], Expr] | None = None, shared: bool = False, rows: int = 1
) -> Program:
    """Persistent CTAs store tiles of ``rows`` rows, the first two CTAs one more than the others.

    Where ``wrong`` holds of its last tile and how many these were, a CTA stores to the first tile
    of the first one; ``shared``: behind the loop to its last tile once more.
    """
    k = Builder("tiles", warps=1)
    k.launch(grid=CTAS)
    out = k.tensor("out", s32, (TILES + rows, 32))
    last, count = k.var("last", k.cta_x), k.var("count", 0)
    with k.loop(k.cta_x, TILES, CTAS) as tile:
        for row in range(rows):
            k.mem.store(out[tile + row, k.lane_id], 1)
        k.bar.sync(1, 32)
        k.assign(last, tile)
        k.assign(count, count + 1)
    if shared:
        k.mem.store(out[last, k.lane_id], 2)
    if wrong is not None:
        with k.if_(wrong(last, count)):
            k.mem.store(out[0, k.lane_id], 3)
    return k.finish()


def test_one_run_stands_for_those_with_fewer_tiles(machines: list[Machine]) -> None:
    report = ts.check(tiles())
    assert (report.verdict, len(machines)) == ("proved", 1)
    assert "of which 2 were run" in report.covers
    assert report == ts.check(tiles(), skip=False)
    assert len(machines) == 3


def test_so_it_does_in_a_gemm(machines: list[Machine]) -> None:
    program = matmul_v7.matmul.build(m=2560, n=256, depth=512, ctas=3, stages=2)
    report = ts.check(program)
    assert (report.verdict, len(machines)) == ("proved", 1)
    assert report == ts.check(program, skip=False)


@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [
        (lambda last, count: last.eq(TILES - 1), "failed"),  # CTA 1
        (lambda last, count: last.eq(TILES - 3), "failed"),  # CTA 3, which has a tile less
        (lambda last, count: last.eq(TILES), "proved"),
        (lambda last, count: last < CTAS * 39, "proved"),
        (lambda last, count: (last % CTAS).eq(1) & count.eq(41), "failed"),
        (lambda last, count: (last % CTAS).eq(1) & count.eq(40), "proved"),
        (lambda last, count: (last % CTAS).eq(3) & count.eq(40), "failed"),
        (lambda last, count: (last % CTAS).eq(3) & count.eq(41), "proved"),
    ],
)
def test_what_a_cluster_does_behind_its_last_tile(
    wrong: Callable[[Expr, Expr], Expr], verdict: str
) -> None:
    report = require_same(tiles(wrong=wrong))
    assert report.verdict == verdict
    assert {f.rule for f in report.findings} == ({"race"} if verdict == "failed" else set())


@pytest.mark.parametrize(("rows", "verdict"), [(1, "proved"), (2, "failed")])
def test_tiles_of_neighbours(rows: int, verdict: str) -> None:
    report = require_same(tiles(rows=rows))
    assert report.verdict == verdict
    assert {f.rule for f in report.findings} == ({"race"} if rows == 2 else set())


def test_a_last_tile_is_stored_again() -> None:
    assert require_same(tiles(shared=True)).verdict == "proved"


@pytest.mark.parametrize(
    ("where", "verdict"),
    [
        # the same in all CTAs in the first turn, and not in the second
        (lambda tile: (tile // 5).eq(1) & (tile < 8), "failed"),
        (lambda tile: (tile // CTAS).eq(1), "failed"),
        (lambda tile: (tile // CTAS).eq(3), "proved"),
    ],
)
def test_what_is_the_same_for_a_while(where: Callable[[Expr], Expr], verdict: str) -> None:
    k = Builder("for a while", warps=1)
    k.launch(grid=CTAS)
    out = k.tensor("out", s32, (32,))
    with k.loop(k.cta_x, 3 * CTAS, CTAS) as tile, k.if_(where(tile)):
        k.mem.store(out[k.lane_id], 1)
    report = require_same(k.finish())
    assert report.verdict == verdict
    assert {f.rule for f in report.findings} == ({"race"} if verdict == "failed" else set())


def test_random_persistent_kernels() -> None:
    tally = Tally()
    random_tiles(3, 1, tally)
    assert not tally.different
    assert sum(tally.verdicts.values()) == 3
