"""Sets of bytes: exact for any strides, found without looking at all others, forgotten in time."""

from __future__ import annotations

import random
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from examples import pipeline
from tests.ptx.test_check import WAIT, report
from tilesim import Builder, Program, ds, f32, kernel, u32
from tilesim.arith.byte_set import ByteSet
from tilesim.checker import check
from tilesim.ir.declarations import GlobalTensor, SharedTensor
from tilesim.ir.layout import swizzled
from tilesim.ptx.launch import Pointer
from tilesim.sim.machine import addressing
from tilesim.sim.machine import footprint as footprints
from tilesim.sim.machine.footprint import Footprint, FootprintTable
from tilesim.sim.machine.memory import elements_apart
from tilesim.sim.machine.view_access import box_footprint
from tilesim.sim.observers.lane_races import meet_some

RNG = random.Random(14)


def _tensor(form: str) -> GlobalTensor | SharedTensor:
    """A small tensor: packed, turned, with rows apart, one over another or all in one place."""
    shape = tuple(RNG.randint(1, 6) for _ in range(RNG.randint(1, 3)))
    match form:
        case "swizzled":
            return SharedTensor("t", f32, (RNG.randint(4, 16), 32), RNG.choice((32, 64, 128)))
        case "packed":
            return GlobalTensor("t", f32, shape)
        case "turned":
            strides = tuple(int(np.prod(shape[:d])) for d in range(len(shape)))
            return GlobalTensor("t", f32, shape, strides)
        case _:
            return GlobalTensor("t", f32, shape, tuple(RNG.randint(0, 7) for _ in shape))


def _box(tensor: GlobalTensor | SharedTensor) -> tuple[range, ...]:
    spans = []
    for extent in tensor.shape:
        first = RNG.randrange(extent)
        spans.append(range(first, RNG.randint(first + 1, extent), RNG.randint(1, 3)))
    return tuple(range(s.start, s[-1] + 1, s.step) for s in spans)


def _bytes(tensor: GlobalTensor | SharedTensor, spans: tuple[range, ...]) -> set[int]:
    """The bytes of a box, element by element."""
    found = set()
    for index in product(*spans):
        linear = sum(i * s for i, s in zip(index, tensor.byte_strides, strict=True))
        for byte in range(linear, linear + tensor.dtype.bytes):
            found.add(swizzled(byte, getattr(tensor, "swizzle", 0)))
    return found


@pytest.mark.parametrize("few", [96, 2])
@pytest.mark.parametrize("form", ["swizzled", "packed", "turned", "any"])
def test_footprints_are_compared_byte_by_byte(
    form: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first ones are looked at one by one, and the others found by an index."""
    monkeypatch.setattr(footprints, "_FEW", few)
    for _ in range(150):
        tensor = _tensor(form)
        boxes = [_box(tensor) for _ in range(4)]
        truth = [_bytes(tensor, box) for box in boxes]
        table = FootprintTable("t", by_element=elements_apart(tensor) and form != "swizzled")
        made = [table.get(box, partial(box_footprint, tensor, 0, box)) for box in boxes]
        for one, mine in zip(made, truth, strict=True):
            assert set(one.bytes) == mine
            size = len(list(product(*boxes[made.index(one)]))) * 4
            assert one.folded == (len(mine) < size)
            for other, theirs in zip(made, truth, strict=True):
                assert (other in one.overlaps) == bool(mine & theirs), (tensor, boxes)
                assert (other in one.covers) == (theirs <= mine), (tensor, boxes)


# ---------------------------------------------------------------------- growth


class Work:
    """What a check did with footprints: cells and pairs looked at, and how many were kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pairs = self.most = 0
        self.cells = 0
        meets, relate = ByteSet.meets, FootprintTable._relate

        def counted(one: ByteSet, other: ByteSet) -> bool:
            self.pairs += 1
            return meets(one, other)

        def related(table: FootprintTable, new: Footprint) -> None:
            before = table.steps
            relate(table, new)
            self.cells += table.steps - before
            self.most = max(self.most, len(table._known))

        monkeypatch.setattr(ByteSet, "meets", counted)
        monkeypatch.setattr(FootprintTable, "_relate", related)


def _tutorial(tiles: int) -> Program:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "TILES", tiles)
        return pipeline.pipeline.build(fixed=True)


@kernel(warps=2)
def columns(k: Builder, *, count: int = 8) -> None:
    """Two warps write the halves of tiles that lie side by side in rows of ``count`` tiles, and
    one word per lane of a tensor that is written column by column."""
    Y = k.tensor("Y", f32, (32, count * 32))
    Z = k.tensor("Z", f32, (32 * count,))
    part, r = k.fragment("part", f32, (16, 32)), k.var("r", 0)
    k.tile.fill(part, 1)
    with k.loop(count) as i:
        k.tile.store(Y[ds(k.warp_id * 16, 16), ds(i * 32, 32)], part)
        k.sync_threads()
        with k.if_(k.warp_id.eq(0)):
            k.mem.store(Z[k.lane_id * count + i], r)


