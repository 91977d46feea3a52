"""Branches on data on which all threads of a CTA agree, and by which it ends: right and wrong."""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tests.ptx.data_campaign import SETUP
from tests.ptx.data_campaign import verdict as ways
from tests.ptx.test_cuda import compiled, reported
from tests.ptx.test_ways import HEAD
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Launch, Pointer, Scalar

pytestmark = needs.compiler


def run(body: str, strict: Strict = "practice", *, cluster: int = 1) -> tuple[Report, set[str]]:
    """The report, and the lines of the first finding."""
    params = (
        Pointer("x", 1 << 16), Pointer("y", 1 << 16), Pointer("z", 1 << 16), Scalar("n", "s32", 7),
    )  # fmt: skip
    text = f"{HEAD}{body}\n}}"
    launch = Launch("f", (2, 1, 1), (64, 1, 1), (cluster, 1, 1), registers=64, params=params)
    return reported(text, compiled(text), launch, strict)


#: what is behind the branch; without the wait the two lines race
REST = """s[t] = n;
__syncthreads();  // wait
z[g] = s[t ^ 33];
__syncthreads(); s[t] = 2; __syncthreads(); z[g] += s[t ^ 33];"""
LINES = {"s[t] = n;", "z[g] = s[t ^ 33];"}
SHARED = "__shared__ int s[64];\n"
#: all threads go on, or none does
AGREED = {
    "a word for each CTA": "if (x[blockIdx.x] == 0) return;\n",
    "a number of CTAs": "if (blockIdx.x >= *x) return;\n",
    "several": "if (x[0] & 1) return; if (x[1] > 2 * x[0] + n) return;\n",
    "a number of another type": "if (y[blockIdx.x] < 0.5f) return;\n",
    "any": "if (__syncthreads_or(x[g] > 3)) return;\n",
    "all": "if (!__syncthreads_and(x[g] > 3)) return;\n",
    "count": "if (__syncthreads_count(x[g] > 3) < 7) return;\n",
    "behind a loop that lanes leave": """int v = 0; for (int i = 0; i < t; i++) v += i;
z[4096 + g] = v; if (x[0]) return;\n""",
    "in a loop": """for (int i = 0; i < 3; i++) { s[t] = i; __syncthreads();
y[g] += s[t ^ 33]; if (__syncthreads_or(x[g + i] > 3)) return; }\n""",
}


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize("name", AGREED)
def test_a_cta_that_may_end(name: str, strict: Strict) -> None:
    found, _ = run(SHARED + AGREED[name] + REST, strict)
    assert found.verdict == "proved", found
    assert not [one for one in found.leanings if one.conditional]
    wrong, named = run(
        SHARED + AGREED[name] + REST.replace("__syncthreads();  // wait", ""), strict
    )
    assert wrong.rules == {"race"}
    assert named == LINES


#: threads of one CTA may go different ways
NOT_AGREED = {
    "words of threads": "if (x[g] == 0) return;\n",
    "a number of threads": "if (t >= *x) return;\n",
    "words that the kernel stores": "if (z[8192] == 0) return; if (g == 70) z[8192] = 1;\n",
    "volatile": "if (*(volatile int *)x == 0) return;\n",
    "only the first warp has loaded it": "int v = 1; if (t < 32) v = x[0]; if (v == 0) return;\n",
    "what a lane of the warp has": "if (__shfl_sync(~0u, x[g], 0) == 0) return;\n",
    "what a warp votes": "if (__any_sync(~0u, x[g] == 0)) return;\n",
    "only the first warp asks": "if (t < 32) { y[g] = 1; if (x[0] == 0) return; }\n",
    "as often as a thread says": """for (int i = 0; i < t; i++) {
if (x[i] == 0) return; y[g] += 1; }\n""",
    "what a thread has drawn": "if (atomicAdd(x, 1) == 0) return;\n",
    "a word of shared memory": """s[t] = x[g]; __syncthreads();
if (s[0] == 0) return; __syncthreads();\n""",
    "a clock": "if (clock() & 1) return;\n",
}


