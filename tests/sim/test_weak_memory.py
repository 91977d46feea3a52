"""What PTX allows beside interleavings is no reason to say `exhausted`.

What a shape may come to is its classical name's answer under PTX's axioms: `fence.acq_rel`, or
releases and acquires, order messages; stores before loads, and what two observers see, only
`fence.sc` does; relaxed loads and later stores, anything between.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

import pytest

from tests.campaign import tally
from tests.sim.weak_campaign import judged
from tests.sim.weak_reference import Reference
from tests.sim.weak_shapes import (
    Fence,
    Get,
    Meet,
    Set,
    Shape,
    Swap,
    Thread,
    chain,
    coherent_reads,
    exchanges,
    independent_reads,
    load_buffering,
    message,
    reads_and_writes,
    store_buffering,
    stores_and_loads,
    translate,
)
from tilesim import Builder, Program, s32
from tilesim.checker import check
from tilesim.ir.program import Strict

_PAIRS = (("x", "y"), ("y", "x"))


def swaps(sem: Literal["relaxed", "acq_rel"], *, adds: bool = False, grid: bool = False) -> Shape:
    """Two threads exchange both words, in opposite order: each may find what the other leaves."""
    pairs = [
        (Swap("r", mine, 1, sem, adds), Swap("s", other, 1, sem, adds)) for mine, other in _PAIRS
    ]
    return Shape(tuple(Thread(pair, (("r", 1),)) for pair in pairs), grid)


SC, AR = Fence("sc"), Fence("acq_rel")

#: what one fence, or one order, more makes right
RIGHT = {
    "SB sc": store_buffering(SC),
    "SB sc, grid": store_buffering(SC, grid=True),
    "SB by exchanges, sc": exchanges(SC),
    "IRIW sc": independent_reads(SC),
    "LB acquire, release": load_buffering(acquires=True, releases=True),
    "LB acq_rel": load_buffering(AR),
    "LB by exchanges, acq_rel": swaps("acq_rel"),
    "MP release, acquire": message(releases=True, acquires=True),
    "MP acq_rel": message(releases=False, acquires=False, fence=AR),
    "CoRR": coherent_reads(),
    "ISA2 acq_rel": chain(AR),
    "S acq_rel": stores_and_loads(AR),
    "R sc": reads_and_writes(SC),
}
#: what no interleaving comes to, and PTX allows
WEAK = {
    "SB": store_buffering(),
    "SB acq_rel": store_buffering(AR),
    "SB acq_rel, grid": store_buffering(AR, grid=True),
    "SB release, acquire": store_buffering(strong=True),
    "SB sc of one side": Shape((store_buffering(SC).threads[0], store_buffering(AR).threads[1])),
    "SB sc, narrow": store_buffering(Fence("sc", "cta"), grid=True),
    "SB by exchanges, acq_rel": exchanges(AR),
    "IRIW release, acquire": independent_reads(strong=True),
    "IRIW acq_rel": independent_reads(AR),
    "LB": load_buffering(),
    "LB by exchanges": swaps("relaxed"),
    "LB acquire": load_buffering(acquires=True),
    "LB release": load_buffering(releases=True),
    "MP release": message(releases=True, acquires=False),
    "MP acquire": message(releases=False, acquires=True),
    "ISA2": chain(),
    "S": stores_and_loads(),
    "R acq_rel": reads_and_writes(AR),
}


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_fences_order_is_exhausted(name: str, strict: Strict) -> None:
    report = check(translate(RIGHT[name]), strict=strict)
    assert (report.verdict, report.findings) == ("exhausted", ())


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize("name", WEAK)
def test_what_no_interleaving_shows_is_not_exhausted(name: str, strict: Strict) -> None:
    report = check(translate(WEAK[name]), strict=strict, schedules=2)
    assert report.verdict == "bounded"
    assert any(reason.startswith("weak memory: ") for reason in report.reasons)


@pytest.mark.parametrize("name", [*RIGHT, *WEAK])
def test_the_axioms_say_the_same(name: str) -> None:
    """By all candidate executions: those of PTX's memory model, which others have no part in."""
    shape = RIGHT.get(name) or WEAK[name]
    assert Reference(shape).wrong() == (name in WEAK)