@pytest.mark.parametrize(
    "build", [_tutorial, lambda n: columns.build(count=n)], ids=["rows", "columns"]
)
def test_work_and_memory_of_a_stream_of_stores(
    build: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(build)
    measured = []
    for count in (400, 800):
        with monkeypatch.context() as patch:
            work = Work(patch)
            assert check(build(count)).verdict == "proved"
            measured.append(work)
    small, large = measured
    assert large.pairs < 2.2 * small.pairs + 100
    assert large.cells < 2.2 * small.cells + 100


def test_accesses_that_everybody_knows_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprints, "_MANY", 64)
    work = Work(monkeypatch)
    assert check(_tutorial(200)).verdict == "proved"
    assert work.most <= 80


@kernel(warps=2)
def late_reader(k: Builder, *, count: int = 8, waits: bool = True) -> None:
    """After many stores that are over for everybody, a word is written and read."""
    Y = k.tensor("Y", f32, (count + 1, 32))
    r = k.var("r", dtype=f32)
    with k.loop(count) as i:
        with k.role("writer", 0):
            k.mem.store(Y[i, k.lane_id], 1.0)
        k.sync_threads()
    with k.role("last", 0):
        k.mem.store(Y[count, k.lane_id], 1.0)
    if waits:
        k.sync_threads()
    with k.role("reader", 1), k.loop(count + 1) as i:
        k.mem.load(r, Y[i, k.lane_id])


def test_what_is_not_over_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprints, "_MANY", 16)
    report = check(late_reader.build(count=100, waits=False))
    assert report.verdict == "failed"
    assert [f.rule for f in report.findings] == ["race"]
    assert set(report.findings[0].roles) == {"last", "reader"}
    assert check(late_reader.build(count=100, waits=True)).verdict == "proved"


# ---------------------------------------------------------------------- grids


@kernel(warps=1)
def rows_of_ctas(k: Builder, *, ctas: int = 100, strides: tuple[int, ...] = (32, 1)) -> None:
    """Every CTA writes a row."""
    k.launch(grid=ctas)
    Y = k.tensor("Y", u32, (ctas, 32), strides)
    with k.role("writer", 0):
        k.mem.store(Y[k.cta_x, k.lane_id], 1)


@pytest.mark.parametrize("ctas", [4, 100, 1000])
def test_rows_of_ctas_that_share_bytes(ctas: int) -> None:
    for strides in ((16, 1), (0, 1), (31, 1)):
        report = check(rows_of_ctas.build(ctas=ctas, strides=strides))
        assert report.verdict == "failed", (strides, report)
        assert {f.rule for f in report.findings} == {"race"}
    for strides in ((32, 1), (1, ctas)):
        assert check(rows_of_ctas.build(ctas=ctas, strides=strides)).verdict == "proved"


_COPY = (
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 64, [%r1];\n"
)


@pytest.mark.parametrize(("place", "made"), [("", 2), ("add.u32 %r3, %r3, 128;\n", 3)])
def test_what_several_instructions_access_at_one_address_is_one(
    place: str, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies: of one source, to one place or two."""
    again = WAIT.replace("L:", "M:").replace("bra L", "bra M").replace(", 0;", ", 1;")
    expects = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;\n"
    body = (
        "ld.param.u64 %rd1, [x]; mov.u32 %r1, smem; add.u32 %r3, %r1, 256; mov.u32 %r2, 1;\n"
        "elect.sync _|%p0, -1; @!%p0 bra END;\nmbarrier.init.shared::cta.b64 [%r1], %r2;\n"
        f"{expects}{_COPY}{WAIT}{expects}{place}{_COPY}{again}END: ret;"
    )
    boxes: list[object] = []

    def counted(*args: Any, **named: Any) -> Footprint:
        boxes.append(args)
        return box_footprint(*args, **named)

    monkeypatch.setattr(addressing, "box_footprint", counted)
    values = (Pointer("x", 512),)
    assert report(body, params=(".param .u64 x",), values=values).verdict == "proved"
    assert len(boxes) == made


def test_ranges_that_share_bytes_with_others() -> None:
    def ranges() -> tuple[Any, Any]:
        low = np.array([RNG.randrange(20) for _ in range(RNG.randrange(6))], np.int64)
        return low, low + np.array([RNG.randint(1, 6) for _ in low], np.int64)

    for _ in range(2_000):
        (low, high), (lows, highs) = ranges(), ranges()
        met = ((lows < high[:, None]) & (low[:, None] < highs)).any(axis=1)
        assert meet_some(low, high, lows, highs).tolist() == met.tolist()
