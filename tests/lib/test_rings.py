"""Rings of stages: proved for any size, and each way to misuse them is found at its line."""

from __future__ import annotations

import pytest

import tilesim as ts
from tests.lib.lines import marks, roles
from tests.lib.rings import by_cursor, by_item, counted
from tilesim.dsl.builder import Builder
from tilesim.ir.expr import constant
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierArriveExpectTx, MbarrierWait
from tilesim.ir.program import instructions
from tilesim.lib.pipeline import Pipeline

BOTH = {"load", "use"}


@pytest.mark.parametrize("items", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_slots_by_item_are_right_for_every_size(stages: int, items: int) -> None:
    assert ts.check(by_item(stages=stages, items=items)).verdict == "proved"


@pytest.mark.parametrize(
    ("stages", "items", "tiles", "ctas"),
    [(1, 1, 1, 1), (2, 3, 3, 2), (3, 2, 4, 1), (2, 5, 2, 3), (2, 2, 5, 2)],
)
def test_persistent_roles_are_right_by_cursor_and_by_count(
    stages: int, items: int, tiles: int, ctas: int
) -> None:
    for kernel in (by_cursor, counted):
        program = kernel(stages=stages, items=items, tiles=tiles, ctas=ctas)
        assert ts.check(program).verdict == "proved"


@pytest.mark.parametrize(
    ("fault", "rule", "who", "where"),
    [
        ("init", "uninitialised-barrier", {"use"}, ("wait",)),
        ("acquire", "over-arrival", {"load"}, ("commit",)),
        ("bytes", "deadlock", BOTH, ("commit", "copy", "acquire", "wait")),
        ("wait", "race", BOTH, ("read", "commit", "copy")),
        ("early", "race", BOTH, ("early", "copy", "read")),
        ("release", "deadlock", BOTH, ("store", "init", "acquire", "wait")),
    ],
)
def test_a_step_left_out_is_found(
    fault: str, rule: str, who: set[str], where: tuple[str, ...]
) -> None:
    finding = ts.check(by_item(fault=fault)).findings[0]
    named = marks(by_item, finding)
    assert (finding.rule, roles(finding), named[0]) == (rule, who, where[0])
    assert set(where) <= set(named)


def test_a_consumer_that_does_not_arrive_is_found() -> None:
    finding = ts.check(by_item(consumers=2)).findings[0]
    assert (finding.rule, roles(finding)) == ("deadlock", BOTH)
    assert marks(by_item, finding) == ("init", "release", "acquire", "wait")


def test_a_cursor_that_stands_still_is_found() -> None:
    finding = ts.check(by_cursor(fault="advance")).findings[0]
    assert (finding.rule, roles(finding)) == ("race", BOTH)
    assert marks(by_cursor, finding) == ("wait", "read", "copy")


def test_items_counted_from_0_for_every_tile_are_found() -> None:
    finding = ts.check(counted(fault="restart", items=2, stages=3)).findings[0]
    assert finding.rule in ("race", "deadlock", "over-arrival")
    finding = ts.check(counted(fault="restart", items=2)).findings[0]
    assert (finding.rule, roles(finding)) == ("over-arrival", {"load"})
    assert marks(counted, finding) == ("acquire", "tiles", "commit")


@pytest.mark.parametrize(
    ("item", "stage", "parity"), [(0, 0, 0), (3, 3, 0), (4, 0, 1), (7, 3, 1), (8, 0, 0)]
)
def test_slot_follows_from_the_number_of_the_item(item: int, stage: int, parity: int) -> None:
    pipe = Pipeline(Builder("k"), 4)
    slot = pipe[item]
    assert (constant(slot.stage), constant(slot.parity)) == (stage, parity)
    assert (str(slot.full), str(slot.empty)) == (f"full[{stage}]", f"empty[{stage}]")


def test_slot_operations_are_one_instruction_each() -> None:
    k = Builder("k")
    slot = Pipeline(k, 2, name="x")[3]
    slot.acquire()
    slot.commit(64)
    slot.commit()
    slot.wait()
    slot.release()
    acquire, expect, commit, wait, release = instructions(k.finish())
    assert isinstance(acquire, MbarrierWait)
    assert (str(acquire.mbar), constant(acquire.phase)) == ("x_empty[1]", 0)
    assert isinstance(expect, MbarrierArriveExpectTx)
    assert (str(expect.mbar), constant(expect.bytes)) == ("x_full[1]", 64)
    assert isinstance(commit, MbarrierArrive)
    assert str(commit.mbar) == "x_full[1]"
    assert isinstance(wait, MbarrierWait)
    assert (str(wait.mbar), constant(wait.phase)) == ("x_full[1]", 1)
    assert isinstance(release, MbarrierArrive)
    assert str(release.mbar) == "x_empty[1]"
    assert acquire.loc.file.endswith("test_rings.py")
