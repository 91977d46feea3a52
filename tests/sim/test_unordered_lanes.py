"""Lanes of one warp that nothing orders are agents of their own: each wrong program beside the twin
in which a `bar.warp.sync` (or a wait for all of them) stands between."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel
from tilesim.arith.types import s32, u32
from tilesim.checker import check
from tilesim.checker.witness import replay
from tilesim.ir.declarations import Mbarriers, SharedTensor
from tilesim.ir.expr import Var
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@pytest.fixture(params=LEVELS)
def strict(request: pytest.FixtureRequest) -> Strict:
    level: Strict = request.param
    return level


def begun(k: Builder, *counts: tuple[Mbarriers, int]) -> SharedTensor:
    """A word that is 0, and barriers with their counts, known to all threads."""
    word = k.shared("word", u32, (2,))
    with k.one_thread():
        k.mem.store(word[0], 0)
        k.mem.store(word[1], 0)
        for barrier, count in counts:
            k.mbarrier.init(barrier, count)
    k.sync_threads()
    return word


# ---------------------------------------------------------------- one instruction, then a look


@kernel(warps=1)
def counts_then_looks(
    k: Builder, *, by: str = "relaxed", met: bool = False, turns: int = 1
) -> None:
    """Each lane adds, looks, and arrives if all have added: but it may look before they have."""
    all_in, seen = k.mbarriers("all_in"), k.var("seen", 0)
    word = begun(k, (all_in, 32))
    k.mem.atomic(word[0], "add", 1, scope="cta")
    if met:
        k.sync_warp()
    if by == "result":
        k.mem.atomic(word[0], "or", 0, result=seen, scope="cta")
    else:
        k.mem.load(seen, word[0], sem="acquire" if by == "acquire" else "relaxed")
    with k.if_(seen.eq(32)):
        k.mbarrier.arrive(all_in)
    k.mbarrier.wait(all_in, 0)


@pytest.mark.parametrize("by", ["relaxed", "acquire", "result"])
def test_a_lane_may_look_before_the_others_have_added(by: str, strict: Strict) -> None:
    wrong = counts_then_looks.build(by=by)
    report = check(wrong, strict=strict)
    finding = found(report, "deadlock")
    assert ("warp 0", at(counts_then_looks, "k.mbarrier.wait(all_in")) in sites(finding)
    assert report.witness is not None
    assert finding in replay(wrong, report.witness).findings
    right = check(counts_then_looks.build(by=by, met=True), strict=strict)
    # nothing follows what several lanes find by atomics
    assert right.verdict == ("bounded" if by == "result" else "proved")


@kernel(warps=2)
def some_are_in(
    k: Builder, *, goal: int = 16, by: str = "red", met: bool = False, where: str = "global"
) -> None:
    """Each lane writes and releases; the reader goes on when some of them have."""
    words = k.shared("words", s32, (32,))
    inside = where == "shared"
    count = k.shared("count", s32, (1,)) if inside else k.tensor("count", s32, (1,))
    state, value = k.var("state", 0), k.var("value", 0)
    if inside:
        with k.one_thread():
            k.mem.store(count[0], 0)
        k.sync_threads()
    with k.role("writer", 0):
        k.mem.store(words[k.lane_id], 1)
        if met:
            k.sync_warp()
        match by:
            case "red":
                k.mem.atomic(count[0], "add", 1, sem="release", scope="gpu")
            case "exch":
                k.mem.atomic(count[0], "exch", 1, sem="release", scope="gpu")
            case _:
                k.mem.store(count[0], 1, sem="release", scope="gpu")
    with k.role("reader", 1):
        with k.while_(state < goal):
            k.mem.load(state, count[0], sem="acquire", scope="gpu")
        k.mem.load(value, words[k.lane_id])


@pytest.mark.parametrize("where", ["global", "shared"])
@pytest.mark.parametrize(
    ("by", "goal"), [("red", 1), ("red", 16), ("red", 31), ("store", 1), ("exch", 1)]
)
def test_which_lanes_are_in_is_up_to_the_schedule(
    by: str, goal: int, where: str, strict: Strict
) -> None:
    report = check(some_are_in.build(goal=goal, by=by, where=where), strict=strict)
    race = found(report, "race")
    assert sites(race) == {
        ("writer", at(some_are_in, "k.mem.store(words")),
        ("reader", at(some_are_in, "k.mem.load(value, words")),
    }
    # what one of them releases after a meeting covers what all had written
    right = some_are_in.build(goal=goal, by=by, where=where, met=True)
    assert check(right, strict=strict).verdict == "proved"


@pytest.mark.parametrize("where", ["global", "shared"])
def test_all_lanes_are_in(where: str, strict: Strict) -> None:
    assert check(some_are_in.build(goal=32, where=where), strict=strict).verdict == "proved"


@kernel(warps=2)
def asks_again(k: Builder, *, rounds: int = 2) -> None:
    """The reader waits for 16 lanes, then for all, unless it has seen as many before."""
    words, count = k.shared("words", s32, (32,)), k.tensor("count", s32, (1,))
    seen, value = k.var("seen", 0), k.var("value", 0)
    with k.role("writer", 0):
        k.mem.store(words[k.lane_id], 1)
        k.mem.atomic(count[0], "add", 1, sem="release", scope="gpu")
    with k.role("reader", 1):
        with k.loop(rounds) as turn, k.while_(seen < 16 * (turn + 1)):
            k.mem.load(seen, count[0], sem="acquire", scope="gpu")
        k.mem.load(value, words[k.lane_id])


def test_what_is_seen_of_some_lanes_is_as_little_as_can_be(strict: Strict) -> None:
    assert check(asks_again.build(), strict=strict).verdict == "proved"
    race = found(check(asks_again.build(rounds=1), strict=strict), "race")
    assert ("reader", at(asks_again, "k.mem.load(value, words")) in sites(race)


@kernel(warps=1)
def meets_by_counting(k: Builder, *, goal: int = 32) -> None:
    """Lanes that wait until all have released what they wrote have met."""
    words, count = k.shared("words", s32, (32,)), k.tensor("count", s32, (1,))
    state, value = k.var("state", 0), k.var("value", 0)
    k.mem.store(words[k.lane_id], 1)
    k.mem.atomic(count[0], "add", 1, sem="release", scope="gpu")
    with k.while_(state < goal):
        k.mem.load(state, count[0], sem="acquire", scope="gpu")
    k.mem.load(value, words[k.lane_id ^ 1])


def test_lanes_that_wait_for_all_of_them_have_met(strict: Strict) -> None:
    assert check(meets_by_counting.build(), strict=strict).verdict == "proved"
    race = found(check(meets_by_counting.build(goal=31), strict=strict), "race")
    assert {line for _, line in sites(race)} == {
        at(meets_by_counting, "k.mem.store(words"),
        at(meets_by_counting, "k.mem.load(value, words"),
    }


# ---------------------------------------------------------------- two regions


@kernel(warps=1)
def first_in_the_text(
    k: Builder, *, met: bool = False, nested: bool = False, exited: bool = False, sync: bool = False
) -> None:
    """Lane 1 looks at the flag in front of where lane 0 raises it. ``nested``, ``exited``:
    not all lanes of the warp come there, so nothing meets behind a region."""
    data, seen, value = k.shared("data", u32, (1,)), k.var("seen", 0), k.var("value", 0)
    word = begun(k)
    if exited:
        with k.if_(k.lane_id > 7, sync=False):
            k.exit()
    with k.if_(k.lane_id < (8 if nested else 32), sync=False):
        with k.if_(k.lane_id.eq(1), sync=sync):
            k.mem.load(seen, word[0], sem="relaxed")
            with k.if_(seen.ne(0), sync=False):
                k.mem.load(value, data[0])
        if met:
            k.sync_warp(0xFF if nested or exited else 0xFFFFFFFF)
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mem.store(data[0], 1)
            k.mem.store(word[0], 1, sem="release")


@pytest.mark.parametrize(
    "place", [{}, {"nested": True}, {"exited": True}, {"nested": True, "sync": True}], ids=str
)
def test_a_region_sees_what_a_later_one_of_another_lane_sets(
    place: dict[str, bool], strict: Strict
) -> None:
    race = found(check(first_in_the_text.build(**place), strict=strict), "race")
    assert {line for _, line in sites(race)} == {
        at(first_in_the_text, "k.mem.load(value"), at(first_in_the_text, "k.mem.store(data")
    }  # fmt: skip
    assert check(first_in_the_text.build(met=True, **place), strict=strict).verdict == "proved"


@kernel(warps=2)
def two_lanes(k: Builder, *, how: str = "draw", met: bool = False) -> None:
    """Lane 1, then lane 0 of a warp: who of them is first at the word decides who arrives."""
    done, ticket = k.mbarriers("done"), k.var("ticket", 9)
    word = begun(k, (done, 1))
    with k.role("both", 0):
        with k.if_(k.lane_id.eq(1), sync=False):
            _touches(k, word, how, 5, ticket)
            if how not in ("store", "volatile"):
                with k.if_(ticket.eq(0), sync=False):
                    k.mbarrier.arrive(done)
        if met:
            k.sync_warp()
        with k.if_(k.lane_id.eq(0), sync=False):
            _touches(k, word, how, 6, ticket)
        k.sync_warp()
        if how in ("store", "volatile"):
            with k.if_(k.lane_id.eq(0)):
                k.mem.load(ticket, word[0])
                with k.if_(ticket.eq(6), sync=False):
                    k.mbarrier.arrive(done)
    with k.one_thread(1):
        k.mbarrier.wait(done, 0)


def _touches(k: Builder, word: SharedTensor, how: str, value: int, ticket: Var) -> None:
    match how:
        case "draw":
            k.mem.atomic(word[0], "add", 1, result=ticket, scope="cta")
        case "exch":
            k.mem.atomic(word[0], "exch", value, result=ticket, scope="cta")
        case "max":
            k.mem.atomic(word[0], "max", value, result=ticket, scope="cta")
        case "cas":
            k.mem.atomic(word[0], "cas", value, compare=0, result=ticket, scope="cta")
        case "volatile":
            k.mem.store(word[0], value, sem="relaxed", scope="sys")
        case _:
            k.mem.store(word[0], value, sem="relaxed")


@pytest.mark.parametrize("how", ["draw", "exch", "max", "cas", "store", "volatile"])
def test_which_lane_is_first_at_a_word(how: str, strict: Strict) -> None:
    wrong = two_lanes.build(how=how)
    report = check(wrong, strict=strict)
    finding = found(report, "deadlock")
    assert at(two_lanes, "k.mbarrier.wait(done, 0)") in {line for _, line in sites(finding)}
    assert report.witness is not None
    assert finding in replay(wrong, report.witness).findings
    right = check(two_lanes.build(how=how, met=True), strict=strict)
    assert right.verdict in ("proved", "exhausted")


@kernel(warps=1)
def asks(k: Builder, *, how: str = "test_wait", met: bool = False, late: bool = False) -> None:
    """Lane 1 asks whether lane 0 has arrived; ``late``: in front of that arrival."""
    one, two, answer = k.mbarriers("one"), k.mbarriers("two"), k.var("answer", 0)
    begun(k, (one, 1), (two, 1))

    def look() -> None:
        with k.if_(k.lane_id.eq(1), sync=False):
            ask = k.mbarrier.test_wait if how == "test_wait" else k.mbarrier.try_wait
            ask(answer, one, 0)
            with k.if_(answer.eq(0) if late else answer.ne(0), sync=False):
                k.mbarrier.arrive(two)

    if late:
        look()
    with k.if_(k.lane_id.eq(0), sync=False):
        k.mbarrier.arrive(one)
    if met:
        k.sync_warp()
    if not late:
        look()
    k.sync_warp()
    k.mbarrier.wait(two, 0)


@pytest.mark.parametrize("late", [False, True])
def test_a_look_at_what_another_lane_arrives_at(late: bool, strict: Strict) -> None:
    report = check(asks.build(late=late), strict=strict)
    finding = found(report, "deadlock")
    assert at(asks, "k.mbarrier.wait(two, 0)") in {line for _, line in sites(finding)}
    if not late:
        assert check(asks.build(met=True), strict=strict).verdict == "proved"


# ---------------------------------------------------------------- what others see of the order


@kernel(warps=2)
def shown(k: Builder, *, by: str = "flag", met: bool = False) -> None:
    """Lane 0 raises a flag, then lane 1 says so, by another flag or an arrival: to others, it may
    be said before it is so."""
    said, done, seen = k.mbarriers("said"), k.mbarriers("done"), k.var("seen", 0)
    word = begun(k, (said, 1), (done, 1))
    with k.role("teller", 0):
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mem.store(word[0], 1, sem="relaxed")
        if met:
            k.sync_warp()
        with k.if_(k.lane_id.eq(1), sync=False):
            if by == "flag":
                k.mem.store(word[1], 1, sem="release")
            else:
                k.mbarrier.arrive(said)
    with k.role("reader", 1):
        if by == "flag":
            with k.while_(seen.eq(0)):
                k.mem.load(seen, word[1], sem="acquire")
        else:
            k.mbarrier.wait(said, 0)
        k.mem.load(seen, word[0], sem="relaxed")
        with k.if_(seen.eq(1), sync=False), k.if_(k.lane_id.eq(0), sync=False):
            k.mbarrier.arrive(done)
        k.sync_warp()
        k.mbarrier.wait(done, 0)


@pytest.mark.parametrize("by", ["flag", "arrival"])
def test_others_may_see_lanes_in_another_order(by: str, strict: Strict) -> None:
    report = check(shown.build(by=by), strict=strict)
    finding = found(report, "deadlock")
    assert ("reader", at(shown, "k.mbarrier.wait(done, 0)")) in sites(finding)
    assert check(shown.build(by=by, met=True), strict=strict).verdict == "proved"


@kernel(warps=3)
def between(k: Builder, *, met: bool = False) -> None:
    """Two lanes of a warp that have nothing to do with each other: what the third warp does before
    lane 0 goes on, and the second one after lane 1 has arrived, is in no order."""
    first, second, done = k.mbarriers("first"), k.mbarriers("second"), k.mbarriers("done")
    seen = k.var("seen", 0)
    word = begun(k, (first, 1), (second, 1), (done, 1))
    with k.role("lanes", 0):
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mbarrier.wait(first, 0)
        if met:
            k.sync_warp()
        with k.if_(k.lane_id.eq(1), sync=False):
            k.mbarrier.arrive(second)
    with k.role("reads", 1), k.if_(k.lane_id.eq(0)):
        k.mbarrier.wait(second, 0)
        k.mem.load(seen, word[0], sem="relaxed")
        with k.if_(seen.eq(1), sync=False):
            k.mbarrier.arrive(done)
        k.mbarrier.wait(done, 0)
    with k.role("writes", 2), k.if_(k.lane_id.eq(0)):
        k.mem.store(word[0], 1, sem="relaxed")
        k.mbarrier.arrive(first)


def test_two_lanes_order_nothing_of_other_warps(strict: Strict) -> None:
    report = check(between.build(), strict=strict)
    finding = found(report, "deadlock")
    assert ("reads", at(between, "k.mbarrier.wait(done, 0)")) in sites(finding)
    assert check(between.build(met=True), strict=strict).verdict == "proved"


@kernel(warps=2)
def all_ask(k: Builder) -> None:
    """All lanes of a warp ask, and need not be told the same: then they do not come together."""
    there, back, answer = k.mbarriers("there"), k.mbarriers("back"), k.var("answer", 0)
    begun(k, (there, 1), (back, 1))
    with k.role("asks", 0):
        k.mbarrier.test_wait(answer, there, 0)
        with k.if_(answer.ne(0), sync=False):
            k.mbarrier.arrive(back)
        k.mbarrier.wait(back, 0)
    with k.one_thread(1):
        k.mbarrier.arrive(there)


def test_lanes_that_ask_need_not_be_told_the_same(strict: Strict) -> None:
    """If all are told yes there are too many arrivals, if all are told no there are none; if one is
    told so, all is well."""
    report = check(all_ask.build(), strict=strict)
    assert report.verdict == "failed"


@kernel(warps=1)
def in_a_grid(k: Builder, *, ctas: int = 1, turns: int = 1, met: bool = False) -> None:
    """Each CTA counts what its lanes have added so far, in many turns: a lane may look early."""
    k.launch(grid=ctas)
    all_in, seen = k.mbarriers("all_in"), k.var("seen", 0)
    word = begun(k, (all_in, 32))
    with k.loop(turns) as turn:
        k.mem.atomic(word[0], "add", 1, scope="cta")
        if met:
            k.sync_warp()
        k.mem.load(seen, word[0], sem="relaxed")
        with k.if_(seen.eq(32 * (turn + 1))):
            k.mbarrier.arrive(all_in)
        k.mbarrier.wait(all_in, turn & 1)
        k.sync_warp()


@pytest.mark.parametrize("size", [{"ctas": 2}, {"ctas": 600}, {"turns": 200}], ids=str)
def test_what_is_left_out_is_no_excuse(size: dict[str, int]) -> None:
    """Nor CTAs that are like others, turns that repeat, numbers of turns that are not known."""
    report = check(in_a_grid.build(**size))
    assert report.verdict in ("bounded", "failed")
    if report.verdict == "bounded":
        assert any("lanes of one warp" in why for why in report.reasons)
    assert check(in_a_grid.build(met=True, **size)).verdict == "proved"


def test_nor_a_number_of_turns_that_is_not_known() -> None:
    wrong = check(in_a_grid, for_all={"turns": "1..:1"})
    assert wrong.verdict != "proved"
    assert wrong.for_all is None or not wrong.for_all.proved


@kernel(warps=2)
def all_store_the_same(k: Builder) -> None:
    """Both warps store one number by one instruction (H23), also if lanes of one go their own way;
    what these find is in no order, and nothing comes of it."""
    box, seen = k.shared("box", u32, (1,)), k.var("seen", 0)
    word = begun(k)
    k.mem.store(box[0], 7)
    with k.role("looks", 0):
        k.mem.atomic(word[0], "add", 1, scope="cta")
        k.mem.load(seen, word[0], sem="relaxed")
        with k.if_(seen > 40):
            k.mem.store(box[0], 9)
    k.sync_threads()


def test_lanes_that_go_their_own_way_store_what_the_others_do() -> None:
    report = check(all_store_the_same.build())
    assert (report.verdict, report.findings) == ("bounded", ())
    assert any("lanes of one warp" in why for why in report.reasons)


@kernel(warps=1)
def last_ticket(k: Builder, *, last: int = 31, rounds: int = 1, met: bool = False) -> None:
    """Each lane draws; the one with the last ticket arrives, whichever it is."""
    drawn, ticket = k.mbarriers("drawn"), k.var("ticket", 0)
    word = begun(k, (drawn, 1))
    with k.loop(rounds) as turn:
        k.mem.atomic(word[0], "add", 1, result=ticket, scope="cta")
        with k.if_(ticket.eq(32 * turn + last), sync=False):
            k.mbarrier.arrive(drawn)
        k.mbarrier.wait(drawn, turn & 1)
        if met:
            k.sync_warp()


def test_the_lane_with_the_last_ticket_arrives_alone(strict: Strict) -> None:
    wrong = check(last_ticket.build(last=32), strict=strict)
    waits = at(last_ticket, "k.mbarrier.wait(drawn")
    assert ("warp 0", waits) in sites(found(wrong, "deadlock"))
    # nothing follows what several lanes find by atomics
    right = check(last_ticket.build(), strict=strict, schedules=8)
    assert (right.verdict, right.findings) == ("bounded", ())
    assert "the result of atom.add on word" in right.reasons[0]


def test_what_is_not_modelled_of_lanes_is_said_in_a_whole_sentence() -> None:
    """Unless all meet in each round, another lane parts from those that another one has left."""
    (finding,) = check(last_ticket.build(rounds=3)).findings
    assert finding.rule == "unsupported"
    assert "lanes of a warp that diverge again and again" in finding.message
    assert "are not modelled. Synchronise all lanes between (bar.warp.sync -1" in finding.message
    assert check(last_ticket.build(rounds=3, met=True), schedules=8).verdict == "bounded"
