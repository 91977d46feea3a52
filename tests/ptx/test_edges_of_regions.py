"""What lanes may do where data leads them, and what has to be known to be done, wherever it is.

A word of shared memory may be loaded there: such a kernel is proved. Of its twin that does there
what others see, or what lanes do together, nothing is: the branch or the guard has to be known.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import program
from tests.ptx.test_perhaps import NEXT, SETUP, TWO
from tilesim import checker
from tilesim.checker import Report
from tilesim.ptx.launch import Pointer

LOAD = "ld.shared.u32 %r7, [%r12];"
#: what is done instead, by what it is
OTHERS = {
    "lanes load together": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r7}, [%r12];",
    "lanes store together": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r12], {%r4};",
    "lanes exchange": "shfl.sync.bfly.b32 %r7, %r4, 1, 31, -1;",
    "lanes vote": "vote.sync.ballot.b32 %r7, %p3, -1;",
    "warps wait": "bar.sync 0;",
    "an arrival": "mbarrier.arrive.shared::cta.b64 _, [%r1+2048];",
    "a release": "st.release.gpu.global.u32 [%rd6], 1;",
    "a strong load": "ld.volatile.global.u32 %r7, [%rd6];",
    "a strong store": "st.volatile.global.u32 [%rd6], 1;",
    "a fence": "fence.acq_rel.gpu;",
    "another CTA": "st.shared::cluster.u32 [%r12], 1;",
    "another proxy": "cp.async.bulk.prefetch.L2.global [%rd6], 16;",
    "other devices": "multimem.ld_reduce.weak.global.add.u32 %r7, [%rd6];",
    "chance": "activemask.b32 %r13;",
}
#: where it is done, and where everything is tried
PLACES = {
    "under a guard": "@%p2 {}\nsetp.eq.u32 %p5, %r13, 99; @%p5 bar.sync 1;\n",
    "in an arm": "@!%p2 bra ELSE;\nst.global.u32 [%rd6], 1; bra.uni END;\nELSE: {}\nEND:",
    "behind a branch": "@!%p2 bra END;\n@%p3 bra ON;\nst.global.u32 [%rd6], 1;\nON: {}\nEND:",
    "in a turn": "@!%p2 bra END;\nHEAD: {} add.u32 %r10, %r10, 1; setp.lt.u32 %p5, %r10, 2;"
    " @%p5 bra HEAD;\nEND:",
    "before a trap": "@!%p2 bra END;\n{} trap;\nEND:",
    "before an end": "@!%p2 bra END;\n{} ret;\nEND:",
}
EVERYTHING = ("under a guard", "behind a branch")
SOME = ("lanes load together", "lanes exchange", "warps wait", "a release", "chance")
#: threads have words of 16 bytes at %r12, and a barrier is at 2048; %p3 is data as well
START = (
    "mov.u32 %r1, smem; mov.u32 %r10, 0; mov.u32 %r13, 0; setp.eq.u32 %p3, %r5, 99;"
    "shl.b32 %r12, %r4, 4; add.u32 %r12, %r12, %r1; st.shared.v4.u32 [%r12], {0, 0, 0, 0};"
    "setp.eq.u32 %p6, %r4, 0; @%p6 mbarrier.init.shared::cta.b64 [%r1+2048], 64; bar.sync 0;\n"
)


def check(place: str, what: str) -> Report:
    body = f"{SETUP}{START}{PLACES[place].format(what)} mov.u32 %r9, 1;\n"
    values = Pointer("a", 4096), Pointer("b", 1 << 20)
    loaded = program(body, params=TWO, values=values, warps=2)
    return checker.check(loaded, schedules=1, max_schedules=1)


@pytest.mark.parametrize("place", PLACES)
def test_a_load(place: str) -> None:
    assert check(place, LOAD).verdict == "proved"


@pytest.mark.parametrize(
    ("place", "name"),
    [(place, name) for place in PLACES for name in (OTHERS if place in EVERYTHING else SOME)],
)
def test_what_has_to_be_known(place: str, name: str) -> None:
    found = check(place, OTHERS[name])
    assert found.verdict == "bounded"
    assert f" at k.ptx:{NEXT + 1} depends on a value that is not known" in found.reasons[0]
