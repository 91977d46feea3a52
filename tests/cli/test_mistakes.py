"""Mistakes of those who write kernels, each beside what is right: message, line, what to do."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from .conftest import Invoke, Write

HEAD = """import numpy as np
import tilesim as ts


class torch_dtype:
    itemsize = 2

    def __str__(self):
        return "torch.float16"
"""
SYNC = "    k.sync_threads()\n"
DEF = "@ts.kernel(warps=1)\ndef f(k):\n"


class Mistake(NamedTuple):
    """A file whose line marked ``# here`` is wrong, what is said of it, and a right one."""

    wrong: str
    said: str
    right: str


def body(*lines: str) -> str:
    """A kernel with these lines."""
    return DEF + "".join(f"    {line}\n" for line in lines) + SYNC


MISTAKES = {
    "region that nobody enters": Mistake(
        body("k.role('a', 0)  # here"), "role opens a region, but no `with` statement enters it",
        body("with k.role('a', 0):", "    k.sync_warp()"),
    ),
    "too large a grid": Mistake(
        body("k.launch(registers=64)", "k.launch(grid=1 << 26)  # here"),
        "a grid of 67,108,864 CTAs; at most 16,777,216 are simulated",
        body("k.launch(grid=1 << 10)"),
    ),
    "too many registers": Mistake(
        body("k.launch(warps=16, registers=168)  # here", "k.launch(grid=2)"),
        "16 warps with 168 registers per thread need 86016 registers, an SM has 65536",
        body("k.launch(warps=8, registers=168)"),
    ),
    "a text in place of a truth value": Mistake(
        body("k.launch(cooperative='yes')  # here"), "cooperative is 'yes', not True or False",
        body("k.launch(cooperative=True)"),
    ),
    "registers that no instruction names": Mistake(
        body("k.launch(registers=400)  # here"), "400 registers per thread is outside 8..256",
        body("k.launch(registers=255)"),
    ),
    "a grid that is not a multiple of its cluster": Mistake(
        body("k.launch(grid=3)", "k.launch(cluster=2)  # here"),
        "grid x = 3 is not a multiple of the cluster's 2",
        body("k.launch(grid=4, cluster=2)"),
    ),
    "too large a cluster": Mistake(
        body("k.launch(grid=32, cluster=32)  # here"), "a cluster of 32 CTAs",
        body("k.launch(grid=32, cluster=8)"),
    ),
    "more shared memory than there is": Mistake(
        body("k.launch(smem_bytes=1 << 20)  # here"), "smem_bytes = 1048576, a CTA of sm_90a",
        body("k.launch(smem_bytes=1 << 16)"),
    ),
    "more warps than there are": Mistake(
        body("k.launch(warps=33)  # here"), "33 warps per CTA is outside 1..32",
        body("k.launch(warps=32)"),
    ),
    "region that is entered twice": Mistake(
        body("r = k.role('a', 0)", "with r:", "    k.sync_warp()", "with r:  # here",
             "    k.sync_warp()"),
        "this role has been entered before",
        body("with k.role('a', 0):", "    k.sync_warp()", "with k.role('a', 0):",
             "    k.sync_warp()"),
    ),
    "for over a loop": Mistake(
        body("for i in k.loop(4):  # here", "    k.sync_warp()"),
        "loop is not a Python iterable: it is a region of the kernel",
        body("with k.loop(4) as i:", "    k.sync_warp()"),
    ),
    "loop of a half": Mistake(
        body("with k.loop(5 / 2):  # here", "    k.sync_warp()"),
        "the loop's stop 2.5 is a floating-point number, not an integer",
        body("with k.loop(5 // 2):", "    k.sync_warp()"),
    ),
    "loop of a computed half": Mistake(
        body("with k.loop(1, k.warp_id * 0.5):  # here", "    k.sync_warp()"),
        "not an integer",
        body("with k.loop(1, k.warp_id // 2):", "    k.sync_warp()"),
    ),
    "half an arrival": Mistake(
        body("b = k.mbarriers('b')", "with k.one_thread():",
             "    k.mbarrier.init(b, 3 / 2)  # here"),
        "mbarrier.init: count 1.5 is a floating-point number, not an integer",
        body("b = k.mbarriers('b')", "with k.one_thread():", "    k.mbarrier.init(b, 3 // 2)"),
    ),
    "half a phase": Mistake(
        body("b = k.mbarriers('b')", "with k.one_thread():", "    k.mbarrier.init(b, 1)",
             "    k.mbarrier.arrive(b)", "k.sync_threads()", "k.mbarrier.wait(b, 0 / 2)  # here"),
        "mbarrier.wait: phase 0.0 is a floating-point number, not an integer",
        body("b = k.mbarriers('b')", "with k.one_thread():", "    k.mbarrier.init(b, 1)",
             "    k.mbarrier.arrive(b)", "k.sync_threads()", "k.mbarrier.wait(b, 0 // 2)"),
    ),
    "half the bytes": Mistake(
        body("b = k.mbarriers('b')", "with k.one_thread():", "    k.mbarrier.init(b, 1)",
             "    k.mbarrier.arrive_expect_tx(b, 8 / 2)  # here"),
        "bytes 4.0 is a floating-point number, not an integer",
        body("b = k.mbarriers('b')", "with k.one_thread():", "    k.mbarrier.init(b, 1)",
             "    k.mbarrier.arrive_expect_tx(b, 8 // 2)"),
    ),
    "list at a register": Mistake(
        body("x = [1, 2][k.warp_id]  # here"),
        "and select(...) instead of a list",
        body("x = ts.select(k.warp_id.eq(0), 1, 2)"),
    ),
    "range of a register": Mistake(
        body("n = k.var('n', 4)", "for i in range(n):  # here", "    k.sync_warp()"),
        "only known when the kernel runs: not a Python integer; use `with k.loop",
        body("n = k.var('n', 4)", "with k.loop(n):", "    k.sync_warp()"),
    ),
    "if of an expression": Mistake(
        body("with k.loop(4) as i:", "    if i > 2:  # here", "        k.sync_warp()"),
        "only known when the kernel runs; use k.if_",
        body("with k.loop(4) as i:", "    with k.if_(i > 2):", "        k.sync_warp()"),
    ),
    "equality of two expressions": Mistake(
        body("n = k.var('n', 4)", "with k.loop(4) as i:", "    if i == n:  # here",
             "        k.sync_warp()"),
        "compares trees, not run-time values; use x.eq(y)",
        body("n = k.var('n', 4)", "with k.loop(4) as i:", "    with k.if_(i.eq(n)):",
             "        k.sync_warp()"),
    ),
    "division of integers": Mistake(
        body("k.var('x', k.lane_id / 2)  # here"), "`lane_id / 2`: integers are divided with //",
        body("k.var('x', k.lane_id // 2)"),
    ),
    "division by a register": Mistake(
        body("k.var('x', 8 / k.lane_id)  # here"), "`8 / lane_id`: integers are divided with //",
        body("k.var('x', 8 // (k.lane_id + 1))"),
    ),
    "power": Mistake(
        body("k.var('x', k.lane_id ** 2)  # here"), "multiply with *",
        body("k.var('x', k.lane_id * k.lane_id)"),
    ),
    "absolute value": Mistake(
        body("k.var('x', abs(k.lane_id - 3))  # here"), "use ts.maximum(x, -x)",
        body("k.var('x', ts.maximum(k.lane_id - 3, 3 - k.lane_id))"),
    ),
    "for over a register": Mistake(
        body("for i in k.warp_id:  # here", "    k.sync_warp()"),
        "`warp_id` is one value: use `with k.loop(warp_id) as i:`",
        body("with k.loop(k.warp_id) as i:", "    k.sync_warp()"),
    ),
    "array as an operand": Mistake(
        body("k.var('x', np.arange(3))  # here"),
        "expected an integer or an expression, got ndarray",
        body("k.var('x', np.arange(3)[2])"),
    ),
    "assignment to memory": Mistake(
        body("s = k.shared('s', ts.s32, (4,))", "s[1] = 3  # here"),
        "s[...] = 3: an assignment is no instruction",
        body("s = k.shared('s', ts.s32, (4,))", "with k.one_thread():",
             "    k.mem.store(s[1], 3)"),
    ),
    "kernel that returns a value": Mistake(
        "@ts.kernel  # here\ndef f(k):\n    k.sync_threads()\n    return 5\n",
        "kernel f returns 5: it records instructions only", DEF + SYNC,
    ),
    "while of an expression": Mistake(
        body("n = k.var('n', 0)", "while n < 4:  # here", "    n += 1"),
        "only known when the kernel runs",
        body("n = k.var('n', 0)", "with k.while_(n < 4):", "    n += 1"),
    ),
    "kernel without instructions": Mistake(
        "@ts.kernel(warps=1)  # here\ndef f(k):\n    pass\n", "kernel f has no instructions",
        DEF + SYNC,
    ),
    "kernel without a builder": Mistake(
        "@ts.kernel  # here\ndef f():\n    pass\n", "write `def f(k):`", DEF + SYNC,
    ),
    "kernel that yields": Mistake(
        "@ts.kernel  # here\ndef f(k):\n    yield\n", "it cannot have yield, or be async",
        "@ts.kernel\ndef f(k):\n    k.sync_threads()\n",
    ),
    "unknown type of elements": Mistake(
        body("k.tensor('A', 'floot16', (4, 4))  # here"),
        "dtype of A is 'floot16', not a type of elements (did you mean float16",
        body("k.tensor('A', 'float16', (4, 4))"),
    ),
    "type of elements of no size": Mistake(
        body("k.tensor('A', float, (4, 4))  # here"), "fix: say the size: f32 or f64",
        body("k.tensor('A', np.float32, (4, 4))"),
    ),
    "method of a namespace": Mistake(
        body("b = k.mbarriers('b')", "k.mbarrier.wiat(b, 0)  # here"),
        "k.mbarrier has no instruction 'wiat' (did you mean wait",
        body("k.fence.proxy_async()"),
    ),
    "method of a generated namespace": Mistake(
        body("k.griddep.launch_dependent()  # here"),
        "k.griddep has no instruction 'launch_dependent' (did you mean launch_dependents?)",
        body("k.griddep.launch_dependents()"),
    ),
    "method of the builder": Mistake(
        body("k.syncthreads()  # here"), "Builder has no 'syncthreads' (did you mean sync_threads",
        body("k.sync_threads()"),
    ),
    "target": Mistake(
        "@ts.kernel(target='sm_91')  # here\ndef f(k):\n" + SYNC,
        "there is no target 'sm_91' (did you mean sm_90",
        "@ts.kernel(target='sm_90')\ndef f(k):\n" + SYNC,
    ),
    "warps": Mistake(
        "@ts.kernel(warps='4')  # here\ndef f(k):\n" + SYNC, "warps is '4', not an integer",
        "@ts.kernel(warps=np.int64(4))\ndef f(k):\n" + SYNC,
    ),
    "launch": Mistake(
        body("k.launch(registers='64')  # here"), "registers is '64', not an integer",
        body("k.launch(registers=64)"),
    ),
    "shape": Mistake(
        body("n = k.scalar('n', 4)", "k.tensor('A', ts.f32, (n, 4))  # here"),
        "is known only when the kernel runs: it is ScalarParam $n, not an integer",
        body("k.tensor('A', ts.f32, (np.int64(4), 4))", "k.tensor('B', ts.f32, 4)"),
    ),
    "count of mbarriers": Mistake(
        body("k.mbarriers('b', 2.5)  # here"), "the number of mbarriers of b is 2.5",
        body("k.mbarriers('b', np.int32(2))"),
    ),
    "index": Mistake(
        body("b = k.mbarriers('b', 2)", "with k.one_thread():",
             "    k.mbarrier.init(b[0.5], 1)  # here"),
        "index 0.5 of b is not an integer",
        body("b = k.mbarriers('b', 2)", "with k.one_thread():",
             "    k.mbarrier.init(b[np.int64(1)], 1)"),
    ),
    "swizzle": Mistake(
        body("k.shared('s', ts.f32, (8, 32), swizzle='128B')  # here"),
        "the swizzle of s is '128B', not an integer",
        body("k.shared('s', ts.f32, (8, 32), swizzle=128)"),
    ),
    "map of shared memory": Mistake(
        body("s = k.shared('s', ts.f32, (8, 32))", "k.tensor_map(s, (8, 32))  # here"),
        "a tensor map needs a tensor in global memory, not SharedTensor s",
        body("X = k.tensor('X', ts.f32, (8, 32))", "k.tensor_map(X, (8, 32))"),
    ),
    "role": Mistake(
        body("with k.role(0, 'a'):  # here", "    k.sync_warp()"),
        "the name of the role is 0, not a text",
        body("with k.role('a', 0):", "    k.sync_warp()"),
    ),
    "integer": Mistake(
        body("k.var('v', 2**70)  # here"), "expected an integer below 2^64",
        body("k.var('v', 2**63, ts.u64)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_mistake_is_blamed_on_its_line(write: Write, tilesim_cli: Invoke, mistake: Mistake) -> None:
    source = HEAD + mistake.wrong
    (line,) = (n for n, row in enumerate(source.splitlines(), 1) if "# here" in row)
    result = tilesim_cli("check", write("f.py", source))
    assert "Traceback" not in result.output
    said = re.sub(r"\s+", " ", result.stdout)
    assert result.exit_code == 2, said
    assert mistake.said in said
    assert re.search(rf" f\.py:{line}: ", said), said
    assert f"{line} | {source.splitlines()[line - 1].strip()}" in result.stdout
    right = tilesim_cli("check", write("f.py", HEAD + mistake.right))
    assert right.exit_code == 0, right.output


DTYPES = {
    "'float16'": "f16", "'torch.bfloat16'": "bf16", "np.float32": "f32", "np.dtype('int8')": "s8",
    "torch_dtype()": "f16", "'fp8e4nv'": "e4m3", "np.uint64": "u64", "'half'": "f16",
}  # fmt: skip


@pytest.mark.parametrize("given", DTYPES)
def test_types_of_other_libraries_are_taken(write: Write, tilesim_cli: Invoke, given: str) -> None:
    calls = (f"k.tensor('A', {given}, (64, 64))", f"k.shared('s', {given}, (64, 64))",
             f"k.fragment('g', {given}, (16, 64))", f"k.var('v', dtype={given})")  # fmt: skip
    said = tilesim_cli("show", write("f.py", HEAD + body(*calls))).stdout
    name = DTYPES[given]
    for form in (f"global A: {name},", f"shared s: {name},", f"fragment g: {name},",
                 f"var v: {name}"):  # fmt: skip
        assert form in said


RAISING = """import tilesim as ts


def inner(x):
    return 1 / x  # inner


def outer(x):
    return inner(x - 1)  # outer


@ts.kernel(warps=1)
def f(k, *, n=1):
    k.sync_threads()
    outer(n)  # kernel
"""


def test_an_exception_of_the_users_has_the_users_frames(write: Write, tilesim_cli: Invoke) -> None:
    name = write("f.py", RAISING)
    result = tilesim_cli("check", name)
    assert result.exit_code == 2
    assert "f.py:5: building f raises ZeroDivisionError: division by zero" in result.stdout
    rows = RAISING.splitlines()
    shown = [f"f.py:{n}\n        {n} | {rows[n - 1].strip()}" for n in (15, 9, 5)]
    assert [result.stdout.index(s) for s in shown] == sorted(map(result.stdout.index, shown))
    assert "Traceback" not in result.output
    assert tilesim_cli("check", name, "--param", "n=2").exit_code == 0


@pytest.mark.parametrize("command", ["check", "run", "show"])
def test_debug_shows_the_traceback(write: Write, tilesim_cli: Invoke, command: str) -> None:
    name = write("f.py", RAISING)
    result = tilesim_cli("--debug", command, name)
    assert result.exit_code == 2
    assert "Traceback (most recent call last)" in result.stderr
    assert "return 1 / x  # inner" in result.stderr
