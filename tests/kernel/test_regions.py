"""Regions that data decides: programs that break what is concluded of them, and their right twins.

In PTX, by its plain form. ``%r5`` is a word of data of each thread, which is unknown.
"""

from __future__ import annotations

import pytest

from tests.campaign import Judged
from tests.kernel import campaign
from tests.kernel.random_regions import ASSUMED, judged
from tests.ptx.test_check import program
from tilesim.proof.check import certify
from tilesim.proof.rules import Answer
from tilesim.ptx.launch import Contents, Pointer
from tilesim.ptx.plain import plain

#: %r11: the thread's own word of 64 in shared memory, %r6: the next thread's, %rd5: b, of which
#: %rd6 is the own word
SETUP = """ld.param.u64 %rd1, [a]; ld.param.u64 %rd5, [b]; mov.u32 %r4, %tid.x;
mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r5, [%rd3];
add.s64 %rd6, %rd5, %rd2; mov.u32 %r1, smem; add.u32 %r1, %r1, 128;
mad.lo.u32 %r11, %r4, 4, %r1; add.u32 %r6, %r4, 1; and.b32 %r6, %r6, 63;
mad.lo.u32 %r6, %r6, 4, %r1; setp.ne.u32 %p2, %r5, 0; mov.u32 %r8, 0; mov.u32 %r9, 0;
"""
#: all words are zero
ZERO = "st.shared.u32 [%r11], 0; bar.sync 0;\n"


def answer(body: str, *, assumed: tuple[str, ...] = ASSUMED) -> Answer:
    """What the kernel says of a body, by two warps."""
    values = (Pointer("a", 4 * 64), Pointer("b", 1024, 0, Contents("u32", (0,) * 256)))
    params = (".param .u64 a", ".param .u64 b")
    mir = program(SETUP + body, params=params, values=values, warps=2, by=plain)
    return certify(mir, assumed=assumed)


def moved_in(instruction: str, what: str) -> tuple[str, tuple[str, str], str]:
    """An instruction that stands behind a region, and in the wrong body in it."""
    behind = f"D: {instruction}"
    body = f"{ZERO}@%p2 bra D; st.shared.u32 [%r11], 1; {behind}"
    return body, (behind, f"{instruction} D:"), what


