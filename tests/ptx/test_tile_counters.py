"""CTAs that draw tiles from a counter and tell their threads by a word of shared memory, as
persistent kernels do: each mistake beside the right kernel."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, program
from tilesim.checker import Report, check
from tilesim.ptx.launch import Contents, Pointer, Scalar

TILES = 5
#: thread 0 draws a number, all threads read it and store to their words of tile ``place``
BODY = (
    "ld.param.u64 %rd1, [c]; ld.param.u64 %rd2, [x]; ld.param.u32 %r9, [n]; mov.u32 %r1, %tid.x; "
    "mov.u32 %r3, smem; setp.ne.u32 %p1, %r1, 0; bra NEXT;\n"
    "TILE: {place} shl.b32 %r5, %r5, 5; and.b32 %r6, %r1, 31; add.u32 %r5, %r5, %r6; "
    "mul.wide.u32 %rd3, %r5, 4; add.u64 %rd4, %rd2, %rd3;\n"
    "@%p3 st.global.u32 [%rd4], %r1;\n"
    "NEXT: setp.lt.u32 %p3, %r1, 32; @%p1 bra READ; atom.global.add.u32 %r4, [%rd1], 1;\n"
    "st.shared.u32 [smem], %r4;\n"
    "READ: bar.sync 0;\n"
    "{load};\n"
    "{after}\n"
    "setp.lt.s32 %p2, %r2, %r9; @%p2 bra TILE;\n"
)
PLACE, WORD, AFTER = "mov.u32 %r5, %r2;", "ld.shared.u32 %r2, [smem]", "bar.sync 0;"


def run(place: str = PLACE, load: str = WORD, after: str = AFTER) -> Report:
    body = BODY.format(place=place, load=load, after=after)
    params = (".param .u64 c", ".param .u64 x", ".param .u32 n")
    values = (
        Pointer("c", 4, 0, Contents("u32", (0,))), Pointer("x", 32 * 4 * TILES),
        Scalar("n", "u32", TILES),
    )  # fmt: skip
    return check(
        program(body, warps=2, grid=3, params=params, values=values), budget=500, schedules=4
    )


def test_whoever_draws_which_tile() -> None:
    found = run()
    assert found.verdict == "proved", found
    assert "every ticket order of c" in found.covers


@pytest.mark.parametrize("place", ["shr.u32 %r5, %r2, 1;", "and.b32 %r5, %r2, 3;"])
def test_two_tiles_in_one_place(place: str) -> None:
    found = run(place)
    assert found.verdict == "failed"
    assert found.rules == {"race"}
    assert {p.loc.line - FIRST for p in found.findings[0].participants} == {2}


def test_a_number_that_is_drawn_over_another_that_is_still_read() -> None:
    found = run(after="")
    assert found.verdict == "failed"
    assert found.rules == {"race"}
    assert {p.loc.line - FIRST for p in found.findings[0].participants} == {4, 6}


@pytest.mark.parametrize(
    "load",
    [
        "ld.shared.u8 %r2, [smem]",
        "ld.shared.b32 %r2, [smem]; mov.u32 %r7, 1; @%p1 mov.u32 %r7, 0; shr.u32 %r2, %r2, %r7",
    ],
)
def test_what_else_is_made_of_the_number_may_decide(load: str) -> None:
    """Other numbers than those of the runs may come out: nothing is proved by these."""
    assert run(load=load).verdict not in ("proved",)


def test_a_word_whose_address_is_computed() -> None:
    """Runs show that it is the one to which the number is stored."""
    load = "add.u32 %r7, %r3, 1; sub.u32 %r7, %r7, 1; ld.shared.u32 %r2, [%r7]"
    assert run(load=load).verdict == "proved"
    assert run(load=load.replace("r7, %r7, 1", "r7, %r7, %r1")).verdict != "proved"


def test_a_tile_that_says_where_in_shared_memory() -> None:
    place = f"{PLACE} mad.lo.u32 %r8, %r2, 4, %r3; st.shared.u32 [%r8+64], %r1;"
    assert run(place).verdict not in ("proved",)
