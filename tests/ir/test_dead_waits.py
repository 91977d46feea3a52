"""Waits on a barrier that nobody arrives on: rejected if they are executed for certain, else the
run decides."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, InvalidProgram, kernel
from tilesim.checker import check


@kernel(warps=2)
def dead(k: Builder, *, place: str = "top", trips: int = 0, alias: bool = False) -> None:
    """A wait at some place in the program, for a phase that nobody ends."""
    b = k.mbarriers("b", offset=0)
    again = k.mbarriers("again", offset=0) if alias else None
    n = k.scalar("n", trips)
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
        if again is not None:
            k.mbarrier.arrive(again)
    k.sync_threads()
    regions: dict[str, AbstractContextManager[Any]] = {
        "top": nullcontext(),
        "exit": nullcontext(),
        "loop": nullcontext() if place != "loop" else k.loop(trips),
        "down": nullcontext() if place != "down" else k.loop(0, trips, -1),
        "parameter": nullcontext() if place != "parameter" else k.loop(n),
        "branch": nullcontext() if place != "branch" else k.if_(k.warp_id < trips),
        "while": nullcontext() if place != "while" else k.while_(k.warp_id < trips),
        "elected": nullcontext() if place != "elected" else k.elected(),
    }
    with k.role("waiter", 1):
        if place == "exit":
            k.exit()
        with regions[place]:
            k.mbarrier.wait(b, 0)


@pytest.mark.parametrize(
    ("place", "trips"), [("top", 0), ("loop", 3), ("down", -2), ("elected", 0), ("parameter", 1)]
)
def test_wait_that_is_executed_for_certain_is_rejected(place: str, trips: int) -> None:
    with pytest.raises(InvalidProgram) as caught:
        check(dead.build(place=place, trips=trips))
    (problem,) = caught.value.diagnostics
    assert problem.rule == "deadlock"
    assert problem.loc.line == at(dead, "k.mbarrier.wait(b, 0)")
    assert "no instruction of the kernel arrives on b" in problem.message


@pytest.mark.parametrize(
    ("place", "trips"),
    [
        ("loop", 0), ("down", 2), ("parameter", 0), ("branch", 0), ("branch", 1), ("while", 0),
        ("exit", 0),
    ],
)  # fmt: skip
def test_wait_that_is_never_executed_is_none(place: str, trips: int) -> None:
    report = check(dead.build(place=place, trips=trips))
    assert report.verdict == "proved", report
    assert report.findings == ()


@pytest.mark.parametrize(("place", "trips"), [("branch", 2), ("while", 2)])
def test_wait_that_is_executed_after_all_is_found(place: str, trips: int) -> None:
    report = check(dead.build(place=place, trips=trips))
    assert report.verdict == "failed"
    assert sites(found(report, "deadlock")) == {("waiter", at(dead, "k.mbarrier.wait(b, 0)"))}


def test_arrival_by_another_name_ends_the_wait() -> None:
    assert check(dead.build(alias=True)).verdict == "proved"
