"""Loops that poll an mbarrier and sleep longer and longer in between, as libcu++ writes them."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, report
from tilesim.checker import Report
from tilesim.sim.schedulers import sampling

#: warp 0 stores and arrives; warp 1 waits and loads
AROUND = """
mov.u32 %r1, smem; mov.u32 %r2, 32; mov.u32 %r4, %tid.x; setp.eq.u32 %p0, %r4, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2;
bar.sync 0;
mul.lo.u32 %r3, %r4, 4; add.u32 %r3, %r3, %r1;
setp.lt.u32 %p2, %r4, 32; @!%p2 bra W;
st.shared.u32 [%r3+64], 1;
{arrive}
ret;
W: mov.u32 %r6, 0; mov.u64 %rd1, %globaltimer;
{loop}
DONE: ld.shared.u32 %r7, [%r3-64];
{behind}
"""
ARRIVES = "mbarrier.arrive.shared::cta.b64 _, [%r1];"
POLL = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0; selp.b32 %r8, 1, 0, %p1;"
SLEEP = (
    "sub.s64 %rd3, %rd2, %rd1; setp.lt.s64 %p4, %rd3, 4000000; @%p4 bra SHORT; bra.uni LONG;\n"
    "SHORT: cvt.u32.u64 %r9, %rd3; nanosleep.u32 %r9; bra.uni {to};\n"
    "LONG: nanosleep.u32 1000000;\n"
)
#: a poll, and in the loop the wait before the poll
LATE = f"""
{POLL}
setp.ne.s32 %p3, %r8, 0; @%p3 bra DONE;
AGAIN: setp.lt.s32 %p4, %r6, 16; @%p4 bra MORE; bra.uni TIMER;
MORE: add.s32 %r6, %r6, 1; bra.uni LAST;
TIMER: mov.u64 %rd2, %globaltimer;
{SLEEP.format(to="LAST")}
LAST: {POLL.replace("%p1", "%p6").replace("%r8", "%r10")}
setp.eq.s32 %p7, %r10, 0; @%p7 bra AGAIN;
"""
#: a poll at the head of the loop, to which several ways go back
EARLY = f"""
bra.uni AGAIN;
MORE: add.s32 %r6, %r6, 1;
AGAIN: {POLL}
setp.eq.s32 %p3, %r8, 0; @%p3 bra FAILED; bra.uni DONE;
FAILED: setp.lt.s32 %p5, %r6, 16; @%p5 bra MORE;
mov.u64 %rd2, %globaltimer;
{SLEEP.format(to="AGAIN")}
bra.uni AGAIN;
"""


def check(loop: str, *, arrive: str = ARRIVES, behind: str = "") -> Report:
    body = AROUND.format(loop=loop.strip(), arrive=arrive, behind=behind)
    return report(body.strip(), warps=2)


@pytest.mark.parametrize("loop", [LATE, EARLY], ids=["poll last", "poll first"])
def test_it_is_a_wait(loop: str) -> None:
    assert check(loop).verdict == "proved"
    assert check(loop, arrive="").rules == {"deadlock"}


@pytest.mark.parametrize("loop", [LATE, EARLY], ids=["poll last", "poll first"])
def test_who_uses_how_often_it_polled_decides_by_that(loop: str) -> None:
    counted = check(loop, behind="setp.gt.s32 %p3, %r6, 3; @%p3 bar.sync 1, 32;")
    assert counted.verdict == "bounded"


@pytest.mark.parametrize(
    ("loop", "what"),
    [
        (LATE.replace("nanosleep.u32 1000000;", "bra.uni DONE;"), "goes on when time is up"),
        (EARLY.replace("nanosleep.u32 1000000;", "bra.uni DONE;"), "goes on when time is up"),
        (LATE.replace("nanosleep.u32 1000000;", "bra.uni AGAIN;"), "never polls again"),
        (LATE.replace("nanosleep.u32 1000000;", "st.shared.u32 [%r3+512], 1;"), "stores"),
    ],
)
def test_a_loop_that_does_more_is_none(
    loop: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_POINTS", 5_000)
    assert check(loop).verdict in ("bounded", "failed"), what


#: what a loop does that gives up, by what it looks at: how often it has polled, or the time
GIVES_UP = {
    "turns": "add.s32 %r6, %r6, 1; setp.lt.s32 %p4, %r6, 1000; @%p4 bra ON;",
    "time": "mov.u64 %rd2, %globaltimer; sub.s64 %rd3, %rd2, %rd1; setp.lt.s64 %p4, %rd3, 40000; "
    "@%p4 bra ON;",
}
#: a poll before the loop, which tests at its end; a loop that a jump in the middle leaves, with
#: the trap in it or behind it; and one that jumps over what it does when the poll has failed
TRAPS = [
    f"{POLL} @%p1 bra DONE;\nAGAIN: {{asks}}\n{{ends}}\nON: {POLL} @!%p1 bra AGAIN;\n",
    f"AGAIN: {POLL} @%p1 bra DONE;\n{{asks}}\n{{ends}}\nON: bra.uni AGAIN;\n",
    f"AGAIN: {POLL} @%p1 bra DONE;\n{{asks}}\nbra.uni END;\nON: bra.uni AGAIN;\nEND: {{ends}}\n",
    f"AGAIN: {POLL} @%p1 bra TEST;\n{{asks}}\n{{ends}}\nON: nanosleep.u32 20;\n"
    "TEST: setp.eq.s32 %p6, %r8, 0; @%p6 bra AGAIN;\n",
]
#: what comes behind, up to the trap, is not looked at
PRINTS = "st.shared.u32 [%r3-64], 7; setp.eq.u32 %p5, %r4, 40; @%p5 trap; st.global.u32 [%rd1], 1;"


@pytest.mark.parametrize("ends", ["trap;", f"{PRINTS} trap;"], ids=["traps", "tells"])
@pytest.mark.parametrize("asks", GIVES_UP.values(), ids=GIVES_UP)
@pytest.mark.parametrize(
    "loop", TRAPS, ids=["poll last", "poll first", "trap outside", "jumps over"]
)
def test_a_wait_that_traps_when_it_takes_too_long(loop: str, asks: str, ends: str) -> None:
    right = loop.format(asks=asks, ends=ends)
    found = check(right)
    assert found.verdict == "proved", found
    assert "no-timeout" in {one.name for one in found.leanings}
    assert "if no wait takes so long that the kernel traps" in found.covers
    wrong = check(right, arrive="")
    assert wrong.rules == {"deadlock"}
    (waiting,) = wrong.findings[0].participants
    text = AROUND.format(loop=right.strip(), arrive="", behind="").strip().splitlines()
    assert "try_wait" in text[waiting.loc.line - FIRST]


@pytest.mark.parametrize(
    ("loop", "what"),
    [
        (TRAPS[0].format(asks=GIVES_UP["turns"], ends="bra.uni DONE;"), "goes on without"),
        (TRAPS[0].format(asks=GIVES_UP["turns"], ends="exit;"), "ends"),
        (TRAPS[0].format(asks=GIVES_UP["turns"], ends="@%p4 trap;"), "does not trap then"),
        (TRAPS[0].format(asks="st.shared.u32 [%r3], 1;" + GIVES_UP["turns"], ends="trap;"),
         "stores in each turn"),
        (TRAPS[0].format(asks="setp.ne.u32 %p4, %r4, 33; @%p4 bra ON;", ends="trap;"),
         "one lane always traps"),
    ],
)  # fmt: skip
def test_other_ways_to_give_up(loop: str, what: str) -> None:
    found = check(loop)
    assert "no-timeout" not in {one.name for one in found.leanings}, what
    assert found.verdict != "proved" or what == "does not trap then", what


@pytest.mark.parametrize("asks", GIVES_UP.values(), ids=GIVES_UP)
def test_a_race_behind_such_a_wait(asks: str) -> None:
    """The wait is for an arrival that comes before the store."""
    right = TRAPS[0].format(asks=asks, ends="trap;")
    body = AROUND.format(loop=right.strip(), arrive=ARRIVES, behind="")
    store = "st.shared.u32 [%r3+64], 1;"
    early = body.replace(store, "").replace(ARRIVES, f"{ARRIVES} {store}")
    assert report(early.strip(), warps=2).rules == {"race"}


#: who has tried so often, or for so long, goes on as if the phase were over
GOES_ON = {
    "turns": TRAPS[1].format(asks=GIVES_UP["turns"].replace("1000", "300"), ends="bra.uni DONE;"),
    "time": TRAPS[1].format(asks=GIVES_UP["time"], ends="bra.uni DONE;"),
}


@pytest.mark.parametrize("loop", GOES_ON.values(), ids=GOES_ON)
def test_who_gives_up_and_goes_on_comes_too_early(loop: str) -> None:
    """Some schedule lets nobody else move before the last try."""
    found = check(loop)
    assert found.verdict == "failed"
    assert found.rules == {"race"}
    body = AROUND.format(loop=loop.strip(), arrive=ARRIVES, behind="").strip().splitlines()
    lines = {body[p.loc.line - FIRST] for p in found.findings[0].participants}
    assert lines == {"st.shared.u32 [%r3+64], 1;", "DONE: ld.shared.u32 %r7, [%r3-64];"}
    assert found.witness is not None


def test_schedules_by_chance_that_never_end_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poller that looks at the time first, and once it is late at nothing else any more."""
    monkeypatch.setattr(sampling, "_POINTS", 5_000)
    late = check(LATE.replace("nanosleep.u32 1000000;", "bra.uni AGAIN;"))
    assert late.verdict == "bounded"
    assert late.stats.schedules > 10


