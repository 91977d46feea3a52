"""Lanes of one warp that nothing orders, in PTX: wrong as they stand, right with a `bar.warp.sync`
at MEET (of eight lanes at MEET8), or for another GOAL."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tilesim.checker import Report
from tilesim.ir.program import Strict

#: %r1 is shared memory, with words that are 0 at 0 and 4, mbarriers for COUNT and one at 2048 and
#: 2056; %r3 the lane, %r4 a word of its own; %p1 and %p2 are lanes 0 and 1, %p3 the second warp
START = """\
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 31; shl.b32 %r4, %r2, 2;
add.u32 %r4, %r4, %r1; add.u32 %r4, %r4, 256; setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r3, 1;
setp.ge.u32 %p3, %r2, 32; setp.ne.u32 %p4, %r2, 0; mov.u32 %r5, 9; mov.u32 %r6, 0;
@%p4 bra BEGUN;
st.shared.u32 [%r1], 0; st.shared.u32 [%r1+4], 0;
mbarrier.init.shared.b64 [%r1+2048], COUNT; mbarrier.init.shared.b64 [%r1+2056], 1;
BEGUN: bar.sync 0;
"""
BEGIN = START.count("\n")
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r1+2048];\n"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p5, [%r1+2048], 0;\n@!%p5 bra W;\n"
BACK = "V: mbarrier.try_wait.parity.shared.b64 %p5, [%r1+2056], 0;\n@!%p5 bra V;\n"
FLAG = "st.shared.u32 [%r1+256], 1;\nst.release.cta.shared.u32 [%r1], 1;\n"
LOOK = "ld.relaxed.cta.shared.u32 %r5, [%r1];\nsetp.ne.u32 %p6, %r5, 1;\n"
RELEASE = "red.release.cta.shared.add.u32 [%r1], 1;\n"
POLL = "P: ld.acquire.cta.shared.u32 %r5, [%r1];\nsetp.lt.u32 %p6, %r5, GOAL;\n@%p6 bra P;\n"


def run(body: str, *, warps: int, count: int, strict: Strict) -> Report:
    return report(START.replace("COUNT", str(count)) + body, warps=warps, strict=strict)


def both(
    body: str, strict: Strict, *, warps: int = 1, count: int = 1, goals: tuple[int, int] = (0, 0)
) -> tuple[Report, Report]:  # fmt: skip
    """What is said of a program as it stands, and of its right twin."""
    wrong = body.replace("MEET8", "").replace("MEET", "").replace("GOAL", str(goals[0]))
    right = body.replace("MEET8", "bar.warp.sync 0xff;").replace("MEET", "bar.warp.sync -1;")
    first = run(wrong, warps=warps, count=count, strict=strict)
    second = run(right.replace("GOAL", str(goals[1])), warps=warps, count=count, strict=strict)
    return first, second


def place(body: str, text: str) -> int:
    """The line of a body in which a text stands, counted as `lines` does."""
    return BEGIN + next(n for n, line in enumerate(body.splitlines()) if text in line)


@pytest.fixture(params=["practice", "ptx"])
def strict(request: pytest.FixtureRequest) -> Strict:
    level: Strict = request.param
    return level


# ---------------------------------------------------------------------- deadlocks

#: a look at what all lanes add to
ADDED = "red.shared.add.u32 [%r1], 1;\nMEET\nLOOK\nsetp.eq.u32 %p6, %r5, 32;\n@%p6 " + ARRIVE + WAIT
#: lane 1, then lane 0 at a word; lane 1 arrives if it was the first
TWO = (
    "@%p2 FIRST\nMEET\n@%p1 SECOND\n@!%p2 bra E;\nsetp.eq.u32 %p6, %r5, 0;\n@%p6 "
    + ARRIVE
    + ("E: bar.warp.sync -1;\n" + WAIT)
)
#: lane 1, then lane 0 store
LAST = "@%p2 STORE [%r1], 5;\nMEET\n@%p1 STORE [%r1], 6;\nbar.warp.sync -1;\n" + (
    "ld.shared.u32 %r5, [%r1];\nsetp.eq.u32 %p6, %r5, 6;\n@%p6 " + ARRIVE + WAIT
)
ASKED = "mbarrier.test_wait.parity.shared.b64 %p5, [%r1+2048], 0;\n"
DEADLOCKS: dict[str, tuple[str, int, int, str]] = {
    **{
        f"add, {op}": (ADDED.replace("LOOK", op), 1, 32, "@!%p5 bra W")
        for op in (
            "ld.relaxed.cta.shared.u32 %r5, [%r1];", "ld.acquire.cta.shared.u32 %r5, [%r1];",
            "ld.volatile.shared.u32 %r5, [%r1];",
        )
    },
    **{
        name: (TWO.replace("FIRST", f"atom.shared.{one}").replace("SECOND", f"atom.shared.{two}"),
               1, 1, "@!%p5 bra W")
        for name, one, two in (
            ("tickets", "add.u32 %r5, [%r1], 1;", "add.u32 %r6, [%r1], 1;"),
            ("exch", "exch.b32 %r5, [%r1], 1;", "exch.b32 %r6, [%r1], 2;"),
            ("cas", "cas.b32 %r5, [%r1], 0, 1;", "cas.b32 %r6, [%r1], 0, 2;"),
            ("red and atom", "or.b32 %r5, [%r1], 1;", "add.u32 %r6, [%r1], 2;"),
        )
    },
    **{
        store: (LAST.replace("STORE", store), 1, 32, "@!%p5 bra W")
        for store in ("st.relaxed.cta.shared.u32", "st.volatile.shared.u32",
                      "st.release.cta.shared.u32")
    },
    "asks after an arrival": (
        "@%p1 " + ARRIVE + "MEET\n@!%p2 bra A;\n" + ASKED
        + "@%p5 mbarrier.arrive.shared.b64 _, [%r1+2056];\nA: bar.warp.sync -1;\n" + BACK,
        1, 1, "@!%p5 bra V",
    ),
    "a flag, then an arrival": (
        "@%p3 bra B;\n@%p1 st.relaxed.cta.shared.u32 [%r1], 1;\nMEET\n@%p2 "
        + ARRIVE + "bra E;\nB:\n"
        + WAIT + LOOK + "@%p6 bra V;\n@%p1 mbarrier.arrive.shared.b64 _, [%r1+2056];\n"
        + BACK + "E:\n",
        2, 1, "@!%p5 bra V",
    ),
    "two flags": (
        "@%p3 bra B;\n@%p1 st.relaxed.cta.shared.u32 [%r1], 1;\nMEET\n"
        "@%p2 st.release.cta.shared.u32 [%r1+4], 1;\nbra E;\nB:\n"
        + POLL.replace("[%r1]", "[%r1+4]").replace("GOAL", "1") + LOOK
        + "@%p6 bra V;\n@%p1 mbarrier.arrive.shared.b64 _, [%r1+2056];\n" + BACK + "E:\n",
        2, 1, "@!%p5 bra V",
    ),
    "in a loop": (
        "mov.u32 %r9, 0;\nL: @%p1 red.shared.add.u32 [%r1], 1;\nMEET\n"
        "@%p2 ld.relaxed.cta.shared.u32 %r5, [%r1];\nMEET\nadd.u32 %r9, %r9, 1;\n"
        "setp.eq.u32 %p6, %r5, %r9;\n@!%p2 bra C;\n@%p6 " + ARRIVE
        + "C: setp.lt.u32 %p7, %r9, 3;\n@%p7 bra L;\nbar.warp.sync -1;\n" + WAIT,
        1, 3, "@!%p5 bra W",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEADLOCKS)
def test_an_order_of_lanes_in_which_nobody_arrives(name: str, strict: Strict) -> None:
    body, warps, count, waits = DEADLOCKS[name]
    wrong, right = both(body, strict, warps=warps, count=count)
    assert wrong.rules == {"deadlock"}, (wrong.verdict, wrong.reasons)
    assert place(body, waits) in [*lines(wrong), *(n + 1 for n in lines(wrong))]
    assert right.verdict in ("proved", "exhausted"), right.reasons


# ---------------------------------------------------------------------- races

REGIONS = "@!%p2 bra A;\n" + LOOK + "@%p6 bra A;\nld.shared.u32 %r6, [%r1+256];\nA:\n"
READ = "ld.shared.u32 %r6, [%r4+-128];\nE:\n"
OWN = "st.shared.u32 [%r4], 7;\n"
RACES: dict[str, tuple[str, int, tuple[str, str], tuple[int, int]]] = {
    "first in the text": (
        REGIONS + "MEET\n@!%p1 bra B;\n" + FLAG + "B:\n", 1, ("st.shared", "ld.shared"), (0, 0),
    ),
    "nested": (
        "setp.ge.u32 %p7, %r3, 8;\n@%p7 bra B;\n" + REGIONS + "MEET8\n@!%p1 bra B;\n"
        + FLAG + "B:\n",
        1, ("st.shared", "ld.shared"), (0, 0),
    ),
    "others have exited": (
        "setp.ge.u32 %p7, %r3, 8;\n@%p7 exit;\n" + REGIONS + "MEET8\n@!%p1 bra B;\n"
        + FLAG + "B:\n",
        1, ("st.shared", "ld.shared"), (0, 0),
    ),
    **{
        f"{goal} of 32": (
            "@%p3 bra B;\n" + OWN + "MEET\n" + RELEASE + "bra E;\nB:\n"
            + POLL + READ, 2, ("st.shared", "ld.shared"), (goal, goal),
        )
        for goal in (1, 16, 31)
    },
    "16 or all": (
        "@%p3 bra B;\n" + OWN + RELEASE + "bra E;\nB:\n" + POLL + READ,
        2, ("st.shared", "ld.shared"), (16, 32),
    ),
    "a store of all lanes": (
        "@%p3 bra B;\n" + OWN + "MEET\nst.release.cta.shared.u32 [%r1], 1;\nbra E;\nB:\n"
        + POLL + READ,
        2, ("st.shared", "ld.shared"), (1, 1),
    ),
    "an exchange by all lanes": (
        "@%p3 bra B;\n" + OWN + "MEET\natom.release.cta.shared.exch.b32 _, [%r1], 1;\nbra E;\nB:\n"
        + POLL + READ, 2, ("st.shared", "ld.shared"), (1, 1),
    ),
    "among themselves": (
        OWN + "red.release.cta.shared.add.u32 [%r1], 1;\n" + POLL
        + "xor.b32 %r7, %r4, 4;\nld.shared.u32 %r6, [%r7];\n",
        1, ("st.shared", "ld.shared"), (31, 32),
    ),
    "an increment of two lanes": (
        "@%p3 bra B;\n" + OWN + "@%p1 red.release.cta.shared.add.u32 [%r1], 1;\nMEET\n"
        "@%p2 " + RELEASE + "bra E;\nB:\n@!%p1 bra E;\n" + POLL
        + "ld.shared.u32 %r6, [%r1+256];\nE:\n", 2, ("st.shared", "ld.shared"), (1, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_an_order_of_lanes_in_which_they_race(name: str, strict: Strict) -> None:
    body, warps, texts, goals = RACES[name]
    wrong, right = both(body, strict, warps=warps, goals=goals)
    assert wrong.rules == {"race"}, (wrong.verdict, wrong.reasons)
    assert lines(wrong) == sorted(place(body, text) for text in texts)
    assert right.verdict == "proved", (right.reasons, right.findings)


# ---------------------------------------------------------------------- words beside others

#: warp 1 reads what warp 0 has stored before it counted; OTHER is done to some word before
COUNTED = (
    "@%p3 bra B;\n@!%p1 bra E;\n"
    + OWN
    + "OTHER\nred.release.cta.shared.add.u32 [%r1], 1;\n"
    + ("bra E;\nB: @!%p1 bra E;\n" + POLL + "ld.shared.u32 %r6, [%r1+256];\nE:\n")
)


@pytest.mark.parametrize(
    ("other", "verdicts"),
    [
        ("red.shared.add.u32 [%r1+512], 0;", "proved"),
        ("red.shared.add.u32 [%r1+512], %r2;", "proved"),
        ("atom.shared.add.u32 %r6, [%r1], 0;", "exhausted bounded"),
        ("red.shared.max.u32 [%r1], 1;", "failed bounded"),
        ("st.relaxed.cta.shared.u32 [%r1], 1;", "failed"),
        ("st.shared.u32 [%r1], 0;", "failed"),
    ],
)
def test_a_word_that_counts_beside_others(other: str, verdicts: str, strict: Strict) -> None:
    """A word of data may be added to by any amount; what else is done to the word that counts is
    asked for, or races."""
    body = COUNTED.replace("OTHER", f"st.shared.u32 [%r1+512], 0;\n{other}").replace("GOAL", "1")
    found = run(body, warps=2, count=1, strict=strict)
    assert found.verdict in verdicts.split(), found.reasons
    assert found.rules <= {"race"}
