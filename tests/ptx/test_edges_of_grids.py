"""One CTA of a large grid hangs, while registers hold what is not known, or what data decides.

Clusters are followed by what their registers hold; of some lanes, or on some ways, that is not
known in any of them. It must not keep the one that hangs from being told apart.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import program
from tests.ptx.test_edges_of_lanes import START, SYNC, wait
from tilesim import checker
from tilesim.ptx.launch import Pointer

GRID, ODD = 100, 37
#: %r13: the CTA; %r10 and %r11: 1 in the odd one, and else 0
TELL = f"""\
mov.u32 %r13, %ctaid.x;
setp.eq.u32 %p5, %r13, {ODD};
selp.u32 %r10, 1, 0, %p5;
mov.u32 %r11, %r10;
"""
#: lanes wait for what does not come where %r11 is this
END = f"setp.eq.u32 %p5, %r11, @@;\n@!%p5 bra E;\n{wait(0, 'H')}E: ret;\nW: ret;"
LOADED = "ld.global.u32 %r10, [%rd3];\n"
STORED = "st.shared.u32 [%r4+256], %r10;\n"
PARTS = "setp.gt.u32 %p2, %r10, 3;\n@%p2 bra A;\n"
BODIES: dict[str, str] = {
    "some lanes load": f"@%p4 {LOADED}{STORED}",
    "some lanes load in a branch": f"@!%p4 bra A;\n{LOADED}A: mov.u32 %r9, 1;\n{STORED}",
    "a sum": f"{LOADED}add.u32 %r10, %r10, %r13;\n{STORED}",
    "what some lanes have loaded, of another lane": (
        f"@%p4 {LOADED}shfl.sync.bfly.b32 %r10, %r10, 1, 31, -1;\n{STORED}"
    ),
    "of another lane": (
        f"{LOADED}add.u32 %r10, %r10, %r13;\nshfl.sync.bfly.b32 %r11, %r11, 1, 31, -1;\n{STORED}"
    ),
    "of the lane with 31": "@!%p7 mov.u32 %r11, 0;\nshfl.sync.idx.b32 %r11, %r11, 31, 31, -1;\n",
    "it is unset and set on ways": (
        f"{LOADED}{PARTS}mov.u32 %r11, 0;\nbra.uni B;\nA: add.u32 %r9, %r11, 1;\n"
        "B: mov.u32 %r9, 2;\nselp.u32 %r11, 1, 0, %p5;\n"
    ),
    "each way stores a number": (
        f"{LOADED}{PARTS}mov.u32 %r9, %r13;\nst.shared.u32 [%r4+256], %r9;\nbra.uni B;\n"
        f"A: add.u32 %r9, %r11, 1;\nst.shared.u32 [%r4+256], %r9;\nB: mov.u32 %r9, 2;\n"
    ),
    "a loop of so many turns": (
        f"{LOADED}mov.u32 %r9, 0;\nG: add.u32 %r12, %r9, 1;\nmov.u32 %r9, %r13;\n"
        "add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p2, %r10, 5;\n@%p2 bra G;\n"
        "st.shared.u32 [%r4+256], %r12;\n"
    ),
    "ways in a loop": (
        f"{LOADED}mov.u32 %r9, 0;\nmov.u32 %r14, 0;\nG: add.u32 %r12, %r9, 1;\n"
        "setp.gt.u32 %p2, %r10, %r14;\n@%p2 bra A;\nmov.u32 %r9, %r13;\nA: add.u32 %r14, %r14, 1;\n"
        "setp.lt.u32 %p3, %r14, 3;\n@%p3 bra G;\nst.shared.u32 [%r4+256], %r12;\n"
    ),
    "by lanes that meet": f"@%p6 bra A;\n@%p4 {LOADED}{STORED}A: {SYNC}",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_cta_that_hangs_among_what_is_not_known(name: str) -> None:
    for number in (7, 1):
        text = START + TELL + BODIES[name] + END.replace("@@", str(number))
        made = program(
            text, warps=2, grid=GRID, params=(".param .u64 x",), values=(Pointer("x", 1 << 12),)
        )
        report = checker.check(made, budget=200, schedules=2)
        assert report.verdict == ("failed" if number == 1 else "proved"), report
        assert {p.cta for f in report.findings for p in f.participants} <= {ODD}
        assert report.rules == ({"deadlock"} if number == 1 else set())
