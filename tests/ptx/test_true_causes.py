"""Causes of failing CUDA kernels say what is so: each sentence is held against the run.

Each wrong program has its right twin, which is proved. `MISTAKES` has what is wrong and what the
cause must (not) say; the first line that is named is the one to change.
"""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tests.ptx.test_cuda import SOURCES, compiled
from tilesim.checker import Report, check
from tilesim.findings.finding import Finding
from tilesim.mistakes import diagnose as explain
from tilesim.ptx.launch import Launch, Parameter, Pointer, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.report.json import finding_json
from tilesim.report.text import findings_text

HEAD = (SOURCES / "wrappers.cu").read_text()

#: a ring of two slots whose loops nvcc unrolls; barriers in one array, which labels do not tell
RING = r"""extern "C" __global__ void __launch_bounds__(160) f(const float *x, float *y, int n) {
  __shared__ alignas(128) float buf[2][128];
  BARRIERS
  const int t = threadIdx.x;
  if (t == 0) {
    for (int s = 0; s < 2; ++s) {
      init(&full[s], 1);
      init(&empty[s], 128);
    }
    init_fence();
  }
  __syncthreads();
  if (t >= 128) {
    if (t == 128) {
      int g = 0;
      for (int tile = 0; tile < n; ++tile) {
        (void)0;  // producer
        #pragma unroll 4
        for (int i = 0; i < n; ++i, ++g) {
          wait(&empty[g % 2], ((g / 2) & 1) ^ 1);
          expect(&full[g % 2], 512);
          load(buf[g % 2], x + (tile * n + i) * 128, 512, &full[g % 2]);
        }
      }
    }
  } else {
    int g = 0;
    for (int tile = 0; tile < n; ++tile) {
      float sum = 0;
      (void)0;  // consumer
      #pragma unroll 4
      for (int i = 0; i < n; ++i, ++g) {
        wait(&full[g % 2], (g / 2) & 1);
        sum += buf[g % 2][t];
        arrive(&empty[g % 2]);
      }
      y[tile * 128 + t] = sum;
    }
  }
}
"""
APART = "__shared__ u64 full[2], empty[2];"
ONE = "__shared__ u64 all[4]; u64 *const full = all, *const empty = all + 2;"

EPILOGUE = r"""extern "C" __global__ void __launch_bounds__(160) f(const float *x, float *y,
                                                                   int n) {
  __shared__ alignas(128) float in[128];
  __shared__ u64 full, empty, drained;
  const int t = threadIdx.x;
  if (t == 0) init(&full, 1), init(&empty, 128), init(&drained, 1), init_fence();
  __syncthreads();
  if (t == 128) {
    for (int i = 0; i < n; ++i) {
      if (i > 0) wait(&drained, (i - 1) & 1);
      wait(&empty, (i & 1) ^ 1);
      expect(&full, 512);
      load(in, x + i * 128, 512, &full);
    }
  } else if (t < 128) {
    for (int i = 0; i < n; ++i) {
      wait(&full, i & 1);
      float v = in[t];
      arrive(&empty);
      bar(1, 128);
      in[t] = v + 1;
      fence_async();
      bar(1, 128);
      if (t == 0) {
        store(y + i * 128, in, 512);
        commit();
        drain();
        arrive(&drained);
      }
    }
  }
}
"""

PEERS = r"""extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64)
f(const float *x, float *y, int n) {
  __shared__ u64 told;
  const int t = threadIdx.x, r = rank();
  if (t == 0) init(&told, 1), init_fence();
  cluster_sync();
  for (int i = 0; i < n; ++i) {
    if (t == 0) arrive_at(&told, r ^ 1);
    wait(&told, i & 1);
    y[(i * 2 + r) * 64 + t] = x[t];
    cluster_sync();
  }
}
"""

STAGE = r"""extern "C" __global__ void __launch_bounds__(128) f(const float *x, float *y, int n) {
  __shared__ alignas(128) float s[128];
  const int t = threadIdx.x;
  for (int i = 0; i < n; ++i) {
    s[t] = x[i * 128 + t];
    fence_async();
    __syncthreads();
    if (t == 0) store(y + i * 128, s, 512);
    if (t == 0) commit(), drain();
    __syncthreads();
  }
}
"""

LANES = r"""extern "C" __global__ void __launch_bounds__(128) f(const float *x, float *y, int n) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  for (int i = 0; i < n; ++i) {
    s[t] = x[i * 128 + t];
    __syncthreads();
    y[i * 128 + t] = s[t ^ FAR];
    __syncthreads();
  }
}
"""