@pytest.mark.parametrize(("counts", "proved"), [("%r11", True), ("%r6", False)])
def test_turns_are_counted_in_the_register_that_was_the_parity(counts: str, proved: bool) -> None:
    """As nvcc does, for which both are zero: what the poll before the loop uses is not what the
    loop leaves. A poll that takes its parity from where the turns are counted is none of that."""
    early, late = (POLL.replace(", 0;", f", {parity};") for parity in ("%r6", counts))
    loop = (
        f"mov.u32 %r11, 0;\n{early} @%p1 bra DONE;\nAGAIN: setp.lt.u32 %p4, %r6, 1000000;\n"
        f"@%p4 bra ON;\ntrap;\nON: {late} add.u32 %r6, %r6, 1; @!%p1 bra AGAIN;\n"
    )
    found = check(loop)
    assert (found.verdict == "proved") is proved, found
    if proved:
        assert "no-timeout" in {one.name for one in found.leanings}
        assert check(loop, arrive="").rules == {"deadlock"}
    else:
        assert found.rules == {"race"}


#: loops that look for so long, and then go on: by what they count, and how
GOES_ON = {
    "up": f"AGAIN: {POLL} @%p1 bra DONE;\nadd.u32 %r6, %r6, 4; setp.lt.u32 %p4, %r6, 4000000;\n"
    "@%p4 bra AGAIN;",
    "down": f"mov.u32 %r6, 100000;\nAGAIN: {POLL} @%p1 bra DONE;\nadd.u32 %r6, %r6, -1;\n"
    "setp.ne.u32 %p4, %r6, 0; @%p4 bra AGAIN;",
    "with the answer": f"AGAIN: {POLL} setp.gt.u32 %p4, %r6, 999999; or.pred %p5, %p1, %p4;\n"
    "@%p5 bra DONE;\nadd.u32 %r6, %r6, 1; nanosleep.u32 20; bra.uni AGAIN;",
}


