"""Kernels that trap where data says: with the trap the launch ends, and nothing else happens."""

from __future__ import annotations

import pytest

from tests.gpu import needs
from tests.ptx.test_cuda import compiled, reported
from tests.ptx.test_ways import HEAD
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Contents, Launch, Pointer, Scalar

pytestmark = needs.compiler


def run(
    body: str, strict: Strict = "practice", *, given: tuple[int, ...] = ()
) -> tuple[Report, set[str]]:
    """The report, and the lines of the first finding."""
    contents = Contents("s32", given) if given else None
    params = (
        Pointer("x", 1 << 16, 0, contents), Pointer("y", 1 << 16), Pointer("z", 1 << 16),
        Scalar("n", "s32", 7),
    )  # fmt: skip
    text = f"{HEAD}{body}\n}}"
    launch = Launch("f", (2, 1, 1), (64, 1, 1), registers=64, params=params)
    return reported(text, compiled(text), launch, strict)


#: in each the line of the wait is left out in the wrong twin, and these lines race
ASSERT = """__shared__ int s[64]; int v = x[g];
assert(v > 0);
s[t] = v;
__syncthreads();  // wait
z[g] = s[t ^ 33];"""
LOOP = """__shared__ int s[64];
for (int i = 0; i < n; i++) {
int v = x[g + 64 * i]; assert(v >= 0); if (v > 9) __trap();
s[t] = v;
__syncthreads();
z[g] += s[t ^ 33];
__syncthreads();  // wait
}"""
PRINTS = """__shared__ int s[64]; int v = x[g];
s[t] = v;
if (v < 0 || v > 8) { printf("%d", v); __trap(); }
__syncthreads();  // wait
z[g] = s[t ^ 33];"""
NESTED = """__shared__ int s[64]; int v = x[g];
if (v > 0) { if (v > 1) { assert(t < 7); y[g] = 2; } else if (t == 3) __trap(); }
s[t] = v;
__syncthreads();  // wait
z[g] = s[t ^ 33];"""
TOLD = """__shared__ int s[64]; int v = x[g];
s[t] = v;
if (v < 0) { z[8192 + g] = v; atomicExch(z + 8191, 1); __trap(); }
__syncthreads();  // wait
z[g] = s[t ^ 33];"""
READ = "z[g] = s[t ^ 33];"
STORE = "s[t] = v;"
#: by name, a kernel and the lines that race without the wait
KERNELS = {
    "assert": (ASSERT, {STORE, READ}),
    "in a loop": (LOOP, {STORE, "z[g] += s[t ^ 33];"}),
    "prints": (PRINTS, {STORE, READ}),
    "nested": (NESTED, {STORE, READ}),
    "tells the host": (TOLD, {STORE, READ}),
}


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_behind_a_trap(name: str) -> None:
    right, lines = KERNELS[name]
    found, _ = run(right, "ptx")
    assert found.verdict == "proved", found
    assert "no-trap" in {one.name for one in found.leanings}
    assert "if the kernel does not trap where data decides that" in found.covers
    wrong, named = run(right.replace("__syncthreads();  // wait", ""), "practice")
    assert wrong.rules == {"race"}
    assert named == lines


#: what may happen without a trap, or before it: none of it may be proved
OPEN = {
    "threads end": ASSERT.replace("assert(v > 0);", 'if (v == 0) asm volatile("exit;");'),
    "it stores what others read": TOLD.replace("z[8192 + g] = v;", "s[t ^ 32] = v;"),
    "it stores what others store": TOLD.replace("z[8192 + g] = v;", "z[8192] = v;"),
    "it waits first": ASSERT.replace(
        "assert(v > 0);", "if (v == 0) { __syncthreads(); __trap(); }"
    ),
    "it traps on each way": ASSERT.replace(
        "assert(v > 0);",
        "if (v > 0) { y[g] = 1; assert(t != 1); } else { z[g] = 1; assert(t != 1); }",
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_else_data_may_do(name: str) -> None:
    found, _ = run(OPEN[name])
    assert found.verdict == "bounded", found
    assert "the contents of x, which ld reads" in found.reasons[0]


def test_a_trap_of_which_everything_is_known() -> None:
    """With the data it is known whether the kernel traps."""
    right, _ = run(ASSERT, given=(1,) * 128)
    assert right.verdict == "proved"
    assert "no-trap" not in {one.name for one in right.leanings}
    wrong, named = run(ASSERT, given=(1,) * 77 + (0,) * 51)
    assert (wrong.verdict, named) == ("unsupported", {"assert(v > 0);"})
    assert "executes trap" in wrong.findings[0].message