#: a right body, what is written for what in the wrong one, and what the kernel then says
PAIRS = {
    "a store on one path, of which another thread knows nothing": (
        ZERO + "@%p2 bra D; st.shared.u32 [%r11], 1; D: bar.sync 0; ld.shared.u32 %r7, [%r6];",
        ("D: bar.sync 0;", "D:"), "where data decides",
    ),
    "a store on the other path": (
        ZERO + "@!%p2 bra E; mov.u32 %r8, 1; bra D; E: st.shared.u32 [%r11], 1; D: bar.sync 0;\n"
        "ld.shared.u32 %r7, [%r6];",
        ("E: st.shared.u32 [%r11], 1;", "E: st.shared.u32 [%r6], 1;"), "certified",
    ),
    "a store by another thread's lane, read by the own one": (
        ZERO + "@%p2 bra D; st.shared.u32 [%r6], 1; D: bar.sync 0; ld.shared.u32 %r7, [%r6];",
        ("D: bar.sync 0; ld.shared.u32 %r7, [%r6]", "D: ld.shared.u32 %r7, [%r11]"),
        "where data decides",
    ),
    "a store under a predicate": (
        ZERO + "@%p2 st.shared.u32 [%r11], 1; bar.sync 0; ld.shared.u32 %r7, [%r6];",
        ("1; bar.sync 0;", "1;"), "where data decides",
    ),
    "an address that one path sets": (
        ZERO + "mov.u32 %r10, %r11; @%p2 bra D; mov.u32 %r10, %r11; D: st.shared.u32 [%r10], 1;",
        ("bra D; mov.u32 %r10, %r11;", "bra D; mov.u32 %r10, %r6;"), "data decides an address",
    ),
    "a number that was an address": (
        ZERO + "mov.u32 %r10, %r11; @%p2 bra D; add.u32 %r10, %r10, 4; sub.u32 %r10, %r10, 4; D:\n"
        "st.shared.u32 [%r10], 1;",
        ("sub.u32 %r10, %r10, 4;", "xor.b32 %r10, %r10, 4096; xor.b32 %r10, %r10, 8192;"),
        "data decides an address",
    ),
    "an address that a predicate sets": (
        ZERO + "mov.u32 %r10, %r11; @%p2 mov.u32 %r10, %r11; st.shared.u32 [%r10], 1;",
        ("@%p2 mov.u32 %r10, %r11;", "@%p2 mov.u32 %r10, %r6;"), "data decides an address",
    ),
    "bytes that only one path has written": (
        "@%p2 bra D; mov.u32 %r8, 1; D: st.shared.u32 [%r11], 1; bar.sync 0;\n"
        "ld.shared.u32 %r7, [%r6];",
        ("D: st.shared.u32 [%r11], 1;", "st.shared.u32 [%r11], 1; D:"), "uninitialised",
    ),
    "bytes that a predicate has written": (
        "@%p2 mov.u32 %r8, 1; st.shared.u32 [%r11], 1; bar.sync 0; ld.shared.u32 %r7, [%r6];",
        ("; st.shared", "; @%p2 st.shared"), "uninitialised",
    ),
    "a store that does not hide the one before": (
        ZERO + "setp.eq.u32 %p3, %r4, 0; setp.eq.u32 %p4, %r4, 32; add.u32 %r10, %r1, 0;\n"
        "@%p3 st.shared.u32 [%r10], 5; bar.sync 0; @!%p4 bra D; @%p2 bra D;\n"
        "st.shared.u32 [%r10], 6; D: bar.sync 0; ld.shared.u32 %r7, [%r10];",
        ("5; bar.sync 0;", "5;"), "where data decides",
    ),
    "what a store that may be made has left": (
        ZERO + "@%p2 bra D; st.shared.u32 [%r11], 0; D: ld.shared.u32 %r7, [%r11];\n"
        "st.shared.u32 [%r11], 0; ld.shared.u32 %r7, [%r11];\n"
        "mad.lo.u32 %r7, %r7, 4, %r11; st.shared.u32 [%r7], 1;",
        ("st.shared.u32 [%r11], 0; ld.shared.u32 %r7, [%r11];\nmad", "mad"),
        "data decides an address",
    ),
    "what the iteration before has stored": (
        ZERO + "mov.u32 %r7, 0; L: setp.ne.u32 %p3, %r7, 0; @%p3 st.shared.u32 [%r6], 1;\n"
        "mov.u32 %r7, 0; st.shared.u32 [%r11], 1; @%p2 bra L;",
        ("mov.u32 %r7, 0; st.shared.u32 [%r11], 1;",
         "ld.shared.u32 %r7, [%r11]; st.shared.u32 [%r11], 1;"),
        "where data decides",
    ),
    "a loop whose second iteration stores elsewhere": (
        ZERO + "mov.u32 %r10, %r11; L: st.shared.u32 [%r10], %r4;\n"
        "mov.u32 %r10, %r11; @%p2 bra L;",
        ("mov.u32 %r10, %r11; @%p2", "mov.u32 %r10, %r6; @%p2"),
        "stores that may be of equal values",
    ),
    "a loop whose iterations store at growing addresses": (
        ZERO + "mov.u32 %r10, %r11; L: st.shared.u32 [%r10], 1; add.u32 %r10, %r10, 0; @%p2 bra L;",
        ("%r10, 0; @%p2", "%r10, 256; @%p2"), "outside of the shared memory",
    ),
    "a loop of a known number of iterations": (
        ZERO + "@%p2 bra D; mov.u32 %r8, 0; L: mad.lo.u32 %r7, %r8, 256, %r11;\n"
        "st.shared.u32 [%r7], %r4; add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, 3; @%p3 bra L;\n"
        "D: bar.sync 0; ld.shared.u32 %r7, [%r6];",
        ("%r8, 256, %r11", "%r8, 4, %r11"), "stores that may be of equal values",
    ),
    "a region that enters a loop in the middle": (
        ZERO + "mov.u32 %r10, %r11; mov.u32 %r7, %r11; @%p2 bra M; L: st.shared.u32 [%r10], %r4;\n"
        "M: mov.u32 %r10, %r7; add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, 3; @%p3 bra L;",
        ("mov.u32 %r7, %r11;", "mov.u32 %r7, %r6;"), "stores that may be of equal values",
    ),
    "a barrier": moved_in("bar.sync 0;", "(barrier.sync) of"),
    "a barrier in a region in a region that is known": (
        ZERO + "@%p2 bra D; setp.lt.u32 %p3, %r4, 0; @!%p3 bra E; bar.sync 0;\n"
        "E: mov.u32 %r8, 1; D:",
        ("%r4, 0", "%r4, 1"), "(barrier.sync) of",
    ),
    "a warp barrier": moved_in("bar.warp.sync -1;", "(bar.warp.sync) of"),
    "a shuffle": moved_in("shfl.sync.idx.b32 %r7, %r8, 0, 31, -1;", "may be executed or not"),
    "a fence": moved_in("fence.proxy.async;", "may be executed or not"),
    "an arrival": (
        "sub.u32 %r20, %r1, 128; setp.eq.u32 %p3, %r4, 0;\n"
        "@%p3 mbarrier.init.shared::cta.b64 [%r20], 128; bar.sync 0; @%p2 bra D; mov.u32 %r8, 1;\n"
        "D: mbarrier.arrive.shared::cta.b64 _, [%r20]; bar.sync 0;",
        ("D: mbarrier.arrive.shared::cta.b64 _, [%r20];",
         "mbarrier.arrive.shared::cta.b64 _, [%r20]; D:"), "may be executed or not",
    ),
    "an end of threads before a barrier": (
        ZERO + "@%p2 bra D; bra E; D: mov.u32 %r8, 1; E: bar.sync 0;",
        ("bra E; D:", "ret; D:"), "(barrier.sync) of",
    ),
    "an end of threads behind the last barrier": (
        ZERO + "ld.shared.u32 %r7, [%r6]; bar.sync 0; @%p2 ret; st.shared.u32 [%r11], 1;",
        ("bar.sync 0; @%p2", "@%p2"), "where data decides",
    ),
    "both paths store to one place": (
        ZERO + "@%p2 bra E; st.shared.u32 [%r11], 1; bra D; E: st.shared.u32 [%r11], 2; D:",
        ("E: st.shared.u32 [%r11], 2;", "E: st.shared.u32 [%r6], 2;"), "where data decides",
    ),
    "lanes that store to one place": (
        ZERO + "@%p2 bra D; st.shared.u32 [%r11], 7; D:",
        ("[%r11], 7", "[%r1], %r4"), "lanes store to one place",
    ),
    "an atomic whose result decides": (
        ZERO + "@%p2 bra D; atom.shared.add.u32 %r7, [%r1], 1; mov.u32 %r7, 0; D:\n"
        "mad.lo.u32 %r7, %r9, 4, %r11; st.shared.u32 [%r7+256], 1;",
        ("mov.u32 %r7, 0; D:", "mov.u32 %r9, %r7; D:"), "data decides an address",
    ),
    "a loop that waits for others": (
        "L: ld.global.u32 %r7, [%rd3]; add.u32 %r8, %r8, %r7; setp.lt.u32 %p3, %r8, 9;\n"
        "@%p3 bra L;",
        ("ld.global", "ld.volatile.global"), "looks at what others may write",
    ),
    "a loop that never ends": (
        ZERO + "@%p2 bra D; L: setp.eq.u32 %p3, %r5, 7; @%p3 bra L; D:",
        ("@%p3 bra L", "bra L"), "not all lanes come",
    ),
    "a loop that a number that is known keeps going": (
        ZERO + "@%p2 bra D; L: setp.eq.u32 %p3, %r4, 99; @%p3 bra L; D:",
        ("99", "3"), "not all lanes come",
    ),
    "a trap of all": (
        ZERO + "@%p2 bra D; setp.eq.u32 %p3, %r5, 7; @%p3 trap; D:",
        ("@%p3 trap; D:", "@%p3 bra D; trap; D: mov.u32 %r8, 1; @%p2 trap; @%p2 bra E; E: trap;"),
        "nothing ends",
    ),
    "a read that is not coherent": (
        ZERO + "@%p2 bra D; st.global.u32 [%rd6], 1; D: ld.global.nc.u32 %r7, [%rd6+256];",
        ("%rd6+256", "%rd6"), "H25",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_a_wrong_region_is_refused_and_its_twin_is_not(name: str) -> None:
    right, (old, new), what = PAIRS[name]
    assert str(answer(right)) == "certified"
    assert right.count(old) == 1
    assert what in str(answer(right.replace(old, new)))


@pytest.mark.parametrize("name", ["loops-end", "no-trap"])
def test_what_is_taken_for_granted_has_to_be_assumed(name: str) -> None:
    iterations, once = (
        "L: add.u32 %r8, %r8, %r5; setp.lt.u32 %p3, %r8, 9; @%p3 bra L;",
        "@%p2 trap;",
    )
    body = ZERO + (iterations if name == "loops-end" else once)
    assert str(answer(body, assumed=(name,))) == "certified"
    others = tuple(other for other in ASSUMED if other != name)
    assert answer(body, assumed=others).what.endswith(f"{name} is not assumed")


def test_a_path_that_jumps_back_is_no_loop() -> None:
    far = "@%p2 bra F; B: st.shared.u32 [%r11], 1; ret; F: mov.u32 %r8, 1; bra B;"
    assert str(answer(ZERO + far, assumed=())) == "certified"


@pytest.mark.parametrize("seed", [1, 10])
def test_random_kernels_are_right_whatever_their_data_is(seed: int) -> None:
    assert judged(seed, 1) == Judged("certified")


@pytest.mark.parametrize("number", range(3, 9))
def test_small_programs_are_right_whatever_data_makes_of_them(number: int) -> None:
    assert not campaign.judged(number, "practice", regions=True).wrong
