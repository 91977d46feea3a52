"""What the proof kernel does at most: beyond that a launch is not covered, and nothing grows."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilesim as ts
from tilesim.checker import certificate_file
from tilesim.checker.certificates import proposed
from tilesim.ir.declarations import View
from tilesim.proof import (
    check,
    counters,
    effects,
    machine,
    memory,
    moving,
    operands,
)
from tilesim.proof.check import certify
from tilesim.proof.effects import execute
from tilesim.proof.machine import Machine
from tilesim.proof.memory import LARGEST, Memory, Record, Where, apart
from tilesim.proof.operands import MOST_BYTES, Operands
from tilesim.proof.rules import NotCovered, Refuted
from tilesim.transforms.lower import lower

TRUST = Path(__file__).resolve().parents[2] / "docs" / "trust.md"


def resident() -> int:
    """Bytes of memory that this process has touched."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soon(call: Callable[[], object], most: int = 64 << 20) -> None:
    """Calls, and says if that takes long, or more bytes than ``most`` while its result is held."""
    start, before = time.monotonic(), resident()
    held = call()
    assert time.monotonic() - start < 5
    assert resident() - before < most
    del held


@ts.kernel
def many(k: ts.Builder, *, clusters: int = 1 << 18) -> None:
    k.launch(warps=1, grid=clusters)
    x = k.var("x")
    k.assign(x, k.cta_x)


def test_a_class_of_many_clusters_is_left_at_once() -> None:
    mir = lower(many.build())
    soon(lambda: certify(mir, [range(1 << 18)]))
    assert certify(mir, [range(1 << 18)]).what == "a class of 262144 clusters"
    soon(lambda: proposed(mir))
    assert proposed(mir)[0] == (tuple(range(1 << 18)),)
    few = lower(many.build(clusters=1 << 7))
    assert str(certify(few, [range(1 << 7)])) == "certified"


@ts.kernel
def stores(k: ts.Builder, *, clusters: int = 1 << 13, apart: int = 1 << 14) -> None:
    """Each thread of each cluster stores a word: lanes, and clusters, so many words apart."""
    k.launch(warps=1, grid=clusters)
    g = k.tensor("g", ts.u32, (1 << 27,))
    k.mem.store(g[k.cta_x * apart + k.lane_id * (1 << 9)], k.cta_x)


def test_what_many_clusters_store_is_compared_as_ranges() -> None:
    right, wrong = lower(stores.build()), lower(stores.build(apart=1 << 9))
    soon(lambda: certify(right, [range(1 << 13)]), 256 << 20)
    assert str(certify(right, [range(1 << 13)])) == "certified"
    assert "may be of equal values" in certify(wrong, [range(1 << 13)]).what


@ts.kernel
def looks_for_ever(k: ts.Builder, *, iterations: int = 1 << 30) -> None:
    """``iterations``: after which it gives up."""
    k.launch(warps=1)
    word, seen, iteration = k.shared("word", ts.u32, (1,)), k.var("seen", 0), k.var("iteration", 0)
    with k.one_thread():
        k.mem.store(word[0], 0)
        with k.while_(seen.eq(0) & (iteration < iterations)):
            k.mem.load(seen, word[0], sem="relaxed")
            k.assign(iteration, iteration + 1)


def test_a_loop_that_looks_for_ever_is_left() -> None:
    assert "looks at words" in certify(lower(looks_for_ever.build())).what
    assert str(certify(lower(looks_for_ever.build(iterations=9)))) == "certified"


@ts.kernel
def differing(k: ts.Builder, *, clusters: int = 1, kinds: int = 1) -> None:
    """Clusters of so many kinds."""
    k.launch(warps=1, grid=clusters)
    with k.loop(k.cta_x % kinds):
        k.sync_warp()


def test_classes_are_found_by_few_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = proposed(lower(differing.build(clusters=3000, kinds=3)))
    assert found == tuple(tuple(range(n, 3000, 3)) for n in range(3))
    monkeypatch.setattr("tilesim.checker.certificates.MOST_CLASSES", 8)
    assert proposed(lower(differing.build(clusters=9, kinds=9)))[0] is None
    assert proposed(lower(differing.build(clusters=9, kinds=8)))[0] is not None
    monkeypatch.setattr("tilesim.checker.certificates.MOST_LOOKS", 2)
    assert proposed(lower(differing.build(clusters=300, kinds=3)))[0] is None


