"""Arrivals on barriers of other CTAs: put in, or in the place of one that stays at home."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tilesim as ts
from tests.gpu import needs
from tests.ptx.test_cuda import SOURCES, compiled
from tilesim.checker import check
from tilesim.ir.declarations import ds
from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.lib.opening import open_cluster
from tilesim.ptx.launch import Launch, Pointer, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower as read_ptx
from tilesim.repair import Repairs, Wanted
from tilesim.report.diff import Diff
from tilesim.report.result import Checked
from tilesim.transforms.lower import lower

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
    (one_loader, "none", 2, "deadlock", "after", [AT.format(0)]),
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


#: those of two CTAs at `ptx`, where what is suggested is the same
ASKED: list[tuple[Any, ...]] = [(*row, "ptx" if row[2] == 2 else "practice") for row in MISTAKES]


@pytest.mark.parametrize(("kernel", "mistake", "size", "rule", "what", "lines", "strict"), ASKED)
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


def test_an_arm_that_is_put_in_is_shown() -> None:
    first = suggested(one_loader.build(mistake="one CTA"), "practice", "race").found[0]
    shown = [line for change in first.changes for line in change.after if "cluster_rank" in line]
    assert shown == ["if %cluster_rank == 0 { ... } else {"]
    arrivals = [line for change in first.changes for line in change.after if "arrive" in line]
    assert arrivals == ["    mbarrier.arrive empty[i_1 % 2].at(0), scope=cluster"]


@pytest.mark.parametrize("mistake", ["own", "own, not counted"])
def test_machine_code_is_mended_too(mistake: str) -> None:
    program = lower(one_loader.build(mistake=mistake))
    rule = "race" if "not" in mistake else "deadlock"
    first = suggested(program, "practice", rule).found[0]
    assert "mbarrier.arrive on empty[" in first.what
    assert ts.check(first.program).verdict == "proved"


def test_the_cause_names_the_arrival_that_stays_at_home() -> None:
    finding = ts.check(one_loader.build(mistake="own")).findings[0]
    assert finding.diagnosis == "arrival_in_own_cta"
    assert "CTA 1 empty[0], on which no warp waits" in finding.cause
    assert finding.culprits[0].cta == 1
    assert finding.culprits[0].loc.line == _line("k.mbarrier.arrive(empty[i % STAGES])")
    assert finding.fix == (
        "let consumer (CTA 1 warp 0) arrive on the empty of CTA 0, and count it there"
    )


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
    assert finding.diagnosis == "never_arrived"
    assert "CTA 0 empty[0]" in finding.cause


# ---------------------------------------------------------------------- CUDA and PTX

#: helpers that say what the wrappers of one instruction do not
FURTHER = r"""F void multicast(void *s, const void *g, u32 n, u64 *b, unsigned short mask) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster [%0], [%1], %2, [%3], %4;"
               ::"r"(at(s)), "l"(g), "r"(n), "r"(at(b)), "h"(mask) : "memory");
}
F void peer_store(float *p, u32 cta, float v) {
  asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.f32 [r], %2;}"
               ::"r"(at(p)), "r"(cta), "f"(v) : "memory");
}
"""
HEAD = (SOURCES / "wrappers.cu").read_text().replace("#line 1\n", FURTHER)
#: each CTA loads a part of each tile for all
TILES = r"""
  __shared__ u64 full[2], empty[2];
  __shared__ alignas(128) float s[2][32 * SIZE];
  const int t = threadIdx.x, r = rank();
  if (t == 0) {
    for (int i = 0; i < 2; ++i) {
      init(&full[i], 1);
      init(&empty[i], COUNT);
    }
    init_fence();
  }
  cluster_sync();
  if (t == 0) {
    for (int i = 0; i < n; ++i) {
      wait(&empty[i % 2], (i / 2 + 1) & 1);
      expect(&full[i % 2], 128 * SIZE);
      multicast(&s[i % 2][32 * r], x + (i * SIZE + r) * 32, 128, &full[i % 2], (1 << SIZE) - 1);
    }
  } else if (t >= 32) {
    float acc = 0;
    for (int i = 0; i < n; ++i) {
      wait(&full[i % 2], (i / 2) & 1);
      for (int c = 0; c < SIZE; ++c) acc += s[i % 2][c * 32 + t - 32];
      __syncwarp();
      if (t == 32) RELEASE;
    }
    y[r * 32 + t - 32] = acc;
  }
  cluster_sync();
"""
#: each of two CTAs writes into the other one's stage
STAGE = r"""
  __shared__ u64 full, empty;
  __shared__ float s[32];
  const int t = threadIdx.x, r = rank();
  if (t == 0) {
    init(&full, 32);
    init(&empty, COUNT);
    init_fence();
  }
  cluster_sync();
  if (t < 32) {
    for (int i = 0; i < n; ++i) {
      wait(&empty, (i + 1) & 1);
      peer_store(&s[t], r ^ 1, x[(r * n + i) * 32 + t]);
      arrive_at(&full, r ^ 1);
    }
  } else {
    for (int i = 0; i < n; ++i) {
      wait(&full, i & 1);
      y[(r * n + i) * 32 + t - 32] = s[t - 32];
      RELEASE;
    }
  }
  cluster_sync();