@pytest.mark.parametrize("loop", GOES_ON.values(), ids=GOES_ON)
def test_who_looks_a_million_times_may_have_seen_nothing(loop: str) -> None:
    """Two turns that come late are as good as a million that begin early."""
    wrong = check(loop)
    assert wrong.rules == {"race"}, wrong
    text = AROUND.format(loop=loop.strip(), arrive=ARRIVES, behind="").strip().splitlines()
    named = {text[p.loc.line - FIRST].split(" [")[0] for p in wrong.findings[0].participants}
    assert named == {"st.shared.u32", "DONE: ld.shared.u32 %r7,"}


@pytest.mark.parametrize("name", ["up", "down"])
def test_who_gives_up_and_ends_does_no_harm(name: str) -> None:
    assert check(f"{GOES_ON[name]}\nret;").verdict == "bounded"


def test_a_count_that_somebody_uses_is_as_large_as_it_is() -> None:
    """Who has looked 4,000,000 times knows that nobody has arrived, and does not load."""
    asks = "setp.ge.u32 %p3, %r6, 4000000; @%p3 ret;"
    loop = GOES_ON["up"].replace("bra DONE", "bra SEEN")
    assert check(f"{loop}\nSEEN: {asks}").verdict == "bounded"
    assert check(f"{loop}\nSEEN: {asks.replace('4000000', '4000001')}").verdict == "bounded"