def test_what_comes_behind_a_fence_is_not_before_another_one() -> None:
    """The reader's fence comes before the writer's, but its store to data need not."""
    writer = Thread((Set("y"), SC, Get("r", "y")), (("r", 1),))
    reader = Thread((Get("r", "x"), SC, Get("s", "y")), (("r", 0), ("s", 0)))
    shape = Shape((writer, reader))
    assert Reference(shape).wrong()
    report = check(translate(shape))
    assert report.verdict == "failed"
    assert report.rules == {"race"}


def test_random_shapes_agree_with_the_axioms() -> None:
    found = tally(judged, range(24))
    assert not found.wrong
    assert found.said["exhausted, right"] > 4
    assert found.said["bounded, wrong"] > 4


def test_the_reason_names_both_accesses_and_their_lines() -> None:
    *_, reason = check(translate(store_buffering()), schedules=0).reasons
    assert reason.startswith("weak memory: ld at ")
    assert " may find what was there before st at " in reason
    assert reason.count("weak_shapes.py:") == 2


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_tickets_of_two_counters(strict: Strict) -> None:
    """Relaxed draws in opposite order: each first one may find what the other's second leaves."""
    right, wrong = swaps("acq_rel", adds=True, grid=True), swaps("relaxed", adds=True, grid=True)
    assert (Reference(right).wrong(), Reference(wrong).wrong()) == (False, True)
    assert check(translate(right), strict=strict).verdict == "proved"
    assert check(translate(wrong), strict=strict, schedules=2).verdict == "bounded"


def draw_and_flag(*, releases: bool) -> Program:
    """A CTA draws and then sets a flag; another one waits for that before it draws: it is last."""
    k = Builder("draw_and_flag", warps=1)
    k.launch(grid=2, cooperative=True)
    counter, flag = k.tensor("counter", s32, (1,)), k.tensor("flag", s32, (1,))
    data = k.tensor("data", s32, (1,))
    mine, seen = k.var("mine", 0), k.var("seen", 0)
    with k.if_(k.cta_x.eq(0)), k.one_thread():
        k.mem.atomic(counter[0], "add", 1, result=mine, sem="relaxed", scope="gpu")
        k.mem.store(flag[0], 1, sem="release" if releases else "relaxed", scope="gpu")
        with k.if_(mine.eq(1)):
            k.mem.store(data[0], 0)
    with k.if_(k.cta_x.eq(1)), k.one_thread():
        with k.while_(seen < 1):
            k.mem.load(seen, flag[0], sem="acquire" if releases else "relaxed", scope="gpu")
        k.mem.atomic(counter[0], "add", 1, result=mine, sem="relaxed", scope="gpu")
        with k.if_(mine.eq(0)):
            k.mem.store(data[0], 1)
    return k.finish()


def test_a_relaxed_flag_does_not_order_draws() -> None:
    """The first CTA's store need not come after its draw, which may find the second one's."""
    assert check(draw_and_flag(releases=True)).verdict == "proved"
    report = check(draw_and_flag(releases=False), schedules=2)
    assert report.verdict == "bounded"
    assert "whether a relaxed draw from counter finds a later one" in report.reasons[0]


def two_barriers(form: Literal["SB", "IRIW"], fence: str) -> Program:
    """The same with arrivals on two mbarriers and looks at them."""
    k = Builder("two_barriers", warps=2 if form == "SB" else 4)
    a, b = k.mbarriers("a"), k.mbarriers("b")
    data = k.shared("data", s32, (1,))
    with k.one_thread():
        k.mbarrier.init(a, 1)
        k.mbarrier.init(b, 1)
    k.sync_threads()
    if form == "IRIW":
        for warp, mine in enumerate((a, b)):
            with k.role(f"T{warp}", warp), k.one_thread(warp):
                k.mbarrier.arrive(mine)
    first = 0 if form == "SB" else 2
    for warp, (one, two) in enumerate(((a, b), (b, a)), first):
        seen, then = k.var(f"seen{warp}", 1), k.var(f"then{warp}", 0)
        with k.role(f"T{warp}", warp), k.one_thread(warp):
            if form == "SB":
                k.mbarrier.arrive(one)
            else:
                k.mbarrier.test_wait(seen, one, 0)
            if fence:
                k.fence.memory("sc" if fence == "sc" else "acq_rel")
            k.mbarrier.test_wait(then, two, 0)
            with k.if_(seen.eq(1) & then.eq(0)):
                k.mem.store(data[0], warp)
    return k.finish()


