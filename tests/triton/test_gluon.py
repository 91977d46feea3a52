"""Kernels in Gluon: each is proved, and each mistake in it is found on its lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tilesim.checker import Report

tt: Any = pytest.importorskip(
    "tilesim.triton", reason="needs the triton extra", exc_type=ImportError
)
blackwell: Any = pytest.importorskip("tests.triton.gluon.blackwell")
attention: Any = pytest.importorskip("tests.triton.gluon.attention")
copies: Any = pytest.importorskip("tests.triton.gluon.copies")
gemm: Any = pytest.importorskip("tests.triton.gluon.gemm")
specialised: Any = pytest.importorskip("tests.triton.gluon.specialised")
hopper: Any = pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
gl: Any = pytest.importorskip("triton.experimental.gluon.language")
tl: Any = pytest.importorskip("triton.language")


def described(shape: Sequence[int], box: Sequence[int], **layout: Any) -> Any:
    """A tensor of 16-bit numbers with a descriptor of its boxes."""
    where = gl.NVMMASharedLayout.get_default_for(box, gl.float16, **layout)
    return hopper.TensorDescriptor.from_tensor(tt.empty(shape, tl.float16), box, where)


def pipelined(fault: str) -> Report:
    a, b = described((64, 320), [64, 64]), described((320, 64), [64, 64])
    c = described((64, 64), [64, 64])
    call = gemm.pipelined[(1,)]
    report: Report = tt.check(call, a, b, c, 5, STAGES=3, FAULT=fault, num_warps=4)
    return report


def streamed(fault: str) -> Report:
    x, y = (tt.empty((3, 1600), tl.float32) for _ in range(2))
    call = copies.streamed[(3,)]
    report: Report = tt.check(call, x, y, 1600, STAGES=3, BLOCK=512, FAULT=fault, num_warps=4)
    return report


def multicast(fault: str) -> Report:
    x, y = (described((512, 64), [64, 64], cga_layout=((0, 0),)) for _ in range(2))
    call = copies.multicast[(2,)]
    report: Report = tt.check(call, x, y, 4, FAULT=fault, num_warps=4, num_ctas=2)
    return report


def attended(fault: str) -> Report:
    tensors = (described((256, 64), [64, 64]) for _ in range(4))
    call = attention.attention[(1, 1)]
    report: Report = tt.check(call, *tensors, 4, 0.125, STAGES=2, FAULT=fault, num_warps=4)
    return report


def persistent(fault: str) -> Report:
    a, b = described((192, 192), [64, 64]), described((192, 128), [64, 64])
    c = described((192, 128), [64, 64])
    call = specialised.persistent[(2,)]
    report: Report = tt.check(call, a, b, c, 3, 2, 3, STAGES=3, FAULT=fault, num_warps=4)
    return report


def committed(fault: str) -> Report:
    a, b = described((128, 320), [128, 64]), described((320, 64), [64, 64])
    c = described((128, 64), [128, 64])
    call = blackwell.committed[(1,)]
    report: Report = tt.check(
        call, a, b, c, 5, STAGES=3, FAULT=fault, num_warps=4, target="sm_100a"
    )
    return report


TCGEN05 = "tcgen05_mma(a_ring.index(slot), b_ring.index(slot), acc, use_acc=k > 0)"
REFILL_FREED = "load(k + STAGES, a, b, a_ring, b_ring, full, row, column, STAGES, FAULT)"
MMA = "acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)"
WAIT = "mbarrier.wait(full.index(slot), parity)"
START = "load(k, a, b, a_ring, b_ring, full, row, column, STAGES, FAULT)"
REFILL = "load(k + STAGES - 1, a, b, a_ring, b_ring, full, row, column, STAGES, FAULT)"
EARLY = "mbarrier.wait(full.index(0), ((tiles - 1) // STAGES) & 1)"

STORE = "tma.async_store(c, [row, tile % cols * c.block_shape[1]], c_tile)"

FILL = "fill(x + row, i, columns, ring, STAGES, BLOCK)"
FILL_NEXT = "fill(x + row, i + STAGES, columns, ring, STAGES, BLOCK)"
READ = "value = ring.index(i % STAGES).load(read)"

LOAD = "tma.async_load(x, [row + i * x.block_shape[0], 0], full, tile, multicast=True)"

Q = "tma.async_load(q, [first + base, 0], q_full, q_tile)"
SCORES = "dots = warpgroup_mma(q_tile, k_ring.index(slot).permute((1, 0)), zero, is_async=True)"
PRODUCT = "product = warpgroup_mma(operand, v_ring.index(slot), acc, is_async=True)"
ARGUMENTS = "k, v, k_ring, v_ring, k_full, v_full, base, STAGES, FAULT"

#: warps of no partition wait for work
IDLE = "def persistent(a, b, c, rows, cols, depth, STAGES: gl.constexpr, FAULT: gl.constexpr):"
EMPTY = "mbarrier.wait(empty.index(slot), parity)"
LOAD_A = "tma.async_load(a, [row, k * a.block_shape[1]], full.index(slot), a_ring.index(slot))"
EXPECT = "mbarrier.expect(full.index(slot), a.nbytes_per_cta + b.nbytes_per_cta)"

Kernel = Callable[[str], Report]
#: the kernel, the mistake, the rule and the lines of a finding about it
MISTAKES: list[tuple[Kernel, str, str, set[str]]] = [
    (pipelined, "more bytes expected", "deadlock", {WAIT}),
    (pipelined, "fewer bytes expected", "race", {MMA, START}),
    (pipelined, "nothing expected", "race", {MMA, START}),
    (pipelined, "no expect", "deadlock", {WAIT}),
    (pipelined, "next slot filled", "race", {MMA, REFILL}),
    (pipelined, "count of two", "deadlock", {WAIT}),
    (pipelined, "other parity", "race", {MMA, START}),
    (pipelined, "no wait for the copy", "race", {MMA, START}),
    (pipelined, "next slot read", "race", {MMA, START}),
    (pipelined, "no wait for wgmma", "race", {MMA, REFILL}),
    (
        pipelined, "invalidated too early", "barrier-lifetime",
        {"mbarrier.invalidate(full.index(0))", EARLY},
    ),
    (
        pipelined, "no wait for the store", "async-at-exit",
        {"tma.async_store(c, [row, column], c_tile)"},
    ),
    (committed, "no wait for the copy", "race", {TCGEN05, START}),
    (committed, "no commit", "deadlock", {"mbarrier.wait(empty.index(slot), parity)"}),
    (committed, "other parity", "deadlock", {"mbarrier.wait(empty.index(slot), parity ^ 1)"}),
    (committed, "refilled while the product reads", "race", {TCGEN05, REFILL_FREED}),
    (
        committed, "loaded before the product is complete", "tcgen05-order",
        {TCGEN05, "product = acc.load()"},
    ),
    (streamed, "next slot filled", "race", {READ, FILL_NEXT}),
    (streamed, "one group too many in flight", "race", {READ, FILL}),
    (streamed, "no wait for the copy", "race", {READ, FILL}),
    (multicast, "bytes of both CTAs expected", "deadlock", {"mbarrier.wait(full, i & 1)"}),
    (multicast, "no cluster barrier before the next copy", "race", {LOAD}),
    (
        attended, "V counted by the barrier of K", "deadlock",
        {"mbarrier.wait(v_full.index(slot), parity)"},
    ),
    (attended, "no wait for Q", "race", {Q, SCORES}),
    (
        attended, "V waited for with the parity of the next round", "deadlock",
        {"mbarrier.wait(v_full.index(slot), parity ^ 1)"},
    ),
    (attended, "no wait for V", "race", {f"fill(i, {ARGUMENTS})", PRODUCT}),
    (attended, "refilled while wgmma reads", "race", {f"fill(i + STAGES, {ARGUMENTS})", PRODUCT}),
    (
        attended, "Q overwritten while it is read", "race",
        {"q_tile.store(acc.to(o.dtype))", "tma.async_store(o, [first + base, 0], q_tile)"},
    ),
    (persistent, "loader: other parity", "deadlock", {WAIT, EMPTY, IDLE}),
    (persistent, "loader: no wait", "over-arrival", {EXPECT}),
    (persistent, "loader: fewer bytes expected", "race", {MMA, LOAD_A}),
    (persistent, "loader: more bytes expected", "deadlock", {WAIT, EMPTY, IDLE}),
    (persistent, "loader: count starts again", "over-arrival", {EXPECT}),
    (persistent, "multiplier: other parity", "race", {MMA, LOAD_A}),
    (persistent, "multiplier: no wait", "race", {MMA, LOAD_A}),
    (
        persistent, "multiplier: release before the wait for wgmma", "race",
        {MMA, LOAD_A},
    ),
    (persistent, "multiplier: next slot released", "deadlock", {WAIT, EMPTY, IDLE}),
    (persistent, "multiplier: released twice", "over-arrival", {EXPECT}),
    (persistent, "multiplier: no release", "deadlock", {WAIT, EMPTY, IDLE}),
    (
        persistent, "multiplier: no wait for the last store", "race",
        {"c_tile.store(product.to(c.dtype))", STORE},
    ),
    (persistent, "empty: count of two", "deadlock", {WAIT, EMPTY, IDLE}),
]  # fmt: skip
#: what Gluon's compiler puts right: it adds the fence, and the barrier of the cluster
HARMLESS = [
    (pipelined, "no proxy fence"),
    (persistent, "multiplier: no proxy fence"),
    (multicast, "no cluster barrier after the initialisation"),
]


def named(kernel: Kernel, fault: str) -> str:
    return f"{kernel.__name__}: {fault}"


@pytest.mark.parametrize(
    "kernel", [pipelined, committed, streamed, multicast, attended, persistent]
)
def test_a_right_kernel_is_proved(kernel: Kernel) -> None:
    found = kernel("none")
    assert (found.verdict, found.findings) == ("proved", ())


@pytest.mark.parametrize(
    ("kernel", "fault"), HARMLESS, ids=[named(kernel, fault) for kernel, fault in HARMLESS]
)
def test_what_the_compiler_adds_need_not_be_written(kernel: Kernel, fault: str) -> None:
    assert kernel(fault).verdict == "proved"


def rows() -> list[Any]:
    """Of each kernel one mistake of a rule at some lines; in campaigns all of them."""
    seen: set[tuple[Kernel, str, frozenset[str]]] = set()
    found = []
    for kernel, fault, rule, lines in MISTAKES:
        told = kernel, rule, frozenset(lines)
        marks = pytest.mark.slow if told in seen else ()
        seen.add(told)
        found.append(pytest.param(kernel, fault, rule, lines, id=named(kernel, fault), marks=marks))
    return found


@pytest.mark.parametrize(("kernel", "fault", "rule", "lines"), rows())
def test_a_mistake_is_found_on_its_lines(
    kernel: Kernel, fault: str, rule: str, lines: set[str]
) -> None:
    report = kernel(fault)
    assert report.verdict == "failed"
    found = [
        {
            Path(p.loc.file).read_text().splitlines()[p.loc.line - 1].strip()
            for p in finding.participants
        }
        for finding in report.findings
        if finding.rule == rule
    ]
    assert lines in found