#: each turn adds a word to a sum and goes on to the next one, or looks at the last one again
ADDS = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r3, %r3, %r1;\n"
    "st.shared.u32 [%r3], 1; bar.sync 0; setp.ge.u32 %p1, %r2, 32; @%p1 ret;\n"
    "mov.u32 %r4, 0; mov.u32 %r5, %r1; mov.u32 %r6, 0; mov.u32 %r8, 0;\n"
    "ON: ld.volatile.shared.u32 %r7, [%r5]; SUM; NEXT; add.u32 %r4, %r4, 1;\n"
    "setp.lt.u32 %p2, %r4, 40; @%p2 bra ON;\n"
    "setp.eq.u32 %p3, %r6, WANTED; @%p3 ret;\nbar.sync 1, 64;"
)
SUMS = ("add.u32 %r6, %r6, %r7", "mov.u32 %r6, %r7")
NEXT = ("add.u32 %r5, %r5, 4", "add.u32 %r8, %r8, 4")


def test_words_that_only_later_turns_look_at_are_looked_at() -> None:
    """Another warp stores, in no order, the thirtieth of forty words, or one behind them."""
    body = ADDS.partition("mov.u32 %r4, 0;")
    loop = body[2].replace("SUM", SUMS[0]).replace("NEXT", NEXT[0]).replace("WANTED", "40")
    head = body[0].replace("@%p1 ret;", "@%p1 bra STORES;")
    stores = "STORES: setp.ne.u32 %p4, %r2, 40; @%p4 ret;\nst.shared.u32 [%r1+WORD], 5;"
    text = f"{head}mov.u32 %r4, 0;{loop}\nret;\n{stores}"
    assert "race" in report(text.replace("WORD", "120"), warps=2).rules
    assert report(text.replace("WORD", "200"), warps=2).verdict == "proved"


@pytest.mark.parametrize("traps", ["@%p4 trap;", "@!%p4 bra MORE;\ntrap;\nMORE:"])
def test_who_traps_for_what_a_sum_came_to_has_not_lost_patience(traps: str) -> None:
    """A loop adds words until it has 40, and traps after so many: that is no wait."""
    adds, again = "setp.lt.u32 %p2, %r4, 40; @%p2 bra ON;", "setp.lt.u32 %p2, %r6, 40;"
    body = ADDS.replace("SUM", SUMS[0]).replace("NEXT", NEXT[0]).replace("WANTED", "40")
    for limit, verdict in ((20, "unsupported"), (50, "proved")):
        asks = f"setp.gt.u32 %p4, %r4, {limit};\n{traps} {again} @%p2 bra ON;"
        found = report(body.replace(adds, asks), warps=2)
        assert (found.verdict, "no-timeout" in found.covers) == (verdict, False)
        assert not any(one.name == "no-timeout" for one in found.leanings)