"""
OTHERS = "for (unsigned cta = 0; cta < 4; ++cta) arrive_at(&empty[i % 2], cta)"
BOTH = "{ arrive(&empty[i % 2]); arrive_at(&empty[i % 2], rank() ^ 1); }"
INLINE = (
    'asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; '
    'mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];}" :: "r"(at(&empty)), '
    '"r"(rank() ^ 1) : "memory")'
)
#: a kernel, the size of the cluster, the count and the release that are wrong and right, and the
#: rule that is broken
COMPILED = (
    (TILES, 2, ("1", "arrive(&empty[i % 2])"), ("2", BOTH), "race"),
    (TILES, 2, ("2", "arrive(&empty[i % 2])"), ("2", BOTH), "deadlock"),
    (TILES, 4, ("1", "arrive(&empty[i % 2])"), ("4", OTHERS), "race"),
    (STAGE, 2, ("32", "arrive(&empty)"), ("32", "arrive_at(&empty, rank() ^ 1)"), "race"),
    (STAGE, 2, ("32", "arrive(&empty)"), ("32", INLINE), "race"),
)


def source(body: str, size: int, count: str, release: str) -> str:
    """A file with a kernel."""
    text = body.replace("COUNT", count).replace("RELEASE", release).replace("SIZE", str(size))
    head = f'extern "C" __global__ void __cluster_dims__({size}, 1, 1) __launch_bounds__(64)'
    return f"{HEAD}{head}\nf(const float *x, float *y, int n) {{{text}}}\n".replace("};\n", "}\n")


def program(size: int, ptx: str, file: str = "k.ptx") -> Mir:
    """What the machine runs of PTX of a kernel."""
    params = (Pointer("x", 1 << 14), Pointer("y", 1 << 12), Scalar("n", "s32", 5))
    module = read(ptx, file)
    return read_ptx(
        module,
        module.entries[0],
        Launch("f", (size, 1, 1), (64, 1, 1), (size, 1, 1), params=params),
    )


@needs.compiler
@pytest.mark.parametrize(("body", "size", "wrong", "right", "rule"), COMPILED)
def test_a_release_at_the_peer_is_a_patch_of_the_source(
    body: str, size: int, wrong: tuple[str, str], right: tuple[str, str], rule: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    text = source(body, size, *wrong)
    if right[1] == INLINE:  # there is no helper
        own = INLINE.replace("empty", "full").replace("rank()", "r")
        helper = text[text.index("F void arrive_at") : text.index("F u32 rank")]
        text = text.replace(helper, "").replace("arrive_at(&full, r ^ 1)", own)
    Path("k.cu").write_text(text)
    found = program(size, compiled(text))
    report = check(found, suggest=Wanted(timedelta(minutes=10), read=lambda _: found))
    assert rule in report.rules
    assert report.repairs is not None
    first = replace(report.repairs, found=report.repairs.found[:1])
    title = first.found[0].what
    assert title.startswith("an arrival on the barrier of another CTA")
    said = f"; count {right[0]} instead of {wrong[0]} in mbarrier.init"
    assert title.endswith(said) == (right[0] != wrong[0])
    assert "address(" not in title
    diff = Diff.of([Checked("k", "sm_90a", replace(report, repairs=first))]).text()
    subprocess.run(["patch", "-p1"], input=diff, text=True, check=True, capture_output=True)
    mended = Path("k.cu").read_text()
    assert mended == text.replace(f"empty[i], {wrong[0]}", f"empty[i], {right[0]}").replace(
        f"{wrong[1]};", right[1] if right[1].endswith("}") else f"{right[1]};"
    )  # fmt: skip
    assert check(program(size, compiled(mended))).verdict == "proved"


@needs.compiler
def test_without_the_source_a_release_at_the_peer_is_told_without_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = program(2, compiled(source(STAGE, 2, "32", "arrive(&empty)")))
    report = check(found, suggest=Wanted(timedelta(minutes=10), read=lambda _: found))
    assert report.repairs is not None
    first = report.repairs.found[0]
    assert (first.what, first.patches) == ("another operand of mbarrier.arrive", ())


@needs.compiler
@pytest.mark.parametrize(("size", "count"), [(2, "1"), (4, "4")])
def test_a_release_at_the_peer_is_a_patch_of_ptx(
    size: int, count: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = compiled(source(TILES, size, count, "arrive(&empty[i % 2])"))
    text = re.sub(r"^\s*\.(?:loc|file).*$", "", text, flags=re.MULTILINE)
    text = text[: text.find(".section")] if ".section" in text else text
    Path("k.ptx").write_text(text)
    wanted = Wanted(timedelta(minutes=10), read=lambda ptx: program(size, ptx))
    report = check(program(size, text), suggest=wanted)
    assert report.repairs is not None
    first = replace(report.repairs, found=report.repairs.found[:1])
    diff = Diff.of([Checked("k", "sm_90a", replace(report, repairs=first))]).text()
    subprocess.run(["patch", "-p1"], input=diff, text=True, check=True, capture_output=True)
    mended = Path("k.ptx").read_text()
    made = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%repaired];"
    assert mended.count(made) == (1 if size == 2 else size) * text.count("mbarrier.arrive.shared")
    assert check(program(size, mended)).verdict == "proved"
