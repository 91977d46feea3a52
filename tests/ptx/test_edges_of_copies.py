"""What lanes copy asynchronously, word by word: one word decides whether an arrival comes.

Each lane has stored numbers of its own to global memory, and lanes copy some of these. The right
kernel arrives where a word of the copy is what it has to be; the wrong one leaves its arrival out
just there, and arrives if anything else has been copied.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.ptx.test_check import FIRST, report
from tilesim.checker import Report
from tilesim.ptx.launch import Pointer

#: the lane that looks at what has been copied
LOOKS = 5
#: a lane has 4 * lane + 1 and what follows at %rd3 in global memory, and -1 at %r3 in shared
#: memory; a barrier for one arrival is at 0; what all lanes copy to begins at %r5
START = """\
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p0, %r2, {looks}; add.u32 %r5, %r1, 64;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
ld.param.u64 %rd1, [a]; mul.wide.u32 %rd2, %r2, 16; add.u64 %rd3, %rd1, %rd2;
shl.b32 %r3, %r2, 4; add.u32 %r3, %r3, %r5; shl.b32 %r4, %r2, 2;
add.u32 %r10, %r4, 1; add.u32 %r11, %r4, 2; add.u32 %r12, %r4, 3; add.u32 %r13, %r4, 4;
st.global.v4.u32 [%rd3], {{%r10, %r11, %r12, %r13}}; st.shared.v4.s32 [%r3], {{-1, -1, -1, -1}};
bar.warp.sync -1;
"""
END = """\
cp.async.wait_all;
bar.warp.sync -1;
ld.shared.u32 %r20, [%r5+{at}]; setp.{holds}.u32 %p2, %r20, {value}; and.pred %p2, %p2, %p0;
@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1];
L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
@!%p1 bra L;
"""


@dataclass(frozen=True)
class Copy:
    """How lanes copy, and numbers at some bytes of what has been copied to."""

    text: str
    words: dict[int, int]


#: the number of no lane
NONE = (1 << 32) - 1
COPIES = {
    "16 bytes of each lane": Copy(
        "cp.async.cg.shared.global [%r3], [%rd3], 16;", {0: 1, 12: 4, 16 * 29 + 4: 118}
    ),
    "8 bytes of each lane": Copy(
        "cp.async.ca.shared.global [%r3], [%rd3+8], 8;", {0: 3, 4: 4, 8: NONE, 16 * 29 + 4: 120}
    ),
    "a word of each lane": Copy(
        "cp.async.ca.shared.global [%r3+4], [%rd3+8], 4;", {4: 3, 0: NONE, 16 * 29 + 4: 119}
    ),
    "of another lane": Copy(
        "xor.b32 %r6, %r2, 1; mul.wide.u32 %rd4, %r6, 16; add.u64 %rd4, %rd4, %rd1;\n"
        "cp.async.cg.shared.global [%r3], [%rd4], 16;", {0: 5, 16 * 29: 113},
    ),
    "all lanes the same": Copy(
        "cp.async.cg.shared.global [%r5], [%rd1+32], 16;", {0: 9, 12: 12, 16: NONE}
    ),
    "one lane": Copy("@%p0 cp.async.cg.shared.global [%r3], [%rd3], 16;", {84: 22, 0: NONE}),
    "some lanes": Copy(
        "setp.lt.u32 %p3, %r2, 9;\n@%p3 cp.async.cg.shared.global [%r3], [%rd3], 16;",
        {16 * 8: 33, 16 * 9: NONE},
    ),
    "a part, and zeros": Copy(
        "cp.async.cg.shared.global [%r3], [%rd3], 16, 8;", {4: 2, 8: 0, 16 * 29 + 4: 118}
    ),
    "a part of all lanes' box": Copy(
        "cp.async.cg.shared.global [%r5], [%rd1+32], 16, 4;", {0: 9, 4: 0, 16: NONE}
    ),
    "nothing but zeros": Copy("cp.async.cg.shared.global [%r3], [%rd3], 16, 0;", {0: 0, 92: 0}),
    "nothing but zeros in all lanes' box": Copy(
        "cp.async.cg.shared.global [%r5], [%rd1], 16, 0;", {0: 0, 12: 0, 16: NONE}
    ),
    "another part of each lane": Copy(
        "and.b32 %r6, %r2, 3; shl.b32 %r6, %r6, 2;\n"
        "cp.async.cg.shared.global [%r3], [%rd3], 16, %r6;",
        {0: 0, 16: 5, 20: 0, 32: 9, 36: 10, 40: 0, 48 + 8: 15, 48 + 12: 0, 16 * 30 + 4: 122},
    ),
    "zeros in some lanes": Copy(
        "and.b32 %r6, %r2, 16;\ncp.async.cg.shared.global [%r3], [%rd3], 16, %r6;",
        {0: 0, 16 * 16: 65, 16 * 31 + 12: 128},
    ),
    "a word over another one": Copy(
        "cp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.wait_all;\n"
        "cp.async.ca.shared.global [%r3], [%rd3+4], 4;", {0: 2, 4: 2, 16 * 29: 118},
    ),
}  # fmt: skip


def check(name: str, at: int, value: int, *, wrong: bool) -> Report:
    end = END.format(at=at, value=value, holds="ne" if wrong else "eq")
    body = START.format(looks=LOOKS) + COPIES[name].text + "\n" + end
    return report(body, params=(".param .u64 a",), values=(Pointer("a", 512),))


def line_of_the_wait(name: str) -> int:
    before = START + COPIES[name].text + "\n" + END
    return FIRST + before[: before.index("L: ")].count("\n")


@pytest.mark.parametrize(
    ("name", "at"), [(name, at) for name, c in COPIES.items() for at in c.words]
)
def test_an_arrival_that_hangs_on_a_word_of_a_copy(name: str, at: int) -> None:
    value = COPIES[name].words[at]
    assert check(name, at, value, wrong=False).verdict == "proved"
    found = check(name, at, value, wrong=True)
    assert found.rules == {"deadlock"}
    assert {p.loc.line for p in found.findings[0].participants} == {line_of_the_wait(name)}
