"""Repairs of CUDA are CUDA: lines of the file, that are compiled again and proved."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import tilesim as ts
from tests.gpu import needs
from tests.ptx.test_cuda import compiled
from tilesim.checker import Report, check
from tilesim.ir.expr import Const
from tilesim.ir.mir import Mir
from tilesim.ir.ops.bar import BarSync, SyncWarp
from tilesim.ir.ops.bulk import BulkWaitGroup
from tilesim.ir.ops.cluster import ClusterArrive, ClusterWait
from tilesim.ir.ops.cp_async import CpAsyncWaitGroup
from tilesim.ir.ops.scalar import Load, Store
from tilesim.ptx.launch import Launch, Pointer, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.repair import Wanted
from tilesim.repair.cuda import Source, of_file
from tilesim.repair.hoisted_inits import hoisted_inits
from tilesim.repair.moved_data import moved_data
from tilesim.repair.source_edits import SourceEdits
from tilesim.repair.source_order import SourceOrder
from tilesim.report.diff import Diff
from tilesim.report.result import Checked
from tilesim.report.text import render
from tilesim.transforms.rewrite import edited, statements

HEAD = (Path(__file__).parent / "cuda" / "head.cu").read_text()

#: one thread writes a total, all read it; the compiler reads before the write
TOTAL = """
  __shared__ float s[32];
  const int t = threadIdx.x;
  if (t < 32) s[t] = x[t];
  __syncthreads();
  if (t == 31) {
    s[31] = s[31] + x[40];
  }
  y[t] = s[31] + t;
"""
#: 64 copies of one line
ROWS = """
  __shared__ alignas(16) float s[64][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = lane; i < 128; i += 32) {
    const int e = warp * 512 + i * 4;
    cp16(&s[0][0] + e, x + e);
  }
  cp_commit();
  cp_wait<0>();
  __syncwarp();
  float acc = 0;
  for (int r = 0; r < 64; ++r) acc += s[r][lane];
  y[warp * 32 + lane] = acc;
"""
#: a turn overwrites what others read in the one before it
TURNS = """
  __shared__ float s[128];
  const int t = threadIdx.x;
  float acc = 0;
  for (int i = 0; i < n; ++i) {
    s[t] = x[i * 128 + t];
    __syncthreads();
    acc += s[127 - t];
  }
  y[t] = acc;
"""
#: a flag is read by all and set in the same turn
FLAG = """
  __shared__ int done;
  __shared__ float s[128];
  const int t = threadIdx.x;
  if (t == 0) done = 0;
  __syncthreads();
  for (int i = 0; i < n; ++i) {
    if (done) break;
    s[t] = x[i * 128 + t];
    if (t == 0) done = i + 1 == n - 1;
    __syncthreads();
    y[t] = s[127 - t];
  }
"""
#: a copy reads what all overwrite
STAGED = """
  __shared__ alignas(128) float s[128];
  const int t = threadIdx.x;
  s[t] = x[t];
  fence_async();
  __syncthreads();
  if (t == 0) {
    bulk_store(y, s, sizeof s);
    bulk_commit();
  }
  s[t] = 1;
  __syncthreads();
  y[128 + t] = s[127 - t];
  if (t == 0) bulk_wait_read<0>();
"""
#: half of the lanes of the only warp come to a barrier
HALF = """
  __shared__ float s[32];
  const int t = threadIdx.x;
  s[t] = x[t];
  __syncwarp();
  if (t % 2 == 0) {
    float a = s[t];
    __syncthreads();
    s[t ^ 1] = a;
  }
  __syncthreads();
  y[t] = s[t];
"""
#: nothing keeps the other CTA until its memory has been read
PEER = """
  __shared__ float s[128];
  const int t = threadIdx.x, r = cta_rank();
  s[t] = x[r * 128 + t];
  cluster_sync();
  unsigned a;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(at(&s[t])), "r"(r ^ 1));
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(a) : "memory");
  y[r * 128 + t] = v;
"""
#: a ring of one slot, of which a wait names the other parity
RING = """
  __shared__ float s[96];
  __shared__ unsigned long long full, empty;
  const int t = threadIdx.x;
  if (t == 0) {
    mb_init(&full, 96);
    mb_init(&empty, 32);
  }
  __syncthreads();
  float acc = 0;
  for (int i = 0; i < n; ++i) {
    if (t >= 32) {
      mb_wait(&empty, EMPTY);
      s[t - 32] = x[i * 96 + t];
      mb_arrive(&full);
    } else {
      mb_wait(&full, FULL);
      acc += s[t] + s[t + 64];
      mb_arrive(&empty);
    }
  }
  if (t < 32) y[t] = acc;