@pytest.mark.parametrize("name", NOT_AGREED)
def test_threads_that_may_end(name: str) -> None:
    found, _ = run(SHARED + NOT_AGREED[name] + REST)
    assert found.verdict == "bounded", found


BARRIER = """__shared__ alignas(8) long long b; unsigned a = __cvta_generic_to_shared(&b);
if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(a)); __syncthreads();
"""
ARRIVE = """if (t >= 32) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(a) : "memory");
"""
WAIT = """if (t < 32) asm volatile("{ .reg .pred p;"
"L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L; }" :: "r"(a) : "memory");
"""
END = "if (x[0] == 0) return;\n"


def test_who_waits_before_it_for_what_comes_behind_it() -> None:
    """The run in which all stay has no deadlock; that in which they end has one."""
    found, _ = run(SHARED + BARRIER + ARRIVE + WAIT + END + REST)
    assert found.verdict == "proved", found
    wrong, _ = run(SHARED + BARRIER + WAIT + END + ARRIVE + REST)
    assert wrong.verdict == "bounded"
    assert wrong.reasons[0].startswith("deadlock at k.cu:")
    assert "if data allows it" in wrong.reasons[0]
    assert "the contents of x" in wrong.reasons[0]


COPY = """alignas(128) __shared__ int s[64]; s[t] = n; unsigned a = __cvta_generic_to_shared(s);
asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
if (t == 0) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;"
"cp.async.bulk.commit_group;" :: "l"(y + blockIdx.x * 64), "r"(a) : "memory");
"""
LANDED = """if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); __syncthreads();
"""


def test_what_is_under_way_where_a_cta_ends() -> None:
    found, _ = run(COPY + LANDED + END + REST)
    assert found.verdict == "proved", found
    wrong, _ = run(COPY + END + LANDED + REST)
    assert wrong.verdict == "bounded"
    assert wrong.reasons[0].startswith("async-at-exit at k.cu:")


@pytest.mark.parametrize("sync", ["cluster", "flag"])
def test_other_ctas_could_wait(sync: str) -> None:
    """Then it matters to others that a CTA ends."""
    wait = 'asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;");\n'
    flag = "if (t == 0 && blockIdx.x == 0) while (*(volatile int *)(z + 8192) == 0);\n"
    flag += "if (t == 0 && blockIdx.x == 1) { __threadfence(); *(volatile int *)(z + 8192) = 1; }\n"
    body = SHARED + "if (x[blockIdx.x] == 0) return;\n" + REST
    found, _ = run(
        body + (wait if sync == "cluster" else flag), cluster=2 if sync == "cluster" else 1
    )
    assert found.verdict == "bounded", found


EXITS = """ld.global.u32 %r7, {word}; setp.eq.u32 %p2, %r7, 0;
@%p2 {end}; mov.u32 %r8, smem; mad.lo.u32 %r8, %r4, 4, %r8; st.shared.u32 [%r8], 1;
{wait} xor.b32 %r9, %r8, 132; ld.shared.u32 %r9, [%r9]; bar.sync 0; st.shared.u32 [%r8], 2;"""


@pytest.mark.parametrize("end", ["ret", "exit"])
def test_an_end_with_a_predicate(end: str) -> None:
    """Of one word of all threads, and of one for each."""

    def said(address: str, wait: str = "bar.sync 0;") -> Report:
        return ways(SETUP + EXITS.format(word=address, end=end, wait=wait))

    assert said("[%rd1]").verdict == "proved"
    assert said("[%rd1]", "").rules == {"race"}
    assert said("[%rd3]").verdict == "bounded"


def test_ctas_that_go_different_ways() -> None:
    """What one of them does before it ends, others may meet."""
    store = "z[8192 + {0}] = 1; if (x[blockIdx.x]) return;\n"
    assert run(SHARED + store.format("g") + REST)[0].verdict == "proved"
    assert run(SHARED + store.format("t") + REST)[0].rules == {"race"}
    late = REST + " if (t == 0) z[8192 + {0}] = 1;"
    assert run(SHARED + END + late.replace("{0}", "blockIdx.x"))[0].verdict == "proved"
    assert run(SHARED + END + late.replace("{0}", "7"))[0].rules == {"race"}