@pytest.mark.parametrize("form", ["SB", "IRIW"])
def test_looks_at_two_mbarriers(form: Literal["SB", "IRIW"]) -> None:
    """Arrivals release and looks acquire: both may answer that the phase is not over."""
    for fence in ("", "acq_rel"):
        report = check(two_barriers(form, fence), schedules=2)
        assert report.verdict == "bounded"
        assert any("mbarrier.test_wait" in r for r in report.reasons if "weak memory" in r)
    assert check(two_barriers(form, "sc")).verdict == "exhausted"


# ------------------------------------------------------------------ lanes of one warp


def by_lanes(shape: Shape, *meets: int) -> Shape:
    """The threads as lanes of one warp; ``meets``: after how many of its steps each meets them."""
    threads = [
        replace(thread, steps=(*thread.steps[:n], Meet(), *thread.steps[n:]))
        for thread, n in zip(shape.threads, meets, strict=bool(meets))
    ]
    return replace(shape, threads=tuple(threads) or shape.threads, lanes=True)


@pytest.mark.parametrize("strict", ["practice", "ptx"])
@pytest.mark.parametrize(
    ("shape", "meets"),
    [
        pytest.param(store_buffering(), (1, 1), id="SB"),
        pytest.param(store_buffering(AR), (2, 2), id="SB acq_rel"),
        pytest.param(exchanges(AR), (2, 2), id="SB by exchanges"),
        pytest.param(load_buffering(), (1, 1), id="LB"),
        pytest.param(message(releases=True, acquires=False), (2, 0), id="MP release"),
        pytest.param(independent_reads(AR), (1, 1, 0, 0), id="IRIW acq_rel"),
    ],
)
def test_lanes_of_one_warp_are_threads(
    shape: Shape, meets: tuple[int, ...], strict: Strict
) -> None:
    """They have no more order than warps, unless a bar.warp.sync stands between."""
    assert Reference(by_lanes(shape)).wrong()
    wrong = check(translate(by_lanes(shape)), strict=strict, schedules=4)
    assert wrong.verdict in ("bounded", "failed")
    right = check(translate(by_lanes(shape, *meets)), strict=strict)
    assert right.verdict in ("proved", "exhausted"), right.reasons


def test_random_shapes_of_lanes_agree_with_the_axioms() -> None:
    found = tally(partial(judged, kind="lanes"), range(24))
    assert not found.wrong
    assert found.count("bounded", "wrong") + found.count("failed", "wrong") > 4
    assert found.count("proved", "right") + found.count("exhausted", "right") > 1


def told_by_a_lane(*, ordered: bool, relayed: bool) -> Program:
    """Lane 1 waits for lane 0's flag, or for what a third thread sets behind it, and arrives if it
    finds lane 0's word."""
    k = Builder("told_by_a_lane", warps=3)
    word, first, then = (k.tensor(name, s32, (1,)) for name in ("word", "first", "then"))
    found = k.mbarriers("found")
    seen, value = k.var("seen", 0), k.var("value", 0)
    with k.one_thread():
        k.mbarrier.init(found, 1)
    k.sync_threads()
    with k.role("lanes", 0):
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mem.store(word[0], 1, sem="relaxed", scope="gpu")
            k.mem.store(first[0], 1, sem="release" if ordered else "relaxed", scope="gpu")
        with k.if_(k.lane_id.eq(1), sync=False):
            with k.while_(seen < 1):
                flag = then if relayed else first
                k.mem.load(seen, flag[0], sem="acquire" if ordered else "relaxed", scope="gpu")
            k.mem.load(value, word[0], sem="relaxed", scope="gpu")
            with k.if_(value.eq(1), sync=False):
                k.mbarrier.arrive(found)
    with k.role("relay", 1), k.one_thread(1):
        with k.while_(seen < 1):
            k.mem.load(seen, first[0], sem="acquire" if ordered else "relaxed", scope="gpu")
        k.mem.store(then[0], 1, sem="release" if ordered else "relaxed", scope="gpu")
    with k.role("reader", 2):
        k.mbarrier.wait(found, 0)
    return k.finish()


@pytest.mark.parametrize("relayed", [False, True])
def test_a_lane_that_has_seen_another_ones_flag_need_not_find_its_word(relayed: bool) -> None:
    assert check(told_by_a_lane(ordered=True, relayed=relayed)).verdict == "proved"
    report = check(told_by_a_lane(ordered=False, relayed=relayed), schedules=2, budget=5000)
    assert report.verdict == "bounded"
    assert any("of lanes of one warp" in reason for reason in report.reasons)
