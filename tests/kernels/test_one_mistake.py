"""One mistake is one finding: its line is the first one named, and what it comes to follows it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilesim as ts
from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import Kernel
from tilesim.lib.opening import open_cluster, open_cta
from tilesim.mistakes import diagnose as explain
from tilesim.report.text import fold

STAGES, ROWS, WARPS, TURNS = 2, 64, 4, 5


@ts.kernel(warps=WARPS + 1)
def ring(k: Builder, *, bug: str = "") -> None:
    """A producer and four consumers."""
    source = k.tensor("source", ts.bf16, (TURNS * ROWS, 64))
    result = k.tensor("result", ts.bf16, (TURNS * ROWS, 64))
    box = k.tensor_map(source, (ROWS, 64))
    tile = k.shared("tile", ts.bf16, (STAGES, ROWS, 64))
    full, empty = k.mbarriers("full", STAGES), k.mbarriers("empty", STAGES)
    part = k.fragment("part", ts.bf16, (ROWS // WARPS, 64))
    open_cta(k, (full, 1), (empty, WARPS))
    with k.role("load", WARPS):
        if bug == "lanes":
            with k.loop(TURNS) as i:
                k.mbarrier.wait(empty[i % STAGES], ((i // STAGES) & 1) ^ 1)
                k.mbarrier.arrive_expect_tx(full[i % STAGES], box.box_bytes)  # @lanes
                k.tma.load(box, tile[i % STAGES], (i * ROWS, 0), full[i % STAGES])
        else:
            with k.elected(), k.loop(TURNS) as i:
                if bug != "again":
                    k.mbarrier.wait(empty[i % STAGES], ((i // STAGES) & 1) ^ 1)
                k.mbarrier.arrive_expect_tx(full[i % STAGES], box.box_bytes)  # @again
                slot = (i + 1) % STAGES if bug == "slot" else i % STAGES
                k.tma.load(box, tile[slot], (i * ROWS, 0), full[i % STAGES])  # @slot
    with k.role("use", range(WARPS)), k.loop(TURNS) as i:
        if bug != "unwaited":
            k.mbarrier.wait(full[i % STAGES], (i // STAGES) & 1)
        rows = ts.ds(k.warp_id * (ROWS // WARPS), ROWS // WARPS)
        k.tile.load(part, tile[i % STAGES, rows, :])  # @unwaited
        k.tile.store(result[ts.ds(i * ROWS + k.warp_id * 16, 16), :], part)
        if bug == "all":
            k.mbarrier.arrive(empty[i % STAGES])  # @all
        else:
            with k.elected():
                k.mbarrier.arrive(empty[i % STAGES])
                if bug == "twice":
                    k.mbarrier.arrive(empty[i % STAGES])  # @twice


@ts.kernel(warps=4)
def turns(k: Builder, *, bug: str = "") -> None:
    """Two warps hand a word back and forth at named barriers."""
    result = k.tensor("result", ts.s32, (TURNS + 1, 32))
    word = k.shared("word", ts.s32, (32,))
    value = k.var("value", 0)
    with k.role("give", 0), k.loop(TURNS) as i:
        k.bar.sync(3 if bug == "id" else 2, 96 if bug == "count" else 64)  # @count @id
        k.mem.store(word[k.lane_id], i)
        k.bar.arrive(1, 64)
    more = int(bug == "trips")
    with k.role("take", 1), k.loop(TURNS + more) as i:  # @trips
        k.bar.arrive(2, 64)
        if bug != "nobody":
            k.bar.sync(1, 64)
        k.mem.load(value, word[k.lane_id])  # @nobody
        k.mem.store(result[i, k.lane_id], value)
    with k.role("rest", (2, 3)):
        if bug == "stray":
            k.bar.sync(1, 64)  # @stray


@ts.kernel(warps=4)
def staged(k: Builder, *, bug: str = "") -> None:
    """cp.async, three stages, of which every warp reads what another one has copied."""
    source, result = (k.tensor(name, ts.f32, (TURNS, 4, 128)) for name in ("source", "result"))
    s = k.shared("s", ts.f32, (3, 4, 128))
    part = k.fragment("part", ts.f32, (1, 128))
    for first in range(2):
        k.cp_async.copy(s[first, k.warp_id], source[first, k.warp_id])
        k.cp_async.commit_group()
    with k.loop(TURNS) as i:
        k.cp_async.wait_group(2 if bug == "late" else 1)  # @late
        k.sync_threads()
        row = ts.ds((k.warp_id + 1) % 4, 1)
        k.tile.load(part, s[i % 3, row, :])
        k.tile.store(result[i, row, :], part)
        with k.if_(i + 2 < TURNS):
            k.cp_async.copy(s[(i + 2) % 3, k.warp_id], source[i + 2, k.warp_id])  # @uncommitted
        if bug != "uncommitted":
            k.cp_async.commit_group()


@ts.kernel(warps=3)
def in_a_row(k: Builder, *, bug: str = "") -> None:
    """Each warp waits for the one before, and lets the next one go."""
    b = k.mbarriers("b", 3)
    open_cta(k, (b, 1))
    for warp, name in enumerate(("one", "two", "three")):
        with k.role(name, warp), k.elected():
            if warp or bug == "cycle":
                k.mbarrier.wait(b[warp], 0)  # @cycle
            if bug == "exit" and warp == 1:
                k.exit()  # @exit
            if bug == "once more" and warp == 1:
                k.mbarrier.wait(b[warp], 1)  # @once more
            k.mbarrier.arrive(b[(warp + 1) % 3])
    with k.role("last", 0), k.elected():
        k.mbarrier.wait(b[0], 0)


@ts.kernel(warps=5)
def pair(k: Builder, *, bug: str = "") -> None:
    """Each CTA of a pair loads half a tile for both."""
    k.launch(grid=2, cluster=2)
    source = k.tensor("source", ts.bf16, (TURNS * 64, 64))
    result = k.tensor("result", ts.bf16, (2 * TURNS * 64, 64))
    box = k.tensor_map(source, (32, 64))
    tile = k.shared("tile", ts.bf16, (2, 64, 64))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    part = k.fragment("part", ts.bf16, (16, 64))
    open_cluster(k, (full, 1), (empty, 8))
    with k.role("load", 4), k.elected(), k.loop(TURNS) as i:
        k.mbarrier.wait(empty[i % 2], ((i // 2) & 1) ^ 1)
        halves = 1 if bug == "bytes" else 2
        k.mbarrier.arrive_expect_tx(full[i % 2], halves * box.box_bytes)  # @bytes
        half = tile[i % 2, ts.ds(k.cluster_rank * 32, 32), :]
        start = (i * 64 + k.cluster_rank * 32, 0)
        k.tma.load(box, half, start, full[i % 2], multicast=3)
    with k.role("use", range(4)), k.loop(TURNS) as i:
        k.mbarrier.wait(full[i % 2], (i // 2) & 1, scope="cluster")
        k.tile.load(part, tile[i % 2, ts.ds(k.warp_id * 16, 16), :])
        row = (k.cluster_rank * TURNS + i) * 64 + k.warp_id * 16
        k.tile.store(result[ts.ds(row, 16), :], part)
        with k.elected():
            k.mbarrier.arrive(empty[i % 2].at(0))
            k.mbarrier.arrive(empty[i % 2].at(0 if bug == "rank" else 1))  # @rank
    k.cluster.sync()


@ts.kernel(warps=2)
def stored(k: Builder, *, bug: str = "") -> None:
    """Two warps fill a tile, one thread stores it, and they fill it again."""
    result = k.tensor("result", ts.f32, (2, 2, 32))
    tile = k.shared("tile", ts.f32, (2, 32))
    k.mem.store(tile[k.warp_id, k.lane_id], 1.0)
    k.fence.proxy_async("shared::cta")
    if bug != "by itself":
        k.sync_threads()
    if bug == "by itself":
        with k.if_(k.lane_id.eq(0)):
            k.bulk.store(result[0, k.warp_id], tile[k.warp_id])  # @by itself
            k.bulk.commit_group()
            k.bulk.wait_group(0)
        return
    with k.one_thread():
        k.bulk.store(result[0], tile)
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    if bug != "not met":
        k.sync_threads()
    k.mem.store(tile[k.warp_id, k.lane_id], 2.0)  # @not met


MISTAKES = (
    (ring, "lanes", "over-arrival", "all 32 lanes execute mbarrier.arrive.expect_tx", "one lane"),
    (ring, "all", "over-arrival", "all 32 lanes execute mbarrier.arrive on", "one lane"),
    (ring, "again", "over-arrival", "again and has not waited", "wait before"),
    (ring, "slot", "race", "the copy fills slot", "name the barrier of slot"),
    (ring, "unwaited", "race", "and no warp waits for it", "wait for full[0]"),
    (ring, "twice", "over-arrival", "initialised with 4, and 8 arrivals", "4 instead of 8"),
    (turns, "count", "named-barrier", "2 warps come to the named barrier", "join with 64"),
    (turns, "id", "deadlock", "no other warp comes to named barrier 3", "named barrier 3"),
    (turns, "trips", "deadlock", "comes 5 times to named barrier 1", "named barrier 1"),
    (turns, "nobody", "race", "no warp waits there", "join named barrier 1"),
    (turns, "stray", "race", "4 warps join the named barrier", "all 128 threads"),
    (staged, "late", "race", "cp.async.wait_group 2 does not wait", "fewer groups than 2"),
    (staged, "uncommitted", "race", "cp.async is never committed", "commit_group after"),
    (in_a_row, "cycle", "deadlock", "each of these waits before it does", "arrive first"),
    (in_a_row, "exit", "deadlock", "two (warp 1) exits before it", "arrive on b[2]"),
    (in_a_row, "once more", "deadlock", "the last arrival counted for phase 0", "do not wait"),
    (pair, "bytes", "race", "4096 bytes are expected on CTA 0 full[0]", "8192 instead of 4096"),
    (stored, "by itself", "race", "wait for other lanes of it", "bar.warp.sync"),
    (stored, "not met", "race", "makes it wait for", "let warp 1 wait for warp 0: a barrier"),
    (pair, "rank", "over-arrival", "initialised with 8, and 16 arrivals", "8 instead of 16"),
)


@pytest.mark.parametrize(
    ("kernel", "bug", "rule", "cause", "fix"),
    MISTAKES,
    ids=[f"{kernel.name}-{bug}" for kernel, bug, *_ in MISTAKES],
)
def test_it_is_named_first_and_alone(
    kernel: Kernel, bug: str, rule: str, cause: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "RAISES", True)
    report = check(kernel.build(bug=bug))
    assert report.verdict == "failed"
    (folded,) = fold(report.findings)
    finding = folded.finding
    assert (finding.rule, cause in finding.cause) == (rule, True), finding.cause
    assert fix in finding.fix
    lines = Path(__file__).read_text().splitlines()
    (line,) = (n for n, text in enumerate(lines, 1) if f"@{bug}" in text.partition("#")[2])
    assert finding.locations[0].line == line


@pytest.mark.parametrize(
    "kernel", [ring, turns, staged, in_a_row, stored, pair], ids=lambda k: k.name
)
def test_without_a_mistake_they_are_proved(kernel: Kernel) -> None:
    assert check(kernel.build()).verdict == "proved"


def test_a_role_is_named_for_what_is_in_its_region() -> None:
    finding = check(in_a_row.build(bug="exit")).findings[0]
    chain = [note for note in finding.notes if " waits on b[0]" in note]
    assert chain[0].startswith("last (warp 0) waits on b[0] parity 0")  # not "one", its other role
    inits = check(ring.build(bug="twice")).findings[0].culprits[1]
    assert (inits.role, inits.action) == ("warp 0", "initialises empty[0] with 4")


def test_equal_contributions_of_several_warps_are_one_line() -> None:
    @ts.kernel(warps=5)
    def too_many(k: Builder) -> None:
        b = k.mbarriers("b")
        open_cta(k, (b, 5))
        with k.role("four", range(4)), k.elected():
            k.mbarrier.arrive(b)
        with k.role("last", 4):
            k.mbarrier.wait(b, 0)

    finding = check(too_many.build()).findings[0]
    assert finding.cause == "b[0] is initialised with 5, and 4 arrivals are made on it per use"
    actions = [p.action for p in finding.culprits]
    assert "makes 1 arrival on b[0] each time, as 4 warps do: 4 in all" in actions
    made = [note.partition(" at ")[0] for note in finding.notes if " by " in note]
    assert made == ["  1 arrival each by mbarrier.arrive of four (warps 0-3)"]