def test_many_classes_are_left_at_once() -> None:
    assert certify(lower(many.build())).what == "262144 classes of clusters"
    assert certify(lower(many.build(clusters=65))).what == "65 classes of clusters"
    assert str(certify(lower(many.build(clusters=64)))) == "certified"


@ts.kernel
def shifts(k: ts.Builder, *, by: int = 1 << 40, left: int = 0) -> None:
    """It traps, unless a number shifted to the left is what is said."""
    k.launch(warps=1)
    x, n = k.var("x", dtype=ts.u64), k.var("n", dtype=ts.u64)
    k.assign(x, 3)
    k.assign(n, by)
    shared = k.mbarriers("never")
    with k.one_thread():
        k.mbarrier.init(shared, 1)
        with k.if_((x << n).ne(left)):
            k.mbarrier.wait(shared, 0)


@pytest.mark.parametrize(
    ("by", "left"),
    [(1 << 40, 0), ((1 << 64) - 1, 0), (64, 0), (63, 1 << 63), (62, 3 << 62), (1, 6), (0, 3)],
)
def test_a_shift_by_many_bits_costs_nothing(by: int, left: int) -> None:
    right, other = lower(shifts.build(by=by, left=left)), lower(shifts.build(by=by, left=5))
    soon(lambda: certify(right))
    assert str(certify(right)) == "certified"
    assert certify(other).rule == "deadlock"


def test_memory_costs_nothing_where_nothing_is_accessed() -> None:
    where = Where(0, "store", 0, 0)

    def touch() -> object:
        one, other = (Memory("g", LARGEST, shared_by_clusters=True) for _ in range(2))
        for number, m in enumerate((one, other)):
            at = np.arange(8) + (LARGEST // 2 + 8 * number)
            lanes = np.zeros(8, np.int64)
            record = Record(at, True, "generic", None, where, lanes, lanes.astype("int32"), number)
            m.access(record, lambda *_: False)
        some = [m.ranges(np.zeros(1, np.int64)) for m in (one, other)]
        apart("g", some, exact=True)
        with pytest.raises(Refuted, match=f"byte {LARGEST // 2 + 8} of g"):
            apart("g", [*some, some[1]], exact=True)
        return one, other

    soon(touch, 512 << 20)  # some pages of each array, which may be large; the arrays are gigabytes
    with pytest.raises(NotCovered, match="g has"):
        Memory("g", LARGEST + 1)


def test_an_operand_of_many_bytes_is_left_at_once() -> None:
    k = ts.Builder("k")
    k.launch(warps=1)
    g = k.tensor("g", ts.u8, (1 << 34,))
    k.sync_threads()
    m = Machine(Operands(lower(k.finish())), [0], execute)

    def named(size: int) -> View:
        return g[ts.ds(0, size)]

    found = m.operands.view(named(MOST_BYTES), m.warps[0], [0])
    assert found[0].bytes.size == MOST_BYTES

    def large() -> None:
        with pytest.raises(NotCovered, match=f"an operand of {1 << 34} bytes"):
            m.operands.view(named(1 << 34), m.warps[0], [0])

    soon(large)


def test_that_memory_is_used_up_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Machine, "ends", full)
    assert str(certify(lower(many.build(clusters=1)))) == "not covered: memory"


def test_the_page_has_the_limits() -> None:
    text = TRUST.read_text()
    table = text[text.index("## Its limits") : text.index("## What is trusted")]
    cells = re.findall(r"\| (\d[\d,; ]*) \|", table)
    said = [int(n.replace(",", "")) for cell in cells for n in cell.split("; ")]
    assert said == [
        machine.MOST_LANES, machine.MOST_TOGETHER, check.MOST_CLASSES, machine.MOST_SHADOWS,
        machine.MOST_STEPS, effects.MOST_LOOKS, machine.MOST_COUNTED, counters.MOST_SUMS,
        effects.MOST_NAMED, moving.MOST_BOXES, memory.LARGEST, operands.MOST_BYTES,
        certificate_file.MOST_CLUSTERS, certificate_file.MOST_VALUES,
    ]  # fmt: skip
