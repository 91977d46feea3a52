"""Which lanes store and which load, data decides: words of their own, or of a lane beside.

Each lane may be one that stores or one that loads, and nothing orders those of one warp or of two.
So a kernel in which lanes keep to words of their own is proved; of its twin in which they load a
neighbour's nothing is, and the reason names the race that data may allow.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import HEAD
from tests.ptx.test_edges_of_data import REGISTERS, START
from tilesim.checker import Report, check
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: %s is an own word of shared memory, %o the one that is looked at; %d and %r5 are data
BEGINS = (
    "st.shared.u32 [%s], 0; bar.sync 0; xor.b32 %o, %r2, BESIDE; shl.b32 %o, %o, 4;"
    " add.u32 %o, %o, %r1; add.u32 %o, %o, 64; mov.u32 %i, 0;\n"
)
TURNS = "add.u32 %i, %i, 1; setp.lt.u32 %e, %i, %r5; @%e bra T;"
KERNELS = {
    "two arms": "@%d bra A; st.shared.u32 [%s], 1; bra.uni B; A: ld.shared.u32 %w, [%o]; B:",
    "two arms, the load first": (
        "@%d bra A; ld.shared.u32 %w, [%o]; bra.uni B; A: st.shared.u32 [%s], 1; B:"
    ),
    "an arm, and behind it": "@%d bra B; st.shared.u32 [%s], 1; B: ld.shared.u32 %w, [%o];",
    "an arm, and in front of it": "ld.shared.u32 %w, [%o]; @%d bra B; st.shared.u32 [%s], 1; B:",
    "guards": "@%d st.shared.u32 [%s], 1; @!%d ld.shared.u32 %w, [%o];",
    "several ways": (
        "@%d bra A; setp.eq.u32 %e, %r5, 9; @%e bra B; st.shared.u32 [%s], 1; bra.uni B;"
        " A: ld.shared.u32 %w, [%o]; B:"
    ),
    "turns, and behind them": f"T: st.shared.u32 [%s], %i; {TURNS} ld.shared.u32 %w, [%o];",
    "in front of turns": f"ld.shared.u32 %w, [%o]; T: st.shared.u32 [%s], %i; {TURNS}",
    "turns of loads": f"T: ld.shared.u32 %w, [%o]; {TURNS} st.shared.u32 [%s], 1;",
    "turns of both": (
        f"T: @%d bra A; st.shared.u32 [%s], 1; bra.uni B; A: ld.shared.u32 %w, [%o]; B: {TURNS}"
    ),
    "lanes that end": "@!%d bra C; st.shared.u32 [%s], 1; ret; C: ld.shared.u32 %w, [%o];",
    "lanes that end, and load": (
        "@!%d bra C; ld.shared.u32 %w, [%o]; ret; C: st.shared.u32 [%s], 1;"
    ),
    "a reduction": (
        "@%d bra A; red.relaxed.cta.shared.add.u32 [%s], 1; bra.uni B;"
        " A: ld.shared.u32 %w, [%o]; B:"
    ),
    "stores of both": "@%d bra A; st.shared.u32 [%s], 1; bra.uni B; A: st.shared.u32 [%o], 2; B:",
}
#: bits in which the number of the thread differs that has the word: a lane, a warp
BESIDE = (1, 32)


def run(kernel: str, beside: int, strict: Strict) -> Report:
    body = BEGINS.replace("BESIDE", str(beside)) + kernel + " mov.u32 %v, 1;\nret;\n}\n"
    head = HEAD.format(params=".param .u64 a, .param .u64 b") + REGISTERS + ".reg .b32 %o;\n"
    module = read(head + START.format(threads=64) + body, "k.ptx")
    values = Pointer("a", 4096), Pointer("b", 1 << 16)
    launch = Launch("k", (1, 1, 1), (64, 1, 1), (1, 1, 1), 4096, params=values)
    return check(lower(module, module.entries[0], launch), strict=strict, schedules=8)


@pytest.mark.parametrize("name", KERNELS)
def test_words_of_their_own_and_of_a_neighbour(name: str) -> None:
    assert run(KERNELS[name], 0, "ptx").verdict == "proved"
    for beside in BESIDE:
        found = run(KERNELS[name], beside, "practice")
        if "turns" in name and found.findings:  # the first turn is made in any case
            assert found.rules == {"race"}
        else:
            assert found.verdict == "bounded"
            assert found.reasons[0].startswith("race at k.ptx:")
            assert "if data allows it" in found.reasons[0]