"""
#: each turn initialises the barrier again, whose phase goes on
AGAIN = """
  __shared__ float s[128];
  __shared__ unsigned long long bar;
  const int t = threadIdx.x;
  float acc = 0;
  for (int i = 0; i < n; ++i) {
    if (FIRST) {
      mb_init(&bar, 128);
    }
    __syncthreads();
    s[t] = x[i * 128 + t];
    mb_arrive(&bar);
    mb_wait(&bar, i & 1);
    acc += s[127 - t];
    __syncthreads();
  }
  y[t] = acc;
"""
#: a copy reads what begins at byte 8
MOVED = """
  extern __shared__ __align__(128) char memory[];
  float *s = (float *)(memory + sizeof(unsigned long long));
  const int t = threadIdx.x;
  s[t] = x[t];
  fence_async();
  __syncthreads();
  if (t == 0) {
    bulk_store(y, s, 512);
    bulk_commit();
    bulk_wait_read<0>();
  }
"""
#: by name: the body of a kernel, the rule, and the lines of the first patch with a neighbour
KERNELS = {
    "total": (TOTAL, "race", ["+  __syncthreads();", "   y[t] = s[31] + t;"]),
    "rows": (ROWS, "race", ["+  __syncthreads();",
                            "   for (int r = 0; r < 64; ++r) acc += s[r][lane];"]),
    "turns": (TURNS, "race", ["+    __syncthreads();", "     s[t] = x[i * 128 + t];"]),
    "flag": (FLAG, "race", ["+    __syncthreads();", "     s[t] = x[i * 128 + t];"]),
    "staged": (STAGED, "race", ["+  bulk_wait_read<0>();", "+  __syncthreads();",
                                "   s[t] = 1;"]),
    "half": (HALF, "participation", ["-    __syncthreads();", "     s[t ^ 1] = a;"]),
    "parity": (RING.replace("EMPTY", "i & 1").replace("FULL", "i & 1"), "deadlock",
               ["-      mb_wait(&empty, i & 1);", "+      mb_wait(&empty, (i & 1) ^ 1);"]),
    "flipped": (RING.replace("EMPTY", "(i % 2) ^ 1").replace("FULL", "(i % 2) ^ 1"), "race",
                ["-      mb_wait(&full, (i % 2) ^ 1);", "+      mb_wait(&full, (i % 2));"]),
    "again": (AGAIN.replace("FIRST", "t == 0"), "barrier-lifetime",
              ["+  if (t == 0) {", "+    mb_init(&bar, 128);", "+  }",
               "   for (int i = 0; i < n; ++i) {", "-    if (t == 0) {"]),
    "moved": (MOVED, "out-of-bounds",
              ["-  float *s = (float *)(memory + sizeof(unsigned long long));",
               "+  float *s = (float *)(memory + 16);"]),
    "peer": (PEER, "peer-exit", ["   y[r * 128 + t] = v;", "+  cluster_sync();"]),
}  # fmt: skip


def source(name: str) -> str:
    """The file with a kernel."""
    cluster = "__cluster_dims__(2, 1, 1) " if name == "peer" else ""
    head = f'extern "C" __global__ void {cluster}f(const float *x, float *y, int n) {{'
    return f"{HEAD}{head}{KERNELS[name][0]}}}\n"


def program(name: str, text: str) -> Mir:
    """What the machine runs of PTX of a kernel."""
    ctas, threads = (2 if name == "peer" else 1), (32 if name == "half" else 128)
    cluster = (2, 1, 1) if name == "peer" else (1, 1, 1)
    params = (Pointer("x", 1 << 13), Pointer("y", 1 << 12), Scalar("n", "s32", 3))
    module = read(text, "k.ptx")
    dynamic = 1024 if name == "moved" else 0
    launch = Launch("f", (ctas, 1, 1), (threads, 1, 1), cluster, dynamic, params=params)
    return lower(module, module.entries[0], launch)


def suggested(name: str) -> Report:
    """What is suggested for a kernel in the working folder."""
    found = program(name, compiled(Path("k.cu").read_text()))
    return check(found, suggest=Wanted(timedelta(minutes=10), read=lambda _: found))


@needs.compiler
@pytest.mark.parametrize("name", KERNELS)
def test_a_patch_is_cuda_and_what_it_makes_is_proved(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = source(name)
    Path("k.cu").write_text(text)
    report = suggested(name)
    _, rule, lines = KERNELS[name]
    assert rule in report.rules
    assert report.repairs is not None
    for place, repair in enumerate(report.repairs.found):
        Path("k.cu").write_text(text)
        only = replace(report.repairs, found=(repair,))
        diff = Diff.of([Checked(name, "sm_90a", replace(report, repairs=only))]).text()
        assert diff.startswith("--- a/k.cu\n+++ b/k.cu\n")
        subprocess.run(["patch", "-p1"], input=diff, text=True, check=True, capture_output=True)
        again = check(program(name, compiled(Path("k.cu").read_text())))
        assert again.verdict == "proved", (repair.what, diff)
        if not place:
            assert "\n".join(lines) in diff, diff
            assert diff.count("@@ ") == 1
            assert len({str(change.place) for change in repair.changes}) == len(repair.changes)


@needs.compiler
def test_an_order_that_the_source_has_not_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler reads before the write; a barrier behind the read would order them so."""
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(source("total"))
    monkeypatch.setattr("tilesim.repair.suggest.with_reads_at_uses", lambda mir, findings: mir)
    repairs = suggested("total").repairs
    assert repairs is not None
    assert all(
        "comes before the write at k.cu" in repair.what
        and "the source has the write first" in repair.what
        for repair in repairs.found
    )


