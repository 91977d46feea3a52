"""Turns of a loop are left out, and those of the loop around it as well (`tilesim.sim.affine`)."""

from __future__ import annotations

import pytest

from tests.sim.timed import timed
from tilesim import Builder, s32
from tilesim.ir.program import Program
from tilesim.kernels.hopper import attention_v1
from tilesim.sim.affine.loop_period import Level
from tilesim.sim.affine.loop_skipping import WHOLE, Skipper, Thrift


def tiles(outer: int, inner: int, *, late: tuple[int, int] = (-1, -1)) -> Program:
    """A ring over tiles and their parts; in one turn of both loops the producer fills what may
    still be read."""
    k = Builder("tiles", warps=2)
    data = k.shared("data", s32, (2, 32))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    with k.one_thread():
        for bar in (*full, *empty):
            k.mbarrier.init(bar, 32)
    k.sync_threads()
    for role, waits, arrives in (("producer", empty, full), ("consumer", full, empty)):
        first = int(role == "producer")
        with k.role(role, 1 - first), k.loop(outer) as tile, k.loop(inner) as i:
            at = tile * inner + i
            k.mbarrier.wait(waits[at % 2], (at // 2 & 1) ^ first)
            if first:
                k.mem.store(data[at % 2, k.lane_id], 7)
                with k.if_(tile.eq(late[0]) & i.eq(late[1])):
                    k.mem.store(data[(at + 1) % 2, k.lane_id], 8)
            else:
                k.mem.load(k.var("value", 0), data[at % 2, k.lane_id])
            k.mbarrier.arrive(arrives[at % 2])
    return k.finish()


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Turns of outer loops that were executed whole before one was watched."""
    found: list[int] = []
    watch = Skipper._watch_whole

    def noted(self: Skipper, level: Level) -> None:
        found.append(level.iteration)
        watch(self, level)

    monkeypatch.setattr(Skipper, "_watch_whole", noted)
    monkeypatch.setattr(Thrift, "may_guess", lambda self, each: False)
    monkeypatch.setattr(Skipper, "thrifty", False)
    return found


@pytest.mark.parametrize("late", [(-1, -1), (24, 7), (58, 40)])
def test_both_loops(whole: list[int], late: tuple[int, int]) -> None:
    """The turns of the outer loop that repeat are told from those in which turns of the inner one
    were left out: some are executed whole before one is watched."""
    program = tiles(60, 41, late=late)
    run, every = timed(program), timed(program, skips=False)
    assert len(whole) >= WHOLE
    assert run.findings == every.findings
    assert bool(run.findings) is (late[0] >= 0)
    if not run.findings:
        stats = run.stats
        assert stats.instructions == every.stats.instructions
        assert stats.instructions - stats.skipped < stats.instructions // 2


def test_an_inner_loop_that_is_too_long_to_be_executed_whole() -> None:
    """A few turns of a loop around one of many: to watch one of them costs more than all do."""
    stats = timed(tiles(12, 20_000)).stats
    assert stats.instructions - stats.skipped < 20_000


def test_attention_over_many_tiles() -> None:
    """Tiles of as many keys as it has turns: both loops are left out."""
    program = attention_v1.attention.build(keys=2_048, queries=8_192, ctas=1, heads=1)
    stats = timed(program).stats
    assert stats.instructions - stats.skipped < stats.instructions // 4
