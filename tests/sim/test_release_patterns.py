"""A thread that has released at a place and stores there once more hands that over again (H3)."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.kernels.evidence import at, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import check
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")
Scope = Literal["cta", "gpu"]


@kernel(warps=2)
def told_twice(
    k: Builder, *, first: Literal["relaxed", "release"] = "release", lane: int = 0, read: int = 0,
    space: Literal["shared", "global"] = "global", sem: Literal["relaxed", "acquire"] = "acquire",
) -> None:  # fmt: skip
    """Warp 1 waits for the second of two stores to a flag."""
    data, value = k.shared("data", u32, (2,)), k.var("value", 0, dtype=u32)
    here = k.shared("here", u32, (1,))
    flag = k.tensor("flag", u32, (1,)) if space == "global" else here
    if space == "shared":
        with k.one_thread():
            k.mem.store(here[0], 0)
        k.sync_threads()
    with k.role("tells", 0):
        with k.if_(k.lane_id.eq(0)):
            k.mem.store(data[0], 7)
            k.mem.store(flag[0], 1, sem=first, scope="gpu")
            k.mem.store(data[1], 8)
        with k.if_(k.lane_id.eq(lane)):
            k.mem.store(flag[0], 2, sem="relaxed", scope="gpu")
    with k.role("waits", 1), k.if_(k.lane_id.eq(0)):
        with k.while_(value < 2):
            k.mem.load(value, flag[0], sem=sem, scope="gpu")
        k.mem.load(value, data[read])


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("space", ["shared", "global"])
def test_a_later_store_of_the_thread_hands_over_what_it_has_released(
    space: Literal["shared", "global"], strict: Strict
) -> None:
    assert check(told_twice.build(space=space), strict=strict).verdict == "proved"


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize(
    ("changed", "store"),
    [
        ({"first": "relaxed"}, "k.mem.store(data[0]"),
        ({"read": 1}, "k.mem.store(data[1]"),
        ({"sem": "relaxed"}, "k.mem.store(data[0]"),
        ({"lane": 1}, "k.mem.store(data[0]"),
    ],
)
def test_nothing_else_is_handed_over(
    changed: dict[str, str | int], store: str, strict: Strict
) -> None:
    """What no release precedes, or one of another lane; and nobody learns by a relaxed load."""
    report = check(told_twice.build(**changed), strict=strict)
    races = [{line for _, line in sites(f)} for f in report.findings if f.rule == "race"]
    assert {at(told_twice, store), at(told_twice, "k.mem.load(value, data[read]")} in races


@kernel(warps=1)
def to_another_cta(k: Builder, *, first: Scope = "gpu", second: Scope = "gpu") -> None:
    k.launch(grid=2, cooperative=True)
    data, flag = k.tensor("data", u32, (1,)), k.tensor("flag", u32, (1,))
    value = k.var("value", 0, dtype=u32)
    with k.if_(k.lane_id.eq(0)):
        with k.if_(k.cta_x.eq(0)):
            k.mem.store(data[0], 7)
            k.mem.store(flag[0], 1, sem="release", scope=first)
            k.mem.store(flag[0], 2, sem="relaxed", scope=second)
        with k.else_():
            with k.while_(value < 2):
                k.mem.load(value, flag[0], sem="acquire", scope="gpu")
            k.mem.load(value, data[0])


def test_both_stores_have_the_reader_in_their_scope() -> None:
    assert check(to_another_cta.build()).verdict == "proved"
    for narrow in ({"first": "cta"}, {"second": "cta"}):
        report = check(to_another_cta.build(**narrow))
        races = [{line for _, line in sites(f)} for f in report.findings if f.rule == "race"]
        loads = "k.mem.load(value, data[0]"
        assert {at(to_another_cta, "k.mem.store(data[0]"), at(to_another_cta, loads)} in races


@kernel(warps=2)
def both_lanes(k: Builder, *, released: int = 0, stored: int = 2) -> None:
    data, flag = k.shared("data", u32, (1,)), k.tensor("flag", u32, (1,))
    value = k.var("value", 0, dtype=u32)
    with k.role("tells", 0):
        with k.if_(k.lane_id.eq(released), sync=False):
            k.mem.store(data[0], 7)
            k.mem.store(flag[0], 1, sem="release", scope="gpu")
        with k.if_(k.lane_id < stored, sync=False):
            k.mem.store(flag[0], 2, sem="relaxed", scope="gpu")
    with k.role("waits", 1), k.if_(k.lane_id.eq(0)):
        with k.while_(value < 2):
            k.mem.load(value, flag[0], sem="acquire", scope="gpu")
        k.mem.load(value, data[0])


@pytest.mark.parametrize(("released", "stored"), [(0, 1), (0, 2), (1, 2)])
def test_of_lanes_that_store_at_one_place_any_may_stay(released: int, stored: int) -> None:
    """One lane has released there before; what a reader finds may be another one's (H3)."""
    report = check(both_lanes.build(released=released, stored=stored))
    data = {at(both_lanes, "k.mem.store(data[0]"), at(both_lanes, "k.mem.load(value, data")}
    assert (data in [{line for _, line in sites(f)} for f in report.findings]) == (stored == 2)
    assert (report.verdict == "proved") == (stored == 1)
