"""Arrivals on barriers of other CTAs: put in, or in the place of one that stays at home."""

from __future__ import annotations

from datetime import timedelta

import pytest

import tilesim as ts
from tilesim.ir.lower import lower
from tilesim.ir.memory import ds
from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.lib.opening import open_cluster
from tilesim.repair import Repairs, Wanted

ROWS, COLUMNS, STAGES, TRIPS = 8, 32, 2, 5
BYTES = ROWS * COLUMNS * ts.f32.bytes


@ts.kernel(warps=2)
def shared_tiles(k: ts.Builder, *, mistake: str = "", size: int = 2) -> None:
    """Each CTA loads a part of each tile for all: all of them have to release its stage to it."""
    k.launch(grid=size, cluster=size)
    X = k.tensor("X", ts.f32, (TRIPS * ROWS, COLUMNS))
    Y = k.tensor("Y", ts.f32, (size * ROWS, COLUMNS))
    rows, everyone = ROWS // size, (1 << size) - 1
    x_map = k.tensor_map(X, (rows, COLUMNS))
    tile = k.shared("tile", ts.f32, (STAGES, ROWS, COLUMNS))
    full, empty = k.mbarriers("full", STAGES), k.mbarriers("empty", STAGES)
    acc, part = (k.fragment(name, ts.f32, (ROWS, COLUMNS)) for name in ("acc", "part"))
    open_cluster(k, (full, 1), (empty, 1 if mistake == "own, not counted" else size))
    with k.role("producer", 1), k.elected(), k.loop(TRIPS) as i:
        stage, own = i % STAGES, k.cluster_rank * rows
        k.mbarrier.wait(empty[stage], (i // STAGES + 1) & 1, scope="cluster")
        k.mbarrier.arrive_expect_tx(full[stage], BYTES)
        target = tile[stage, ds(own, rows)]
        k.tma.load(x_map, target, (i * ROWS + own, 0), full[stage], multicast=everyone)
    with k.role("consumer", 0):
        k.tile.fill(acc, 0.0)
        with k.loop(TRIPS) as i:
            k.mbarrier.wait(full[i % STAGES], (i // STAGES) & 1, scope="cluster")
            k.tile.load(part, tile[i % STAGES])
            k.fence.proxy_async("shared::cta")
            k.tile.zip(acc, "add", acc, part)
            with k.elected():
                if mistake.startswith("own"):
                    k.mbarrier.arrive(empty[i % STAGES])
                elif mistake == "peer":
                    k.mbarrier.arrive(empty[i % STAGES].at(k.cluster_rank ^ 1), scope="cluster")
                else:
                    for rank in range(size):
                        k.mbarrier.arrive(empty[i % STAGES].at(rank), scope="cluster")
        k.tile.store(Y[ds(k.cluster_rank * ROWS, ROWS)], acc)
    k.cluster.sync()


@ts.kernel(warps=2)
def one_loader(k: ts.Builder, *, mistake: str = "", size: int = 2) -> None:
    """CTA 0 loads each tile for all: all of them have to release its stage to CTA 0."""
    k.launch(grid=size, cluster=size)
    X = k.tensor("X", ts.f32, (TRIPS * ROWS, COLUMNS))
    Y = k.tensor("Y", ts.f32, (size * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS))
    tile = k.shared("tile", ts.f32, (STAGES, ROWS, COLUMNS))
    full, empty = k.mbarriers("full", STAGES), k.mbarriers("empty", STAGES)
    acc, part = (k.fragment(name, ts.f32, (ROWS, COLUMNS)) for name in ("acc", "part"))
    alone = mistake in ("own, not counted", "one CTA")
    open_cluster(k, (full, 1), (empty, 1 if alone else size))
    with k.role("producer", 1):
        k.cluster.sync()
        with k.elected(), k.loop(TRIPS) as i, k.if_(k.cluster_rank.eq(0)):
            k.mbarrier.wait(empty[i % STAGES], (i // STAGES + 1) & 1, scope="cluster")
            everyone, at = (1 << size) - 1, (i * ROWS, 0)
            k.tma.load(x_map, tile[i % STAGES], at, full[i % STAGES], multicast=everyone)
    with k.role("consumer", 0):
        k.tile.fill(acc, 0.0)
        with k.elected():
            for stage in range(STAGES):
                k.mbarrier.arrive_expect_tx(full[stage], BYTES)
        k.cluster.sync()
        with k.loop(TRIPS) as i:
            k.mbarrier.wait(full[i % STAGES], (i // STAGES) & 1, scope="cluster")
            k.tile.load(part, tile[i % STAGES])
            k.fence.proxy_async("shared::cta")
            k.tile.zip(acc, "add", acc, part)
            with k.elected():
                with k.if_(i + STAGES < TRIPS):
                    k.mbarrier.arrive_expect_tx(full[i % STAGES], BYTES)
                if mistake.startswith("own"):
                    k.mbarrier.arrive(empty[i % STAGES])
                elif mistake == "one CTA":
                    with k.if_(k.cluster_rank.eq(0)):
                        k.mbarrier.arrive(empty[i % STAGES])
                elif mistake != "none":
                    k.mbarrier.arrive(empty[i % STAGES].at(0), scope="cluster")
        k.tile.store(Y[ds(k.cluster_rank * ROWS, ROWS)], acc)
    k.cluster.sync()


@ts.kernel(warps=2)
def sent_on(k: ts.Builder, *, mistake: str = "", size: int = 2) -> None:
    """Each CTA writes into the stage of the next one, which has to tell the one before it."""
    k.launch(grid=size, cluster=size)
    X, Y = (k.tensor(name, ts.s32, (size * TRIPS * 32,)) for name in ("X", "Y"))
    stage = k.shared("stage", ts.s32, (32,))
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    v, w = k.var("v"), k.var("w")
    open_cluster(k, (full, 1), (empty, 32))
    own = k.cluster_rank * (TRIPS * 32) + k.lane_id
    with k.role("sender", 1), k.loop(TRIPS) as i:
        following = (k.cluster_rank + 1) % size
        k.mbarrier.wait(empty, (i + 1) & 1, scope="cluster")
        k.mem.load(v, X[own + i * 32])
        k.mem.store(stage.view().at(following)[k.lane_id], v)
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(full.at(following), scope="cluster")
    with k.role("taker", 0), k.loop(TRIPS) as i:
        k.mbarrier.wait(full, i & 1, scope="cluster")
        k.mem.load(w, stage[k.lane_id])
        k.mem.store(Y[own + i * 32], w)
        if mistake == "own":
            k.mbarrier.arrive(empty)
        elif mistake != "none":
            k.mbarrier.arrive(empty.at((k.cluster_rank + size - 1) % size), scope="cluster")
    k.cluster.sync()


AT = 'k.mbarrier.arrive(empty[i % STAGES].at({}), scope="cluster")'
#: a kernel, its mistake, the size of the cluster, the rule, what the first repair is, and the
#: arrivals that it has in the source
MISTAKES: tuple[tuple[ts.Kernel, str, int, str, str, list[str]], ...] = (
    (shared_tiles, "own, not counted", 2, "race", "count 2 instead of 1",
     [AT.format(0), AT.format(1)]),
    (shared_tiles, "own, not counted", 4, "race", "count 4 instead of 1",
     [AT.format(n) for n in range(4)]),
    (shared_tiles, "own", 2, "deadlock", "instead of empty[i_1 % 2]", [AT.format(0), AT.format(1)]),
    (shared_tiles, "peer", 2, "deadlock", "instead of", [AT.format(0), AT.format(1)]),
    (one_loader, "own, not counted", 2, "race", "count 2 instead of 1", [AT.format(0)]),
    (one_loader, "own, not counted", 4, "race", "count 4 instead of 1", [AT.format(0)]),
    (one_loader, "own", 2, "deadlock", "instead of empty[i_1 % 2]", [AT.format(0)]),
    (one_loader, "one CTA", 2, "race", "does not hold; count 2 instead of 1", []),
    (one_loader, "none", 2, "deadlock", "after", [AT.format(0).replace("STAGES", "2")]),
    (sent_on, "own", 2, "race", "instead of empty[0]",
     ["k.mbarrier.arrive(empty.at(k.cluster_rank ^ 1), scope=\"cluster\")"]),
    (sent_on, "own", 3, "race", "instead of empty[0]",
     ["k.mbarrier.arrive(empty.at((k.cluster_rank + 2) % 3), scope=\"cluster\")"]),
    (sent_on, "none", 2, "deadlock", "after st",
     ["k.mbarrier.arrive(empty[0].at(k.cluster_rank ^ 1), scope=\"cluster\")"]),
)  # fmt: skip


def suggested(program: ts.Program | Mir, strict: Strict, rule: str) -> Repairs:
    report = ts.check(program, strict=strict, suggest=Wanted(timedelta(minutes=10)))
    assert rule in report.rules
    assert report.repairs is not None
    return report.repairs


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize(("kernel", "mistake", "size", "rule", "what", "lines"), MISTAKES)
def test_the_arrival_at_the_peer_is_suggested_first(
    kernel: ts.Kernel, mistake: str, size: int, rule: str, what: str, lines: list[str],
    strict: Strict,
) -> None:  # fmt: skip
    assert ts.check(kernel.build(size=size), strict=strict).verdict == "proved"
    first = suggested(kernel.build(mistake=mistake, size=size), strict, rule).found[0]
    assert first.what.startswith("mbarrier.arrive on empty[")
    assert ".at(" in first.what
    assert what in first.what
    assert ts.check(first.program, strict=strict).verdict == "proved"
    patches = [change.patch for change in first.changes if change.patch is not None]
    made = [line.strip() for patch in patches for line in patch.new if "empty" in line]
    assert [line for line in made if ".at(" in line] == lines


@pytest.mark.parametrize("mistake", ["own", "own, not counted"])
def test_machine_code_is_mended_too(mistake: str) -> None:
    program = lower(one_loader.build(mistake=mistake))
    rule = "race" if "not" in mistake else "deadlock"
    first = suggested(program, "practice", rule).found[0]
    assert "mbarrier.arrive on empty[" in first.what
    assert ts.check(first.program).verdict == "proved"


def test_the_cause_names_the_arrival_that_stays_at_home() -> None:
    finding = ts.check(one_loader.build(mistake="own")).findings[0]
    assert finding.diagnosis == "stays_at_home"
    assert "CTA 1 empty[0], for which no instruction waits" in finding.cause
    assert finding.culprits[0].cta == 1
    assert finding.culprits[0].loc.line == _line("k.mbarrier.arrive(empty[i % STAGES])")
    assert finding.fix == "let consumer (CTA 1 warp 0) arrive on CTA 0 empty[0]"


def _line(text: str) -> int:
    """The line of the second kernel with a text."""
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    begin = next(n for n, line in enumerate(lines) if "def one_loader" in line)
    return next(n for n, line in enumerate(lines, 1) if n > begin and line.strip() == text)


def test_bytes_that_arrive_in_another_phase_are_no_cause() -> None:
    """One instruction expects the bytes of the first phases, another one those of the others."""
    finding = ts.check(one_loader.build(mistake="one CTA")).findings[0]
    assert finding.diagnosis == "not_asked"
    finding = ts.check(one_loader.build(mistake="none")).findings[0]
    assert finding.diagnosis == "nobody_arrives"
    assert "CTA 0 empty[0]" in finding.cause