@needs.compiler
def test_without_the_source_a_repair_is_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = Path("k.cu")
    place.write_text(source("turns"))
    found = program("turns", compiled(place.read_text()))
    place.unlink()
    report = check(found, suggest=Wanted(timedelta(minutes=10), read=lambda _: found))
    assert report.repairs is not None
    (first, *_) = report.repairs.found
    assert not first.patches
    assert all((change.old, change.new) == ((), ()) for change in first.changes)
    assert {change.place.file for change in first.changes} == {"k.cu"}
    shown = render([Checked("turns", "sm_90a", report)])
    assert not [line for line in shown.splitlines() if line.strip().startswith(("- ", "+ "))]


@ts.kernel(warps=2)
def exchange(k: ts.Builder) -> None:
    """Each lane reads what one of the other warp has written, and nothing is between."""
    s, v = k.shared("s", ts.s32, (64,)), k.var("v")
    k.mem.store(s[k.thread_id], 1)
    k.mem.load(v, s[63 - k.thread_id])


def test_a_repair_keeps_what_reads_see() -> None:
    built = exchange.build()
    report = check(built)
    assert report.rules == {"race"}
    order = SourceOrder(built, report.findings, "practice", {})
    ops = statements(built)
    store = next(n for n, op in enumerate(ops) if isinstance(op, Store))
    load = next(n for n, op in enumerate(ops) if isinstance(op, Load))
    barrier = BarSync(id=Const(0))
    right = edited(built, {load: (barrier, ops[load])})
    wrong = edited(built, {store: (ops[load], barrier, ops[store]), load: ()})
    assert check(right).verdict == "proved"
    assert order.reversal(right) == ""
    assert "comes before the write at" in order.reversal(wrong)


