"""How many tiles one CTA takes, of launch control or of a counter: what only comes with many."""

from __future__ import annotations

import pytest

from tilesim.analysis.cfg import graph_of
from tilesim.checker import Report, check
from tilesim.checker.launch_control import compared
from tilesim.ir.mir import Mir
from tilesim.ptx.launch import Contents, Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: each tile: a thread asks for another one, all store the tile, wait, and read the answer; %r51
#: counts tiles
KERNEL = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 g)
{{
.reg .pred %p<9>; .reg .b32 %r<60>; .reg .b64 %rd<9>; .reg .b128 %q<2>;
.shared .align 16 .b8 s[512];
mov.u32 %r1, s; mov.u32 %r4, %tid.x; setp.eq.u32 %p0, %r4, 0; setp.eq.u32 %p2, %r4, 32;
ld.param.u64 %rd1, [g]; cvta.to.global.u64 %rd1, %rd1;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
bar.sync 0;
mov.u32 %r50, %ctaid.x; mov.u32 %r51, 0; add.u32 %r20, %r1, 16;
TILE:
@!%p0 bra ASKED;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r20], [%r1];
ASKED:
shl.b32 %r53, %r50, 6; add.u32 %r53, %r53, %r4; mul.wide.u32 %rd2, %r53, 4;
add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r4;
{each}
and.b32 %r52, %r51, 1;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r52;
@!%p1 bra WAIT;
ld.shared.b128 %q1, [%r20];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p7, %q1;
@%p7 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r50, %q1;
fence.proxy.async.shared::cta;
bar.sync 0;
add.u32 %r51, %r51, 1;
@%p7 bra TILE;
{end}
ret;
}}
"""
#: two warps access a word and nothing orders them
RACE = (
    "{test}\n@!%p4 bra GO;\n@%p0 st.shared.u32 [%r1+96], 1;\n@%p2 st.shared.u32 [%r1+96], 2;\nGO:"
)


def mir(grid: int, *, each: str = "", end: str = "") -> Mir:
    module = read(KERNEL.format(each=each, end=end), "k.ptx")
    launch = Launch("k", (grid, 1, 1), (64, 1, 1), params=(Pointer("g", 256 * grid),))
    return lower(module, module.entries[0], launch)


def report(grid: int, *, each: str = "", end: str = "") -> Report:
    return check(mir(grid, each=each, end=end), budget=100, schedules=2)


@pytest.mark.parametrize(
    "test",
    [
        "setp.eq.u32 %p4, %r51, {n};",
        "sub.u32 %r54, %r51, {n}; setp.eq.u32 %p4, %r54, 0;",
        "mul.lo.u32 %r54, %r51, %r51; setp.eq.u32 %p4, %r54, {n2};",
    ],
)
def test_a_turn_that_comes_late(test: str) -> None:
    race = RACE.format(test=test.format(n=17, n2=289))
    assert report(20, each=race).rules == {"race"}
    assert report(12, each=race).verdict == "proved"


def test_an_array_with_an_element_for_each_tile() -> None:
    """Nothing is compared, and no ring goes round: 20 elements are too few for 22 tiles."""
    each = "shl.b32 %r54, %r51, 2; add.u32 %r54, %r54, %r1; @%p0 st.shared.u32 [%r54+432], 0;"
    assert report(22, each=each).rules == {"out-of-bounds"}
    assert report(20, each=each).verdict == "proved"


def test_an_end_after_so_many_tiles() -> None:
    race = RACE.format(test="setp.eq.u32 %p4, %r51, 17;")
    assert report(20, end=race).rules == {"race"}
    assert report(12, end=race).verdict == "proved"


def test_what_counts_tiles_is_compared_with() -> None:
    """Numbers of tiles; not with which one tile's work is counted, or addresses are made."""
    inner = "mov.u32 %r55, 0;\nIN: add.u32 %r55, %r55, 1; setp.lt.u32 %p5, %r55, 700; @%p5 bra IN;"
    address = "shl.b32 %r56, %r51, 2; and.b32 %r56, %r56, 16383; add.u32 %r56, %r56, %r1;"
    race = RACE.format(test="and.b32 %r57, %r51, 255; setp.eq.u32 %p4, %r57, 900;")
    program = mir(4, each=f"{inner}\n{address} st.shared.u32 [%r56+432], %r51;\n{race}")
    assert {n for n in compared(graph_of(program)) if n > 2} == {256, 900}


#: the same with numbers that the threads of a CTA draw from a counter, up to 60
DRAWING = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 g, .param .u64 f)
{{
.reg .pred %p<9>; .reg .b32 %r<60>; .reg .b64 %rd<9>;
.shared .align 16 .b8 s[512];
mov.u32 %r1, s; mov.u32 %r4, %tid.x; setp.eq.u32 %p0, %r4, 0; setp.eq.u32 %p2, %r4, 32;
ld.param.u64 %rd1, [g]; cvta.to.global.u64 %rd1, %rd1; mov.u32 %r51, 0;
ld.param.u64 %rd4, [f]; cvta.to.global.u64 %rd4, %rd4;
TILE:
@!%p0 bra DRAWN;
atom.relaxed.gpu.global.add.u32 %r20, [%rd4], 1;
st.shared.u32 [%r1], %r20;
DRAWN:
bar.sync 0;
ld.shared.u32 %r50, [%r1];
bar.sync 0;
setp.ge.u32 %p7, %r50, 60;
@%p7 bra END;
shl.b32 %r53, %r50, 6; add.u32 %r53, %r53, %r4; mul.wide.u32 %rd2, %r53, 4;
add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r4;
add.u32 %r51, %r51, 1;
bra TILE;
END:
{end}
ret;
}}
"""


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        ("setp.eq.u32 %p4, %r51, 17;", "failed"),
        ("setp.gt.u32 %p3, %r51, 17; and.b32 %r54, %r51, 3; "
         "setp.eq.and.u32 %p4, %r54, 3, %p3;", "failed"),
        ("setp.eq.u32 %p4, %r51, 61;", "proved"),
    ],
)  # fmt: skip
def test_an_end_after_so_many_draws(test: str, verdict: str) -> None:
    """Of eight CTAs one has so many tiles in few orders of the draws."""
    module = read(DRAWING.format(end=RACE.format(test=test)), "k.ptx")
    zero = Contents("u32", (0,))
    params = (Pointer("g", 256 * 60), Pointer("f", 4, contents=zero))
    launch = Launch("k", (8, 1, 1), (64, 1, 1), params=params)
    found = check(lower(module, module.entries[0], launch), budget=100, schedules=2)
    assert found.verdict == verdict
