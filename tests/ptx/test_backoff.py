"""Loops that poll an mbarrier and sleep longer and longer in between, as libcu++ writes them."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import report
from tilesim.checker import Report

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
def test_a_loop_that_does_more_is_none(loop: str, what: str) -> None:
    assert check(loop).verdict in ("bounded", "failed"), what