def verdict(source: str, ctas: int = 1, threads: int = 160, n: int = 3) -> Report:
    """The report on a kernel in one launch."""
    values: tuple[Parameter, ...] = (
        Pointer("x", 1 << 14), Pointer("y", 1 << 13), Scalar("n", "s32", n),
    )  # fmt: skip
    launch = Launch("f", (ctas, 1, 1), (threads, 1, 1), registers=168, params=values)
    module = read(compiled(HEAD + source), "k.ptx")
    return check(lower(module, module.entries[0], launch))


def named(source: str, finding: Finding) -> list[str]:
    """The lines that a finding names."""
    text = source.splitlines()
    return [text[loc.line - 1].strip() for loc in finding.locations]


def finding_of(source: str, report: Report) -> Finding:
    assert report.verdict == "failed"
    return report.findings[0]


@pytest.fixture(autouse=True)
def _strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "RAISES", True)


@needs.compiler
@pytest.mark.parametrize("barriers", [APART, ONE])
@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_a_counter_that_is_reset_per_tile(role: str, barriers: str) -> None:
    """The copies of a loop that nvcc has unrolled are not executed in a short loop, and that is no
    cause; nor do they name the other array."""
    source = RING.replace("BARRIERS", barriers)
    assert verdict(source).verdict == "proved"
    wrong = source.replace(f"(void)0;  // {role}", "g = 0;")
    finding = finding_of(wrong, verdict(wrong))
    assert finding.rule == "deadlock"
    assert "never executed" not in finding.cause
    assert finding.diagnosis == "parity_of_a_wait"
    reset = next(n for n, text in enumerate(wrong.splitlines()) if text.strip() == "g = 0;")
    loop = max(n for n, text in enumerate(wrong.splitlines()[:reset], 1) if "tile < n" in text)
    assert f"its parity starts over in each iteration of the loop at k.cu:{loop}" in finding.cause
    mine = "wait(&empty" if role == "producer" else "wait(&full"
    assert named(wrong, finding)[0].startswith(mine)
    for note in finding.notes:  # nobody would arrive on a barrier by what names another one
        assert "cannot release it" not in note or "names only" in note


@needs.compiler
def test_a_counter_that_is_reset_per_tile_of_an_unrolled_loop() -> None:
    """Each copy of the wait has a number for its parity; the culprit is the loop around them."""
    right = RING.replace("BARRIERS", APART).replace("#pragma unroll 4", "#pragma unroll")
    right = right.replace("int i = 0; i < n;", "int i = 0; i < 3;")
    assert verdict(right).verdict == "proved"
    wrong = right.replace("(void)0;  // consumer", "g = 0;")
    finding = finding_of(wrong, verdict(wrong))
    loop = next(n for n, text in enumerate(wrong.splitlines(), 1) if "float sum" in text) - 1
    assert f"its parity starts over in each iteration of the loop at k.cu:{loop}" in finding.cause
    assert named(wrong, finding)[0].startswith("wait(&full")
    # a parity that is a number in the source is none that is counted
    fixed = right.replace("wait(&full[g % 2], (g / 2) & 1);", "wait(&full[g % 2], 0);")
    assert "starts over" not in finding_of(fixed, verdict(fixed)).cause


@needs.compiler
def test_an_arrival_that_no_warp_makes() -> None:
    source = RING.replace("BARRIERS", APART)
    wrong = source.replace("arrive(&empty[g % 2]);", "if (n > 7) arrive(&empty[g % 2]);")
    finding = finding_of(wrong, verdict(wrong))
    assert finding.cause.startswith("mbarrier.arrive on f::empty+0 is never executed")
    assert named(wrong, finding)[0] == "if (n > 7) arrive(&empty[g % 2]);"


@needs.compiler
def test_a_buffer_that_is_filled_before_its_store_has_read_it() -> None:
    """The copy waits for the store's drain too late: not the store for the copy."""
    assert verdict(EPILOGUE).verdict == "proved"
    wrong = EPILOGUE.replace("if (i > 0) wait(&drained, (i - 1) & 1);",
                             "if (i > 1) wait(&drained, i & 1);")  # fmt: skip
    finding = finding_of(wrong, verdict(wrong))
    assert finding.rule == "race"
    assert "it waits for f::drained+0 only afterwards" in finding.cause
    assert finding.fix.startswith("let f (warp 4) wait for f::drained+0 before this")
    assert named(wrong, finding)[0] == "if (i > 1) wait(&drained, i & 1);"


