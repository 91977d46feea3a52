"""Tensor memory for the time of a region, tiles that are taken over: right, and misused."""

from __future__ import annotations

import pytest

import tilesim as ts
from tests.lib.blackwell import in_parts, stolen, stored
from tests.lib.lines import marks, roles
from tilesim.ir.program import Strict
from tilesim.lib import TensorMemory


@pytest.mark.parametrize(("columns", "warp"), [(32, 0), (64, 1), (128, 3), (512, 2)])
def test_columns_are_there_in_the_region(columns: int, warp: int) -> None:
    program = stored(columns=columns, warp=warp)
    assert ts.check(program, strict="ptx").verdict == "proved"


@pytest.mark.parametrize(("strict", "verdict"), [("practice", "proved"), ("ptx", "failed")])
def test_accesses_are_published_before_the_columns_are_freed(strict: Strict, verdict: str) -> None:
    report = ts.check(stored(fault="publish"), strict=strict)
    assert report.verdict == verdict
    for finding in report.findings:
        assert finding.rule in ("tmem-lifetime", "tcgen05-order")
        assert marks(stored, finding)[0] == "allocated"


def test_an_access_after_the_region_is_found() -> None:
    finding = ts.check(stored(fault="outside")).findings[0]
    assert (finding.rule, roles(finding)) == ("tmem-lifetime", {"warp 0", "warp 1"})
    assert marks(stored, finding) == ("allocated", "after", "outside")


def test_a_load_before_the_store_is_done_is_found() -> None:
    finding = ts.check(stored(fault="wait")).findings[0]
    assert (finding.rule, roles(finding)) == ("tcgen05-order", {"warp 0"})
    assert marks(stored, finding) == ("stores", "loads")


def test_the_parts_are_right_in_their_order_only() -> None:
    assert ts.check(in_parts()).verdict == "proved"
    finding = ts.check(in_parts(fault="early")).findings[0]
    assert (finding.rule, marks(in_parts, finding)[:2]) == ("race", ("address", "allocate"))


def test_a_region_that_nobody_enters_is_refused() -> None:
    k = ts.Builder("forgotten", "sm_100a")
    TensorMemory(k, 32).allocated()
    with pytest.raises(ts.InvalidProgram, match=r"write `with memory.allocated\(...\):`"):
        k.finish()


@pytest.mark.parametrize(("tiles", "slots"), [(1, 1), (4, 2), (5, 1), (7, 3)])
def test_tiles_are_taken_over(tiles: int, slots: int) -> None:
    assert ts.check(stolen(tiles=tiles, slots=slots)).verdict == "proved"


@pytest.mark.parametrize(
    ("readers", "fault", "rule", "who", "where"),
    [
        (2, "", "race", {"scheduler", "store"}, ("ask", "init", "load", "store")),
        (4, "", "deadlock", {"scheduler", "load", "store"}, ("init", "ask", "load", "store")),
        (
            3,
            "unasked",
            "deadlock",
            {"scheduler", "load", "store"},
            ("each", "load", "store", "init"),
        ),
    ],
)
def test_readers_that_are_not_counted_and_answers_nobody_asks_for(
    readers: int, fault: str, rule: str, who: set[str], where: tuple[str, ...]
) -> None:
    finding = ts.check(stolen(readers=readers, fault=fault)).findings[0]
    assert (finding.rule, roles(finding), marks(stolen, finding)) == (rule, who, where)