@needs.compiler
@pytest.mark.parametrize("first", ["t == 0 && i < 9", "t == int(acc)", "t == 0 && y[i] == 0"])
def test_an_init_that_depends_on_the_iteration_stays_in_its_loop(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for condition, number in ((first, 0), ("t == 0", 1)):
        head = 'extern "C" __global__ void f(const float *x, float *y, int n) {'
        Path("k.cu").write_text(f"{HEAD}{head}{AGAIN.replace('FIRST', condition)}}}\n")

        edits = SourceEdits.of(program("again", compiled(Path("k.cu").read_text())))
        assert edits is not None
        assert len([*hoisted_inits(edits)]) == number


@needs.compiler
@pytest.mark.parametrize(
    ("old", "new", "number"),
    [
        ("", "", 2), ("sizeof(unsigned long long)", "2 * 4", 2),
        ("s[t] =", "((float *)memory)[t] =", 2),
        # other data may lie there, or it is aligned
        ("s[t] =", "((float *)(memory + 512))[t] =", 0), ("s[t] =", "(memory + t)[8] =", 0),
        ("s[t] =", "(n > 3 ? s : (float *)memory)[t] =", 0),
        ("s[t] =", "float *p = (float *)memory; for (int i = 0; i < n; ++i) *(p += x[i] > 0) =", 0),
        ("s[t] =", "memory[8] =", 0), ("sizeof(unsigned long long)", "sizeof(float[4]) / 2", 0),
        ("sizeof(unsigned long long)", "128", 0),
    ],
)  # fmt: skip
def test_data_is_moved_whose_place_one_line_says(
    old: str, new: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(source("moved").replace(old, new) if old else source("moved"))
    edits = SourceEdits.of(program("moved", compiled(Path("k.cu").read_text())))
    assert edits is not None
    assert len([*moved_data(edits)]) == number


def test_statements_of_a_file() -> None:
    text = (
        f"{HEAD}"
        "#define X {\n"
        "template <typename T> struct Tile { __device__ void put(T v) { a = v; } T a; };\n"
        "namespace n { __global__ void __launch_bounds__(128, 2) f(int *p) { // {\n"
        '  const char *s = "}{";\n'
        "  if (p) { p[0] = 1; } else\n"
        "    p[1] =\n"
        "      2;\n"
        "  auto g = [&](int i) { return i; };\n"
        "  switch (p[2]) {\n"
        "  case 1: p[3] = g(1); break;\n"
        "  default: p[4] = 1;\n"
        "  }\n"
        "} }\n"
    )
    found = Source("k.cu", text.split("\n"))
    (f,) = [function for function in found.functions if function.name == "f"]
    base = f.first
    kinds = [(s.kind, s.first - base, s.last - base) for s in f.body.statements]
    assert kinds == [("simple", 1, 1), ("if", 2, 4), ("simple", 5, 5), ("switch", 6, 9)]
    assert [s.first - base for s in found.whole(base + 4)] == [2]
    assert not [s for s in found.whole(base + 7) if s.kind == "simple"]  # two in a line


def test_helpers_of_headers_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a namespace may have another name in the kernel; headers may include each other."""
    monkeypatch.chdir(tmp_path)
    Path("inner.h").write_text('#include "k.cu"\n' + HEAD)
    Path("outer.cuh").write_text('#pragma once\n  # include "inner.h"\n#include "none.h"\n')
    Path("own.h").write_text(f"namespace own {{\n{HEAD}}}\n")
    barrier = [BarSync(id=Const(1), threads=Const(64))]
    kernel = "__global__ void f() {\n}\n"
    for include, spelled in (
        ('"outer.cuh"', "bar_sync(1, 64);"),
        ('"own.h"', 'asm volatile("barrier.sync.aligned 1, 64;" ::: "memory");'),
        ("<outer.cuh>", 'asm volatile("barrier.sync.aligned 1, 64;" ::: "memory");'),
    ):
        Path("k.cu").write_text(f"#include {include}\n{kernel}")
        source = of_file("k.cu")
        assert source is not None
        assert source.spelled(barrier) == (spelled,)


def test_what_a_file_calls_by_a_name_is_called_so() -> None:
    plain = Source("k.cu", ["__global__ void f() {", "}"])
    helpers = Source("k.cu", HEAD.split("\n"))
    groups = Source("k.cu", ["#include <cooperative_groups.h>",
                             "namespace cg = cooperative_groups;"])  # fmt: skip
    both = (ClusterArrive(), ClusterWait())
    zero, one = Const(0), Const(1)
    assert plain.spelled([BarSync(id=zero)]) == ("__syncthreads();",)
    assert plain.spelled([SyncWarp()]) == ("__syncwarp();",)
    assert helpers.spelled(both) == ("cluster_sync();",)
    assert groups.spelled(both) == ("cg::this_cluster().sync();",)
    assert plain.spelled([BulkWaitGroup(read=True)]) == (
        'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");',
    )
    assert helpers.spelled([BulkWaitGroup(read=True)]) == ("bulk_wait_read<0>();",)
    assert helpers.spelled([CpAsyncWaitGroup(pending=2)]) == ("cp_wait<2>();",)
    assert helpers.spelled([BarSync(id=one, threads=Const(64))]) == ("bar_sync(1, 64);",)