@needs.compiler
@pytest.mark.parametrize(
    ("new", "cause"),
    [
        ("if (t == 0 && r == 0) arrive_at(&told, r ^ 1);",
         "f (CTA 1 warp 0) does not execute the mbarrier.arrive by which f (CTA 0 warp 0)"),
        ("if (t == 64) arrive_at(&told, r ^ 1);", "is never executed"),
        ("", "no instruction arrives on CTA 0 f::told+0"),
    ],
)  # fmt: skip
def test_an_arrival_at_a_peer_that_does_not_come(new: str, cause: str) -> None:
    """The other CTA's arrival, which is right, names no wrong barrier."""
    assert verdict(PEERS, 2, 64).verdict == "proved"
    wrong = PEERS.replace("if (t == 0) arrive_at(&told, r ^ 1);", new)
    finding = finding_of(wrong, verdict(wrong, 2, 64))
    assert finding.rule == "deadlock"
    assert cause in finding.cause
    assert "names another barrier" not in finding.cause
    assert abs(finding.locations[0].line - 8) <= 1


@needs.compiler
def test_a_commit_behind_the_barrier_is_a_commit() -> None:
    assert verdict(STAGE, 1, 128).verdict == "proved"
    wrong = STAGE.replace("""    if (t == 0) commit(), drain();
    __syncthreads();
""", """    __syncthreads();
    if (t == 0) commit(), drain();
""")  # fmt: skip
    finding = finding_of(wrong, verdict(wrong, 1, 128))
    assert "not committed" not in finding.cause
    assert finding.cause == (
        "this barrier.sync releases what cp.async.bulk.store still uses: f (warp 0) waits for it "
        "only afterwards"
    )
    assert named(wrong, finding)[0] == "__syncthreads();"
    assert "commit(), drain();" in named(wrong, finding)[1]


@needs.compiler
def test_an_operation_that_is_never_committed() -> None:
    wrong = STAGE.replace("commit(), drain()", "drain()")
    finding = finding_of(wrong, verdict(wrong, 1, 128))
    assert finding.cause == "cp.async.bulk.store is not committed before the wait for its group"


@needs.compiler
@pytest.mark.parametrize(("far", "lanes"), [("1", True), ("33", False), ("(i ? 33 : 1)", False)])
def test_bar_warp_sync_only_where_it_is_enough(far: str, lanes: bool) -> None:
    source = LANES.replace("FAR", far)
    assert verdict(source, 1, 128).verdict == "proved"
    wrong = source.replace("s[t] = x[i * 128 + t];\n    __syncthreads();", "s[t] = x[i * 128 + t];")
    finding = finding_of(wrong, verdict(wrong, 1, 128))
    assert finding.rule == "race"
    assert ("bar.warp.sync" in finding.fix) is lanes
    assert ("bar.sync" in finding.fix.replace("bar.warp.sync", "")) is not lanes
    assert {*named(wrong, finding)} == {"s[t] = x[i * 128 + t];", f"y[i * 128 + t] = s[t ^ {far}];"}


@needs.compiler
def test_bytes_of_one_phase_are_not_those_of_all_that_are_unrolled() -> None:
    source = (
        RING.replace("BARRIERS", APART).replace("i < n", "i < 4").replace("tile * n", "tile * 4")
    )
    assert verdict(source).verdict == "proved"
    wrong = source.replace(
        "expect(&full[g % 2], 512);", "expect(&full[g % 2], i == 2 ? 256 : 512);"
    )
    finding = finding_of(wrong, verdict(wrong))
    assert finding.cause == "256 bytes are expected on f::full+0 in phase 1 and 512 completed"
    assert named(wrong, finding)[0].startswith("expect(&full")


HELPER = r"""__device__ LINKAGE void put(float *s, int t) {
  s[t] = t;
}
extern "C" __global__ void f(const float *x, float *y, int n) {
  __shared__ float s[64];
  put(s, threadIdx.x);
  SYNC
  y[threadIdx.x] = s[63 - threadIdx.x];
}
"""


@needs.compiler
@pytest.mark.parametrize("linkage", ["__forceinline__", "__noinline__"])
def test_a_helper_and_its_call_are_both_named(linkage: str) -> None:
    source = HELPER.replace("LINKAGE", linkage)
    assert verdict(source.replace("SYNC", "__syncthreads();"), 1, 64).verdict == "proved"
    report = verdict(source.replace("SYNC", ""), 1, 64)
    finding = report.findings[0]
    (side,) = (p for p in finding.participants if p.action.startswith("writes"))
    assert side.loc.written == ("k.cu:6", "k.cu:2")
    assert "k.cu:2 (called at k.cu:6)" in findings_text(report.findings)
    (place,) = (p for p in finding_json(finding, None)["locations"] if p["line"] == 6)
    assert place["behind"]["line"] == 2


