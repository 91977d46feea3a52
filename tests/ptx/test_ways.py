"""Branches on data in CUDA C++: what lanes may do there, right and wrong."""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tests.ptx.test_cuda import compiled
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch, Pointer, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

pytestmark = needs.compiler

#: t counts the threads of the CTA, g those of the grid; x is data
HEAD = """extern "C" __global__ void f(int *x, float *y, int *z, int n) {
int t = threadIdx.x, g = blockIdx.x * blockDim.x + t;
"""


def verdict(body: str, *, threads: int = 64, grid: int = 2, schedules: int = 8) -> Report:
    params = (
        Pointer("x", 1 << 16), Pointer("y", 1 << 16), Pointer("z", 1 << 16), Scalar("n", "s32", 7),
    )  # fmt: skip
    module = read(compiled(f"{HEAD}{body}\n}}"), "k.ptx")
    launch = Launch("f", (grid, 1, 1), (threads, 1, 1), registers=64, params=params)
    return check(lower(module, module.entries[0], launch), schedules=schedules)


HISTOGRAM = """__shared__ int h[64]; h[t] = 0; __syncthreads();
int v = x[g]; if (v >= 0) atomicAdd(&h[v & 63], 1);
__syncthreads(); z[g] = h[t];"""
MASKED = """__shared__ float s[64]; if (t < 64) s[t] = 0; __syncthreads();
if (x[g] > 3) s[t] = y[g] * 2;
__syncthreads(); y[4096 + g] = s[t ^ 33];"""
IN_A_WARP = """__shared__ volatile int v[1]; __shared__ int s[32]; s[t] = 0; __syncwarp();
if (x[g] > 3) s[t] = 1; __syncwarp();
z[g] = s[t ^ 1];"""
EARLY = "if (x[g] == 0) return;\nz[g] = x[g] * 2;\nif (x[g] == 1) return;\nz[g] += n;"
NESTED = """__shared__ int s[64]; s[t] = 0; int v = x[g];
if (v > 0) { if (v & 1) { if (t < 16) s[t] = 2; else z[g] = 3; } else if (v & 2) s[t] = v; }
__syncthreads(); z[4096 + g] = s[t ^ 33];"""
ROWS = """__shared__ float s[64]; float a = 0;
for (int i = x[g]; i < x[g + 1]; i++) a += y[x[i & 255] & 255];
s[t] = a; __syncthreads(); z[g] = s[t ^ 33];"""
SLOW = """__shared__ float s[64];
s[t] = sinf(y[g]) + tanhf(y[g]) + powf(y[g], 1.3f) + logf(y[g]);
__syncthreads(); z[g] = s[t ^ 33];"""
INSERTED = """float best[4] = {0, 0, 0, 0};
for (int i = 0; i < 16; i++) { float v = y[t + i * 64];
  if (v > best[3]) { int j = 3; while (j > 0 && best[j - 1] < v) { best[j] = best[j - 1]; j--; }
    best[j] = v; } }
for (int j = 0; j < 4; j++) z[g * 4 + j] = best[j];"""
TURNS = """__shared__ int s[64]; s[t] = 0;
if (x[g] > 0) for (int i = 0; i < n; i++) s[t] += i * x[i];
__syncthreads(); z[g] = s[t ^ 33];"""
COUNTED = """__shared__ int c; if (t == 0) c = 0; __syncthreads();
int r = 0; if (x[g] > 0) r = atomicAdd(&c, 1);
z[g] = r; __syncthreads(); if (t == 0) z[4096 + blockIdx.x] = c;"""
ADDED = "if (x[g] > 0) atomicAdd(&z[x[g]], 1);"

