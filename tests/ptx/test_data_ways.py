"""What decides of lanes that go ways which data chooses: a kernel for each, and its wrong twin.

The right one is proved. Of the wrong one some data makes a race, a hang or a result that differs:
it is not, and the reason names the line that needs the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.ptx.test_check import program
from tests.ptx.test_perhaps import NEXT, SETUP, TWO
from tilesim import checker
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Pointer

#: %p3 is data as well; %p4 holds in half of each warp; rows of 128 bytes per thread begin at %rd7,
#: a word that data says is at %rd9
START = (
    "and.b32 %r9, %r5, 4; setp.eq.u32 %p3, %r9, 0; and.b32 %r9, %r4, 31; setp.lt.u32 %p4, %r9, 16;"
    "mul.wide.u32 %rd7, %r4, 128; add.s64 %rd7, %rd5, %rd7; mov.u32 %r7, 0; mov.u32 %r10, 0;"
    "and.b32 %r9, %r5, 63; mul.wide.u32 %rd9, %r9, 4; add.s64 %rd9, %rd5, %rd9;"
    "mov.u32 %r1, smem; mad.lo.u32 %r11, %r4, 4, %r1;\n"
)
FIRST = NEXT + START.count("\n")
#: two turns fit into a row
TURNS = (
    "HEAD: {inside}st.global.u32 [%rd7], 1; add.s64 %rd7, %rd7, 64; add.u32 %r7, %r7, 1;\n"
    "setp.lt.u32 %p5, %r7, 2; @%p5 bra HEAD;\nEND: mov.u32 %r9, 1;\n"
)
#: half of the lanes of a warp find the words of the others at %rd8
HALF = "selp.b64 %rd8, 64, 0, %p4; add.s64 %rd8, %rd6, %rd8; st.global.u32 [%rd6], 1;\n"
#: who stores behind a loop, or ends
STEERS = "setp.eq.u32 %p5, %r7, 77;\n@%p5 bar.sync 1, 32;\n"


@dataclass(frozen=True)
class Pair:
    """A kernel, what of it is written otherwise in its wrong twin, and the line that is named."""

    right: str
    old: str
    new: str
    at: str
    warps: int = 2
    strict: Strict = "practice"
    #: CTAs, which are one cluster
    ctas: int = 1

    @property
    def wrong(self) -> str:
        assert self.old in self.right
        return self.right.replace(self.old, self.new, 1)


def check(body: str, pair: Pair) -> Report:
    values = Pointer("a", 4096), Pointer("b", 1 << 20)
    loaded = program(
        SETUP + START + body, params=TWO, values=values, warps=pair.warps, grid=pair.ctas,
        cluster=pair.ctas,
    )  # fmt: skip
    return checker.check(loaded, schedules=1, max_schedules=1, strict=pair.strict)


LOOPS = {
    # where the way back of a loop is, and which branches leave it
    "behind a branch": Pair(
        "@!%p2 bra END;\n@%p3 bra ON;\nst.global.u32 [%rd6+65536], 1;\nON: mov.u32 %r9, 0;\n"
        + TURNS.format(inside=""), "%r7, 2;", "%r7, 4;", "HEAD",
    ),
    "around a branch": Pair(
        "@!%p2 bra END;\n"
        + TURNS.format(inside="@%p3 bra ON;\nst.global.u32 [%rd6+65536], 1;\nON: "),
        "%r7, 2;", "%r7, 4;", "ON:",
    ),
    "around another one, entered again": Pair(
        "@!%p2 bra END;\nOUTER: mov.u32 %r10, 0;\n"
        "HEAD: st.global.u32 [%rd6+65536], 1; add.u32 %r10, %r10, 1;\n"
        "setp.lt.u32 %p5, %r10, %r5; @%p5 bra HEAD;\nmul.wide.u32 %rd8, %r7, 256;\n"
        "add.s64 %rd8, %rd6, %rd8; st.global.u32 [%rd8], 1; add.u32 %r7, %r7, 1;\n"
        "setp.lt.u32 %p5, %r7, 2; @%p5 bra OUTER;\nEND: mov.u32 %r9, 1;\n",
        "%r7, 256;", "%r7, 128;", "add.s64 %rd8, %rd6",
    ),
    "left at its top": Pair(
        "HEAD: setp.ge.u32 %p5, %r7, %r5;\n@%p5 bra END;\n"
        "st.global.u32 [%rd7], 1; add.s64 %rd7, %rd7, 0; add.u32 %r7, %r7, 1; bra.uni HEAD;\n"
        "END: mov.u32 %r9, 1;\n", "%rd7, 0;", "%rd7, 64;", "st.global.u32 [%rd7]",
    ),
    "that goes on in its middle": Pair(
        "@%p2 bra END;\nHEAD: st.global.u32 [%rd7], 1; add.s64 %rd7, %rd7, 0; @%p3 bra HEAD;\n"
        "setp.lt.u32 %p5, %r5, 3; @%p5 bra HEAD;\nEND: mov.u32 %r9, 1;\n",
        "%rd7, 0;", "%rd7, 64;", "HEAD",
    ),
    "left in its middle": Pair(
        "HEAD: st.global.u32 [%rd7], 1; add.s64 %rd7, %rd7, 0; @%p3 bra END;\n"
        "setp.lt.u32 %p5, %r5, 3; @%p5 bra HEAD;\nEND: mov.u32 %r9, 1;\n",
        "%rd7, 0;", "%rd7, 64;", "HEAD",
    ),
    # half of the lanes go round it for ever, if they come there
    "that data ends for others": Pair(
        "@%p2 bra END;\nsetp.lt.u32 %p4, %r5, 16;\nHEAD: st.global.u32 [%rd6], 1; @%p4 bra LATCH;\n"
        "@!%p3 bra END;\nLATCH: bra.uni HEAD;\nEND: mov.u32 %r9, 1;\n",
        "setp.lt.u32 %p4, %r5, 16;", "", "@%p2 bra END",
    ),
    "with two entries": Pair(
        "@%p2 bra END;\nmov.u32 %r9, 2;\nHEAD: st.global.u32 [%rd6], 1;\n"
        "MID: add.u32 %r7, %r7, 1; setp.lt.u32 %p5, %r7, %r5; @%p5 bra HEAD;\n"
        "END: mov.u32 %r9, 1;\n", "mov.u32 %r9, 2;", "@%p3 bra MID;", "@%p2 bra END",
    ),
    # a lane that enters it in the middle goes round for ever
    "of arithmetic, with two entries": Pair(
        "@!%p2 bra END;\nmov.u32 %r9, 2;\nHEAD: add.u32 %r7, %r7, 1;\n"
        "MID: add.u32 %r7, %r7, 1; setp.ne.u32 %p5, %r7, 4; @%p5 bra HEAD;\n"
        "END: mov.u32 %r9, 1;\n", "mov.u32 %r9, 2;", "@%p3 bra MID;", "@!%p2 bra END",
    ),
    "of arithmetic, without an end": Pair(
        "@!%p2 bra END;\nHEAD: add.u32 %r7, %r7, 1; setp.ne.u32 %p5, %r7, 4; @%p5 bra HEAD;\n"
        "END: mov.u32 %r9, 1;\n", "%r7, 4;", "0, 4;", "HEAD",
    ),
}  # fmt: skip

WAYS = {
    "many that meet": Pair(
        "@!%p2 bra END;\n"
        + "".join(
            f"@%p3 bra N{i};\nst.global.u32 [%rd6+{4096 + 256 * i}], 1;\nN{i}: mov.u32 %r9, {i};\n"
            for i in range(16)
        ) + "st.global.u32 [%rd6], 1;\nEND: mov.u32 %r9, 1;\n",
        "[%rd6], 1;", "[%rd5], 1;", "st.global.u32 [%rd5]",
    ),
    "an end": Pair(
        "@%p2 ret;\nst.global.u32 [%rd6], 1;\n@%p3 ret;\nst.global.u32 [%rd6], 2;\n",
        "[%rd6], 2;", "[%rd5+4], 2;", "st.global.u32 [%rd5+4]",
    ),
    "an end before a barrier": Pair(
        "@%p2 ret;\nst.global.u32 [%rd6], 1;\nmov.u32 %r9, 0;\n", "mov.u32 %r9, 0;", "bar.sync 0;",
        "@%p2 ret",
    ),
    "the end of half of the lanes": Pair(
        f"{HALF}@!%p2 bra ON;\n@%p4 ret;\nst.global.u32 [%rd8], 1;\nON: mov.u32 %r9, 1;\n",
        "@%p4 ret;", "@%p3 ret;", "st.global.u32 [%rd8]",
    ),
    "half of the lanes": Pair(
        f"{HALF}@!%p2 bra END;\n@%p4 bra ELSE;\nst.global.u32 [%rd8], 1; bra.uni END;\n"
        "ELSE: mov.u32 %r9, 0;\nEND: mov.u32 %r9, 1;\n", "@%p4 bra", "@%p3 bra",
        "st.global.u32 [%rd8]",
    ),
    "a table": Pair(
        "ts: .branchtargets A, B; @!%p2 bra END;\nst.global.u32 [%rd6], 1;\nbra.uni A;\n"
        "A: mov.u32 %r9, 0; bra.uni END;\nB: mov.u32 %r9, 2;\nEND: mov.u32 %r9, 1;\n",
        "bra.uni A;", "brx.idx %r7, ts;", "@!%p2 bra END",
    ),
    "what one of them sets": Pair(
        "@!%p2 bra END;\nst.global.u32 [%rd6+4096], 1;\n@%p3 bra END;\nmov.u32 %r10, 0;\n"
        "END: mov.u32 %r9, 1;\ncvt.u64.u32 %rd8, %r10; add.s64 %rd8, %rd6, %rd8;\n"
        "st.global.u32 [%rd8], 1;\n", "%r10, 0;\nEND", "%r10, 128;\nEND", "st.global.u32 [%rd8]",
    ),
    "what one of them sets beside a store": Pair(
        "@!%p2 bra END;\nst.global.u32 [%rd6+4096], 1;\n@%p3 bra END;\n"
        "st.global.u32 [%rd6+8192], 1; mov.u32 %r10, 0;\n"
        "END: mov.u32 %r9, 1;\ncvt.u64.u32 %rd8, %r10; add.s64 %rd8, %rd6, %rd8;\n"
        "st.global.u32 [%rd8], 1;\n", "%r10, 0;\nEND", "%r10, 128;\nEND", "st.global.u32 [%rd8]",
    ),
    "traps": Pair(
        "@%p2 bra ELSE;\nst.global.u32 [%rd6], 1; @%p4 trap; bra.uni END;\n"
        "ELSE: st.global.u32 [%rd6], 2; mov.u32 %r9, 3;\nEND: mov.u32 %r9, 1;\n",
        "mov.u32 %r9, 3;", "@%p4 trap;", "ELSE:",
    ),
    "an arm under a guard": Pair(
        "@!%p2 bra END;\nmov.u32 %r10, 0; @%p4 mov.u32 %r10, 0; st.global.u32 [%rd6+4096], 1;\n"
        "END: mov.u32 %r9, 1;\n" + STEERS, "@%p4 mov.u32 %r10", "@%p4 mov.u32 %r7", "@%p5 bar",
    ),
}  # fmt: skip
PLACES = {
    "of a load": Pair(
        "setp.lt.u32 %p5, %r4, 32;\n@!%p5 st.global.u32 [%rd6], 1;\nbar.sync 0;\n"
        "ld.global.u32 %r7, [%rd9];\n", "bar.sync 0;\n", "", "ld.global.u32 %r7",
    ),
    "that a load finds anything at": Pair(
        "st.global.u32 [%rd6], 1;\nbar.sync 0;\nld.global.u32 %r10, [%rd9];\n" + STEERS,
        "%r10, [%rd9]", "%r7, [%rd9]", "@%p5 bar",
    ),
    "that may be loaded": Pair(
        "st.shared.u32 [%r11], 3; mov.u32 %r7, 0; @%p2 ld.shared.u32 %r9, [%r11];\n" + STEERS,
        "mov.u32 %r7, 0; @%p2 ld.shared.u32 %r9", "mov.u32 %r7, 77; @%p2 ld.shared.u32 %r7",
        "@%p5 bar",
    ),
    "that an atomic finds anything at": Pair(
        "red.global.add.u32 [%rd9], 1;\n" + STEERS, "red.global.add.u32",
        "atom.global.add.u32 %r7,", "atom",
    ),
    "that an atomic may find anything at": Pair(
        "@%p2 red.global.add.u32 [%rd6], 1;\n" + STEERS, "red.global.add.u32",
        "atom.global.add.u32 %r7,", "atom",
    ),
    "of lanes that have not met": Pair(
        "st.global.u32 [%rd9], 1;\nbar.warp.sync -1;\nld.global.u32 %r7, [%rd6];\n",
        "bar.warp.sync -1;\n", "", "st.global.u32 [%rd9]", warps=1,
    ),
    "of two lanes, in PTX's words": Pair(
        "setp.eq.u32 %p5, %r4, 0;\n@%p5 st.global.u32 [%rd9], 1;\n", "@%p5 st", "st",
        "st.global.u32 [%rd9]", warps=1, strict="ptx",
    ),
    "of two atomics, in PTX's words": Pair(
        "red.global.add.u32 [%rd9], 1;\n", "red.global.add.u32", "st.global.u32",
        "st.global.u32 [%rd9]", warps=1, strict="ptx",
    ),
    "of the thread's own": Pair(
        ".local .align 16 .b8 own[256]; mov.u64 %rd10, own; st.local.u32 [%rd10], 0;\n"
        "and.b32 %r9, %r5, 60; cvt.u64.u32 %rd11, %r9; add.s64 %rd11, %rd10, %rd11;\n"
        "ld.local.u32 %r7, [%rd11]; ld.local.u32 %r7, [%rd10];\n" + STEERS,
        "ld.local.u32 %r7, [%rd11]", "st.local.u32 [%rd11], 1", "@%p5 bar",
    ),
    "in several tensors": Pair(
        "selp.b64 %rd10, %rd6, %rd6, %p4;\n@%p2 red.add.u32 [%rd10], 1;\n", "%rd6, %rd6, %p4",
        "%rd6, %rd3, %p4", "@%p2 red",
    ),
    "in shared memory": Pair(
        "st.shared.u32 [%r11], 0; bar.sync 0; and.b32 %r9, %r5, 252; add.u32 %r9, %r9, %r1;\n"
        "red.shared.add.u32 [%r9], 1; bar.sync 0;\nld.shared.u32 %r7, [%r11];\n",
        "bar.sync 0;\nld", "ld", "ld.shared.u32",
    ),
    "of lanes in several CTAs": Pair(
        "st.shared.u32 [%r11], 0; barrier.cluster.arrive; barrier.cluster.wait;\n"
        "cvta.shared.u64 %rd10, smem; mov.u32 %r9, %cluster_ctarank; selp.b32 %r10, 1, 0, %p4;\n"
        "mov.u32 %r10, 0; xor.b32 %r9, %r9, %r10;\n"
        "mad.wide.u32 %rd10, %r4, 4, %rd10; mapa.u64 %rd10, %rd10, %r9;\n"
        "@%p2 red.add.u32 [%rd10], 1;\nbarrier.cluster.arrive; barrier.cluster.wait;\n",
        "mov.u32 %r10, 0;", "", "@%p2 red", ctas=2,
    ),
    "in another CTA": Pair(
        "st.shared.u32 [%r11], 0; barrier.cluster.arrive; barrier.cluster.wait;\n"
        "cvta.shared.u64 %rd10, smem; mov.u32 %r9, %cluster_ctarank; mov.u32 %r10, 0;\n"
        "mad.wide.u32 %rd10, %r4, 4, %rd10; xor.b32 %r9, %r9, %r10;\n"
        "mapa.u64 %rd10, %rd10, %r9;\n"
        "@%p2 red.add.u32 [%rd10], 1;\nbarrier.cluster.arrive; barrier.cluster.wait;\n",
        "mov.u32 %r10, 0;", "mov.u32 %r10, 1;", "@%p2 red", ctas=2,
    ),
    "out of what is declared": Pair(
        "@%p2 st.shared.u32 [%r11], 1;\n", "[%r11]", "[%r11+1048576]", "@%p2 st",
    ),
    "that only data has written": Pair(
        "st.shared.u32 [%r11], 0;\n@%p2 st.shared.u32 [%r11], 1;\nld.shared.u32 %r7, [%r11];\n",
        "st.shared.u32 [%r11], 0;", "", "ld.shared.u32",
    ),
    "that data has written in part": Pair(
        "mad.lo.u32 %r9, %r4, 8, %r1; st.shared.u32 [%r9+4], 0;\n"
        "@%p2 st.shared.v2.u32 [%r9], {%r4, %r4};\nld.shared.u32 %r7, [%r9+4];\n",
        "[%r9+4], 0;", "[%r9], 0;", "ld.shared.u32",
    ),
}  # fmt: skip

KINDS = {
    "releases": Pair(
        "@%p2 red.relaxed.gpu.global.add.u32 [%rd6], 1;\n"
        "ld.relaxed.gpu.global.u32 %r7, [%rd6];\n",
        "red.relaxed", "red.release", "@%p2 red",
    ),
    "ends what has been released": Pair(
        "ld.acquire.gpu.global.u32 %r10, [%rd6+8192];\n"
        "st.release.gpu.global.u32 [%rd6+4096], 1;\nbar.sync 0;\n"
        "@%p2 st.global.u32 [%rd6+12288], 2;\n", "[%rd6+12288]", "[%rd6+4096]", "@%p2 st",
    ),
    "may be another CTA's": Pair(
        "st.shared.u32 [%r11], 0;\n@%p2 st.shared.u32 [%r11], 1;\n", "@%p2 st.shared.u32",
        "@%p2 st.shared::cluster.u32", "@%p2 st",
    ),
    "is an atomic, and may be another CTA's": Pair(
        "st.shared.u32 [%r11], 0;\n@%p2 red.shared.add.u32 [%r11], 1;\n", "red.shared.add",
        "red.shared::cluster.add", "@%p2 red",
    ),
    "is asynchronous": Pair(
        "@%p2 ld.global.u32 %r7, [%rd6];\n", "ld.global.u32 %r7, [%rd6]",
        "cp.async.ca.shared.global [%r11], [%rd6], 4", "@%p2 cp",
    ),
    "is chance": Pair(
        "@!%p2 bra END;\nst.global.u32 [%rd6], 1; mov.u32 %r9, %laneid;\nEND: mov.u32 %r9, 1;\n",
        "mov.u32 %r9, %laneid", "activemask.b32 %r9", "@!%p2 bra END",
    ),
    "is strong": Pair(
        "@%p2 ld.global.u32 %r7, [%rd6];\n", "ld.global", "ld.relaxed.gpu.global", "@%p2 ld",
    ),
    "is used by others": Pair(
        "@%p2 red.global.add.u32 [%rd5], 1;\natom.global.add.u32 %r10, [%rd5], 1;\n" + STEERS,
        "%r10, [%rd5]", "%r7, [%rd5]", "@%p2 red",
    ),
}  # fmt: skip

ALL = {
    f"{kind}: {name}": pair
    for kind, pairs in (("loop", LOOPS), ("way", WAYS), ("place", PLACES), ("access", KINDS))
    for name, pair in pairs.items()
}


@pytest.mark.parametrize("name", ALL)
def test_what_is_proved_and_what_is_not(name: str) -> None:
    pair = ALL[name]
    assert check(pair.right, pair).verdict == "proved"
    found = check(pair.wrong, pair)
    assert found.verdict == "bounded"
    line = FIRST + pair.wrong[: pair.wrong.index(pair.at)].count("\n")
    assert f"k.ptx:{line}" in found.reasons[0], found.reasons