@needs.compiler
def test_a_parity_that_does_not_start_over_is_not_said_to() -> None:
    """The wrong parity is that of a counter which goes on through all tiles."""
    source = RING.replace("BARRIERS", APART)
    wrong = source.replace("wait(&full[g % 2], (g / 2) & 1);", "wait(&full[g % 2], g & 1);")
    finding = finding_of(wrong, verdict(wrong))
    assert "starts over" not in finding.cause


LEAVES = r"""extern "C" __global__ void __launch_bounds__(128) f(const float *x, float *y, int n) {
  __shared__ u64 all;
  const int t = threadIdx.x;
  if (t == 0) init(&all, 4), init_fence();
  __syncthreads();
  if (t >= 96 && n < LEAST) return;
  if (t % 32 == 0) arrive(&all);
  wait(&all, 0);
  y[t] = x[t];
}
"""


@needs.compiler
def test_the_exit_of_a_warp_whose_arrival_is_missing() -> None:
    assert verdict(LEAVES.replace("LEAST", "1"), 1, 128).verdict == "proved"
    wrong = LEAVES.replace("LEAST", "9")
    finding = finding_of(wrong, verdict(wrong, 1, 128))
    assert finding.rule == "deadlock"
    assert finding.cause == "f::all+0 is initialised with 4, and 3 arrivals are made on it per use"
    assert named(wrong, finding)[:2] == [
        "if (t == 0) init(&all, 4), init_fence();", "if (t >= 96 && n < 9) return;"
    ]  # fmt: skip


#: all that a kernel does is in one function that it calls; what is fetched ahead, nvcc moves out
FORWARDS = r"""template <int S> F void body(const float *x, float *y, int n) {
  __shared__ alignas(16) float s[S][64];
  const int t = threadIdx.x;
  for (int i = 0; i < S - 1; ++i) {
    copy(&s[i][t], x + i * 64 + t);
    committed();
  }
  float sum = 0;
  for (int i = 0; i < n; ++i) {
    waited<S - 2>();
    __syncthreads();
    if (i + AHEAD < n) copy(&s[(i + AHEAD) % S][t], x + (i + AHEAD) * 64 + t);
    committed();
    sum += s[i % S][63 - t];
  }
  y[t] = sum;
}
extern "C" __global__ void f(const float *x, float *y, int n) { body<3>(x, y, n); }
"""

#: a function calls lambdas of the kernel for the roles
ROLES = r"""template <class A, class B> __device__ __forceinline__ void roles(A first, B second) {
  if (threadIdx.x < 64)
    first();
  else
    second();
}
extern "C" __global__ void f(const float *x, float *y, int n) {
  __shared__ float s[64];
  roles([&] {
    s[threadIdx.x] = x[threadIdx.x];
    asm volatile("bar.arrive 1, 128;" ::: "memory");
  }, [&] {
    SYNC
    y[threadIdx.x - 64] = s[127 - threadIdx.x];
  });
}
"""


@needs.compiler
def test_a_call_around_everything_is_not_where_something_is() -> None:
    copies = (
        "F void copy(void *s, const void *g) { asm volatile("
        '"cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(s)), "l"(g) : "memory"); }\n'
        'F void committed() { asm volatile("cp.async.commit_group;" ::: "memory"); }\n'
        "template <int N> F void waited() "
        '{ asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }\n'
    )
    source = copies + FORWARDS
    assert verdict(source.replace("AHEAD", "S - 1"), 1, 64).verdict == "proved"
    wrong = source.replace("AHEAD", "S")
    lines = {*named(wrong, finding_of(wrong, verdict(wrong, 1, 64)))}
    assert "sum += s[i % S][63 - t];" in lines
    assert lines < {line.strip() for line in FORWARDS.splitlines()[:16]}


@needs.compiler
def test_a_lambda_of_the_kernel_lies_in_the_kernel() -> None:
    meet = 'asm volatile("bar.sync 1, 128;" ::: "memory");'
    assert verdict(ROLES.replace("SYNC", meet), 1, 128).verdict == "proved"
    wrong = ROLES.replace("SYNC", "")
    finding = finding_of(wrong, verdict(wrong, 1, 128))
    assert finding.rule == "race"
    text = wrong.splitlines()
    assert {text[p.loc.line - 1].strip() for p in finding.participants} == {
        "s[threadIdx.x] = x[threadIdx.x];", "y[threadIdx.x - 64] = s[127 - threadIdx.x];",
    }  # fmt: skip