#: name: a kernel, and what is written in it for what in its wrong twin
PAIRS = {
    "histogram": (HISTOGRAM, "__syncthreads(); z", "z"),
    "histogram that is not atomic": (HISTOGRAM, "atomicAdd(&h[v & 63], 1)", "h[v & 63] += 1"),
    "histogram that nobody has cleared": (HISTOGRAM, "h[t] = 0;", ""),
    "masked": (MASKED, "__syncthreads();\nif (x[g] > 3) s[t]", "if (x[g] > 3) s[t ^ 32]"),
    "masked, nobody waits": (MASKED, "__syncthreads(); y", "y"),
    "lanes go both ways": (IN_A_WARP, "s[t] = 1; __syncwarp();", "s[t] = 1;"),
    "early end": (EARLY, "z[g] += n;", "__syncthreads(); z[g] += n;"),
    "nested": (NESTED, "s[t] = 2;", "s[t + 32] = 2;"),
    "rows": (ROWS, "__syncthreads();", ""),
    "slow ways of functions": (SLOW, "__syncthreads();", ""),
    "insertion": (INSERTED, "z[g * 4 + j]", "z[g * 3 + j]"),
    "turns": (TURNS, "s[t] += i * x[i]", "s[t + i] += x[i]"),
    "turns of which each waits": (TURNS, "s[t] += i * x[i];", "{ s[t] += i; __syncthreads(); }"),
    "counted": (COUNTED, "z[g] = r;", "if (r == 0) __syncthreads(); z[g] = r;"),
    "counted, nobody waits": (COUNTED, "z[g] = r; __syncthreads();", "z[g] = r;"),
    "added": (ADDED, "atomicAdd(&z[x[g]], 1)", "z[x[g]] = 1"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str) -> None:
    right, old, new = PAIRS[name]
    assert old in right
    threads = 32 if right == IN_A_WARP else 64
    found = verdict(right, threads=threads)
    assert found.verdict == "proved", found
    wrong = verdict(right.replace(old, new, 1), threads=threads)
    assert wrong.verdict in ("bounded", "failed"), wrong


#: what a proof would be false of, if the contents of x are chosen for it
HANGS = {
    "the only one that tells": """__shared__ int s; if (t == 0) s = 0; __syncthreads();
        if (t < 32) { if (x[g] > 0) atomicAdd(&s, 1); }
        else while (*(volatile int *)&s == 0);""",
    "a flag that is taken back": """__shared__ int s; if (t == 0) s = 1; __syncthreads();
        if (x[g] > 0) s = 0; __syncthreads(); while (*(volatile int *)&s == 0);""",
    "a lock that nobody gives back":
        "if (x[g] > 0) { while (atomicCAS(z, 0, 1) != 0); z[64] = 1; }",
    "turns that a counter gives": """if (x[g] > 0) { int k = atomicAdd(z, 1);
        for (int i = 0; i < k; i++) { z[64 + g] = i; } if (k == 3) __syncthreads(); }""",
    "who ends does not come": """if (x[g] == 0) return;
        asm volatile("barrier.cta.sync.aligned 0, 64;"); z[g] = 1;""",
    "a phase that data counts": """__shared__ alignas(8) long long b; unsigned k = 0;
        unsigned a = __cvta_generic_to_shared(&b);
        if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(a)); __syncthreads();
        if (x[g] > 0) k = 1; if (t == 0)
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(a) : "memory");
        asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;"
                     "@!p bra L; }" :: "r"(a), "r"(k) : "memory");""",
    "who stores into a barrier": """__shared__ alignas(8) long long b; __shared__ int s[62];
        unsigned a = __cvta_generic_to_shared(&b); s[t % 62] = 0;
        if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" :: "r"(a)); __syncthreads();
        if (x[g] > 0) atomicAdd(s + x[g], 1); __syncthreads();
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(a) : "memory");
        asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0;"
                     "@!p bra L; }" :: "r"(a) : "memory"); z[g] = s[t % 62];""",
}  # fmt: skip


@pytest.mark.parametrize("name", HANGS)
def test_data_could_make_it_hang(name: str) -> None:
    found = verdict(HANGS[name])
    assert found.verdict in ("bounded", "failed", "unsupported"), found


COPIED = """__shared__ alignas(128) int s[256];
s[t] = 0; s[t + 64] = 0; s[t + 128] = s[t + 192] = 0;
if (x[g] > 0) s[t] = 1;
asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
if (t == 0) { unsigned a = __cvta_generic_to_shared(s);
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;"
               "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
               :: "l"(z + blockIdx.x * 256), "r"(a) : "memory"); }"""


def test_a_copy_of_what_an_arm_may_have_stored() -> None:
    """The async proxy has to be told of it, if it is stored."""
    assert verdict(COPIED).verdict == "proved"
    fence = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
    store = "if (x[g] > 0) s[t] = 1;"
    assert verdict(COPIED.replace(fence, "")).verdict == "bounded"
    late = COPIED.replace(store, "").replace(fence, f"{fence} {store}")
    assert verdict(late).verdict == "bounded"


@pytest.mark.parametrize("grid", [2, 100])
def test_many_ctas(grid: int) -> None:
    """CTAs add where data says, or store there: then any two may meet."""
    assert verdict(ADDED, threads=32, grid=grid).verdict == "proved"
    assert verdict("z[x[g]] = 1;", threads=32, grid=grid).verdict == "bounded"
    assert verdict("if (x[g]) z[g] = 1; y[g] = 0;", threads=32, grid=grid).verdict == "proved"
    wrong = "if (x[g]) { if (x[g] & 1) z[g] = 1; else z[g & 31] = 2; }"
    assert verdict(wrong, threads=32, grid=grid).verdict == "bounded"


def test_what_is_taken_for_granted_is_said() -> None:
    assert "if the loops end whose trip count depends on data" in verdict(ROWS).covers
    assert "in-bounds" in {one.name for one in verdict(HISTOGRAM).leanings}
    assert "loops-end" not in {one.name for one in verdict(TURNS).leanings}
